#include <algorithm>

#include "estimator/hardware/device.h"
#include "estimator/ops/op_work.h"
#include "estimator/timing/attention.h"

namespace rooftile {
namespace {

// Query-key pairs of one head times two, in Megatron's convention: causal counts exactly half of the square (or seq_kv - seq_q / 2 keys a query when keys are cached), a
// window counts min(window, causal). Doubled to stay whole.
Count doubled_model_pairs(const AttentionAttrs& a) {
  const Count full = Count{2} * a.seq_q * a.seq_kv;
  Count pairs = full;
  if (a.model_flops_causal && a.causal) pairs = full - Count{a.seq_q} * std::min(a.seq_q, a.seq_kv);
  if (a.model_flops_causal && a.window > 0) pairs = std::min(pairs, Count{2} * a.seq_q * a.window);
  return pairs;
}

void standard_attention(const Operator& op, const AttentionAttrs& a, OpWork& work) {
  const std::int64_t batch = a.batch * a.heads, scores = batch * a.seq_q * a.seq_kv;
  const Count pairs = Count{batch} * a.seq_q * a.seq_kv, model = doubled_model_pairs(a) * batch;
  const ModelFlops qk{2 * pairs * a.head_dim, model * a.head_dim}, pv{2 * pairs * a.v_head_dim, model * a.v_head_dim};
  const DType dtype = op.dtype;
  const auto gemm = [&](std::int64_t m, std::int64_t n, std::int64_t k, GemmLayout layout) {
    return gemm_call({.m = m, .n = n, .k = k, .batch = batch, .layout = layout, .out = dtype}, dtype);
  };
  work.forward("qk", gemm(a.seq_q, a.seq_kv, a.head_dim, GemmLayout::nt), qk);
  if (a.softcap) work.forward("softcap", pointwise_call(PointwiseKind::tanh, scores, dtype));
  if (a.position_bias || a.causal || a.window > 0) work.forward("mask", pointwise_call(PointwiseKind::bias, scores, dtype));
  work.forward("softmax", row_call(KernelClass::softmax, batch * a.seq_q, a.seq_kv, dtype));
  work.forward("pv", gemm(a.seq_q, a.v_head_dim, a.seq_kv, GemmLayout::nn), pv);
  work.backward("pv.dgrad_v", gemm(a.seq_kv, a.v_head_dim, a.seq_q, GemmLayout::tn), pv);
  work.backward("pv.dgrad_p", gemm(a.seq_q, a.seq_kv, a.v_head_dim, GemmLayout::nt), pv);
  work.backward("softmax", row_call(KernelClass::softmax, batch * a.seq_q, a.seq_kv, dtype, Pass::bwd));
  if (a.softcap) work.backward("softcap", pointwise_call(PointwiseKind::tanh_backward, scores, dtype));
  work.backward("qk.dgrad_q", gemm(a.seq_q, a.head_dim, a.seq_kv, GemmLayout::nn), qk);
  work.backward("qk.dgrad_k", gemm(a.seq_kv, a.head_dim, a.seq_q, GemmLayout::tn), qk);
  work.save_bytes(static_cast<double>(scores) * bytes_of(dtype), true);
  if (a.softcap) work.save_bytes(static_cast<double>(scores) * bytes_of(dtype), true);
}

}  // namespace

// Fused: one kernel forward and one backward; what it keeps beside its operands is one fp32 logsumexp per row. Standard: QK^T, mask, softmax, PV as rows of their own, and
// the probabilities are kept. Dense FLOPs 2 B heads Sq Skv (head_dim + v_head_dim) forward, twice that backward (four matmuls); the scores that a fused backward computes
// again are in the kernel's own FLOPs, not in the conventions. One head of 64, Sq = Skv = 1024, causal: dense 268,435,456, model 134,217,728.
void attention_work(const Operator& op, OpWork& work) {
  const auto& a = std::get<AttentionAttrs>(op.attrs);
  for (std::size_t i = 0; i < std::min<std::size_t>(op.inputs, 3); ++i) work.save_input(op, i);
  AttentionKernel kernel = work.context().attention != AttentionKernel::fastest ? work.context().attention : a.kernel;
  AttentionShape shape{.batch = a.batch,
                       .heads = a.heads,
                       .kv_heads = a.kv_heads,
                       .seq_q = a.seq_q,
                       .seq_kv = a.seq_kv,
                       .head_dim = a.head_dim,
                       .v_head_dim = a.v_head_dim,
                       .causal = a.causal,
                       .window = a.window,
                       .kernel = kernel};
  if (kernel == AttentionKernel::fastest && work.context().device != nullptr) kernel = shape.kernel = attention_kernel_of(shape, op.dtype, *work.context().device);
  if (kernel == AttentionKernel::standard) {
    standard_attention(op, a, work);
  } else {
    const Count heads = Count{a.batch} * a.heads, width = a.head_dim + a.v_head_dim;
    const ModelFlops conventions{2 * heads * a.seq_q * a.seq_kv * width, heads * doubled_model_pairs(a) * width};
    work.forward("", {KernelClass::attention, op.dtype, Pass::fwd, Impl::vendor, shape}, conventions);
    work.backward("", {KernelClass::attention, op.dtype, Pass::bwd, Impl::vendor, shape}, {2 * conventions.dense, 2 * conventions.model});
    work.save_output(op);
    work.save_bytes(static_cast<double>(heads) * static_cast<double>(a.seq_q) * bytes_of(DType::fp32));
  }
  if (a.sinks) work.learn(a.heads);
}

}  // namespace rooftile
