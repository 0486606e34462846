#include "estimator/passes/memory_blocks.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace rooftile {
namespace {

constexpr double kMiB = 1 << 20;
constexpr double kUnit = 512, kSmall = kMiB, kSegment = 20 * kMiB, kLarge = 10 * kMiB, kRound = 2 * kMiB;

// Free pieces of 20 MiB segments; more than these are not remembered.
struct Pieces {
  std::array<double, 32> sizes{};
  std::size_t count = 0;

  double take(double bytes) {
    std::size_t best = count;
    for (std::size_t i = 0; i < count; ++i) {
      if (sizes[i] >= bytes && (best == count || sizes[i] < sizes[best])) best = i;
    }
    double piece = kSegment;
    if (best < count) {
      piece = sizes[best];
      sizes[best] = sizes[--count];
    }
    if (piece - bytes <= kSmall) return piece;
    if (count < sizes.size()) sizes[count++] = piece - bytes;
    return bytes;
  }
};

}  // namespace

double block_bytes(double bytes) {
  const double rounded = std::ceil(bytes / kUnit) * kUnit;
  if (rounded < kLarge) return rounded;
  const double segment = std::ceil(rounded / kRound) * kRound;
  return segment - rounded <= kSmall ? segment : rounded;
}

double allocation_waste(std::span<const double> tensors, std::int64_t repeat) {
  if (repeat <= 0) return 0;
  Pieces pieces;
  double last = 0;
  constexpr std::int64_t kRounds = 12;
  bool cut = false;  // where no tensor is cut from a segment, every round is the same
  for (const double bytes : tensors) cut = cut || (bytes > kSmall && bytes < kLarge);
  const std::int64_t rounds = cut ? std::min(repeat, kRounds) : 1;
  for (std::int64_t r = 0; r < rounds; ++r) {
    for (const double bytes : tensors) {
      const double rounded = std::ceil(bytes / kUnit) * kUnit;
      last += (rounded <= kSmall || rounded >= kLarge ? block_bytes(bytes) : pieces.take(rounded)) - bytes;
    }
  }
  return last / static_cast<double>(rounds) * static_cast<double>(repeat);
}

}  // namespace rooftile
