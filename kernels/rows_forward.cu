// Softmax, layernorm and rmsnorm forward and softmax backward: one read and one write of each element while a row fits in the registers of a block.
#include "kernels/row_group.cuh"
#include "kernels/rows.h"

namespace rooftile::kernels {

namespace {

template <typename T, int VEC, int PER>
__global__ void __launch_bounds__(1024) softmax_forward_kernel(const T* x, T* y, std::int64_t rows, std::int64_t cols) {
  __shared__ float shared[32 * 8];
  const RowGroup group{shared};
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  const bool valid = row < rows;
  float v[PER][VEC];
  load_row<T, VEC, PER>(x + row * cols, cols, valid, -INFINITY, v);
  float top = -INFINITY;
#pragma unroll
  for (int j = 0; j < PER; ++j)
#pragma unroll
    for (int i = 0; i < VEC; ++i) top = fmaxf(top, v[j][i]);
  top = group.max(top);
  float sum = 0;
#pragma unroll
  for (int j = 0; j < PER; ++j)
#pragma unroll
    for (int i = 0; i < VEC; ++i) {
      v[j][i] = __expf(v[j][i] - top);
      sum += v[j][i];
    }
  const float inverse = 1.0f / group.sum(sum);
#pragma unroll
  for (int j = 0; j < PER; ++j)
#pragma unroll
    for (int i = 0; i < VEC; ++i) v[j][i] *= inverse;
  store_row<T, VEC, PER>(y + row * cols, cols, valid, v);
}

// Any row length: the maximum and the sum in one pass (rescaled when the maximum grows), then a second read, mostly from L2.
template <typename T, int VEC>
__global__ void __launch_bounds__(1024) softmax_forward_long_kernel(const T* x, T* y, std::int64_t cols) {
  __shared__ float shared[32];
  x += static_cast<std::int64_t>(blockIdx.x) * cols;
  y += static_cast<std::int64_t>(blockIdx.x) * cols;
  float top = -INFINITY, sum = 0;
  for (std::int64_t at = static_cast<std::int64_t>(threadIdx.x) * VEC; at < cols; at += static_cast<std::int64_t>(blockDim.x) * VEC) {
    float v[VEC];
    load_shared_row<T, VEC>(x + at, v);
    float best = top;
#pragma unroll
    for (int i = 0; i < VEC; ++i) best = fmaxf(best, v[i]);
    sum *= __expf(top - best);
#pragma unroll
    for (int i = 0; i < VEC; ++i) sum += __expf(v[i] - best);
    top = best;
  }
  const float all = block_max(top, shared);
  const float inverse = 1.0f / block_sum(top == -INFINITY ? 0.0f : sum * __expf(top - all), shared);
  for (std::int64_t at = static_cast<std::int64_t>(threadIdx.x) * VEC; at < cols; at += static_cast<std::int64_t>(blockDim.x) * VEC) {
    float v[VEC];
    load<T, VEC>(x + at, v);
#pragma unroll
    for (int i = 0; i < VEC; ++i) v[i] = __expf(v[i] - all) * inverse;
    store<T, VEC>(y + at, v);
  }
}

// dx = y (dy - sum(y dy))
template <typename T, int VEC, int PER>
__global__ void __launch_bounds__(1024) softmax_backward_kernel(const T* y, const T* dy, T* dx, std::int64_t rows, std::int64_t cols) {
  __shared__ float shared[32 * 8];
  const RowGroup group{shared};
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  const bool valid = row < rows;
  float v[PER][VEC], g[PER][VEC];
  load_row<T, VEC, PER>(y + row * cols, cols, valid, 0, v);
  load_row<T, VEC, PER>(dy + row * cols, cols, valid, 0, g);
  float dot = 0;
#pragma unroll
  for (int j = 0; j < PER; ++j)
#pragma unroll
    for (int i = 0; i < VEC; ++i) dot += v[j][i] * g[j][i];
  dot = group.sum(dot);
#pragma unroll
  for (int j = 0; j < PER; ++j)
#pragma unroll
    for (int i = 0; i < VEC; ++i) v[j][i] *= g[j][i] - dot;
  store_row<T, VEC, PER>(dx + row * cols, cols, valid, v);
}

template <typename T, int VEC>
__global__ void __launch_bounds__(1024) softmax_backward_long_kernel(const T* y, const T* dy, T* dx, std::int64_t cols) {
  __shared__ float shared[32];
  const std::int64_t base = static_cast<std::int64_t>(blockIdx.x) * cols;
  float dot = 0;
  for (std::int64_t at = static_cast<std::int64_t>(threadIdx.x) * VEC; at < cols; at += static_cast<std::int64_t>(blockDim.x) * VEC) {
    float v[VEC], g[VEC];
    load_shared_row<T, VEC>(y + base + at, v);
    load_shared_row<T, VEC>(dy + base + at, g);
#pragma unroll
    for (int i = 0; i < VEC; ++i) dot += v[i] * g[i];
  }
  dot = block_sum(dot, shared);
  for (std::int64_t at = static_cast<std::int64_t>(threadIdx.x) * VEC; at < cols; at += static_cast<std::int64_t>(blockDim.x) * VEC) {
    float v[VEC], g[VEC];
    load<T, VEC>(y + base + at, v);
    load<T, VEC>(dy + base + at, g);
#pragma unroll
    for (int i = 0; i < VEC; ++i) v[i] *= g[i] - dot;
    store<T, VEC>(dx + base + at, v);
  }
}

// MEAN: layernorm (mean subtracted, beta added); otherwise rmsnorm. Statistics are kept for the backward pass.
template <typename T, int VEC, int PER, bool MEAN>
__global__ void __launch_bounds__(1024)
    norm_forward_kernel(const T* x, const T* gamma, const T* beta, T* y, float* means, float* rstds, std::int64_t rows, std::int64_t cols, float epsilon) {
  __shared__ float shared[32 * 8];
  const RowGroup group{shared};
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  const bool valid = row < rows;
  float v[PER][VEC];
  load_row<T, VEC, PER>(x + row * cols, cols, valid, 0, v);
  float mean = 0;
  if constexpr (MEAN) {
    float sum = 0;
#pragma unroll
    for (int j = 0; j < PER; ++j)
#pragma unroll
      for (int i = 0; i < VEC; ++i) sum += v[j][i];
    mean = group.sum(sum) / static_cast<float>(cols);
  }
  float square = 0;
#pragma unroll
  for (int j = 0; j < PER; ++j) {
    const bool inside = (static_cast<std::int64_t>(threadIdx.x) + static_cast<std::int64_t>(j) * blockDim.x) * VEC < cols;
#pragma unroll
    for (int i = 0; i < VEC; ++i) {
      v[j][i] -= mean;
      if (inside) square += v[j][i] * v[j][i];
    }
  }
  const float rstd = rsqrtf(group.sum(square) / static_cast<float>(cols) + epsilon);
  if (valid && threadIdx.x == 0) {
    if constexpr (MEAN) means[row] = mean;
    rstds[row] = rstd;
  }
#pragma unroll
  for (int j = 0; j < PER; ++j) {
    const std::int64_t at = (static_cast<std::int64_t>(threadIdx.x) + static_cast<std::int64_t>(j) * blockDim.x) * VEC;
    if (!valid || at >= cols) continue;
    float weight[VEC];
    load_shared_row<T, VEC>(gamma + at, weight);
#pragma unroll
    for (int i = 0; i < VEC; ++i) v[j][i] *= rstd * weight[i];
    if constexpr (MEAN) {
      load_shared_row<T, VEC>(beta + at, weight);
#pragma unroll
      for (int i = 0; i < VEC; ++i) v[j][i] += weight[i];
    }
    store<T, VEC>(y + row * cols + at, v[j]);
  }
}

// Any row length: sums in a first pass (shifted by the first element, so that they do not cancel), then a second read.
template <typename T, int VEC, bool MEAN>
__global__ void __launch_bounds__(1024) norm_forward_long_kernel(const T* x, const T* gamma, const T* beta, T* y, float* means, float* rstds, std::int64_t cols, float epsilon) {
  __shared__ float shared[32];
  const std::int64_t row = blockIdx.x;
  x += row * cols;
  y += row * cols;
  const float shift = MEAN ? to_float(x[0]) : 0.0f;
  float sum = 0, square = 0;
  for (std::int64_t at = static_cast<std::int64_t>(threadIdx.x) * VEC; at < cols; at += static_cast<std::int64_t>(blockDim.x) * VEC) {
    float v[VEC];
    load_shared_row<T, VEC>(x + at, v);
#pragma unroll
    for (int i = 0; i < VEC; ++i) {
      sum += v[i] - shift;
      square += (v[i] - shift) * (v[i] - shift);
    }
  }
  const float offset = MEAN ? block_sum(sum, shared) / static_cast<float>(cols) : 0.0f;
  const float mean = shift + offset;
  const float rstd = rsqrtf(block_sum(square, shared) / static_cast<float>(cols) - offset * offset + epsilon);
  if (threadIdx.x == 0) {
    if constexpr (MEAN) means[row] = mean;
    rstds[row] = rstd;
  }
  for (std::int64_t at = static_cast<std::int64_t>(threadIdx.x) * VEC; at < cols; at += static_cast<std::int64_t>(blockDim.x) * VEC) {
    float v[VEC], weight[VEC];
    load<T, VEC>(x + at, v);
    load_shared_row<T, VEC>(gamma + at, weight);
#pragma unroll
    for (int i = 0; i < VEC; ++i) v[i] = (v[i] - mean) * rstd * weight[i];
    if constexpr (MEAN) {
      load_shared_row<T, VEC>(beta + at, weight);
#pragma unroll
      for (int i = 0; i < VEC; ++i) v[i] += weight[i];
    }
    store<T, VEC>(y + at, v);
  }
}

}  // namespace

template <typename T>
void softmax_forward(cudaStream_t stream, const T* x, T* y, std::int64_t rows, std::int64_t cols) {
  const RowLaunch launch = plan_rows(cols, sizeof(T), 32);
  if (launch.per == 0) {
    if (launch.vec == 1)
      softmax_forward_long_kernel<T, 1><<<static_cast<unsigned>(rows), 1024, 0, stream>>>(x, y, cols);
    else
      softmax_forward_long_kernel<T, 16 / sizeof(T)><<<static_cast<unsigned>(rows), 1024, 0, stream>>>(x, y, cols);
    return;
  }
  const dim3 block(static_cast<unsigned>(launch.width), static_cast<unsigned>(launch.groups));
  const unsigned grid = static_cast<unsigned>((rows + launch.groups - 1) / launch.groups);
  dispatch_rows<T>(launch, [&]<int VEC, int PER>() { softmax_forward_kernel<T, VEC, PER><<<grid, block, 0, stream>>>(x, y, rows, cols); });
}

template <typename T>
void softmax_backward(cudaStream_t stream, const T* y, const T* dy, T* dx, std::int64_t rows, std::int64_t cols) {
  const RowLaunch launch = plan_rows(cols, sizeof(T), 16);
  if (launch.per == 0) {
    if (launch.vec == 1)
      softmax_backward_long_kernel<T, 1><<<static_cast<unsigned>(rows), 1024, 0, stream>>>(y, dy, dx, cols);
    else
      softmax_backward_long_kernel<T, 16 / sizeof(T)><<<static_cast<unsigned>(rows), 1024, 0, stream>>>(y, dy, dx, cols);
    return;
  }
  const dim3 block(static_cast<unsigned>(launch.width), static_cast<unsigned>(launch.groups));
  const unsigned grid = static_cast<unsigned>((rows + launch.groups - 1) / launch.groups);
  dispatch_rows<T>(launch, [&]<int VEC, int PER>() {
    if constexpr (VEC * PER <= 16) softmax_backward_kernel<T, VEC, PER><<<grid, block, 0, stream>>>(y, dy, dx, rows, cols);
  });
}

template <typename T>
void norm_forward(cudaStream_t stream, bool layernorm, const T* x, const T* gamma, const T* beta, T* y, float* means, float* rstds, std::int64_t rows, std::int64_t cols,
                  float epsilon) {
  const RowLaunch launch = plan_rows(cols, sizeof(T), 32);
  if (launch.per == 0) {
    constexpr int kFull = 16 / static_cast<int>(sizeof(T));
    const unsigned grid = static_cast<unsigned>(rows);
    if (launch.vec == 1 && layernorm)
      norm_forward_long_kernel<T, 1, true><<<grid, 1024, 0, stream>>>(x, gamma, beta, y, means, rstds, cols, epsilon);
    else if (launch.vec == 1)
      norm_forward_long_kernel<T, 1, false><<<grid, 1024, 0, stream>>>(x, gamma, beta, y, means, rstds, cols, epsilon);
    else if (layernorm)
      norm_forward_long_kernel<T, kFull, true><<<grid, 1024, 0, stream>>>(x, gamma, beta, y, means, rstds, cols, epsilon);
    else
      norm_forward_long_kernel<T, kFull, false><<<grid, 1024, 0, stream>>>(x, gamma, beta, y, means, rstds, cols, epsilon);
    return;
  }
  const dim3 block(static_cast<unsigned>(launch.width), static_cast<unsigned>(launch.groups));
  const unsigned grid = static_cast<unsigned>((rows + launch.groups - 1) / launch.groups);
  dispatch_rows<T>(launch, [&]<int VEC, int PER>() {
    if (layernorm)
      norm_forward_kernel<T, VEC, PER, true><<<grid, block, 0, stream>>>(x, gamma, beta, y, means, rstds, rows, cols, epsilon);
    else
      norm_forward_kernel<T, VEC, PER, false><<<grid, block, 0, stream>>>(x, gamma, beta, y, means, rstds, rows, cols, epsilon);
  });
}

#define ROOFTILE_INSTANTIATE(T)                                                                        \
  template void softmax_forward<T>(cudaStream_t, const T*, T*, std::int64_t, std::int64_t);            \
  template void softmax_backward<T>(cudaStream_t, const T*, const T*, T*, std::int64_t, std::int64_t); \
  template void norm_forward<T>(cudaStream_t, bool, const T*, const T*, const T*, T*, float*, float*, std::int64_t, std::int64_t, float);
ROOFTILE_INSTANTIATE(__nv_bfloat16)
ROOFTILE_INSTANTIATE(__half)
ROOFTILE_INSTANTIATE(float)
#undef ROOFTILE_INSTANTIATE

}  // namespace rooftile::kernels
