// How this project's own streaming kernels (kernels/*.cu) divide a call over the GPU: what their time depends on besides bytes.
#pragma once

#include "estimator/hardware/device.h"
#include "estimator/timing/kernel_call.h"

namespace rooftile {

struct StreamPlan {
  double busy_sms = 1;  // that have work in the first round
  bool reads = true;    // false: nothing to wait for before the first store

  // CTAs that each do their share and end come in waves of what is resident at once. trips 0: CTAs go on to further rows, and `steps` counts their rounds.
  double waves = 0;     // CTAs over those resident
  double resident = 1;  // CTAs that share an SM
  double trips = 0;     // times that a CTA waits for memory, one after the other
  double steps = 1;     // dependent rounds (ask for data, wait, reduce, write) of the busiest CTA

  // Of one thread, one after the other: in each trip, and once in a CTA (or in each round).
  double trip_elements = 0, trip_vectors = 0;  // elements turned into results; accesses of 16 bytes, or of one element
  double once_elements = 0, once_vectors = 0;
  double reductions = 0;      // for which the warps of a row meet
  double shared_loads = 0;    // of rows that all CTAs read: weights of a norm
  double last_vectors = 0;    // accesses after the last row, where rows overlap
  double spilled_each = 0;    // bytes of an SM's threads that go from registers to its cache and back
  double chain_elements = 0;  // elements, where conversions are counted with them (pointwise)

  // Of the whole call.
  double again_bytes = 0;        // read a second time, from L2 while that holds them
  double shared_bytes = 0;       // read by every row out of caches
  double spilled_bytes = 0;      // that went from registers to local memory and back
  double conversions = 0;        // of 16-bit elements, each time that one is looked at or written
  double padding = 1;            // lanes that have an element or none, over elements
  double evaluations = 1;        // times that each special function is evaluated
  double row_warps = 0;          // warps that reduce over a row, each reduction counted: it costs issue slots however few lanes have work
  double single_accesses = 0;    // elements read and written one by one, where rows do not begin at 16 bytes
  double partial_sums = 0;       // that CTAs leave to be added up: columns times a power of the parts, weighted by how a thread's stores lie
  double tail_loads = 0;         // trips to L2 for them
  bool second_kernel = false;    // that adds them up
  bool one_after_other = false;  // a CTA asks for its next row only after this one
};

// The plan of a softmax, norm, column or row sum, pointwise, embedding, cross entropy or optimizer call. layernorm bf16 4096 x 4096: 512 threads a row at 32 registers, four rows
// on an SM, so 132 SMs go through 4096 rows in 7.76 waves.
StreamPlan plan_of(const KernelCall& call, const Device& device);

}  // namespace rooftile
