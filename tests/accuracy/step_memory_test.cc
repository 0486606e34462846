// The accuracy gate of memory: every measured step of hardware/measurements/h200_sxm-steps.csv. No number of the model was fitted to these rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "tests/accuracy/step_runs.h"

namespace rooftile {
namespace {

TEST(StepMemory, MeasuredPeaksAreMet) {
  StepRuns runs;
  double sum = 0, worst = 0;
  int rows = 0;
  for (const StepRun& run : runs.runs()) {
    if (run.list != 0 || run["peak_bytes"].empty()) continue;
    const auto prediction = runs.predict(run);
    ASSERT_TRUE(prediction) << run["id"];
    const double error = std::abs(to_double(prediction->totals.memory.peak_bytes) / std::stod(run["peak_bytes"]) - 1);
    EXPECT_LT(error, 0.01) << run["id"];
    sum += error;
    worst = std::max(worst, error);
    ++rows;
  }
  ASSERT_GE(rows, 60);
  EXPECT_LT(sum / rows, 0.0015);
  RecordProperty("mean_error", std::to_string(sum / rows));
  RecordProperty("worst_error", std::to_string(worst));
}

}  // namespace
}  // namespace rooftile
