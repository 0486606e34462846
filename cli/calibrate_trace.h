// `calibrate --from TRACE`: PyTorch's kernel classes from a profiler trace.
#pragma once

#include <string>
#include <string_view>

#include "estimator/core/result.h"

namespace rooftile {

struct TraceCalibration {
  std::string from, check;   // traces; check: another one, which is only scored
  std::string device, base;  // device empty: the one that the trace names; base: a calibration that lies above the device's own
  std::string output, save;  // calibration layer, rows as a measurement CSV; empty: not written
  std::string source, library, date, color;
};

// Whether a file is read as a profiler trace: it ends in .json or .gz, or begins as JSON or gzip.
bool is_trace_file(const std::string& file);

// Prints what became rows, what did not, and errors by class before and after; writes the layer and the rows. Errors: see read_trace; unavailable (no device file describes the
// trace's GPU); invalid (no row of a class that is learned).
Result<bool> calibrate_from_trace(const TraceCalibration& arguments);

}  // namespace rooftile
