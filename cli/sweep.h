// The combinations of a sweep, and their prediction on every core.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/request.h"
#include "cli/session.h"
#include "estimator/core/result.h"

namespace rooftile {

// Every combination of the values of the settings; the last setting changes fastest.
struct Sweep {
  std::vector<std::pair<std::string, std::vector<std::string>>> axes;
  std::size_t size = 1;
};

// Errors (usage): a broken range, too many combinations.
Result<Sweep> sweep_of(const std::vector<Setting>& settings);

// The request of one combination, and the settings that tell it from the others; a symbolic dimension among them is called "dim.NAME". Errors (usage): a value that its option does
// not take.
Result<Request> request_of(const Sweep& sweep, std::size_t index, std::vector<Setting>& varied);

// One model of the command line with its combinations.
struct Job {
  std::string model;  // as it was asked for
  Sweep sweep;
};

// What became of one combination.
struct Outcome {
  Result<Prediction> prediction = tl::unexpected<Error>(Error{});
  std::vector<Setting> varied;
  const Job* job = nullptr;
  bool bad_request = false;  // the request itself is wrong, so all of them are
  std::string text;          // what `render` made of it
};

// Predicts all combinations of all jobs and hands them to `take` in order, on this thread; it returns false to stop. `render` fills Outcome::text and runs on whichever thread
// predicted. Large sweeps use every core; results and their order do not depend on how many there are. `sessions` begins with one and gets one more for each thread; predictions
// refer to names that their session owns, so it must outlive them.
void predict_all(std::vector<std::unique_ptr<Session>>& sessions, const std::vector<Job>& jobs, const std::function<void(Outcome&)>& render,
                 const std::function<bool(Outcome&)>& take);

}  // namespace rooftile
