// Layernorm and rmsnorm forward: one read and one write of each element while a row fits in the registers of a block. Aligned rows stream (row_stream.cuh).
#include "kernels/row_group.cuh"
#include "kernels/row_stream.cuh"
#include "kernels/rows.h"

namespace rooftile::kernels {

namespace {

// MEAN: layernorm (mean subtracted, beta added); otherwise rmsnorm. Statistics are kept for the backward pass. Each warp takes the squares around its own mean; the warps' means
// and squares meet as in Chan, Golub and LeVeque 1983: M2 = sum(M2_w + n_w (mean_w - mean)^2), so that one barrier a row is enough and nothing cancels.
template <typename T, int PER, bool MEAN>
__global__ void __launch_bounds__(kStreamThreads, stream_blocks(PER))
    norm_stream_kernel(const T* x, const T* gamma, const T* beta, T* y, float* means, float* rstds, std::int64_t rows, int cols, float epsilon) {
  using Row = StreamRow<T, PER, false>;
  constexpr int VEC = Row::VEC;
  __shared__ float2 shared[2][kMostWarps];
  StreamGroup group{shared};
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.y;
  const float inverse = 1.0f / static_cast<float>(cols);
  // Elements of the row that a warp of the group holds.
  const auto held_by = [&](int warp) {
    int held = 0;
#pragma unroll
    for (int j = 0; j < PER; ++j) held += min(max(cols / VEC - j * static_cast<int>(blockDim.x) - warp * 32, 0), 32) * VEC;
    return static_cast<float>(held);
  };
  const float held = held_by(static_cast<int>(threadIdx.x) / 32), held_there = held_by(static_cast<int>(threadIdx.x & 31));
  Row next;
  std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * blockDim.y;
  next.ask(x, first + threadIdx.y, cols, first + threadIdx.y < rows, 0.0f);
  for (; first < rows; first += step) {
    const std::int64_t row = first + threadIdx.y;
    const Row now = next;
    next.ask(x, row + step, cols, row + step < rows, 0.0f);
    float mean = 0, square = 0;
    if constexpr (MEAN) {
      float sum = 0;
#pragma unroll
      for (int j = 0; j < PER; ++j)
#pragma unroll
        for (int i = 0; i < VEC; ++i) sum += now.value(j, i);
      mean = StreamGroup::lanes_sum(sum) / held;
    }
#pragma unroll
    for (int j = 0; j < PER; ++j) {
      if (Row::first_of(j) >= cols) continue;
#pragma unroll
      for (int i = 0; i < VEC; ++i) square += (now.value(j, i) - mean) * (now.value(j, i) - mean);
    }
    square = StreamGroup::lanes_sum(square);
    if (StreamGroup::warps() > 1) {
      const float2 other = group.meet({mean, square}, {0.0f, 0.0f});
      if constexpr (MEAN) {
        const bool there = static_cast<int>(threadIdx.x & 31) < StreamGroup::warps();
        mean = warp_sum(there ? other.x * held_there : 0.0f) * inverse;
        const float away = other.x - mean;
        square = warp_sum(there ? other.y + held_there * away * away : 0.0f);
      } else {
        square = warp_sum(other.y);
      }
    }
    const float rstd = rsqrtf(square * inverse + epsilon);
    if (row >= rows) continue;
    if (threadIdx.x == 0) {
      if constexpr (MEAN) means[row] = mean;
      rstds[row] = rstd;
    }
#pragma unroll
    for (int j = 0; j < PER; ++j) {
      const int at = Row::first_of(j);
      if (at >= cols) continue;
      float out[VEC], weight[VEC];
      load_shared_row<T, VEC>(gamma + at, weight);
#pragma unroll
      for (int i = 0; i < VEC; ++i) out[i] = (now.value(j, i) - mean) * rstd * weight[i];
      if constexpr (MEAN) {
        load_shared_row<T, VEC>(beta + at, weight);
#pragma unroll
        for (int i = 0; i < VEC; ++i) out[i] += weight[i];
      }
      now.store_part(y, row, cols, j, out);
    }
  }
}

// The same for rows that do not begin at 16 bytes, element by element, or that are longer.
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
void norm_forward(cudaStream_t stream, bool layernorm, const T* x, const T* gamma, const T* beta, T* y, float* means, float* rstds, std::int64_t rows, std::int64_t cols,
                  float epsilon) {
  if (const StreamLaunch streamed = plan_stream(cols, sizeof(T)); streamed.per > 0 && !streamed.odd) {
    const auto run = [&](auto kernel) {
      const unsigned grid = resident_blocks(kernel, streamed.width * streamed.groups, (rows + streamed.groups - 1) / streamed.groups);
      kernel<<<grid, dim3(static_cast<unsigned>(streamed.width), static_cast<unsigned>(streamed.groups)), 0, stream>>>(x, gamma, beta, y, means, rstds, rows,
                                                                                                                       static_cast<int>(cols), epsilon);
    };
    dispatch_stream(streamed, [&]<int PER>() {
      if (layernorm)
        run(norm_stream_kernel<T, PER, true>);
      else
        run(norm_stream_kernel<T, PER, false>);
    });
    return;
  }
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

#define ROOFTILE_INSTANTIATE(T) template void norm_forward<T>(cudaStream_t, bool, const T*, const T*, const T*, T*, float*, float*, std::int64_t, std::int64_t, float);
ROOFTILE_INSTANTIATE(__nv_bfloat16)
ROOFTILE_INSTANTIATE(__half)
ROOFTILE_INSTANTIATE(float)
#undef ROOFTILE_INSTANTIATE

}  // namespace rooftile::kernels
