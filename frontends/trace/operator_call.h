// Which kernel call of the model a PyTorch operator's kernels are: "aten::mul" of a [16384, 2048] and a [16384, 1] tensor in fp32 is a pointwise row_scale of 2^25 elements. The
// words are those of the measurement CSV; how an element-wise kernel walks its operands decides, so strides count as much as sizes.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "estimator/timing/kernel_call.h"
#include "frontends/trace/trace.h"

namespace rooftile {

// The kernels of one operator call, in their order.
struct LaunchedKernels {
  std::vector<std::string_view> names;             // as the profiler wrote them
  std::vector<std::array<std::int32_t, 3>> grids;  // blocks
  std::vector<TraceActivity> activities;
};

struct OperatorCall {
  std::optional<KernelCall> call;
  std::string reason;  // why there is none
  // The operator cleared a tensor of so many elements just before, in a call of its own that belongs to this one: the gradient of a table or of the log-probabilities. 0: none.
  std::int64_t cleared = 0;
  // The call is one full launch of a multi-tensor kernel, not all of its launches: the trace has no sizes of tensors in lists, but a full launch has a size of its own.
  bool full_launch = false;
};

// The call, or why there is none: an operator that the model has no class for, arguments without sizes (the trace was recorded without record_shapes), a walk over operands that
// no class describes. addmm of bias [2304], a [16384, 768] and b [768, 2304], all bf16, strides of b [2304, 1]: gemm bf16 m=16384 n=2304 k=768 layout=nn epilogue=bias.
OperatorCall operator_call(const TraceOperator& op, const LaunchedKernels& kernels);

// "c10::BFloat16" gives bf16, "float" fp32, "long int" int64; nothing for "Scalar", "TensorList" and what is unknown.
std::optional<DType> dtype_of_trace(std::string_view type);

}  // namespace rooftile
