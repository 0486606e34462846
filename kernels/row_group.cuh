// How threads share rows: a group of `width` threads (whole warps, threadIdx.x) works on one row, a block holds several groups (threadIdx.y) that go through their rows in step.
// Each thread keeps PER vectors of VEC neighbouring elements in registers, so that a row is read from memory once.
#pragma once

#include <cstdint>

#include "kernels/vector.cuh"

namespace rooftile::kernels {

struct RowGroup {
  float* shared;  // 32 floats for each group
  __device__ __forceinline__ float sum(float x) const {
    x = warp_sum(x);
    const int warps = blockDim.x >> 5;
    if (warps == 1) return x;
    float* mine = shared + 32 * threadIdx.y;
    __syncthreads();
    if ((threadIdx.x & 31) == 0) mine[threadIdx.x >> 5] = x;
    __syncthreads();
    return warp_sum(static_cast<int>(threadIdx.x & 31) < warps ? mine[threadIdx.x & 31] : 0.0f);
  }
  __device__ __forceinline__ float max(float x) const {
    x = warp_max(x);
    const int warps = blockDim.x >> 5;
    if (warps == 1) return x;
    float* mine = shared + 32 * threadIdx.y;
    __syncthreads();
    if ((threadIdx.x & 31) == 0) mine[threadIdx.x >> 5] = x;
    __syncthreads();
    return warp_max(static_cast<int>(threadIdx.x & 31) < warps ? mine[threadIdx.x & 31] : -INFINITY);
  }
};

// Reads this thread's part of a row; what lies beyond the row is `beyond`.
template <typename T, int VEC, int PER>
__device__ __forceinline__ void load_row(const T* row, std::int64_t cols, bool valid, float beyond, float (&x)[PER][VEC]) {
#pragma unroll
  for (int j = 0; j < PER; ++j) {
    const std::int64_t at = (static_cast<std::int64_t>(threadIdx.x) + static_cast<std::int64_t>(j) * blockDim.x) * VEC;
    if (valid && at < cols) {
      load<T, VEC>(row + at, x[j]);
    } else {
#pragma unroll
      for (int i = 0; i < VEC; ++i) x[j][i] = beyond;
    }
  }
}

// A row on its way from memory.
template <typename T, int VEC, int PER>
struct RawRow {
  Vector<T, VEC> part[PER];

  __device__ __forceinline__ void load(const T* row, std::int64_t cols, bool valid) {
#pragma unroll
    for (int j = 0; j < PER; ++j) {
      const std::int64_t at = (static_cast<std::int64_t>(threadIdx.x) + static_cast<std::int64_t>(j) * blockDim.x) * VEC;
      if (valid && at < cols) {
        load_raw<T, VEC>(row + at, part[j]);
      } else {
#pragma unroll
        for (int i = 0; i < VEC; ++i) part[j].at[i] = from_float<T>(0.0f);
      }
    }
  }
  __device__ __forceinline__ void values(float (&x)[PER][VEC]) const {
#pragma unroll
    for (int j = 0; j < PER; ++j)
#pragma unroll
      for (int i = 0; i < VEC; ++i) x[j][i] = to_float(part[j].at[i]);
  }
};

template <typename T, int VEC, int PER>
__device__ __forceinline__ void store_row(T* row, std::int64_t cols, bool valid, const float (&y)[PER][VEC]) {
#pragma unroll
  for (int j = 0; j < PER; ++j) {
    const std::int64_t at = (static_cast<std::int64_t>(threadIdx.x) + static_cast<std::int64_t>(j) * blockDim.x) * VEC;
    if (valid && at < cols) store<T, VEC>(row + at, y[j]);
  }
}

// The shape of a launch. vec: elements of a vector; per: vectors of a thread; 0 when the row is too long to be kept in registers.
struct RowLaunch {
  int vec = 0, per = 0, width = 32, groups = 1;
};

// element_bytes 2 or 4; at most `max_elements` kept by one thread. 4096 columns of bf16: 512 vectors of 8, one for each of 512 threads.
inline RowLaunch plan_rows(std::int64_t cols, int element_bytes, int max_elements) {
  RowLaunch launch;
  const int full = 16 / element_bytes;
  launch.vec = cols % full == 0 ? full : 1;
  const std::int64_t vectors = cols / launch.vec;
  const int smallest = launch.vec == 1 ? 8 : 1;  // PER values that are compiled: 1 2 4 8 for vectors, 8 16 for single elements
  const auto next = [](int per) { return per * 2; };
  if (launch.vec == 1) max_elements = 16;
  for (int per = smallest; per * launch.vec <= max_elements; per = next(per)) {
    // A warp per row while it fits; otherwise up to 512 threads before a thread takes more, and up to 1024 at the limit.
    const bool last = next(per) * launch.vec > max_elements;
    const std::int64_t width = (vectors + static_cast<std::int64_t>(per) * 32 - 1) / (static_cast<std::int64_t>(per) * 32) * 32;
    if (width <= 32 || (vectors > 128 && width <= 512) || (last && width <= 1024)) {
      launch.per = per;
      launch.width = static_cast<int>(width);
      launch.groups = width >= 256 ? 1 : static_cast<int>(256 / width);
      return launch;
    }
  }
  launch.per = 0;
  launch.width = 1024;
  return launch;
}

// Calls body.template operator()<VEC, PER>() for the plan.
template <typename T, typename Body>
void dispatch_rows(const RowLaunch& launch, Body&& body) {
  constexpr int kFull = 16 / static_cast<int>(sizeof(T));
  if (launch.vec == 1) {
    if (launch.per == 8) return body.template operator()<1, 8>();
    return body.template operator()<1, 16>();
  }
  if (launch.per == 1) return body.template operator()<kFull, 1>();
  if (launch.per == 2) return body.template operator()<kFull, 2>();
  if (launch.per == 4) return body.template operator()<kFull, 4>();
  if constexpr (sizeof(T) == 4) {
    if (launch.per == 8) return body.template operator()<kFull, 8>();
  }
}

}  // namespace rooftile::kernels
