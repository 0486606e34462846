// Parallel layout as a pass: every operator's sizes become one rank's, and the communication that the layout needs is added.
//   tensor parallelism   Megatron: column-parallel then row-parallel linears, one all-reduce per direction, or all-gather + reduce-scatter with sequence parallelism
//                        (Shoeybi et al. 2019, arXiv 1909.08053; Korthikanti et al. 2022, arXiv 2205.05198)
//   context parallelism  tokens are divided; attention work is divided evenly (balanced causal halves), keys and values travel
//   expert parallelism   experts are divided, tokens travel by all-to-all
//   data parallelism     gradients all-reduced, or reduce-scattered with parameters gathered (ZeRO, Rajbhandari et al. 2020, arXiv 1910.02054)
#include <algorithm>

#include "estimator/core/checked.h"
#include "estimator/passes/step.h"

namespace rooftile {
namespace {

std::int64_t part_of(std::int64_t size, std::int64_t ranks) { return ranks > 1 ? ceil_div(size, ranks) : size; }

// Rewrites one operator's sizes; one overload per family.
struct Divide {
  const Layout& layout;

  std::int64_t tokens(std::int64_t count, Split split) const {
    const std::int64_t local = part_of(count, layout.cp);
    return split == Split::sequence && layout.sp ? part_of(local, layout.tp) : local;
  }
  std::int64_t features(std::int64_t count, Split split) const { return split == Split::column ? part_of(count, layout.tp) : count; }

  void operator()(LinearAttrs& a) const {
    const Count whole = Count{a.in} * a.out;
    divide(a);
    if (a.weight_bytes > 0 && whole > 0) a.weight_bytes = static_cast<std::int64_t>((Count{a.weight_bytes} * a.in * a.out + whole - 1) / whole);
  }
  void divide(LinearAttrs& a) const {
    a.tokens = part_of(a.tokens, layout.cp);
    if (a.split == Split::expert) {
      const std::int64_t etp = layout.expert_tp();
      a.tokens = std::max<std::int64_t>(1, ceil_div(a.tokens * std::min(etp, layout.tp), layout.tp));
      a.experts = part_of(a.experts, layout.ep);
      a.expert_group = layout.ep;
      (a.feature_split == Split::row ? a.in : a.out) = part_of(a.feature_split == Split::row ? a.in : a.out, etp);
      return;
    }
    if (a.experts > 0 && a.split == Split::column) {
      // One matrix per attention head (latent attention's absorbed projections): the heads are divided.
      a.experts = part_of(a.experts, layout.tp);
      a.top_k = part_of(a.top_k, layout.tp);
      return;
    }
    if (a.split == Split::sequence && layout.sp) a.tokens = part_of(a.tokens, layout.tp);
    if (a.split == Split::column) a.out = part_of(a.out, layout.tp);
    if (a.split == Split::row) a.in = part_of(a.in, layout.tp);
  }
  void operator()(MatmulAttrs& a) const { a.batch = features(a.batch, a.split); }
  void operator()(AttentionAttrs& a) const {
    a.heads = features(a.heads, a.split);
    a.kv_heads = std::max<std::int64_t>(1, features(a.kv_heads, a.split));
    if (layout.cp > 1) {
      // Balanced chunks give every rank 1/cp of the kept pairs; the same share of the heads over the whole sequence is that work with the same mask.
      a.heads = part_of(a.heads, layout.cp);
      a.kv_heads = std::min(a.heads, std::max<std::int64_t>(1, a.kv_heads / layout.cp));
    }
  }
  void operator()(NormAttrs& a) const {
    a.rows = part_of(a.rows, layout.cp);
    if (a.split == Split::column) a.rows = part_of(a.rows, layout.tp);
    if (a.split == Split::sequence && layout.sp) a.rows = part_of(a.rows, layout.tp);
  }
  void operator()(PointwiseAttrs& a) const {
    a.numel = part_of(a.numel, layout.cp);
    if (a.split == Split::column) a.numel = part_of(a.numel, layout.tp);
    if (a.split == Split::sequence && layout.sp) a.numel = part_of(a.numel, layout.tp);
    // Experts see tokens x top_k rows whose number does not change with ep; only their features are divided, and tokens where etp < tp.
    if (a.split == Split::expert) a.numel = part_of(a.numel, layout.tp);
  }
  void operator()(RotaryAttrs& a) const {
    a.tokens = part_of(a.tokens, layout.cp);
    a.heads = features(a.heads, a.split);
    a.kv_heads = a.kv_heads > 0 ? std::max<std::int64_t>(1, features(a.kv_heads, a.split)) : 0;
  }
  void operator()(EmbeddingAttrs& a) const {
    a.tokens = part_of(a.tokens, layout.cp);
    a.vocab = features(a.vocab, a.split);
  }
  void operator()(RelativeBiasAttrs& a) const { a.heads = features(a.heads, a.split); }
  void operator()(CrossEntropyAttrs& a) const {
    a.tokens = part_of(a.tokens, layout.cp);
    a.vocab = features(a.vocab, a.split);
  }
  void operator()(RouterAttrs& a) const { a.tokens = tokens(a.tokens, a.split); }
  void operator()(MoeMoveAttrs& a) const {
    a.tokens = part_of(a.tokens, layout.cp);
    a.tokens = std::max<std::int64_t>(1, ceil_div(a.tokens * std::min(layout.expert_tp(), layout.tp), layout.tp));
  }
  void operator()(ConvolutionAttrs&) const {}
  void operator()(SoftmaxAttrs& a) const { a.rows = features(part_of(a.rows, layout.cp), a.split); }
  void operator()(ReductionAttrs& a) const { a.rows = tokens(a.rows, a.split); }
  void operator()(CacheWriteAttrs& a) const {
    a.tokens = part_of(a.tokens, layout.cp);
    a.elements_per_token = features(a.elements_per_token, a.split);
  }
  void operator()(OptimizerAttrs&) const {}
  void operator()(CollectiveAttrs&) const {}
  void operator()(FreeAttrs&) const {}
};

std::int64_t divided_elements(const Tensor& tensor, const Layout& layout) {
  std::int64_t elements = part_of(tensor.elements, layout.cp);
  if (tensor.split == Split::column || tensor.split == Split::expert || (tensor.split == Split::sequence && layout.sp)) elements = part_of(elements, layout.tp);
  return elements;
}

// Nodes that a group of `ranks` GPUs touches when its members are `stride` GPUs apart (order tp, cp, dp, pp as in Megatron).
std::int64_t nodes_of(std::int64_t ranks, std::int64_t stride, const Layout& layout) { return std::clamp<std::int64_t>(ceil_div(ranks * stride, layout.gpus_per_node), 1, ranks); }

class Sharder {
 public:
  Sharder(const StepGraph& step, const Options& options, const Runtime& runtime, const Stage& stage)
      : options_(options), layout_(options.layout), state_(state_bytes(options, runtime)), out_{step.graph, {}} {
    for (std::size_t s = 0; s < out_.graph.segments.size(); ++s) out_.graph.segments[s].repeat = stage.repeats[s];
    // What a rank does once a step or once a micro-batch, whatever its layers.
    const Segment step_segment{.name = "step", .role = SegmentRole::epilogue, .first_op = 0, .op_count = 0, .repeat = 1, .input = 0, .output = 0};
    out_.graph.segments.push_back(step_segment);
    step_segment_ = static_cast<std::uint32_t>(out_.graph.segments.size()) - 1;
    if (runtime.vocabulary_multiple > 1) pad_vocabulary(runtime.vocabulary_multiple * layout_.tp);
    divided_ = layout_.tp > 1 || layout_.cp > 1 || layout_.ep > 1 || layout_.etp > 1;
    if (divided_) {
      for (Operator& op : out_.graph.ops) std::visit(Divide{layout_}, op.attrs);
      for (Tensor& tensor : out_.graph.tensors) tensor.elements = divided_elements(tensor, layout_);
    }
    out_.graph.ops.reserve(out_.graph.ops.size() + 4 * step.graph.segments.size() + 64);
    out_.entries.reserve(step.entries.size() + 32);
    copy_entries(step);
    parameter_traffic(runtime);
    pipeline_traffic();
  }
  StepGraph take() { return std::move(out_); }

 private:
  // Megatron rounds the vocabulary up so that it divides into aligned parts; the rows added are real weights and real work, not model FLOPs.
  void pad_vocabulary(std::int64_t multiple) {
    for (Operator& op : out_.graph.ops) {
      if (auto* head = std::get_if<LinearAttrs>(&op.attrs); head != nullptr && op.kind == OpKind::lm_head) {
        for (const TensorId logits : out_.graph.outputs_of(op)) {
          Tensor& tensor = out_.graph.tensors[logits];
          tensor.elements = tensor.elements / head->out * round_up(head->out, multiple);
        }
        head->out = round_up(head->out, multiple);
      } else if (auto* table = std::get_if<EmbeddingAttrs>(&op.attrs); table != nullptr && table->split == Split::column) {
        table->vocab = round_up(table->vocab, multiple);
      } else if (auto* loss = std::get_if<CrossEntropyAttrs>(&op.attrs)) {
        loss->vocab = round_up(loss->vocab, multiple);
      }
    }
  }

  void collective(std::uint32_t segment, std::string_view name, CollectiveKind kind, double bytes, CommAxis axis, std::int64_t ranks, std::int64_t stride,
                  std::string_view suffix = {}, bool per_step = false, bool overlappable = false) {
    if (ranks <= 1 || bytes < 1) return;
    Operator op;
    op.kind = OpKind::collective;
    op.name = name;
    op.dtype = options_.dtype;
    op.attrs = CollectiveAttrs{kind, static_cast<std::int64_t>(bytes), ranks, nodes_of(ranks, stride, layout_), axis};
    out_.graph.ops.push_back(op);
    out_.entries.push_back({static_cast<std::uint32_t>(out_.graph.ops.size()) - 1, segment, StepPhase::communication, suffix, per_step, overlappable});
  }

  // The collectives of tensor parallelism around one operator, in the forward pass (backward: the mirrored ones).
  void tensor_collectives(std::uint32_t op_index, std::uint32_t segment, StepPhase phase) {
    if (layout_.tp <= 1) return;
    const Operator op = out_.graph.ops[op_index];
    const double width = bytes_of(options_.dtype);
    const bool backward = phase == StepPhase::backward;
    const std::string_view suffix = backward ? "grad" : "";
    const auto reduce = [&](std::string_view name, double bytes) {
      if (layout_.sp) {
        collective(segment, name, backward ? CollectiveKind::all_gather : CollectiveKind::reduce_scatter, bytes, CommAxis::tp, layout_.tp, 1, suffix);
      } else if (!backward) {
        collective(segment, name, CollectiveKind::all_reduce, bytes, CommAxis::tp, layout_.tp, 1, suffix);
      }
    };
    if (const auto* a = std::get_if<LinearAttrs>(&op.attrs)) {
      if (a->split == Split::row) reduce("tp_output", static_cast<double>(a->tokens) * static_cast<double>(a->out) * width);
      if (a->split == Split::column && a->experts == 0 && first_reader(op, op_index, segment)) {
        const double bytes = static_cast<double>(a->tokens) * static_cast<double>(a->in) * width;
        if (layout_.sp) {
          collective(segment, "tp_input", backward ? CollectiveKind::reduce_scatter : CollectiveKind::all_gather, bytes, CommAxis::tp, layout_.tp, 1, suffix);
        } else if (backward) {
          collective(segment, "tp_input", CollectiveKind::all_reduce, bytes, CommAxis::tp, layout_.tp, 1, suffix);
        }
      }
    } else if (const auto* e = std::get_if<EmbeddingAttrs>(&op.attrs); e != nullptr && e->split == Split::column) {
      reduce("tp_embedding", static_cast<double>(e->tokens) * static_cast<double>(e->hidden) * width);
    } else if (const auto* l = std::get_if<CrossEntropyAttrs>(&op.attrs); l != nullptr && l->split == Split::column && !backward) {
      // Maximum, sum of exponentials and the label's logit of every token in fp32.
      collective(segment, "tp_loss", CollectiveKind::all_reduce, static_cast<double>(l->tokens) * 12, CommAxis::tp, layout_.tp, 1);
    } else if (const auto* m = std::get_if<MoeMoveAttrs>(&op.attrs); m != nullptr && layout_.expert_tp() > 1 && layout_.tp > 1) {
      if (m->combine) reduce("tp_experts", static_cast<double>(m->tokens) * static_cast<double>(m->hidden) * width);
    }
  }

  // q, k and v (or gate and up) read one tensor: it is gathered once.
  bool first_reader(const Operator& op, std::uint32_t op_index, std::uint32_t segment) const {
    if (op.inputs == 0) return true;
    const TensorId input = out_.graph.inputs_of(op)[0];
    const Segment& s = out_.graph.segments[segment];
    for (std::uint32_t i = s.first_op; i < op_index && i < s.first_op + s.op_count; ++i) {
      const Operator& other = out_.graph.ops[i];
      const auto* a = std::get_if<LinearAttrs>(&other.attrs);
      if (a != nullptr && a->split == Split::column && a->experts == 0 && other.inputs > 0 && out_.graph.inputs_of(other)[0] == input) return false;
    }
    return true;
  }

  void expert_collectives(std::uint32_t op_index, std::uint32_t segment, StepPhase phase) {
    const auto* m = std::get_if<MoeMoveAttrs>(&out_.graph.ops[op_index].attrs);
    if (m == nullptr || layout_.ep <= 1) return;
    const double bytes = static_cast<double>(m->tokens) * static_cast<double>(m->top_k) * static_cast<double>(m->hidden) * bytes_of(options_.dtype);
    collective(segment, m->combine ? "ep_combine" : "ep_dispatch", CollectiveKind::all_to_all, bytes, CommAxis::ep, layout_.ep, layout_.expert_tp(),
               phase == StepPhase::backward    ? "grad"
               : phase == StepPhase::recompute ? "recompute"
                                               : "");
  }

  // Keys and values of the whole sequence are gathered over the context-parallel group, their gradients scattered back.
  void context_collectives(std::uint32_t op_index, std::uint32_t segment, StepPhase phase) {
    const auto* a = std::get_if<AttentionAttrs>(&out_.graph.ops[op_index].attrs);
    if (a == nullptr || layout_.cp <= 1) return;
    const double bytes = static_cast<double>(a->batch) * static_cast<double>(a->kv_heads * layout_.cp) * static_cast<double>(a->seq_kv) *
                         static_cast<double>(a->head_dim + a->v_head_dim) * bytes_of(options_.dtype);
    if (phase == StepPhase::backward) {
      collective(segment, "cp_kv", CollectiveKind::reduce_scatter, bytes, CommAxis::cp, layout_.cp, layout_.tp, "grad");
    } else {
      collective(segment, "cp_kv", CollectiveKind::all_gather, bytes, CommAxis::cp, layout_.cp, layout_.tp, phase == StepPhase::recompute ? "recompute" : "");
    }
  }

  void copy_entries(const StepGraph& step) {
    const bool communicates = layout_.tp > 1 || layout_.ep > 1 || layout_.cp > 1;
    for (const StepEntry& entry : step.entries) {
      out_.entries.push_back(entry);
      if (!communicates || entry.phase == StepPhase::optimizer) continue;
      if (entry.phase != StepPhase::recompute) tensor_collectives(entry.op, entry.segment, entry.phase);
      expert_collectives(entry.op, entry.segment, entry.phase);
      context_collectives(entry.op, entry.segment, entry.phase);
    }
  }

  // Gradients, parameters and optimizer: what the rank holds decides.
  void parameter_traffic(const Runtime& runtime) {
    if (options_.phase != Phase::train) return;
    OpWork work;
    WorkContext context = work_context(options_, runtime);
    context.kernels = false;
    work.begin(out_.graph, context);
    const std::int64_t group = layout_.dp * layout_.cp;
    const std::int64_t expert_group = std::max<std::int64_t>(1, group * layout_.tp / (layout_.ep * layout_.expert_tp()));
    const std::int64_t stride = layout_.tp;
    double dense = 0, experts = 0;
    const std::size_t segments = out_.graph.segments.size();
    for (std::uint32_t s = 0; s < segments; ++s) {
      const Segment segment = out_.graph.segments[s];
      double segment_dense = 0, segment_experts = 0;
      for (std::uint32_t i = segment.first_op; i < segment.first_op + segment.op_count; ++i) {
        work_of(out_.graph.ops[i], work);
        (work.expert_parameters ? segment_experts : segment_dense) += to_double(work.parameters);
      }
      dense += segment_dense * static_cast<double>(segment.repeat);
      experts += segment_experts * static_cast<double>(segment.repeat);
      if (layout_.zero == 3) fully_sharded(s, segment_dense, group, stride), fully_sharded(s, segment_experts, expert_group, stride * layout_.ep);
    }
    const std::uint32_t once = step_segment_;
    if (layout_.zero < 3) {
      reduce_gradients(once, dense, group, stride);
      reduce_gradients(once, experts, expert_group, stride * layout_.ep);
    }
    // A runtime with rules casts weights, and their gradients back, in the rules of the operators that use them.
    if (runtime.autocast && runtime.rules.empty() && state_.transient_weight > 0) {
      // Fully sharded parameters are cast before they are gathered, each rank its share.
      const bool shares = layout_.zero == 3;
      weight_casts(dense / (shares ? static_cast<double>(shard_ranks(group)) : 1) + experts / (shares ? static_cast<double>(shard_ranks(expert_group)) : 1), once);
    }
    for (StepEntry& entry : out_.entries) {
      if (entry.phase != StepPhase::optimizer) continue;
      Operator& op = out_.graph.ops[entry.op];
      auto& a = std::get<OptimizerAttrs>(op.attrs);
      const double shared = layout_.zero >= 1 ? static_cast<double>(shard_ranks(group)) : 1;
      const double expert_shared = layout_.zero >= 1 ? static_cast<double>(shard_ranks(expert_group)) : 1;
      a.parameters = static_cast<std::int64_t>(dense / shared + experts / expert_shared);
      a.state = state_.state_dtype;
      a.gradient = state_.gradient_dtype;
      a.main_weights = state_.main_weights;
      op.dtype = state_.weight_dtype;
    }
  }

  std::int64_t shard_ranks(std::int64_t group) const { return layout_.dp_shard > 0 ? std::min(layout_.dp_shard, group) : group; }

  void fully_sharded(std::uint32_t segment, double parameters, std::int64_t group, std::int64_t stride) {
    const double weights = parameters * (state_.transient_weight > 0 ? state_.transient_weight : state_.weight);
    collective(segment, "dp_gather_forward", CollectiveKind::all_gather, weights, CommAxis::dp, shard_ranks(group), stride, {}, false, true);
    collective(segment, "dp_gather_backward", CollectiveKind::all_gather, weights, CommAxis::dp, shard_ranks(group), stride, {}, false, true);
    collective(segment, "dp_scatter_gradients", CollectiveKind::reduce_scatter, parameters * state_.gradient, CommAxis::dp, shard_ranks(group), stride, {}, false, true);
  }

  void reduce_gradients(std::uint32_t segment, double parameters, std::int64_t group, std::int64_t stride) {
    if (layout_.zero == 0) {
      collective(segment, "dp_reduce_gradients", CollectiveKind::all_reduce, parameters * state_.gradient, CommAxis::dp, group, stride, {}, true, layout_.overlap_grad_reduce);
      return;
    }
    // ZeRO-2 keeps only a share of the gradients, so it reduces after every micro-batch.
    collective(segment, "dp_scatter_gradients", CollectiveKind::reduce_scatter, parameters * state_.gradient, CommAxis::dp, group, stride, {}, layout_.zero == 1,
               layout_.overlap_grad_reduce);
    collective(segment, "dp_gather_parameters", CollectiveKind::all_gather, parameters * state_.weight, CommAxis::dp, group, stride, {}, true, layout_.overlap_param_gather);
  }

  // Autocast makes a low-precision copy of every weight once a micro-batch and casts its gradient back.
  void weight_casts(double parameters, std::uint32_t segment) {
    const auto cast = [&](std::string_view name, DType from, DType to, StepPhase phase) {
      Operator op;
      op.kind = OpKind::elementwise;
      op.name = name;
      op.dtype = from;
      op.attrs = PointwiseAttrs{.kind = PointwiseKind::cast, .numel = static_cast<std::int64_t>(parameters), .to = to};
      out_.graph.ops.push_back(op);
      out_.entries.push_back({static_cast<std::uint32_t>(out_.graph.ops.size()) - 1, segment, phase, {}, false, false});
    };
    cast("weight_casts", DType::fp32, options_.dtype, StepPhase::forward);
    cast("gradient_casts", options_.dtype, DType::fp32, StepPhase::backward);
  }

  void pipeline_traffic() {
    if (layout_.pp <= 1 || out_.graph.model.hidden == 0) return;
    const double tokens = static_cast<double>(out_.graph.batch) * static_cast<double>(part_of(out_.graph.seq, layout_.cp));
    double bytes = tokens * static_cast<double>(out_.graph.model.hidden) * bytes_of(options_.dtype) * static_cast<double>(layout_.vpp);
    if (layout_.sp) bytes /= static_cast<double>(layout_.tp);
    const std::int64_t stride = layout_.tp * layout_.cp * layout_.dp;
    collective(step_segment_, "pp_send", CollectiveKind::send_recv, bytes, CommAxis::pp, 2, stride);
    if (options_.phase == Phase::train) collective(step_segment_, "pp_send", CollectiveKind::send_recv, bytes, CommAxis::pp, 2, stride, "grad");
  }

  const Options& options_;
  const Layout& layout_;
  StateBytes state_;
  StepGraph out_;
  bool divided_ = false;
  std::uint32_t step_segment_ = 0;
};

}  // namespace

StepGraph shard(const StepGraph& step, const Options& options, const Runtime& runtime, const Stage& stage) { return Sharder(step, options, runtime, stage).take(); }

// Layers are dealt out evenly in order, the first stages taking one more where they do not divide; embedding and head belong to the first and the last stage. Stages with
// the same repeats are listed once.
std::vector<Stage> stages_of(const Graph& graph, const Layout& layout) {
  std::vector<Stage> stages;
  const auto total = static_cast<std::int64_t>(graph.layers.size());
  std::int64_t next = 0;
  for (std::int64_t p = 0; p < layout.pp; ++p) {
    Stage stage{std::vector<std::int64_t>(graph.segments.size(), 0), 0, 1, p};
    const bool first = p == 0, last = p + 1 == layout.pp;
    for (std::size_t s = 0; s < graph.segments.size(); ++s) {
      const Segment& segment = graph.segments[s];
      if (segment.role == SegmentRole::prologue && first) stage.repeats[s] = segment.repeat;
      if (segment.role == SegmentRole::epilogue && (last || segment.name == "optimizer")) stage.repeats[s] = segment.repeat;
      if (total == 0 && segment.role == SegmentRole::layer && first) stage.repeats[s] = segment.repeat;
    }
    stage.layers = total / layout.pp + (p < total % layout.pp ? 1 : 0);
    for (std::int64_t i = 0; i < stage.layers; ++i) ++stage.repeats[graph.layers[static_cast<std::size_t>(next + i)]];
    next += stage.layers;
    const auto like = std::find_if(stages.begin(), stages.end(), [&](const Stage& other) { return other.repeats == stage.repeats; });
    if (like != stages.end()) {
      ++like->count;
    } else {
      stages.push_back(std::move(stage));
    }
  }
  return stages;
}

}  // namespace rooftile
