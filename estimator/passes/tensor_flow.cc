#include "estimator/passes/tensor_flow.h"

namespace rooftile {
namespace {

bool gives_wide(const Graph& graph, const Operator& op, const std::vector<bool>& wide) {
  switch (op.kind) {
    case OpKind::layernorm:
    case OpKind::rmsnorm:
    case OpKind::embedding:
    case OpKind::position_add:
    case OpKind::rotary:
    case OpKind::cross_entropy:
    case OpKind::relative_bias:
    case OpKind::alibi_bias:
      return true;
    case OpKind::linear:
    case OpKind::lm_head:
    case OpKind::grouped_linear:
    case OpKind::matmul:
    case OpKind::attention:
    case OpKind::patch_embedding:
    case OpKind::convolution:
    case OpKind::moe_move:
      return false;
    case OpKind::activation:
      if (std::get<PointwiseAttrs>(op.attrs).kind == PointwiseKind::gelu_new) return true;
      break;
    default:
      break;
  }
  for (const TensorId input : graph.inputs_of(op)) {
    if (wide[input]) return true;
  }
  return false;
}

// A view of a convolution's output with the positions in front is not copied; functions and sums of one element each write in the order of their first operand, all else in its
// own.
bool gives_channels_first(const Graph& graph, const Operator& op, const std::vector<bool>& channels_first) {
  switch (op.kind) {
    case OpKind::convolution:
      return true;
    case OpKind::activation:
    case OpKind::position_add:
    case OpKind::residual:
    case OpKind::dropout:
      return op.inputs > 0 && channels_first[graph.inputs_of(op)[0]];
    default:
      return false;
  }
}

// Inputs that a gradient flows back into: not ids, not what routes.
bool differentiable(const Graph& graph, const Operator& op, std::size_t input) {
  if (op.kind == OpKind::cache_write || (op.kind == OpKind::moe_move && input > 0)) return false;
  return graph.tensors[graph.inputs_of(op)[input]].role != TensorRole::input;
}

}  // namespace

TensorFlow tensor_flow(const Graph& graph, bool autocast) {
  TensorFlow flow;
  flow.wide.assign(graph.tensors.size(), false);
  flow.channels_first.assign(graph.tensors.size(), false);
  flow.shared.assign(graph.edges.size(), false);
  flow.part.assign(graph.tensors.size(), false);
  std::vector<bool> read(graph.tensors.size(), false);
  for (const Operator& op : graph.ops) {
    for (const TensorId output : graph.outputs_of(op)) flow.part[output] = op.outputs > 1;
    for (std::size_t i = 0; i < op.inputs; ++i) {
      const TensorId tensor = graph.inputs_of(op)[i];
      if (tensor >= read.size() || !differentiable(graph, op, i)) continue;
      flow.shared[op.first_edge + i] = read[tensor];
      read[tensor] = true;
    }
    if (gives_channels_first(graph, op, flow.channels_first)) {
      for (const TensorId output : graph.outputs_of(op)) flow.channels_first[output] = true;
    }
    if (!autocast || !gives_wide(graph, op, flow.wide)) continue;
    for (const TensorId output : graph.outputs_of(op)) flow.wide[output] = true;
  }
  return flow;
}

}  // namespace rooftile
