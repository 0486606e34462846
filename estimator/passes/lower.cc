// Operators become kernels. Each operator comes with the best known kernels of its own; a runtime's rules replace them by what that runtime really launches.
#include <cmath>

#include "estimator/core/checked.h"
#include "estimator/passes/step.h"

namespace rooftile {
namespace {

// The elements that a rule's `scale` multiplies: those of the kernel that it replaces.
double elements_of(const KernelCall& call) {
  switch (call.kernel) {
    case KernelClass::pointwise:
      return static_cast<double>(call.pointwise().numel);
    case KernelClass::softmax:
    case KernelClass::layernorm:
    case KernelClass::rmsnorm:
    case KernelClass::column_sum:
    case KernelClass::row_sum:
    case KernelClass::log_softmax:
    case KernelClass::softmax_fp32:
    case KernelClass::nll:
    case KernelClass::row_mean:
    case KernelClass::argmax:
    case KernelClass::topk:
    case KernelClass::sort:
    case KernelClass::layernorm_input:
      return static_cast<double>(call.row().rows) * static_cast<double>(call.row().cols);
    case KernelClass::cross_entropy:
      return static_cast<double>(call.cross_entropy().tokens) * static_cast<double>(call.cross_entropy().vocab);
    case KernelClass::embedding:
      return static_cast<double>(call.embedding().tokens) * static_cast<double>(call.embedding().hidden);
    case KernelClass::optimizer:
      return static_cast<double>(call.optimizer().numel);
    default:
      return 0;
  }
}

bool matches(const LoweringRule& rule, OpKind kind, std::string_view direction, const KernelUse& use) {
  if (rule.op != kind) return false;
  if (rule.part != direction && (use.part.empty() || rule.part != use.part)) return false;
  if (rule.when.empty()) return true;
  return use.call.kernel == KernelClass::pointwise && name_of(use.call.pointwise().kind) == rule.when;
}

const LoweringRule* rule_for(const Runtime& runtime, OpKind kind, std::string_view direction, const KernelUse& use) {
  if (use.call.kernel == KernelClass::gemm || use.call.kernel == KernelClass::attention || use.call.kernel == KernelClass::collective) return nullptr;
  for (const LoweringRule& rule : runtime.rules) {
    if (matches(rule, kind, direction, use)) return &rule;
  }
  return nullptr;
}

// A compiler that pads an odd vocabulary runs the head's matmuls at the next multiple of 8, over a padded copy of the weight.
KernelCall padded_head(KernelCall call, std::int64_t vocab) {
  auto& gemm = std::get<GemmShape>(call.shape);
  for (std::int64_t* size : {&gemm.m, &gemm.n, &gemm.k}) {
    if (*size == vocab) *size = round_up(vocab, 8);
  }
  return call;
}

}  // namespace

std::vector<LoweredCall> lower(const StepGraph& step, const Options& options, const Runtime& runtime, const Device& device) {
  std::vector<LoweredCall> calls;
  calls.reserve(step.entries.size() * 2);
  OpWork work;
  work.begin(step.graph, work_context(options, runtime, &device));
  for (std::uint32_t e = 0; e < step.entries.size(); ++e) {
    const StepEntry& entry = step.entries[e];
    if (step.graph.segments[entry.segment].repeat == 0) continue;
    const Operator& op = step.graph.ops[entry.op];
    work_of(op, work);
    const bool backward = entry.phase == StepPhase::backward;
    const std::string_view direction = backward ? "backward" : "forward";
    for (const KernelUse& use : backward ? work.backward_uses : work.forward_uses) {
      const bool tensor_work = use.call.kernel == KernelClass::gemm || use.call.kernel == KernelClass::attention;
      const LoweringRule* rule = rule_for(runtime, op.kind, direction, use);
      if (runtime.pads_odd_vocabulary && op.kind == OpKind::lm_head && use.call.kernel == KernelClass::gemm && std::get<LinearAttrs>(op.attrs).out % 8 != 0) {
        const auto& head = std::get<LinearAttrs>(op.attrs);
        calls.push_back({e, use.part, padded_head(use.call, head.out), use.calls, use.flops, use.conventions, true});
        calls.push_back({e, "pad", pointwise_call(PointwiseKind::copy, head.out * head.in, op.dtype), use.calls, 0, {}, false});
        continue;
      }
      if (rule == nullptr) {
        calls.push_back({e, use.part, use.call, use.calls, use.flops, use.conventions, tensor_work});
        continue;
      }
      const double elements = elements_of(use.call);
      Count flops = use.flops;  // the arithmetic that is wanted stands on the first kernel of the rule
      for (const RuleKernel& kernel : rule->kernels) {
        const auto numel = static_cast<std::int64_t>(std::max(1.0, std::round(elements * kernel.scale)));
        KernelCall call = pointwise_call(kernel.kind, numel, kernel.fp32 ? DType::fp32 : use.call.dtype);
        if (kernel.to_fp32) std::get<PointwiseShape>(call.shape).to = DType::fp32;
        if (kernel.kind == PointwiseKind::cast && kernel.fp32) std::get<PointwiseShape>(call.shape).to = use.call.dtype;
        calls.push_back({e, name_of(kernel.kind), call, use.calls * kernel.calls, flops, {}, false});
        flops = 0;
      }
    }
  }
  return calls;
}

}  // namespace rooftile
