// Matmul-like operators: linear, LM head, grouped experts, batched matmul, convolution.
#include <algorithm>
#include <cmath>

#include "estimator/core/checked.h"
#include "estimator/ops/op_work.h"

namespace rooftile {
namespace {

// fp8 matmuls write bf16; everything else writes what it reads.
DType output_dtype(DType dtype) { return bits_of(dtype) == 8 ? DType::bf16 : dtype; }

// Experts that receive at least one of `tokens` tokens when each token picks top_k of `total` uniformly: E (1 - (1 - top_k / total)^tokens). With 128 experts, top 8 and 8
// tokens 51.6 are active; with 1 token exactly top_k.
std::int64_t active_experts(std::int64_t local, std::int64_t total, std::int64_t top_k, std::int64_t tokens) {
  const double idle = std::pow(1.0 - static_cast<double>(top_k) / static_cast<double>(total), static_cast<double>(tokens));
  return std::clamp<std::int64_t>(std::llround(static_cast<double>(local) * (1.0 - idle)), 1, local);
}

void grouped_work(const Operator& op, const LinearAttrs& a, OpWork& work) {
  const std::int64_t pool = a.tokens * a.expert_group;
  const std::int64_t active = active_experts(a.experts, a.experts * a.expert_group, a.top_k, pool);
  const Count rows = Count{a.tokens} * a.top_k;  // on this rank: what the pool sends here equals what this rank sends out when routing is even
  const auto rows_per_expert = static_cast<std::int64_t>((rows + active - 1) / active);
  const Count flops = 2 * rows * a.in * a.out;
  const ModelFlops conventions{flops, flops};
  GemmShape shape{
      .m = rows_per_expert, .n = a.out, .k = a.in, .batch = active, .layout = GemmLayout::nt, .out = output_dtype(op.dtype), .grouped = true, .b_bytes = a.weight_bytes};
  work.forward("", gemm_call(shape, op.dtype), conventions, 1, flops);
  if (a.input_gradient) {
    GemmShape dgrad = shape;
    dgrad.n = a.in;
    dgrad.k = a.out;
    dgrad.layout = GemmLayout::nn;
    work.backward("dgrad", gemm_call(dgrad, op.dtype), conventions, 1, flops);
  }
  GemmShape wgrad = shape;
  wgrad.m = a.out;
  wgrad.n = a.in;
  wgrad.k = rows_per_expert;
  wgrad.layout = GemmLayout::tn;
  wgrad.out = work.context().gradient_out;
  wgrad.accumulate = work.context().accumulate_gradients;
  wgrad.b_bytes = 0;
  work.backward("wgrad", gemm_call(wgrad, op.dtype), conventions, 1, flops);
  if (a.bias) work.backward("bias_grad", row_call(KernelClass::column_sum, static_cast<std::int64_t>(rows), a.out, op.dtype));
  work.save_input(op);
  const std::int64_t total = a.experts * a.expert_group;
  if (a.weight_bytes > 0) work.packed_parameters = Count{a.experts} * a.in * a.out, work.packed_bytes = Count{a.experts} * a.weight_bytes;
  work.learn(Count{a.experts} * a.in * a.out, false, std::min(a.top_k, total), total);
  if (a.bias) work.learn(Count{a.experts} * a.out, false, std::min(a.top_k, total), total);
  work.expert_parameters = true;
}

}  // namespace

// Forward: C[tokens, out] = X W^T (nt). Input gradient: dX[tokens, in] = dY W (nn). Weight gradient: dW[out, in] = dY^T X (tn). Each 2 tokens in out FLOPs: 8192 tokens of
// 4096 -> 14336 are 962.07 GFLOP forward and twice that backward.
void linear_work(const Operator& op, OpWork& work) {
  const auto& a = std::get<LinearAttrs>(op.attrs);
  if (a.experts > 0) return grouped_work(op, a, work);
  if (!a.tied) work.learn(Count{a.in} * a.out);
  if (!a.tied && a.weight_bytes > 0) work.packed_parameters = Count{a.in} * a.out, work.packed_bytes = a.weight_bytes;
  if (a.bias) work.learn(a.out);
  if (a.tokens == 0) return;  // its result was cached (cross attention of a decode): the weights stay, the work is none
  const Count flops = Count{2} * a.tokens * a.in * a.out;
  const ModelFlops conventions{flops, a.router ? 0 : flops};
  const Epilogue epilogue = a.epilogue != Epilogue::none ? a.epilogue : a.bias ? Epilogue::bias : Epilogue::none;
  const GemmLayout forward_layout = a.transposed_weight ? GemmLayout::nn : GemmLayout::nt;
  GemmShape forward{.m = a.tokens, .n = a.out, .k = a.in, .layout = forward_layout, .out = output_dtype(op.dtype), .epilogue = epilogue, .b_bytes = a.weight_bytes};
  work.forward("", gemm_call(forward, op.dtype), conventions);
  if (a.input_gradient) {
    const GemmLayout layout = a.transposed_weight ? GemmLayout::nt : GemmLayout::nn;
    work.backward("dgrad", gemm_call({.m = a.tokens, .n = a.in, .k = a.out, .layout = layout, .out = output_dtype(op.dtype), .b_bytes = a.weight_bytes}, op.dtype), conventions);
  }
  GemmShape wgrad{.m = a.out, .n = a.in, .k = a.tokens, .layout = GemmLayout::tn, .out = work.context().gradient_out, .accumulate = work.context().accumulate_gradients};
  if (a.transposed_weight) std::swap(wgrad.m, wgrad.n);
  work.backward("wgrad", gemm_call(wgrad, op.dtype), conventions);
  if (a.bias) work.backward("bias_grad", row_call(KernelClass::column_sum, a.tokens, a.out, op.dtype));
  work.save_input(op);
}

// Both operands are activations: the backward pass has two products of the same size.
void matmul_work(const Operator& op, OpWork& work) {
  const auto& a = std::get<MatmulAttrs>(op.attrs);
  const Count flops = Count{2} * a.batch * a.m * a.n * a.k;
  const ModelFlops conventions{flops, flops};
  const DType out = output_dtype(op.dtype);
  work.forward("", gemm_call({.m = a.m, .n = a.n, .k = a.k, .batch = a.batch, .layout = a.layout, .out = out}, op.dtype), conventions);
  work.backward("dgrad_a", gemm_call({.m = a.m, .n = a.k, .k = a.n, .batch = a.batch, .layout = GemmLayout::nt, .out = out}, op.dtype), conventions);
  work.backward("dgrad_b", gemm_call({.m = a.k, .n = a.n, .k = a.m, .batch = a.batch, .layout = GemmLayout::tn, .out = out}, op.dtype), conventions);
  work.save_input(op, 0);
  work.save_input(op, 1);
}

// An implicit matmul of batch x out_positions rows: 2 batch out_positions out_channels (in_channels / groups) kernel_elements FLOPs. ViT-B/16 patches, one 224 x 224 image:
// 2 x 196 x 768 x 3 x 256 = 231.2 MFLOP.
void convolution_work(const Operator& op, OpWork& work) {
  const auto& a = std::get<ConvolutionAttrs>(op.attrs);
  const std::int64_t in_per_group = a.in_channels / a.groups, out_per_group = a.out_channels / a.groups;
  const std::int64_t rows = a.batch * a.out_positions, depth = in_per_group * a.kernel_elements;
  const Count flops = Count{2} * rows * a.out_channels * depth;
  const ModelFlops conventions{flops, flops};
  const DType out = output_dtype(op.dtype);
  const Epilogue epilogue = a.bias ? Epilogue::bias : Epilogue::none;
  work.forward("", gemm_call({.m = rows, .n = out_per_group, .k = depth, .batch = a.groups, .out = out, .epilogue = epilogue}, op.dtype), conventions);
  if (a.input_gradient) {
    // Each input position collects from the outputs that saw it, so the arithmetic is the forward's; a strided convolution's dgrad skips the zeros between.
    const std::int64_t in_rows = std::max<std::int64_t>(1, a.batch * a.in_positions);
    const auto inner = static_cast<std::int64_t>(std::max<Count>(1, flops / 2 / a.groups / in_rows / std::max<std::int64_t>(1, in_per_group)));
    work.backward("dgrad", gemm_call({.m = in_rows, .n = in_per_group, .k = inner, .batch = a.groups, .layout = GemmLayout::nn, .out = out}, op.dtype), conventions, 1, flops);
  }
  work.backward("wgrad",
                gemm_call({.m = out_per_group,
                           .n = depth,
                           .k = rows,
                           .batch = a.groups,
                           .layout = GemmLayout::tn,
                           .out = work.context().gradient_out,
                           .accumulate = work.context().accumulate_gradients},
                          op.dtype),
                conventions);
  if (a.bias) work.backward("bias_grad", row_call(KernelClass::column_sum, rows, a.out_channels, op.dtype));
  work.save_input(op);
  work.learn(Count{a.out_channels} * depth);
  if (a.bias) work.learn(a.out_channels);
}

}  // namespace rooftile
