// Whether neighbouring sizes come in the right order: what somebody who chooses between two sizes asks, and what a mean error does not tell.
#pragma once

#include <vector>

#include "validate/fit.h"

namespace rooftile {

struct JudgedRow {
  const FitRow* row = nullptr;
  double predicted_s = 0;
};

struct NeighbourPair {
  const JudgedRow *first = nullptr, *second = nullptr;
  double measured = 1, predicted = 1;  // the second's time for each useful FLOP over the first's
  bool right() const { return (predicted > 1) == (measured > 1); }
};

inline constexpr double kNeighbour = 1.25;                // the largest ratio of two sizes that count as neighbours
inline constexpr double kApart = 1.05, kFarApart = 1.10;  // measured ratios from which a pair is judged; from which two runs of one benchmark hardly ever turn it round

// All pairs of gemm rows of one protocol, dtype, layout, batch and clock state whose m, n and k differ by at most a quarter each, one of them at least, and whose measured time for
// each useful FLOP (2 m n k b) differs by more than 5 %. Of several rows of one call the first counts. Products of 1024 x 1024 x 1024 in 10 us and 1280 x 1024 x 1024 in 14 us are
// one pair of ratio 1.12.
std::vector<NeighbourPair> neighbour_pairs(const std::vector<JudgedRow>& rows);

struct OrderCount {
  int pairs = 0, right = 0, far_pairs = 0, far_right = 0;  // far: measured over 10 % apart
  OrderCount& operator+=(const OrderCount& other);
};

OrderCount count_order(const std::vector<NeighbourPair>& pairs);

}  // namespace rooftile
