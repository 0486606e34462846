// Measuring a list of kernels: what was measured before is skipped, each result is written at once, an interrupt or a spent budget ends between two kernels with nothing lost.
#pragma once

#include <functional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "validate/runner.h"

namespace rooftile {

struct MeasuringOptions {
  RunOptions run;
  double budget_s = 0;                           // wall time for the list; 0: none
  std::function<bool()> interrupted;             // asked between two kernels
  std::function<double()> now_s;                 // a clock; empty: the steady clock
  std::function<void(const KernelCall&)> begin;  // told before a kernel is measured
  std::function<void(const Measurement&)> sink;  // gets each measurement as it is made
  std::function<void(std::size_t done, std::size_t of, const Measurement&)> progress;
  int failures_in_a_row = 200;  // so many reasons one after another, with no time between them, end the list, as does a runner that says its device is lost
};

enum class EndOf { list, budget, interrupt, device };

struct MeasuringResult {
  std::vector<Measurement> measurements;
  std::size_t skipped = 0;  // measured before
  EndOf end = EndOf::list;
  std::string reason;  // why ranks that measure together parted
};

// Measures each call that is not in `done` (keys of measurement_key). Calls that appear twice are measured once. Where the list has collectives and the runner is one of several
// ranks, what comes next is decided by all: rank 0 says what is skipped, and the list ends for all as soon as it ends for one.
MeasuringResult measure_all(Runner& runner, std::span<const KernelCall> calls, const MeasuringOptions& options, std::set<std::string> done = {});

// Keys of the rows of a table that have a time or a reason, for resuming. The protocol of a row is warm when its `method` ends in "warm", else cold.
std::set<std::string> keys_of(const MeasurementTable& table);

}  // namespace rooftile
