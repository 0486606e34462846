// The result of a prediction: rows, totals, memory, warnings. Every output format renders this one struct. SI base units.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "estimator/core/count.h"
#include "estimator/core/result.h"
#include "estimator/graph/graph.h"
#include "estimator/passes/options.h"
#include "estimator/timing/kernel_time.h"

namespace rooftile {

enum class StepPhase : std::uint8_t { forward, backward, recompute, optimizer, communication };
std::string_view name_of(StepPhase phase);

enum class Grade : std::uint8_t { excellent, acceptable, danger };
std::string_view name_of(Grade grade);

// One kernel of one operator in one phase; all `count` instances of it on the slowest rank, micro-batches included.
struct OpRow {
  std::string name;                 // "layer.qkv", "layer.qkv.dgrad", "head.lm_head"
  std::string segment;              // "embedding", "layer", "head", "optimizer", "communication"; short, so a copy allocates nothing
  std::uint32_t operator_size = 0;  // leading characters of `name` that name segment and operator; what follows is pass and part. 0: all of it
  OpKind op = OpKind::free;
  StepPhase phase = StepPhase::forward;
  std::int64_t count = 0;
  Count launches = 0;        // kernels and memsets of all instances: `count` x those of one call
  KernelCall call;           // shape and dtype
  Count flops = 0;           // algorithmic
  Count flops_executed = 0;  // padding included
  Count bytes = 0;           // DRAM traffic, read and written
  Count bytes_read = 0, bytes_written = 0;
  double time_s = 0;  // communication: the exposed part
  double duration_s = 0;
  double attainable_s = 0, peak_s = 0;
  double utilization = 0;            // flops / (time_s x data-sheet peak of the row's dtype)
  double bandwidth_utilization = 0;  // bytes / (time_s x data-sheet bandwidth)
  Bound bound = Bound::compute;
  Grade grade = Grade::danger;  // compute-bound rows by utilization, the others by bandwidth_utilization
  bool graded_by_bandwidth = false;
  std::string_view kernel;  // family
  std::int32_t tile_m = 0, tile_n = 0, split_k = 1;
  double waves = 0;
  LossSeconds loss_s{};
  Confidence confidence = Confidence::spec;
  double error_p90 = 0;

  double intensity() const { return bytes > 0 ? to_double(flops) / to_double(bytes) : 0; }
  double recoverable_s() const { return time_s > attainable_s ? time_s - attainable_s : 0; }
};

struct MemoryTerm {
  std::string name;  // "weights", "gradients", "layer.act" (kept by it), "head.loss.grad" (on its way back)
  Count bytes = 0;
};

struct MemoryTotals {
  Count peak_bytes = 0, parameters_bytes = 0, gradients_bytes = 0, optimizer_bytes = 0, activations_bytes = 0, kv_cache_bytes = 0, workspace_bytes = 0;
  Count reserved_bytes = 0;  // what the allocator has asked of the device by then
  StepPhase peak_phase = StepPhase::forward;
  std::string peak_segment, peak_operator;  // of the moment of the peak; no operator: the optimizer's step
  std::vector<MemoryTerm> top;              // what is alive then, the ten largest
  bool fits = true;
  double capacity_bytes = 0;
  std::string breaks;     // the term that breaks it: "optimizer states (64.2 GB)"; empty when it fits
  std::string would_fit;  // a setting that fits: "--gpus 8 --zero 3"; empty when none was found or it fits
  double would_fit_bytes = 0;
  Options would_fit_options;  // the options with that setting applied, when would_fit is not empty
};

struct Totals {
  double step_time_s = 0, step_time_low_s = 0, step_time_high_s = 0;
  double forward_time_s = 0, backward_time_s = 0, recompute_time_s = 0, optimizer_time_s = 0, exposed_communication_time_s = 0;
  double bubble_time_s = 0, launch_gap_time_s = 0, host_bound_time_s = 0;
  Count launches = 0;  // kernels and memsets of one rank
  Count flops_matmul_dense = 0, flops_model = 0, flops_hardware = 0, bytes = 0, tokens = 0;
  double tokens_per_s_per_gpu = 0, tflops_per_gpu = 0, mfu = 0, hfu = 0, busy_fraction = 0;
  double attainable_s = 0, peak_s = 0;
  MemoryTotals memory;
};

struct Prediction {
  Options options;  // as resolved, every default filled in
  ModelInfo model;
  Count parameters = 0, parameters_active = 0, parameters_embedding = 0;
  std::string device_id, device_name, runtime, cluster;
  double peak_flops = 0;  // of options.dtype, dense, data sheet
  double peak_bandwidth = 0;
  std::vector<std::string> calibration_layers;
  std::vector<OpRow> rows;  // in order of execution; sorted only by renderers
  Totals totals;
  std::vector<Warning> warnings;
};

}  // namespace rooftile
