// A matrix product as cuBLASLt runs it, for the GEMM kernel itself and for the products inside unfused attention.
#pragma once

#include <cstdint>

#include "kernels/libraries.h"

namespace rooftile::kernels {

// What cuBLASLt needs to know beyond the Gemm: distances between the matrices of a batch and between rows, in elements; 0 for dense.
struct GemmStrides {
  std::int64_t a_row = 0, b_row = 0, c_row = 0;        // between rows as stored
  std::int64_t a_batch = 0, b_batch = 0, c_batch = 0;  // -1: the same matrix for all
  float alpha = 1.0f;
};

class LtProduct {
 public:
  // Picks the algorithm that the library's heuristic ranks first with a workspace of 32 MiB, which is what frameworks do on Hopper and later.
  Reason create(Context& context, const Gemm& problem, const GemmStrides& strides = {});
  // `bias`: a row of n in the output type (bf16 for fp8). `scale`: device pointer to 1.0f, read for fp8 only.
  Reason launch(Context& context, const void* a, const void* b, void* c, const void* bias = nullptr);

  const std::string& algorithm() const { return algorithm_; }
  static constexpr std::size_t kWorkspaceBytes = 32u << 20;

 private:
#ifdef ROOFTILE_HAS_CUBLASLT
  cublasLtMatmulDescOpaque_t operation_{};
  cublasLtMatrixLayoutOpaque_t first_{}, second_{}, result_{};
  cublasLtMatmulAlgo_t chosen_{};
#endif
  float alpha_ = 1.0f, beta_ = 0.0f;
  bool has_bias_ = false;
  std::size_t workspace_bytes_ = 0;
  std::string algorithm_;
};

}  // namespace rooftile::kernels
