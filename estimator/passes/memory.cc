// Memory of the fullest rank: state, kept activations by tensor (each counted once however many operators keep it), logits and loss buffers, KV cache, workspace.
#include <algorithm>

#include "estimator/core/checked.h"
#include "estimator/passes/step.h"

namespace rooftile {
namespace {

double tensor_bytes(const Tensor& tensor) { return static_cast<double>(tensor.elements) * bytes_of(tensor.dtype); }

struct SegmentMemory {
  double kept = 0;                // by the backward pass of one execution
  double scores = 0;              // the part of it that selective recomputation drops
  double input = 0;               // the tensor that enters
  double live = 0;                // largest inputs + outputs of one operator: what a pass without gradients holds
  double cache = 0;               // KV cache
  double dense = 0, experts = 0;  // parameters
};

SegmentMemory segment_memory(const Graph& graph, const Segment& segment, const Options& options, OpWork& work) {
  SegmentMemory memory;
  std::vector<TensorId> seen;
  double cache_elements = 0, cache_width = 0, keys = 0;
  for (const Operator& op : graph.ops_of(segment)) {
    work_of(op, work);
    (work.expert_parameters ? memory.experts : memory.dense) += to_double(work.parameters);
    for (const SavedTensor& saved : work.saved) {
      if (saved.extra_bytes > 0) {
        memory.kept += saved.extra_bytes;
        if (saved.attention_scores) memory.scores += saved.extra_bytes;
      } else if (std::find(seen.begin(), seen.end(), saved.tensor) == seen.end()) {
        seen.push_back(saved.tensor);
        memory.kept += tensor_bytes(graph.tensors[saved.tensor]);
      }
    }
    double live = 0;
    for (const TensorId tensor : graph.inputs_of(op)) live += tensor_bytes(graph.tensors[tensor]);
    for (const TensorId tensor : graph.outputs_of(op)) live += tensor_bytes(graph.tensors[tensor]);
    if (op.kind == OpKind::attention && work.context().attention == AttentionKernel::standard) {
      for (const SavedTensor& saved : work.saved) live += 2 * (saved.attention_scores ? saved.extra_bytes : 0);  // scores and probabilities
    }
    memory.live = std::max(memory.live, live);
    if (const auto* a = std::get_if<AttentionAttrs>(&op.attrs))
      keys = static_cast<double>(a->batch) * static_cast<double>(a->window > 0 ? std::min(a->window, a->seq_kv) : a->seq_kv);
    if (const auto* a = std::get_if<CacheWriteAttrs>(&op.attrs)) cache_elements = static_cast<double>(a->elements_per_token), cache_width = bytes_of(op.dtype);
  }
  memory.cache = keys * cache_elements * cache_width;
  if (!graph.tensors.empty()) memory.input = tensor_bytes(graph.tensors[segment.input]);
  // A residual stream lives beside whatever an operator works on.
  memory.live += memory.input;
  (void)options;
  return memory;
}

double logits_bytes(const Graph& graph, double bytes_per_logit) {
  for (const Operator& op : graph.ops) {
    if (const auto* a = std::get_if<CrossEntropyAttrs>(&op.attrs)) return static_cast<double>(a->tokens) * static_cast<double>(a->vocab) * bytes_per_logit;
  }
  return 0;
}

Count whole(double bytes) { return static_cast<Count>(bytes + 0.5); }

}  // namespace

MemoryTotals memory_of(const StepGraph& rank, const Options& options, const Runtime& runtime, const Device& device) {
  const Graph& graph = rank.graph;
  const Layout& layout = options.layout;
  const StateBytes state = state_bytes(options, runtime);
  const bool train = options.phase == Phase::train;
  OpWork work;
  work.begin(graph, work_context(options, runtime));

  double dense = 0, experts = 0, kept = 0, largest_layer = 0, live = 0, cache = 0, head = 0, unsharded = 0;
  for (const Segment& segment : graph.segments) {
    if (segment.repeat == 0 || segment.op_count == 0) continue;
    const SegmentMemory memory = segment_memory(graph, segment, options, work);
    const auto repeat = static_cast<double>(segment.repeat);
    dense += memory.dense * repeat;
    experts += memory.experts * repeat;
    cache += memory.cache * repeat;
    live = std::max(live, memory.live);
    if (segment.role == SegmentRole::layer) {
      const bool drops_scores = options.recompute == Recompute::selective;
      const double each = memory.kept - (drops_scores ? memory.scores : 0);
      kept += (options.recompute == Recompute::full ? memory.input : each) * repeat;
      // While one layer's backward runs, what was dropped is there again.
      if (options.recompute == Recompute::full) largest_layer = std::max(largest_layer, memory.kept);
      if (drops_scores) largest_layer = std::max(largest_layer, memory.scores);
      unsharded = std::max(unsharded, memory.dense + memory.experts);
    } else {
      head += memory.kept * repeat;
    }
  }

  // 1F1B keeps as many micro-batches as stages lie ahead, the first stage most (Narayanan et al. 2021, arXiv 2104.04473); interleaving adds (1 + (p-1)/(p v)).
  double in_flight = 1;
  if (train && layout.pp > 1) {
    const auto p = static_cast<double>(layout.pp), v = static_cast<double>(layout.vpp);
    in_flight = std::min(static_cast<double>(options.micro_batches()), layout.schedule == PipelineSchedule::gpipe ? static_cast<double>(options.micro_batches()) : p);
    if (layout.vpp > 1) in_flight *= 1 + (p - 1) / (p * v);
  }

  const double group = static_cast<double>(std::max<std::int64_t>(1, layout.dp * layout.cp));
  const double shards = layout.dp_shard > 0 ? std::min<double>(static_cast<double>(layout.dp_shard), group) : group;
  const double expert_shards = std::max(1.0, shards / static_cast<double>(layout.ep));
  const auto sharded = [&](double per_parameter, int from_stage) {
    const bool share = layout.zero >= from_stage;
    return per_parameter * (dense / (share ? shards : 1) + experts / (share ? expert_shards : 1));
  };

  MemoryTotals totals;
  double weights = sharded(state.weight, 3);
  if (layout.zero == 3) weights += 2 * unsharded * (state.transient_weight > 0 ? state.transient_weight : state.weight);  // the layer at work and the one prefetched
  const double gradients = sharded(state.gradient, 2), optimizer = sharded(state.optimizer, 1);
  double activations = 0, loss = 0;
  if (train) {
    loss = logits_bytes(graph, runtime.logits_copies_bytes);
    bool has_head = false;
    for (const Segment& segment : graph.segments) has_head = has_head || (segment.repeat > 0 && segment.name == "head");
    if (!has_head) loss = 0;
    activations = kept * in_flight + head + largest_layer + loss;
  } else {
    activations = live;
  }
  const double casts = (dense + experts) * state.transient_weight;
  const double workspace = runtime.workspace_bytes + casts;
  // Gradients that do not persist do not exist while the activations are fullest: the larger of the two moments counts.
  double peak = weights + optimizer + cache + workspace;
  peak += state.gradients_persist || !train ? gradients + activations : std::max(activations, gradients);

  totals.parameters_bytes = whole(weights);
  totals.gradients_bytes = whole(gradients);
  totals.optimizer_bytes = whole(optimizer);
  totals.activations_bytes = whole(activations);
  totals.kv_cache_bytes = whole(cache);
  totals.workspace_bytes = whole(workspace);
  totals.peak_bytes = whole(peak);
  totals.capacity_bytes = device.memory_bytes;
  totals.fits = peak <= device.memory_bytes;
  return totals;
}

}  // namespace rooftile
