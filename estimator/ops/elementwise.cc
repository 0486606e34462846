// Pointwise operators and data movement.
#include "estimator/ops/op_work.h"

namespace rooftile {
namespace {

// The kernel of a pointwise operator's gradient, and whether it needs the forward's input (copy means: nothing to do, the gradient passes through).
struct Gradient {
  PointwiseKind kind;
  bool needs_input;
};

Gradient gradient_of(PointwiseKind kind) {
  switch (kind) {
    case PointwiseKind::relu:
      return {PointwiseKind::relu_backward, true};
    case PointwiseKind::gelu:
      return {PointwiseKind::gelu_backward, true};
    case PointwiseKind::gelu_new:
      return {PointwiseKind::gelu_new_backward, true};
    case PointwiseKind::silu:
      return {PointwiseKind::silu_backward, true};
    case PointwiseKind::silu_mul:
      return {PointwiseKind::silu_mul_backward, true};
    case PointwiseKind::gelu_mul:
      return {PointwiseKind::gelu_mul_backward, true};
    case PointwiseKind::tanh:
    case PointwiseKind::sigmoid:
    case PointwiseKind::exp:
    case PointwiseKind::sqrt:
      return {PointwiseKind::tanh_backward, true};
    case PointwiseKind::dropout:
      return {PointwiseKind::dropout_backward, false};
    case PointwiseKind::scale:
    case PointwiseKind::cast:
    case PointwiseKind::permute:
    case PointwiseKind::concat:
      return {kind, false};
    case PointwiseKind::gather:
      return {PointwiseKind::scatter_add, false};
    case PointwiseKind::mul:
    case PointwiseKind::div:
    case PointwiseKind::pow:
    case PointwiseKind::special:
    case PointwiseKind::unary:
    case PointwiseKind::where:
      return {PointwiseKind::mul, true};
    default:
      return {PointwiseKind::copy, false};
  }
}

}  // namespace

// Plain and gated activations keep their input, not their output: the backward computes the function again.
void activation_work(const Operator& op, OpWork& work) {
  const auto& a = std::get<PointwiseAttrs>(op.attrs);
  const Gradient gradient = gradient_of(a.kind);
  work.forward("", pointwise_call(a.kind, a.numel, op.dtype));
  work.backward("", pointwise_call(gradient.kind, a.numel, op.dtype));
  for (std::size_t i = 0; i < op.inputs; ++i) work.save_input(op, i);
}

void pointwise_work(const Operator& op, OpWork& work) {
  const auto& a = std::get<PointwiseAttrs>(op.attrs);
  KernelCall call = pointwise_call(a.kind, a.numel, op.dtype);
  if (a.kind == PointwiseKind::cast) std::get<PointwiseShape>(call.shape).to = a.to;
  work.forward("", call);
  if (a.parameters > 0) {
    work.learn(a.parameters);
    const std::int64_t rows = a.numel / a.parameters;
    if (rows > 1 && a.numel % a.parameters == 0) {
      work.backward("wgrad", row_call(KernelClass::column_sum, rows, a.parameters, op.dtype));
    } else {
      work.backward("wgrad", pointwise_call(PointwiseKind::copy, a.numel, op.dtype));  // nothing to sum: the gradient is copied into the table's
    }
  } else if (op.kind == OpKind::residual) {
    // Where a residual connection leaves the main path two gradients meet and are added.
    work.backward("", pointwise_call(PointwiseKind::add, a.numel, op.dtype));
  } else if (const Gradient gradient = gradient_of(a.kind); gradient.kind != PointwiseKind::copy) {
    work.backward("", pointwise_call(gradient.kind, a.numel, op.dtype));
    if (a.kind == PointwiseKind::mul && op.inputs == 2) work.backward("other", pointwise_call(PointwiseKind::mul, a.numel, op.dtype));
    if (gradient.needs_input) {
      for (std::size_t i = 0; i < op.inputs; ++i) work.save_input(op, i);
    }
  }
  if (a.kind == PointwiseKind::dropout) work.save_bytes(static_cast<double>(a.numel));  // one byte of mask per element
}

// Rotates queries and keys; the gradient is the same kernel with the angle reversed. Nothing is kept: the tables are shared by all layers.
void rotary_work(const Operator& op, OpWork& work) {
  const auto& a = std::get<RotaryAttrs>(op.attrs);
  const KernelCall call = pointwise_call(PointwiseKind::rotary, a.tokens * (a.heads + a.kv_heads) * a.rotary_dim, op.dtype);
  work.forward("", call);
  work.backward("", call);
}

void cache_write_work(const Operator& op, OpWork& work) {
  const auto& a = std::get<CacheWriteAttrs>(op.attrs);
  if (a.tokens == 0) return;
  work.forward("", pointwise_call(PointwiseKind::copy, a.tokens * a.elements_per_token, op.dtype));
}

void free_work(const Operator&, OpWork&) {}

}  // namespace rooftile
