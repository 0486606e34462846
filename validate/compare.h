// Predicted beside measured: ratios, errors by family, and a verdict for each kernel that does not decide where the two intervals leave it open.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "validate/errors.h"
#include "validate/measurement.h"
#include "validate/plan.h"

namespace rooftile {

// measured against predicted. `match`: the intervals overlap and both centres are close; `fast` and `slow`: the measured interval lies wholly below or above the predicted one;
// `ambiguous`: they overlap, but not enough to call it a match; `unknown`: there is no time to judge.
enum class Verdict : std::uint8_t { match, fast, slow, ambiguous, unknown };
std::string_view name_of(Verdict verdict);

struct Interval {
  double low = 0, high = 0;
  double centre() const { return 0.5 * (low + high); }
};

// The predicted interval is the prediction with its 90th-percentile error on both sides; the measured one the median with twice its spread, at least `kTimerFloor` of it.
constexpr double kTimerFloor = 0.01;
Interval predicted_interval(double predicted_s, double error_p90);
Interval measured_interval(double measured_s, double spread_s);

// Overlapping intervals match when the centres differ by at most `kMatch` of the predicted one, or when each centre lies in the other's interval.
// predicted [9, 11] us and measured [9.9, 10.1] us match; [9, 11] and [10.9, 13] is ambiguous; [9, 11] and [12, 12.4] is slow.
constexpr double kMatch = 0.05;
Verdict verdict_of(Interval predicted, Interval measured);

struct ComparedRow {
  KernelCall call;
  std::int64_t count = 1;
  double predicted_s = 0, measured_s = 0;  // one instance
  double ratio = 0;                        // predicted / measured; 0: unknown
  Verdict verdict = Verdict::unknown;
  std::string family, reason;  // reason: why there is no measured time
};

struct FamilyErrors {
  std::string family;
  ErrorStatistics errors;
  std::size_t match = 0, fast = 0, slow = 0, ambiguous = 0, unknown = 0;
  double predicted_s = 0, measured_s = 0;  // sums over all instances with a measured time
};

struct Comparison {
  std::vector<ComparedRow> rows;
  std::vector<FamilyErrors> families;      // in the order in which they first come; the last one, "all", holds everything when there is more than one
  double predicted_s = 0, measured_s = 0;  // sums of count x time over rows that have both
  double missing_s = 0;                    // predicted time of rows without a measured one
};

// What was predicted for a planned call.
struct PredictedCall {
  KernelCall call;
  std::int64_t count = 1;
  double time_s = 0, error_p90 = 0;
};

// The distinct calls of a prediction with the time of one instance: a row's whole time over its count; for communication the duration, hidden or not.
std::vector<PredictedCall> predicted_calls(std::span<const OpRow> rows);

// Joins by call. A planned call without measurement keeps its row with the reason.
Comparison compare(const std::vector<PredictedCall>& predicted, const std::vector<Measurement>& measured);

}  // namespace rooftile
