// Launchers of element-wise kernels. x: inputs; y: outputs; all of `numel` elements, addresses multiples of 16 bytes.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <cstdint>
#include <string_view>

#include "kernels/kernels.h"

namespace rooftile::kernels {

struct PointwiseOperands {
  std::array<const void*, 3> x{};
  std::array<void*, 2> y{};
  std::int64_t numel = 0;
};

// name, inputs, outputs; the body stands in pointwise.cu and the reference in pointwise_problem.cc.
#define ROOFTILE_POINTWISE(X)                                                                                                                                                 \
  X(copy, 1, 1)                                                                                                                                                               \
  X(fill, 0, 1)                                                                                                                                                               \
  X(add, 2, 1)                                                                                                                                                                \
  X(sub, 2, 1)                                                                                                                                                                \
  X(mul, 2, 1) X(div, 2, 1) X(scale, 1, 1) X(relu, 1, 1) X(relu_backward, 2, 1) X(gelu, 1, 1) X(gelu_backward, 2, 1) X(silu, 1, 1) X(silu_backward, 2, 1) X(silu_mul, 2, 1)   \
      X(silu_mul_backward, 3, 2) X(gelu_mul, 2, 1) X(gelu_mul_backward, 3, 2) X(tanh, 1, 1) X(tanh_backward, 2, 1) X(sigmoid, 1, 1) X(exp, 1, 1) X(sqrt, 1, 1) X(unary, 1, 1) \
          X(special, 1, 1)

// False: no such kernel for this type.
bool launch_pointwise(cudaStream_t stream, std::string_view op, Type type, const PointwiseOperands& operands);
bool launch_cast(cudaStream_t stream, Type from, Type to, const void* x, void* y, std::int64_t numel);

// y = x + row, a row of kBiasCols that repeats.
constexpr std::int64_t kBiasCols = 4096;
bool launch_bias(cudaStream_t stream, Type type, const void* x, const void* row, void* y, std::int64_t numel);

// Rotary embedding of [tokens, kRotaryHeads, kRotaryDim], the halves of a head being the pairs; position = token modulo kRotaryPositions.
constexpr std::int64_t kRotaryDim = 128, kRotaryHeads = 32, kRotaryPositions = 4096;
bool launch_rotary(cudaStream_t stream, Type type, const void* x, const void* cosines, const void* sines, void* y, std::int64_t numel);

}  // namespace rooftile::kernels
