// KernelCall + machine -> KernelTime, memoised per distinct call.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "estimator/core/result.h"
#include "estimator/hardware/calibration.h"
#include "estimator/hardware/catalogue.h"
#include "estimator/hardware/cluster.h"
#include "estimator/hardware/device.h"
#include "estimator/timing/kernel_call.h"
#include "estimator/timing/kernel_time.h"

namespace rooftile {

// Everything that timing needs to know about the machine; plain values, owned by the caller and outliving the timer.
struct Machine {
  Device device;
  Catalogue catalogue;      // of the device's architecture
  Calibration calibration;  // layers that apply to this device, lowest first
  Cluster cluster;
};

// Why a kernel cannot run on a device ("fp8 needs Ada, Hopper or later"), or an empty string.
std::string unsupported_reason(const KernelCall& call, const Device& device);

// Times kernels on one machine under one mode and clock state. Not thread-safe: one timer per thread. References stay valid until the timer is destroyed.
class KernelTimer {
 public:
  KernelTimer(const Machine& machine, Mode mode, ClockState clocks);
  ~KernelTimer();
  KernelTimer(KernelTimer&&) noexcept;
  KernelTimer& operator=(KernelTimer&&) = delete;

  const KernelTime& operator()(const KernelCall& call);

  // How much slower than at burst clocks a long step runs whose kernels take `compute_s` at burst clocks, with `idle_s` between them, and execute `matmul_flops` FLOPs of `dtype`
  // in matmuls and attention: at least 1, at most burst over sustained throughput. The power limiter holds a GPU's mean power, and a step's power follows its mean matmul rate:
  // below `clock.free_share` of the rate that a long matmul sustains the limiter does not act, from that rate on the step runs as a long matmul does, between them linearly
  // (measured whole steps of an H200, hardware/measurements/h200_sxm-steps.csv). Sustained 672 TFLOP/s at 0.85 of burst, free share 0.57: 525 TFLOP/s give 1.09. Mode sol: 1.
  double step_slowdown(DType dtype, double matmul_flops, double compute_s, double idle_s) const;

  // Names of the calibration layers that supplied constants.
  std::vector<std::string> layers() const;
  // Constants that no layer gave; the neutral value (an ideal machine) stands in for each.
  std::vector<std::string> missing_constants() const;
  std::size_t distinct_calls() const { return times_.size(); }

 private:
  struct Model;  // constants resolved once from device, catalogue and calibration
  std::unique_ptr<Model> model_;
  std::unordered_map<KernelCall, KernelTime, KernelCallHash> times_;
};

}  // namespace rooftile
