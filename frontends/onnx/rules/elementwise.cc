// Pointwise operators: one output of the operands' broadcast shape.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "frontends/onnx/rules/elements.h"
#include "frontends/onnx/rules/rules.h"

namespace rooftile::onnx::rules {

std::vector<std::int64_t> strides_of(const std::vector<Dim>& shape) {
  std::vector<std::int64_t> strides(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i].value;
  return strides;
}

std::vector<std::int64_t> constants_of(const std::vector<Dim>& shape) {
  std::vector<std::int64_t> out;
  out.reserve(shape.size());
  for (const Dim dim : shape) out.push_back(dim.value);
  return out;
}

bool all_constant(const std::vector<Dim>& shape) {
  return std::all_of(shape.begin(), shape.end(), [](Dim dim) { return dim.is_constant(); });
}

bool next_index(std::vector<std::int64_t>& index, const std::vector<std::int64_t>& shape) {
  for (std::size_t i = shape.size(); i-- > 0;) {
    if (++index[i] < shape[i]) return true;
    index[i] = 0;
  }
  return false;
}

namespace {

Elem first_type(const Call& call) {
  for (std::size_t i = 0; i < call.input_count(); ++i) {
    if (call.has(i) && call.in(i).elem != Elem::undefined) return call.in(i).elem;
  }
  return Elem::undefined;
}

std::vector<std::size_t> present_inputs(const Call& call) {
  std::vector<std::size_t> list;
  for (std::size_t i = 0; i < call.input_count(); ++i) {
    if (call.has(i)) list.push_back(i);
  }
  return list;
}

// Before opset 7, B is laid over A from `axis` on (attributes broadcast, axis).
bool old_broadcast(Call& call) {
  if (!call.has_attr("broadcast")) return false;
  call.same(0, 0);
  return true;
}

bool shape_from(Call& call, std::span<const std::size_t> inputs, Elem elem) {
  call.set_type(0, elem);
  if (old_broadcast(call)) {
    call.set_type(0, elem);
    return false;
  }
  auto shape = call.broadcast(inputs);
  if (!shape) return false;
  call.set(0, elem, std::move(*shape));
  return true;
}

using BinaryElement = Element (*)(DimContext&, const Element&, const Element&, bool);

void fold(Call& call, BinaryElement function, Elem elem) {
  const auto inputs = present_inputs(call);
  if (!shape_from(call, inputs, elem)) return;
  const bool real = is_float(first_type(call));
  evaluate_elementwise(call, 0, inputs, [&](std::span<const Element> list) {
    Element result = list[0];
    for (std::size_t i = 1; i < list.size(); ++i) result = function(call.dims, result, list[i], real);
    return result;
  });
}

Element negated(const Element& a) { return a.known() ? Element(Dim(a.number() == 0 ? 1 : 0)) : Element(); }

template <typename Function>
void unary_value(Call& call, Function function) {
  call.same(0, 0);
  static constexpr std::size_t kFirst[] = {0};
  evaluate_elementwise(call, 0, kFirst, [&](std::span<const Element> list) { return list[0].known() ? function(list[0]) : Element(); });
}

Element rounded(const Element& a, double (*function)(double)) {
  if (!a.is_real()) return a;
  return std::fabs(a.real_value) < 9e15 ? Element(Dim(static_cast<std::int64_t>(function(a.real_value)))) : a;
}

}  // namespace

void same_shape(Call& call) { call.same(0, 0); }
void same_shape_boolean(Call& call) {
  call.same(0, 0);
  call.set_type(0, Elem::boolean);
}
void broadcast_shape(Call& call) { shape_from(call, present_inputs(call), first_type(call)); }
void add(Call& call) { fold(call, add_elements, first_type(call)); }
void sub(Call& call) { fold(call, subtract_elements, first_type(call)); }
void mul(Call& call) { fold(call, multiply_elements, first_type(call)); }
void div(Call& call) { fold(call, divide_elements, first_type(call)); }
void mod(Call& call) { fold(call, modulo_elements, first_type(call)); }
void pow(Call& call) { fold(call, power_elements, call.in(0).elem); }
void min(Call& call) { fold(call, least_element, first_type(call)); }
void max(Call& call) { fold(call, greatest_element, first_type(call)); }

void equal(Call& call) { fold(call, equal_elements, Elem::boolean); }
void less(Call& call) { fold(call, less_elements, Elem::boolean); }
void greater(Call& call) {
  fold(
      call, [](DimContext& dims, const Element& a, const Element& b, bool real) { return less_elements(dims, b, a, real); }, Elem::boolean);
}
void less_or_equal(Call& call) {
  fold(
      call, [](DimContext& dims, const Element& a, const Element& b, bool real) { return negated(less_elements(dims, b, a, real)); }, Elem::boolean);
}
void greater_or_equal(Call& call) {
  fold(
      call, [](DimContext& dims, const Element& a, const Element& b, bool real) { return negated(less_elements(dims, a, b, real)); }, Elem::boolean);
}
void logical_and(Call& call) {
  fold(
      call,
      [](DimContext&, const Element& a, const Element& b, bool) {
        if ((a.is_constant() && a.number() == 0) || (b.is_constant() && b.number() == 0)) return Element(Dim(0));
        return a.is_constant() && b.is_constant() ? Element(Dim(1)) : Element();
      },
      Elem::boolean);
}
void logical_or(Call& call) {
  fold(
      call,
      [](DimContext&, const Element& a, const Element& b, bool) {
        if ((a.is_constant() && a.number() != 0) || (b.is_constant() && b.number() != 0)) return Element(Dim(1));
        return a.is_constant() && b.is_constant() ? Element(Dim(0)) : Element();
      },
      Elem::boolean);
}
void logical_not(Call& call) {
  unary_value(call, [](const Element& a) { return a.is_constant() ? negated(a) : Element(); });
}

void negate(Call& call) {
  unary_value(call, [&](const Element& a) { return subtract_elements(call.dims, Dim(0), a, false); });
}
void absolute(Call& call) {
  unary_value(call, [&](const Element& a) -> Element {
    if (a.is_real()) return Element::real(std::fabs(a.real_value));
    if (a.is_constant()) return a.integer_value < 0 ? subtract_elements(call.dims, Dim(0), a, false) : a;
    const auto low = call.dims.lower_bound(a.dim());
    return low && *low >= 0 ? a : Element();
  });
}
void sign(Call& call) {
  unary_value(call, [](const Element& a) { return a.is_constant() ? Element(Dim(a.number() > 0 ? 1 : a.number() < 0 ? -1 : 0)) : Element(); });
}
void floor(Call& call) {
  unary_value(call, [](const Element& a) { return rounded(a, std::floor); });
}
void ceil(Call& call) {
  unary_value(call, [](const Element& a) { return rounded(a, std::ceil); });
}
void round(Call& call) {
  unary_value(call, [](const Element& a) { return rounded(a, std::nearbyint); });
}
void square_root(Call& call) {
  unary_value(call, [](const Element& a) { return a.is_constant() ? Element::real(std::sqrt(a.number())) : Element(); });
}
void reciprocal(Call& call) {
  unary_value(call, [](const Element& a) { return a.is_constant() && a.number() != 0 ? Element::real(1 / a.number()) : Element(); });
}
void exponential(Call& call) {
  unary_value(call, [](const Element& a) { return a.is_constant() ? Element::real(std::exp(a.number())) : Element(); });
}
void logarithm(Call& call) {
  unary_value(call, [](const Element& a) { return a.is_constant() && a.number() > 0 ? Element::real(std::log(a.number())) : Element(); });
}
void identity(Call& call) {
  call.out(0) = call.in(0);
  call.out(0).view_of = 0;
}

void clip(Call& call) {
  call.same(0, 0);
  static constexpr std::size_t kFirst[] = {0};
  const auto low = call.in_dim(1), high = call.in_dim(2);
  if ((call.has(1) && !low) || (call.has(2) && !high) || call.has_attr("min") || call.has_attr("max")) return;
  evaluate_elementwise(call, 0, kFirst, [&](std::span<const Element> list) {
    Element value = list[0];
    if (low) value = greatest_element(call.dims, value, *low, false);
    if (high) value = least_element(call.dims, value, *high, false);
    return value;
  });
}

void where(Call& call) {
  static constexpr std::size_t kAll[] = {0, 1, 2};
  const Elem elem = call.in(1).elem != Elem::undefined ? call.in(1).elem : call.in(2).elem;
  call.set_type(0, elem);
  auto shape = call.broadcast(kAll);
  if (!shape) return;
  call.set(0, elem, std::move(*shape));
  evaluate_elementwise(call, 0, kAll, [](std::span<const Element> list) -> Element {
    if (list[0].is_constant()) return list[0].number() != 0 ? list[1] : list[2];
    if (list[1].is_integer() && list[2].is_integer() && list[1].dim() == list[2].dim()) return list[1];
    return {};
  });
}

namespace {
void convert(Call& call, Elem to) {
  call.same(0, 0);
  call.set_type(0, to);
  static constexpr std::size_t kFirst[] = {0};
  evaluate_elementwise(call, 0, kFirst, [&](std::span<const Element> list) { return convert_element(call.dims, list[0], to); });
}

// Very old files give the type by name.
Elem elem_by_name(std::string_view name) {
  if (name == "FLOAT") return Elem::float32;
  if (name == "FLOAT16") return Elem::float16;
  if (name == "DOUBLE") return Elem::float64;
  if (name == "INT32") return Elem::int32;
  if (name == "INT64") return Elem::int64;
  if (name == "BOOL") return Elem::boolean;
  return Elem::undefined;
}
}  // namespace

void cast(Call& call) {
  const Attribute* to = call.node.attribute("to");
  convert(call, to != nullptr && to->has_s ? elem_by_name(to->s) : elem_of(call.attr_int("to", 0)));
}
void cast_like(Call& call) { convert(call, call.in(1).elem); }

void dropout(Call& call) {
  call.out(0) = call.in(0);
  call.out(0).view_of = 0;
  if (call.wants(1)) {
    call.same(1, 0);
    call.set_type(1, call.node.opset >= 10 ? Elem::boolean : call.in(0).elem);
  }
}

}  // namespace rooftile::onnx::rules
