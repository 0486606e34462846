// Operators that read or change shapes without touching data.
#include <algorithm>
#include <numeric>

#include "frontends/onnx/rules/rules.h"

namespace rooftile::onnx::rules {

void shape(Call& call) {
  if (!call.ranked(0)) {
    call.set_type(0, Elem::int64);
    return;
  }
  const auto rank = static_cast<std::int64_t>(call.in(0).rank());
  std::int64_t start = call.attr_int("start", 0), end = call.attr_int("end", rank);
  if (start < 0) start += rank;
  if (end < 0) end += rank;
  start = std::clamp<std::int64_t>(start, 0, rank);
  end = std::clamp<std::int64_t>(end, start, rank);
  call.set(0, Elem::int64, {end - start});
  std::vector<Element> elements;
  for (std::int64_t i = start; i < end; ++i) elements.emplace_back(call.in(0).shape[static_cast<std::size_t>(i)]);
  call.set_value(0, std::move(elements));
}

void size(Call& call) {
  call.set(0, Elem::int64, {});
  if (call.ranked(0)) call.set_value(0, {Element(call.product(call.in(0).shape))});
}

void reshape(Call& call) {
  const TensorInfo& data = call.in(0);
  call.set_type(0, data.elem);
  std::vector<Element> target;
  if (call.has(1)) {
    const TensorInfo& request = call.in(1);
    if (request.value != nullptr) {
      target = *request.value;
    } else if (request.ranked && request.rank() == 1 && request.shape[0].is_constant() && request.shape[0].value <= 16) {
      target.resize(static_cast<std::size_t>(request.shape[0].value));  // a known rank of unknown sizes
    } else {
      return;
    }
  } else if (const auto attribute = call.attr_ints("shape")) {
    target.assign(attribute->begin(), attribute->end());
  } else {
    return;
  }
  const bool allow_zero = call.attr_int("allowzero", 0) != 0;
  std::vector<Dim> shape(target.size(), 0);
  std::size_t open = target.size();
  std::size_t unknown = 0;
  for (std::size_t i = 0; i < target.size(); ++i) {
    if (!target[i].is_integer()) {
      ++unknown;
      open = i;
      continue;
    }
    const Dim dim = target[i].dim();
    if (dim == Dim(0) && !allow_zero) {
      if (!data.ranked) {
        ++unknown;
        open = i;
        continue;
      }
      if (i >= data.rank()) return call.fail("target " + std::to_string(i) + " copies a dimension that the input " + call.shape_text(data) + " does not have");
      shape[i] = data.shape[i];
    } else if (dim == Dim(-1)) {
      ++unknown;
      open = i;
    } else {
      shape[i] = dim;
    }
  }
  if (unknown == 0) {
    if (data.ranked) {
      const Dim have = call.product(data.shape), want = call.product(shape);
      if (have.is_constant() && want.is_constant() && have != want) {
        TensorInfo wanted;
        wanted.ranked = true;
        wanted.shape = shape;
        return call.fail("input " + call.shape_text(data) + " has " + std::to_string(have.value) + " elements, target " + call.shape_text(wanted) + " has " +
                         std::to_string(want.value));
      }
    }
  } else if (unknown == 1 && data.ranked) {
    const Dim have = call.product(data.shape);
    Dim rest = 1;
    for (std::size_t i = 0; i < shape.size(); ++i) {
      if (i != open) rest = call.dims.mul(rest, shape[i]);
    }
    if (rest.is_constant() && rest.value == 0) {
      shape[open] = 0;
    } else if (const auto exact = call.dims.divide_exactly(have, rest)) {
      shape[open] = *exact;
    } else if (have.is_constant() && rest.is_constant()) {
      return call.fail("input " + call.shape_text(data) + " has " + std::to_string(have.value) + " elements, which " + std::to_string(rest.value) + " does not divide");
    } else {
      shape[open] = call.dims.floordiv(have, rest);
    }
  } else {
    for (std::size_t i = 0; i < target.size(); ++i) {
      const bool given = target[i].is_integer() && target[i].dim() != Dim(-1) && !(target[i].dim() == Dim(0) && !allow_zero && !data.ranked);
      if (!given) shape[i] = call.data_size(0, "dim" + std::to_string(i), 1);
    }
  }
  call.set(0, data.elem, std::move(shape));
  call.out(0).value = data.value;
}

void squeeze(Call& call) {
  const TensorInfo& data = call.in(0);
  call.set_type(0, data.elem);
  if (!data.ranked) return;
  std::vector<bool> drop(data.rank(), false);
  const bool listed = call.has(1) || call.has_attr("axes");
  if (listed) {
    const auto axes = call.ints_of("axes", 1);
    if (!axes) return;
    for (const std::int64_t axis : *axes) {
      std::size_t at = 0;
      if (!call.axis_of(axis, data.rank(), at)) return;
      if (data.shape[at].is_constant() && data.shape[at].value != 1) return call.fail("dimension " + std::to_string(axis) + " of " + call.shape_text(data) + " is not 1");
      drop[at] = true;
    }
  } else {
    for (std::size_t i = 0; i < data.rank(); ++i) drop[i] = data.shape[i] == Dim(1);
  }
  std::vector<Dim> shape;
  for (std::size_t i = 0; i < data.rank(); ++i) {
    if (!drop[i]) shape.push_back(data.shape[i]);
  }
  call.set(0, data.elem, std::move(shape));
  call.out(0).value = data.value;
}

void unsqueeze(Call& call) {
  const TensorInfo& data = call.in(0);
  call.set_type(0, data.elem);
  if (!data.ranked) return;
  const auto axes = call.ints_of("axes", 1);
  if (!axes) return;
  const std::size_t rank = data.rank() + axes->size();
  if (rank > 64) return call.fail("over 64 dimensions");
  std::vector<bool> fresh(rank, false);
  for (const std::int64_t axis : *axes) {
    std::size_t at = 0;
    if (!call.axis_of(axis, rank, at)) return;
    if (fresh[at]) return call.fail("axis " + std::to_string(axis) + " is listed twice");
    fresh[at] = true;
  }
  std::vector<Dim> shape;
  std::size_t next = 0;
  for (std::size_t i = 0; i < rank; ++i) shape.push_back(fresh[i] ? Dim(1) : data.shape[next++]);
  call.set(0, data.elem, std::move(shape));
  call.out(0).value = data.value;
}

void flatten(Call& call) {
  const TensorInfo& data = call.in(0);
  call.set_type(0, data.elem);
  if (!data.ranked) return;
  std::int64_t axis = call.attr_int("axis", 1);
  if (axis < 0) axis += static_cast<std::int64_t>(data.rank());
  if (axis < 0 || axis > static_cast<std::int64_t>(data.rank())) return call.fail("axis " + std::to_string(axis) + " of " + call.shape_text(data));
  const auto split = static_cast<std::size_t>(axis);
  call.set(0, data.elem, {call.product(data.shape, 0, split), call.product(data.shape, split)});
  call.out(0).value = data.value;
}

void transpose(Call& call) {
  const TensorInfo& data = call.in(0);
  call.set_type(0, data.elem);
  if (!data.ranked) return;
  std::vector<std::int64_t> order(data.rank());
  std::iota(order.rbegin(), order.rend(), 0);
  if (const auto given = call.attr_ints("perm"); given && !(given->empty() && data.rank() > 0)) {
    std::vector<bool> seen(data.rank(), false);
    bool good = given->size() == data.rank();
    for (std::size_t i = 0; good && i < given->size(); ++i) {
      std::int64_t axis = (*given)[i];
      if (axis < 0) axis += static_cast<std::int64_t>(data.rank());
      good = axis >= 0 && axis < static_cast<std::int64_t>(data.rank()) && !seen[static_cast<std::size_t>(axis)];
      if (!good) break;
      seen[static_cast<std::size_t>(axis)] = true;
      order[i] = axis;
    }
    if (!good) return call.fail("perm is not an order of the " + std::to_string(data.rank()) + " dimensions of " + call.shape_text(data));
  }
  std::vector<Dim> shape;
  for (const std::int64_t axis : order) shape.push_back(data.shape[static_cast<std::size_t>(axis)]);
  call.set(0, data.elem, std::move(shape));
  const std::vector<Dim>& out = call.out(0).shape;
  if (data.value == nullptr || !all_constant(out) || !call.wants_value(out)) return;
  const auto strides = strides_of(data.shape);
  const auto sizes = constants_of(out);
  std::vector<Element> elements;
  std::vector<std::int64_t> index(sizes.size(), 0);
  if (!data.value->empty()) {
    do {
      std::int64_t at = 0;
      for (std::size_t i = 0; i < index.size(); ++i) at += index[i] * strides[static_cast<std::size_t>(order[i])];
      elements.push_back((*data.value)[static_cast<std::size_t>(at)]);
    } while (next_index(index, sizes));
  }
  call.set_value(0, std::move(elements));
}

void expand(Call& call) {
  const TensorInfo& data = call.in(0);
  call.set_type(0, data.elem);
  if (!data.ranked || !call.has(1)) return;
  std::vector<Dim> target;
  const TensorInfo& request = call.in(1);
  const std::size_t listed = request.value != nullptr ? request.value->size()
                             : request.ranked && request.rank() == 1 && request.shape[0].is_constant()
                                 ? static_cast<std::size_t>(std::clamp<std::int64_t>(request.shape[0].value, 0, 64))
                                 : 0;
  const std::size_t offset = data.rank() > listed ? data.rank() - listed : 0;  // sizes are aligned at the end
  if (request.value != nullptr) {
    for (std::size_t i = 0; i < request.value->size(); ++i) {
      const Element& element = (*request.value)[i];
      if (element.is_integer()) {
        target.push_back(element.dim() == Dim(-1) ? Dim(1) : element.dim());
      } else {
        target.push_back(call.data_size(0, "dim" + std::to_string(offset + i), 1));
      }
    }
  } else if (request.ranked && request.rank() == 1 && request.shape[0].is_constant() && request.shape[0].value <= 16) {
    for (std::size_t i = 0; i < listed; ++i) target.push_back(call.data_size(0, "dim" + std::to_string(offset + i), 1));
  } else {
    return;
  }
  TensorInfo wanted;
  wanted.ranked = true;
  wanted.shape = target;
  auto shape = call.broadcast(data.shape, target);
  if (call.failed()) return call.fail("input " + call.shape_text(data) + " does not expand to " + call.shape_text(wanted));
  call.set(0, data.elem, std::move(*shape));
  static constexpr std::size_t kFirst[] = {0};
  evaluate_elementwise(call, 0, kFirst, [](std::span<const Element> list) { return list[0]; });
}

}  // namespace rooftile::onnx::rules
