// What has to be measured: the distinct kernels of a prediction with how often each runs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "estimator/passes/prediction.h"
#include "estimator/timing/kernel_call.h"

namespace rooftile {

struct PlannedCall {
  KernelCall call;
  std::int64_t count = 1;  // instances in one step
};

// Distinct calls of the rows in the order in which they first run. Two rows with the same call become one with the sum of their counts. Rows that launch nothing are left out.
std::vector<PlannedCall> plan_of(std::span<const OpRow> rows);

// Kernels that run one after another, the whole `repeat` times.
struct StepBlock {
  std::vector<KernelCall> calls;
  std::int64_t repeat = 1;
};

// The step as it is executed: neighbouring rows of one segment and phase that run equally often are a layer, repeated. Communication is left out.
std::vector<StepBlock> blocks_of(std::span<const OpRow> rows);

}  // namespace rooftile
