// What a user asks of a prediction, as plain values. The command line, the run: section of a model and the Python module all fill this struct.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "estimator/core/dtype.h"
#include "estimator/timing/kernel_call.h"
#include "estimator/timing/kernel_time.h"

namespace rooftile {

enum class Phase : std::uint8_t { train, forward, prefill, decode };
enum class Precision : std::uint8_t { pure, mixed };  // see interface: mixed is autocast under torch-*, bf16 weights with fp32 main weights under megatron and fused
enum class Recompute : std::uint8_t { none, selective, full };
enum class OptimizerChoice : std::uint8_t { adamw, sgd, none };
enum class PipelineSchedule : std::uint8_t { one_f_one_b, gpipe, interleaved };

// The parallel layout; tp x pp x cp x dp = gpus.
struct Layout {
  std::int64_t gpus = 1, gpus_per_node = 8;
  std::int64_t tp = 1, pp = 1, vpp = 1, cp = 1, ep = 1;
  std::int64_t dp = 0;        // 0: derived from the rest
  std::int64_t etp = 0;       // tensor parallelism inside experts; 0: as tp (Megatron's default)
  std::int64_t dp_shard = 0;  // ranks that share one copy of the sharded state (0: all dp x cp)
  int zero = 0;               // 0..3; 3 = FSDP full shard
  bool sp = false;
  PipelineSchedule schedule = PipelineSchedule::one_f_one_b;
  bool overlap_grad_reduce = false, overlap_param_gather = false;

  std::int64_t expert_tp() const { return etp > 0 ? etp : tp; }
};

struct Options {
  Phase phase = Phase::train;
  DType dtype = DType::bf16;
  Precision precision = Precision::mixed;
  std::int64_t mbs = 1;
  std::int64_t gbs = 0;      // sequences of a whole step; 0: mbs x dp
  std::int64_t seq = 0;      // 0: min(max_positions, 4096)
  std::int64_t context = 0;  // tokens already in the KV cache
  OptimizerChoice optimizer = OptimizerChoice::adamw;
  Recompute recompute = Recompute::none;
  AttentionKernel attention = AttentionKernel::fastest;
  ClockState clocks = ClockState::automatic;
  Mode mode = Mode::calibrated;
  bool cuda_graphs = false;
  Layout layout;

  std::int64_t micro_batches() const { return gbs > 0 ? gbs / (mbs * (layout.dp > 0 ? layout.dp : 1)) : 1; }
};

// The clock state that kernels of a whole step are timed at under `automatic`: burst; predict() then slows the step by what the power limit leaves of it
// (KernelTimer::step_slowdown).
constexpr ClockState step_clocks(const Options& options) { return options.clocks == ClockState::automatic ? ClockState::burst : options.clocks; }

std::string_view name_of(Phase phase);
std::string_view name_of(Precision precision);
std::string_view name_of(Recompute recompute);
std::string_view name_of(OptimizerChoice optimizer);
std::string_view name_of(Mode mode);
std::string_view name_of(ClockState clocks);
std::string_view name_of(PipelineSchedule schedule);

}  // namespace rooftile
