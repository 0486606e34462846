// A device's calibration from measured rows: which constants each kind of rows can tell, in which order they are fitted, and the layers that come out.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "validate/fit.h"
#include "validate/measurements.h"

namespace rooftile {

// What the fit did with one constant, for the report.
struct FitReport {
  std::string block;  // "gemm bf16", "attention fwd flash3", "rows"
  FittedConstant constant;
};

struct DeviceFit {
  CalibrationLayer device;                  // physical constants, residuals of every family
  std::vector<CalibrationLayer> protocols;  // one for each way of timing
  std::vector<FitReport> constants;         // in the order of the fit
  std::map<std::string, Residuals> before;  // of the kept-out rows by the machine's own constants (its architecture's, as with --mode model), by family
  std::map<std::string, Residuals> fixed;   // of the same rows by a roofline of fixed_factor_roofline_s
  Residuals all, all_before, all_fixed;     // of every kept-out row: fitted, before, roofline
  std::size_t rows = 0, fitted_rows = 0;
  std::map<std::string, std::size_t> refused;  // why rows were left out
};

// What a roofline with one factor and one launch time says: data-sheet time / 0.8 + 3 us, as simulators commonly assume. The estimate to beat: an ideal of 8 us gives 13 us.
double fixed_factor_roofline_s(double ideal_s);

struct DeviceFitOptions {
  FitOptions fit;
  bool physical = true;       // false: only protocol constants are fitted, the machine's own layers give the rest
  bool keep = false;          // the machine's own layers stay and hold; only constants that they lack are fitted
  std::size_t most_rows = 0;  // that may be fitted, evenly spread over the rows; 0: all that are not kept out
  std::string date;           // YYYY-MM-DD, of today
  std::string source_file;    // of the rows, for the provenance
  std::string library;        // that ran the kernels, when the rows say
};

// The rows of a table that the device can run. A row that cannot be read or run is counted under its reason in `refused`. Rows without a `clocks` column were timed alone: their
// clocks are automatic.
std::vector<FitRow> fit_rows(const MeasurementTable& table, const Device& device, std::map<std::string, std::size_t>& refused);

// Fits block by block: matmuls of one dtype after the other (the first one also gives what all dtypes share: L2, split K, clocks), attention by kernel and pass, kernels that
// stream. Families of fewer than 30 rows are scored but not fitted. The machine's layers above the architecture are left out unless only protocols are fitted.
// Errors: invalid when no row can be used.
Result<DeviceFit> fit_device(Machine machine, std::vector<FitRow> rows, const DeviceFitOptions& options);

// A layer as the text of a calibration file; read_calibration gives the same layer back. `title` is its name line, `sources` documents by short name.
std::string calibration_yaml(const CalibrationLayer& layer, const std::string& title, const std::map<std::string, std::string>& sources);

}  // namespace rooftile
