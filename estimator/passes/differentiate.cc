// The training side as a pass: a forward graph gets its backward entries (each segment in reverse), recomputation and the optimizer.
#include "estimator/passes/step.h"

namespace rooftile {
namespace {

bool recomputed(const Operator& op, const Segment& segment, Recompute recompute) {
  if (segment.role != SegmentRole::layer) return false;
  if (recompute == Recompute::full) return op.kind != OpKind::free;
  // Selective (Korthikanti et al. 2022, arXiv 2205.05198, section 5): only the attention core is computed again, and only where its scores would be kept.
  return recompute == Recompute::selective && op.kind == OpKind::attention;
}

}  // namespace

StepGraph differentiate(const Graph& graph, const Options& options) {
  StepGraph step{graph, {}};
  step.entries.reserve(graph.ops.size() * 3 + 16);
  const auto add = [&](std::uint32_t op, std::uint32_t segment, StepPhase phase) { step.entries.push_back({op, segment, phase, {}, false, false}); };
  for (std::uint32_t s = 0; s < graph.segments.size(); ++s) {
    for (std::uint32_t i = 0; i < graph.segments[s].op_count; ++i) {
      const std::uint32_t op = graph.segments[s].first_op + i;
      if (graph.ops[op].kind != OpKind::free) add(op, s, StepPhase::forward);
    }
  }
  if (options.phase != Phase::train) return step;
  for (auto s = static_cast<std::uint32_t>(graph.segments.size()); s-- > 0;) {
    const Segment& segment = graph.segments[s];
    // With a fused attention nothing of its scores is kept, so selective recomputation has nothing to compute again.
    for (std::uint32_t i = 0; i < segment.op_count; ++i) {
      const std::uint32_t op = segment.first_op + i;
      const bool standard = options.attention == AttentionKernel::standard;
      if (recomputed(graph.ops[op], segment, options.recompute) && (options.recompute == Recompute::full || standard)) add(op, s, StepPhase::recompute);
    }
    for (std::uint32_t i = segment.op_count; i-- > 0;) {
      const std::uint32_t op = segment.first_op + i;
      if (graph.ops[op].kind != OpKind::free && graph.ops[op].kind != OpKind::cache_write) add(op, s, StepPhase::backward);
    }
  }
  if (options.optimizer != OptimizerChoice::none) {
    // Sized by shard(), which knows what one rank holds.
    Operator op;
    op.kind = OpKind::optimizer;
    op.name = name_of(options.optimizer);
    op.attrs = OptimizerAttrs{options.optimizer == OptimizerChoice::adamw ? OptimizerKind::adamw : OptimizerKind::sgd, 0};
    step.graph.ops.push_back(op);
    Segment segment;
    segment.name = "optimizer";
    segment.role = SegmentRole::epilogue;
    segment.first_op = static_cast<std::uint32_t>(step.graph.ops.size()) - 1;
    segment.op_count = 1;
    step.graph.segments.push_back(segment);
    step.entries.push_back({segment.first_op, static_cast<std::uint32_t>(step.graph.segments.size()) - 1, StepPhase::optimizer, {}, true, false});
  }
  return step;
}

}  // namespace rooftile
