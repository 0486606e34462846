// Two looks at predictions beside measurements that a mean error does not give: whether neighbouring sizes come in the right order, and a plot of every row.
#pragma once

#include <string>
#include <vector>

#include "validate/fit.h"

namespace rooftile {

struct JudgedRow {
  const FitRow* row = nullptr;
  double predicted_s = 0;
};

struct OrderCount {
  int pairs = 0, right = 0;
};

// Pairs of gemm rows of one protocol, dtype and layout that differ in one of m, n, k by at most an eighth, and whose measured time for each useful FLOP differs by more than 5 %:
// how many the prediction puts in the measured order. Of several rows of one call the first counts.
OrderCount order_of_neighbours(const std::vector<JudgedRow>& rows);

// An SVG of predicted over measured time on logarithmic axes, one dot a row (at most `most_dots`, evenly picked), with the diagonal and its neighbours at 1.2 and 1 / 1.2.
std::string parity_plot(const std::string& title, const std::vector<JudgedRow>& rows, std::size_t most_dots);

}  // namespace rooftile
