// Operators become kernels. Each operator comes with the best known kernels of its own; a runtime's rules replace them by what that runtime really launches.
#include <algorithm>
#include <cmath>

#include "estimator/core/checked.h"
#include "estimator/passes/rule_context.h"
#include "estimator/passes/step.h"
#include "estimator/passes/tensor_flow.h"

namespace rooftile {
namespace {

bool is_tensor_work(const KernelCall& call) { return call.kernel == KernelClass::gemm || call.kernel == KernelClass::attention; }

std::int64_t whole(double value) { return static_cast<std::int64_t>(std::clamp(std::round(value), 1.0, 1e18)); }

// A compiler that pads an odd vocabulary runs the head's matmuls at the next multiple of 8.
void pad_head(KernelCall& call, std::int64_t vocab) {
  auto& gemm = std::get<GemmShape>(call.shape);
  for (std::int64_t* size : {&gemm.m, &gemm.n, &gemm.k}) {
    if (*size == vocab) *size = round_up(vocab, 8);
  }
}

class Lowering {
 public:
  Lowering(const StepGraph& step, const Options& options, const Runtime& runtime, const Device& device)
      : step_(step),
        runtime_(runtime),
        words_(step_words(step.graph, options, runtime)),
        past_(options.phase == Phase::prefill || options.phase == Phase::decode ? options.context : 0) {
    flow_ = tensor_flow(step.graph, words_ & (RuleWords{1} << *rule_word("mixed")));
    work_.begin(step.graph, work_context(options, runtime, &device));
    calls_.reserve(step.entries.size() * (runtime.rules.empty() ? 2 : 8));
  }

  std::vector<LoweredCall> run() {
    for (std::uint32_t e = 0; e < step_.entries.size(); ++e) {
      if (step_.graph.segments[step_.entries[e].segment].repeat > 0) entry(e);
    }
    return std::move(calls_);
  }

 private:
  void entry(std::uint32_t e) {
    const StepEntry& entry = step_.entries[e];
    const Operator& op = step_.graph.ops[entry.op];
    work_of(op, work_);
    const bool backward = entry.phase == StepPhase::backward;
    const std::vector<KernelUse>& uses = backward ? work_.backward_uses : work_.forward_uses;
    if (runtime_.rules.empty() || entry.phase == StepPhase::communication) {
      for (const KernelUse& use : uses) keep(e, op, use);
      return;
    }
    RuleContext context = operator_context(step_, entry, flow_, words_, past_);
    if (!uses.empty()) add_call(context, uses.front().call);
    if (const LoweringRule* rule = rule_for(op.kind, backward ? "backward" : "forward", context)) {
      Count flops = 0;
      for (const KernelUse& use : uses) flops += use.flops;
      apply(e, op, *rule, uses, context, flops);
    } else {
      for (const KernelUse& use : uses) {
        add_call(context, use.call);
        const LoweringRule* own = use.part.empty() ? nullptr : rule_for(op.kind, use.part, context);
        if (own == nullptr) {
          keep(e, op, use);
        } else {
          apply(e, op, *own, {&use, 1}, context, use.flops);
        }
      }
    }
    if (backward && runtime_.accumulates_by_kernels) accumulate(e, op);
  }

  const LoweringRule* rule_for(OpKind kind, std::string_view part, const RuleContext& context) const {
    for (const LoweringRule& rule : runtime_.rules) {
      if (rule.op == kind && rule.part == part && holds(rule.when, context)) return &rule;
    }
    return nullptr;
  }

  void keep(std::uint32_t e, const Operator& op, const KernelUse& use) {
    calls_.push_back({e, use.part, use.call, use.calls, use.flops, use.conventions, is_tensor_work(use.call)});
    if (!runtime_.torch_kernels && use.call.impl == Impl::torch) calls_.back().call.impl = Impl::rooftile;
    if (runtime_.pads_odd_vocabulary && op.kind == OpKind::lm_head && use.call.kernel == KernelClass::gemm) pad_head(calls_.back().call, std::get<LinearAttrs>(op.attrs).out);
  }

  void apply(std::uint32_t e, const Operator& op, const LoweringRule& rule, std::span<const KernelUse> uses, RuleContext& context, Count flops) {
    const std::size_t first = calls_.size();
    bool kept = false;
    Count given = 0;  // arithmetic that the kept kernels do
    for (const RuleKernel& kernel : rule.kernels) {
      if (!holds(kernel.when, context)) continue;
      const auto calls = static_cast<std::int64_t>(std::ceil(kernel.calls.value(context.sizes) - 1e-9));
      if (calls < 1) continue;
      if (kernel.what == RuleKernel::What::same) {
        kept = true;
        for (const KernelUse& use : uses) {
          if (!kernel.part.empty() && kernel.part != use.part) continue;
          keep(e, op, use);
          finish(calls_.back(), kernel, calls, context);
          given += use.flops;
        }
        continue;
      }
      const double repeated = uses.empty() ? 1 : static_cast<double>(uses.front().calls);
      LoweredCall lowered{e, label_of(kernel), call_of(kernel, op.dtype, context), calls * static_cast<std::int64_t>(repeated), 0, {}, kernel.what == RuleKernel::What::matmul};
      lowered.launches = launches_of(kernel, context);
      lowered.once = kernel.once;
      lowered.waits = kernel.waits;
      calls_.push_back(lowered);
    }
    if (flops > given) share_flops(first, flops - given, kept);
  }

  // The arithmetic that is wanted stands on the matmuls of the rule, by their size; on its first kernel where it has none.
  void share_flops(std::size_t first, Count flops, bool kept) {
    const auto size = [](const LoweredCall& call) {
      const auto* gemm = std::get_if<GemmShape>(&call.call.shape);
      return gemm == nullptr || call.flops > 0 ? 0.0 : number(gemm->m) * number(gemm->n) * number(gemm->k) * number(gemm->batch) * number(call.calls);
    };
    double whole = 0;
    for (std::size_t i = first; i < calls_.size(); ++i) whole += size(calls_[i]);
    if (whole <= 0) {
      if (!kept && calls_.size() > first) calls_[first].flops = flops;
      return;
    }
    for (std::size_t i = first; i < calls_.size(); ++i) {
      if (const double own = size(calls_[i]); own > 0) calls_[i].flops = static_cast<Count>(to_double(flops) * (own / whole) + 0.5);
    }
  }

  static double number(std::int64_t value) { return static_cast<double>(value); }

  void finish(LoweredCall& lowered, const RuleKernel& kernel, std::int64_t calls, const RuleContext& context) const {
    if (kernel.dtype) {
      const DType before = lowered.call.dtype;
      lowered.call.dtype = *kernel.dtype;
      if (auto* gemm = std::get_if<GemmShape>(&lowered.call.shape); gemm != nullptr && gemm->out == before) gemm->out = *kernel.dtype;
    }
    if (auto* attention = std::get_if<AttentionShape>(&lowered.call.shape); kernel.full && attention != nullptr) {
      attention->causal = false;
      attention->window = 0;
      attention->mask = true;
    }
    lowered.calls *= calls;
    lowered.launches = launches_of(kernel, context);
  }

  static std::int64_t launches_of(const RuleKernel& kernel, const RuleContext& context) {
    return std::max<std::int64_t>(1, static_cast<std::int64_t>(std::ceil(kernel.launches.value(context.sizes) - 1e-9)));
  }

  static std::string_view label_of(const RuleKernel& kernel) {
    if (!kernel.part.empty()) return kernel.part;
    if (kernel.what == RuleKernel::What::matmul) return "matmul";
    return kernel.what == RuleKernel::What::row ? name_of(kernel.row) : name_of(kernel.pointwise);
  }

  static KernelCall call_of(const RuleKernel& kernel, DType own, const RuleContext& context) {
    const DType dtype = kernel.dtype.value_or(own);
    const auto size = [&](const std::optional<RuleExpression>& expression, std::string_view otherwise) {
      if (expression) return whole(expression->value(context.sizes));
      for (std::size_t i = 0; i < kRuleSizeNames.size(); ++i) {
        if (kRuleSizeNames[i] == otherwise) return whole(context.sizes[i]);
      }
      return std::int64_t{1};
    };
    if (kernel.what == RuleKernel::What::row) return row_call(kernel.row, size(kernel.rows, "rows"), size(kernel.cols, "cols"), dtype, kernel.pass);
    if (kernel.what == RuleKernel::What::matmul) {
      return gemm_call(
          {.m = size(kernel.m, "m"), .n = size(kernel.n, "n"), .k = size(kernel.k, "k"), .batch = kernel.batch ? size(kernel.batch, "") : 1, .layout = kernel.layout, .out = dtype},
          dtype);
    }
    KernelCall call = pointwise_call(kernel.pointwise, size(kernel.of, "numel"), dtype);
    auto& shape = std::get<PointwiseShape>(call.shape);
    if (kernel.to)
      shape.to = *kernel.to;
    else if (kernel.pointwise == PointwiseKind::cast)
      shape.to = dtype == DType::fp32 ? own : DType::fp32;
    return call;
  }

  // Two gradients that meet at an input which an earlier operator reads too.
  void accumulate(std::uint32_t e, const Operator& op) {
    for (std::size_t i = 0; i < op.inputs; ++i) {
      if (!flow_.shared[op.first_edge + i]) continue;
      const TensorId tensor = step_.graph.inputs_of(op)[i];
      const DType dtype = flow_.wide[tensor] ? DType::fp32 : step_.graph.tensors[tensor].dtype;
      calls_.push_back({e, "accumulate", pointwise_call(PointwiseKind::add, std::max<std::int64_t>(1, step_.graph.tensors[tensor].elements), dtype), 1, 0, {}, false});
    }
  }

  const StepGraph& step_;
  const Runtime& runtime_;
  RuleWords words_;
  std::int64_t past_;
  TensorFlow flow_;
  OpWork work_;
  std::vector<LoweredCall> calls_;
};

}  // namespace

std::vector<LoweredCall> lower(const StepGraph& step, const Options& options, const Runtime& runtime, const Device& device) {
  return Lowering(step, options, runtime, device).run();
}

}  // namespace rooftile
