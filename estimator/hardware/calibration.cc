#include "estimator/hardware/calibration.h"

#include <array>

namespace rooftile {

std::string_view name_of(LayerLevel level) {
  constexpr std::array<std::string_view, 4> kNames = {"architecture", "device", "protocol", "site"};
  return kNames[static_cast<std::size_t>(level)];
}

std::optional<double> Calibration::find(std::string_view key, const CalibrationLayer** layer) const {
  for (auto candidate = layers.rbegin(); candidate != layers.rend(); ++candidate) {
    for (const Fact& fact : candidate->facts) {
      if (fact.key != key) continue;
      if (layer != nullptr) *layer = &*candidate;
      return fact.value;
    }
  }
  return std::nullopt;
}

}  // namespace rooftile
