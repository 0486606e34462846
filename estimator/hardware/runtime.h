// What executes a model: which kernels an operator becomes, what lies between kernels, what stays in memory. One versioned file per runtime.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "estimator/hardware/device.h"
#include "estimator/hardware/memory_program.h"
#include "estimator/hardware/rule.h"
#include "estimator/timing/kernel_call.h"

namespace rooftile {

// What the host spends on a step, of one machine: launches are queued, so it matters only where kernels are shorter. Seconds.
struct HostRates {
  double kernel_s = 0, operator_s = 0;                    // in Python's forward code: per launched kernel, and per operator (a module call) beside them
  double backward_kernel_s = 0, backward_operator_s = 0;  // the same in the autograd engine
  double optimizer_tensor_s = 0;                          // per parameter tensor of the optimizer's step
  double step_s = 0;                                      // once a step
  double recorded_kernel_s = 0, recorded_operator_s = 0;  // more of both in a forward pass that records what its gradients need
  bool any() const { return kernel_s > 0 || operator_s > 0 || backward_kernel_s > 0 || backward_operator_s > 0 || step_s > 0; }
};

// Root mean squares of relative errors that do not belong to single kernels; the interval of a step rests on them.
struct RuntimeErrors {
  double step = 0;  // of the GPU's time as a whole: what differs between days, machines, clock states
  double gap = 0;   // of the gaps between kernels
  double host = 0;  // of everything that the host spends
};

struct Runtime {
  std::string id, name, version, file;
  double launch_gap_s = 0;  // idle GPU time between two kernels of a full queue
  HostRates host;
  RuntimeErrors errors;
  bool accumulates_by_kernels = false;       // gradients that meet at a tensor are added by kernels of their own (autograd)
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
  bool torch_kernels = false;  // memory-bound operators run as PyTorch's own kernels; else as the best known ones, which are those of kernels/
  std::vector<LoweringRule> rules;
  std::vector<Fact> facts;
};

}  // namespace rooftile
