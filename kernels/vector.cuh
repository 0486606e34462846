// Device-side helpers: conversions, 16-byte loads and stores, reductions over a warp and a block.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>

namespace rooftile::kernels {

template <typename T>
__device__ __forceinline__ T from_float(float x) {
  return static_cast<T>(x);
}
template <>
__device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}
template <>
__device__ __forceinline__ __half from_float<__half>(float x) {
  return __float2half_rn(x);
}

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ __forceinline__ float to_float(__half x) { return __half2float(x); }
__device__ __forceinline__ float to_float(__nv_fp8_e4m3 x) { return static_cast<float>(x); }

// N neighbouring elements as one value; loads and stores of at most 16 bytes each when the address allows (N chosen by the caller).
template <typename T, int N>
struct alignas(sizeof(T) * N > 16 ? 16 : sizeof(T) * N) Vector {
  T at[N];
};

// Streaming access: the data is used once, so it should not displace what is reused. The raw form is for loads that are asked for long before they are used.
template <typename T, int N>
__device__ __forceinline__ void load_raw(const T* from, Vector<T, N>& v) {
  using V = Vector<T, N>;
  if constexpr (sizeof(V) % 16 == 0) {
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(V) / 16); ++i) reinterpret_cast<int4*>(&v)[i] = __ldcs(reinterpret_cast<const int4*>(from) + i);
  } else if constexpr (sizeof(V) == 8) {
    *reinterpret_cast<int2*>(&v) = __ldcs(reinterpret_cast<const int2*>(from));
  } else if constexpr (sizeof(V) == 4) {
    *reinterpret_cast<int*>(&v) = __ldcs(reinterpret_cast<const int*>(from));
  } else {
    v = *reinterpret_cast<const V*>(from);
  }
}

template <typename T, int N>
__device__ __forceinline__ void load(const T* from, float (&to)[N]) {
  Vector<T, N> v;
  load_raw<T, N>(from, v);
#pragma unroll
  for (int i = 0; i < N; ++i) to[i] = to_float(v.at[i]);
}

// The same for data that other blocks read too (weights of a norm, a bias row, rotary tables).
template <typename T, int N>
__device__ __forceinline__ void load_shared_row(const T* from, float (&to)[N]) {
  using V = Vector<T, N>;
  V v;
  if constexpr (sizeof(V) % 16 == 0) {
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(V) / 16); ++i) reinterpret_cast<int4*>(&v)[i] = __ldg(reinterpret_cast<const int4*>(from) + i);
  } else {
    v = *reinterpret_cast<const V*>(from);
  }
#pragma unroll
  for (int i = 0; i < N; ++i) to[i] = to_float(v.at[i]);
}

template <typename T, int N>
__device__ __forceinline__ void store(T* to, const float (&from)[N]) {
  using V = Vector<T, N>;
  V v;
#pragma unroll
  for (int i = 0; i < N; ++i) v.at[i] = from_float<T>(from[i]);
  if constexpr (sizeof(V) % 16 == 0) {
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(V) / 16); ++i) __stcs(reinterpret_cast<int4*>(to) + i, reinterpret_cast<int4*>(&v)[i]);
  } else {
    *reinterpret_cast<V*>(to) = v;
  }
}

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) x += __shfl_xor_sync(0xffffffffu, x, offset);
  return x;
}
__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, offset));
  return x;
}

// Sums (or maxima) over a block of whole warps, given to every thread. `shared` holds 33 floats per call in flight; two barriers, so it can be reused at once.
__device__ __forceinline__ float block_sum(float x, float* shared) {
  x = warp_sum(x);
  const int warps = blockDim.x >> 5;
  if (warps == 1) return x;
  __syncthreads();
  if ((threadIdx.x & 31) == 0) shared[threadIdx.x >> 5] = x;
  __syncthreads();
  return warp_sum(static_cast<int>(threadIdx.x & 31) < warps ? shared[threadIdx.x & 31] : 0.0f);
}
__device__ __forceinline__ float block_max(float x, float* shared) {
  x = warp_max(x);
  const int warps = blockDim.x >> 5;
  if (warps == 1) return x;
  __syncthreads();
  if ((threadIdx.x & 31) == 0) shared[threadIdx.x >> 5] = x;
  __syncthreads();
  return warp_max(static_cast<int>(threadIdx.x & 31) < warps ? shared[threadIdx.x & 31] : -INFINITY);
}

}  // namespace rooftile::kernels
