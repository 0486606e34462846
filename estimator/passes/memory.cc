// Memory of the fullest rank: what is there before the step (weights, optimizer states, cache), and the walk over its tensors.
#include <algorithm>
#include <array>
#include <vector>

#include "estimator/core/checked.h"
#include "estimator/passes/memory_blocks.h"
#include "estimator/passes/memory_walk.h"
#include "estimator/passes/step.h"

namespace rooftile {
namespace {

Count whole(double bytes) { return static_cast<Count>(bytes + 0.5); }

// What a rank holds of the model.
struct Holdings {
  double dense = 0, experts = 0;               // parameters
  double unsharded = 0;                        // of the largest layer
  double cache = 0, cache_grown = 0;           // KV cache at the end of the step; the part that the step adds
  double packed = 0;                           // bytes of weights that stay packed, which are not among the parameters
  double weights_waste = 0, states_waste = 0;  // bytes that blocks take beyond the tensors in them
  double masks = 0, inputs = 0;                // alive through the whole step
};

// Sizes of an operator's learned tensors.
void parameter_tensors(const Operator& op, double width, std::vector<double>& sizes) {
  if (const auto* linear = std::get_if<LinearAttrs>(&op.attrs)) {
    if (!linear->tied)
      sizes.push_back(static_cast<double>(std::max<std::int64_t>(1, linear->experts)) * static_cast<double>(linear->in) * static_cast<double>(linear->out) * width);
  } else if (const auto* table = std::get_if<EmbeddingAttrs>(&op.attrs)) {
    if (!table->tied) sizes.push_back(static_cast<double>(table->vocab) * static_cast<double>(table->hidden) * width);
  } else if (const auto* pointwise = std::get_if<PointwiseAttrs>(&op.attrs); pointwise != nullptr && pointwise->parameters > 0) {
    sizes.push_back(static_cast<double>(pointwise->parameters) * width);
  }
}

Holdings holdings_of(const Graph& graph, const Options& options, const Runtime& runtime, const StateBytes& state, OpWork& work) {
  Holdings held;
  const bool blocks = runtime.caching_allocator && options.layout.zero == 0;
  std::vector<double> tensors, states;
  const bool standard = work.context().attention == AttentionKernel::standard;
  std::array<std::int64_t, 4> windows{};
  std::size_t masks = 0;
  for (const Segment& segment : graph.segments) {
    if (segment.repeat == 0 || segment.op_count == 0) continue;
    const auto repeat = static_cast<double>(segment.repeat);
    double dense = 0, experts = 0, width = 0, grown = 0;
    tensors.clear();
    states.clear();
    for (const Operator& op : graph.ops_of(segment)) {
      work_of(op, work);
      const bool packed = options.phase != Phase::train && work.packed_bytes > 0;
      (work.expert_parameters ? experts : dense) += to_double(work.parameters - (packed ? work.packed_parameters : Count{0}));
      if (packed) held.packed += to_double(work.packed_bytes) * repeat;
      if (blocks) parameter_tensors(op, state.weight, tensors);
      if (const auto* c = std::get_if<CacheWriteAttrs>(&op.attrs)) {
        width = static_cast<double>(c->elements_per_token) * bytes_of(op.dtype);
        grown += static_cast<double>(c->tokens) * width;
      }
      if (const auto* a = std::get_if<AttentionAttrs>(&op.attrs)) {
        if (width > 0) {
          const std::int64_t keys = a->window > 0 ? std::min(a->window, a->seq_kv) : a->seq_kv;
          held.cache += repeat * width * static_cast<double>(a->batch) * static_cast<double>(keys) / static_cast<double>(options.layout.cp);
          width = 0;
        }
        const bool builds = runtime.builds_mask || (standard && !runtime.memory_programs.empty());
        if (builds && a->causal && a->seq_q > 1 && masks < windows.size() &&
            std::find(windows.begin(), windows.begin() + static_cast<std::ptrdiff_t>(masks), a->window + 1) == windows.begin() + static_cast<std::ptrdiff_t>(masks)) {
          windows[masks++] = a->window + 1;
          held.masks += static_cast<double>(a->batch) * static_cast<double>(a->seq_q) * static_cast<double>(a->seq_kv) * bytes_of(options.dtype);
        }
      }
      if (const auto* loss = std::get_if<CrossEntropyAttrs>(&op.attrs); loss != nullptr && !runtime.memory_programs.empty())
        held.inputs += 8 * static_cast<double>(loss->tokens);  // labels
    }
    held.cache_grown += grown * repeat;
    held.dense += dense * repeat;
    held.experts += experts * repeat;
    if (segment.role == SegmentRole::layer) held.unsharded = std::max(held.unsharded, dense + experts);
    if (blocks) {
      held.weights_waste += allocation_waste(tensors, segment.repeat);
      const double moment = bytes_of(state.state_dtype) / std::max(1.0, state.weight);
      for (const double bytes : tensors) states.insert(states.end(), 2, bytes * moment);
      held.states_waste += allocation_waste(states, segment.repeat);
    }
  }
  return held;
}

// 1F1B keeps one micro-batch for each stage that lies ahead, itself included, so the first stage holds most (Narayanan et al. 2021, arXiv 2104.04473); interleaving holds
// (1 + (p - 1) / (p v)) times as many; never more than there are.
double micro_batches_in_flight(const Options& options, const Stage& stage) {
  const Layout& layout = options.layout;
  if (options.phase != Phase::train || layout.pp <= 1) return 1;
  const auto p = static_cast<double>(layout.pp), v = static_cast<double>(layout.vpp), micro_batches = static_cast<double>(options.micro_batches());
  double in_flight = layout.schedule == PipelineSchedule::gpipe ? micro_batches : p - static_cast<double>(stage.index);
  if (layout.vpp > 1) in_flight = p * (1 + (p - 1) / (p * v));
  return std::min(in_flight, micro_batches);
}

}  // namespace

MemoryTotals memory_of(const StepGraph& rank, const Stage& stage, const Options& options, const Runtime& runtime, const Device& device, bool explain) {
  const Layout& layout = options.layout;
  const StateBytes state = state_bytes(options, runtime);
  const bool train = options.phase == Phase::train;
  OpWork work;
  WorkContext context = work_context(options, runtime, &device);
  context.kernels = false;
  work.begin(rank.graph, context);
  const Holdings held = holdings_of(rank.graph, options, runtime, state, work);

  const double group = static_cast<double>(std::max<std::int64_t>(1, layout.dp * layout.cp));
  const double shards = layout.dp_shard > 0 ? std::min<double>(static_cast<double>(layout.dp_shard), group) : group;
  const double expert_shards = std::max(1.0, shards * static_cast<double>(layout.tp) / static_cast<double>(layout.ep * layout.expert_tp()));
  const auto sharded = [&](double per_parameter, int from_stage) {
    const bool share = layout.zero >= from_stage;
    return per_parameter * (held.dense / (share ? shards : 1) + held.experts / (share ? expert_shards : 1));
  };

  MemoryBase base;
  base.weights = sharded(state.weight, 3) + held.packed + held.weights_waste;
  if (layout.zero == 3) base.weights += 2 * held.unsharded * (state.transient_weight > 0 ? state.transient_weight : state.weight);  // the layer at work and the one prefetched
  base.optimizer = sharded(state.optimizer, 1) + (state.optimizer > 0 ? held.states_waste : 0);
  const double gradients = sharded(state.gradient, 2) + (train ? held.weights_waste * state.gradient / std::max(1.0, state.weight) : 0);
  base.gradients_persist = state.gradients_persist;
  base.gradients_accumulate = train && !state.gradients_persist && options.micro_batches() > 1;
  if (train && (base.gradients_persist || base.gradients_accumulate)) base.gradients = gradients;
  if (layout.zero >= 2) base.gradient_share = 1 / shards, base.expert_gradient_share = 1 / expert_shards;
  std::int64_t layers = 0;
  for (const Segment& segment : rank.graph.segments) layers += segment.role == SegmentRole::layer && segment.op_count > 0 ? segment.repeat : 0;
  if (layers > 0 && state.weight > 0) base.gradient_waste = held.weights_waste * state.gradient / state.weight / static_cast<double>(layers);
  base.cache = held.cache;
  if (runtime.grows_cache && options.phase == Phase::prefill) base.cache = std::max(0.0, held.cache - held.cache_grown);
  base.workspace = runtime.workspace_bytes + held.masks + held.inputs;
  base.backward_workspace = runtime.backward_workspace_bytes;
  base.in_flight = micro_batches_in_flight(options, stage);
  // A thread's workspace stays once it is there, so from the second step on both are there from the beginning.
  if (train) base.workspace += base.backward_workspace;
  base.backward_workspace = 0;

  MemoryWalk walk(rank, options, runtime, device, base);
  walk.run();
  MemoryTotals totals;
  const double casts_beside = runtime.memory_programs.empty() && layout.zero < 3 ? (held.dense + held.experts) * state.transient_weight : 0;
  const double casts = walk.casts_at_peak() + casts_beside, peak = walk.peak() + casts_beside;
  totals.parameters_bytes = whole(base.weights);
  totals.optimizer_bytes = whole(base.optimizer);
  totals.gradients_bytes = whole(gradients);
  totals.kv_cache_bytes = whole(walk.cache_at_peak() > 0 ? walk.cache_at_peak() : held.cache);
  totals.workspace_bytes = whole(runtime.workspace_bytes + (train ? runtime.backward_workspace_bytes : 0) + casts);
  totals.peak_bytes = whole(peak);
  totals.activations_bytes = whole(std::max(0.0, walk.most_moving() + held.masks + held.inputs));
  totals.reserved_bytes = whole(peak + (runtime.caching_allocator ? walk.largest_block() : 0));
  totals.capacity_bytes = device.memory_bytes;
  totals.fits = to_double(totals.peak_bytes) <= device.memory_bytes;
  if (explain) walk.explain(totals);
  return totals;
}

}  // namespace rooftile
