// Operators that make tensors from attributes or sizes, and those whose output size the data decides.
#include <algorithm>
#include <cmath>

#include "frontends/onnx/propagate.h"
#include "frontends/onnx/rules/elements.h"
#include "frontends/onnx/rules/rules.h"

namespace rooftile::onnx::rules {

void constant(Call& call) {
  if (call.node.constant >= 0) {
    const StoredTensor& stored = call.propagation().program.stored[static_cast<std::size_t>(call.node.constant)];
    call.set(0, stored.elem, std::vector<Dim>(stored.dims.begin(), stored.dims.end()));
    call.out(0).value = stored.value;
    call.out(0).stored = call.node.constant;
    return;
  }
  for (const Attribute& attribute : call.node.attributes()) {
    if (attribute.name == "value_int") {
      call.set(0, Elem::int64, {});
      return call.set_value(0, {Element(Dim(attribute.i))});
    }
    if (attribute.name == "value_float") {
      call.set(0, Elem::float32, {});
      return call.set_value(0, {Element::real(attribute.f)});
    }
    if (attribute.name == "value_ints") {
      call.set(0, Elem::int64, {static_cast<std::int64_t>(attribute.ints.size())});
      return call.set_value(0, std::vector<Element>(attribute.ints.begin(), attribute.ints.end()));
    }
    if (attribute.name == "value_floats") {
      call.set(0, Elem::float32, {static_cast<std::int64_t>(attribute.floats.size())});
      std::vector<Element> elements;
      for (const float real : attribute.floats) elements.push_back(Element::real(real));
      return call.set_value(0, std::move(elements));
    }
    if (attribute.name == "value_string") return call.set(0, Elem::string, {});
    if (attribute.name == "value_strings") return call.set(0, Elem::string, {static_cast<std::int64_t>(attribute.strings.size())});
  }
}

namespace {
// A shape given as an input; unknown sizes become data-dependent ones.
std::optional<std::vector<Dim>> shape_input(Call& call, std::size_t input) {
  const TensorInfo& request = call.in(input);
  std::vector<Dim> shape;
  if (request.value != nullptr) {
    for (std::size_t i = 0; i < request.value->size(); ++i) {
      const Element& element = (*request.value)[i];
      shape.push_back(element.is_integer() ? element.dim() : call.data_size(0, "dim" + std::to_string(i), 1));
    }
    return shape;
  }
  if (!request.ranked || request.rank() != 1 || !request.shape[0].is_constant() || request.shape[0].value > 16) return std::nullopt;
  for (std::int64_t i = 0; i < request.shape[0].value; ++i) shape.push_back(call.data_size(0, "dim" + std::to_string(i), 1));
  return shape;
}
}  // namespace

void constant_of_shape(Call& call) {
  Elem elem = Elem::float32;
  Element fill = Element::real(0);
  const Attribute* value = call.node.attribute("value");
  if (value != nullptr && value->tensor != nullptr) {
    elem = value->tensor->elem;
    std::vector<std::int64_t> ints;
    std::vector<double> reals;
    fill = {};
    if (decode_ints(*value->tensor, 1, ints) && ints.size() == 1) fill = Dim(ints[0]);
    if (decode_reals(*value->tensor, 1, reals) && reals.size() == 1) fill = Element::real(reals[0]);
  }
  call.set_type(0, elem);
  auto shape = shape_input(call, 0);
  if (!shape && call.attr_ints("shape")) {
    const auto list = *call.attr_ints("shape");
    shape.emplace(list.begin(), list.end());
  }
  if (!shape) return;
  call.set(0, elem, std::move(*shape));
  const std::vector<Dim>& out = call.out(0).shape;
  if (!all_constant(out) || !call.wants_value(out)) return;
  std::int64_t count = 1;
  for (const Dim dim : out) count *= dim.value;
  // Large fills with numbers are weights or masks, not sizes.
  if (count >= 0 && (is_integer(elem) || count <= 4096)) call.set_value(0, std::vector<Element>(static_cast<std::size_t>(count), fill));
}

void range(Call& call) {
  const Elem elem = call.in(0).elem;
  call.set_type(0, elem);
  Element bounds[3];
  for (std::size_t i = 0; i < 3; ++i) {
    if (call.has(i) && call.in(i).value != nullptr && call.in(i).value->size() == 1) bounds[i] = call.in(i).value->front();
    if (call.ranked(i) && call.in(i).rank() > 0) call.warn("range_of_lists", "Range takes scalars; a list of one element is taken as one");
  }
  const Element &start = bounds[0], &limit = bounds[1], &delta = bounds[2];
  if (start.is_constant() && limit.is_constant() && delta.is_constant() && delta.number() != 0) {
    const double length = std::ceil((limit.number() - start.number()) / delta.number());
    if (length > 9e18) return call.fail("over 2^63 elements");
    const auto count = static_cast<std::int64_t>(std::max(length, 0.0));
    call.set(0, elem, {count});
    if (!call.wants_value(call.out(0).shape)) return;
    std::vector<Element> elements;
    for (std::int64_t i = 0; i < count; ++i) {
      if (start.is_integer() && delta.is_integer()) {
        elements.push_back(add_elements(call.dims, start, multiply_elements(call.dims, delta, Dim(i), false), false));
      } else {
        elements.push_back(Element::real(start.number() + delta.number() * static_cast<double>(i)));
      }
    }
    return call.set_value(0, std::move(elements));
  }
  if (start.is_integer() && limit.is_integer() && delta.is_integer() && delta.is_constant() && delta.integer_value > 0) {
    return call.set(0, elem, {call.dims.ceildiv(call.dims.sub(limit.dim(), start.dim()), delta.integer_value)});
  }
  call.set(0, elem, {call.data_size(0, "length", 1, 0)});
}

void eye_like(Call& call) {
  call.same(0, 0);
  if (call.has_attr("dtype")) call.set_type(0, elem_of(call.attr_int("dtype", 1)));
}

void random_of_shape(Call& call) {
  const Elem elem = elem_of(call.attr_int("dtype", 1));
  call.set_type(0, elem);
  if (const auto shape = call.attr_ints("shape")) call.set(0, elem, std::vector<Dim>(shape->begin(), shape->end()));
}

void random_like(Call& call) {
  call.same(0, 0);
  if (call.has_attr("dtype")) call.set_type(0, elem_of(call.attr_int("dtype", 1)));
}

void multinomial(Call& call) {
  const Elem elem = elem_of(call.attr_int("dtype", 6));
  call.set_type(0, elem);
  if (call.ranked(0) && call.in(0).rank() == 2) call.set(0, elem, {call.in(0).shape[0], call.attr_int("sample_size", 1)});
}

void one_hot(Call& call) {
  call.set_type(0, call.in(2).elem);
  if (!call.ranked(0)) return;
  std::vector<Dim> shape = call.in(0).shape;
  std::size_t axis = 0;
  if (!call.axis_of(call.attr_int("axis", -1), shape.size() + 1, axis)) return;
  Dim depth = 0;
  if (const auto given = call.in_dim(1)) {
    depth = *given;
  } else if (const auto number = call.in_number(1)) {
    depth = static_cast<std::int64_t>(*number);
  } else {
    depth = call.data_size(0, "depth", 1, axis);
  }
  shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(axis), depth);
  call.set(0, call.in(2).elem, std::move(shape));
}

void non_zero(Call& call) {
  call.set_type(0, Elem::int64);
  if (!call.ranked(0)) return;
  const TensorInfo& data = call.in(0);
  const auto rank = static_cast<std::int64_t>(data.rank());
  if (data.value != nullptr && all_constant(data.shape) && std::all_of(data.value->begin(), data.value->end(), [](const Element& e) { return e.is_constant(); })) {
    const auto sizes = constants_of(data.shape);
    std::vector<std::vector<Element>> rows(data.rank());
    std::vector<std::int64_t> index(sizes.size(), 0);
    std::int64_t found = 0;
    for (const Element& element : *data.value) {
      if (element.number() != 0) {
        ++found;
        for (std::size_t d = 0; d < rows.size(); ++d) rows[d].emplace_back(Dim(index[d]));
      }
      next_index(index, sizes);
    }
    if (rank == 0) return call.set(0, Elem::int64, {0, found});
    call.set(0, Elem::int64, {rank, found});
    std::vector<Element> elements;
    for (const auto& row : rows) elements.insert(elements.end(), row.begin(), row.end());
    return call.set_value(0, std::move(elements));
  }
  call.set(0, Elem::int64, {rank, call.data_size(0, "count", call.product(data.shape), 1)});
}

void unique(Call& call) {
  const TensorInfo& data = call.in(0);
  call.set_type(0, data.elem);
  for (std::size_t i = 1; i < 4; ++i) call.set_type(i, Elem::int64);
  if (!data.ranked) return;
  std::size_t axis = 0;
  const bool whole = !call.has_attr("axis");
  if (!whole && !call.axis_of(call.attr_int("axis", 0), data.rank(), axis)) return;
  const Dim total = whole ? call.product(data.shape) : data.shape[axis];
  const Dim count = call.data_size(0, "count", total, axis);
  std::vector<Dim> shape = whole ? std::vector<Dim>{count} : data.shape;
  if (!whole) shape[axis] = count;
  call.set(0, data.elem, std::move(shape));
  call.set(1, Elem::int64, {count});
  call.set(2, Elem::int64, {total});
  call.set(3, Elem::int64, {count});
}

void top_k(Call& call) {
  const TensorInfo& data = call.in(0);
  call.set_type(0, data.elem);
  call.set_type(1, Elem::int64);
  if (!data.ranked) return;
  std::size_t axis = 0;
  if (!call.axis_of(call.attr_int("axis", -1), data.rank(), axis)) return;
  Dim k = 0;
  if (call.has_attr("k")) {
    k = call.attr_int("k", 1);
  } else if (const auto given = call.in_dim(1)) {
    k = *given;
  } else {
    k = call.data_size(0, "k", data.shape[axis], axis);
  }
  std::vector<Dim> shape = data.shape;
  shape[axis] = k;
  call.set(0, data.elem, shape);
  call.set(1, Elem::int64, std::move(shape));
}

void trilu(Call& call) {
  call.same(0, 0);
  const TensorInfo& data = call.in(0);
  std::int64_t offset = 0;
  if (call.has(1)) {
    const auto given = call.in_dim(1);
    if (!given || !given->is_constant()) return;
    offset = given->value;
  }
  if (data.value == nullptr || !data.ranked || data.rank() < 2 || !all_constant(data.shape) || !call.wants_value(data.shape)) return;
  const bool upper = call.attr_int("upper", 1) != 0;
  const std::int64_t rows = data.shape[data.rank() - 2].value, columns = data.shape[data.rank() - 1].value;
  std::vector<Element> elements = *data.value;
  for (std::size_t i = 0; i < elements.size(); ++i) {
    const auto place = static_cast<std::int64_t>(i) % (rows * columns);
    const std::int64_t above = place % columns - place / columns;  // column - row
    if (upper ? above < offset : above > offset) elements[i] = Dim(0);
  }
  call.set_value(0, std::move(elements));
}

void non_max_suppression(Call& call) {
  Dim most = 1;
  if (call.ranked(0) && call.ranked(1) && call.in(0).rank() == 3 && call.in(1).rank() == 3) {
    Dim each = call.in(0).shape[1];
    if (const auto limit = call.in_dim(2); limit && limit->is_constant()) each = call.dims.min(each, *limit);
    most = call.dims.mul(call.dims.mul(call.in(1).shape[0], call.in(1).shape[1]), each);
  }
  call.set(0, Elem::int64, {call.data_size(0, "count", most, 0), 3});
}

void window_of_size(Call& call) {
  const Elem elem = elem_of(call.attr_int("output_datatype", 1));
  const auto size = call.in_dim(0);
  call.set(0, elem, {size ? *size : call.data_size(0, "size", 1, 0)});
}

void mel_weight_matrix(Call& call) {
  const Elem elem = elem_of(call.attr_int("output_datatype", 1));
  const auto bins = call.in_dim(0), length = call.in_dim(1);
  call.set(0, elem, {length ? call.dims.add(call.dims.floordiv(*length, 2), 1) : call.data_size(0, "spectrogram_bins", 1, 0), bins ? *bins : call.data_size(0, "mel_bins", 1, 1)});
}

void string_normalizer(Call& call) {
  call.set_type(0, Elem::string);
  if (!call.ranked(0) || call.in(0).rank() == 0) return;
  std::vector<Dim> shape = call.in(0).shape;
  if (call.has_attr("stopwords")) shape.back() = call.data_size(0, "words", shape.back(), shape.size() - 1);
  call.set(0, Elem::string, std::move(shape));
}

void tf_idf(Call& call) {
  call.set_type(0, Elem::float32);
  if (!call.ranked(0)) return;
  std::int64_t columns = 0;
  if (const auto indexes = call.attr_ints("ngram_indexes")) {
    for (const std::int64_t index : *indexes) columns = std::max(columns, index < INT64_MAX ? index + 1 : index);
  }
  std::vector<Dim> shape;
  if (call.in(0).rank() == 2) shape.push_back(call.in(0).shape[0]);
  shape.emplace_back(columns);
  call.set(0, Elem::float32, std::move(shape));
}

}  // namespace rooftile::onnx::rules
