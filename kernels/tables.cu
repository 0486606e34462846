#include "kernels/tables.h"

#include <algorithm>

#include "kernels/vector.cuh"

namespace rooftile::kernels {

namespace {

// A warp per token for short rows, else a block: blockDim.x threads walk over one row, blockDim.y rows in a block.
template <typename T, int VEC>
__global__ void embedding_forward_kernel(const std::int32_t* ids, const T* table, T* y, std::int64_t tokens, std::int64_t hidden) {
  const std::int64_t token = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (token >= tokens) return;
  const T* from = table + static_cast<std::int64_t>(ids[token]) * hidden;
  T* to = y + token * hidden;
#pragma unroll 4
  for (std::int64_t at = static_cast<std::int64_t>(threadIdx.x) * VEC; at < hidden; at += static_cast<std::int64_t>(blockDim.x) * VEC) {
    float v[VEC];
    load<T, VEC>(from + at, v);
    store<T, VEC>(to + at, v);
  }
}

template <int VEC>
__device__ __forceinline__ void add_to(float* to, const float (&v)[VEC]) {
#if __CUDA_ARCH__ >= 900
  if constexpr (VEC == 4)
    atomicAdd(reinterpret_cast<float4*>(to), make_float4(v[0], v[1], v[2], v[3]));
  else
#endif
#pragma unroll
    for (int i = 0; i < VEC; ++i) atomicAdd(to + i, v[i]);
}

template <typename T, int VEC>
__global__ void embedding_backward_kernel(const std::int32_t* ids, const T* dy, float* dtable, std::int64_t tokens, std::int64_t hidden) {
  const std::int64_t token = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (token >= tokens) return;
  const T* from = dy + token * hidden;
  float* to = dtable + static_cast<std::int64_t>(ids[token]) * hidden;
  for (std::int64_t at = static_cast<std::int64_t>(threadIdx.x) * VEC; at < hidden; at += static_cast<std::int64_t>(blockDim.x) * VEC) {
    float v[VEC];
    load<T, VEC>(from + at, v);
    add_to<VEC>(to + at, v);
  }
}

// Where the rows of an odd vocabulary start is not a multiple of 16 bytes: single elements up to the first such place, vectors, single elements again.
template <typename T>
struct Row {
  static constexpr int VEC = 16 / static_cast<int>(sizeof(T));
  std::int64_t head, vectors, cols;
  __device__ Row(const T* row, std::int64_t length) : cols(length) {
    const std::int64_t misplaced = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(row) / sizeof(T) % VEC);
    head = misplaced == 0 ? 0 : VEC - misplaced;
    if (head > length) head = length;
    vectors = (length - head) / VEC;
  }
  // Calls one(index) for single elements and many(index of the first) for vectors.
  template <typename One, typename Many>
  __device__ __forceinline__ void each(One one, Many many) const {
    if (threadIdx.x < head) one(static_cast<std::int64_t>(threadIdx.x));
    for (std::int64_t v = threadIdx.x; v < vectors; v += blockDim.x) many(head + v * VEC);
    const std::int64_t at = head + vectors * VEC + threadIdx.x;
    if (at < cols) one(at);
  }
};

template <typename T>
__global__ void __launch_bounds__(1024) cross_entropy_forward_kernel(const T* logits, const std::int32_t* labels, float* loss, float* lse, std::int64_t vocab) {
  constexpr int VEC = Row<T>::VEC;
  __shared__ float shared[32];
  const std::int64_t token = blockIdx.x;
  const T* row = logits + token * vocab;
  float top = -INFINITY, sum = 0;
  const auto take = [&]<int N>(const float(&v)[N]) {
    float best = top;
#pragma unroll
    for (int i = 0; i < N; ++i) best = fmaxf(best, v[i]);
    sum *= __expf(top - best);
#pragma unroll
    for (int i = 0; i < N; ++i) sum += __expf(v[i] - best);
    top = best;
  };
  const Row<T> range(row, vocab);
  // Two vectors at a time keep more loads in flight.
  if (threadIdx.x < range.head) {
    const float v[1] = {to_float(row[threadIdx.x])};
    take(v);
  }
  std::int64_t at = threadIdx.x;
  for (; at + blockDim.x < range.vectors; at += 2 * static_cast<std::int64_t>(blockDim.x)) {
    float v[VEC], w[VEC];
    load<T, VEC>(row + range.head + at * VEC, v);
    load<T, VEC>(row + range.head + (at + blockDim.x) * VEC, w);
    take(v);
    take(w);
  }
  if (at < range.vectors) {
    float v[VEC];
    load<T, VEC>(row + range.head + at * VEC, v);
    take(v);
  }
  const std::int64_t last = range.head + range.vectors * VEC + threadIdx.x;
  if (last < vocab) {
    const float v[1] = {to_float(row[last])};
    take(v);
  }
  const float all = block_max(top, shared);
  const float total = block_sum(top == -INFINITY ? 0.0f : sum * __expf(top - all), shared);
  if (threadIdx.x == 0) {
    const float logarithm = all + __logf(total);
    lse[token] = logarithm;
    loss[token] = logarithm - to_float(row[labels[token]]);
  }
}

template <typename T>
__global__ void __launch_bounds__(1024) cross_entropy_backward_kernel(const T* logits, const std::int32_t* labels, const float* lse, T* dlogits, float scale, std::int64_t vocab) {
  constexpr int VEC = Row<T>::VEC;
  const std::int64_t token = blockIdx.x;
  const T* row = logits + token * vocab;
  T* out = dlogits + token * vocab;
  const float logarithm = lse[token];
  const std::int64_t label = labels[token];
  Row<T>(row, vocab)
      .each([&](std::int64_t at) { out[at] = from_float<T>(scale * (__expf(to_float(row[at]) - logarithm) - (at == label ? 1.0f : 0.0f))); },
            [&](std::int64_t at) {
              float v[VEC];
              load<T, VEC>(row + at, v);
#pragma unroll
              for (int i = 0; i < VEC; ++i) v[i] = scale * (__expf(v[i] - logarithm) - (at + i == label ? 1.0f : 0.0f));
              store<T, VEC>(out + at, v);
            });
}

template <typename T, typename State, typename Gradient>
__global__ void __launch_bounds__(512) adamw_kernel(const AdamWTensor* tensors, const AdamWPiece* pieces, AdamWRates rates, float correction1, float correction2) {
  const AdamWPiece piece = pieces[blockIdx.x];
  const AdamWTensor tensor = tensors[piece.tensor];
  T* weights = static_cast<T*>(tensor.weights) + piece.first;
  float* main = tensor.main_weights ? tensor.main_weights + piece.first : nullptr;
  const Gradient* gradient = static_cast<const Gradient*>(tensor.gradient) + piece.first;
  State* first = static_cast<State*>(tensor.m) + piece.first;
  State* second = static_cast<State*>(tensor.v) + piece.first;
  constexpr int VEC = 4;
  const auto update = [&](float& w, float g, float& m, float& v) {
    w -= rates.rate * rates.decay * w;
    m = rates.beta1 * m + (1.0f - rates.beta1) * g;
    v = rates.beta2 * v + (1.0f - rates.beta2) * g * g;
    w -= rates.rate * (m * correction1) / (sqrtf(v * correction2) + rates.epsilon);
  };
#pragma unroll 2
  for (int at = static_cast<int>(threadIdx.x) * VEC; at < piece.count; at += static_cast<int>(blockDim.x) * VEC) {
    float w[VEC], g[VEC], m[VEC], v[VEC];
    if (at + VEC <= piece.count) {
      if (main)
        load<float, VEC>(main + at, w);
      else
        load<T, VEC>(weights + at, w);
      load<Gradient, VEC>(gradient + at, g);
      load<State, VEC>(first + at, m);
      load<State, VEC>(second + at, v);
#pragma unroll
      for (int i = 0; i < VEC; ++i) update(w[i], g[i], m[i], v[i]);
      if (main) store<float, VEC>(main + at, w);
      store<T, VEC>(weights + at, w);
      store<State, VEC>(first + at, m);
      store<State, VEC>(second + at, v);
    } else {
      for (int e = at; e < piece.count; ++e) {
        float w1 = main ? main[e] : to_float(weights[e]), m1 = to_float(first[e]), v1 = to_float(second[e]);
        update(w1, to_float(gradient[e]), m1, v1);
        if (main) main[e] = w1;
        weights[e] = from_float<T>(w1);
        first[e] = from_float<State>(m1);
        second[e] = from_float<State>(v1);
      }
    }
  }
}

}  // namespace

template <typename T>
void embedding_forward(cudaStream_t stream, const std::int32_t* ids, const T* table, T* y, std::int64_t tokens, std::int64_t hidden) {
  constexpr int kFull = 16 / static_cast<int>(sizeof(T));
  const bool whole = hidden % kFull == 0;
  const std::int64_t vectors = whole ? hidden / kFull : hidden;
  const unsigned width = vectors <= 64 ? 32 : vectors <= 256 ? 64 : 128, rows = 256 / width;
  const unsigned grid = static_cast<unsigned>((tokens + rows - 1) / rows);
  if (whole)
    embedding_forward_kernel<T, kFull><<<grid, dim3(width, rows), 0, stream>>>(ids, table, y, tokens, hidden);
  else
    embedding_forward_kernel<T, 1><<<grid, dim3(width, rows), 0, stream>>>(ids, table, y, tokens, hidden);
}

template <typename T>
void embedding_backward(cudaStream_t stream, const std::int32_t* ids, const T* dy, float* dtable, std::int64_t tokens, std::int64_t hidden) {
  const unsigned width = 128, rows = 2, grid = static_cast<unsigned>((tokens + rows - 1) / rows);
  if (hidden % 4 == 0)
    embedding_backward_kernel<T, 4><<<grid, dim3(width, rows), 0, stream>>>(ids, dy, dtable, tokens, hidden);
  else
    embedding_backward_kernel<T, 1><<<grid, dim3(width, rows), 0, stream>>>(ids, dy, dtable, tokens, hidden);
}

namespace {
unsigned threads_for(std::int64_t vocab) { return vocab >= 16384 ? 1024 : vocab >= 4096 ? 512 : vocab >= 1024 ? 128 : 64; }
}  // namespace

template <typename T>
void cross_entropy_forward(cudaStream_t stream, const T* logits, const std::int32_t* labels, float* loss, float* lse, std::int64_t tokens, std::int64_t vocab) {
  cross_entropy_forward_kernel<T><<<static_cast<unsigned>(tokens), threads_for(vocab), 0, stream>>>(logits, labels, loss, lse, vocab);
}

template <typename T>
void cross_entropy_backward(cudaStream_t stream, const T* logits, const std::int32_t* labels, const float* lse, T* dlogits, float scale, std::int64_t tokens, std::int64_t vocab) {
  cross_entropy_backward_kernel<T><<<static_cast<unsigned>(tokens), threads_for(vocab), 0, stream>>>(logits, labels, lse, dlogits, scale, vocab);
}

template <typename T, typename State, typename Gradient>
void adamw(cudaStream_t stream, const AdamWTensor* tensors, const AdamWPiece* pieces, int piece_count, const AdamWRates& rates) {
  double power1 = 1, power2 = 1;
  for (int i = 0; i < rates.step; ++i) {
    power1 *= static_cast<double>(rates.beta1);
    power2 *= static_cast<double>(rates.beta2);
  }
  adamw_kernel<T, State, Gradient>
      <<<static_cast<unsigned>(piece_count), 512, 0, stream>>>(tensors, pieces, rates, static_cast<float>(1 / (1 - power1)), static_cast<float>(1 / (1 - power2)));
}

using Bf16 = __nv_bfloat16;
using Fp16 = __half;
#define ROOFTILE_INSTANTIATE(T)                                                                                                              \
  template void embedding_forward<T>(cudaStream_t, const std::int32_t*, const T*, T*, std::int64_t, std::int64_t);                           \
  template void embedding_backward<T>(cudaStream_t, const std::int32_t*, const T*, float*, std::int64_t, std::int64_t);                      \
  template void cross_entropy_forward<T>(cudaStream_t, const T*, const std::int32_t*, float*, float*, std::int64_t, std::int64_t);           \
  template void cross_entropy_backward<T>(cudaStream_t, const T*, const std::int32_t*, const float*, T*, float, std::int64_t, std::int64_t); \
  template void adamw<T, float, float>(cudaStream_t, const AdamWTensor*, const AdamWPiece*, int, const AdamWRates&);                         \
  template void adamw<T, float, Bf16>(cudaStream_t, const AdamWTensor*, const AdamWPiece*, int, const AdamWRates&);                          \
  template void adamw<T, Bf16, float>(cudaStream_t, const AdamWTensor*, const AdamWPiece*, int, const AdamWRates&);                          \
  template void adamw<T, Bf16, Bf16>(cudaStream_t, const AdamWTensor*, const AdamWPiece*, int, const AdamWRates&);
ROOFTILE_INSTANTIATE(Bf16)
ROOFTILE_INSTANTIATE(Fp16)
ROOFTILE_INSTANTIATE(float)
#undef ROOFTILE_INSTANTIATE

}  // namespace rooftile::kernels
