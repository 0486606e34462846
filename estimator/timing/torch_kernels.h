// Times of the kernels that eager PyTorch launches between matmuls (impl=torch). A kernel is limited by DRAM, by the rate at which its SMs step through elements (broadcasts,
// strided operands, casts up, concatenation), by work per row, or by what one thread block must do alone; the constants are data (hardware/calibrations/pytorch.yaml), fitted on
// one device and carried to others by bandwidth, number of SMs, clock and L2.
#pragma once

#include <array>
#include <map>
#include <string>
#include <string_view>

#include "estimator/timing/constants.h"
#include "estimator/timing/kernel_time.h"

namespace rooftile {

// Of one walk over operands ("vector", "broadcast", "layernorm", ...).
struct TorchWalk {
  bool known = false;
  double elements = 0;                        // per clock and SM; 0: not limiting
  double efficiency = 1;                      // share of the data-sheet bandwidth
  double fixed_s = 0;                         // beyond the launch of a stream
  double half_s = 0;                          // more of it for 16-bit elements, of which a thread of an unrolled kernel takes twice as many
  double row_cycles = 0;                      // of one SM for each row
  double load_cycles = 0;                     // of one SM for each byte of a row
  double column_cycles = 0, byte_cycles = 0;  // that the block of one row takes for each element, byte of it
  double again = 0;                           // passes over the input that repeat when it fell out of L2,
  double l2_share = 1;                        // of which so much holds rows in work,
  double in_flight = 8;                       // so many on each SM
  double serial_cycles = 0;                   // of a thread for each row that it adds up
  double stage_s = 0;                         // column sums: second stage, times the square root of the rows
  double block_columns = 0;                   // that one block of a column reduction takes
};

class TorchKernels {
 public:
  TorchKernels(const Machine& machine, const Constants& constants);

  // Whether the call is PyTorch's and constants of its walk are known.
  bool covers(const KernelCall& call) const;

  // The whole call with all its kernels, as they follow each other in a CUDA graph; `launch_s` holds the launches. bf16 copy of 2^26 elements on an H200: 65 us.
  KernelTime time(const KernelCall& call) const;

 private:
  const TorchWalk& walk(std::string_view name) const;
  double dram_seconds(const TorchWalk& w, double bytes) const { return bytes / (w.efficiency * efficiency_scale_ * bandwidth_); }
  double flat(const TorchWalk& w, double elements, double bytes, bool half) const;
  double rows(const TorchWalk& w, double rows, double cols, double element_bytes, double passes) const;
  double column_blocks(const TorchWalk& w, double rows, double cols, double bytes) const;
  double seconds(const KernelCall& call) const;
  double row_seconds(const KernelCall& call) const;
  double embedding_seconds(const KernelCall& call) const;
  double optimizer_seconds(const KernelCall& call) const;

  double sms_, clock_hz_, bandwidth_, l2_bytes_, launch_s_, stream_efficiency_, efficiency_scale_ = 1;
  std::map<std::string, TorchWalk, std::less<>> walks_;
};

// Kernels (GPU events without memsets) that the call launches in PyTorch 2.11: 1 for most, 2 for the backward pass of a layernorm, 29 for the backward pass of a large embedding,
// one for each 320 chunks of 65,536 elements of a fused optimizer.
int torch_launches(const KernelCall& call);

// The walk that a call's constants are found under: bf16 cast gives "cast_up", softmax of 4096 columns "softmax.block"; empty when there is none.
std::string_view torch_walk(const KernelCall& call);

}  // namespace rooftile
