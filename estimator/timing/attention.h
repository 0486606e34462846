// Time of fused attention: tiles of queries (backward: of keys) over SMs, each a loop over blocks of the other side whose steps are matmuls beside a softmax.
#pragma once

#include "estimator/timing/constants.h"
#include "estimator/timing/kernel_time.h"

namespace rooftile {

// The kernel that the device's libraries would run for a call: the one named, or for `fastest` FlashAttention-3 on Hopper, cuDNN's on Blackwell, FlashAttention-2 on Ampere and
// Ada, and the four separate stages before Ampere, in fp32, and for heads that no fused kernel takes.
AttentionKernel attention_kernel_of(const AttentionShape& shape, DType dtype, const Device& device);

class AttentionModel {
 public:
  AttentionModel(const Machine& machine, const Constants& constants) : device_(machine.device), constants_(constants) {}

  // A fused kernel (not `standard`). All fields of KernelTime except confidence and error.
  KernelTime time(const AttentionShape& shape, DType dtype, Pass pass, AttentionKernel kernel, ClockState clocks) const;

 private:
  struct Math;
  Math math_of(DType dtype) const;
  KernelTime forward(const AttentionShape& shape, DType dtype, AttentionKernel kernel, ClockState clocks) const;
  KernelTime backward(const AttentionShape& shape, DType dtype, AttentionKernel kernel, ClockState clocks) const;

  const Device& device_;
  const Constants& constants_;
};

}  // namespace rooftile
