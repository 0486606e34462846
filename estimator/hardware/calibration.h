// Constants of the kernel-time model, in layers that are never merged on disk: architecture < device + library version + timing protocol < site. The data sheet (Device) lies
// below all of them. A later layer overrides a constant of an earlier one by name; the report names the layer that supplied each.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "estimator/core/dtype.h"
#include "estimator/hardware/device.h"

namespace rooftile {

enum class LayerLevel : std::uint8_t { architecture, device, protocol, site };
std::string_view name_of(LayerLevel level);

// Quantiles of log(measured / predicted) on rows kept out of the fit, for a family of kernels ("gemm.bf16", "attention.fwd", "pointwise", ...). Intervals come from these.
struct Residuals {
  int rows = 0;
  double mean_abs = 0, median_abs = 0, p90_abs = 0, bias = 0;
  double q10 = 0, q90 = 0;
};

struct CalibrationLayer {
  std::string id, file;
  LayerLevel level = LayerLevel::architecture;
  std::string architecture;  // "hopper", or empty
  std::string device;        // device id, or empty for a whole architecture
  std::string library, protocol, site;
  std::vector<Fact> facts;                     // "gemm.bf16.eta": value, unit, source, kind, date
  std::map<std::string, Residuals> residuals;  // by family
};

struct Calibration {
  std::vector<CalibrationLayer> layers;  // lowest first

  // Value of a constant from the highest layer that has it, and that layer.
  std::optional<double> find(std::string_view key, const CalibrationLayer** layer = nullptr) const;
};

}  // namespace rooftile
