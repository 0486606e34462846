// Softmax over rows, forward and backward: one read and one write of each element. Rows of up to 32 KiB stream through registers (row_stream.cuh); longer ones are kept in shared
// memory, as packed as they were read, as long as they fit there.
#include "kernels/row_group.cuh"
#include "kernels/row_stream.cuh"
#include "kernels/rows.h"

namespace rooftile::kernels {

namespace {

// The maximum of some elements, and the sum of exp(x - base) over them; base is the maximum, or 0 where every element is -inf.
struct MaxSum {
  float top, sum;
};
__device__ __forceinline__ float base_of(float top) { return top == -INFINITY ? 0.0f : top; }

// Of a whole group, given to each of its threads; every thread brings its warp's.
__device__ __forceinline__ MaxSum meet(StreamGroup& group, MaxSum mine) {
  if (StreamGroup::warps() < 2) return mine;
  const float2 other = group.meet({mine.top, mine.sum}, {-INFINITY, 0.0f});
  const float top = warp_max(other.x);
  return {top, warp_sum(other.y * __expf(base_of(other.x) - base_of(top)))};
}

template <typename T, int PER, bool ODD>
__global__ void __launch_bounds__(kStreamThreads, stream_blocks(PER)) softmax_forward_kernel(const T* x, T* y, std::int64_t rows, int cols) {
  using Row = StreamRow<T, PER, ODD>;
  __shared__ float2 shared[2][kMostWarps];
  StreamGroup group{shared};
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.y;
  Row next;
  std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * blockDim.y;
  next.ask(x, first + threadIdx.y, cols, first + threadIdx.y < rows, -INFINITY);
  for (; first < rows; first += step) {
    const std::int64_t row = first + threadIdx.y;
    Row now = next;
    next.ask(x, row + step, cols, row + step < rows, -INFINITY);
    now.mask(cols, -INFINITY);
    MaxSum all{-INFINITY, 0.0f};
#pragma unroll
    for (int j = 0; j < PER; ++j)
#pragma unroll
      for (int i = 0; i < Row::VEC; ++i) all.top = fmaxf(all.top, now.value(j, i));
    all.top = StreamGroup::lanes_max(all.top);
    const float base = base_of(all.top);
#pragma unroll
    for (int j = 0; j < PER; ++j)
#pragma unroll
      for (int i = 0; i < Row::VEC; ++i) all.sum += __expf(now.value(j, i) - base);
    all.sum = StreamGroup::lanes_sum(all.sum);
    all = meet(group, all);
    const float inverse = 1.0f / all.sum;
    if (row >= rows) continue;
#pragma unroll
    for (int j = 0; j < PER; ++j) {
      float out[Row::VEC];
#pragma unroll
      for (int i = 0; i < Row::VEC; ++i) out[i] = __expf(now.value(j, i) - all.top) * inverse;
      now.store_part(y, row, cols, j, out);
    }
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

// The same for rows that begin anywhere.
template <typename T, int PER>
__global__ void __launch_bounds__(kStreamThreads, stream_blocks(PER)) softmax_backward_odd_kernel(const T* y, const T* dy, T* dx, std::int64_t rows, int cols) {
  using Row = StreamRow<T, PER, true>;
  __shared__ float2 shared[2][kMostWarps];
  StreamGroup group{shared};
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.y;
  for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * blockDim.y; first < rows; first += step) {
    const std::int64_t row = first + threadIdx.y;
    Row v, g;
    v.ask(y, row, cols, row < rows, 0.0f);
    g.ask(dy, row, cols, row < rows, 0.0f);
    v.mask(cols, 0.0f);
    g.mask(cols, 0.0f);
    float dot = 0;
#pragma unroll
    for (int j = 0; j < PER; ++j)
#pragma unroll
      for (int i = 0; i < Row::VEC; ++i) dot += v.value(j, i) * g.value(j, i);
    dot = group.sum(dot);
    if (row >= rows) continue;
#pragma unroll
    for (int j = 0; j < PER; ++j) {
      float out[Row::VEC];
#pragma unroll
      for (int i = 0; i < Row::VEC; ++i) out[i] = v.value(j, i) * (g.value(j, i) - dot);
      v.store_part(dx, row, cols, j, out);
    }
  }
}

constexpr int kLongThreads = 512, kAtOnce = 4;

// Rows that are walked through vector by vector, kAtOnce of a thread's vectors asked for at a time. kept: shared memory for `arrays` rows, in which a thread finds what it has read
// itself; null: the row is read again.
template <typename T>
struct LongRow {
  static constexpr int VEC = 16 / static_cast<int>(sizeof(T));
  using Part = Vector<T, VEC>;
  std::int64_t begin, vectors;
  int lead;
  std::int64_t cols;

  __device__ LongRow(std::int64_t row, std::int64_t length) : cols(length) {
    begin = row * length;
    lead = static_cast<int>(begin % VEC);
    vectors = (lead + length + VEC - 1) / VEC;
    begin -= lead;
  }
  __device__ __forceinline__ bool whole(std::int64_t v) const { return v * VEC >= lead && (v + 1) * VEC <= lead + cols; }
  __device__ __forceinline__ bool inside(std::int64_t v, int i) const { return v * VEC + i >= lead && v * VEC + i < lead + cols; }

  // take(v, part) for each of this thread's vectors of the matrix, in order; elements outside of the row are `beyond`.
  template <typename Take>
  __device__ __forceinline__ void walk(const T* matrix, float beyond, Take take) const {
    for (std::int64_t first = threadIdx.x; first < vectors; first += static_cast<std::int64_t>(kAtOnce) * kLongThreads) {
      Part part[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        const std::int64_t v = first + static_cast<std::int64_t>(k) * kLongThreads;
        if (v < vectors) load_raw<T, VEC>(matrix + begin + v * VEC, part[k]);
      }
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        const std::int64_t v = first + static_cast<std::int64_t>(k) * kLongThreads;
        if (v >= vectors) continue;
        if (!whole(v)) {
#pragma unroll
          for (int i = 0; i < VEC; ++i)
            if (!inside(v, i)) part[k].at[i] = from_float<T>(beyond);
        }
        take(v, part[k]);
      }
    }
  }
  __device__ __forceinline__ void put(T* matrix, std::int64_t v, const float (&out)[VEC]) const {
    T* to = matrix + begin + v * VEC;
    if (whole(v)) {
      store<T, VEC>(to, out);
    } else {
#pragma unroll
      for (int i = 0; i < VEC; ++i)
        if (inside(v, i)) to[i] = from_float<T>(out[i]);
    }
  }
};

// Maximum and sum in one pass, rescaled where the maximum grows.
template <typename T, bool KEPT>
__global__ void __launch_bounds__(kLongThreads, 2) softmax_forward_long_kernel(const T* x, T* y, std::int64_t cols) {
  constexpr int VEC = LongRow<T>::VEC;
  extern __shared__ int4 kept[];
  __shared__ float2 shared[2][kMostWarps];
  const LongRow<T> row(blockIdx.x, cols);
  float top = -INFINITY, sum = 0;
  row.walk(x, -INFINITY, [&](std::int64_t v, const typename LongRow<T>::Part& part) {
    if constexpr (KEPT) kept[v] = *reinterpret_cast<const int4*>(&part);
    float best = top;
#pragma unroll
    for (int i = 0; i < VEC; ++i) best = fmaxf(best, to_float(part.at[i]));
    const float base = base_of(best);
    sum *= __expf(top - base);
#pragma unroll
    for (int i = 0; i < VEC; ++i) sum += __expf(to_float(part.at[i]) - base);
    top = best;
  });
  StreamGroup group{shared};
  MaxSum all{warp_max(top), 0.0f};
  all.sum = warp_sum(sum * __expf(base_of(top) - base_of(all.top)));
  all = meet(group, all);
  const float inverse = 1.0f / all.sum;
  const auto write = [&](std::int64_t v, const typename LongRow<T>::Part& part) {
    float out[VEC];
#pragma unroll
    for (int i = 0; i < VEC; ++i) out[i] = __expf(to_float(part.at[i]) - all.top) * inverse;
    row.put(y, v, out);
  };
  if constexpr (KEPT) {
    for (std::int64_t v = threadIdx.x; v < row.vectors; v += kLongThreads) {
      typename LongRow<T>::Part part;
      *reinterpret_cast<int4*>(&part) = kept[v];
      write(v, part);
    }
  } else {
    row.walk(x, -INFINITY, write);
  }
}

template <typename T, bool KEPT>
__global__ void __launch_bounds__(kLongThreads, 2) softmax_backward_long_kernel(const T* y, const T* dy, T* dx, std::int64_t cols) {
  constexpr int VEC = LongRow<T>::VEC;
  using Part = typename LongRow<T>::Part;
  extern __shared__ int4 kept[];
  __shared__ float shared[32];
  const LongRow<T> row(blockIdx.x, cols);
  float dot = 0;
  int4* const kept_gradient = kept + row.vectors;
  for (std::int64_t first = threadIdx.x; first < row.vectors; first += 2 * kLongThreads) {
    Part v[2], g[2];
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const std::int64_t at = first + k * kLongThreads;
      if (at >= row.vectors) continue;
      load_raw<T, VEC>(y + row.begin + at * VEC, v[k]);
      load_raw<T, VEC>(dy + row.begin + at * VEC, g[k]);
    }
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const std::int64_t at = first + k * kLongThreads;
      if (at >= row.vectors) continue;
#pragma unroll
      for (int i = 0; i < VEC; ++i)
        if (row.inside(at, i)) dot += to_float(v[k].at[i]) * to_float(g[k].at[i]);
      if constexpr (KEPT) {
        kept[at] = *reinterpret_cast<const int4*>(&v[k]);
        kept_gradient[at] = *reinterpret_cast<const int4*>(&g[k]);
      }
    }
  }
  dot = block_sum(dot, shared);
  for (std::int64_t at = threadIdx.x; at < row.vectors; at += kLongThreads) {
    Part v, g;
    if constexpr (KEPT) {
      *reinterpret_cast<int4*>(&v) = kept[at];
      *reinterpret_cast<int4*>(&g) = kept_gradient[at];
    } else {
      load_raw<T, VEC>(y + row.begin + at * VEC, v);
      load_raw<T, VEC>(dy + row.begin + at * VEC, g);
    }
    float out[VEC];
#pragma unroll
    for (int i = 0; i < VEC; ++i) out[i] = to_float(v.at[i]) * (to_float(g.at[i]) - dot);
    row.put(dx, at, out);
  }
}

// Whether a block may have so much shared memory; asks for it.
template <typename Kernel>
bool grant_shared(Kernel kernel, std::size_t bytes) {
  int device = 0, most = 0;
  (void)cudaGetDevice(&device);
  if (cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) != cudaSuccess) return false;
  if (bytes + 1024 > static_cast<std::size_t>(most)) return false;  // the kernel's own arrays
  if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)) == cudaSuccess) return true;
  (void)cudaGetLastError();
  return false;
}

// Bytes of the vectors that a row may reach into.
template <typename T>
std::size_t row_bytes(std::int64_t cols) {
  constexpr std::int64_t kVec = 16 / static_cast<std::int64_t>(sizeof(T));
  return static_cast<std::size_t>((cols + 2 * kVec - 2) / kVec) * 16;
}

}  // namespace

template <typename T>
void softmax_forward(cudaStream_t stream, const T* x, T* y, std::int64_t rows, std::int64_t cols) {
  const StreamLaunch launch = plan_stream(cols, sizeof(T));
  if (launch.per == 0) {
    const unsigned grid = static_cast<unsigned>(rows);
    const std::size_t bytes = row_bytes<T>(cols);
    if (grant_shared(softmax_forward_long_kernel<T, true>, bytes))
      softmax_forward_long_kernel<T, true><<<grid, kLongThreads, bytes, stream>>>(x, y, cols);
    else
      softmax_forward_long_kernel<T, false><<<grid, kLongThreads, 0, stream>>>(x, y, cols);
    return;
  }
  const dim3 block(static_cast<unsigned>(launch.width), static_cast<unsigned>(launch.groups));
  const auto run = [&](auto kernel) {
    const unsigned grid = resident_blocks(kernel, launch.width * launch.groups, (rows + launch.groups - 1) / launch.groups);
    kernel<<<grid, block, 0, stream>>>(x, y, rows, static_cast<int>(cols));
  };
  dispatch_stream(launch, [&]<int PER>() {
    if (launch.odd)
      run(softmax_forward_kernel<T, PER, true>);
    else
      run(softmax_forward_kernel<T, PER, false>);
  });
}

template <typename T>
void softmax_backward(cudaStream_t stream, const T* y, const T* dy, T* dx, std::int64_t rows, std::int64_t cols) {
  const StreamLaunch stream_launch = plan_stream(cols, sizeof(T));
  if (stream_launch.per == 0) {
    const unsigned grid = static_cast<unsigned>(rows);
    const std::size_t bytes = 2 * row_bytes<T>(cols);
    if (grant_shared(softmax_backward_long_kernel<T, true>, bytes))
      softmax_backward_long_kernel<T, true><<<grid, kLongThreads, bytes, stream>>>(y, dy, dx, cols);
    else
      softmax_backward_long_kernel<T, false><<<grid, kLongThreads, 0, stream>>>(y, dy, dx, cols);
    return;
  }
  if (stream_launch.odd) {
    const dim3 block(static_cast<unsigned>(stream_launch.width), static_cast<unsigned>(stream_launch.groups));
    dispatch_stream(stream_launch, [&]<int PER>() {
      const auto kernel = softmax_backward_odd_kernel<T, PER>;
      const unsigned grid = resident_blocks(kernel, stream_launch.width * stream_launch.groups, (rows + stream_launch.groups - 1) / stream_launch.groups);
      kernel<<<grid, block, 0, stream>>>(y, dy, dx, rows, static_cast<int>(cols));
    });
    return;
  }
  const RowLaunch launch = plan_rows(cols, sizeof(T), 16);
  const dim3 block(static_cast<unsigned>(launch.width), static_cast<unsigned>(launch.groups));
  const unsigned grid = static_cast<unsigned>((rows + launch.groups - 1) / launch.groups);
  dispatch_rows<T>(launch, [&]<int VEC, int PER>() {
    if constexpr (VEC * PER <= 16) softmax_backward_kernel<T, VEC, PER><<<grid, block, 0, stream>>>(y, dy, dx, rows, cols);
  });
}

#define ROOFTILE_INSTANTIATE(T)                                                             \
  template void softmax_forward<T>(cudaStream_t, const T*, T*, std::int64_t, std::int64_t); \
  template void softmax_backward<T>(cudaStream_t, const T*, const T*, T*, std::int64_t, std::int64_t);
ROOFTILE_INSTANTIATE(__nv_bfloat16)
ROOFTILE_INSTANTIATE(__half)
ROOFTILE_INSTANTIATE(float)
#undef ROOFTILE_INSTANTIATE

}  // namespace rooftile::kernels
