// Times of the kernels that eager PyTorch launches between matmuls (impl=torch). A kernel is limited by DRAM, by the rate at which its SMs step through elements (broadcasts,
// strided operands, casts up, concatenation), by work per row, or by what one thread block must do alone; the constants are data (hardware/calibrations/pytorch.yaml), fitted on
// one device and carried to others by bandwidth, number of SMs, clock and L2.
#pragma once

#include <array>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "estimator/timing/constants.h"
#include "estimator/timing/kernel_time.h"

namespace rooftile {

// Of one walk over operands ("vector", "broadcast", "layernorm", ...).
struct TorchWalk {
  bool known = false;
  double elements = 0;                        // per clock and SM; 0: not limiting
  double efficiency = 1;                      // share of the data-sheet bandwidth
  double fixed_s = 0;                         // beyond the launch of a stream
  double latency_s = 0;                       // that a thread alone takes for its elements: no kernel is shorter, and streams hide it
  double half_s = 0;                          // more of it for 16-bit elements, of which a thread of an unrolled kernel takes twice as many
  double row_cycles = 0;                      // of one SM for each row
  double load_cycles = 0;                     // of one SM for each byte of a row
  double column_cycles = 0, byte_cycles = 0;  // that the block of one row takes for each element, byte of it
  double half_factor = 1;                     // on the steps of 16-bit elements: atomic additions to half a word are tried until they meet no other
  double again = 0;                           // passes over the input that repeat when it fell out of L2,
  double l2_share = 1;                        // of which so much holds rows in work,
  double l1_share = 0;                        // of the cache of an SM, which holds the rows of its blocks of 128 threads before L2 must; 0: does not
  double in_flight = 8;                       // so many on each SM
  double serial_cycles = 0;                   // of a thread for each row that it adds up
  double tail = 0;                            // share of the rows in work at once that run after SMs begin to idle
  double split_s = 0;                         // that a reduction takes more when several blocks share a result
  double stage_s = 0;                         // column sums: a step through the other blocks' sums; one pass of a sort; one of few rows that are picked one by one
  double block_columns = 0;                   // that one block of a column reduction takes
};

// A constant of a walk by the last word of its key: torch.<walk>.<name>.
struct TorchField {
  std::string_view name;
  double TorchWalk::*member;
};
inline constexpr std::array kTorchFields = {TorchField{"elements_per_clock_per_sm", &TorchWalk::elements},
                                            TorchField{"efficiency", &TorchWalk::efficiency},
                                            TorchField{"fixed_s", &TorchWalk::fixed_s},
                                            TorchField{"latency_s", &TorchWalk::latency_s},
                                            TorchField{"half_s", &TorchWalk::half_s},
                                            TorchField{"half_factor", &TorchWalk::half_factor},
                                            TorchField{"row_cycles", &TorchWalk::row_cycles},
                                            TorchField{"load_cycles", &TorchWalk::load_cycles},
                                            TorchField{"column_cycles", &TorchWalk::column_cycles},
                                            TorchField{"byte_cycles", &TorchWalk::byte_cycles},
                                            TorchField{"again", &TorchWalk::again},
                                            TorchField{"l2_share", &TorchWalk::l2_share},
                                            TorchField{"l1_share", &TorchWalk::l1_share},
                                            TorchField{"in_flight", &TorchWalk::in_flight},
                                            TorchField{"serial_cycles", &TorchWalk::serial_cycles},
                                            TorchField{"tail", &TorchWalk::tail},
                                            TorchField{"split_s", &TorchWalk::split_s},
                                            TorchField{"stage_s", &TorchWalk::stage_s},
                                            TorchField{"block_columns", &TorchWalk::block_columns}};

class TorchKernels {
 public:
  TorchKernels(const Machine& machine, const Constants& constants);

  // Sets one constant; a walk without constants becomes known by it.
  void set(std::string_view walk, const TorchField& field, double value);

  // Whether the call is PyTorch's and constants of its walk are known.
  bool covers(const KernelCall& call) const;

  // The whole call with all its kernels, as they follow each other in a CUDA graph; `launch_s` holds the launches. bf16 copy of 2^26 elements on an H200: 65 us.
  KernelTime time(const KernelCall& call) const;

 private:
  const TorchWalk& walk(std::string_view name) const;
  double dram_seconds(const TorchWalk& w, double bytes) const { return bytes / (w.efficiency * efficiency_scale_ * bandwidth_); }
  double flat(const TorchWalk& w, double elements, double bytes, bool half) const;
  double missed(const TorchWalk& w, double rows, double row_bytes) const;
  double rows(const TorchWalk& w, double rows, double cols, double element_bytes, double passes) const;
  double column_blocks(const TorchWalk& w, double rows, double cols, double bytes) const;
  double seconds(const KernelCall& call) const;
  double row_seconds(const KernelCall& call) const;
  double column_sum_seconds(double rows, double cols, double element_bytes) const;
  double few_rows_seconds(double rows) const;
  double masked_fill_seconds(const KernelCall& call) const;
  double embedding_seconds(const KernelCall& call) const;
  double optimizer_seconds(const KernelCall& call) const;

  double sms_, clock_hz_, bandwidth_, l2_bytes_, l1_bytes_, blocks_per_sm_, launch_s_, stream_efficiency_, efficiency_scale_ = 1;
  std::map<std::string, TorchWalk, std::less<>> walks_;
};

// Kernels (GPU events without memsets) that the call launches in PyTorch 2.11: 1 for most, 2 for the backward pass of a layernorm, 29 for the backward pass of a large embedding,
// one for each 320 chunks of 65,536 elements of a fused optimizer.
int torch_launches(const KernelCall& call);

// The walk that a call's constants are found under: bf16 cast gives "cast_up", softmax of 4096 columns "softmax.block"; empty when there is none.
std::string_view torch_walk(const KernelCall& call);

// Every walk that the call's time is made of, its own first: the backward pass of a layernorm gives "layernorm_input" and "layernorm.gamma".
std::vector<std::string_view> torch_walks(const KernelCall& call);

}  // namespace rooftile
