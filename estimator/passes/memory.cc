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
  double packed = 0;              // bytes of weights that stay packed, which are not among them
};

SegmentMemory segment_memory(const Graph& graph, const Segment& segment, const Options& options, OpWork& work) {
  SegmentMemory memory;
  std::vector<TensorId> seen;
  double width = 0;  // bytes per cached token of the last cache write, which the next attention reads
  for (const Operator& op : graph.ops_of(segment)) {
    work_of(op, work);
    const bool packed = options.phase != Phase::train && work.packed_bytes > 0;
    (work.expert_parameters ? memory.experts : memory.dense) += to_double(work.parameters - (packed ? work.packed_parameters : Count{0}));
    if (packed) memory.packed += to_double(work.packed_bytes);
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
    if (op.kind == OpKind::attention) {
      for (const SavedTensor& saved : work.saved) live += 2 * (saved.attention_scores ? saved.extra_bytes : 0);  // scores and probabilities
    }
    memory.live = std::max(memory.live, live);
    if (const auto* c = std::get_if<CacheWriteAttrs>(&op.attrs)) width = static_cast<double>(c->elements_per_token) * bytes_of(op.dtype);
    if (const auto* a = std::get_if<AttentionAttrs>(&op.attrs); a != nullptr && width > 0) {
      const std::int64_t keys = a->window > 0 ? std::min(a->window, a->seq_kv) : a->seq_kv;
      memory.cache += width * static_cast<double>(a->batch) * static_cast<double>(keys) / static_cast<double>(options.layout.cp);
      width = 0;
    }
  }
  if (!graph.tensors.empty()) memory.input = tensor_bytes(graph.tensors[segment.input]);
  // A residual stream lives beside whatever an operator works on.
  memory.live += memory.input;
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

MemoryTotals memory_of(const StepGraph& rank, const Stage& stage, const Options& options, const Runtime& runtime, const Device& device) {
  const Graph& graph = rank.graph;
  const Layout& layout = options.layout;
  const StateBytes state = state_bytes(options, runtime);
  const bool train = options.phase == Phase::train;
  OpWork work;
  WorkContext context = work_context(options, runtime, &device);
  context.kernels = false;
  work.begin(graph, context);

  double dense = 0, experts = 0, packed = 0, kept = 0, largest_layer = 0, live = 0, cache = 0, head = 0, unsharded = 0;
  for (const Segment& segment : graph.segments) {
    if (segment.repeat == 0 || segment.op_count == 0) continue;
    const SegmentMemory memory = segment_memory(graph, segment, options, work);
    const auto repeat = static_cast<double>(segment.repeat);
    dense += memory.dense * repeat;
    experts += memory.experts * repeat;
    packed += memory.packed * repeat;
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

  // 1F1B keeps one micro-batch for each stage that lies ahead, itself included, so the first stage holds most (Narayanan et al. 2021, arXiv 2104.04473); interleaving holds
  // (1 + (p - 1) / (p v)) times as many; never more than there are.
  double in_flight = 1;
  if (train && layout.pp > 1) {
    const auto p = static_cast<double>(layout.pp), v = static_cast<double>(layout.vpp), micro_batches = static_cast<double>(options.micro_batches());
    in_flight = layout.schedule == PipelineSchedule::gpipe ? micro_batches : p - static_cast<double>(stage.index);
    if (layout.vpp > 1) in_flight = p * (1 + (p - 1) / (p * v));
    in_flight = std::min(in_flight, micro_batches);
  }

  const double group = static_cast<double>(std::max<std::int64_t>(1, layout.dp * layout.cp));
  const double shards = layout.dp_shard > 0 ? std::min<double>(static_cast<double>(layout.dp_shard), group) : group;
  const double expert_shards = std::max(1.0, shards * static_cast<double>(layout.tp) / static_cast<double>(layout.ep * layout.expert_tp()));
  const auto sharded = [&](double per_parameter, int from_stage) {
    const bool share = layout.zero >= from_stage;
    return per_parameter * (dense / (share ? shards : 1) + experts / (share ? expert_shards : 1));
  };

  MemoryTotals totals;
  double weights = sharded(state.weight, 3) + packed;
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
  const double casts = layout.zero == 3 ? 0 : (dense + experts) * state.transient_weight;  // fully sharded: the gathered layers above are the copies
  const double workspace = runtime.workspace_bytes + casts;
  totals.parameters_bytes = whole(weights);
  totals.gradients_bytes = whole(gradients);
  totals.optimizer_bytes = whole(optimizer);
  totals.activations_bytes = whole(activations);
  totals.kv_cache_bytes = whole(cache);
  totals.workspace_bytes = whole(workspace);
  // Gradients that do not persist do not exist while the activations are fullest: the larger of the two moments counts.
  const Count moving = state.gradients_persist || !train ? totals.gradients_bytes + totals.activations_bytes : std::max(totals.activations_bytes, totals.gradients_bytes);
  totals.peak_bytes = totals.parameters_bytes + totals.optimizer_bytes + totals.kv_cache_bytes + totals.workspace_bytes + moving;
  totals.capacity_bytes = device.memory_bytes;
  totals.fits = to_double(totals.peak_bytes) <= device.memory_bytes;
  return totals;
}

}  // namespace rooftile
