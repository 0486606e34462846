// Time of a GEMM: the best of a catalogue of tiles and K splits, each timed by waves of tiles over SMs. docs/model-kernels.md has the equations and their sources.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "estimator/timing/constants.h"
#include "estimator/timing/kernel_time.h"

namespace rooftile {

// The largest power of two, in elements of the input dtype and at most 16 bytes, that divides every leading dimension. bf16 nt with k = 4096, n = 50257: 1.
int alignment_of(const GemmShape& shape, DType dtype);

// Tiles in the row direction that an expert's share of the tokens takes on average. Tokens that choose at random leave an expert a binomial number of rows: mean m, deviation about
// sqrt(m), so that a mean of whole tiles spills over in half of the experts. E[ceil(x / tile)] is the sum over j of P(x > j tile); an expert that is called has one tile at least.
// 512 rows in tiles of 128: 4.5; 480 rows: 4.07.
double tiles_of_group(double m, double tile);

class GemmModel {
 public:
  // Keeps references to the device and constants; they outlive the model.
  GemmModel(const Machine& machine, const Constants& constants);

  // All fields of KernelTime except confidence and error.
  KernelTime time(const GemmShape& shape, DType dtype, ClockState clocks) const;

 private:
  struct Tile {
    int m, n, k;
    int ctas;                             // that one SM holds at once
    double mma_cycles;                    // of one K step at the family's steady rate
    double pause_cycles;                  // between two K steps: the wait for the next stage and the start of its first instructions
    double shared_cycles;                 // of one K step's traffic between shared memory and registers or tensor cores
    double l2_cycles;                     // of one K step's loads from L2
    double copy_a_cycles, copy_b_cycles;  // of one K step's narrow copies
    double turn_a_cycles;                 // of one K step: turning an operand that does not run along k
    double turn_b_cycles;
    double latency_cycles;            // least time of one K step: load latency over the stages in flight
    double fill_cycles;               // first load
    double epilogue_cycles_per_byte;  // to write a tile whose elements have one byte
    double patch_side;                // tiles along a side of the patch of C that runs at once
  };
  struct Bounds {  // of a family's tiles, one array per quantity
    std::vector<double> m, n, k, by_m, by_n, by_k;
    std::vector<double> split_across;    // tiles up to which K is split
    std::vector<double> step, epilogue;  // cycles at least of one K step; of a tile's epilogue per byte of an element
  };
  struct Family {
    std::string_view name;
    int min_alignment, max_alignment;
    bool single, batched, grouped;
    double copy_cycles = 0;  // of an SM for one warp's copy instruction narrower than 16 bytes
    double nt_slowdown;      // of a step whose operands both run along k
    double rate;             // instruction rate, relative to the dtype's peak
    bool persistent;
    double sharing;      // SMs that share a tile
    std::int64_t units;  // SMs, or groups of SMs that share a tile
    std::vector<Tile> tiles;
    Bounds bounds;
    std::vector<int> split_k;
  };
  struct Math {  // one dtype on this device
    double peak_flops = 0;
    double clock_hz = 0;  // at which peak_flops is stated
    GemmConstants constants;
    std::vector<Family> families;
  };
  struct Shape;
  struct Cost;

  Math make_math(const Machine& machine, DType dtype) const;
  static double step_cycles(const Shape& s, const Family& family, const Tile& tile);
  Cost evaluate(const Shape& s, const Family& family, const Tile& tile, std::int64_t across, std::int64_t split) const;
  static void bound_tiles(const Shape& s, const Family& family, std::size_t start, std::size_t count, double* __restrict across, double* __restrict least);
  Cost cheapest(const Shape& s, const Math& math, int alignment) const;
  double dram_bytes(const Shape& s, const Tile& tile) const;

  const Device& device_;
  const Constants& constants_;
  std::array<Math, kDTypeCount> math_;
};

}  // namespace rooftile
