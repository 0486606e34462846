// `rooftile validate MODEL`: the kernels of a prediction measured on the GPU present, or looked up in recorded measurements, beside their predicted times.
#pragma once

#include <string>
#include <vector>

#include "cli/output.h"
#include "cli/request.h"
#include "estimator/core/result.h"
#include "estimator/passes/prediction.h"
#include "report/render.h"
#include "validate/compare.h"
#include "validate/runner.h"

namespace rooftile {

struct ValidateModelArguments {
  std::string model;
  std::vector<Setting> settings;  // as for `estimate`; without `device` it is the GPU's
  std::string replay, save, output;
  bool resume = false;
  double budget_s = 0;
  Format format = Format::table;
  ColorChoice color = ColorChoice::automatic;
};

// Exit code 0, or 130 when Ctrl-C ended it (what was measured is printed). Errors: unavailable (no GPU), and those of `estimate`.
Result<int> validate_model(const ValidateModelArguments& arguments);

// The whole step in the ways it can be told.
struct StepTimes {
  double predicted_step_s = 0;      // what `estimate` says: gaps and communication included
  Measurement executed;             // kernel after kernel in one graph
  double executed_predicted_s = 0;  // the predicted kernels that the executed step contains
  std::vector<std::string> left_out;
};

// What is printed.
struct ModelValidation {
  const Prediction* prediction = nullptr;
  Comparison comparison;
  std::vector<std::string> names;     // first operator of each row of the comparison
  std::vector<Measurement> measured;  // by row of the comparison; ok() is false where there is none
  std::vector<bool> stands_in;        // our kernel was measured in the place of PyTorch's
  StepTimes step;
  std::string measured_on, clocks;
  bool whole = true;  // false: interrupted or out of time
};
std::string render_validation(const ModelValidation& validation, Format format, std::size_t width, bool color);

}  // namespace rooftile
