// What a rule may ask about one operator in one phase of a step: sizes and words (see rule.h).
#pragma once

#include "estimator/hardware/rule.h"
#include "estimator/ops/op_work.h"
#include "estimator/passes/step.h"
#include "estimator/passes/tensor_flow.h"

namespace rooftile {

struct RuleContext {
  RuleSizes sizes{};
  RuleWords words = 0;
  std::string_view name;      // the operator's
  std::string_view function;  // pointwise kind of its default kernel; "" where it has another

  void set(std::string_view word, bool value = true);
  void size(std::string_view name, double value);
};

// Words of the run and of the model, the same for all operators.
RuleWords step_words(const Graph& graph, const Options& options, const Runtime& runtime);

// Sizes and words of one operator; `past`: tokens already in the KV cache.
RuleContext operator_context(const StepGraph& step, const StepEntry& entry, const TensorFlow& flow, RuleWords step_words, std::int64_t past);

// Sizes of the default kernel that a rule replaces.
void add_call(RuleContext& context, const KernelCall& call);

bool holds(const RuleCondition& condition, const RuleContext& context);

}  // namespace rooftile
