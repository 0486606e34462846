// Norm backward, and sums of columns and rows. Gradients of gamma and beta are sums over all rows: each block adds up its own rows in registers, a second kernel adds the blocks.
#include <algorithm>

#include "kernels/row_group.cuh"
#include "kernels/row_stream.cuh"
#include "kernels/rows.h"

namespace rooftile::kernels {

namespace {

// Resident blocks of the norm backward on one SM, at most: each leaves a row of partial sums for the second kernel, so long rows get fewer.
int norm_blocks_per_sm(std::int64_t cols) { return cols <= 2048 ? 6 : cols <= 4096 ? 4 : 2; }

// The next row is asked for before the sums over this one are waited for. dx = rstd (g - mean(g) - xhat mean(g xhat)) with g = dy gamma; rmsnorm leaves mean(g) out. partial:
// [blocks][MEAN ? 2 : 1][cols].
template <typename T, int VEC, int PER, bool MEAN, int THREADS>
__global__ void __launch_bounds__(THREADS)
    norm_backward_kernel(const T* x, const T* dy, const T* gamma, const float* means, const float* rstds, T* dx, float* partial, std::int64_t rows, std::int64_t cols) {
  extern __shared__ float dynamic[];  // [groups][cols] for the sums over groups, when there are several
  __shared__ float2 shared[2][kMostWarps];
  StreamGroup group{shared};
  float dgamma[PER][VEC] = {}, dbeta[MEAN ? PER : 1][VEC] = {};
  const float inverse = 1.0f / static_cast<float>(cols);
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.y;
  constexpr bool kAhead = VEC > 1 && THREADS < 1024;  // elsewhere the registers are spent already
  RawRow<T, VEC, PER> next_x, next_dy;
  float next_mean = 0, next_rstd = 0;
  const auto ask = [&](std::int64_t row) {
    const bool valid = row < rows;
    next_x.load(x + row * cols, cols, valid);
    next_dy.load(dy + row * cols, cols, valid);
    next_mean = MEAN && valid ? means[row] : 0.0f;
    next_rstd = valid ? rstds[row] : 0.0f;
  };
  if constexpr (kAhead) ask(static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y);
  for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * blockDim.y; first < rows; first += step) {
    const std::int64_t row = first + threadIdx.y;
    const bool valid = row < rows;
    float v[PER][VEC], g[PER][VEC];
    if constexpr (!kAhead) ask(row);
    next_x.values(v);
    next_dy.values(g);
    const float mean = next_mean, rstd = next_rstd;
    if constexpr (kAhead) ask(row + step);
    float sum = 0, dot = 0;
#pragma unroll
    for (int j = 0; j < PER; ++j) {
      const std::int64_t at = (static_cast<std::int64_t>(threadIdx.x) + static_cast<std::int64_t>(j) * blockDim.x) * VEC;
      float weight[VEC];
      if (at < cols) {
        load_shared_row<T, VEC>(gamma + at, weight);
      } else {
#pragma unroll
        for (int i = 0; i < VEC; ++i) weight[i] = 0;
      }
#pragma unroll
      for (int i = 0; i < VEC; ++i) {
        v[j][i] = at < cols ? (v[j][i] - mean) * rstd : 0.0f;  // xhat
        dgamma[j][i] += g[j][i] * v[j][i];
        if constexpr (MEAN) dbeta[j][i] += g[j][i];
        g[j][i] *= weight[i];
        sum += g[j][i];
        dot += g[j][i] * v[j][i];
      }
    }
    if constexpr (MEAN) sum = StreamGroup::lanes_sum(sum);
    dot = StreamGroup::lanes_sum(dot);
    if (StreamGroup::warps() > 1) {
      const float2 other = group.meet({sum, dot}, {0.0f, 0.0f});
      if constexpr (MEAN) sum = warp_sum(other.x);
      dot = warp_sum(other.y);
    }
    sum *= inverse;
    dot *= inverse;
#pragma unroll
    for (int j = 0; j < PER; ++j)
#pragma unroll
      for (int i = 0; i < VEC; ++i) v[j][i] = rstd * (g[j][i] - (MEAN ? sum : 0.0f) - v[j][i] * dot);
    store_row<T, VEC, PER>(dx + row * cols, cols, valid, v);
  }
  float* out = partial + static_cast<std::int64_t>(blockIdx.x) * (MEAN ? 2 : 1) * cols;
  for (int part = 0; part < (MEAN ? 2 : 1); ++part) {
    if (blockDim.y > 1) __syncthreads();
#pragma unroll
    for (int j = 0; j < PER; ++j) {
      const std::int64_t at = (static_cast<std::int64_t>(threadIdx.x) + static_cast<std::int64_t>(j) * blockDim.x) * VEC;
      if (at >= cols) continue;
      float* to = blockDim.y > 1 ? dynamic + threadIdx.y * cols + at : out + part * cols + at;
#pragma unroll
      for (int i = 0; i < VEC; ++i) to[i] = part == 0 ? dgamma[j][i] : dbeta[MEAN ? j : 0][i];
    }
    if (blockDim.y > 1) {
      __syncthreads();
      for (std::int64_t c = threadIdx.y * blockDim.x + threadIdx.x; c < cols; c += blockDim.x * blockDim.y) {
        float total = 0;
        for (unsigned y = 0; y < blockDim.y; ++y) total += dynamic[y * cols + c];
        out[part * cols + c] = total;
      }
    }
  }
}

// out[c] = sum over parts of partial[part][part_stride][c]; 32 columns x 32 parts at a time. Row 1 of the grid does the same `cols` further on, for `second`.
template <typename T>
__global__ void __launch_bounds__(1024) add_parts_kernel(const float* partial, T* out, T* second, int parts, std::int64_t part_stride, std::int64_t cols) {
  __shared__ float shared[32][33];
  const std::int64_t c = static_cast<std::int64_t>(blockIdx.x) * 32 + threadIdx.x;
  if (blockIdx.y == 1) {
    partial += cols;
    out = second;
  }
  float sum = 0;
  if (c < cols) {
#pragma unroll 4
    for (int part = static_cast<int>(threadIdx.y); part < parts; part += 32) sum += partial[part * part_stride + c];
  }
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || c >= cols) return;
  for (int y = 1; y < 32; ++y) sum += shared[y][threadIdx.x];
  out[c] = from_float<T>(sum);
}

int column_splits(int sms, std::int64_t rows, std::int64_t cols, int block_cols) {
  const std::int64_t column_blocks = (cols + block_cols - 1) / block_cols;
  const std::int64_t wanted = (static_cast<std::int64_t>(sms) * 8 + column_blocks - 1) / column_blocks;
  return static_cast<int>(std::clamp<std::int64_t>(wanted, 1, std::max<std::int64_t>(1, rows / 32)));
}

// A block adds up 32 VEC columns over its share of the rows, 8 rows at a time, 4 of them in flight for each thread. The last of the blocks of the same columns adds up what all of
// them left in `partial`, always in the same order, and sets the counter back to zero for the next call.
template <typename T, int VEC>
__global__ void __launch_bounds__(256) column_sum_kernel(const T* x, T* out, float* partial, unsigned* counters, std::int64_t rows, std::int64_t cols) {
  __shared__ float shared[8][32 * VEC];
  __shared__ bool last;
  const std::int64_t c = (static_cast<std::int64_t>(blockIdx.x) * 32 + threadIdx.x) * VEC;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.y) * 8;
  float sum[VEC] = {};
  if (c < cols) {
    std::int64_t row = static_cast<std::int64_t>(blockIdx.y) * 8 + threadIdx.y;
    for (; row + 3 * step < rows; row += 4 * step) {
      Vector<T, VEC> v[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) load_raw<T, VEC>(x + (row + j * step) * cols + c, v[j]);
#pragma unroll
      for (int j = 0; j < 4; ++j)
#pragma unroll
        for (int i = 0; i < VEC; ++i) sum[i] += to_float(v[j].at[i]);
    }
    for (; row < rows; row += step) {
      float v[VEC];
      load<T, VEC>(x + row * cols + c, v);
#pragma unroll
      for (int i = 0; i < VEC; ++i) sum[i] += v[i];
    }
  }
  // The eight rows of the block in one: a thread for each column.
  const auto add_rows = [&](auto put) {
#pragma unroll
    for (int i = 0; i < VEC; ++i) shared[threadIdx.y][threadIdx.x * VEC + i] = sum[i];
    __syncthreads();
    for (int at = static_cast<int>(threadIdx.y) * 32 + static_cast<int>(threadIdx.x); at < 32 * VEC; at += 256) {
      const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * 32 * VEC + at;
      if (column >= cols) continue;
      float total = 0;
      for (int y = 0; y < 8; ++y) total += shared[y][at];
      put(column, total);
    }
  };
  if (gridDim.y == 1) {
    add_rows([&](std::int64_t column, float total) { out[column] = from_float<T>(total); });
    return;
  }
  add_rows([&](std::int64_t column, float total) { __stcg(partial + blockIdx.y * cols + column, total); });
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0 && threadIdx.y == 0) last = atomicAdd(counters + blockIdx.x, 1u) == gridDim.y - 1;
  __syncthreads();
  if (!last) return;
  __threadfence();
#pragma unroll
  for (int i = 0; i < VEC; ++i) sum[i] = 0;
  if (c < cols) {
#pragma unroll 4
    for (unsigned part = threadIdx.y; part < gridDim.y; part += 8) {
      const float* from = partial + part * cols + c;
      if constexpr (VEC % 4 == 0) {
#pragma unroll
        for (int i = 0; i < VEC; i += 4) {
          const float4 four = __ldcg(reinterpret_cast<const float4*>(from + i));
          sum[i] += four.x, sum[i + 1] += four.y, sum[i + 2] += four.z, sum[i + 3] += four.w;
        }
      } else {
        sum[0] += __ldcg(from);
      }
    }
  }
  add_rows([&](std::int64_t column, float total) { out[column] = from_float<T>(total); });
  if (threadIdx.x == 0 && threadIdx.y == 0) counters[blockIdx.x] = 0;
}

template <typename T, int VEC>
__global__ void row_sum_kernel(const T* x, float* out, std::int64_t rows, std::int64_t cols) {
  __shared__ float shared[32 * 8];
  const RowGroup group{shared};
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  float sum = 0;
  if (row < rows)
    for (std::int64_t at = static_cast<std::int64_t>(threadIdx.x) * VEC; at < cols; at += static_cast<std::int64_t>(blockDim.x) * VEC) {
      float v[VEC];
      load<T, VEC>(x + row * cols + at, v);
#pragma unroll
      for (int i = 0; i < VEC; ++i) sum += v[i];
    }
  sum = group.sum(sum);
  if (row < rows && threadIdx.x == 0) out[row] = sum;
}

}  // namespace

std::size_t norm_backward_partial_bytes(int sms, std::int64_t cols) {
  return static_cast<std::size_t>(sms) * static_cast<std::size_t>(norm_blocks_per_sm(cols)) * 2 * static_cast<std::size_t>(cols) * sizeof(float);
}

template <typename T>
bool norm_backward(cudaStream_t stream, int sms, bool layernorm, const T* x, const T* dy, const T* gamma, const float* means, const float* rstds, T* dx, float* dgamma,
                   float* dbeta, float* partial, std::int64_t rows, std::int64_t cols) {
  RowLaunch launch = plan_rows(cols, sizeof(T), 16);
  if (launch.per == 0) return false;
  // Several groups in a block keep enough rows in flight; their sums meet in shared memory, of which a block has 48 KiB without asking.
  while (launch.groups > 1 && static_cast<std::int64_t>(launch.groups) * cols * static_cast<std::int64_t>(sizeof(float)) > 46 * 1024) launch.groups /= 2;
  const dim3 block(static_cast<unsigned>(launch.width), static_cast<unsigned>(launch.groups));
  const std::size_t shared = launch.groups > 1 ? static_cast<std::size_t>(launch.groups) * static_cast<std::size_t>(cols) * sizeof(float) : 0;
  unsigned grid = 0;
  const auto run = [&](auto kernel) {
    int resident = 0;
    if (cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, static_cast<int>(block.x * block.y), shared) != cudaSuccess) resident = 1;
    const std::int64_t most = static_cast<std::int64_t>(sms) * std::clamp(resident, 1, norm_blocks_per_sm(cols));
    grid = static_cast<unsigned>(std::min<std::int64_t>((rows + launch.groups - 1) / launch.groups, most));
    kernel<<<grid, block, shared, stream>>>(x, dy, gamma, means, rstds, dx, partial, rows, cols);
  };
  // 16 elements of a thread leave no room for 1024 threads' registers, and only the longest rows need so many.
  const bool wide = block.x * block.y > 512;
  dispatch_rows<T>(launch, [&]<int VEC, int PER>() {
    if constexpr (VEC * PER == 16) {
      if (wide) {
        if (layernorm)
          run(norm_backward_kernel<T, VEC, PER, true, 1024>);
        else
          run(norm_backward_kernel<T, VEC, PER, false, 1024>);
        return;
      }
    }
    if constexpr (VEC * PER <= 16) {
      if (layernorm)
        run(norm_backward_kernel<T, VEC, PER, true, 512>);
      else
        run(norm_backward_kernel<T, VEC, PER, false, 512>);
    }
  });
  if (grid == 0) return false;
  const unsigned column_blocks = static_cast<unsigned>((cols + 31) / 32);
  const std::int64_t stride = (layernorm ? 2 : 1) * cols;
  add_parts_kernel<float><<<dim3(column_blocks, layernorm ? 2 : 1), dim3(32, 32), 0, stream>>>(partial, dgamma, dbeta, static_cast<int>(grid), stride, cols);
  return true;
}

std::size_t column_sum_partial_bytes(int sms, std::int64_t rows, std::int64_t cols) {
  return static_cast<std::size_t>(column_splits(sms, rows, cols, 32)) * static_cast<std::size_t>(cols) * sizeof(float) +
         static_cast<std::size_t>(sms) * 8 * 256 * 4 * sizeof(float);
}

std::size_t column_sum_counter_bytes(std::int64_t cols) { return static_cast<std::size_t>((cols + 31) / 32) * sizeof(unsigned); }

template <typename T>
void column_sum(cudaStream_t stream, int sms, const T* x, T* out, float* partial, unsigned* counters, std::int64_t rows, std::int64_t cols) {
  constexpr int kFull = 16 / static_cast<int>(sizeof(T));
  const int vec = cols % kFull == 0 ? kFull : 1;
  const int splits = column_splits(sms, rows, cols, 32 * vec);
  const dim3 grid(static_cast<unsigned>((cols + 32 * vec - 1) / (32 * vec)), static_cast<unsigned>(splits));
  if (vec == 1)
    column_sum_kernel<T, 1><<<grid, dim3(32, 8), 0, stream>>>(x, out, partial, counters, rows, cols);
  else
    column_sum_kernel<T, kFull><<<grid, dim3(32, 8), 0, stream>>>(x, out, partial, counters, rows, cols);
}

template <typename T>
void row_sum(cudaStream_t stream, const T* x, float* out, std::int64_t rows, std::int64_t cols) {
  constexpr int kFull = 16 / static_cast<int>(sizeof(T));
  const bool whole = cols % kFull == 0;
  const std::int64_t vectors = whole ? cols / kFull : cols;
  const int width = vectors <= 256 ? 32 : vectors <= 2048 ? 256 : 1024, groups = width >= 256 ? 1 : 8;
  const unsigned grid = static_cast<unsigned>((rows + groups - 1) / groups);
  const dim3 block(static_cast<unsigned>(width), static_cast<unsigned>(groups));
  if (whole)
    row_sum_kernel<T, kFull><<<grid, block, 0, stream>>>(x, out, rows, cols);
  else
    row_sum_kernel<T, 1><<<grid, block, 0, stream>>>(x, out, rows, cols);
}

#define ROOFTILE_INSTANTIATE(T)                                                                                                                                              \
  template bool norm_backward<T>(cudaStream_t, int, bool, const T*, const T*, const T*, const float*, const float*, T*, float*, float*, float*, std::int64_t, std::int64_t); \
  template void column_sum<T>(cudaStream_t, int, const T*, T*, float*, unsigned*, std::int64_t, std::int64_t);                                                               \
  template void row_sum<T>(cudaStream_t, const T*, float*, std::int64_t, std::int64_t);
ROOFTILE_INSTANTIATE(__nv_bfloat16)
ROOFTILE_INSTANTIATE(__half)
ROOFTILE_INSTANTIATE(float)
#undef ROOFTILE_INSTANTIATE

}  // namespace rooftile::kernels
