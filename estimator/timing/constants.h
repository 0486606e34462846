// The constants of the kernel-time model, looked up once by name in the calibration's layers and then plain numbers. Every one is physical and has one meaning; where a layer
// gives no value the neutral one (an ideal machine) stands in and the name is remembered as missing.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "estimator/timing/timer.h"

namespace rooftile {

inline constexpr std::size_t kAttentionKernels = 5;
inline constexpr std::size_t kDTypeCount = kDTypes.size();

struct GemmConstants {
  double eta = 1;                 // share of the data-sheet rate that a steady main loop of full tiles reaches at burst clocks
  double epilogue_cycles = 0;     // cycles of one SM to write 32 bytes of C
  double epilogue_overlap = 0;    // share of the epilogue that runs under the next tile's main loop
  double operand_efficiency = 1;  // share of the data-sheet DRAM bandwidth that operand tiles reach
  double latency_scale = 1;       // loop latency relative to the catalogue's
  double fragment_cost = 0;       // CUDA cores: multiply-add slots that an element loaded from shared memory takes; a thread's share of the tile says how many each one serves
  double sustained_fraction = 1;  // sustained over burst throughput: CUDA cores draw less power than tensor cores
  double transpose_cost = 0;      // where tensor cores only take operands along k: exposed share of the shared-memory time that turning an operand takes
};

struct AttentionConstants {
  double fwd_efficiency = 1, bwd_efficiency = 1;   // share of the MMA rate in the steady loop
  double bwd_overlap_p = 1;                        // overlap_p of the backward kernel
  double bwd_wide_head = 1;                        // rate of the backward loop for heads above 128, whose accumulators do not fit, relative to smaller ones
  double overlap_p = 1;                            // exponent of the norm that joins MMA and softmax: 1 one after the other, large: the longer hides the other
  double tile_s = 0, bwd_tile_s = 0;               // not overlapped start and end of a tile
  double fwd_wide_head = 0, decode_wide_head = 0;  // loss of rate for heads of 256 relative to those up to 128, in between in proportion
  double prepare_s = 0;                            // a memset before a kernel with many queries, for its scheduler
  double combine_s = 0;                            // second kernel of a decode whose keys are split
  double decode_efficiency = 1;                    // share of the bandwidth that a decode's KV stream reaches
  double tile_tail = 0;                            // share of the longest tile that the last wave adds under a causal mask (0: perfectly balanced schedule)
};

struct Constants {
  std::array<GemmConstants, kDTypeCount> gemm;
  double combine_p = 3;                       // exponent of the norm that joins the core time and the DRAM time of a GEMM
  double sector_split = 0;                    // extra L2 traffic of rows whose pitch is a multiple of 16 but not of 32 bytes
  double line_requests = 0;                   // extra L2 time of rows that touch two lines of 128 bytes instead of one
  std::array<double, 3> step_pause_cycles{};  // between two K steps of a matmul: persistent kernels, older ones with tensor cores, CUDA cores
  double store_split = 0;                     // extra cost of storing C where its pitch is not a multiple of 32 bytes: sectors are written in part
  double l2_bytes_per_clock_per_sm = 0;       // 0: not limiting
  double l2_panel_share = 0.5;                // share of L2 that holds panels for re-use
  double split_k_reduce_s = 0;                // launch of the reduction kernel
  double launch_s = 0;                        // from one kernel's end to the next one's first instruction, and its drain
  double stream_launch_s = 0;                 // the same for kernels that stream: they are small and start faster
  double dram_latency_s = 0;                  // first load of a memory-bound kernel
  double dram_write_cost = 0;                 // own kernels: extra cost of written bytes where a kernel reads too
  double stream_step_s = 0;                   // own kernels: one dependent round of a CTA
  double stream_convert_s = 0;                // own kernels: a thread's time for one 16-bit element beside its arithmetic
  double stream_flop_s = 0;                   // own kernels: a thread's time for one FLOP of an element
  double stream_warp_cycles = 0;              // own kernels: of an SM for a row's warp beside its elements
  double stream_single_cycles = 0;            // own kernels: of an SM for an element that is moved alone
  double stream_convert_cycles = 0;           // own kernels: of an SM for a 16-bit element that a row kernel reads
  double stream_partial_s = 0;                // own kernels: see StreamPlan::partial_sums
  double stream_flop_slots = 1;               // own kernels: issue slots of a FLOP, address arithmetic and conversions included
  double stream_efficiency = 1;               // long streams
  double sm_bytes_per_clock = 0;              // most that one SM moves; 0: not limiting
  double sustained_fraction = 1;              // sustained over burst tensor throughput
  double clock_factor = 1;                    // protocol: clock that a long run of calls holds, relative to that of a call alone
  double free_share = 1;                      // of the steady sustained matmul rate: a step whose mean rate stays below it runs at burst clocks
  double burst_s = 0, sustained_s = 0;        // kernels up to the first run at burst clocks, from the second on at sustained ones
  std::array<AttentionConstants, kAttentionKernels> attention;
  double attention_mask_cycles = 0, attention_bwd_mask_cycles = 0;  // of an SM for a score that a mask tensor is added to
  double attention_vector_ops = 0;                                  // vector instructions per score besides the exponential
  std::vector<double> family_rate;                                  // of the catalogue's families, in its order: share of the peak that their instructions reach
  std::vector<double> family_copy_cycles;                           // likewise: cycles that one warp's copy instruction narrower than 16 bytes holds an SM
  double line_split = 0;                                            // extra cost of such copies where rows begin inside a line of 128 bytes
  std::vector<double> family_latency_scale;                         // likewise: loop latency relative to the catalogue's; 0: GemmConstants::latency_scale
  std::vector<double> family_nt_slowdown;                           // likewise: at least 1, of a step whose operands both run along k
  double warm_operands = 0;                                         // protocol: share of the operands that a repeated call finds in L2, as far as L2 can hold them
  double attention_call_s = 0;                                      // protocol: what an engine's attention call takes besides the kernel
  double kv_write = 0;                                              // protocol: 1 when a causal attention call writes the new keys and values into a cache first
  std::array<double, kKernelClasses> efficiency;                    // share of the bandwidth by memory-bound class
  std::array<double, kKernelClasses> backward_efficiency;
  std::array<std::array<double, 2>, kKernelClasses> fixed_s{};  // by class and pass: what further kernels and their waits add to a call (column sums in a second kernel)
  std::array<std::array<double, 2>, kKernelClasses> floor_s{};  // by class and pass: least time of one CTA's share, however small the call
  std::array<double, kKernelClasses> spec_p90;                  // stated error where no residuals are known
  std::vector<std::string> missing;
};

// Bytes of `reusable` that are in L2 at the start: all of the warm share while the call's bytes fit in the part of L2 that holds panels, none once they are twice that (a
// repeated walk over more than a cache holds finds nothing), in between in proportion. warm 1, panels 20 MB: 30 MB of operands find 15 MB.
double warm_bytes(const Constants& constants, double l2_panel_bytes, double reusable_bytes, double call_bytes);

// Layers above `architecture` are looked at only in mode calibrated.
Constants resolve_constants(const Machine& machine, Mode mode);

}  // namespace rooftile
