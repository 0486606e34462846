// Sizes of the blocks that PyTorch's caching allocator hands out (c10/cuda/CUDACachingAllocator.cpp, 2.11).
#pragma once

#include <cstdint>
#include <span>

namespace rooftile {

// Bytes that a request takes up: rounded to 512; from 10 MiB on a segment of its own, rounded to 2 MiB, of which a rest of at most 1 MiB is not split off.
// block_bytes(1000) == 1024; block_bytes(77,194,752) == 77,594,624 (73.62 MiB in a segment of 74).
double block_bytes(double bytes);

// What allocating the tensors of a layer `repeat` times in turn takes beyond their sizes: requests of 1 to 10 MiB are cut from segments of 20 MiB, best fit first, and the last
// piece keeps a rest of at most 1 MiB. Up to twelve rounds are played and continued linearly.
double allocation_waste(std::span<const double> tensors, std::int64_t repeat);

}  // namespace rooftile
