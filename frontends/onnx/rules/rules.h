// Shape rules by name, as rules.def uses them, and what they share.
#pragma once

#include <cstdint>

#include "frontends/onnx/call.h"

namespace rooftile::onnx::rules {

#define RULE(domain, op, shape, cost) void shape(Call& call);
#include "frontends/onnx/rules/rules.def"
#undef RULE

// Row-major strides of a shape whose sizes are all constant.
std::vector<std::int64_t> strides_of(const std::vector<Dim>& shape);
std::vector<std::int64_t> constants_of(const std::vector<Dim>& shape);  // of constant sizes
bool all_constant(const std::vector<Dim>& shape);

// Walks an index over `shape` in row-major order; false after the last.
bool next_index(std::vector<std::int64_t>& index, const std::vector<std::int64_t>& shape);

// Elements of the outputs of an elementwise operator: `function(arguments)` at each place of the broadcast shape.
template <typename Function>
void evaluate_elementwise(Call& call, std::size_t output, std::span<const std::size_t> inputs, Function function);

}  // namespace rooftile::onnx::rules

#include "frontends/onnx/rules/evaluate.h"
