// The seam between what wants kernels measured and what can measure them: a GPU, a file of earlier measurements, or nothing.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "estimator/core/result.h"
#include "validate/measurement.h"
#include "validate/measurements.h"
#include "validate/plan.h"

namespace rooftile {

struct RunOptions {
  ClockState clocks = ClockState::burst;  // sustained: the GPU is kept loaded until the power limiter has settled
  double time_s = 0.012;                  // of GPU time for one kernel at most
  double spread_target = 0.005;           // stop when the median is known this well
  bool cold = true;                       // operands are not in L2; false: small ones may stay there between replays
  bool check = true;                      // compare with the reference in double first; a wrong kernel is not timed
  int most_calls = 256;                   // in one graph, and operand sets at most; a few are enough where only the check matters
  bool own_for_torch = false;             // run our own kernel where the call asks for PyTorch's; the row then says so in `impl`

  // Names the protocol in measurement_key().
  std::string_view protocol() const { return cold ? "cold" : "warm"; }
};

// The GPU as its driver describes it; 0 and empty: unknown.
struct GpuFacts {
  std::string name, driver, runtime, cublaslt, cudnn, nccl;  // libraries: a version, or "missing: " and why
  int compute_capability = 0, sms = 0;                       // 90 for 9.0
  double boost_clock_hz = 0, memory_clock_hz = 0, l2_bytes = 0, memory_bytes = 0, memory_bus_bits = 0, power_limit_w = 0;
  double shared_memory_per_sm = 0, registers_per_sm = 0, threads_per_sm = 0;
};

class Runner {
 public:
  virtual ~Runner() = default;
  Runner() = default;
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  // Never fails as a whole: a kernel that cannot run gives a measurement with a reason.
  Measurement measure(const KernelCall& call, const RunOptions& options) { return do_measure(call, options); }
  // The step executed kernel after kernel (plan.h): its whole time. A runner without a GPU refuses with a reason; kernels that cannot run are named in `left_out`.
  Measurement measure_step(std::span<const StepBlock> blocks, const RunOptions& options, std::vector<std::string>& left_out) { return do_measure_step(blocks, options, left_out); }
  // What is measured on: "NVIDIA H200, driver 580.159.04, cuBLASLt 13.1.0, ...", one line.
  std::string description() const { return do_description(); }
  GpuFacts facts() const { return do_facts(); }
  // Why the call cannot be measured, without trying; empty when it can be asked for.
  std::string refusal(const KernelCall& call, const RunOptions& options) const { return do_refusal(call, options); }
  // Processes that measure together, and which of them this is.
  int ranks() const { return do_ranks(); }
  int rank() const { return do_rank(); }
  // The texts of all ranks, by rank (peers.h). Alone: the own text.
  Result<std::vector<std::string>> exchange(const std::string& mine) { return do_exchange(mine); }

 private:
  virtual Measurement do_measure(const KernelCall& call, const RunOptions& options) = 0;
  virtual Measurement do_measure_step(std::span<const StepBlock>, const RunOptions& options, std::vector<std::string>&) {
    Measurement m;
    m.clocks = options.clocks;
    m.reason = "a whole step needs a GPU";
    return m;
  }
  virtual std::string do_description() const = 0;
  virtual GpuFacts do_facts() const { return {}; }
  virtual std::string do_refusal(const KernelCall&, const RunOptions&) const { return {}; }
  virtual int do_ranks() const { return 1; }
  virtual int do_rank() const { return 0; }
  virtual Result<std::vector<std::string>> do_exchange(const std::string& mine) { return std::vector<std::string>{mine}; }
};

// Replays a table: the row of the same call and clocks, the last one when there are several. A call that is not there gives the reason "not recorded in FILE".
std::unique_ptr<Runner> make_recorded_runner(MeasurementTable table);

// Refuses everything with this reason ("this build has no CUDA").
std::unique_ptr<Runner> make_none_runner(std::string reason);

// CUDA device `device`, or the local rank's when negative. Error (unavailable): no device, no driver, or a build without CUDA.
Result<std::unique_ptr<Runner>> make_cuda_runner(int device);

}  // namespace rooftile
