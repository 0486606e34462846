// Measured rows from a profiler trace: one for each distinct kernel call, with the median of its durations.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "frontends/trace/trace.h"
#include "validate/measurement.h"

namespace rooftile {

// How rows of a trace are timed: `source` of the measurement. A profiler's duration is the kernel alone, without launch and gap, in the middle of a step: what the kernel before
// has left in L2 is there, and the clocks are those of the step.
inline constexpr std::string_view kTraceSource = "pytorch-profiler";

// An operator whose kernels became no row.
struct UnmappedOperator {
  std::string name;  // of the operator; of the kernel where the trace names no operator
  std::string reason;
  std::size_t kernels = 0;
  double time_s = 0;
};

struct TraceRows {
  std::vector<Measurement> rows;           // `replays` calls each; ordered by what they take together, longest first
  std::vector<UnmappedOperator> unmapped;  // longest first
  double kernel_time_s = 0;                // of all GPU activities
  double mapped_time_s = 0;                // of those that are in rows
  double mapped_share() const { return kernel_time_s > 0 ? mapped_time_s / kernel_time_s : 0; }
};

// Kernels of one operator call count together: a product with its split-K reduction, both kernels of a layernorm's backward pass. A table's gradient and the gradient of
// log-probabilities take the fill before them along. Three calls of 10, 11 and 30 us give one row of 11 us and 3 replays.
TraceRows rows_of_trace(const Trace& trace);

}  // namespace rooftile
