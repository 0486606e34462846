// The interval of a step by hand.
#include "estimator/passes/interval.h"

#include <gtest/gtest.h>

#include <cmath>

namespace rooftile {
namespace {

constexpr double kOfP90 = 1.2816 / 1.6449;

OpRow row_of(std::int64_t m, double time_s, Confidence confidence = Confidence::calibrated) {
  OpRow row;
  row.call.shape = GemmShape{.m = m, .n = 64, .k = 64};
  row.time_s = time_s;
  row.error_p90 = 0.10;
  row.confidence = confidence;
  return row;
}

Prediction step_of(std::vector<OpRow> rows) {
  Prediction p;
  p.rows = std::move(rows);
  for (const OpRow& row : p.rows) p.totals.step_time_s += row.time_s;
  return p;
}

double half(const Prediction& p, const RuntimeErrors& errors = {}) {
  const double step_s = p.totals.step_time_s;
  const StepInterval interval = step_interval(p, errors, {step_s, step_s});
  EXPECT_NEAR(interval.low_s, step_s / (1 + (interval.high_s - step_s) / step_s), 1e-12);
  return interval.high_s - step_s;
}

TEST(Interval, DistinctCalibratedCallsErrOnTheirOwn) {
  EXPECT_NEAR(half(step_of({row_of(64, 3e-3), row_of(128, 4e-3)})), 0.5e-3 * kOfP90, 1e-12);
  EXPECT_NEAR(half(step_of({row_of(64, 3e-3), row_of(128, 4e-3)})), 0.39e-3, 0.005e-3);
}

TEST(Interval, TheSameCallErrsAlike) { EXPECT_NEAR(half(step_of({row_of(64, 3e-3), row_of(64, 4e-3)})), 0.7e-3 * kOfP90, 1e-12); }

TEST(Interval, WhatRestsOnTheDataSheetErrsAlike) {
  EXPECT_NEAR(half(step_of({row_of(64, 3e-3, Confidence::spec), row_of(128, 4e-3, Confidence::spec)})), 0.7e-3 * kOfP90, 1e-12);
  EXPECT_NEAR(half(step_of({row_of(64, 3e-3, Confidence::spec), row_of(128, 4e-3)})), 0.5e-3 * kOfP90, 1e-12);
}

TEST(Interval, TheRuntimesErrorsDoNotAverageOut) {
  Prediction p = step_of({row_of(64, 10e-3)});
  p.rows[0].error_p90 = 0;
  EXPECT_NEAR(half(p, {0.03, 0, 0}), 1.2816 * 0.03 * 10e-3, 1e-12);
  p.totals.launch_gap_time_s = 2e-3;
  p.totals.step_time_s = 12e-3;
  EXPECT_NEAR(half(p, {0, 0.5, 0}), 1.2816 * 0.5 * 2e-3, 1e-12);
  EXPECT_NEAR(half(p, {0.03, 0.5, 0}), 1.2816 * std::hypot(0.03 * 12e-3, 0.5 * 2e-3), 1e-12);
}

TEST(Interval, ABubbleIsMadeOfTheSameKernels) {
  Prediction p = step_of({row_of(64, 10e-3)});
  p.totals.bubble_time_s = 5e-3;
  p.totals.step_time_s = 15e-3;
  EXPECT_NEAR(half(p), 1.5e-3 * kOfP90, 1e-12);
}

TEST(Interval, TheHostMovesEachEndByItself) {
  Prediction p = step_of({row_of(64, 10e-3)});
  p.rows[0].error_p90 = 0;
  const StepInterval interval = step_interval(p, {}, {10e-3, 14e-3});  // just hidden: a slower host would show, a faster one changes nothing
  EXPECT_NEAR(interval.high_s, 14e-3, 1e-12);
  EXPECT_NEAR(interval.low_s, 10e-3, 1e-12);
  const StepInterval bound = step_interval(p, {}, {8e-3, 12e-3});
  EXPECT_NEAR(bound.high_s, 12e-3, 1e-12);
  EXPECT_NEAR(bound.low_s, 10e-3 / 1.2, 1e-12);
}

TEST(Interval, StaysAboveZero) {
  Prediction p = step_of({row_of(64, 1e-3, Confidence::spec)});
  p.rows[0].error_p90 = 50;
  const StepInterval interval = step_interval(p, {}, {0, 1});
  EXPECT_GT(interval.low_s, 0);
  EXPECT_GT(interval.high_s, 1e-3);
  EXPECT_EQ(step_interval(Prediction{}, {}, {}).high_s, 0);
}

}  // namespace
}  // namespace rooftile
