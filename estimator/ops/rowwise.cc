// Row-wise operators: norms, softmax, reductions, the loss.
#include "estimator/ops/op_work.h"

namespace rooftile {
namespace {

void norm_work(const Operator& op, KernelClass kernel, OpWork& work) {
  const auto& a = std::get<NormAttrs>(op.attrs);
  work.forward("", row_call(kernel, a.rows, a.cols, op.dtype));
  work.backward("", row_call(kernel, a.rows, a.cols, op.dtype, Pass::bwd));
  work.save_input(op);
  const double statistics = kernel == KernelClass::layernorm ? 8 : 4;  // fp32 mean and reciprocal deviation of a row; RMSNorm has the latter only
  work.save_bytes(static_cast<double>(a.rows) * statistics);
  const std::int64_t learned = a.weight_cols > 0 ? a.weight_cols : a.cols;
  if (a.weight) work.learn(learned);
  if (a.bias) work.learn(learned);
}

}  // namespace

void layernorm_work(const Operator& op, OpWork& work) { norm_work(op, KernelClass::layernorm, work); }
void rmsnorm_work(const Operator& op, OpWork& work) { norm_work(op, KernelClass::rmsnorm, work); }

void softmax_work(const Operator& op, OpWork& work) {
  const auto& a = std::get<SoftmaxAttrs>(op.attrs);
  work.forward("", row_call(KernelClass::softmax, a.rows, a.cols, op.dtype));
  work.backward("", row_call(KernelClass::softmax, a.rows, a.cols, op.dtype, Pass::bwd));
  work.save_output(op);
}

// The gradient of a sum is its gradient copied along the reduced dimension.
void reduction_work(const Operator& op, OpWork& work) {
  const auto& a = std::get<ReductionAttrs>(op.attrs);
  work.forward("", row_call(a.over_rows ? KernelClass::column_sum : KernelClass::row_sum, a.rows, a.cols, op.dtype));
  work.backward("", pointwise_call(PointwiseKind::fill, a.rows * a.cols, op.dtype));
}

// One pass over the logits forward (log-sum-exp and the label's logit), one backward that writes their gradient in place.
void cross_entropy_work(const Operator& op, OpWork& work) {
  const auto& a = std::get<CrossEntropyAttrs>(op.attrs);
  const CrossEntropyShape shape{a.tokens, a.vocab};
  work.forward("", {KernelClass::cross_entropy, op.dtype, Pass::fwd, Impl::torch, shape});
  work.backward("", {KernelClass::cross_entropy, op.dtype, Pass::bwd, Impl::torch, shape});
  work.save_input(op);
  work.save_bytes(static_cast<double>(a.tokens) * 8);  // maximum and sum of a row in fp32
}

}  // namespace rooftile
