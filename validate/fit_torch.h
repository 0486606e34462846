// Fits the constants of PyTorch's kernels between matmuls (torch.*, estimator/timing/torch_kernels.h) to measured rows, class by class: least mean of
// |predicted / measured - 1| on the rows that are not kept out.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "estimator/hardware/calibration.h"
#include "validate/fit.h"

namespace rooftile {

struct TorchFitOptions {
  // True: a campaign over all classes. Constants start anew from neutral values, so that the same rows give the same file; the layer is meant for all devices. False: a few rows
  // from elsewhere, a profiler trace for instance. Constants start from the machine's own and stay near them; a class that is seen with one size, or in few rows, only has its
  // rates scaled; a class that is not seen stays.
  bool campaign = true;
  std::string date;     // YYYY-MM-DD
  std::string library;  // "PyTorch 2.11"
  int least_rows = 8;   // without `campaign`: fitted rows that a class needs for more than a scaling
};

// What the fit did with one class.
struct TorchClassFit {
  std::string walk;                  // "vector", "layernorm", "rmsnorm.bwd+rmsnorm.gamma"
  std::size_t rows = 0, fitted = 0;  // fitted: not kept out
  double before = 0, after = 0;      // mean |predicted / measured - 1| of the fitted rows by the machine's constants (0: it has none) and by the new ones
  bool scaled = false;               // only rates moved, all by one factor
};

struct TorchFit {
  CalibrationLayer layer;  // constants, residuals and sizes of the rows; residuals as "torch.<walk>" where at least kLeastTorchRows were kept out, and "torch" of all
  std::vector<TorchClassFit> classes;
  std::map<std::string, Residuals> residuals, before, fixed;  // of kept-out rows by walk: new constants, the machine's, a fixed-factor roofline
  Residuals all, all_before, all_fixed;
  std::size_t rows = 0, fitted_rows = 0, ignored = 0;  // ignored: not a kernel of PyTorch, or of a class that has no walk
};

inline constexpr int kLeastTorchRows = 8;

// "torch.layernorm": what residuals of a row are stored by; empty when the call is not of a class of PyTorch.
std::string torch_family(const KernelCall& call);

// The layer is of level `architecture` ("any") after a campaign, else `device`. Rows that are not PyTorch's are ignored. Errors (invalid): no row can be used.
// Rows that the model timed with torch.vector.efficiency 0.8 give 0.8 back (test).
Result<TorchFit> fit_torch_classes(const Machine& machine, std::span<const FitRow> rows, const TorchFitOptions& options = {});

}  // namespace rooftile
