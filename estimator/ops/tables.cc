// Look-ups in learned tables, mixtures' routing, the optimizer, communication.
#include "estimator/ops/op_work.h"

namespace rooftile {

void embedding_work(const Operator& op, OpWork& work) {
  const auto& a = std::get<EmbeddingAttrs>(op.attrs);
  const EmbeddingShape shape{a.tokens, a.vocab, a.hidden};
  work.forward("", {KernelClass::embedding, op.dtype, Pass::fwd, Impl::torch, shape});
  work.backward("", {KernelClass::embedding, op.dtype, Pass::bwd, Impl::torch, shape});
  work.save_bytes(static_cast<double>(a.tokens) * 8);  // the ids, int64
  if (!a.tied) work.learn(Count{a.vocab} * a.hidden, true);
}

void relative_bias_work(const Operator& op, OpWork& work) {
  const auto& a = std::get<RelativeBiasAttrs>(op.attrs);
  const std::int64_t numel = a.heads * a.seq_q * a.seq_kv;
  work.forward("", pointwise_call(PointwiseKind::gather, numel, op.dtype));
  if (a.buckets > 0) {
    work.backward("", pointwise_call(PointwiseKind::scatter_add, numel, op.dtype));
    if (!a.tied) work.learn(Count{a.buckets} * a.heads);
  }
  work.save_output(op);
}

// Softmax over the experts, the choice of top_k, and the histogram and scan that give every token its row.
void router_work(const Operator& op, OpWork& work) {
  const auto& a = std::get<RouterAttrs>(op.attrs);
  work.forward("softmax", row_call(KernelClass::softmax, a.tokens, a.experts, DType::fp32));
  work.forward("top_k", row_call(KernelClass::row_sum, a.tokens, a.experts, DType::fp32));
  work.forward("permutation", pointwise_call(PointwiseKind::scatter_add, a.tokens * a.top_k, DType::int32));
  work.backward("softmax", row_call(KernelClass::softmax, a.tokens, a.experts, DType::fp32, Pass::bwd));
  work.save_bytes(static_cast<double>(a.tokens) * static_cast<double>(a.experts) * 4);
}

// Dispatch reads each token's row and writes it top_k times; combine reads top_k rows and writes their weighted sum. Each is the other's gradient.
void moe_move_work(const Operator& op, OpWork& work) {
  const auto& a = std::get<MoeMoveAttrs>(op.attrs);
  const KernelCall spread = pointwise_call(PointwiseKind::gather, a.tokens * a.top_k * a.hidden, op.dtype);
  const KernelCall sum = row_call(KernelClass::row_sum, a.tokens * a.hidden, a.top_k, op.dtype);
  work.forward("", a.combine ? sum : spread);
  work.backward("", a.combine ? spread : sum);
  if (a.combine) work.save_input(op);  // the gradient of the routing weights needs the experts' outputs
}

// All parameters of a rank in one multi-tensor kernel. State dtypes are set by the pass that creates it.
void optimizer_work(const Operator& op, OpWork& work) {
  const auto& a = std::get<OptimizerAttrs>(op.attrs);
  OptimizerShape shape{.kind = a.kind, .numel = a.parameters, .state = a.state, .gradient = a.gradient, .main_weights = a.main_weights};
  work.forward("", {KernelClass::optimizer, op.dtype, Pass::fwd, Impl::torch, shape});
}

void collective_work(const Operator& op, OpWork& work) {
  const auto& a = std::get<CollectiveAttrs>(op.attrs);
  work.forward("", {KernelClass::collective, op.dtype, Pass::fwd, Impl::vendor, CollectiveShape{a.kind, a.bytes, a.ranks, a.nodes}});
}

}  // namespace rooftile
