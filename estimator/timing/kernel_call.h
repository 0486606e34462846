// A KernelCall is the currency of the whole system: what the model predicts, what the GPU runs, what stands in a measurement CSV, what `explain` takes apart and what a
// calibration is fitted on is the same value. One parser and one printer (the `shape` column of a measurement CSV), one hash.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "estimator/core/count.h"
#include "estimator/core/dtype.h"
#include "estimator/core/result.h"

namespace rooftile {

enum class Pass : std::uint8_t { fwd, bwd };
enum class Impl : std::uint8_t { vendor, torch, rooftile };  // whose kernel: cuBLAS/cuDNN/NCCL, PyTorch's eager kernels, our own

// C[m,n] = A[m,k] B[k,n], `batch` independent products. First letter A, second B; n: stored row-major as written, t: stored transposed.
// A Linear forward is nt, its input gradient nn, its weight gradient tn.
enum class GemmLayout : std::uint8_t { nt, nn, tn, tt };
enum class Epilogue : std::uint8_t { none, bias, gelu };
struct GemmShape {
  std::int64_t m = 0, n = 0, k = 0, batch = 1;
  GemmLayout layout = GemmLayout::nt;
  DType out = DType::bf16;
  bool accumulate = false;  // C is read, added to and written (a gradient that accumulates)
  Epilogue epilogue = Epilogue::none;
  bool grouped = false;      // `batch` experts in one launch; m is the mean rows of an expert
  std::int64_t b_bytes = 0;  // stored bytes of one B where its weights are packed (4-bit weights with their scales); 0: k x n elements of the dtype
  bool operator==(const GemmShape&) const = default;
};

enum class AttentionKernel : std::uint8_t { fastest, standard, flash2, flash3, cudnn };
struct AttentionShape {
  std::int64_t batch = 0, heads = 0, kv_heads = 0, seq_q = 0, seq_kv = 0, head_dim = 0, v_head_dim = 0;
  bool causal = false;      // aligned at the bottom right when seq_q < seq_kv
  std::int64_t window = 0;  // 0: no window; else a query sees at most this many keys, itself included
  AttentionKernel kernel = AttentionKernel::fastest;
  bool mask = false;  // a mask tensor [batch, 1, seq_q, seq_kv] that every head reads and adds to its scores
  bool operator==(const AttentionShape&) const = default;

  // Query-key pairs of one head that the mask keeps. Causal 4 x 4 gives 10; with window 2 it gives 7; without a mask 16.
  Count kept_pairs() const;
};

// softmax, layernorm, rmsnorm, reductions over rows (bias gradients) or columns, and other kernels that work row by row
struct RowShape {
  std::int64_t rows = 0, cols = 0;
  bool operator==(const RowShape&) const = default;
};

enum class PointwiseKind : std::uint8_t {
#define POINTWISE_KIND(id, reads, writes, flops, special, doc) id,
#include "estimator/timing/pointwise.def"
};
struct PointwiseShape {
  PointwiseKind kind = PointwiseKind::copy;
  std::int64_t numel = 0;  // elements of one output
  DType to = DType::bf16;  // written dtype; differs from the call's dtype for casts only
  bool operator==(const PointwiseShape&) const = default;
};

struct EmbeddingShape {
  std::int64_t tokens = 0, vocab = 0, hidden = 0;
  bool operator==(const EmbeddingShape&) const = default;
};

struct CrossEntropyShape {
  std::int64_t tokens = 0, vocab = 0;
  bool operator==(const CrossEntropyShape&) const = default;
};

enum class OptimizerKind : std::uint8_t { adamw, sgd, adamw_foreach };  // the last: one kernel per arithmetic operation instead of one for all
struct OptimizerShape {
  OptimizerKind kind = OptimizerKind::adamw;
  std::int64_t numel = 0;
  DType state = DType::fp32;     // of the moments
  DType gradient = DType::fp32;  // read
  bool main_weights = false;     // fp32 main weights are read and written beside the weights in the call's dtype
  bool operator==(const OptimizerShape&) const = default;
};

enum class CollectiveKind : std::uint8_t { all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, send_recv };
struct CollectiveShape {
  CollectiveKind kind = CollectiveKind::all_reduce;
  std::int64_t bytes = 0;  // as nccl-tests counts them
  std::int64_t ranks = 1, nodes = 1;
  bool operator==(const CollectiveShape&) const = default;
};

// From log_softmax on: row kernels that frameworks launch beside the fused ones. softmax_fp32: 16-bit scores, probabilities in fp32 (backward: fp32 in, 16 bits out). nll: the
// loss from log-probabilities (backward: the zero-filled gradient with one value a row). layernorm_input: backward without weight gradients. topk: a few largest of each row.
enum class KernelClass : std::uint8_t {
  gemm,
  attention,
  softmax,
  layernorm,
  rmsnorm,
  column_sum,
  row_sum,
  pointwise,
  embedding,
  cross_entropy,
  optimizer,
  collective,
  log_softmax,
  softmax_fp32,
  nll,
  row_mean,
  argmax,
  topk,
  sort,
  layernorm_input
};
inline constexpr std::size_t kKernelClasses = 20;

// What the shape of a class is: the alternatives of KernelCall::shape.
enum class ShapeKind : std::uint8_t { gemm, attention, row, pointwise, embedding, cross_entropy, optimizer, collective };
constexpr ShapeKind shape_of(KernelClass kernel) {
  switch (kernel) {
    case KernelClass::gemm:
      return ShapeKind::gemm;
    case KernelClass::attention:
      return ShapeKind::attention;
    case KernelClass::pointwise:
      return ShapeKind::pointwise;
    case KernelClass::embedding:
      return ShapeKind::embedding;
    case KernelClass::cross_entropy:
      return ShapeKind::cross_entropy;
    case KernelClass::optimizer:
      return ShapeKind::optimizer;
    case KernelClass::collective:
      return ShapeKind::collective;
    case KernelClass::softmax:
    case KernelClass::layernorm:
    case KernelClass::rmsnorm:
    case KernelClass::column_sum:
    case KernelClass::row_sum:
    case KernelClass::log_softmax:
    case KernelClass::softmax_fp32:
    case KernelClass::nll:
    case KernelClass::row_mean:
    case KernelClass::argmax:
    case KernelClass::topk:
    case KernelClass::sort:
    case KernelClass::layernorm_input:
      return ShapeKind::row;
  }
  return ShapeKind::row;
}

// Whether the shape of a class is a RowShape, whether such a class has a backward kernel of its own, and whether only PyTorch has it.
constexpr bool is_row_kernel(KernelClass kernel) { return shape_of(kernel) == ShapeKind::row; }
constexpr bool is_torch_only(KernelClass kernel) { return kernel >= KernelClass::log_softmax; }
constexpr bool has_row_passes(KernelClass kernel) {
  return (kernel >= KernelClass::softmax && kernel <= KernelClass::rmsnorm) || (kernel >= KernelClass::log_softmax && kernel <= KernelClass::nll) ||
         kernel == KernelClass::layernorm_input;
}

struct KernelCall {
  KernelClass kernel = KernelClass::gemm;
  DType dtype = DType::bf16;
  Pass pass = Pass::fwd;
  Impl impl = Impl::vendor;
  std::variant<GemmShape, AttentionShape, RowShape, PointwiseShape, EmbeddingShape, CrossEntropyShape, OptimizerShape, CollectiveShape> shape;
  bool operator==(const KernelCall&) const = default;

  const GemmShape& gemm() const { return std::get<GemmShape>(shape); }
  const AttentionShape& attention() const { return std::get<AttentionShape>(shape); }
  const RowShape& row() const { return std::get<RowShape>(shape); }
  const PointwiseShape& pointwise() const { return std::get<PointwiseShape>(shape); }
  const EmbeddingShape& embedding() const { return std::get<EmbeddingShape>(shape); }
  const CrossEntropyShape& cross_entropy() const { return std::get<CrossEntropyShape>(shape); }
  const OptimizerShape& optimizer() const { return std::get<OptimizerShape>(shape); }
  const CollectiveShape& collective() const { return std::get<CollectiveShape>(shape); }
};

std::size_t hash_of(const KernelCall& call);
struct KernelCallHash {
  std::size_t operator()(const KernelCall& call) const { return hash_of(call); }
};

std::string_view name_of(KernelClass kernel);
std::string_view name_of(PointwiseKind kind);
std::string_view name_of(CollectiveKind kind);
std::string_view name_of(GemmLayout layout);
std::string_view name_of(AttentionKernel kernel);
std::string_view name_of(Impl impl);
std::optional<AttentionKernel> parse_attention_kernel(std::string_view name);

// The `shape` column: "m=4096 n=4096 k=1024 batch=1 layout=nt"; keys at their defaults that the contract makes optional are left out. parse_kernel(print) == the call.
std::string print_shape(const KernelCall& call);

// A size of a call by the name that its printed shape gives it ("m", "seq_kv", "rows", "numel"), and "alignment" (gemm: elements, see alignment_of in gemm.h), "heads" (attention:
// of all sequences); 0 when the call has no such size. attention batch=2 heads=8: heads 16.
double size_of(const KernelCall& call, std::string_view key);

// A call from the columns op, dtype, shape, impl ("" for the default of the op). Errors: unknown op, dtype, key (with a suggestion), a repeated or missing key, a size that
// is not a positive 63-bit integer.
Result<KernelCall> parse_kernel(std::string_view op, std::string_view dtype, std::string_view shape, std::string_view impl = {});

// What a kernel must do at the least: FLOPs of its arithmetic (masked-out pairs of an attention not counted), exponentials and the like, and bytes of DRAM with each operand
// read once and each result written once. gemm bf16 m=n=k=1024: 2^31 FLOPs, 4 MiB read, 2 MiB written.
struct KernelWork {
  Count flops = 0;
  Count special = 0;  // exp, tanh, rsqrt evaluations
  Count bytes_read = 0;
  Count bytes_written = 0;
  Count bytes() const { return bytes_read + bytes_written; }
};
KernelWork work_of(const KernelCall& call);

}  // namespace rooftile
