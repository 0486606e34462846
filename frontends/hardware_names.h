// Names that runtime files use, in the order of the enumerations they stand for.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "estimator/core/suggest.h"

namespace rooftile {

inline constexpr std::array kPointwiseNames = {
#define POINTWISE_KIND(id, reads, writes, flops, special, doc) std::string_view(#id),
#include "estimator/timing/pointwise.def"
};
inline constexpr std::array kOperatorNames = {
#define OPERATOR(id, onnx, category, function, doc) std::string_view(#id),
#include "estimator/graph/operators.def"
};

// Where a word stands among names; nothing where it does not.
template <typename Names>
std::optional<std::size_t> position(const Names& names, std::string_view word) {
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] == word) return i;
  }
  return std::nullopt;
}

// "did you mean ..." for a word that is none of them.
template <typename Names>
std::string near(const Names& names, std::string_view word) {
  return did_you_mean(word, std::vector<std::string>(names.begin(), names.end()));
}

}  // namespace rooftile
