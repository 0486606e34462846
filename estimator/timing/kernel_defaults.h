// What the printed form of a KernelCall leaves out: shared by its parser and its printer, so that one is the inverse of the other.
#pragma once

#include <array>
#include <string_view>

#include "estimator/timing/kernel_call.h"

namespace rooftile::kernel_text {

inline constexpr std::array<std::string_view, 3> kEpilogueNames = {"none", "bias", "gelu"};
inline constexpr std::array<std::string_view, 3> kOptimizerNames = {"adamw", "sgd", "adamw_foreach"};

// What `out` is when the shape does not say: the input dtype, except where the library's default differs (interface contract: bf16 for fp8).
inline DType default_out(DType dtype) {
  switch (dtype) {
    case DType::fp8_e4m3:
    case DType::fp8_e5m2:
    case DType::fp4:
    case DType::int4:
      return DType::bf16;
    case DType::int8:
      return DType::int32;
    case DType::tf32:
      return DType::fp32;
    default:
      return dtype;
  }
}

// What a cast writes when the shape does not say: fp32 goes down to bf16, everything else up to fp32.
inline DType default_to(PointwiseKind kind, DType dtype) {
  if (kind != PointwiseKind::cast) return dtype;
  return dtype == DType::fp32 ? DType::bf16 : DType::fp32;
}

// Vendor libraries do matmuls, attention and communication; PyTorch's own kernels the rest (interface contract).
inline Impl default_impl(KernelClass kernel) {
  return kernel == KernelClass::gemm || kernel == KernelClass::attention || kernel == KernelClass::collective ? Impl::vendor : Impl::torch;
}

}  // namespace rooftile::kernel_text
