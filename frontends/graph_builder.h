// Builds a Graph operator by operator: tensors with checked sizes, edges, segments. The first size that does not fit is kept as the error and the rest is built harmlessly,
// so that the code of a layer reads as a list of operators.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>

#include "estimator/graph/graph.h"

namespace rooftile {

// A linear layer to add; see LinearAttrs.
struct LinearLayer {
  std::string_view name;
  std::int64_t tokens = 0, in = 0, out = 0;
  Split split = Split::none;
  bool bias = false;
};

class GraphBuilder {
 public:
  // `gemm` is what matmuls compute in, `other` what everything else does and what activations are stored in (they differ for fp8).
  GraphBuilder(Graph& graph, DType gemm, DType other) : graph_(graph), gemm_(gemm), other_(other) {}

  void begin(std::string_view name, SegmentRole role, std::int64_t repeat, TensorId input);
  std::uint32_t end(TensorId output);  // index of the segment

  TensorId tensor(std::string_view op, std::initializer_list<std::int64_t> sizes, Split split = Split::sequence, TensorRole role = TensorRole::activation);
  void op(OpKind kind, std::string_view name, const OpAttrs& attrs, std::initializer_list<TensorId> inputs, std::initializer_list<TensorId> outputs);

  // Operators with one output, which they return. The output of a column-parallel linear is divided by column, of a row-parallel one by sequence.
  TensorId linear(const LinearLayer& layer, TensorId x);
  void linear(const LinearLayer& layer, TensorId x, std::initializer_list<TensorId> outputs);
  TensorId norm(OpKind kind, std::string_view name, TensorId x, std::int64_t rows, std::int64_t cols, bool bias, Split split = Split::sequence, std::int64_t weight_cols = 0);
  TensorId pointwise(OpKind kind, std::string_view name, PointwiseKind function, std::initializer_list<TensorId> inputs, std::initializer_list<std::int64_t> sizes,
                     Split split = Split::sequence, std::int64_t parameters = 0);

  // Product of sizes that is checked on behalf of an operator; 0 after an overflow.
  std::int64_t product(std::string_view op, std::initializer_list<std::int64_t> sizes);
  std::int64_t sum(std::string_view op, std::int64_t a, std::int64_t b);
  void fail_at(std::string_view op, std::string message);

  const std::optional<Error>& error() const { return error_; }
  Graph& graph() { return graph_; }

 private:
  void count_weights(std::string_view op, std::int64_t elements);
  void count_work(std::string_view op, double multiply_accumulates);
  Graph& graph_;
  DType gemm_, other_;
  std::optional<Error> error_;
  double parameters_ = 0;
  double work_ = 0;  // multiply-accumulates of all, as a double: far above 1e36 a count would not fit in 128 bits
};

}  // namespace rooftile
