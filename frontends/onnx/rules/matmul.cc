// Matrix products, plain, quantised and by index notation.
#include <algorithm>

#include "frontends/onnx/rules/rules.h"

namespace rooftile::onnx::rules {
namespace {

// NumPy's matmul: batch dimensions broadcast, a 1-D operand is a row (left) or a column (right) whose dimension leaves the result.
void multiply(Call& call, std::size_t left, std::size_t right, Elem elem, bool transpose_a = false, bool transpose_b = false) {
  call.set_type(0, elem);
  if (!call.ranked(left) || !call.ranked(right)) return;
  std::vector<Dim> a = call.in(left).shape, b = call.in(right).shape;
  if (a.empty() || b.empty()) return call.fail("a scalar operand");
  const bool row = a.size() == 1, column = b.size() == 1;
  if (transpose_a && !row) std::swap(a[a.size() - 1], a[a.size() - 2]);
  if (transpose_b && !column) std::swap(b[b.size() - 1], b[b.size() - 2]);
  if (row) a.insert(a.begin(), 1);
  if (column) b.emplace_back(1);
  const Dim inner_a = a[a.size() - 1], inner_b = b[b.size() - 2];
  call.unify(inner_a, inner_b,
             "inner sizes of " + call.input_name(left) + " " + call.shape_text(call.in(left)) + " and " + call.input_name(right) + " " + call.shape_text(call.in(right)));
  if (call.failed()) return;
  auto shape = call.broadcast(std::vector<Dim>(a.begin(), a.end() - 2), std::vector<Dim>(b.begin(), b.end() - 2));
  if (call.failed()) return call.fail("batch sizes of " + call.shape_text(call.in(left)) + " and " + call.shape_text(call.in(right)) + " do not broadcast");
  if (!row) shape->push_back(a[a.size() - 2]);
  if (!column) shape->push_back(b[b.size() - 1]);
  call.set(0, elem, std::move(*shape));
}

// transBatchA moves the first dimension next to last: [M, b..., K] stands for [b..., M, K].
std::vector<Dim> batch_moved(std::vector<Dim> shape) {
  if (shape.size() > 2) std::rotate(shape.begin(), shape.begin() + 1, shape.end() - 1);
  return shape;
}

}  // namespace

void matmul(Call& call) { multiply(call, 0, 1, call.in(0).elem); }
void matmul_integer(Call& call) { multiply(call, 0, 1, Elem::int32); }
void matmul_integer_to_float(Call& call) { multiply(call, 0, 1, call.in(2).elem == Elem::undefined ? Elem::float32 : call.in(2).elem); }
void qlinear_matmul(Call& call) { multiply(call, 0, 3, call.in(7).elem != Elem::undefined ? call.in(7).elem : call.in(0).elem); }

void fused_matmul(Call& call) {
  const bool batch_a = call.attr_int("transBatchA", 0) != 0, batch_b = call.attr_int("transBatchB", 0) != 0;
  if (!batch_a && !batch_b) return multiply(call, 0, 1, call.in(0).elem, call.attr_int("transA", 0) != 0, call.attr_int("transB", 0) != 0);
  call.set_type(0, call.in(0).elem);
  if (!call.ranked(0) || !call.ranked(1) || call.in(0).rank() < 2 || call.in(1).rank() < 2) return;
  std::vector<Dim> a = batch_a ? batch_moved(call.in(0).shape) : call.in(0).shape;
  std::vector<Dim> b = batch_b ? batch_moved(call.in(1).shape) : call.in(1).shape;
  if (call.attr_int("transA", 0) != 0) std::swap(a[a.size() - 1], a[a.size() - 2]);
  if (call.attr_int("transB", 0) != 0) std::swap(b[b.size() - 1], b[b.size() - 2]);
  call.unify(a.back(), b[b.size() - 2], "inner sizes");
  auto shape = call.broadcast(std::vector<Dim>(a.begin(), a.end() - 2), std::vector<Dim>(b.begin(), b.end() - 2));
  shape->push_back(a[a.size() - 2]);
  shape->push_back(b.back());
  call.set(0, call.in(0).elem, std::move(*shape));
}

void gemm(Call& call) {
  const bool transpose_a = call.attr_int("transA", 0) != 0, transpose_b = call.attr_int("transB", 0) != 0;
  call.set_type(0, call.in(0).elem);
  if (!call.ranked(0) || !call.ranked(1)) return;
  if (call.in(0).rank() != 2 || call.in(1).rank() != 2) {  // not in the standard, but written by training exporters: a product over the leading dimensions
    call.warn("gemm_not_2d", "operands " + call.shape_text(call.in(0)) + " and " + call.shape_text(call.in(1)) + " are taken as batched matrices");
    return multiply(call, 0, 1, call.in(0).elem, transpose_a, transpose_b);
  }
  const auto &a = call.in(0).shape, &b = call.in(1).shape;
  call.unify(a[transpose_a ? 0 : 1], b[transpose_b ? 1 : 0], "inner sizes of " + call.shape_text(call.in(0)) + " and " + call.shape_text(call.in(1)));
  call.set(0, call.in(0).elem, {a[transpose_a ? 1 : 0], b[transpose_b ? 0 : 1]});
}

// com.microsoft: the weight is packed, K and N are attributes.
void matmul_nbits(Call& call) {
  const TensorInfo& a = call.in(0);
  call.set_type(0, a.elem);
  if (!a.ranked || a.rank() == 0) return;
  std::vector<Dim> shape = a.shape;
  const std::int64_t k = call.attr_int("K", 0), n = call.attr_int("N", 0);
  if (k <= 0 || n <= 0) return call.fail("K and N are " + std::to_string(k) + " and " + std::to_string(n));
  call.unify(shape.back(), k, "the last size of " + call.input_name(0) + " and K");
  shape.back() = n;
  call.set(0, a.elem, std::move(shape));
}

namespace {
struct Equation {
  std::vector<std::string> operands;
  std::string result;
  bool explicit_result = false;
};

Equation parse_equation(std::string_view text) {
  Equation equation;
  std::string current;
  bool after = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == ' ') continue;
    if (c == '-' && i + 1 < text.size() && text[i + 1] == '>') {
      equation.operands.push_back(current);
      current.clear();
      after = equation.explicit_result = true;
      ++i;
    } else if (c == ',' && !after) {
      equation.operands.push_back(current);
      current.clear();
    } else if (c == '.') {
      if (current.empty() || current.back() != '.') current += '.';
    } else {
      current += c;
    }
  }
  (after ? equation.result : equation.operands.emplace_back()) = current;
  return equation;
}
}  // namespace

void einsum(Call& call) {
  call.set_type(0, call.in(0).elem);
  Equation equation = parse_equation(call.attr_text("equation", ""));
  if (equation.operands.size() != call.input_count())
    return call.fail("the equation has " + std::to_string(equation.operands.size()) + " operands, the node " + std::to_string(call.input_count()));
  std::vector<std::pair<char, Dim>> sizes;
  std::vector<std::pair<char, int>> uses;
  std::vector<Dim> ellipsis;
  for (std::size_t i = 0; i < equation.operands.size(); ++i) {
    if (!call.ranked(i)) return;
    const std::string& letters = equation.operands[i];
    const auto& shape = call.in(i).shape;
    const bool dots = letters.find('.') != std::string::npos;
    const std::size_t named = letters.size() - (dots ? 1 : 0);
    if (named > shape.size() || (!dots && named != shape.size()))
      return call.fail("operand " + std::to_string(i) + " " + call.shape_text(call.in(i)) + " does not fit '" + letters + "'");
    std::size_t at = 0;
    for (const char letter : letters) {
      if (letter == '.') {
        const std::vector<Dim> part(shape.begin() + static_cast<std::ptrdiff_t>(at), shape.begin() + static_cast<std::ptrdiff_t>(at + shape.size() - named));
        ellipsis = *call.broadcast(ellipsis, part);
        at += shape.size() - named;
        continue;
      }
      auto known = std::find_if(sizes.begin(), sizes.end(), [&](const auto& entry) { return entry.first == letter; });
      if (known == sizes.end()) {
        sizes.emplace_back(letter, shape[at]);
        uses.emplace_back(letter, 1);
      } else {
        known->second = call.broadcast_dim(known->second, shape[at]);
        ++uses[static_cast<std::size_t>(known - sizes.begin())].second;
      }
      ++at;
    }
  }
  if (call.failed()) return;
  if (!equation.explicit_result) {  // letters that occur once, in alphabetical order
    std::sort(uses.begin(), uses.end());
    if (!ellipsis.empty()) equation.result = ".";
    for (const auto& [letter, count] : uses) {
      if (count == 1) equation.result += letter;
    }
  }
  std::vector<Dim> shape;
  for (const char letter : equation.result) {
    if (letter == '.') {
      shape.insert(shape.end(), ellipsis.begin(), ellipsis.end());
      continue;
    }
    const auto known = std::find_if(sizes.begin(), sizes.end(), [&](const auto& entry) { return entry.first == letter; });
    if (known == sizes.end()) return call.fail(std::string("the result has an index '") + letter + "' that no operand has");
    shape.push_back(known->second);
  }
  call.set(0, call.in(0).elem, std::move(shape));
}

void quantize_linear(Call& call) {
  call.same(0, 0);
  Elem elem = call.in(2).elem != Elem::undefined ? call.in(2).elem : Elem::uint8;
  if (call.attr_int("output_dtype", 0) != 0) elem = elem_of(call.attr_int("output_dtype", 0));
  call.set_type(0, elem);
}

void dequantize_linear(Call& call) {
  call.same(0, 0);
  Elem elem = call.in(1).elem != Elem::undefined ? call.in(1).elem : Elem::float32;
  if (call.attr_int("output_dtype", 0) != 0) elem = elem_of(call.attr_int("output_dtype", 0));
  call.set_type(0, elem);
}

void dynamic_quantize(Call& call) {
  call.same(0, 0);
  call.set_type(0, Elem::uint8);
  call.set(1, call.in(0).elem, {});
  call.set(2, Elem::uint8, {});
}

// com.microsoft QLinearAdd, QLinearMul: A, scale, zero point, B, scale, zero point, ...
void qlinear_binary(Call& call) {
  static constexpr std::size_t kOperands[] = {0, 3};
  call.set_type(0, call.in(0).elem);
  if (auto shape = call.broadcast(kOperands)) call.set(0, call.in(0).elem, std::move(*shape));
}

void determinant(Call& call) {
  call.set_type(0, call.in(0).elem);
  if (!call.ranked(0) || call.in(0).rank() < 2) return;
  call.set(0, call.in(0).elem, std::vector<Dim>(call.in(0).shape.begin(), call.in(0).shape.end() - 2));
}

}  // namespace rooftile::onnx::rules
