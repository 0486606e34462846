// The rule language of a runtime: which kernels an operator becomes under which conditions. Rules are data (hardware/runtimes/*.yaml); these are their parsed form. See
// docs/adr/0009-runtime-rules.md.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "estimator/core/dtype.h"
#include "estimator/graph/op_kind.h"
#include "estimator/timing/kernel_call.h"

namespace rooftile {

// Sizes that a rule may name. `numel` counts the elements of the kernel that the rule replaces; m, n, k are those of a matmul, `batch` of a matmul or attention. `sequences` and
// `seq` are those of the micro-batch; `parameters` and `tensors` what the optimizer updates; `weights` the learned elements of the operator's weight.
inline constexpr std::array<std::string_view, 29> kRuleSizeNames = {
    "numel",      "rows",       "cols",  "tokens", "in",      "out",   "m",         "n",   "k",          "batch",   "heads",   "kv_heads", "seq_q",    "seq_kv", "head_dim",
    "v_head_dim", "rotary_dim", "vocab", "hidden", "experts", "top_k", "sequences", "seq", "parameters", "tensors", "weights", "bias",     "channels", "span"};
using RuleSizes = std::array<double, kRuleSizeNames.size()>;

// Words that a condition may test, by what they describe: the run, the model, the operator. `wide` operands are those that autocast keeps in fp32; an operand is `shared` where an
// earlier operator reads it too, so that gradients meet and are added. channels_first: the first operand lies in memory as a convolution left it, features before positions.
inline constexpr std::array<std::string_view, 62> kRuleWords = {
    // the run
    "train", "forward", "prefill", "decode", "mixed", "recompute", "standard", "first_micro_batch",
    // the model
    "decoder", "encoder", "encoder_decoder", "vision", "speech", "rope", "learned_positions", "alibi", "relative_positions", "masked_lm", "classifier", "masked_positions",
    "windowed", "two_rotary_tables", "scaled_embedding", "mixture",
    // the operator
    "bias", "tied", "transposed_weight", "grouped", "router", "several_outputs", "by_head", "causal", "window", "softcap", "sinks", "position_bias", "gqa", "unit_offset",
    "over_heads", "partial", "wide", "shared", "renormalised", "scaled_query", "sorted", "tied_table", "cross", "unaligned", "sliced_qkv", "narrow_softmax", "low_norm",
    "scaled_head", "contiguous_heads", "channels_first", "clamped_gate", "composed_attention", "written_gelu", "halves", "joined_rotary", "mask_tensor", "composed_gate",
    "normed_heads"};
using RuleWords = std::uint64_t;  // one bit per word
std::optional<std::size_t> rule_word(std::string_view word);

// A product of numbers and sizes: "tokens*heads*head_dim/2". `over` divides.
struct RuleExpression {
  double factor = 1;
  std::vector<std::uint8_t> times, over;  // into kRuleSizeNames
  double value(const RuleSizes& sizes) const;
};

// Holds when every part holds: words that are (not) true, names of the operator or of its function, and comparisons of sizes.
struct RuleCondition {
  RuleWords yes = 0, no = 0;
  std::vector<std::string> names, not_names;  // "name:qkv", the operator's own name; "function:gelu_new", the pointwise kind of the kernel it has by default
  std::vector<std::string> functions, not_functions;
  struct Comparison {
    RuleExpression left;
    bool less = true;
    double right = 0;
  };
  std::vector<Comparison> comparisons;
  bool always() const { return yes == 0 && no == 0 && names.empty() && not_names.empty() && functions.empty() && not_functions.empty() && comparisons.empty(); }
};

// One kernel of a rule.
struct RuleKernel {
  enum class What : std::uint8_t { pointwise, row, matmul, same };  // same: what the operator has by default, with the changes that are named here
  What what = What::pointwise;
  PointwiseKind pointwise = PointwiseKind::copy;
  KernelClass row = KernelClass::row_sum;
  Pass pass = Pass::fwd;
  GemmLayout layout = GemmLayout::nt;
  std::string part;                              // same: of all default kernels, the one of this part
  std::optional<RuleExpression> of;              // elements of a pointwise kernel's output; default numel
  std::optional<RuleExpression> rows, cols;      // of a row kernel; default those of the replaced kernel
  std::optional<RuleExpression> m, n, k, batch;  // of a matmul
  RuleExpression calls, launches;                // launches: of one call, for what is timed as one (rounded up)
  std::optional<DType> dtype, to;
  bool full = false;   // same: an attention that skips nothing for a causal mask or a window, because it is given a mask tensor
  bool waits = false;  // the host reads its result and waits until the GPU has come so far
  bool once = false;   // once a step instead of once a micro-batch (casts that autocast keeps)
  RuleCondition when;
};

// Replaces the kernels that an operator has by default (the best known fused kernel). part: "forward" or "backward" replaces all of that direction, the label of a default kernel
// ("dgrad", "bias_grad", "softmax") that one alone. The first rule whose part and conditions hold applies.
struct LoweringRule {
  OpKind op = OpKind::free;
  std::string part;
  RuleCondition when;
  std::string when_text;  // as written, for listings
  std::vector<RuleKernel> kernels;
};

}  // namespace rooftile
