// What is known of a tensor before it exists: type, shape, and, for the small integer tensors that shapes are computed with, its elements.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "frontends/onnx/dims/dim.h"
#include "frontends/onnx/proto.h"

namespace rooftile::onnx {

// One element: an integer (perhaps symbolic; also one that stands in a float tensor, since exporters compute sizes in floats), a real number, or unknown.
struct Element {
  enum class Kind : std::uint8_t { unknown, integer, real };
  union {
    std::int64_t integer_value;
    double real_value;
  };
  std::uint32_t expression = 0;
  Kind kind = Kind::unknown;

  Element() : integer_value(0) {}
  Element(Dim dim) : integer_value(dim.value), expression(dim.expression), kind(Kind::integer) {}  // NOLINT: an element is written as a size
  Element(std::int64_t constant) : Element(Dim(constant)) {}                                       // NOLINT
  static Element real(double value) {
    Element element;
    element.real_value = value;
    element.kind = Kind::real;
    return element;
  }
  bool known() const { return kind != Kind::unknown; }
  bool is_integer() const { return kind == Kind::integer; }
  bool is_real() const { return kind == Kind::real; }
  Dim dim() const {
    Dim dim(integer_value);
    dim.expression = expression;
    return dim;
  }
  bool is_constant() const { return kind == Kind::real || (kind == Kind::integer && expression == 0); }
  // Of a constant element.
  double number() const { return kind == Kind::real ? real_value : static_cast<double>(integer_value); }
};

inline constexpr std::size_t kMaxElements = 1u << 16;  // a larger tensor's elements are not followed (position tables and masks fit)

using Value = std::shared_ptr<const std::vector<Element>>;

struct TensorInfo {
  Elem elem = Elem::undefined;
  TypeKind kind = TypeKind::tensor;
  bool ranked = false;            // shape is known as far as its rank
  bool constant = false;          // does not depend on the graph's inputs: weights and what is computed from them alone
  bool bookkeeping = false;       // computed from shapes alone: sizes, positions, masks of known content
  std::int64_t packed_bytes = 0;  // of weights that are unpacked from fewer bits: what is stored, scales and zero points included
  bool transposed = false;        // of what is stored: its last two dimensions lie the other way round in the file
  std::int32_t stored = -1;       // the stored tensor that this is (a view, a transposition or a conversion of), -1: none
  std::uint32_t view_of = 0;      // the tensor whose memory this shares; itself where it has its own
  std::vector<Dim> shape;
  Value value;
  std::shared_ptr<const std::vector<TensorInfo>> items;  // of a sequence whose length is known

  std::size_t rank() const { return shape.size(); }
};

}  // namespace rooftile::onnx
