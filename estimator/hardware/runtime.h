// What executes a model: which kernels an operator becomes, what lies between kernels, what stays in memory. One versioned file per runtime.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "estimator/graph/op_kind.h"
#include "estimator/hardware/device.h"
#include "estimator/hardware/memory_program.h"
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
  int vocabulary_multiple = 1;                 // Megatron pads the vocabulary to this times tp
  double logits_copies_bytes = 0;              // bytes per logit held by the loss at its peak, where no memory program says it
  double workspace_bytes = 0;                  // of a pass without gradients
  double backward_workspace_bytes = 0;         // beside it when training: the backward pass runs on a thread, and a library handle, of its own
  bool caching_allocator = false;              // PyTorch's: blocks are rounded up
  bool grows_cache = false;                    // keys and values are concatenated into a new buffer at each step
  bool builds_mask = false;                    // a causal mask [batch, queries, keys] is built even for fused attention
  bool frames_hold = false;                    // Python frames hold the inputs of a layer and of its branches until they return
  std::vector<MemoryProgram> memory_programs;  // the first that applies to an operator counts; without any, operators keep what they need and nothing else
  AttentionKernel attention = AttentionKernel::fastest;
  std::vector<LoweringRule> rules;
  std::vector<Fact> facts;
};

}  // namespace rooftile
