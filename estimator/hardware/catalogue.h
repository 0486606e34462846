// The kernels a vendor library has for GEMM on one architecture, as data: tiles with their K step, stages and cluster, per alignment class and dtype group.
#pragma once

#include <string>
#include <vector>

#include "estimator/core/dtype.h"
#include "estimator/hardware/device.h"

namespace rooftile {

struct KernelTile {
  int m = 0, n = 0;  // of C
  int k = 0;         // elements of the K step; 0: 128 bytes worth
  int stages = 0;    // 0: as many as fit shared memory
};

// A family of kernels that the library uses for some dtypes and alignments: "hopper_tma" for 16-byte aligned operands, "ampere_align2" for less, ...
struct KernelFamily {
  std::string name;
  std::vector<DType> dtypes;
  int min_alignment = 1, max_alignment = 16;  // elements: the largest power of two that divides every leading dimension, capped at 16 bytes
  double rate = 1;                            // instruction rate relative to the dtype's peak (a Turing-generation kernel on Hopper reaches a fraction)
  bool single = true, batched = true;         // whether the library runs it for one product, and for batches of products
  bool grouped = false;                       // made for the experts of a mixture: products of different row counts in one launch
  bool persistent = false;                    // one CTA per SM walks over tiles
  bool tensor_cores = true;
  int max_ctas_per_sm = 1;
  int sms_per_tile = 1;            // 2: a pair of SMs shares a tile, each multiplies half of its rows and loads half of the other operand
  double iteration_latency_s = 0;  // from a load's issue to its use
  std::vector<KernelTile> tiles;
  std::vector<int> split_k;
};

struct Catalogue {
  std::string id, file;
  std::string architecture;
  std::vector<KernelFamily> families;
  std::vector<Fact> facts;
};

}  // namespace rooftile
