#include "frontends/onnx/rules/elements.h"

#include <cmath>

namespace rooftile::onnx::rules {
namespace {

// An integer operation whose overflow only makes the element unknown: hash functions and sentinels (INT64_MAX + 1) wrap in real graphs.
template <typename Operation>
Element guarded(DimContext& dims, Operation operation) {
  const bool before = dims.overflow();
  const Dim result = operation();
  if (dims.overflow() && !before) {
    dims.clear_overflow();
    return {};
  }
  return result;
}

bool integers(const Element& a, const Element& b) { return a.is_integer() && b.is_integer(); }
bool constants(const Element& a, const Element& b) { return a.is_constant() && b.is_constant(); }

// A real number that is whole stands as an integer beside symbols: s * 2.0.
Element whole(const Element& a) {
  if (!a.is_real() || a.real_value != std::floor(a.real_value) || std::fabs(a.real_value) > 9e15) return a;
  return Dim(static_cast<std::int64_t>(a.real_value));
}

template <typename Symbolic, typename Numeric>
Element apply(DimContext& dims, const Element& a, const Element& b, Symbolic symbolic, Numeric numeric) {
  if (integers(a, b)) return guarded(dims, [&] { return symbolic(a.dim(), b.dim()); });
  if (constants(a, b)) return Element::real(numeric(a.number(), b.number()));
  if (!a.known() || !b.known()) return {};
  const Element left = whole(a), right = whole(b);
  if (integers(left, right)) return guarded(dims, [&] { return symbolic(left.dim(), right.dim()); });
  return {};
}

}  // namespace

Element add_elements(DimContext& dims, const Element& a, const Element& b, bool) {
  return apply(
      dims, a, b, [&](Dim x, Dim y) { return dims.add(x, y); }, [](double x, double y) { return x + y; });
}

Element subtract_elements(DimContext& dims, const Element& a, const Element& b, bool) {
  return apply(
      dims, a, b, [&](Dim x, Dim y) { return dims.sub(x, y); }, [](double x, double y) { return x - y; });
}

Element multiply_elements(DimContext& dims, const Element& a, const Element& b, bool) {
  if ((a.is_integer() && a.dim() == Dim(0)) || (b.is_integer() && b.dim() == Dim(0))) return Dim(0);
  return apply(
      dims, a, b, [&](Dim x, Dim y) { return dims.mul(x, y); }, [](double x, double y) { return x * y; });
}

Element divide_elements(DimContext& dims, const Element& a, const Element& b, bool real) {
  if (real) {
    if (constants(a, b)) return b.number() == 0 ? Element() : Element::real(a.number() / b.number());
    const Element left = whole(a), right = whole(b);
    if (!integers(left, right)) return {};
    const auto exact = dims.divide_exactly(left.dim(), right.dim());
    return exact ? Element(*exact) : Element();
  }
  if (!integers(a, b)) return {};
  if (a.is_constant() && b.is_constant()) {
    if (b.integer_value == 0 || (b.integer_value == -1 && a.integer_value == INT64_MIN)) return {};
    return Dim(a.integer_value / b.integer_value);
  }
  const auto low_a = dims.lower_bound(a.dim()), low_b = dims.lower_bound(b.dim());
  if (low_a && *low_a >= 0 && low_b && *low_b > 0) return guarded(dims, [&] { return dims.floordiv(a.dim(), b.dim()); });
  return {};
}

Element modulo_elements(DimContext& dims, const Element& a, const Element& b, bool real) {
  if (real && constants(a, b)) return b.number() == 0 ? Element() : Element::real(std::fmod(a.number(), b.number()));
  if (!integers(a, b) || b.dim() == Dim(0)) return {};
  return guarded(dims, [&] { return dims.mod(a.dim(), b.dim()); });
}

Element power_elements(DimContext& dims, const Element& a, const Element& b, bool) {
  const Element exponent = whole(b);
  if (a.is_integer() && exponent.is_integer() && exponent.is_constant() && exponent.integer_value >= 0 && exponent.integer_value <= 8) {
    return guarded(dims, [&] {
      Dim product = 1;
      for (std::int64_t i = 0; i < exponent.integer_value; ++i) product = dims.mul(product, a.dim());
      return product;
    });
  }
  return constants(a, b) ? Element::real(std::pow(a.number(), b.number())) : Element();
}

Element least_element(DimContext& dims, const Element& a, const Element& b, bool) {
  return apply(
      dims, a, b, [&](Dim x, Dim y) { return dims.min(x, y); }, [](double x, double y) { return std::fmin(x, y); });
}

Element greatest_element(DimContext& dims, const Element& a, const Element& b, bool) {
  return apply(
      dims, a, b, [&](Dim x, Dim y) { return dims.max(x, y); }, [](double x, double y) { return std::fmax(x, y); });
}

Element equal_elements(DimContext& dims, const Element& a, const Element& b, bool) {
  if (constants(a, b) && !integers(a, b)) return Dim(a.number() == b.number() ? 1 : 0);
  const Element left = whole(a), right = whole(b);
  if (!integers(left, right)) return {};
  const auto answer = dims.equal(left.dim(), right.dim());
  return answer ? Element(Dim(*answer ? 1 : 0)) : Element();
}

Element less_elements(DimContext& dims, const Element& a, const Element& b, bool) {
  if (constants(a, b) && !integers(a, b)) return Dim(a.number() < b.number() ? 1 : 0);
  const Element left = whole(a), right = whole(b);
  if (!integers(left, right)) return {};
  const auto answer = dims.less(left.dim(), right.dim());
  return answer ? Element(Dim(*answer ? 1 : 0)) : Element();
}

Element convert_element(DimContext& dims, const Element& a, Elem to) {
  if (!a.known()) return a;
  if (to == Elem::boolean) {
    if (a.is_real()) return Dim(a.real_value != 0 ? 1 : 0);
    const auto zero = dims.equal(a.dim(), 0);
    return zero ? Element(Dim(*zero ? 0 : 1)) : Element();
  }
  if (is_float(to)) return a;
  if (!is_integer(to)) return {};
  if (!a.is_real()) return a;
  if (!(std::fabs(a.real_value) < 9.2e18)) return {};
  return Dim(static_cast<std::int64_t>(a.real_value));
}

}  // namespace rooftile::onnx::rules
