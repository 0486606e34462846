// Least value of a function without slopes.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

namespace rooftile {

// The downhill simplex of Nelder and Mead (1965), from `start` with edges of `step`, for at most `evaluations` calls of the function. Gives the best point found; sums of absolute
// values have kinks in which it may stop early, so that a caller starts it again from there. |x - 1| + |y + 2| from (0, 0): (1, -2).
std::vector<double> minimise(const std::function<double(std::span<const double>)>& function, std::vector<double> start, const std::vector<double>& step, std::size_t evaluations);

}  // namespace rooftile
