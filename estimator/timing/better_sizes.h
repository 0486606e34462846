// Sizes near those of a matrix product that run faster.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "estimator/timing/timer.h"

namespace rooftile {

struct BetterSize {
  std::string_view dimension;  // "m", "n" or "k"
  std::int64_t size = 0;       // in place of the call's own
  double time_s = 0;
  double per_flop = 0;  // time for each useful FLOP relative to the call's; below 1: better
};

// For each dimension of a gemm the multiples of 8, 16, 32, ... 256 next above its size, and next below it, at most an eighth away, that take at least 3 % less time for each FLOP;
// those above only where they also take less time in all, so padding pays. Nearest first; a size further away is listed only when it is about as good or better. Empty for other
// operators. bf16 nt 8192 x 50257 x 768 on an H200: n = 50264 and n = 50304 need about a seventh of the time.
std::vector<BetterSize> better_sizes(const KernelCall& call, KernelTimer& timer);

}  // namespace rooftile
