// Checked arithmetic on sizes. Sizes live in 63 bits; whatever does not fit is an input error (exit 3), never a wrapped number.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>

#include "estimator/core/count.h"

namespace rooftile {

// Product of the sizes, or nothing when it passes 2^63 - 1 or a factor is negative. checked_product({1 << 20, 1 << 20}) == 1 << 40.
inline std::optional<std::int64_t> checked_product(std::initializer_list<std::int64_t> sizes) {
  Count product = 1;
  bool zero = false;
  for (const std::int64_t size : sizes) {
    if (size < 0) return std::nullopt;
    if (size == 0) zero = true;
    if (zero) continue;
    product *= size;
    if (!fits_int64(product)) return std::nullopt;
  }
  return zero ? 0 : static_cast<std::int64_t>(product);
}

// Of a >= 0 and b > 0; no intermediate result passes a.
constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return a / b + (a % b > 0 ? 1 : 0); }
constexpr std::int64_t round_up(std::int64_t a, std::int64_t multiple) { return ceil_div(a, multiple) * multiple; }

}  // namespace rooftile
