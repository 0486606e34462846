// How long one kernel takes on one device, and why.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "estimator/core/count.h"
#include "estimator/timing/kernel_call.h"

namespace rooftile {

enum class Bound : std::uint8_t { compute, dram, l2, latency, launch, communication };
std::string_view name_of(Bound bound);

enum class Confidence : std::uint8_t { measured, calibrated, extrapolated, spec };
std::string_view name_of(Confidence confidence);

enum class Mode : std::uint8_t { sol, model, calibrated };  // ideal roofline; the model from data sheet and architecture; with the device's calibration
enum class ClockState : std::uint8_t { automatic, burst, sustained };

// Where the time went above the time at the data-sheet peak of the binding unit. The entries sum to time_s - peak_s.
enum class Loss : std::uint8_t { tile_padding, wave_tail, alignment, latency, cache, memory, clock, launch };
inline constexpr std::size_t kLosses = 8;
inline constexpr std::array<std::string_view, kLosses> kLossNames = {"tile_padding", "wave_tail", "alignment", "latency", "cache", "memory", "clock", "launch"};
using LossSeconds = std::array<double, kLosses>;

struct KernelTime {
  double time_s = 0;
  double peak_s = 0;        // the larger of FLOPs / data-sheet peak and bytes / data-sheet bandwidth: the ideal roofline
  double attainable_s = 0;  // what a perfect kernel of this shape could reach on real clocks and real bandwidth: max(compute, memory) at sustained rates, plus launch
  LossSeconds loss_s{};

  // The terms that were combined into time_s; `explain` prints them.
  double compute_s = 0, dram_s = 0, l2_s = 0, latency_s = 0, launch_s = 0;
  Bound bound = Bound::compute;

  Count flops_executed = 0;  // padding included
  Count bytes_moved = 0;     // DRAM traffic including re-fetch

  std::int32_t tile_m = 0, tile_n = 0, split_k = 1, stages = 0;
  double waves = 0;         // CTAs over CTAs that run at once, 0 where the notion means nothing
  std::string_view family;  // e.g. "hopper_tma", "ampere_align2", "flash3"; static storage or owned by the catalogue

  Confidence confidence = Confidence::spec;
  double error_p90 = 0;  // 90th percentile of |predicted / measured - 1| expected for this kind of row; 0.35 means 35 %
};

}  // namespace rooftile
