// Launchers of the kernels around the vocabulary and the optimizer. T: __nv_bfloat16, __half, float. Addresses are multiples of 16 bytes.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace rooftile::kernels {

// y[t] = table[ids[t]]
template <typename T>
void embedding_forward(cudaStream_t stream, const std::int32_t* ids, const T* table, T* y, std::int64_t tokens, std::int64_t hidden);
// dtable[ids[t]] += dy[t], in fp32 with atomic additions
template <typename T>
void embedding_backward(cudaStream_t stream, const std::int32_t* ids, const T* dy, float* dtable, std::int64_t tokens, std::int64_t hidden);

// loss[t] = lse[t] - logits[t, label[t]] with lse the logarithm of the sum of exponentials; one read of the logits.
template <typename T>
void cross_entropy_forward(cudaStream_t stream, const T* logits, const std::int32_t* labels, float* loss, float* lse, std::int64_t tokens, std::int64_t vocab);
// dlogits = scale (softmax(logits) - one_hot(label))
template <typename T>
void cross_entropy_backward(cudaStream_t stream, const T* logits, const std::int32_t* labels, const float* lse, T* dlogits, float scale, std::int64_t tokens, std::int64_t vocab);

// AdamW with decoupled weight decay (Loshchilov and Hutter 2019), step `step` counted from 1.
struct AdamWRates {
  float rate = 1e-3f, beta1 = 0.9f, beta2 = 0.999f, epsilon = 1e-8f, decay = 0.01f;
  int step = 1;
};
// The tensors of one launch, in chunks of kAdamWChunk elements: chunk c covers `count` elements of tensor `tensor` from `first` on.
constexpr std::int64_t kAdamWChunk = 8192;  // small enough that a few million elements still reach every SM
struct AdamWTensor {
  void* weights;        // of type T; written, and read unless there are main weights
  float* main_weights;  // null: none
  const void* gradient;
  void *m, *v;
};
struct AdamWPiece {
  std::int32_t tensor;
  std::int32_t count;
  std::int64_t first;
};
template <typename T, typename State, typename Gradient>
void adamw(cudaStream_t stream, const AdamWTensor* tensors, const AdamWPiece* pieces, int piece_count, const AdamWRates& rates);

}  // namespace rooftile::kernels
