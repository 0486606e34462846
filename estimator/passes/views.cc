#include "estimator/passes/views.h"

#include <algorithm>
#include <span>
#include <string>

namespace rooftile {
namespace {

constexpr std::array<std::string_view, kLayerRoles> kLayerNames = {"embedding", "norm", "attention", "mlp",           "moe",  "residual",
                                                                   "head",      "loss", "optimizer", "communication", "other"};
constexpr std::array<std::string_view, kOperatorFamilies> kFamilyNames = {"matmul",    "attention", "norm",      "softmax",   "pointwise",    "copy",
                                                                          "reduction", "fused",     "embedding", "optimizer", "communication"};
constexpr std::array<std::string_view, kViewKinds> kViewNames = {"phase", "layer", "family"};

// The operator's own name: "gate_up" of "layer.gate_up.dgrad".
std::string_view operator_name(const OpRow& row) {
  std::string_view name = row.name;
  if (row.operator_size > 0 && row.operator_size < name.size()) name = name.substr(0, row.operator_size);
  if (name.size() > row.segment.size() && name.substr(0, row.segment.size()) == row.segment) name.remove_prefix(row.segment.size() + 1);
  return name;
}

bool starts(std::string_view text, std::string_view with) { return text.substr(0, with.size()) == with; }
bool holds(std::string_view text, std::string_view word) { return text.find(word) != std::string_view::npos; }

bool any_of(std::string_view name, std::span<const std::string_view> words, bool (*test)(std::string_view, std::string_view)) {
  return std::any_of(words.begin(), words.end(), [&](std::string_view word) { return test(name, word); });
}

// Names that the expansion of a model gives to operators whose kind does not say what they are for.
constexpr std::string_view kMoeStarts[] = {"router", "experts_", "shared_", "dispatch", "combine"};
constexpr std::string_view kMlpNames[] = {"gate", "up", "down", "gate_up", "fc1", "fc2", "act", "ffn_dropout"};
constexpr std::string_view kAttentionNames[] = {"q", "k", "v", "qkv", "q_a", "q_b", "kv_a", "kv_b", "kv_b_query", "kv_b_value"};
constexpr std::string_view kAttentionStarts[] = {"cross_", "attention_"};
constexpr std::string_view kHeadNames[] = {"first_token", "last_token", "pooler", "pooler_act", "classifier", "head_dense", "head_act", "project_out", "logits_softcap"};
constexpr std::string_view kEmbeddingNames[] = {"project_in", "class_token", "conv1", "conv2", "conv1_act", "conv2_act", "embedding_dropout"};
constexpr std::string_view kOptimizerNames[] = {"weight_casts", "gradient_casts"};
// Words in the names of an imported graph's nodes.
constexpr std::string_view kMoeWords[] = {"expert", "moe"};
constexpr std::string_view kAttentionWords[] = {"attn", "attention", "q_proj", "k_proj", "v_proj", "qkv", "rotary"};
constexpr std::string_view kMlpWords[] = {"mlp", "ffn", "feed_forward", "feedforward", "intermediate", "fc1", "fc2", "gate_proj", "up_proj", "down_proj", "linear1", "linear2"};
constexpr std::string_view kHeadWords[] = {"lm_head", "classifier", "logits"};

LayerRole by_name(std::string_view name) {
  const auto same = [](std::string_view a, std::string_view b) { return a == b; };
  if (any_of(name, kMoeStarts, starts)) return LayerRole::moe;
  if (any_of(name, kMlpNames, same)) return LayerRole::mlp;
  if (any_of(name, kAttentionNames, same) || any_of(name, kAttentionStarts, starts)) return LayerRole::attention;
  if (any_of(name, kHeadNames, same)) return LayerRole::head;
  if (any_of(name, kEmbeddingNames, same)) return LayerRole::embedding;
  if (any_of(name, kOptimizerNames, same)) return LayerRole::optimizer;
  std::string lower(name);
  for (char& letter : lower) letter = letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
  if (any_of(lower, kMoeWords, holds)) return LayerRole::moe;
  if (any_of(lower, kAttentionWords, holds)) return LayerRole::attention;
  if (any_of(lower, kMlpWords, holds)) return LayerRole::mlp;
  return any_of(lower, kHeadWords, holds) ? LayerRole::head : LayerRole::other;
}

OperatorFamily pointwise_family(const OpRow& row) {
  const bool table = row.op == OpKind::embedding || row.op == OpKind::position_add;
  switch (row.call.pointwise().kind) {
    case PointwiseKind::gather:
    case PointwiseKind::scatter_add:
      return table ? OperatorFamily::embedding : OperatorFamily::copy;
    case PointwiseKind::fill:  // a gradient of a table is cleared before rows are added to it
      return table && row.phase == StepPhase::backward ? OperatorFamily::embedding : OperatorFamily::pointwise;
    case PointwiseKind::copy:
    case PointwiseKind::cast:
    case PointwiseKind::permute:
    case PointwiseKind::concat:
    case PointwiseKind::memset:
    case PointwiseKind::transpose:
    case PointwiseKind::slice:
    case PointwiseKind::slice_half:
    case PointwiseKind::concat_rows:
    case PointwiseKind::concat_seq:
    case PointwiseKind::index_rows:
      return OperatorFamily::copy;
    case PointwiseKind::reduce:
    case PointwiseKind::scan:
      return OperatorFamily::reduction;
    case PointwiseKind::fused:
    case PointwiseKind::fused_rows:
      return OperatorFamily::fused;
    default:
      return OperatorFamily::pointwise;
  }
}

void add(ViewSum& sum, const OpRow& row) {
  sum.time_s += row.time_s;
  sum.flops += row.flops;
  if (row.call.kernel == KernelClass::gemm || row.call.kernel == KernelClass::attention) sum.matmul_flops += row.flops;
  sum.bytes += row.bytes;
  sum.launches += row.launches;
}

}  // namespace

std::string_view name_of(LayerRole kind) { return kLayerNames[static_cast<std::size_t>(kind)]; }
std::string_view name_of(OperatorFamily family) { return kFamilyNames[static_cast<std::size_t>(family)]; }
std::string_view name_of(ViewKind kind) { return kViewNames[static_cast<std::size_t>(kind)]; }

std::optional<ViewKind> parse_view_kind(std::string_view name) {
  const auto* const found = std::find(kViewNames.begin(), kViewNames.end(), name);
  if (found == kViewNames.end()) return std::nullopt;
  return static_cast<ViewKind>(found - kViewNames.begin());
}

LayerRole layer_role_of(const OpRow& row) {
  switch (row.op) {
    case OpKind::embedding:
    case OpKind::position_add:
    case OpKind::patch_embedding:
      return LayerRole::embedding;
    case OpKind::layernorm:
    case OpKind::rmsnorm:
      return LayerRole::norm;
    case OpKind::attention:
    case OpKind::rotary:
    case OpKind::cache_write:
    case OpKind::relative_bias:
    case OpKind::alibi_bias:
      return LayerRole::attention;
    case OpKind::router:
    case OpKind::moe_move:
      return LayerRole::moe;
    case OpKind::lm_head:
      return LayerRole::head;
    case OpKind::cross_entropy:
      return LayerRole::loss;
    case OpKind::optimizer:
      return LayerRole::optimizer;
    case OpKind::collective:
      return LayerRole::communication;
    case OpKind::residual:
      return starts(operator_name(row), "shared_") ? LayerRole::moe : LayerRole::residual;
    default:
      break;
  }
  if (row.phase == StepPhase::optimizer) return LayerRole::optimizer;
  const LayerRole kind = by_name(operator_name(row));
  return kind == LayerRole::other && row.op == OpKind::grouped_linear ? LayerRole::moe : kind;
}

OperatorFamily family_of(const OpRow& row) {
  const bool table = row.op == OpKind::embedding || row.op == OpKind::position_add;
  if (row.phase == StepPhase::optimizer) return OperatorFamily::optimizer;
  switch (row.call.kernel) {
    case KernelClass::gemm:
      return OperatorFamily::matmul;
    case KernelClass::attention:
      return OperatorFamily::attention;
    case KernelClass::layernorm:
    case KernelClass::rmsnorm:
    case KernelClass::layernorm_input:
      return OperatorFamily::norm;
    case KernelClass::softmax:
    case KernelClass::softmax_fp32:
    case KernelClass::log_softmax:
    case KernelClass::nll:
    case KernelClass::cross_entropy:
      return OperatorFamily::softmax;
    case KernelClass::row_sum:
    case KernelClass::sort:
      return table ? OperatorFamily::embedding : OperatorFamily::reduction;
    case KernelClass::column_sum:
    case KernelClass::row_mean:
    case KernelClass::argmax:
    case KernelClass::topk:
      return OperatorFamily::reduction;
    case KernelClass::embedding:
      return OperatorFamily::embedding;
    case KernelClass::optimizer:
      return OperatorFamily::optimizer;
    case KernelClass::collective:
      return OperatorFamily::communication;
    case KernelClass::pointwise:
      break;
  }
  return pointwise_family(row);
}

std::optional<double> ViewSum::mfu(double peak_flops) const {
  if (matmul_flops <= 0 || time_s <= 0 || peak_flops <= 0) return std::nullopt;
  return to_double(matmul_flops) / (time_s * peak_flops);
}

std::vector<ViewLine> view_of(const Prediction& prediction, ViewKind kind) {
  std::vector<ViewLine> lines(kind == ViewKind::phase ? kStepPhases : kind == ViewKind::layer ? kLayerRoles : kOperatorFamilies);
  std::vector<bool> used(lines.size());
  for (std::size_t i = 0; i < lines.size(); ++i) {
    lines[i].name = kind == ViewKind::phase   ? name_of(static_cast<StepPhase>(i))
                    : kind == ViewKind::layer ? name_of(static_cast<LayerRole>(i))
                                              : name_of(static_cast<OperatorFamily>(i));
  }
  for (const OpRow& row : prediction.rows) {
    const std::size_t i = kind == ViewKind::phase   ? static_cast<std::size_t>(row.phase)
                          : kind == ViewKind::layer ? static_cast<std::size_t>(layer_role_of(row))
                                                    : static_cast<std::size_t>(family_of(row));
    used[i] = true;
    add(lines[i].all, row);
    add(lines[i].phases[static_cast<std::size_t>(row.phase)], row);
  }
  std::size_t kept = 0;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (used[i]) lines[kept++] = lines[i];
  }
  lines.resize(kept);
  const Totals& totals = prediction.totals;
  for (const auto& [name, seconds] :
       {std::pair<std::string_view, double>("bubble", totals.bubble_time_s), {"gaps", totals.launch_gap_time_s}, {"host", totals.host_bound_time_s}}) {
    if (seconds <= 0) continue;
    ViewLine& line = lines.emplace_back();
    line.name = name;
    line.waits = true;
    line.all.time_s = seconds;
  }
  for (ViewLine& line : lines) line.share = totals.step_time_s > 0 ? line.all.time_s / totals.step_time_s : 0;
  return lines;
}

}  // namespace rooftile
