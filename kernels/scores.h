// Scale and mask of a score matrix in memory, as unfused attention applies them.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace rooftile::kernels {

// y = scale x where query r % seq_q may see key c, else the lowest number of the type. x: [rows, seq_kv]; rows are whole groups of seq_q queries. T: bf16, half, float.
template <typename T>
void scale_and_mask(cudaStream_t stream, const T* x, T* y, std::int64_t rows, std::int64_t seq_q, std::int64_t seq_kv, float scale, bool causal, std::int64_t window);

}  // namespace rooftile::kernels
