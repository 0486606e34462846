// Rows that stream through registers: while a block works on one row its next one is already asked for, so that memory never waits for a sum. A row is shared by `width` threads
// (threadIdx.x), a block holds several such groups (threadIdx.y), and there are no more blocks than are resident: each goes on to the rows behind.
//
// A row stays as it was read, packed, and is unpacked as often as it is looked at: registers are what limits the rows on their way. Rows of any length are read in aligned vectors
// of 16 bytes. Where a row does not begin at one (ODD), its first and last vector hold elements of its neighbours too; they are masked, and stored element by element.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/vector.cuh"

namespace rooftile::kernels {

constexpr int kStreamThreads = 512;                                // of a block, at most
constexpr int kMostWarps = 32;                                     // of any block
constexpr int stream_blocks(int per) { return per == 1 ? 3 : 2; }  // of so many threads that are resident on an SM: keeps the compiler from holding rows unpacked

// per: vectors of a thread, 1, 2 or 4; 0: the row is too long for the registers.
struct StreamLaunch {
  int per = 0, width = 32, groups = 1;
  bool odd = false;
};

// 4096 columns of bf16: 512 vectors, four for each of 128 threads, two such groups in a block. 64 columns: 8 threads, 32 groups. 1000 columns of fp32 are 250 vectors: 64 threads.
inline StreamLaunch plan_stream(std::int64_t cols, int element_bytes) {
  StreamLaunch launch;
  const std::int64_t full = 16 / element_bytes;
  launch.odd = cols % full != 0;
  const std::int64_t vectors = launch.odd ? (cols + 2 * full - 2) / full : cols / full;
  if (vectors <= 32) {
    launch.per = 1;
    for (launch.width = 4; launch.width < vectors;) launch.width *= 2;
  } else if (vectors <= 64) {
    launch.per = 2;
  } else if (vectors <= 128) {
    launch.per = 4;
  } else {
    const auto width_of = [&](std::int64_t per) { return (vectors + per * 32 - 1) / (per * 32) * 32; };
    // Four vectors a thread unless that leaves many threads with nothing.
    launch.per = width_of(4) * 4 * 4 > vectors * 5 && width_of(2) <= kStreamThreads ? 2 : 4;
    const std::int64_t width = width_of(launch.per);
    if (width > kStreamThreads) return {0, 32, 1, launch.odd};
    launch.width = static_cast<int>(width);
  }
  launch.groups = launch.width >= 256 ? 1 : 256 / launch.width;
  return launch;
}

// Blocks that are resident at once, or fewer when that is all there is to do.
template <typename Kernel>
unsigned resident_blocks(Kernel kernel, int threads, std::int64_t wanted) {
  int device = 0, sms = 1, resident = 1;
  (void)cudaGetDevice(&device);
  (void)cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
  if (cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, threads, 0) != cudaSuccess || resident < 1) resident = 1;
  return static_cast<unsigned>(std::min<std::int64_t>(wanted, static_cast<std::int64_t>(sms) * resident));
}

// This thread's part of a row.
template <typename T, int PER, bool ODD>
struct StreamRow {
  static constexpr int VEC = 16 / static_cast<int>(sizeof(T));
  Vector<T, VEC> part[PER];
  int lead = 0;  // elements of the first vector that belong to the row before

  __device__ __forceinline__ static int first_of(int j) { return (static_cast<int>(threadIdx.x) + j * static_cast<int>(blockDim.x)) * VEC; }

  // `row` beyond the matrix: not valid. What is not read is `beyond`.
  __device__ __forceinline__ void ask(const T* matrix, std::int64_t row, int cols, bool valid, float beyond) {
    const std::int64_t begin = row * cols;
    lead = ODD ? static_cast<int>(begin % VEC) : 0;
    const T* from = matrix + begin - lead;
#pragma unroll
    for (int j = 0; j < PER; ++j) {
      const int at = first_of(j);
      if (valid && at < cols + lead) {
        load_raw<T, VEC>(from + at, part[j]);
      } else {
#pragma unroll
        for (int i = 0; i < VEC; ++i) part[j].at[i] = from_float<T>(beyond);
      }
    }
  }
  // Elements of the neighbours become `beyond`. Waits for what was asked for.
  __device__ __forceinline__ void mask(int cols, float beyond) {
    if constexpr (ODD) {
#pragma unroll
      for (int j = 0; j < PER; ++j) {
        const int at = first_of(j) - lead;
        if (at >= 0 && at + VEC <= cols) continue;
#pragma unroll
        for (int i = 0; i < VEC; ++i)
          if (at + i < 0 || at + i >= cols) part[j].at[i] = from_float<T>(beyond);
      }
    }
  }
  __device__ __forceinline__ float value(int j, int i) const { return to_float(part[j].at[i]); }

  // Writes vector j of the row.
  __device__ __forceinline__ void store_part(T* matrix, std::int64_t row, int cols, int j, const float (&y)[VEC]) const {
    const int at = first_of(j) - lead;
    T* to = matrix + row * cols + at;
    if (at >= 0 && at + VEC <= cols) {
      store<T, VEC>(to, y);
    } else if constexpr (ODD) {
#pragma unroll
      for (int i = 0; i < VEC; ++i)
        if (at + i >= 0 && at + i < cols) to[i] = from_float<T>(y[i]);
    }
  }
};

// Reductions over the threads of a group. Fewer than 32 threads: part of a warp. Several warps meet in shared memory, in turn in one half and in the other, so that one barrier a
// row is enough: a half is written again only behind the barrier of the row between, which no thread reaches before it has read.
struct StreamGroup {
  float2 (*shared)[kMostWarps];
  int parity = 0;

  __device__ __forceinline__ static float lanes_sum(float x) {
    for (int offset = min(static_cast<int>(blockDim.x), 32) / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(0xffffffffu, x, offset);
    return x;
  }
  __device__ __forceinline__ static float lanes_max(float x) {
    for (int offset = min(static_cast<int>(blockDim.x), 32) / 2; offset > 0; offset /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, offset));
    return x;
  }
  __device__ __forceinline__ static int warps() { return static_cast<int>(blockDim.x) / 32; }  // 0: less than one

  // Gives every thread the pair of warp `lane` of its group, or `none` beyond the last. All threads of the block take part.
  __device__ __forceinline__ float2 meet(float2 mine, float2 none) {
    const int lane = static_cast<int>(threadIdx.x & 31), first = static_cast<int>(threadIdx.y) * warps();
    if (lane == 0) shared[parity][first + static_cast<int>(threadIdx.x >> 5)] = mine;
    __syncthreads();
    const float2 other = lane < warps() ? shared[parity][first + lane] : none;
    parity ^= 1;
    return other;
  }
  __device__ __forceinline__ float sum(float x) {
    x = lanes_sum(x);
    return warps() > 1 ? warp_sum(meet({x, 0.0f}, {0.0f, 0.0f}).x) : x;
  }
};

// Calls body.template operator()<PER>() for the plan.
template <typename Body>
void dispatch_stream(const StreamLaunch& launch, Body&& body) {
  if (launch.per == 1) body.template operator()<1>();
  if (launch.per == 2) body.template operator()<2>();
  if (launch.per == 4) body.template operator()<4>();
}

}  // namespace rooftile::kernels
