#include "frontends/trace/operator_call.h"

#include <algorithm>
#include <utility>

#include "frontends/trace/elementwise_call.h"
#include "frontends/trace/tensor_view.h"

namespace rooftile {
namespace {

constexpr std::int64_t kChunk = 65536;  // elements of one block of PyTorch's multi-tensor kernels (torch_kernels.cc)

OperatorCall refused(std::string reason) {
  OperatorCall result;
  result.reason = std::move(reason);
  return result;
}

template <typename Shape>
OperatorCall accepted(KernelClass kernel, DType dtype, Pass pass, Impl impl, Shape shape) {
  OperatorCall result;
  result.call = KernelCall{kernel, dtype, pass, impl, shape};
  return result;
}

OperatorCall rows(KernelClass kernel, DType dtype, Pass pass, std::int64_t rows, std::int64_t cols) { return accepted(kernel, dtype, pass, Impl::torch, RowShape{rows, cols}); }

std::string value_of(const TraceOperator& op, std::size_t index) { return index < op.arguments.size() ? op.arguments[index].value : std::string(); }

bool any_kernel(const LaunchedKernels& kernels, std::string_view part) {
  return std::any_of(kernels.names.begin(), kernels.names.end(), [&](std::string_view name) { return name.find(part) != std::string_view::npos; });
}

// --- matmuls ---------------------------------------------------------------------------------------------------------------------------------------------------------

struct Matrix {
  std::int64_t batch = 1, rows = 0, cols = 0;
  bool transposed = false, known = false;
};

// The last two dimensions, and how they are stored: rows or columns next to each other.
Matrix matrix_of(const TraceOperator& op, std::size_t index) {
  Matrix matrix;
  const auto tensor = tensor_of(op, index);
  if (!tensor || tensor->whole.size() < 2 || tensor->whole.size() > 3) return matrix;
  const std::vector<std::int64_t>& dims = tensor->whole;
  const std::vector<std::int64_t>& strides = op.arguments[index].tensors.front().strides;
  const std::size_t r = dims.size() - 2, c = dims.size() - 1;
  matrix.batch = dims.size() == 3 ? dims[0] : 1;
  matrix.rows = dims[r], matrix.cols = dims[c];
  if (strides.size() != dims.size()) return matrix;
  matrix.known = strides[c] == 1 || strides[r] == 1 || dims[r] == 1 || dims[c] == 1;
  matrix.transposed = strides[c] != 1 && (strides[r] == 1 || dims[c] > 1);
  if (dims[c] == 1 && strides[r] == 1) matrix.transposed = false;
  return matrix;
}

OperatorCall matmul(const TraceOperator& op, const LaunchedKernels& kernels, std::size_t first, bool added) {
  const auto a_view = tensor_of(op, first), b_view = tensor_of(op, first + 1);
  const Matrix a = matrix_of(op, first), b = matrix_of(op, first + 1);
  if (!a_view || !b_view || a.rows == 0 || b.rows == 0) return refused("no sizes");
  if (!a.known || !b.known) return refused("a matmul whose operands are neither rows nor columns");
  if (a.cols != b.rows || a.batch != b.batch) return refused("operands whose sizes do not fit");
  GemmShape shape;
  shape.m = a.rows, shape.n = b.cols, shape.k = a.cols, shape.batch = a.batch;
  shape.layout = a.transposed ? (b.transposed ? GemmLayout::tt : GemmLayout::tn) : (b.transposed ? GemmLayout::nt : GemmLayout::nn);
  DType dtype = a_view->dtype;
  if (dtype == DType::fp32 && any_kernel(kernels, "tf32")) dtype = DType::tf32;
  shape.out = bits_of(dtype) == 8 ? DType::bf16 : a_view->dtype;
  if (added) {
    const auto c = tensor_of(op, 0);
    if (!c) return refused("no sizes");
    if (c->dims.size() <= 1)
      shape.epilogue = Epilogue::bias;
    else
      shape.accumulate = true;
  }
  return accepted(KernelClass::gemm, dtype, Pass::fwd, Impl::vendor, shape);
}

// --- attention -------------------------------------------------------------------------------------------------------------------------------------------------------

struct AttentionArguments {
  std::size_t query;  // of q, k and v, one behind the other
  std::size_t causal;
  std::size_t bias;  // 0: it cannot have one
  bool heads_first;  // [batch, heads, seq, head_dim]; else seq before heads
  AttentionKernel kernel;
  Pass pass;
};

OperatorCall attention(const TraceOperator& op, const AttentionArguments& at) {
  const auto q = tensor_of(op, at.query), k = tensor_of(op, at.query + 1), v = tensor_of(op, at.query + 2);
  if (!q || !k || !v) return refused("no sizes");
  if (q->whole.size() != 4 || k->whole.size() != 4 || v->whole.size() != 4) return refused("sequences of several lengths in one attention");
  if (at.bias > 0 && tensor_of(op, at.bias)) return refused("an attention with a bias");
  const std::size_t heads = at.heads_first ? 1 : 2, seq = at.heads_first ? 2 : 1;
  AttentionShape shape;
  shape.batch = q->whole[0], shape.heads = q->whole[heads], shape.kv_heads = k->whole[heads];
  shape.seq_q = q->whole[seq], shape.seq_kv = k->whole[seq];
  shape.head_dim = q->whole[3], shape.v_head_dim = v->whole[3];
  shape.causal = value_of(op, at.causal) == "True";
  shape.kernel = at.kernel;
  if (shape.kv_heads > shape.heads || shape.heads % shape.kv_heads != 0) return refused("heads that do not share keys evenly");
  if (shape.causal && shape.seq_q != shape.seq_kv) return refused("a causal mask over different lengths, aligned at the top left");
  return accepted(KernelClass::attention, q->dtype, at.pass, Impl::vendor, shape);
}

// --- rows ------------------------------------------------------------------------------------------------------------------------------------------------------------

OperatorCall softmax(std::string_view name, const TraceOperator& op) {
  const bool backward = name.find("backward") != std::string_view::npos, log = name.find("log") != std::string_view::npos;
  const auto x = tensor_of(op, 0);
  const auto dim = whole_of(value_of(op, backward ? 2 : 1));
  if (!x || !dim) return refused("no sizes");
  const auto rank = static_cast<std::int64_t>(x->whole.size());
  if (*dim != rank - 1 && *dim != -1) return refused("a softmax that is not over the last dimension");
  const std::int64_t cols = x->whole.back(), count = x->numel() / cols;
  if (log) return rows(KernelClass::log_softmax, x->dtype, backward ? Pass::bwd : Pass::fwd, count, cols);
  // Scores in 16 bits with probabilities in fp32; backward: the last argument is the number that PyTorch has for the scores' dtype (5 fp16, 15 bf16).
  const std::string last = value_of(op, backward ? 3 : 2);
  if (!backward) return rows(last == "True" ? KernelClass::softmax_fp32 : KernelClass::softmax, x->dtype, Pass::fwd, count, cols);
  if (x->dtype == DType::fp32 && (last == "5" || last == "15")) return rows(KernelClass::softmax_fp32, last == "5" ? DType::fp16 : DType::bf16, Pass::bwd, count, cols);
  return rows(KernelClass::softmax, x->dtype, Pass::bwd, count, cols);
}

// sum and mean over the last or the first dimensions.
OperatorCall reduction(std::string_view name, const TraceOperator& op) {
  const auto x = tensor_of(op, 0);
  const auto reduced = list_of(value_of(op, 1));
  if (!x) return refused("no sizes");
  if (!reduced || reduced->empty()) return refused("a reduction to one number");
  if (!x->floating()) return refused("integers and masks");
  if (!x->contiguous()) return refused("a reduction of a view");
  const auto rank = static_cast<std::int64_t>(x->whole.size());
  std::vector<bool> gone(x->whole.size(), false);
  for (const std::int64_t dim : *reduced) {
    const std::int64_t at = dim < 0 ? dim + rank : dim;
    if (at < 0 || at >= rank) return refused("a reduction over a dimension that is not there");
    gone[static_cast<std::size_t>(at)] = true;
  }
  for (std::size_t i = 0; i < gone.size(); ++i) {
    if (x->whole[i] == 1) gone[i] = i > 0 ? gone[i - 1] : gone[std::min<std::size_t>(1, gone.size() - 1)];
  }
  const auto changes = std::count_if(gone.begin() + 1, gone.end(), [&, i = std::size_t{0}](bool now) mutable { return now != gone[i++]; });
  if (changes == 0 && gone.front()) return refused("a reduction to one number");
  if (changes != 1) return refused("a reduction over dimensions in the middle");
  std::int64_t before = 1, behind = 1;
  for (std::size_t i = 0; i < gone.size(); ++i) (gone[i] == gone.front() ? before : behind) *= x->whole[i];
  if (gone.front()) return name == "sum" ? rows(KernelClass::column_sum, x->dtype, Pass::fwd, before, behind) : refused("a mean over the first dimensions");
  return rows(name == "sum" ? KernelClass::row_sum : KernelClass::row_mean, x->dtype, Pass::fwd, before, behind);
}

OperatorCall norm(std::string_view name, const TraceOperator& op, const LaunchedKernels& kernels) {
  const bool backward = name.find("backward") != std::string_view::npos, rms = name.find("rms") != std::string_view::npos;
  const auto x = tensor_of(op, 0);
  const auto normalised = list_of(value_of(op, backward ? 2 : 1));
  if (!x || !normalised) return refused("no sizes");
  const std::int64_t cols = numel_of(*normalised);
  if (cols <= 0 || x->numel() % cols != 0) return refused("operands whose sizes do not fit");
  const std::int64_t count = x->numel() / cols;
  if (rms) return rows(KernelClass::rmsnorm, x->dtype, backward ? Pass::bwd : Pass::fwd, count, cols);
  if (!backward) return rows(KernelClass::layernorm, x->dtype, Pass::fwd, count, cols);
  const bool weights = any_kernel(kernels, "GammaBeta");
  return rows(weights ? KernelClass::layernorm : KernelClass::layernorm_input, x->dtype, Pass::bwd, count, cols);
}

OperatorCall nll(const TraceOperator& op, bool backward) {
  const auto x = tensor_of(op, backward ? 1 : 0);
  if (!x) return refused("no sizes");
  if (x->whole.size() != 2) return refused("a loss over images");
  OperatorCall result = rows(KernelClass::nll, x->dtype, backward ? Pass::bwd : Pass::fwd, x->whole[0], x->whole[1]);
  if (backward) result.cleared = x->numel();
  return result;
}

OperatorCall embedding_backward(const TraceOperator& op) {
  const auto gradient = tensor_of(op, 0), ids = tensor_of(op, 1);
  const auto vocab = whole_of(value_of(op, 2));
  if (!gradient || !ids || !vocab || *vocab <= 0) return refused("no sizes");
  const std::int64_t hidden = gradient->whole.back();
  const std::int64_t table = numel_of({*vocab, hidden});
  if (table == 0) return refused("sizes that cannot be");
  OperatorCall result = accepted(KernelClass::embedding, gradient->dtype, Pass::bwd, Impl::torch, EmbeddingShape{ids->numel(), *vocab, hidden});
  result.cleared = table;
  return result;
}

// The tensors of an optimizer's lists have no recorded sizes. A launch holds at most 320 blocks of up to 65,536 elements; blocks of small tensors hold less and end sooner, so
// the slower ones among launches of that many blocks are those whose blocks are full.
OperatorCall fused_adam(const LaunchedKernels& kernels) {
  std::int32_t blocks = 0;
  std::string_view name;
  for (std::size_t i = 0; i < kernels.names.size(); ++i) {
    if (kernels.activities[i] == TraceActivity::kernel && kernels.grids[i][0] > blocks) blocks = kernels.grids[i][0], name = kernels.names[i];
  }
  const std::size_t at = name.find("FusedAdamMathFunctor<");
  if (at == std::string_view::npos || blocks < 2) return refused("lists of tensors without sizes");
  const std::string_view type = name.substr(at + 21, 20);
  const DType dtype = type.rfind("c10::BFloat16", 0) == 0 ? DType::bf16 : type.rfind("c10::Half", 0) == 0 ? DType::fp16 : DType::fp32;
  OptimizerShape shape;
  shape.kind = OptimizerKind::adamw;
  shape.numel = blocks * kChunk;
  shape.state = shape.gradient = dtype;
  OperatorCall result = accepted(KernelClass::optimizer, dtype, Pass::fwd, Impl::torch, shape);
  result.full_launch = true;
  return result;
}

}  // namespace

std::optional<DType> dtype_of_trace(std::string_view type) {
  constexpr std::pair<std::string_view, DType> kTypes[] = {
      {"c10::BFloat16", DType::bf16},        {"c10::Half", DType::fp16}, {"float", DType::fp32}, {"double", DType::fp64}, {"c10::Float8_e4m3fn", DType::fp8_e4m3},
      {"c10::Float8_e5m2", DType::fp8_e5m2}, {"long int", DType::int64}, {"long", DType::int64}, {"int", DType::int32},   {"signed char", DType::int8},
      {"unsigned char", DType::int8},        {"bool", DType::boolean}};
  for (const auto& [name, dtype] : kTypes) {
    if (name == type) return dtype;
  }
  return std::nullopt;
}

OperatorCall operator_call(const TraceOperator& op, const LaunchedKernels& kernels) {
  std::string_view name = op.name;
  constexpr std::string_view kAten = "aten::";
  if (name.substr(0, kAten.size()) == kAten) name.remove_prefix(kAten.size());
  if (!name.empty() && name.back() == '_') name.remove_suffix(1);  // in place

  if (name == "mm" || name == "bmm" || name == "_scaled_mm") return matmul(op, kernels, 0, false);
  if (name == "addmm" || name == "baddbmm") return matmul(op, kernels, 1, true);
  if (name == "_cudnn_attention_forward") return attention(op, {0, 10, 3, true, AttentionKernel::cudnn, Pass::fwd});
  if (name == "_cudnn_attention_backward") return attention(op, {1, 14, 8, true, AttentionKernel::cudnn, Pass::bwd});
  if (name == "_flash_attention_forward") return attention(op, {0, 8, 0, false, AttentionKernel::flash2, Pass::fwd});
  if (name == "_flash_attention_backward") return attention(op, {1, 11, 0, false, AttentionKernel::flash2, Pass::bwd});
  if (name == "_softmax" || name == "_softmax_backward_data" || name == "_log_softmax" || name == "_log_softmax_backward_data") return softmax(name, op);
  if (name == "sum" || name == "mean") return reduction(name, op);
  if (name == "native_layer_norm" || name == "native_layer_norm_backward" || name == "_fused_rms_norm" || name == "_fused_rms_norm_backward") return norm(name, op, kernels);
  if (name == "nll_loss_forward" || name == "nll_loss_backward") return nll(op, name == "nll_loss_backward");
  if (name == "embedding_dense_backward") return embedding_backward(op);
  if (name == "_fused_adamw" || name == "_fused_adam") return fused_adam(kernels);
  if (auto moving = moving_call(name, op, kernels)) return *std::move(moving);
  if (auto elementwise = elementwise_call(name, op, kernels)) return *std::move(elementwise);
  return refused("no class of the model");
}

}  // namespace rooftile
