// The 80 % interval of a step's time, from the errors of its kernels, of the runtime and of the host.
#pragma once

#include "estimator/hardware/runtime.h"
#include "estimator/passes/prediction.h"

namespace rooftile {

// Standard deviations of a normal law above which a tenth lies: half the width of an 80 % interval.
inline constexpr double kTenthQuantile = 1.2816;

// The step's time if the host were faster and slower by its error; both the step's own time where the host does not matter.
struct HostRange {
  double fast_s = 0, slow_s = 0;
};

struct StepInterval {
  double low_s = 0, high_s = 0;
};

// Half widths of an 80 % interval, each independent of the others, joined as the root of their squares:
//   kernels   a call's time x error_p90 x 1.28/1.64 (a normal law). Distinct calls that are calibrated err on their own, so their squares add up; calls that rest on the data sheet
//             alone share their causes and add up as they are
//   step      1.28 x errors.step of what the GPU does: clocks, temperature, the day
//   gaps      1.28 x errors.gap of the gaps between kernels
//   host      from the step's own time to that with a slower (upper end) or faster (lower end) host
// The lower end is step / (1 + half width / step), so it stays above 0. Two calibrated calls of 3 and 4 ms with error_p90 0.10, nothing else: 7 ms, half width 0.39 ms.
StepInterval step_interval(const Prediction& prediction, const RuntimeErrors& errors, const HostRange& host);

}  // namespace rooftile
