// Degrees checked against each other and the model; what follows from the rest is filled in. What does not divide is refused; what is merely odd is a warning.
#include <algorithm>
#include <string>
#include <utility>

#include "estimator/passes/step.h"

namespace rooftile {
namespace {

std::string number(std::int64_t value) { return std::to_string(value); }

tl::unexpected<Error> refuse(std::string message, std::string place, std::string hint) { return fail(ErrorCode::usage, std::move(message), std::move(place), std::move(hint)); }

}  // namespace

Result<Options> resolve_options(Options options, const Graph& graph, std::vector<Warning>& warnings) {
  Layout& layout = options.layout;
  const ModelInfo& model = graph.model;
  const struct {
    std::int64_t value;
    const char* name;
  } positive[] = {{options.mbs, "--mbs"}, {layout.gpus, "--gpus"}, {layout.gpus_per_node, "--gpus-per-node"}, {layout.tp, "--tp"}, {layout.pp, "--pp"}, {layout.vpp, "--vpp"},
                  {layout.cp, "--cp"},    {layout.ep, "--ep"}};
  for (const auto& degree : positive) {
    if (degree.value < 1) return refuse("must be at least 1, not " + number(degree.value), degree.name, "");
  }
  constexpr std::int64_t kMostGpus = 1 << 24;
  if (layout.gpus > kMostGpus) return refuse("at most " + number(kMostGpus) + " GPUs", "--gpus", "");
  if (layout.tp > kMostGpus || layout.pp > kMostGpus || layout.cp > kMostGpus || layout.ep > kMostGpus || layout.vpp > kMostGpus)
    return refuse("a degree is absurdly large", "layout", "");
  for (const auto& degree : {std::pair{layout.tp, "--tp"}, {layout.pp, "--pp"}, {layout.cp, "--cp"}, {layout.ep, "--ep"}, {layout.dp, "--dp"}}) {
    if (degree.first > layout.gpus) return refuse(number(degree.first) + " ranks need at least that many GPUs, not " + number(layout.gpus), degree.second, "set --gpus");
  }
  // Each degree is at most 2^24, so the product of three fits 128 bits, and what divides the GPUs fits 24.
  const Count wanted = Count{layout.tp} * layout.pp * layout.cp;
  const std::int64_t model_ranks = wanted > layout.gpus ? layout.gpus + 1 : static_cast<std::int64_t>(wanted);
  if (layout.gpus % model_ranks != 0) {
    return refuse("tp x pp x cp = " + to_string(wanted) + " does not divide " + number(layout.gpus) + " GPUs", "--gpus",
                  "use a multiple of " + to_string(wanted) + ", or smaller degrees");
  }
  const std::int64_t dp = layout.gpus / model_ranks;
  if (layout.dp > 0 && layout.dp != dp) {
    return refuse("tp x pp x cp x dp = " + to_string(wanted * layout.dp) + " is not " + number(layout.gpus) + " GPUs", "--dp", "leave --dp out: it is then " + number(dp));
  }
  layout.dp = dp;
  const Count once = Count{options.mbs} * dp;
  if (!fits_int64(once * std::max<std::int64_t>(1, graph.seq)))
    return fail(ErrorCode::invalid, "a step of " + to_string(once) + " sequences is above 2^63 tokens", "--mbs", "use a smaller batch");
  if (options.gbs == 0) options.gbs = static_cast<std::int64_t>(once);
  if (options.gbs < 0) return refuse("must be positive", "--gbs", "");
  if (options.gbs % static_cast<std::int64_t>(once) != 0) {
    return refuse("a global batch of " + number(options.gbs) + " does not divide into micro-batches of " + number(options.mbs) + " on " + number(dp) + " data-parallel ranks",
                  "--gbs", "use a multiple of " + to_string(once));
  }
  if (model.heads > 0 && model.heads % layout.tp != 0) {
    return refuse(number(model.heads) + " attention heads do not divide over " + number(layout.tp) + " tensor-parallel ranks", "--tp", "use a divisor of the head count");
  }
  if (model.experts > 0 && model.experts % layout.ep != 0) {
    return refuse(number(model.experts) + " experts do not divide over " + number(layout.ep) + " expert-parallel ranks", "--ep", "use a divisor of the expert count");
  }
  const auto warn = [&](const char* code, std::string message) { warnings.push_back({code, std::move(message)}); };
  if (layout.ep > 1 && model.experts == 0) {
    warn("option_without_effect", "--ep has no effect: the model has no experts");
    layout.ep = 1;
  }
  if (layout.etp > layout.tp) return refuse("expert tensor parallelism is at most tensor parallelism, " + number(layout.tp), "--etp", "use at most " + number(layout.tp));
  if (layout.etp > 0 && layout.tp % layout.etp != 0) return refuse("must divide --tp = " + number(layout.tp), "--etp", "");
  if (layout.etp > 0 && model.experts == 0) {
    warn("option_without_effect", "--etp has no effect: the model has no experts");
    layout.etp = 0;
  }
  const std::int64_t stage_ranks = dp * layout.cp * layout.tp;
  if (model.experts > 0 && stage_ranks % (layout.ep * layout.expert_tp()) != 0) {
    return refuse("ep x etp = " + number(layout.ep * layout.expert_tp()) + " does not divide the " + number(stage_ranks) + " ranks of a pipeline stage", "--ep",
                  layout.etp == 0 && layout.tp > 1 ? "etp is tp unless given: --etp 1 gives the experts to whole ranks" : "use smaller degrees");
  }
  const std::int64_t sharing = dp * layout.cp;
  if (layout.dp_shard < 0 || (layout.dp_shard > 0 && (layout.dp_shard > sharing || sharing % layout.dp_shard != 0))) {
    return refuse("must divide the " + number(sharing) + " ranks that hold the same parameters", "--dp-shard", "leave it out to share among all of them");
  }
  if (layout.dp_shard > 0 && layout.zero == 0) warn("option_without_effect", "--dp-shard has no effect with --zero 0");
  if (layout.zero > 0 && sharing == 1) warn("option_without_effect", "--zero has no effect on one data-parallel rank");
  const bool train = options.phase == Phase::train;
  if (layout.overlap_grad_reduce && (!train || sharing == 1)) {
    warn("option_without_effect", "--overlap-grad-reduce has no effect: no gradients are reduced");
    layout.overlap_grad_reduce = false;
  }
  if (layout.overlap_param_gather && (!train || sharing == 1 || layout.zero == 0)) {
    warn("option_without_effect", "--overlap-param-gather has no effect: no parameters are gathered");
    layout.overlap_param_gather = false;
  }
  if (layout.zero < 0 || layout.zero > 3) return refuse("must be 0, 1, 2 or 3", "--zero", "");
  if (layout.sp && layout.tp == 1) {
    warn("option_without_effect", "--sp has no effect without tensor parallelism");
    layout.sp = false;
  }
  const auto layers = static_cast<std::int64_t>(graph.layers.size());
  if (layout.pp > 1 && layers > 0 && layout.pp > layers) {
    return refuse(number(layers) + " layers cannot be dealt to " + number(layout.pp) + " stages", "--pp", "use at most " + number(layers));
  }
  if (layout.vpp > 1 && layout.pp == 1) {
    warn("option_without_effect", "--vpp has no effect without pipeline parallelism");
    layout.vpp = 1;
  }
  if (layout.vpp > 1 && layout.schedule != PipelineSchedule::interleaved) {
    if (layout.schedule == PipelineSchedule::gpipe) warn("option_without_effect", "--vpp interleaves; --pp-schedule gpipe is not used");
    layout.schedule = PipelineSchedule::interleaved;
  }
  if (layout.vpp == 1 && layout.schedule == PipelineSchedule::interleaved) {
    warn("option_without_effect", "--pp-schedule interleaved needs --vpp above 1; 1f1b is used");
    layout.schedule = PipelineSchedule::one_f_one_b;
  }
  if (layout.pp > 1 && layers % (layout.pp * layout.vpp) != 0) {
    warn("layers_not_divisible", number(layers) + " layers do not divide over " + number(layout.pp * layout.vpp) + " pipeline chunks; the fullest stage is timed");
  }
  if (layout.pp > 1 && options.micro_batches() < layout.pp) {
    warn("few_micro_batches", number(options.micro_batches()) + " micro-batches keep at most that many of " + number(layout.pp) + " pipeline stages busy");
  }
  if (layout.tp > layout.gpus_per_node) warn("tp_wider_than_node", "tensor parallelism over " + number(layout.tp) + " GPUs leaves the node of " + number(layout.gpus_per_node));
  if (layout.zero == 3 && layout.pp > 1) warn("zero3_with_pipeline", "ZeRO-3 with pipeline parallelism gathers every layer again for every micro-batch");
  if (model.kv_heads > 0 && model.kv_heads < layout.tp) {
    warn("kv_heads_replicated", number(model.kv_heads) + " key-value heads on " + number(layout.tp) + " ranks: they are replicated");
  }
  const std::int64_t cached = options.phase == Phase::decode || options.phase == Phase::prefill ? options.context : 0;
  if (model.max_positions > 0 && graph.seq > model.max_positions - std::min(cached, model.max_positions)) {
    warn("seq_above_max_positions", "sequence " + number(graph.seq) + (cached > 0 ? " after " + number(cached) + " cached tokens" : std::string()) +
                                        " is longer than the model's " + number(model.max_positions) + " positions");
  }
  if (graph.seq % layout.cp != 0) warn("seq_not_divisible", "sequence " + number(graph.seq) + " does not divide over " + number(layout.cp) + " context-parallel ranks");
  return options;
}

}  // namespace rooftile
