// Constants of PyTorch's kernel classes (torch.*) from the rows of a profiler trace. A trace has one model's shapes, often one for a class: a class is not fitted anew, but moved
// from where the machine's own constants have it.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "estimator/hardware/calibration.h"
#include "estimator/timing/timer.h"
#include "validate/measurement.h"

namespace rooftile {

// The machine as a profiler times it: a kernel's duration holds neither its launch nor the gap before it, so both are zero. The machine's own protocol layers make way.
Machine under_profiler(Machine machine);

// "vector", "broadcast", "layernorm_input" for PyTorch's kernels between matmuls; "gemm", "attention" and other classes by their name.
std::string trace_class(const KernelCall& call);

// Whether a row is of a class that is learned from traces: PyTorch's own kernel and not generated code.
bool learned_from_traces(const KernelCall& call);

// Errors of a machine's constants on rows of one class; `time_s` counts every replay.
struct TraceClassError {
  std::size_t rows = 0, calls = 0;
  double time_s = 0, predicted_s = 0;
  double mean_abs = 0;     // |predicted / measured - 1|, each row once
  double of_time_abs = 0;  // the same weighted by the rows' time
};

// By class, and of all learned classes together under "". Rows without a time, and rows that the device cannot run, are left out.
std::map<std::string, TraceClassError> trace_errors(const Machine& machine, std::span<const Measurement> rows);

struct TraceClassFit {
  std::string name;
  std::size_t rows = 0;             // fitted
  std::size_t warm = 0;             // left out: faster than the data sheet's bandwidth allows, so operands were still in L2
  double before = 0, after = 0;     // mean |predicted / measured - 1| of the fitted rows
  double rate = 1, efficiency = 1;  // factors on what steps through elements and rows, and on the share of the bandwidth
  double fixed = 1;                 // on fixed times
};

struct TraceFit {
  CalibrationLayer layer;  // of the device; only constants that moved
  std::vector<TraceClassFit> classes;
};

// Moves each class that the rows have by three factors - on the rate at which SMs step through elements and rows, on the share of the bandwidth, on fixed times - to the least mean
// |log(predicted / measured)|, held near 1 by a prior, since few rows cannot tell the three apart. Constants that no row sees stay and are not written. Errors (invalid): no row of
// a class that is learned. Rows that the model timed with torch.vector.efficiency 0.7 instead of 0.9 bring mean error from 22 % below 1 % (test).
Result<TraceFit> fit_trace(const Machine& machine, std::span<const Measurement> rows, const std::string& date);

}  // namespace rooftile
