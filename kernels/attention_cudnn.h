// Attention as a graph of cuDNN operations.
#pragma once

#include <cstdint>

#include "kernels/cudnn_graph.h"

#ifdef ROOFTILE_HAS_CUDNN

namespace rooftile::kernels {

// The tensors of an attention in memory, by the graph's numbers; what a pass does not have is 0.
struct AttentionTensors {
  std::int64_t q = 0, k = 0, v = 0, o = 0, statistics = 0;             // statistics: log-sum-exp of each query, [batch, heads, seq_q] in fp32
  std::int64_t dout = 0, dq = 0, dk = 0, dv = 0;                       // backward
  std::int64_t row_sums = 0, dq_sums = 0, dk_heads = 0, dv_heads = 0;  // backward scratch in memory: rowsum(dO O), dQ in fp32, dK and dV of each query head
};

// Q, K, V, O and their gradients stored [batch, seq, heads, head_dim]. `statistics`: the forward pass also writes them, as training needs.
AttentionTensors build_attention_forward(CudnnGraph& graph, const Attention& problem, bool statistics);
AttentionTensors build_attention_backward(CudnnGraph& graph, const Attention& problem);

}  // namespace rooftile::kernels

#endif
