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
};

constexpr int kVocabThreads = 512;

// Three blocks are resident, so that the sums of one hide behind the loads of the others.
template <typename T>
__global__ void __launch_bounds__(kVocabThreads, 3) cross_entropy_forward_kernel(const T* logits, const std::int32_t* labels, float* loss, float* lse, std::int64_t vocab) {
  constexpr int VEC = Row<T>::VEC, kAtOnce = 4;
  __shared__ float shared[32];
  const std::int64_t token = blockIdx.x;
  const T* row = logits + token * vocab;
  float top = -INFINITY, sum = 0;
  // Rescales for a new maximum; true: there is anything but -inf so far.
  const auto rise = [&](float best) {
    if (best == -INFINITY) return false;
    sum *= __expf(top - best);
    top = best;
    return true;
  };
  const auto take_one = [&](std::int64_t at) {
    const float v = to_float(row[at]);
    if (rise(fmaxf(top, v))) sum += __expf(v - top);
  };
  const Row<T> range(row, vocab);
  if (threadIdx.x < range.head) take_one(threadIdx.x);
  const T* vectors = row + range.head;
  for (std::int64_t first = threadIdx.x; first < range.vectors; first += static_cast<std::int64_t>(kAtOnce) * blockDim.x) {
    Vector<T, VEC> part[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const std::int64_t at = first + static_cast<std::int64_t>(k) * blockDim.x;
      if (at < range.vectors) {
        load_raw<T, VEC>(vectors + at * VEC, part[k]);
      } else {
#pragma unroll
        for (int i = 0; i < VEC; ++i) part[k].at[i] = from_float<T>(-INFINITY);
      }
    }
    float best = top;
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k)
#pragma unroll
      for (int i = 0; i < VEC; ++i) best = fmaxf(best, to_float(part[k].at[i]));
    if (!rise(best)) continue;
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k)
#pragma unroll
      for (int i = 0; i < VEC; ++i) sum += __expf(to_float(part[k].at[i]) - top);
  }
  if (const std::int64_t last = range.head + range.vectors * VEC + threadIdx.x; last < vocab) take_one(last);
  const float all = block_max(top, shared);
  const float total = block_sum(top == -INFINITY ? 0.0f : sum * __expf(top - all), shared);
  if (threadIdx.x == 0) {
    const float logarithm = all + __logf(total);
    lse[token] = logarithm;
    loss[token] = logarithm - to_float(row[labels[token]]);
  }
}

// Elements depend on nothing but the saved logarithm, so a row is cut into pieces of kPieceVectors and few tokens fill the GPU too.
constexpr int kPieceThreads = 256, kPieceVectors = 4 * kPieceThreads;

template <typename T>
__global__ void __launch_bounds__(kPieceThreads)
    cross_entropy_backward_kernel(const T* logits, const std::int32_t* labels, const float* lse, T* dlogits, float scale, std::int64_t vocab) {
  constexpr int VEC = Row<T>::VEC;
  const std::int64_t token = blockIdx.x;
  const T* row = logits + token * vocab;
  T* out = dlogits + token * vocab;
  const float logarithm = lse[token];
  const std::int64_t label = labels[token];
  const Row<T> range(row, vocab);
  const auto one = [&](std::int64_t at) { out[at] = from_float<T>(scale * (__expf(to_float(row[at]) - logarithm) - (at == label ? 1.0f : 0.0f))); };
  if (blockIdx.y == 0 && threadIdx.x < range.head) one(threadIdx.x);
  const auto many = [&](std::int64_t v) {
    const std::int64_t at = range.head + v * VEC;
    float x[VEC];
    load<T, VEC>(row + at, x);
#pragma unroll
    for (int i = 0; i < VEC; ++i) x[i] = scale * (__expf(x[i] - logarithm) - (at + i == label ? 1.0f : 0.0f));
    store<T, VEC>(out + at, x);
  };
  for (std::int64_t piece = blockIdx.y; piece * kPieceVectors < range.vectors; piece += gridDim.y) {
#pragma unroll
    for (int k = 0; k < kPieceVectors / kPieceThreads; ++k)
      if (const std::int64_t v = piece * kPieceVectors + k * kPieceThreads + threadIdx.x; v < range.vectors) many(v);
  }
  if (blockIdx.y + 1 == gridDim.y)
    if (const std::int64_t last = range.head + range.vectors * VEC + threadIdx.x; last < vocab) one(last);
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

template <typename T>
void cross_entropy_forward(cudaStream_t stream, const T* logits, const std::int32_t* labels, float* loss, float* lse, std::int64_t tokens, std::int64_t vocab) {
  const unsigned threads = vocab >= 4096 ? kVocabThreads : vocab >= 1024 ? 128 : 64;
  cross_entropy_forward_kernel<T><<<static_cast<unsigned>(tokens), threads, 0, stream>>>(logits, labels, loss, lse, vocab);
}

template <typename T>
void cross_entropy_backward(cudaStream_t stream, const T* logits, const std::int32_t* labels, const float* lse, T* dlogits, float scale, std::int64_t tokens, std::int64_t vocab) {
  const std::int64_t vectors = vocab / Row<T>::VEC, pieces = std::max<std::int64_t>(1, (vectors + kPieceVectors - 1) / kPieceVectors);
  const dim3 grid(static_cast<unsigned>(tokens), static_cast<unsigned>(std::min<std::int64_t>(pieces, 65535)));
  cross_entropy_backward_kernel<T><<<grid, kPieceThreads, 0, stream>>>(logits, labels, lse, dlogits, scale, vocab);
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
