// What executes a model: which kernels an operator becomes, what lies between kernels, what stays in memory. One versioned file per runtime.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "estimator/graph/op_kind.h"
#include "estimator/hardware/device.h"
#include "estimator/timing/kernel_call.h"

namespace rooftile {

// One kernel of a lowering rule: `calls` launches of a pointwise kernel over `scale` x the operator's elements, in the operator's dtype or in fp32.
struct RuleKernel {
  PointwiseKind kind = PointwiseKind::copy;
  double scale = 1;
  int calls = 1;
  bool fp32 = false;
  bool to_fp32 = false;  // a cast up
};

// Replaces the kernels that an operator has by default (the best known fused kernel) for one part of its work.
struct LoweringRule {
  OpKind op = OpKind::free;
  std::string part;  // "forward", "backward", or a part's own label ("bias_gradient")
  std::string when;  // "" or the pointwise kind of an activation ("gelu", "silu_mul")
  std::vector<RuleKernel> kernels;
};

struct Runtime {
  std::string id, name, version, file;
  double launch_gap_s = 0;                   // idle GPU time between two kernels of a full queue
  double host_launch_s = 0;                  // host time to launch one kernel: the queue runs dry when kernels are shorter
  double graph_gap_s = 0;                    // the gap inside a CUDA graph
  bool autocast = false;                     // mixed precision means fp32 weights cast per use
  bool main_weights = true;                  // mixed precision means fp32 main weights beside the weights in dtype
  bool fp32_gradients = true;                // gradients are kept and accumulated in fp32 under mixed precision
  bool fused_gradient_accumulation = false;  // the weight-gradient GEMM accumulates into fp32 in place
  bool pads_odd_vocabulary = false;
  int vocabulary_multiple = 1;     // Megatron pads the vocabulary to this times tp
  double logits_copies_bytes = 0;  // bytes per logit held by the loss at its peak
  double workspace_bytes = 0;
  AttentionKernel attention = AttentionKernel::fastest;
  std::vector<LoweringRule> rules;
  std::vector<Fact> facts;
};

}  // namespace rooftile
