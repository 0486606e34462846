#include "estimator/hardware/calibration.h"

#include <algorithm>
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

Calibration Calibration::under(std::string_view protocol) const {
  const auto wanted = std::find_if(protocols.begin(), protocols.end(), [&](const CalibrationLayer& layer) { return layer.protocol == protocol; });
  if (protocol.empty() || wanted == protocols.end()) return *this;
  Calibration changed = *this;
  std::erase_if(changed.layers, [](const CalibrationLayer& layer) { return layer.level == LayerLevel::protocol; });
  const auto above = std::find_if(changed.layers.begin(), changed.layers.end(), [](const CalibrationLayer& layer) { return layer.level > LayerLevel::protocol; });
  changed.layers.insert(above, *wanted);
  return changed;
}

std::string protocol_of(std::string_view source) {
  constexpr std::string_view kParts[] = {"-test", "-train"};  // of one data set, timed in one way
  std::string protocol;
  while (!source.empty()) {
    const std::size_t slash = std::min(source.find('/'), source.size());
    std::string_view piece = source.substr(0, slash);
    for (const std::string_view part : kParts) {
      if (piece.size() > part.size() && piece.substr(piece.size() - part.size()) == part) piece.remove_suffix(part.size());
    }
    const std::size_t digit = std::min(piece.find_first_of("0123456789"), piece.size());
    piece = piece.substr(0, digit);
    while (!piece.empty() && (piece.back() == '-' || piece.back() == '@' || piece.back() == ' ')) piece.remove_suffix(1);
    if (!piece.empty()) protocol += (protocol.empty() ? "" : "-") + std::string(piece);
    source.remove_prefix(std::min(slash + 1, source.size()));
  }
  return protocol;
}

}  // namespace rooftile
