// How this project's own streaming kernels (kernels/*.cu) divide a call over the GPU: what their time depends on besides bytes.
#pragma once

#include "estimator/hardware/device.h"
#include "estimator/timing/kernel_call.h"

namespace rooftile {

struct StreamPlan {
  double steps = 1;              // dependent rounds (ask for data, wait, reduce, write) of the busiest CTA, one after the other
  double busy_sms = 1;           // that have work in the first round
  double again_bytes = 0;        // read a second time, mostly from L2
  double chain_elements = 0;     // of one thread: how many elements it turns into results one after the other
  double row_warps = 0;          // rows times the warps that share one: each costs issue slots however few of its lanes have work
  double single_accesses = 0;    // elements read and written one by one, where rows do not begin at 16 bytes
  double partial_sums = 0;       // that CTAs leave for a second kernel: columns times the root of the parts, weighted by how far apart a thread's stores lie
  bool one_after_other = false;  // rounds do not overlap: one CTA fills an SM and asks for its next row only after this one
  double second_steps = 0;       // rounds of a second kernel that adds up what the first left; 0: there is none
  bool reads = true;             // false: nothing to wait for before the first store
};

// The plan of a softmax, norm, column or row sum, pointwise, embedding, cross entropy or optimizer call. layernorm bf16 4096 x 4096: 512 threads a row, two rows on an SM by
// their registers, so 132 SMs go through 4096 rows in 16 rounds.
StreamPlan plan_of(const KernelCall& call, const Device& device);

}  // namespace rooftile
