#include "kernels/attention_cudnn.h"

#ifdef ROOFTILE_HAS_CUDNN

#include <cmath>
#include <limits>

namespace rooftile::kernels {

namespace {

using Graph = CudnnGraph;
using Tensor = CudnnGraph::Tensor;
using Sizes = CudnnGraph::Sizes;

cudnnDataType_t type_of(Type type) { return type == Type::fp16 ? CUDNN_DATA_HALF : CUDNN_DATA_BFLOAT16; }

// [batch, heads, seq, width] seen in memory that is [batch, seq, heads, width]
Sizes strides_of(std::int64_t heads, std::int64_t seq, std::int64_t width) { return {seq * heads * width, width, heads * width, 1}; }
// The same with the last two dimensions exchanged
Sizes transposed(const Sizes& sizes) { return {sizes[0], sizes[1], sizes[3], sizes[2]}; }

// Scores outside of the mask become the lowest number, so that their exponential is zero. A query sees keys up to its own place, counted from the bottom right corner, and with
// a window only the last `window` of them.
Tensor mask(Graph& graph, const Attention& p, Tensor scores) {
  if (!p.causal && p.window == 0) return scores;
  const Sizes dims = scores.dims;
  const auto select = [&](const Tensor& keep) {
    const Tensor lowest = graph.number(std::numeric_limits<float>::lowest()), masked = graph.inner(dims);
    graph.pointwise(CUDNN_POINTWISE_BINARY_SELECT, scores, &lowest, &keep, masked);
    scores = masked;
  };
  const auto row = [&] {
    const Tensor index = graph.inner(dims, CUDNN_DATA_INT32);
    graph.pointwise(CUDNN_POINTWISE_GEN_INDEX, scores, nullptr, nullptr, index, CUDNN_DATA_INT32, 2);
    if (p.seq_kv == p.seq_q) return index;
    const Tensor shift = graph.number(static_cast<std::int32_t>(p.seq_kv - p.seq_q)), moved = graph.inner(dims, CUDNN_DATA_INT32);
    graph.pointwise(CUDNN_POINTWISE_ADD, index, &shift, nullptr, moved, CUDNN_DATA_INT32);
    return moved;
  };
  const auto column = [&] {
    const Tensor index = graph.inner(dims, CUDNN_DATA_INT32);
    graph.pointwise(CUDNN_POINTWISE_GEN_INDEX, scores, nullptr, nullptr, index, CUDNN_DATA_INT32, 3);
    return index;
  };
  if (p.causal) {
    const Tensor r = row(), c = column(), keep = graph.inner(dims, CUDNN_DATA_BOOLEAN);
    graph.pointwise(CUDNN_POINTWISE_CMP_GE, r, &c, nullptr, keep, CUDNN_DATA_BOOLEAN);
    select(keep);
  }
  if (p.window > 0) {
    const Tensor r = row(), c = column(), reach = graph.number(static_cast<std::int32_t>(p.window)), far = graph.inner(dims, CUDNN_DATA_INT32);
    graph.pointwise(CUDNN_POINTWISE_ADD, c, &reach, nullptr, far, CUDNN_DATA_INT32);
    const Tensor keep = graph.inner(dims, CUDNN_DATA_BOOLEAN);
    graph.pointwise(CUDNN_POINTWISE_CMP_GT, far, &r, nullptr, keep, CUDNN_DATA_BOOLEAN);
    select(keep);
  }
  return scores;
}

float scale_of(const Attention& p) { return 1.0f / std::sqrt(static_cast<float>(p.head_dim)); }

}  // namespace

// S = scale Q K^T, masked; P = exp(S - max) / sum; O = P V; statistics = max + log(sum)
AttentionTensors build_attention_forward(CudnnGraph& graph, const Attention& p, bool statistics) {
  const cudnnDataType_t type = type_of(p.type);
  const Sizes q_dims{p.batch, p.heads, p.seq_q, p.head_dim}, k_dims{p.batch, p.kv_heads, p.seq_kv, p.head_dim}, v_dims{p.batch, p.kv_heads, p.seq_kv, p.v_head_dim};
  const Sizes o_dims{p.batch, p.heads, p.seq_q, p.v_head_dim}, s_dims{p.batch, p.heads, p.seq_q, p.seq_kv}, row_dims{p.batch, p.heads, p.seq_q, 1};
  const Tensor q = graph.memory(q_dims, strides_of(p.heads, p.seq_q, p.head_dim), type);
  const Tensor k = graph.memory(transposed(k_dims), transposed(strides_of(p.kv_heads, p.seq_kv, p.head_dim)), type);
  const Tensor v = graph.memory(v_dims, strides_of(p.kv_heads, p.seq_kv, p.v_head_dim), type);
  const Tensor o = graph.memory(o_dims, strides_of(p.heads, p.seq_q, p.v_head_dim), type);

  const Tensor product = graph.inner(s_dims), scale = graph.number(scale_of(p)), scaled = graph.inner(s_dims);
  graph.product(q, k, product);
  graph.pointwise(CUDNN_POINTWISE_MUL, product, &scale, nullptr, scaled);
  const Tensor scores = mask(graph, p, scaled);
  const Tensor top = graph.inner(row_dims), shifted = graph.inner(s_dims), exponential = graph.inner(s_dims), sum = graph.inner(row_dims);
  graph.reduce(CUDNN_REDUCE_TENSOR_MAX, scores, top);
  graph.pointwise(CUDNN_POINTWISE_SUB, scores, &top, nullptr, shifted);
  graph.pointwise(CUDNN_POINTWISE_EXP, shifted, nullptr, nullptr, exponential);
  graph.reduce(CUDNN_REDUCE_TENSOR_ADD, exponential, sum);
  AttentionTensors tensors;
  {
    const Tensor logarithm = graph.inner(row_dims);
    const Tensor stats = statistics ? graph.memory(row_dims, {}, CUDNN_DATA_FLOAT) : graph.inner(row_dims);
    graph.pointwise(CUDNN_POINTWISE_LOG, sum, nullptr, nullptr, logarithm);
    graph.pointwise(CUDNN_POINTWISE_ADD, top, &logarithm, nullptr, stats);
    if (statistics) tensors.statistics = stats.uid;
  }
  const Tensor probabilities = graph.inner(s_dims, type);
  graph.pointwise(CUDNN_POINTWISE_DIV, exponential, &sum, nullptr, probabilities);
  graph.product(probabilities, v, o);
  tensors.q = q.uid;
  tensors.k = k.uid;
  tensors.v = v.uid;
  tensors.o = o.uid;
  return tensors;
}

// P = exp(scale Q K^T - statistics); dV = P^T dO; dS = scale P (dO V^T - rowsum(dO O)); dK = dS^T Q; dQ = dS K, added up in fp32. With fewer KV heads the gradients of K and V
// are made for each query head and then added up.
AttentionTensors build_attention_backward(CudnnGraph& graph, const Attention& p) {
  const cudnnDataType_t type = type_of(p.type);
  const Sizes q_dims{p.batch, p.heads, p.seq_q, p.head_dim}, k_dims{p.batch, p.kv_heads, p.seq_kv, p.head_dim}, v_dims{p.batch, p.kv_heads, p.seq_kv, p.v_head_dim};
  const Sizes o_dims{p.batch, p.heads, p.seq_q, p.v_head_dim}, s_dims{p.batch, p.heads, p.seq_q, p.seq_kv}, row_dims{p.batch, p.heads, p.seq_q, 1};
  const Sizes k_strides = strides_of(p.kv_heads, p.seq_kv, p.head_dim), v_strides = strides_of(p.kv_heads, p.seq_kv, p.v_head_dim);
  const Tensor q = graph.memory(q_dims, strides_of(p.heads, p.seq_q, p.head_dim), type);
  const Tensor k = graph.memory(transposed(k_dims), transposed(k_strides), type);
  const Tensor v = graph.memory(transposed(v_dims), transposed(v_strides), type);
  const Tensor o = graph.memory(o_dims, strides_of(p.heads, p.seq_q, p.v_head_dim), type);
  const Tensor dout = graph.memory(o_dims, strides_of(p.heads, p.seq_q, p.v_head_dim), type);
  const Tensor stats = graph.memory(row_dims, {}, CUDNN_DATA_FLOAT);
  const Tensor dq = graph.memory(q_dims, strides_of(p.heads, p.seq_q, p.head_dim), type);
  const Tensor dk = graph.memory(k_dims, k_strides, type);
  const Tensor dv = graph.memory(v_dims, v_strides, type);
  AttentionTensors tensors;

  const Tensor weighted = graph.inner(o_dims, CUDNN_DATA_FLOAT, {p.heads * p.seq_q * p.v_head_dim, p.seq_q * p.v_head_dim, p.v_head_dim, 1});
  const Tensor summed = graph.inner(row_dims), one = graph.number(1.0f), row_sums = graph.memory(row_dims, {}, CUDNN_DATA_FLOAT);
  graph.pointwise(CUDNN_POINTWISE_MUL, dout, &o, nullptr, weighted);
  graph.reduce(CUDNN_REDUCE_TENSOR_ADD, weighted, summed);
  graph.pointwise(CUDNN_POINTWISE_MUL, summed, &one, nullptr, row_sums);

  const Tensor product = graph.inner(s_dims), scale = graph.number(scale_of(p)), scaled = graph.inner(s_dims), shifted = graph.inner(s_dims), probabilities = graph.inner(s_dims);
  graph.product(q, k, product);
  graph.pointwise(CUDNN_POINTWISE_MUL, product, &scale, nullptr, scaled);
  graph.pointwise(CUDNN_POINTWISE_SUB, scaled, &stats, nullptr, shifted);
  const Tensor masked = mask(graph, p, shifted);
  graph.pointwise(CUDNN_POINTWISE_EXP, masked, nullptr, nullptr, probabilities);

  const Sizes turned{p.batch, p.heads, p.seq_kv, p.seq_q}, turned_strides{p.heads * p.seq_q * p.seq_kv, p.seq_q * p.seq_kv, 1, p.seq_kv};
  const bool grouped = p.heads != p.kv_heads;
  const auto key_side = [&](const Tensor& turned_scores, const Tensor& right, const Tensor& result, std::int64_t width) {
    if (!grouped) return graph.product(turned_scores, right, result);
    const Tensor heads = graph.inner({p.batch, p.heads, p.seq_kv, width}, type);
    graph.product(turned_scores, right, heads);
    graph.reduce(CUDNN_REDUCE_TENSOR_ADD, heads, result);
  };
  const Tensor turned_p = graph.inner(turned, type, turned_strides);
  graph.reshape(probabilities, turned_p);
  key_side(turned_p, dout, dv, p.v_head_dim);

  const Tensor dp = graph.inner(s_dims), centred = graph.inner(s_dims), ds = graph.inner(s_dims), scaled_ds = graph.inner(s_dims);
  graph.product(dout, v, dp);
  graph.pointwise(CUDNN_POINTWISE_SUB, dp, &row_sums, nullptr, centred);
  graph.pointwise(CUDNN_POINTWISE_MUL, centred, &probabilities, nullptr, ds);
  graph.pointwise(CUDNN_POINTWISE_MUL, ds, &scale, nullptr, scaled_ds);
  const Tensor turned_ds = graph.inner(turned, type, turned_strides);
  graph.reshape(scaled_ds, turned_ds);
  key_side(turned_ds, q, dk, p.head_dim);

  const Tensor plain_k = graph.inner(k_dims, type, k_strides), dq_sums = graph.memory(q_dims, {}, CUDNN_DATA_FLOAT);
  graph.reshape(k, plain_k);
  graph.product(scaled_ds, plain_k, dq_sums);
  graph.pointwise(CUDNN_POINTWISE_IDENTITY, dq_sums, nullptr, nullptr, dq);

  tensors.q = q.uid;
  tensors.k = k.uid;
  tensors.v = v.uid;
  tensors.o = o.uid;
  tensors.statistics = stats.uid;
  tensors.dout = dout.uid;
  tensors.dq = dq.uid;
  tensors.dk = dk.uid;
  tensors.dv = dv.uid;
  tensors.row_sums = row_sums.uid;
  tensors.dq_sums = dq_sums.uid;
  return tensors;
}

}  // namespace rooftile::kernels

#endif
