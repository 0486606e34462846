// Operators that pick, join and repeat parts of tensors.
#include <algorithm>
#include <limits>
#include <numeric>

#include "frontends/onnx/rules/elements.h"
#include "frontends/onnx/rules/rules.h"

namespace rooftile::onnx::rules {

void gather(Call& call) {
  const TensorInfo &data = call.in(0), &indices = call.in(1);
  call.set_type(0, data.elem);
  if (!data.ranked || !indices.ranked) return;
  std::size_t axis = 0;
  if (!call.axis_of(call.attr_int("axis", 0), data.rank(), axis)) return;
  std::vector<Dim> shape(data.shape.begin(), data.shape.begin() + static_cast<std::ptrdiff_t>(axis));
  shape.insert(shape.end(), indices.shape.begin(), indices.shape.end());
  shape.insert(shape.end(), data.shape.begin() + static_cast<std::ptrdiff_t>(axis) + 1, data.shape.end());
  call.set(0, data.elem, std::move(shape));
  const std::vector<Dim>& out = call.out(0).shape;
  const auto picks = call.in_ints(1);
  if (!picks || data.value == nullptr || !all_constant(data.shape) || !call.wants_value(out)) return;
  const auto sizes = constants_of(data.shape);
  std::int64_t outer = 1, inner = 1;
  for (std::size_t i = 0; i < axis; ++i) outer *= sizes[i];
  for (std::size_t i = axis + 1; i < sizes.size(); ++i) inner *= sizes[i];
  std::vector<Element> elements;
  for (std::int64_t o = 0; o < outer; ++o) {
    for (const std::int64_t pick : *picks) {
      const std::int64_t at = pick < 0 ? pick + sizes[axis] : pick;
      if (at < 0 || at >= sizes[axis]) return call.fail("index " + std::to_string(pick) + " of a dimension of " + std::to_string(sizes[axis]));
      for (std::int64_t i = 0; i < inner; ++i) elements.push_back((*data.value)[static_cast<std::size_t>((o * sizes[axis] + at) * inner + i)]);
    }
  }
  call.set_value(0, std::move(elements));
}

void gather_elements(Call& call) {
  call.set_type(0, call.in(0).elem);
  if (call.ranked(1)) call.set(0, call.in(0).elem, call.in(1).shape);
}

void gather_nd(Call& call) {
  const TensorInfo &data = call.in(0), &indices = call.in(1);
  call.set_type(0, data.elem);
  if (!data.ranked || !indices.ranked || indices.rank() == 0 || !indices.shape.back().is_constant()) return;
  const std::int64_t batch = call.attr_int("batch_dims", 0), depth = indices.shape.back().value;
  if (batch < 0 || depth < 0 || batch + depth > static_cast<std::int64_t>(data.rank()) || batch >= static_cast<std::int64_t>(indices.rank())) {
    return call.fail("indices " + call.shape_text(indices) + " do not address data " + call.shape_text(data));
  }
  std::vector<Dim> shape(indices.shape.begin(), indices.shape.end() - 1);
  shape.insert(shape.end(), data.shape.begin() + batch + depth, data.shape.end());
  call.set(0, data.elem, std::move(shape));
  const auto picks = call.in_ints(1);
  if (batch != 0 || depth == 0 || !picks || data.value == nullptr || !all_constant(data.shape) || !call.wants_value(call.out(0).shape)) return;
  const auto sizes = constants_of(data.shape);
  const auto strides = strides_of(data.shape);
  const std::int64_t inner = depth == 0 ? 1 : strides[static_cast<std::size_t>(depth) - 1];
  std::vector<Element> elements;
  for (std::size_t row = 0; row + static_cast<std::size_t>(depth) <= picks->size(); row += static_cast<std::size_t>(depth)) {
    std::int64_t at = 0;
    for (std::size_t d = 0; d < static_cast<std::size_t>(depth); ++d) {
      std::int64_t pick = (*picks)[row + d];
      if (pick < 0) pick += sizes[d];
      if (pick < 0 || pick >= sizes[d]) return;
      at += pick * strides[d];
    }
    for (std::int64_t i = 0; i < inner; ++i) elements.push_back((*data.value)[static_cast<std::size_t>(at + i)]);
  }
  call.set_value(0, std::move(elements));
}

void scatter(Call& call) { call.same(0, 0); }

void scatter_nd(Call& call) {
  call.same(0, 0);
  const TensorInfo &data = call.in(0), &indices = call.in(1), &updates = call.in(2);
  const auto picks = call.in_ints(1);
  if (!picks || data.value == nullptr || updates.value == nullptr || !indices.ranked || indices.rank() == 0 || !all_constant(data.shape) ||
      call.attr_text("reduction", "none") != "none" || !call.wants_value(data.shape)) {
    return;
  }
  const std::int64_t depth = indices.shape.back().value;
  if (depth <= 0 || depth > static_cast<std::int64_t>(data.rank())) return;
  const auto sizes = constants_of(data.shape);
  const auto strides = strides_of(data.shape);
  const auto inner = static_cast<std::size_t>(strides[static_cast<std::size_t>(depth) - 1]);
  std::vector<Element> elements = *data.value;
  std::size_t from = 0;
  for (std::size_t row = 0; row + static_cast<std::size_t>(depth) <= picks->size(); row += static_cast<std::size_t>(depth)) {
    std::int64_t at = 0;
    for (std::size_t d = 0; d < static_cast<std::size_t>(depth); ++d) {
      std::int64_t pick = (*picks)[row + d];
      if (pick < 0) pick += sizes[d];
      if (pick < 0 || pick >= sizes[d]) return;
      at += pick * strides[d];
    }
    for (std::size_t i = 0; i < inner; ++i, ++from) {
      if (from >= updates.value->size()) return;
      elements[static_cast<std::size_t>(at) + i] = (*updates.value)[from];
    }
  }
  call.set_value(0, std::move(elements));
}

namespace {

// Length of [start : end : step] of a dimension, after clamping as ONNX and NumPy do.
Dim slice_length(Call& call, std::size_t axis, Dim size, Dim start, Dim end, std::int64_t step) {
  DimContext& dims = call.dims;
  if (size.is_constant() && start.is_constant() && end.is_constant()) {
    const std::int64_t n = size.value;
    std::int64_t from = start.value, to = end.value;
    if (from < 0) from += n;
    if (to < 0 && to >= -n) to += n;
    if (step > 0) {
      from = std::clamp<std::int64_t>(from, 0, n);
      to = std::clamp<std::int64_t>(to, 0, n);
      return to > from ? (to - from - 1) / step + 1 : 0;
    }
    from = std::clamp<std::int64_t>(from, -1, n - 1);
    to = end.value < -n ? -1 : std::clamp<std::int64_t>(to, -1, n - 1);
    return from > to ? (from - to - 1) / (step == std::numeric_limits<std::int64_t>::min() ? std::numeric_limits<std::int64_t>::max() : -step) + 1 : 0;
  }
  // Symbolic: ends are taken relative to the size where their sign is known.
  if (step < 0) {
    const bool whole = start.is_constant() && (start.value == -1 || start.value >= (std::int64_t{1} << 30)) && end.is_constant() && end.value < -(std::int64_t{1} << 30);
    return whole ? dims.ceildiv(size, -step) : call.data_size(0, "slice", size, axis);
  }
  const auto place = [&](Dim at, bool is_end) -> Dim {
    if (at.is_constant() && at.value >= (std::int64_t{1} << 30)) return size;
    if (at.is_constant() && at.value <= -(std::int64_t{1} << 30)) return 0;
    const auto negative = dims.less(at, 0);
    if (negative && *negative) return dims.max(dims.add(at, size), 0);
    const Dim clamped = dims.min(at, size);
    (void)is_end;
    return clamped;
  };
  const Dim from = place(start, false), to = place(end, true);
  Dim length = dims.sub(to, from);
  if (const auto negative = dims.less(length, 0); !negative && length.is_constant() == false) {
    const auto low = dims.lower_bound(length);
    if (!low || *low < 0) length = from == Dim(0) ? length : dims.max(length, 0);
  } else if (negative && *negative) {
    length = 0;
  }
  return step == 1 ? length : dims.ceildiv(length, step);
}

}  // namespace

void slice(Call& call) {
  const TensorInfo& data = call.in(0);
  call.set_type(0, data.elem);
  if (!data.ranked) return;
  std::vector<Element> starts, ends;
  std::optional<std::vector<std::int64_t>> axes, steps;
  bool known = true;
  if (call.has(1) || !call.has_attr("starts")) {
    if (!call.has(1) || !call.has(2)) return;
    const auto list = [&](std::size_t i) {
      if (call.in(i).value != nullptr) return *call.in(i).value;
      const TensorInfo& tensor = call.in(i);
      known = known && tensor.ranked && tensor.rank() == 1 && tensor.shape[0].is_constant() && tensor.shape[0].value <= 64;
      return known ? std::vector<Element>(static_cast<std::size_t>(tensor.shape[0].value)) : std::vector<Element>();
    };
    starts = list(1);
    ends = list(2);
    if (call.has(3)) {
      axes = call.in_ints(3);
      if (!axes) known = false;
    }
    if (call.has(4)) steps = call.in_ints(4);
  } else {
    const auto from = call.attr_ints("starts"), to = call.attr_ints("ends");
    if (!from || !to) return;
    starts.assign(from->begin(), from->end());
    ends.assign(to->begin(), to->end());
    axes = call.attr_ints("axes");
  }
  std::vector<Dim> shape = data.shape;
  if (!known) {  // rank only
    for (std::size_t i = 0; i < shape.size(); ++i) shape[i] = call.data_size(0, "dim" + std::to_string(i), shape[i]);
    return call.set(0, data.elem, std::move(shape));
  }
  if (starts.size() != ends.size() || (axes && axes->size() != starts.size()) || (!axes && starts.size() > data.rank()))
    return call.fail("starts, ends and axes are not of one length");
  const bool steps_known = !call.has(4) || steps.has_value();
  std::vector<std::int64_t> first(data.rank(), 0), stride(data.rank(), 1);
  bool exact = true;
  for (std::size_t i = 0; i < starts.size(); ++i) {
    std::size_t axis = i;
    if (axes && !call.axis_of((*axes)[i], data.rank(), axis)) return;
    const std::int64_t step = steps && i < steps->size() ? (*steps)[i] : 1;
    if (step == 0) return call.fail("a step of 0");
    if (!starts[i].is_integer() || !ends[i].is_integer() || !steps_known) {
      shape[axis] = call.data_size(0, "dim" + std::to_string(axis), shape[axis]);
      exact = false;
      continue;
    }
    const Dim size = data.shape[axis], start = starts[i].dim();
    shape[axis] = slice_length(call, axis, size, start, ends[i].dim(), step);
    exact = exact && size.is_constant() && start.is_constant();
    if (exact) {
      std::int64_t from = start.value < 0 ? start.value + size.value : start.value;
      first[axis] = step > 0 ? std::clamp<std::int64_t>(from, 0, size.value) : std::clamp<std::int64_t>(from, -1, size.value - 1);
      stride[axis] = step;
    }
  }
  call.set(0, data.elem, std::move(shape));
  const std::vector<Dim>& out = call.out(0).shape;
  if (!exact || data.value == nullptr || !all_constant(data.shape) || !call.wants_value(out)) return;
  const auto sizes = constants_of(out);
  const auto strides = strides_of(data.shape);
  std::vector<Element> elements;
  if (std::find(sizes.begin(), sizes.end(), 0) == sizes.end()) {
    std::vector<std::int64_t> index(sizes.size(), 0);
    do {
      std::int64_t at = 0;
      for (std::size_t d = 0; d < index.size(); ++d) at += (first[d] + index[d] * stride[d]) * strides[d];
      elements.push_back((*data.value)[static_cast<std::size_t>(at)]);
    } while (next_index(index, sizes));
  }
  call.set_value(0, std::move(elements));
}

void concat(Call& call) {
  Elem elem = Elem::undefined;
  const TensorInfo* first = nullptr;
  bool all = true;
  for (std::size_t i = 0; i < call.input_count(); ++i) {
    if (!call.has(i)) continue;
    if (elem == Elem::undefined) elem = call.in(i).elem;
    all = all && call.ranked(i);
    if (first == nullptr && call.ranked(i)) first = &call.in(i);
  }
  call.set_type(0, elem);
  if (first == nullptr) return;
  std::size_t axis = 0;
  if (!call.axis_of(call.attr_int("axis", call.node.opset < 4 ? 1 : 0), first->rank(), axis)) return;
  std::vector<Dim> shape = first->shape;
  shape[axis] = 0;
  bool plain = axis == 0 || std::all_of(shape.begin(), shape.begin() + static_cast<std::ptrdiff_t>(axis), [](Dim dim) { return dim == Dim(1); });
  bool values = true;
  for (std::size_t i = 0; i < call.input_count(); ++i) {
    if (!call.has(i)) continue;
    const TensorInfo& part = call.in(i);
    if (!part.ranked) continue;
    if (part.rank() != shape.size()) return call.fail("operands of " + std::to_string(shape.size()) + " and " + std::to_string(part.rank()) + " dimensions");
    for (std::size_t d = 0; d < shape.size(); ++d) {
      shape[d] = d == axis ? call.dims.add(shape[d], part.shape[d])
                           : call.unify(shape[d], part.shape[d], "sizes of dimension " + std::to_string(d) + " of " + call.input_name(i) + " and the others");
    }
    if (call.failed()) return;
  }
  if (!all) return;  // the length is not known, and no guess is better than none
  std::vector<Element> elements;
  if (values && all_constant(shape) && shape.size() <= 1 && call.wants_value(shape)) {  // sizes are lists; unknown parts stay unknown elements
    for (std::size_t i = 0; i < call.input_count(); ++i) {
      if (!call.has(i)) continue;
      const TensorInfo& part = call.in(i);
      if (part.value != nullptr) {
        elements.insert(elements.end(), part.value->begin(), part.value->end());
      } else {
        elements.resize(elements.size() + static_cast<std::size_t>(part.shape[0].value));
      }
    }
  } else if (values && plain && all_constant(shape) && call.wants_value(shape)) {
    for (std::size_t i = 0; i < call.input_count() && values; ++i) {
      if (!call.has(i)) continue;
      values = call.in(i).value != nullptr;
      if (values) elements.insert(elements.end(), call.in(i).value->begin(), call.in(i).value->end());
    }
  } else if (values && all_constant(shape) && call.wants_value(shape)) {
    std::int64_t outer = 1;
    for (std::size_t d = 0; d < axis; ++d) outer *= shape[d].value;
    for (std::size_t i = 0; i < call.input_count() && values; ++i) values = !call.has(i) || call.in(i).value != nullptr;
    for (std::int64_t o = 0; o < outer && values; ++o) {
      for (std::size_t i = 0; i < call.input_count(); ++i) {
        if (!call.has(i)) continue;
        const auto& list = *call.in(i).value;
        const std::size_t chunk = list.size() / static_cast<std::size_t>(outer);
        elements.insert(elements.end(), list.begin() + static_cast<std::ptrdiff_t>(chunk * static_cast<std::size_t>(o)),
                        list.begin() + static_cast<std::ptrdiff_t>(chunk * (static_cast<std::size_t>(o) + 1)));
      }
    }
  } else {
    values = false;
  }
  call.set(0, elem, std::move(shape));
  if (values) call.set_value(0, std::move(elements));
}

void split(Call& call) {
  const TensorInfo& data = call.in(0);
  for (std::size_t i = 0; i < call.output_count(); ++i) call.set_type(i, data.elem);
  if (!data.ranked) return;
  std::size_t axis = 0;
  if (!call.axis_of(call.attr_int("axis", 0), data.rank(), axis)) return;
  const auto count = static_cast<std::int64_t>(call.output_count());
  if (count == 0) return;
  std::vector<Dim> parts;
  const Dim size = data.shape[axis];
  if (call.has(1)) {
    if (const auto given = call.in_dims(1)) parts = *given;
  } else if (const auto given = call.attr_ints("split"); given && !given->empty()) {
    parts.assign(given->begin(), given->end());
  } else {
    const std::int64_t pieces = call.attr_int("num_outputs", count);
    if (pieces <= 0) return call.fail("num_outputs is " + std::to_string(pieces));
    const Dim chunk = call.dims.ceildiv(size, pieces);
    for (std::int64_t i = 0; i < count; ++i) parts.push_back(chunk);
    if (count == pieces) parts.back() = call.dims.sub(size, call.dims.mul(chunk, count - 1));
    if (parts.back().is_constant() && parts.back().value < 0) parts.back() = 0;
  }
  if (!parts.empty() && static_cast<std::int64_t>(parts.size()) < count)
    return call.fail("split into " + std::to_string(parts.size()) + " parts for " + std::to_string(count) + " outputs");
  if (!parts.empty() && static_cast<std::int64_t>(parts.size()) == count) {
    const Dim sum = [&] {
      Dim total = 0;
      for (const Dim part : parts) total = call.dims.add(total, part);
      return total;
    }();
    if (sum.is_constant() && size.is_constant() && sum != size)
      return call.fail("parts add up to " + std::to_string(sum.value) + ", the dimension is " + std::to_string(size.value));
  }
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < call.output_count(); ++i) {
    std::vector<Dim> shape = data.shape;
    shape[axis] = parts.empty() ? call.data_size(i, "dim" + std::to_string(axis), call.dims.floordiv(size, count)) : parts[i];
    call.set(i, data.elem, std::move(shape));
    if (data.value != nullptr && data.rank() == 1 && !parts.empty() && parts[i].is_constant() && parts[i].value >= 0) {
      const auto begin = static_cast<std::size_t>(offset), end = begin + static_cast<std::size_t>(parts[i].value);
      if (end <= data.value->size()) call.set_value(i, {data.value->begin() + static_cast<std::ptrdiff_t>(begin), data.value->begin() + static_cast<std::ptrdiff_t>(end)});
      offset += parts[i].value;
    }
  }
}

void tile(Call& call) {
  const TensorInfo& data = call.in(0);
  call.set_type(0, data.elem);
  if (!data.ranked) return;
  if (call.input_count() == 3) {  // opset 1: tiles, axis
    std::vector<Dim> shape = data.shape;
    const auto times = call.in_dim(1), axis = call.in_dim(2);
    std::size_t at = 0;
    if (!times || !axis || !axis->is_constant() || !call.axis_of(axis->value, data.rank(), at)) return;
    shape[at] = call.dims.mul(shape[at], *times);
    return call.set(0, data.elem, std::move(shape));
  }
  const TensorInfo& repeats = call.in(1);
  std::vector<Dim> shape = data.shape;
  if (repeats.value != nullptr && repeats.value->size() != data.rank()) {
    return call.fail(std::to_string(repeats.value->size()) + " repeats for " + std::to_string(data.rank()) + " dimensions");
  }
  bool constant = true;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (repeats.value != nullptr && (*repeats.value)[i].is_integer()) {
      shape[i] = call.dims.mul(shape[i], (*repeats.value)[i].dim());
    } else {
      shape[i] = call.data_size(0, "dim" + std::to_string(i), shape[i]);
      constant = false;
    }
  }
  call.set(0, data.elem, std::move(shape));
  const std::vector<Dim>& out = call.out(0).shape;
  if (!constant || data.value == nullptr || !all_constant(data.shape) || !call.wants_value(out) || data.value->empty()) return;
  const auto sizes = constants_of(out);
  const auto source = constants_of(data.shape);
  const auto strides = strides_of(data.shape);
  if (std::find(sizes.begin(), sizes.end(), 0) != sizes.end()) return;
  std::vector<Element> elements;
  std::vector<std::int64_t> index(sizes.size(), 0);
  do {
    std::int64_t at = 0;
    for (std::size_t d = 0; d < index.size(); ++d) at += (index[d] % source[d]) * strides[d];
    elements.push_back((*data.value)[static_cast<std::size_t>(at)]);
  } while (next_index(index, sizes));
  call.set_value(0, std::move(elements));
}

void pad(Call& call) {
  const TensorInfo& data = call.in(0);
  call.set_type(0, data.elem);
  if (!data.ranked) return;
  std::optional<std::vector<Dim>> pads;
  if (call.has(1)) {
    pads = call.in_dims(1);
  } else {
    auto list = call.attr_ints("pads");
    if (!list) list = call.attr_ints("paddings");
    if (list) pads.emplace(list->begin(), list->end());
  }
  std::vector<std::size_t> axes(data.rank());
  std::iota(axes.begin(), axes.end(), std::size_t{0});
  if (call.has(3)) {
    const auto given = call.in_ints(3);
    if (!given) {
      pads.reset();
    } else {
      axes.clear();
      for (const std::int64_t axis : *given) {
        std::size_t at = 0;
        if (!call.axis_of(axis, data.rank(), at)) return;
        axes.push_back(at);
      }
    }
  }
  std::vector<Dim> shape = data.shape;
  if (!pads) {
    for (std::size_t i = 0; i < shape.size(); ++i) shape[i] = call.data_size(0, "dim" + std::to_string(i), shape[i]);
  } else {
    if (pads->size() != 2 * axes.size()) return call.fail(std::to_string(pads->size()) + " pads for " + std::to_string(axes.size()) + " dimensions");
    for (std::size_t i = 0; i < axes.size(); ++i) {
      shape[axes[i]] = call.dims.add(shape[axes[i]], call.dims.add((*pads)[i], (*pads)[i + axes.size()]));
    }
  }
  call.set(0, data.elem, std::move(shape));
  if (pads && data.value != nullptr && data.rank() == 1 && (*pads)[0].is_constant() && (*pads)[1].is_constant() && (*pads)[0].value >= 0 && (*pads)[1].value >= 0 &&
      call.attr_text("mode", "constant") == "constant" && call.wants_value(call.out(0).shape)) {
    const Element fill = call.has(2) && call.in(2).value != nullptr && call.in(2).value->size() == 1 ? call.in(2).value->front() : Element(Dim(0));
    std::vector<Element> elements(static_cast<std::size_t>((*pads)[0].value), fill);
    elements.insert(elements.end(), data.value->begin(), data.value->end());
    elements.resize(elements.size() + static_cast<std::size_t>((*pads)[1].value), fill);
    call.set_value(0, std::move(elements));
  }
}

void reverse_like(Call& call) { call.same(0, 0); }

void depth_to_space(Call& call) {
  call.set_type(0, call.in(0).elem);
  if (!call.ranked(0) || call.in(0).rank() != 4) return;
  const std::int64_t block = call.attr_int("blocksize", 1);
  if (block <= 0) return call.fail("blocksize is " + std::to_string(block));
  const auto& s = call.in(0).shape;
  call.set(0, call.in(0).elem, {s[0], call.dims.floordiv(s[1], call.dims.mul(block, block)), call.dims.mul(s[2], block), call.dims.mul(s[3], block)});
}

void space_to_depth(Call& call) {
  call.set_type(0, call.in(0).elem);
  if (!call.ranked(0) || call.in(0).rank() != 4) return;
  const std::int64_t block = call.attr_int("blocksize", 1);
  if (block <= 0) return call.fail("blocksize is " + std::to_string(block));
  const auto& s = call.in(0).shape;
  call.set(0, call.in(0).elem, {s[0], call.dims.mul(s[1], call.dims.mul(block, block)), call.dims.floordiv(s[2], block), call.dims.floordiv(s[3], block)});
}

void compress(Call& call) {
  const TensorInfo& data = call.in(0);
  call.set_type(0, data.elem);
  if (!data.ranked) return;
  Dim kept = 0;
  const bool whole = !call.has_attr("axis");
  std::size_t axis = 0;
  if (!whole && !call.axis_of(call.attr_int("axis", 0), data.rank(), axis)) return;
  const auto mask = call.in_ints(1);
  if (mask) {
    for (const std::int64_t bit : *mask) kept = kept.value + (bit != 0 ? 1 : 0);
  } else {
    kept = call.data_size(0, "kept", call.ranked(1) && call.in(1).rank() == 1 ? call.in(1).shape[0] : Dim(1), axis);
  }
  std::vector<Dim> shape = whole ? std::vector<Dim>{kept} : data.shape;
  if (!whole) shape[axis] = kept;
  call.set(0, data.elem, std::move(shape));
}

void tensor_scatter(Call& call) { call.same(0, 0); }

void center_crop_pad(Call& call) {
  const TensorInfo& data = call.in(0);
  call.set_type(0, data.elem);
  const auto target = call.in_dims(1);
  if (!data.ranked) return;
  std::vector<std::int64_t> axes(data.rank());
  std::iota(axes.begin(), axes.end(), 0);
  if (const auto given = call.attr_ints("axes")) axes = *given;
  std::vector<Dim> shape = data.shape;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    std::size_t at = 0;
    if (!call.axis_of(axes[i], data.rank(), at)) return;
    shape[at] = target && i < target->size() ? (*target)[i] : call.data_size(0, "dim" + std::to_string(at), shape[at]);
  }
  call.set(0, data.elem, std::move(shape));
}

}  // namespace rooftile::onnx::rules
