// The sizes of an operator, one small struct per family. Sizes are those of the whole model for one micro-batch; the shard pass rewrites them to one rank's.
#pragma once

#include <cstdint>
#include <variant>

#include "estimator/core/dtype.h"
#include "estimator/timing/kernel_call.h"

namespace rooftile {

// How an operator or tensor is divided among the ranks of a tensor-parallel group.
//   none      every rank holds it whole
//   column    the output features are divided (Megatron's column-parallel linear, attention heads, a divided vocabulary)
//   row       the input features are divided; partial sums are reduced
//   sequence  the tokens are divided, only when sequence parallelism is on
//   expert    experts are divided over the expert-parallel group, their features over expert tensor parallelism
enum class Split : std::uint8_t { none, column, row, sequence, expert };

// y[tokens, out] = x[tokens, in] W[out, in]^T + b. With experts > 0 it is the grouped matmul of a mixture: W has `experts` matrices, each token visits top_k of them.
struct LinearAttrs {
  std::int64_t tokens = 0, in = 0, out = 0;
  std::int64_t experts = 0, top_k = 0;
  std::int64_t expert_group = 1;  // ranks that pool their tokens for the experts (expert parallelism); set by the shard pass
  bool bias = false;
  bool tied = false;               // the weight belongs to another operator: it costs work here and is counted there
  bool router = false;             // free in flops_model (Megatron's convention)
  bool input_gradient = true;      // false where the input needs no gradient (patches of an image)
  bool transposed_weight = false;  // W stored [in, out] (Conv1D of GPT-2, an ONNX MatMul)
  std::int64_t weight_bytes = 0;   // stored bytes of W (of one expert's) where it is packed: 4-bit weights with their scales; 0: in x out elements of the dtype
  Epilogue epilogue = Epilogue::none;
  Split split = Split::none;
  Split feature_split = Split::column;  // of a grouped linear (split = expert): how expert tensor parallelism divides its features, column or row
};

// C[batch, m, n] = A B with both operands activations.
struct MatmulAttrs {
  std::int64_t batch = 1, m = 0, n = 0, k = 0;
  GemmLayout layout = GemmLayout::nn;
  Split split = Split::none;
};

struct AttentionAttrs {
  std::int64_t batch = 0, heads = 0, kv_heads = 0, seq_q = 0, seq_kv = 0, head_dim = 0, v_head_dim = 0;
  bool causal = false;
  std::int64_t window = 0;          // 0: none
  bool sinks = false;               // one learned logit per head (GPT-OSS)
  bool softcap = false;             // tanh soft-capping of the scores (Gemma 2)
  bool position_bias = false;       // a [heads, seq_q, seq_kv] bias is added to the scores (T5, ALiBi)
  bool fp32_softmax = false;        // of standard attention: the implementation casts the scores up and keeps fp32 probabilities
  bool padding_mask = false;        // an encoder's mask over padded tokens
  bool model_flops_causal = false;  // flops_model halves this attention; false for cross and encoder attention
  AttentionKernel kernel = AttentionKernel::fastest;
  Split split = Split::column;
};

// layernorm, rmsnorm: each of `rows` rows of `cols`.
struct NormAttrs {
  std::int64_t rows = 0, cols = 0;
  bool weight = true, bias = false;
  std::int64_t weight_cols = 0;   // learned elements where they are not `cols` (0: cols)
  Split split = Split::sequence;  // column for norms over heads
};

struct PointwiseAttrs {
  PointwiseKind kind = PointwiseKind::add;
  std::int64_t numel = 0;  // elements of the output
  DType to = DType::bf16;
  std::int64_t parameters = 0;  // learned elements used here (a learned position table, a class token)
  Split split = Split::sequence;
};

struct RotaryAttrs {
  std::int64_t tokens = 0, heads = 0, kv_heads = 0, rotary_dim = 0;
  std::int64_t head_dim = 0;  // the whole head where less than it rotates (0: rotary_dim)
  Split split = Split::column;
};

struct EmbeddingAttrs {
  std::int64_t tokens = 0, vocab = 0, hidden = 0;
  bool tied = false;            // the table belongs to another operator
  Split split = Split::column;  // the vocabulary is divided; none for small tables (positions, token types)
};

struct RelativeBiasAttrs {  // T5: a [buckets, heads] table expanded to [heads, seq_q, seq_kv]
  std::int64_t heads = 0, buckets = 0, seq_q = 0, seq_kv = 0;
  bool tied = false;
  Split split = Split::column;
};

struct CrossEntropyAttrs {
  std::int64_t tokens = 0, vocab = 0;
  bool upcast = true;  // logits are cast to fp32 first (causal language models); else the loss runs in their dtype
  Split split = Split::column;
};

struct RouterAttrs {  // softmax over experts, top-k, and the bookkeeping of the permutation; its matmul is a linear with router = true
  std::int64_t tokens = 0, experts = 0, top_k = 0;
  Split split = Split::sequence;
};

struct MoeMoveAttrs {  // dispatch: rows are copied top_k times into expert order; combine: they come back, weighted and summed
  std::int64_t tokens = 0, hidden = 0, top_k = 0;
  bool combine = false;
  Split split = Split::sequence;
};

struct ConvolutionAttrs {  // any number of spatial dimensions, already multiplied out
  std::int64_t batch = 0, in_channels = 0, out_channels = 0, groups = 1;
  std::int64_t kernel_elements = 0;  // product of the kernel's sizes
  std::int64_t out_positions = 0;    // product of the output's spatial sizes
  std::int64_t in_positions = 0;
  bool bias = false;
  bool input_gradient = true;
  bool patches = false;  // stride equals kernel: exactly a matmul over patches (ViT)
  Split split = Split::none;
};

struct SoftmaxAttrs {
  std::int64_t rows = 0, cols = 0;
  Split split = Split::column;
};

struct ReductionAttrs {  // sum, mean, max over rows or columns
  std::int64_t rows = 0, cols = 0;
  bool over_rows = false;  // result has `cols` elements
  Split split = Split::sequence;
};

struct CacheWriteAttrs {  // keys and values of the new tokens appended to the KV cache
  std::int64_t tokens = 0, elements_per_token = 0;
  Split split = Split::column;
};

struct OptimizerAttrs {
  OptimizerKind kind = OptimizerKind::adamw;
  std::int64_t parameters = 0;
  DType state = DType::fp32, gradient = DType::fp32;
  bool main_weights = false;  // fp32 main weights beside weights in the operator's dtype
};

enum class CommAxis : std::uint8_t { tp, cp, ep, pp, dp };
struct CollectiveAttrs {
  CollectiveKind kind = CollectiveKind::all_reduce;
  std::int64_t bytes = 0;
  std::int64_t ranks = 1, nodes = 1;
  CommAxis axis = CommAxis::tp;
};

struct FreeAttrs {};  // bookkeeping without cost: reshapes, views, shape arithmetic

using OpAttrs = std::variant<LinearAttrs, MatmulAttrs, AttentionAttrs, NormAttrs, PointwiseAttrs, RotaryAttrs, EmbeddingAttrs, RelativeBiasAttrs, CrossEntropyAttrs, RouterAttrs,
                             MoeMoveAttrs, ConvolutionAttrs, SoftmaxAttrs, ReductionAttrs, CacheWriteAttrs, OptimizerAttrs, CollectiveAttrs, FreeAttrs>;

}  // namespace rooftile
