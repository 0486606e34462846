// What a node costs, as operators of the estimator's table.
#pragma once

#include <string_view>
#include <vector>

#include "estimator/graph/graph.h"
#include "frontends/onnx/call.h"
#include "frontends/onnx/propagate.h"

namespace rooftile::onnx {

// Of one row: without explicit tensors it reads the node's activations and writes its outputs.
struct Emission {
  std::string_view part = {};
  std::int64_t repeat = 1;
  std::vector<std::uint32_t> inputs = {}, outputs = {};
  std::uint32_t weight = 0;        // trace tensor of the learned operand
  std::int64_t weight_bytes = 0;  // of a linear: what its packed weights take as stored
};

class CostCall {
 public:
  CostCall(Call& at, Propagation& propagation, std::uint32_t step) : call(at), dims(at.dims), run_(propagation), step_(step) {}

  Call& call;
  DimContext& dims;

  const TensorInfo& in(std::size_t i) const { return call.in(i); }
  const TensorInfo& out(std::size_t i) const;
  std::uint32_t in_id(std::size_t i) const;
  std::uint32_t out_id(std::size_t i) const;
  Dim in_elements(std::size_t i) const { return call.product(in(i).shape); }
  Dim out_elements(std::size_t i) const { return call.product(out(i).shape); }
  bool known_in(std::size_t i) const { return call.ranked(i); }
  bool known_out(std::size_t i) const { return out(i).ranked; }
  bool weight(std::size_t i) const { return call.has(i) && in(i).constant; }

  void emit(OpKind kind, OpAttrs attrs, Dim macs, Emission emission);
  void emit(OpKind kind, OpAttrs attrs, Dim macs = 0) { emit(kind, attrs, macs, Emission()); }

  void pointwise(PointwiseKind kind, Dim elements, OpKind op = OpKind::elementwise, Emission emission = {});
  void linear(Dim tokens, Dim in, Dim out, bool bias, bool transposed, Emission emission);
  void matmul(Dim batch, Dim m, Dim n, Dim k, GemmLayout layout, Emission emission);

  // A tensor between two rows of one node.
  std::uint32_t internal(Dim elements, Elem elem);

  // The shapes are not known: listed as not costed.
  void unresolved();

  static std::int64_t number(Dim dim) { return dim.is_constant() ? dim.value : 0; }

 private:
  Propagation& run_;
  std::uint32_t step_;
};

#define RULE(domain, op, shape, cost) void cost(CostCall& at);
#include "frontends/onnx/rules/rules.def"
#undef RULE

}  // namespace rooftile::onnx
