// What precision and runtime mean in bytes: storage of weights, gradients, optimizer states.
#include "estimator/passes/step.h"

namespace rooftile {

// pure: weights, gradients and both Adam moments in the dtype: bf16 2 + 2 + 4 bytes. mixed with main weights (fused, megatron): 2 + 4 + 12. mixed under autocast: fp32
// weights 4 + 4 + 8, plus a 2-byte copy of the weights while a step runs.
StateBytes state_bytes(const Options& options, const Runtime& runtime) {
  StateBytes state;
  const bool low = bits_of(options.dtype) < 32;
  // fp8 is a matmul format: weights are stored in bf16 beside it.
  const DType storage = bits_of(options.dtype) == 8 ? DType::bf16 : options.dtype == DType::tf32 ? DType::fp32 : options.dtype;
  state.weight_dtype = state.gradient_dtype = state.state_dtype = storage;
  const bool train = options.phase == Phase::train;
  if (train && low && options.precision == Precision::mixed) {
    if (runtime.autocast) {
      state.weight_dtype = state.gradient_dtype = DType::fp32;
      state.transient_weight = bytes_of(storage);
    } else {
      state.main_weights = runtime.main_weights;
      state.gradient_dtype = runtime.fp32_gradients ? DType::fp32 : storage;
    }
    state.state_dtype = DType::fp32;
  }
  state.weight = bytes_of(state.weight_dtype);
  if (!train) return state;
  state.gradient = bytes_of(state.gradient_dtype);
  state.gradients_persist = runtime.fused_gradient_accumulation;
  const double moments = options.optimizer == OptimizerChoice::adamw ? 2 : 0;
  if (options.optimizer != OptimizerChoice::none) state.optimizer = moments * bytes_of(state.state_dtype) + (state.main_weights ? 4 : 0);
  return state;
}

WorkContext work_context(const Options& options, const Runtime& runtime, const Device* device) {
  WorkContext context;
  context.device = device;
  context.attention = options.attention != AttentionKernel::fastest ? options.attention : runtime.attention;
  // A runtime's own choice is one of Hopper and later; before, it takes the fastest that there is.
  if (options.attention == AttentionKernel::fastest && context.attention != AttentionKernel::standard && device != nullptr && device->architecture < Architecture::hopper)
    context.attention = AttentionKernel::fastest;
  const StateBytes state = state_bytes(options, runtime);
  const bool accumulates = options.phase == Phase::train && runtime.fused_gradient_accumulation && state.gradient_dtype == DType::fp32 && bits_of(options.dtype) < 32;
  context.gradient_out = accumulates ? DType::fp32 : bits_of(options.dtype) == 8 ? DType::bf16 : options.dtype;
  context.accumulate_gradients = accumulates;
  return context;
}

}  // namespace rooftile
