#include "estimator/ops/op_work.h"

namespace rooftile {

void OpWork::begin(const Graph& graph, const WorkContext& context) {
  graph_ = &graph;
  context_ = context;
  clear();
}

void OpWork::clear() {
  forward_uses.clear();
  backward_uses.clear();
  saved.clear();
  parameters = active_parameters = embedding_parameters = 0;
  expert_parameters = false;
  packed_parameters = packed_bytes = 0;
}

void OpWork::forward(std::string_view part, const KernelCall& call, ModelFlops conventions, std::int64_t calls, Count flops) {
  if (!context_.kernels) return;
  forward_uses.push_back({part, call, calls, flops >= 0 ? flops : rooftile::work_of(call).flops * calls, conventions});
}

void OpWork::backward(std::string_view part, const KernelCall& call, ModelFlops conventions, std::int64_t calls, Count flops) {
  if (!context_.kernels) return;
  backward_uses.push_back({part, call, calls, flops >= 0 ? flops : rooftile::work_of(call).flops * calls, conventions});
}

void OpWork::save_input(const Operator& op, std::size_t index) {
  if (index < op.inputs) saved.push_back({graph_->inputs_of(op)[index], 0, false});
}

void OpWork::save_output(const Operator& op, std::size_t index) {
  if (index < op.outputs) saved.push_back({graph_->outputs_of(op)[index], 0, false});
}

void OpWork::save_bytes(double bytes, bool attention_scores) { saved.push_back({0, bytes, attention_scores}); }

void OpWork::learn(Count count, bool embedding, std::int64_t active, std::int64_t experts) {
  parameters += count;
  active_parameters += count / experts * active;
  if (embedding) embedding_parameters += count;
  if (experts > 1) expert_parameters = true;
}

void work_of(const Operator& op, OpWork& work) {
  work.clear();
  row_of(op.kind).work(op, work);
}

KernelCall pointwise_call(PointwiseKind kind, std::int64_t numel, DType dtype) {
  return {KernelClass::pointwise, dtype, Pass::fwd, Impl::torch, PointwiseShape{kind, numel, dtype}};
}

KernelCall row_call(KernelClass kernel, std::int64_t rows, std::int64_t cols, DType dtype, Pass pass) { return {kernel, dtype, pass, Impl::torch, RowShape{rows, cols}}; }

KernelCall gemm_call(const GemmShape& shape, DType dtype) { return {KernelClass::gemm, dtype, Pass::fwd, Impl::vendor, shape}; }

}  // namespace rooftile
