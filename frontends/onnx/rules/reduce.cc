// Reductions, running sums and positions of extremes.
#include <algorithm>
#include <cmath>

#include "frontends/onnx/rules/elements.h"
#include "frontends/onnx/rules/rules.h"

namespace rooftile::onnx::rules {
namespace {

using Fold = Element (*)(DimContext&, const Element&, const Element&, bool);

void reduce(Call& call, Fold function, bool mean = false) {
  const TensorInfo& data = call.in(0);
  call.set_type(0, data.elem);
  if (!data.ranked) return;
  const bool keep = call.attr_int("keepdims", 1) != 0;
  std::vector<bool> reduced(data.rank(), false);
  std::optional<std::vector<std::int64_t>> axes;
  if (call.has(1)) {
    axes = call.in_ints(1);
    if (!axes) {  // unknown axes: the rank is known only when it is kept
      const auto& request = call.in(1);
      const bool none = request.ranked && request.rank() == 1 && request.shape[0] == Dim(0);
      if (none) {
        axes.emplace();
      } else if (keep) {
        std::vector<Dim> shape;
        for (std::size_t i = 0; i < data.rank(); ++i) shape.push_back(call.data_size(0, "dim" + std::to_string(i), data.shape[i]));
        return call.set(0, data.elem, std::move(shape));
      } else {
        return;
      }
    }
  } else {
    axes = call.attr_ints("axes");
  }
  if (!axes || axes->empty()) {
    if (call.attr_int("noop_with_empty_axes", 0) != 0) {
      call.set(0, data.elem, data.shape);
      call.out(0).value = data.value;
      return;
    }
    reduced.assign(data.rank(), true);
  } else {
    for (const std::int64_t axis : *axes) {
      std::size_t at = 0;
      if (!call.axis_of(axis, data.rank(), at)) return;
      reduced[at] = true;
    }
  }
  std::vector<Dim> shape;
  for (std::size_t i = 0; i < data.rank(); ++i) {
    if (!reduced[i]) {
      shape.push_back(data.shape[i]);
    } else if (keep) {
      shape.emplace_back(1);
    }
  }
  call.set(0, data.elem, std::move(shape));
  if (function == nullptr || data.value == nullptr || data.value->empty() || !all_constant(data.shape) || !call.wants_value(data.shape)) return;
  std::vector<Dim> kept;
  for (std::size_t i = 0; i < data.rank(); ++i) kept.push_back(reduced[i] ? Dim(1) : data.shape[i]);
  const auto sizes = constants_of(data.shape);
  const auto strides = strides_of(kept);
  std::int64_t count = 1;
  for (const Dim dim : kept) count *= dim.value;
  std::vector<Element> elements(static_cast<std::size_t>(count));
  std::vector<bool> seen(static_cast<std::size_t>(count), false);
  std::vector<std::int64_t> index(sizes.size(), 0);
  const bool real = is_float(data.elem);
  for (const Element& element : *data.value) {
    std::size_t at = 0;
    for (std::size_t d = 0; d < index.size(); ++d) at += static_cast<std::size_t>(reduced[d] ? 0 : index[d] * strides[d]);
    elements[at] = seen[at] ? function(call.dims, elements[at], element, real) : element;
    seen[at] = true;
    next_index(index, sizes);
  }
  if (mean) {
    const auto each = static_cast<std::int64_t>(data.value->size()) / std::max<std::int64_t>(count, 1);
    for (Element& element : elements) element = divide_elements(call.dims, element, Dim(each), real);
  }
  call.set_value(0, std::move(elements));
}

}  // namespace

void reduce_sum(Call& call) { reduce(call, add_elements); }
void reduce_prod(Call& call) { reduce(call, multiply_elements); }
void reduce_min(Call& call) { reduce(call, least_element); }
void reduce_max(Call& call) { reduce(call, greatest_element); }
void reduce_mean(Call& call) { reduce(call, add_elements, true); }
void reduce_shape(Call& call) { reduce(call, nullptr); }

void arg_extreme(Call& call) {
  call.set_type(0, Elem::int64);
  if (!call.ranked(0)) return;
  std::vector<Dim> shape = call.in(0).shape;
  std::size_t axis = 0;
  if (!call.axis_of(call.attr_int("axis", 0), shape.size(), axis)) return;
  if (call.attr_int("keepdims", 1) != 0) {
    shape[axis] = 1;
  } else {
    shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(axis));
  }
  call.set(0, Elem::int64, std::move(shape));
}

void cum_sum(Call& call) {
  call.same(0, 0);
  const TensorInfo& data = call.in(0);
  const auto axis = call.in_dim(1);
  if (data.value == nullptr || !axis || !axis->is_constant() || !all_constant(data.shape) || call.attr_int("exclusive", 0) != 0 || call.attr_int("reverse", 0) != 0) return;
  std::size_t at = 0;
  if (!call.axis_of(axis->value, data.rank(), at) || !call.wants_value(data.shape)) return;
  const auto stride = static_cast<std::size_t>(strides_of(data.shape)[at]);
  const auto length = static_cast<std::size_t>(data.shape[at].value);
  std::vector<Element> elements = *data.value;
  for (std::size_t i = 0; i < elements.size(); ++i) {
    if ((i / stride) % length > 0) elements[i] = add_elements(call.dims, elements[i - stride], elements[i], is_float(data.elem));
  }
  call.set_value(0, std::move(elements));
}

}  // namespace rooftile::onnx::rules
