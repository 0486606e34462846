#include "validate/simplex.h"

#include <algorithm>
#include <cmath>

namespace rooftile {
namespace {

constexpr double kReflect = 1, kExpand = 2, kContract = 0.5, kShrink = 0.5;
constexpr double kClose = 1e-7;  // of the values at the corners, relative: nothing more to gain

struct Corner {
  std::vector<double> at;
  double value = 0;
};

}  // namespace

std::vector<double> minimise(const std::function<double(std::span<const double>)>& function, std::vector<double> start, const std::vector<double>& step, std::size_t evaluations) {
  const std::size_t n = start.size();
  std::vector<Corner> corners;
  std::size_t used = 0;
  const auto corner = [&](std::vector<double> at) {
    ++used;
    const double value = function(at);
    return Corner{std::move(at), std::isfinite(value) ? value : 1e300};
  };
  corners.push_back(corner(start));
  for (std::size_t i = 0; i < n; ++i) {
    std::vector<double> at = start;
    at[i] += step[i];
    corners.push_back(corner(std::move(at)));
  }
  const auto by_value = [](const Corner& a, const Corner& b) { return a.value < b.value; };
  while (used < evaluations) {
    std::sort(corners.begin(), corners.end(), by_value);
    if (corners.back().value - corners.front().value < kClose * std::abs(corners.front().value)) break;
    std::vector<double> centre(n, 0);
    for (std::size_t c = 0; c < n; ++c) {
      for (std::size_t i = 0; i < n; ++i) centre[i] += corners[c].at[i] / static_cast<double>(n);
    }
    const auto along = [&](double share) {
      std::vector<double> at(n);
      for (std::size_t i = 0; i < n; ++i) at[i] = centre[i] + share * (centre[i] - corners[n].at[i]);
      return corner(std::move(at));
    };
    Corner reflected = along(kReflect);
    if (reflected.value < corners.front().value) {
      Corner expanded = along(kExpand);
      corners[n] = expanded.value < reflected.value ? std::move(expanded) : std::move(reflected);
    } else if (n > 1 ? reflected.value < corners[n - 1].value : reflected.value < corners[n].value) {
      corners[n] = std::move(reflected);
    } else {
      Corner contracted = along(reflected.value < corners[n].value ? kContract : -kContract);
      if (contracted.value < std::min(reflected.value, corners[n].value)) {
        corners[n] = std::move(contracted);
      } else {
        for (std::size_t c = 1; c <= n; ++c) {
          for (std::size_t i = 0; i < n; ++i) corners[c].at[i] = corners[0].at[i] + kShrink * (corners[c].at[i] - corners[0].at[i]);
          corners[c] = corner(std::move(corners[c].at));
        }
      }
    }
  }
  return std::min_element(corners.begin(), corners.end(), by_value)->at;
}

}  // namespace rooftile
