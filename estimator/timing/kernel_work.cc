// The least that each kernel must do. Sizes are products of 63-bit numbers (checked when a call or graph is built), so 128-bit counts do not overflow.
#include <algorithm>
#include <array>

#include "estimator/timing/kernel_call.h"

namespace rooftile {
namespace {

constexpr Count kIndexBytes = 8;  // token ids are int64
constexpr Count kStatBytes = 4;   // log-sum-exp and loss values are fp32

Count bytes(Count elements, DType dtype) { return (elements * bits_of(dtype) + 7) / 8; }

// The dtype that an attention kernel writes: inputs of 8 bits and less come out as bf16.
DType attention_out(DType dtype) { return bits_of(dtype) < 16 ? DType::bf16 : dtype; }

KernelWork gemm_work(const GemmShape& s, DType dtype) {
  const Count m = s.m, n = s.n, k = s.k, batch = s.batch;
  KernelWork work;
  work.flops = 2 * m * n * k * batch;
  work.bytes_read = s.b_bytes > 0 ? bytes(batch * m * k, dtype) + batch * s.b_bytes : bytes(batch * (m * k + k * n), dtype);
  if (s.accumulate) work.bytes_read += bytes(batch * m * n, s.out);
  work.bytes_written = bytes(batch * m * n, s.out);
  if (s.epilogue != Epilogue::none) work.bytes_read += bytes(n, s.out);  // the bias row
  if (s.epilogue == Epilogue::gelu) work.special = batch * m * n;
  return work;
}

// Matmuls over kept pairs: forward S = Q K^T (head_dim) and O = P V (v_head_dim); backward S again, dK = dS^T Q, dQ = dS K (3 x head_dim) and dP = dO V^T, dV = P^T dO
// (2 x v_head_dim). For equal head sizes the backward pass is 2.5 forward passes (FlashAttention-2, arXiv 2307.08691, section 3.1.2 and table of FLOPs).
KernelWork attention_work(const AttentionShape& s, DType dtype, Pass pass) {
  const Count heads = static_cast<Count>(s.batch) * s.heads;
  const Count kv_heads = static_cast<Count>(s.batch) * s.kv_heads;
  const Count pairs = heads * s.kept_pairs();
  // With a window, keys before the first query's window are never read.
  Count keys = s.seq_kv;
  if (s.window > 0 && s.causal) keys = std::min<Count>(keys, static_cast<Count>(s.seq_q) - 1 + s.window);
  const DType out = attention_out(dtype);
  const Count q = bytes(heads * s.seq_q * s.head_dim, dtype);
  const Count kv = bytes(kv_heads * keys * (static_cast<Count>(s.head_dim) + s.v_head_dim), dtype);
  const Count o = bytes(heads * s.seq_q * s.v_head_dim, out);
  const Count lse = heads * s.seq_q * kStatBytes;
  const Count mask = s.mask ? bytes(static_cast<Count>(s.batch) * s.seq_q * s.seq_kv, dtype) : 0;
  const Count d = s.head_dim, dv = s.v_head_dim;

  KernelWork work;
  work.special = pairs;
  if (pass == Pass::fwd) {
    work.flops = 2 * pairs * (d + dv);
    work.bytes_read = q + kv + mask;
    work.bytes_written = o + lse;
  } else {
    work.flops = 2 * pairs * (3 * d + 2 * dv);
    work.bytes_read = q + kv + 2 * o + lse + mask;  // o and its gradient
    work.bytes_written = q + kv;
  }
  if (s.kernel == AttentionKernel::standard) {
    // Scores, probabilities and (backward) their gradients go through memory between the stages: matmul, scale and mask, softmax, matmul.
    const Count scores = bytes(heads * s.seq_q * s.seq_kv, out);
    if (pass == Pass::fwd) {
      work.bytes_read += 3 * scores;     // scaled, normalised, multiplied
      work.bytes_written += 3 * scores;  // by the first matmul, the scaling, the softmax
      work.bytes_written -= lse;
    } else {
      work.bytes_read += 6 * scores;     // P for dV; P and dP for the softmax; dP for the scaling; dS for dQ and for dK
      work.bytes_written += 3 * scores;  // dP, its softmax gradient, its scaling
      work.bytes_read -= lse + o;        // neither o nor the log-sum-exp is needed: P was kept
      work.flops -= 2 * pairs * d;       // and S is not computed again
      work.special = 0;
    }
  }
  return work;
}

struct RowCosts {
  int fwd_flops, bwd_flops, fwd_special, bwd_special, parameters;
};

// FLOPs per element: softmax max, subtract, sum, divide, exponential counted apart; layernorm two statistics (4), centre and scale (2), weight and bias (2).
RowCosts row_costs(KernelClass kernel) {
  switch (kernel) {
    case KernelClass::softmax:
      return {4, 4, 1, 0, 0};
    case KernelClass::layernorm:
      return {8, 14, 0, 0, 2};
    case KernelClass::rmsnorm:
      return {4, 10, 0, 0, 1};
    case KernelClass::softmax_fp32:
      return {4, 4, 1, 0, 0};
    case KernelClass::log_softmax:
      return {4, 3, 1, 1, 0};
    case KernelClass::layernorm_input:
      return {8, 12, 0, 0, 2};
    default:
      return {1, 1, 0, 0, 0};
  }
}

KernelWork row_work(KernelClass kernel, const RowShape& s, DType dtype, Pass pass) {
  const Count elements = static_cast<Count>(s.rows) * s.cols;
  const RowCosts costs = row_costs(kernel);
  const Count tensor = bytes(elements, dtype);
  const Count parameters = bytes(costs.parameters * static_cast<Count>(s.cols), dtype);
  KernelWork work;
  const bool forward = pass == Pass::fwd;
  switch (kernel) {
    case KernelClass::column_sum:
    case KernelClass::row_sum:
    case KernelClass::row_mean:
      work.flops = elements;
      work.bytes_read = tensor;
      work.bytes_written = bytes(kernel == KernelClass::column_sum ? s.cols : s.rows, dtype);
      return work;
    case KernelClass::argmax:
    case KernelClass::topk:
      work.flops = elements;
      work.bytes_read = tensor;
      work.bytes_written = s.rows * kIndexBytes;
      return work;
    case KernelClass::sort:  // keys, and the position that each came from
      work.flops = elements;
      work.bytes_read = tensor;
      work.bytes_written = tensor + elements * kIndexBytes;
      return work;
    case KernelClass::nll:  // one value of each row is read, or written into a gradient of zeros
      work.flops = s.rows;
      work.bytes_read = s.rows * kIndexBytes + (forward ? bytes(s.rows, dtype) : 0);
      work.bytes_written = forward ? kStatBytes : tensor;
      return work;
    case KernelClass::softmax_fp32: {
      const Count wide = elements * kStatBytes;
      work.flops = elements * 4;
      work.special = forward ? elements : 0;
      work.bytes_read = forward ? tensor : 2 * wide;
      work.bytes_written = forward ? wide : tensor;
      return work;
    }
    default:
      break;
  }
  work.flops = elements * (forward ? costs.fwd_flops : costs.bwd_flops);
  work.special = elements * (forward ? costs.fwd_special : costs.bwd_special);
  if (costs.parameters > 0) work.special += s.rows;  // one rsqrt per row
  // Backward reads the incoming gradient and the saved input (softmax: output), and writes the gradient of the input and of the learned row(s). A bias need not be read.
  work.bytes_read = forward ? tensor + parameters : 2 * tensor + (costs.parameters > 0 ? bytes(s.cols, dtype) : 0);
  work.bytes_written = tensor + (forward || kernel == KernelClass::layernorm_input ? 0 : parameters);
  return work;
}

struct PointwiseRow {
  double reads, writes;
  int flops, special;
};
constexpr std::array kPointwiseRows = {
#define POINTWISE_KIND(id, reads, writes, flops, special, doc) PointwiseRow{reads, writes, flops, special},
#include "estimator/timing/pointwise.def"
};

// Whole elements in the dtype; a half stands for a mask of one byte per element.
Count pointwise_bytes(double elements_per_output, Count numel, DType dtype) {
  const Count halves = static_cast<Count>(elements_per_output * 2);
  return bytes(numel * (halves / 2), dtype) + (halves % 2 != 0 ? numel : 0);
}

KernelWork pointwise_work(const PointwiseShape& s, DType dtype) {
  const PointwiseRow& row = kPointwiseRows[static_cast<std::size_t>(s.kind)];
  KernelWork work;
  work.flops = static_cast<Count>(s.numel) * row.flops;
  work.special = static_cast<Count>(s.numel) * row.special;
  work.bytes_read = pointwise_bytes(row.reads, s.numel, dtype);
  work.bytes_written = pointwise_bytes(row.writes, s.numel, s.kind == PointwiseKind::cast ? s.to : dtype);
  if (s.kind == PointwiseKind::mixed_mul) {  // whichever dtype the call names, one operand is fp32 and so is the result
    work.bytes_read = static_cast<Count>(s.numel) * 6;
    work.bytes_written = static_cast<Count>(s.numel) * 4;
  }
  return work;
}

// Forward gathers a row per token. Backward adds each token's gradient into the table's gradient: the rows touched are read and written.
KernelWork embedding_work(const EmbeddingShape& s, DType dtype, Pass pass) {
  const Count rows = bytes(static_cast<Count>(s.tokens) * s.hidden, dtype);
  const Count ids = s.tokens * kIndexBytes;
  KernelWork work;
  if (pass == Pass::fwd) {
    work.bytes_read = bytes(static_cast<Count>(std::min(s.tokens, s.vocab)) * s.hidden, dtype) + ids;
    work.bytes_written = rows;
  } else {
    const Count touched = bytes(static_cast<Count>(std::min(s.tokens, s.vocab)) * s.hidden, dtype);
    work.flops = static_cast<Count>(s.tokens) * s.hidden;
    work.bytes_read = rows + touched + ids;
    work.bytes_written = touched;
  }
  return work;
}

KernelWork cross_entropy_work(const CrossEntropyShape& s, DType dtype, Pass pass) {
  const Count elements = static_cast<Count>(s.tokens) * s.vocab;
  const Count logits = bytes(elements, dtype);
  const Count ids = s.tokens * kIndexBytes, values = s.tokens * kStatBytes;
  KernelWork work;
  work.flops = (pass == Pass::fwd ? 3 : 2) * elements;  // max, subtract, sum; subtract, scale
  work.special = elements;
  work.bytes_read = logits + ids + (pass == Pass::bwd ? values : 0);
  work.bytes_written = pass == Pass::fwd ? values : logits;
  return work;
}

// AdamW reads weight, gradient and two moments and writes weight and moments: bf16 throughout 2 + 2 + 4 + 2 + 4 = 14 bytes per parameter. With fp32 main weights those are
// read and written and the weight in the call's dtype only written: 4 + 4 + 8 + 4 + 8 + 2 = 30 with fp32 gradients and moments. SGD is without momentum.
KernelWork optimizer_work(const OptimizerShape& s, DType dtype) {
  const Count n = s.numel;
  const bool adam = s.kind != OptimizerKind::sgd;
  const Count moments = adam ? 2 * bytes(n, s.state) : 0;
  const Count weights = bytes(n, dtype);
  const Count main = s.main_weights ? bytes(n, DType::fp32) : 0;
  KernelWork work;
  work.flops = n * (adam ? 14 : 2);
  work.special = n * (adam ? 2 : 0);
  work.bytes_read = bytes(n, s.gradient) + moments + (s.main_weights ? main : weights);
  work.bytes_written = moments + weights + main;
  if (s.kind == OptimizerKind::adamw_foreach) {
    // Decay (weight), lerp (moment, gradient), scale and addcmul (second moment, gradient twice), sqrt, divide and add on a temporary of the state's dtype, addcdiv (weight,
    // moment, temporary): each operation is a kernel that reads and writes.
    work.bytes_read = 2 * weights + 2 * bytes(n, s.gradient) + 8 * bytes(n, s.state);
    work.bytes_written = 2 * weights + 6 * bytes(n, s.state) + main;
  }
  return work;
}

// Bytes that one rank must receive (written) and send (read) over its links, with `bytes` as nccl-tests counts them: ring lower bounds, see nccl-tests doc/PERFORMANCE.md.
KernelWork collective_work(const CollectiveShape& s) {
  KernelWork work;
  const Count n = s.ranks;
  if (n <= 1) return work;
  Count moved = s.bytes;
  switch (s.kind) {
    case CollectiveKind::all_reduce:
      moved = 2 * moved * (n - 1) / n;
      break;
    case CollectiveKind::all_gather:
    case CollectiveKind::reduce_scatter:
    case CollectiveKind::all_to_all:
      moved = moved * (n - 1) / n;
      break;
    case CollectiveKind::broadcast:
    case CollectiveKind::send_recv:
      break;
  }
  work.bytes_read = work.bytes_written = moved;
  return work;
}

}  // namespace

KernelWork work_of(const KernelCall& call) {
  switch (shape_of(call.kernel)) {
    case ShapeKind::gemm:
      return gemm_work(call.gemm(), call.dtype);
    case ShapeKind::attention:
      return attention_work(call.attention(), call.dtype, call.pass);
    case ShapeKind::row:
      return row_work(call.kernel, call.row(), call.dtype, call.pass);
    case ShapeKind::pointwise:
      return pointwise_work(call.pointwise(), call.dtype);
    case ShapeKind::embedding:
      return embedding_work(call.embedding(), call.dtype, call.pass);
    case ShapeKind::cross_entropy:
      return cross_entropy_work(call.cross_entropy(), call.dtype, call.pass);
    case ShapeKind::optimizer:
      return optimizer_work(call.optimizer(), call.dtype);
    case ShapeKind::collective:
      return collective_work(call.collective());
  }
  return {};
}

}  // namespace rooftile
