#include "frontends/graph_builder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "estimator/core/checked.h"

namespace rooftile {
namespace {
// 2 x 3 (forward and backward) x work of a micro-batch x micro-batches must stay below 2^127 = 1.7e38 with room for batches of millions.
constexpr double kMaxMultiplyAccumulates = 1e30;
// Elements of one tensor: below 2^63 by enough that its bytes, the sum of a few such tensors and a dimension rounded up to a tile are too.
constexpr std::int64_t kMaxElements = std::int64_t{1} << 60;
constexpr double kMaxParameters = 1e18;
}  // namespace

void GraphBuilder::begin(std::string_view name, SegmentRole role, std::int64_t repeat, TensorId input) {
  Segment segment;
  segment.name = name;
  segment.role = role;
  segment.first_op = static_cast<std::uint32_t>(graph_.ops.size());
  segment.repeat = repeat;
  segment.input = input;
  graph_.segments.push_back(segment);
}

std::uint32_t GraphBuilder::end(TensorId output) {
  Segment& segment = graph_.segments.back();
  segment.op_count = static_cast<std::uint32_t>(graph_.ops.size()) - segment.first_op;
  segment.output = output;
  return static_cast<std::uint32_t>(graph_.segments.size() - 1);
}

void GraphBuilder::fail_at(std::string_view op, std::string message) {
  if (!error_) error_ = Error{ErrorCode::invalid, std::move(message), std::string(op), "use smaller sizes"};
}

std::int64_t GraphBuilder::product(std::string_view op, std::initializer_list<std::int64_t> sizes) {
  const std::optional<std::int64_t> elements = checked_product(sizes);
  if (elements && *elements <= kMaxElements) return *elements;
  fail_at(op, fmt::format("a tensor of {} elements is {}", fmt::join(sizes, " x "), elements ? "above 2^60, the most that is computed" : "above 2^63 - 1"));
  return 0;
}

std::int64_t GraphBuilder::sum(std::string_view op, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  if (!__builtin_add_overflow(a, b, &result) && result <= kMaxElements) return result;
  fail_at(op, fmt::format("a size of {} + {} is above 2^60, the most that is computed", a, b));
  return 0;
}

void GraphBuilder::count_weights(std::string_view op, std::int64_t elements) {
  const double repeat = graph_.segments.empty() ? 1 : static_cast<double>(graph_.segments.back().repeat);
  parameters_ += static_cast<double>(elements) * repeat;
  if (parameters_ > kMaxParameters) fail_at(op, "more parameters than are computed (over 1e18)");
}

void GraphBuilder::count_work(std::string_view op, double multiply_accumulates) {
  const double repeat = graph_.segments.empty() ? 1 : static_cast<double>(graph_.segments.back().repeat);
  work_ += multiply_accumulates * repeat;
  if (work_ > kMaxMultiplyAccumulates) fail_at(op, "more work than can be counted (over 1e30 multiply-accumulates in one micro-batch)");
}

TensorId GraphBuilder::tensor(std::string_view op, std::initializer_list<std::int64_t> sizes, Split split, TensorRole role) {
  Tensor tensor;
  tensor.elements = product(op, sizes);
  tensor.dtype = role == TensorRole::input ? DType::int64 : other_;
  tensor.role = role;
  tensor.split = split;
  graph_.tensors.push_back(tensor);
  return static_cast<TensorId>(graph_.tensors.size() - 1);
}

void GraphBuilder::op(OpKind kind, std::string_view name, const OpAttrs& attrs, std::initializer_list<TensorId> inputs, std::initializer_list<TensorId> outputs) {
  Operator added;
  added.kind = kind;
  added.name = name;
  const auto* linear_attrs = std::get_if<LinearAttrs>(&attrs);
  const bool layer_matmul = linear_attrs && kind != OpKind::lm_head && !linear_attrs->router;  // fp8 recipes keep the head and the router in the higher precision
  added.dtype = layer_matmul || kind == OpKind::matmul ? gemm_ : other_;
  added.attrs = attrs;
  added.first_edge = static_cast<std::uint32_t>(graph_.edges.size());
  added.inputs = static_cast<std::uint16_t>(inputs.size());
  added.outputs = static_cast<std::uint16_t>(outputs.size());
  graph_.edges.insert(graph_.edges.end(), inputs);
  graph_.edges.insert(graph_.edges.end(), outputs);
  if (linear_attrs) {
    const LinearAttrs& a = *linear_attrs;
    const std::int64_t experts = a.experts > 0 ? a.experts : 1;
    count_weights(name, product(name, {experts, a.in, a.out}));
    count_work(name, static_cast<double>(a.tokens) * static_cast<double>(a.experts > 0 ? a.top_k : 1) * static_cast<double>(a.in) * static_cast<double>(a.out));
  } else if (const auto* attention = std::get_if<AttentionAttrs>(&attrs)) {
    const auto& a = *attention;
    const std::int64_t scores = product(name, {a.batch, a.heads, a.seq_q, a.seq_kv});
    product(name, {a.batch, a.kv_heads, a.seq_kv, a.head_dim});  // keys and values, which a cache may hold
    product(name, {a.batch, a.kv_heads, a.seq_kv, a.v_head_dim});
    count_work(name, static_cast<double>(scores) * (static_cast<double>(a.head_dim) + static_cast<double>(a.v_head_dim)));
  }
  if (const auto* embedding = std::get_if<EmbeddingAttrs>(&attrs)) count_weights(name, product(name, {embedding->vocab, embedding->hidden}));
  if (const auto* pointwise = std::get_if<PointwiseAttrs>(&attrs)) count_weights(name, pointwise->parameters);
  if (const auto* cache = std::get_if<CacheWriteAttrs>(&attrs)) product(name, {cache->tokens, cache->elements_per_token});
  graph_.ops.push_back(added);
}

void GraphBuilder::linear(const LinearLayer& layer, TensorId x, std::initializer_list<TensorId> outputs) {
  LinearAttrs attrs;
  attrs.tokens = layer.tokens;
  attrs.in = layer.in;
  attrs.out = layer.out;
  attrs.bias = layer.bias;
  attrs.split = layer.split;
  op(OpKind::linear, layer.name, attrs, {x}, outputs);
}

TensorId GraphBuilder::linear(const LinearLayer& layer, TensorId x) {
  const Split split = layer.split == Split::row ? Split::sequence : layer.split;
  const TensorId y = tensor(layer.name, {layer.tokens, layer.out}, split);
  linear(layer, x, {y});
  return y;
}

TensorId GraphBuilder::norm(OpKind kind, std::string_view name, TensorId x, std::int64_t rows, std::int64_t cols, bool bias, Split split, std::int64_t weight_cols) {
  NormAttrs attrs;
  attrs.rows = rows;
  attrs.cols = cols;
  attrs.bias = bias;
  attrs.weight_cols = weight_cols;
  attrs.split = split;
  const TensorId y = tensor(name, {rows, cols}, split);
  op(kind, name, attrs, {x}, {y});
  return y;
}

TensorId GraphBuilder::pointwise(OpKind kind, std::string_view name, PointwiseKind function, std::initializer_list<TensorId> inputs, std::initializer_list<std::int64_t> sizes,
                                 Split split, std::int64_t parameters) {
  const TensorId y = tensor(name, sizes, split);
  PointwiseAttrs attrs;
  attrs.kind = function;
  attrs.numel = graph_.tensors[y].elements;
  attrs.to = other_;
  attrs.parameters = parameters;
  attrs.split = split;
  op(kind, name, attrs, inputs, {y});
  return y;
}

}  // namespace rooftile
