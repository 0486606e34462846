#include "kernels/scores.h"
#include "kernels/vector.cuh"

namespace rooftile::kernels {

namespace {

template <typename T, int VEC>
__global__ void __launch_bounds__(256)
    scale_and_mask_kernel(const T* x, T* y, std::int64_t rows, std::int64_t seq_q, std::int64_t seq_kv, float scale, std::int64_t shift, std::int64_t window, bool causal) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (row >= rows) return;
  const std::int64_t last = causal ? row % seq_q + shift : seq_kv - 1;           // the last key that may be seen
  const std::int64_t first = window > 0 ? row % seq_q + shift - window + 1 : 0;  // and the first
  for (std::int64_t at = static_cast<std::int64_t>(threadIdx.x) * VEC; at < seq_kv; at += static_cast<std::int64_t>(blockDim.x) * VEC) {
    float v[VEC];
    load<T, VEC>(x + row * seq_kv + at, v);
#pragma unroll
    for (int i = 0; i < VEC; ++i) v[i] = at + i <= last && at + i >= first ? v[i] * scale : -60000.0f;
    store<T, VEC>(y + row * seq_kv + at, v);
  }
}

}  // namespace

template <typename T>
void scale_and_mask(cudaStream_t stream, const T* x, T* y, std::int64_t rows, std::int64_t seq_q, std::int64_t seq_kv, float scale, bool causal, std::int64_t window) {
  constexpr int kFull = 16 / static_cast<int>(sizeof(T));
  const bool whole = seq_kv % kFull == 0;
  const std::int64_t vectors = whole ? seq_kv / kFull : seq_kv;
  const unsigned width = vectors <= 32 ? 32 : vectors <= 128 ? 64 : 256, groups = 256 / width;
  const unsigned grid = static_cast<unsigned>((rows + groups - 1) / groups);
  if (whole)
    scale_and_mask_kernel<T, kFull><<<grid, dim3(width, groups), 0, stream>>>(x, y, rows, seq_q, seq_kv, scale, seq_kv - seq_q, window, causal);
  else
    scale_and_mask_kernel<T, 1><<<grid, dim3(width, groups), 0, stream>>>(x, y, rows, seq_q, seq_kv, scale, seq_kv - seq_q, window, causal);
}

#define ROOFTILE_INSTANTIATE(T) template void scale_and_mask<T>(cudaStream_t, const T*, T*, std::int64_t, std::int64_t, std::int64_t, float, bool, std::int64_t);
ROOFTILE_INSTANTIATE(__nv_bfloat16)
ROOFTILE_INSTANTIATE(__half)
ROOFTILE_INSTANTIATE(float)
#undef ROOFTILE_INSTANTIATE

}  // namespace rooftile::kernels
