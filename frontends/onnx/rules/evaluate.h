// Template part of rules.h.
#pragma once

#include <array>
#include <cstdint>

#include "frontends/onnx/rules/rules.h"

namespace rooftile::onnx::rules {

template <typename Function>
void evaluate_elementwise(Call& call, std::size_t output, std::span<const std::size_t> inputs, Function function) {
  TensorInfo& out = call.out(output);
  if (!out.ranked || inputs.size() > 8) return;
  for (const std::size_t i : inputs) {
    if (!call.has(i) || call.in(i).value == nullptr || !all_constant(call.in(i).shape)) return;
  }
  if (!call.wants_value(out.shape)) return;
  const std::vector<std::int64_t> shape = constants_of(out.shape);
  std::size_t count = 1;
  for (const std::int64_t dim : shape) count *= static_cast<std::size_t>(dim);
  std::array<const std::vector<Element>*, 8> values{};
  std::array<std::vector<std::int64_t>, 8> strides;
  bool plain = true;
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    const TensorInfo& in = call.in(inputs[k]);
    values[k] = in.value.get();
    plain = plain && in.value->size() == count;
    strides[k].assign(shape.size(), 0);
    const std::vector<std::int64_t> own = strides_of(in.shape);
    const std::size_t offset = shape.size() - own.size();
    for (std::size_t d = 0; d < own.size(); ++d) strides[k][offset + d] = in.shape[d] == Dim(1) ? 0 : own[d];
  }
  std::vector<Element> result;
  result.reserve(count);
  std::array<Element, 8> arguments;
  std::vector<std::int64_t> index(shape.size(), 0);
  for (std::size_t at = 0; at < count; ++at) {
    for (std::size_t k = 0; k < inputs.size(); ++k) {
      std::int64_t place = static_cast<std::int64_t>(at);
      if (!plain) {
        place = 0;
        for (std::size_t d = 0; d < shape.size(); ++d) place += index[d] * strides[k][d];
      }
      arguments[k] = (*values[k])[static_cast<std::size_t>(place)];
    }
    result.push_back(function(std::span<const Element>(arguments.data(), inputs.size())));
    if (!plain) next_index(index, shape);
  }
  out.value = std::make_shared<const std::vector<Element>>(std::move(result));
}

}  // namespace rooftile::onnx::rules
