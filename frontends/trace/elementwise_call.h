// Element-wise operators of PyTorch as pointwise kernels: what they compute and how they walk their operands.
#pragma once

#include <optional>
#include <string_view>

#include "frontends/trace/operator_call.h"

namespace rooftile {

// Nothing when the operator is not element-wise. `name` is without "aten::" and without the underscore of in-place forms.
std::optional<OperatorCall> elementwise_call(std::string_view name, const TraceOperator& op, const LaunchedKernels& kernels);

// Copies and casts, concatenations, look-ups by index; nothing when the operator is none of these.
std::optional<OperatorCall> moving_call(std::string_view name, const TraceOperator& op, const LaunchedKernels& kernels);

}  // namespace rooftile
