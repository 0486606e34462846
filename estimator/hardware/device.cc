#include "estimator/hardware/device.h"

#include <array>

namespace rooftile {

std::string_view name_of(Architecture architecture) {
  constexpr std::array<std::string_view, 6> kNames = {"volta", "turing", "ampere", "ada", "hopper", "blackwell"};
  return kNames[static_cast<std::size_t>(architecture)];
}

}  // namespace rooftile
