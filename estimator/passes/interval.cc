#include "estimator/passes/interval.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

namespace rooftile {
namespace {

constexpr double kOfP90 = kTenthQuantile / 1.6449;  // a tenth of the absolute errors lies above their 90th percentile, half of it on each side

double square(double x) { return x * x; }

// Half width that the errors of the kernels give.
double of_kernels(const std::vector<OpRow>& rows) {
  double common_s = 0;
  std::unordered_map<KernelCall, double, KernelCallHash> own_s;
  own_s.reserve(rows.size());
  for (const OpRow& row : rows) {
    const double half_s = row.time_s * row.error_p90 * kOfP90;
    if (row.confidence == Confidence::spec)
      common_s += half_s;
    else
      own_s[row.call] += half_s;
  }
  double squares = square(common_s);
  for (const auto& [call, half_s] : own_s) squares += square(half_s);
  return std::sqrt(squares);
}

}  // namespace

StepInterval step_interval(const Prediction& prediction, const RuntimeErrors& errors, const HostRange& host) {
  const Totals& totals = prediction.totals;
  const double step_s = totals.step_time_s;
  if (step_s <= 0) return {};
  double busy_s = 0;
  for (const OpRow& row : prediction.rows) busy_s += row.time_s;
  // A pipeline's bubble is made of the same kernels.
  const double kernels_s = of_kernels(prediction.rows) * (busy_s > 0 ? 1 + totals.bubble_time_s / busy_s : 1);
  const double gpu_s = busy_s + totals.bubble_time_s + totals.launch_gap_time_s;
  const double squares = square(kernels_s) + square(kTenthQuantile * errors.step * gpu_s) + square(kTenthQuantile * errors.gap * totals.launch_gap_time_s);
  const double above_s = std::sqrt(squares + square(std::max(0.0, host.slow_s - step_s))), below_s = std::sqrt(squares + square(std::max(0.0, step_s - host.fast_s)));
  return {step_s / (1 + below_s / step_s), step_s + above_s};
}

}  // namespace rooftile
