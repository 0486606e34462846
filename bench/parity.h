// A plot of predictions over measurements.
#pragma once

#include <string>
#include <vector>

#include "validate/neighbours.h"

namespace rooftile {

// An SVG of predicted over measured time on logarithmic axes, one dot a row (at most `most_dots`, evenly picked), with the diagonal and its neighbours at 1.2 and 1 / 1.2.
std::string parity_plot(const std::string& title, const std::vector<JudgedRow>& rows, std::size_t most_dots);

}  // namespace rooftile
