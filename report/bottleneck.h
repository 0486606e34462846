// Where the step's time goes and what holds it back, in words.
#pragma once

#include <string>
#include <vector>

#include "estimator/passes/prediction.h"
#include "report/summary.h"

namespace rooftile {

// The parts of the step's time: work at the data sheet's peak first, then the losses, largest first. They sum to the step.
std::vector<TimePart> time_parts(const Prediction& prediction);

struct Bottleneck {
  std::string word;                // "arithmetic", "alignment", "memory bandwidth", "communication", ...
  std::vector<std::string> lines;  // sentences, the most important one first
};

// What binds most of the step. Every share is of the whole step, and the operators named are counted by the same rows as the sum before them.
Bottleneck bottleneck_of(const Prediction& prediction, const std::vector<OpGroup>& groups);

}  // namespace rooftile
