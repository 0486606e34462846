// Launchers of the kernels over rows, used by make_rows and by unfused attention. T: __nv_bfloat16, __half, float. Addresses are multiples of 16 bytes.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace rooftile::kernels {

template <typename T>
void softmax_forward(cudaStream_t stream, const T* x, T* y, std::int64_t rows, std::int64_t cols);

// dx = y (dy - sum(y dy)) for each row.
template <typename T>
void softmax_backward(cudaStream_t stream, const T* y, const T* dy, T* dx, std::int64_t rows, std::int64_t cols);

// y = (x - mean) rstd gamma + beta (layernorm) or x rstd gamma (rmsnorm); mean (layernorm only) and rstd of each row are written.
template <typename T>
void norm_forward(cudaStream_t stream, bool layernorm, const T* x, const T* gamma, const T* beta, T* y, float* means, float* rstds, std::int64_t rows, std::int64_t cols,
                  float epsilon);

// Gradients of x, gamma and beta (layernorm only); `partial` holds norm_backward_partial_bytes(). False: rows of this length are not implemented.
template <typename T>
bool norm_backward(cudaStream_t stream, int sms, bool layernorm, const T* x, const T* dy, const T* gamma, const float* means, const float* rstds, T* dx, float* dgamma,
                   float* dbeta, float* partial, std::int64_t rows, std::int64_t cols);
std::size_t norm_backward_partial_bytes(int sms, std::int64_t cols);

// out[c] = sum over rows of x[r, c]; `partial` holds column_sum_partial_bytes(), `counters` column_sum_counter_bytes(), all zero before the first call and after each.
template <typename T>
void column_sum(cudaStream_t stream, int sms, const T* x, T* out, float* partial, unsigned* counters, std::int64_t rows, std::int64_t cols);
std::size_t column_sum_partial_bytes(int sms, std::int64_t rows, std::int64_t cols);
std::size_t column_sum_counter_bytes(std::int64_t cols);

// out[r] = sum over columns of x[r, c], in fp32.
template <typename T>
void row_sum(cudaStream_t stream, const T* x, float* out, std::int64_t rows, std::int64_t cols);

}  // namespace rooftile::kernels
