// Registers that a thread of this project's own row kernels holds, and what the compiler left no registers for: they decide how many CTAs an SM works on at once.
#pragma once

#include "estimator/core/dtype.h"

namespace rooftile {

enum class RowKernel : std::uint8_t { softmax_fwd, softmax_bwd, softmax_odd_fwd, softmax_odd_bwd, layernorm_fwd, rmsnorm_fwd, layernorm_bwd, rmsnorm_bwd };

struct RowRegisters {
  double registers = 32;
  double spilled_bytes = 0;  // of a thread, stored to and loaded from local memory once for each row
};

// per: vectors of a thread, or elements where `single`. wide: the form for more than 512 threads in a CTA (backward passes of norms). layernorm_fwd bf16 per 2: 49 registers, so
// two CTAs of 512 threads share 65,536; fp32, with half of the elements in as many bytes, needs 32 and four fit.
RowRegisters registers_of(RowKernel kernel, DType dtype, bool single, double per, bool wide);

}  // namespace rooftile
