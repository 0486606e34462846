// Constants of the kernel-time model, in layers that are never merged on disk: architecture < device + library version + timing protocol < site. The data sheet (Device) lies
// below all of them. A later layer overrides a constant of an earlier one by name; the report names the layer that supplied each.
#pragma once

#include <cstdint>
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

// Sizes that the rows of a fit span, by the name that a shape gives them ("m", "seq_kv", "numel").
struct ValidRange {
  std::string key;
  double lowest = 0, highest = 0;
};

// Layers of level `protocol` hold what belongs to a way of timing and not to the GPU: launch and gap, operands found in L2, what an engine does around a kernel. At most one of
// them applies at a time: the device's `standard` one (one call in a stream kept busy), unless another is named or a measured row says that it was timed in another way.
struct CalibrationLayer {
  std::string id, file;
  LayerLevel level = LayerLevel::architecture;
  std::string architecture;  // "hopper", or empty
  std::string device;        // device id, or empty for a whole architecture
  std::string library, protocol, site;
  std::string rows_of;                                      // a whole architecture's layer: the device that its constants were fitted on; elsewhere they are carried over
  std::vector<Fact> facts;                                  // "gemm.bf16.eta": value, unit, source, kind, date
  std::map<std::string, Residuals> residuals;               // by family
  std::map<std::string, std::vector<ValidRange>> validity;  // by family: outside of it a prediction is an extrapolation
  bool standard = false;                                    // of a protocol layer: applies unless another is named (`default: true` in the file)
};

struct Calibration {
  std::vector<CalibrationLayer> layers;     // lowest first; those that apply
  std::vector<CalibrationLayer> protocols;  // the device's protocol layers, the one that applies among them

  // Value of a constant from the highest layer that has it, and that layer.
  std::optional<double> find(std::string_view key, const CalibrationLayer** layer = nullptr) const;

  // The same constants under another protocol: its layer takes the place of the one that applies. Unchanged when the device has no such protocol.
  Calibration under(std::string_view protocol) const;
};

// The protocol that a row's source names: what stands before the version. "aiconfigurator/trtllm-1.3.0rc20" gives "aiconfigurator-trtllm", "neusight-test/torch2.1-cu121"
// "neusight-torch", "simumax" itself; an empty source gives "".
std::string protocol_of(std::string_view source);

}  // namespace rooftile
