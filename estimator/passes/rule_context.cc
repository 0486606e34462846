#include "estimator/passes/rule_context.h"

#include <algorithm>

namespace rooftile {
namespace {

constexpr std::size_t size_index(std::string_view name) {
  for (std::size_t i = 0; i < kRuleSizeNames.size(); ++i) {
    if (kRuleSizeNames[i] == name) return i;
  }
  return 0;
}

double number(std::int64_t value) { return static_cast<double>(value); }

struct AttributeReader {
  RuleContext& context;

  void operator()(const LinearAttrs& a) const {
    context.size("tokens", number(a.tokens));
    context.size("in", number(a.in));
    context.size("out", number(a.out));
    context.size("experts", number(a.experts));
    context.size("top_k", number(a.top_k));
    context.size("weights", number(a.in) * number(a.out) * number(std::max<std::int64_t>(1, a.experts)));
    context.size("bias", a.bias ? number(a.out) : 0);
    context.size("vocab", number(a.out));
    context.set("bias", a.bias);
    context.set("tied", a.tied);
    context.set("transposed_weight", a.transposed_weight);
    context.set("grouped", a.experts > 0);
    context.set("router", a.router);
    context.set("unaligned", a.out % 8 != 0);
  }
  void operator()(const MatmulAttrs&) const {}
  void operator()(const AttentionAttrs& a) const {
    context.size("batch", number(a.batch));
    context.size("heads", number(a.heads));
    context.size("kv_heads", number(a.kv_heads));
    context.size("seq_q", number(a.seq_q));
    context.size("seq_kv", number(a.seq_kv));
    context.size("head_dim", number(a.head_dim));
    context.size("v_head_dim", number(a.v_head_dim));
    context.set("causal", a.causal);
    context.set("window", a.window > 0);
    context.set("softcap", a.softcap);
    context.set("sinks", a.sinks);
    context.set("position_bias", a.position_bias);
    context.set("gqa", a.kv_heads < a.heads);
  }
  void operator()(const NormAttrs& a) const {
    context.size("rows", number(a.rows));
    context.size("cols", number(a.cols));
    context.set("bias", a.bias);
    context.set("over_heads", a.weight_cols > 0);
  }
  void operator()(const PointwiseAttrs& a) const {
    context.size("numel", number(a.numel));
    context.size("weights", number(a.parameters));
  }
  void operator()(const RotaryAttrs& a) const {
    context.size("tokens", number(a.tokens));
    context.size("heads", number(a.heads));
    context.size("kv_heads", number(a.kv_heads));
    context.size("rotary_dim", number(a.rotary_dim));
    context.size("head_dim", number(a.head_dim > 0 ? a.head_dim : a.rotary_dim));
  }
  void operator()(const EmbeddingAttrs& a) const {
    context.size("tokens", number(a.tokens));
    context.size("vocab", number(a.vocab));
    context.size("hidden", number(a.hidden));
    context.set("tied", a.tied);
  }
  void operator()(const RelativeBiasAttrs& a) const {
    context.size("heads", number(a.heads));
    context.size("seq_q", number(a.seq_q));
    context.size("seq_kv", number(a.seq_kv));
  }
  void operator()(const CrossEntropyAttrs& a) const {
    context.size("tokens", number(a.tokens));
    context.size("vocab", number(a.vocab));
  }
  void operator()(const RouterAttrs& a) const {
    context.size("tokens", number(a.tokens));
    context.size("experts", number(a.experts));
    context.size("top_k", number(a.top_k));
  }
  void operator()(const MoeMoveAttrs& a) const {
    context.size("tokens", number(a.tokens));
    context.size("hidden", number(a.hidden));
    context.size("top_k", number(a.top_k));
  }
  void operator()(const ConvolutionAttrs& a) const {
    context.size("tokens", number(a.batch) * number(a.out_positions));
    context.size("in", number(a.batch) * number(a.in_positions) * number(a.in_channels));
    context.size("out", number(a.out_channels));
    context.size("channels", number(a.in_channels));
    context.size("weights", number(a.out_channels) * number(a.in_channels) * number(a.kernel_elements) / number(std::max<std::int64_t>(1, a.groups)));
    context.set("bias", a.bias);
  }
  void operator()(const SoftmaxAttrs& a) const {
    context.size("rows", number(a.rows));
    context.size("cols", number(a.cols));
  }
  void operator()(const ReductionAttrs& a) const {
    context.size("rows", number(a.rows));
    context.size("cols", number(a.cols));
  }
  void operator()(const CacheWriteAttrs& a) const {
    context.size("tokens", number(a.tokens));
    context.size("numel", number(a.tokens) * number(a.elements_per_token));
  }
  void operator()(const OptimizerAttrs& a) const { context.size("parameters", number(a.parameters)); }
  void operator()(const CollectiveAttrs&) const {}
  void operator()(const FreeAttrs&) const {}
};

}  // namespace

void RuleContext::set(std::string_view word, bool value) {
  const auto index = rule_word(word);
  if (index && value) words |= RuleWords{1} << *index;
}

void RuleContext::size(std::string_view which, double value) { sizes[size_index(which)] = value; }

RuleWords step_words(const Graph& graph, const Options& options, const Runtime& runtime) {
  RuleContext words;
  words.set(name_of(options.phase));
  words.set("mixed", options.precision == Precision::mixed && runtime.autocast && bits_of(options.dtype) < 32);
  words.set("standard", options.attention == AttentionKernel::standard);
  for (const std::string& trait : graph.model.traits) words.set(trait);
  return words.words;
}

RuleContext operator_context(const StepGraph& step, const StepEntry& entry, const TensorFlow& flow, RuleWords words, std::int64_t past) {
  const Graph& graph = step.graph;
  const Operator& op = graph.ops[entry.op];
  RuleContext context;
  context.words = words;
  context.name = op.name;
  context.size("sequences", number(graph.batch));
  context.size("seq", number(graph.seq));
  context.size("span", number(graph.seq + past));
  std::visit(AttributeReader{context}, op.attrs);
  context.set("recompute", entry.phase == StepPhase::recompute);
  context.set("several_outputs", op.outputs > 1);
  context.set("cross", op.name.substr(0, 6) == "cross_");
  if (op.inputs > 0) context.set("wide", flow.wide[graph.inputs_of(op)[0]]);
  if (op.inputs > 0) context.set("channels_first", flow.channels_first[graph.inputs_of(op)[0]]);
  if (op.inputs > 1) context.set("halves", flow.part[graph.inputs_of(op)[0]] && flow.part[graph.inputs_of(op)[1]]);
  for (std::size_t i = 0; i < op.inputs; ++i) context.set("shared", flow.shared[op.first_edge + i]);
  return context;
}

void add_call(RuleContext& context, const KernelCall& call) {
  context.function = {};
  if (const auto* gemm = std::get_if<GemmShape>(&call.shape)) {
    context.size("m", number(gemm->m));
    context.size("n", number(gemm->n));
    context.size("k", number(gemm->k));
    if (context.sizes[size_index("seq_q")] == 0) context.size("batch", number(gemm->batch));  // an attention has a batch of its own
    context.size("numel", number(gemm->m) * number(gemm->n) * number(gemm->batch));
  } else if (const auto* row = std::get_if<RowShape>(&call.shape)) {
    context.size("rows", number(row->rows));
    context.size("cols", number(row->cols));
    context.size("numel", number(row->rows) * number(row->cols));
  } else if (const auto* pointwise = std::get_if<PointwiseShape>(&call.shape)) {
    context.size("numel", number(pointwise->numel));
    context.function = name_of(pointwise->kind);
  } else if (const auto* loss = std::get_if<CrossEntropyShape>(&call.shape)) {
    context.size("numel", number(loss->tokens) * number(loss->vocab));
  } else if (const auto* embedding = std::get_if<EmbeddingShape>(&call.shape)) {
    context.size("numel", number(embedding->tokens) * number(embedding->hidden));
  } else if (const auto* optimizer = std::get_if<OptimizerShape>(&call.shape)) {
    context.size("numel", number(optimizer->numel));
  }
}

bool holds(const RuleCondition& condition, const RuleContext& context) {
  if ((context.words & condition.yes) != condition.yes || (context.words & condition.no) != 0) return false;
  const auto among = [](const std::vector<std::string>& list, std::string_view word) { return std::find(list.begin(), list.end(), word) != list.end(); };
  if (!condition.names.empty() && !among(condition.names, context.name)) return false;
  if (among(condition.not_names, context.name)) return false;
  if (!condition.functions.empty() && !among(condition.functions, context.function)) return false;
  if (among(condition.not_functions, context.function)) return false;
  for (const RuleCondition::Comparison& comparison : condition.comparisons) {
    const double left = comparison.left.value(context.sizes);
    if (comparison.less ? left >= comparison.right : left <= comparison.right) return false;
  }
  return true;
}

}  // namespace rooftile
