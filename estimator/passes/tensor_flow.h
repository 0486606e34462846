// What tensors of a graph are under autocast, and where their gradients meet.
#pragma once

#include <cstdint>
#include <vector>

#include "estimator/graph/graph.h"

namespace rooftile {

struct TensorFlow {
  std::vector<bool> wide;            // by tensor: autocast keeps it in fp32 (norms, sums with such, powers); all false without autocast
  std::vector<bool> channels_first;  // by tensor: it lies in memory as a convolution over positions left it, features before positions; sums keep the order of their first operand
  std::vector<bool> shared;          // by edge: an earlier operator reads the tensor of this input too, so that in the backward pass two gradients are added
  std::vector<bool> part;            // by tensor: one of several that one operator writes side by side (gate and up of one matmul)
};

// Under autocast matmuls and attention give the low precision, norms and the residual stream that they feed fp32, pointwise functions what they are given; a power promotes. A
// residual sum of a norm's output and a matmul's is wide, the sum of two matmuls' outputs is not.
TensorFlow tensor_flow(const Graph& graph, bool autocast);

}  // namespace rooftile
