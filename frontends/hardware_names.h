// Names that runtime files use, in the order of the enumerations they stand for.
#pragma once

#include <array>
#include <string_view>

namespace rooftile {

inline constexpr std::array kPointwiseNames = {
#define POINTWISE_KIND(id, reads, writes, flops, special, doc) std::string_view(#id),
#include "estimator/timing/pointwise.def"
};
inline constexpr std::array kOperatorNames = {
#define OPERATOR(id, onnx, category, function, doc) std::string_view(#id),
#include "estimator/graph/operators.def"
};

}  // namespace rooftile
