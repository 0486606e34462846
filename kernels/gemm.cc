#include "kernels/gemm.h"

#include <Eigen/Core>
#include <array>
#include <cmath>

namespace rooftile::kernels {

#ifdef ROOFTILE_HAS_CUBLASLT

namespace {

cudaDataType_t data_type(Type type) {
  switch (type) {
    case Type::bf16:
      return CUDA_R_16BF;
    case Type::fp16:
      return CUDA_R_16F;
    case Type::tf32:
    case Type::fp32:
      return CUDA_R_32F;
    case Type::fp8_e4m3:
      return CUDA_R_8F_E4M3;
  }
  return CUDA_R_32F;
}

struct Size {
  int id;
  const char* text;
};
// Names of the clusters; the tile's size is printed from its id's place in the library's own list only where the kernel's name does not already tell it.
constexpr std::array<Size, 7> kClusters = {{{CUBLASLT_CLUSTER_SHAPE_AUTO, "auto"},
                                            {CUBLASLT_CLUSTER_SHAPE_1x1x1, "1x1x1"},
                                            {CUBLASLT_CLUSTER_SHAPE_2x1x1, "2x1x1"},
                                            {CUBLASLT_CLUSTER_SHAPE_4x1x1, "4x1x1"},
                                            {CUBLASLT_CLUSTER_SHAPE_1x2x1, "1x2x1"},
                                            {CUBLASLT_CLUSTER_SHAPE_2x2x1, "2x2x1"},
                                            {CUBLASLT_CLUSTER_SHAPE_1x4x1, "1x4x1"}}};

}  // namespace

#define ROOFTILE_LT(call)                                                                                                                             \
  do {                                                                                                                                                \
    if (const cublasStatus_t status = (call); status != CUBLAS_STATUS_SUCCESS) return std::string("cuBLASLt: ") + lt.cublasLtGetStatusString(status); \
  } while (0)

// Row-major C = A B is column-major C' = B' A': B is the library's first operand and n its number of rows. A row-major matrix as stored is, column-major, its transpose.
Reason LtProduct::create(Context& context, const Gemm& p, const GemmStrides& strides) {
  CublasLt& lt = context.libraries->cublaslt;
  if (!lt.missing.empty()) return lt.missing;
  ROOFTILE_TRY(context.workspace.reserve(kWorkspaceBytes));

  const bool fp8 = p.type == Type::fp8_e4m3;
  const cudaDataType_t input = data_type(p.type), output = data_type(p.out);
  const cublasComputeType_t compute = p.type == Type::tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  ROOFTILE_LT(lt.cublasLtMatmulDescInit_internal(&operation_, sizeof operation_, compute, CUDA_R_32F));
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) { return lt.cublasLtMatmulDescSetAttribute(&operation_, attribute, &value, sizeof value); };
  const cublasOperation_t first_op = p.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N, second_op = p.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  ROOFTILE_LT(set(CUBLASLT_MATMUL_DESC_TRANSA, first_op));
  ROOFTILE_LT(set(CUBLASLT_MATMUL_DESC_TRANSB, second_op));
  has_bias_ = p.epilogue != Epilogue::none;
  if (has_bias_) {
    const cublasLtEpilogue_t epilogue = p.epilogue == Epilogue::bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_GELU_BIAS;
    ROOFTILE_LT(set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue));
    ROOFTILE_LT(set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, fp8 ? CUDA_R_16BF : output));
    const void* aligned = context.workspace.data();  // the real row comes with each launch; the heuristic only wants to see one
    ROOFTILE_LT(set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, aligned));
  }
  if (fp8) {
    const std::int8_t fast = 1;  // accumulation stays on the tensor cores, as libraries for training and serving ask for in forward passes
    ROOFTILE_LT(set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, fast));
  }

  const auto layout = [&](cublasLtMatrixLayoutOpaque_t& to, cudaDataType_t type, std::int64_t rows, std::int64_t cols, std::int64_t row_stride,
                          std::int64_t batch_stride) -> Reason {
    // `rows` x `cols` row-major as stored = cols x rows column-major with leading dimension = distance between rows.
    ROOFTILE_LT(lt.cublasLtMatrixLayoutInit_internal(&to, sizeof to, type, static_cast<std::uint64_t>(cols), static_cast<std::uint64_t>(rows), row_stride > 0 ? row_stride : cols));
    if (p.batch > 1) {
      const std::int32_t count = static_cast<std::int32_t>(p.batch);
      const std::int64_t distance = batch_stride < 0 ? 0 : batch_stride > 0 ? batch_stride : rows * cols;
      ROOFTILE_LT(lt.cublasLtMatrixLayoutSetAttribute(&to, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count));
      ROOFTILE_LT(lt.cublasLtMatrixLayoutSetAttribute(&to, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &distance, sizeof distance));
    }
    return {};
  };
  ROOFTILE_TRY(layout(first_, input, p.b_transposed ? p.n : p.k, p.b_transposed ? p.k : p.n, strides.b_row, strides.b_batch));
  ROOFTILE_TRY(layout(second_, input, p.a_transposed ? p.k : p.m, p.a_transposed ? p.m : p.k, strides.a_row, strides.a_batch));
  ROOFTILE_TRY(layout(result_, output, p.m, p.n, strides.c_row, strides.c_batch));
  alpha_ = strides.alpha;
  beta_ = p.accumulate ? 1.0f : 0.0f;

  cublasLtMatmulPreferenceOpaque_t preference{};
  ROOFTILE_LT(lt.cublasLtMatmulPreferenceInit_internal(&preference, sizeof preference));
  const std::size_t limit = kWorkspaceBytes;
  ROOFTILE_LT(lt.cublasLtMatmulPreferenceSetAttribute(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &limit, sizeof limit));
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  const cublasStatus_t status = lt.cublasLtMatmulAlgoGetHeuristic(lt.handle, &operation_, &first_, &second_, &result_, &result_, &preference, 1, &found, &count);
  if (status != CUBLAS_STATUS_SUCCESS || count == 0)
    return std::string("cuBLASLt has no algorithm for this shape, type and layout") +
           (status == CUBLAS_STATUS_SUCCESS ? "" : std::string(" (") + lt.cublasLtGetStatusString(status) + ")");
  chosen_ = found.algo;
  workspace_bytes_ = found.workspaceSize;

  const auto get = [&](cublasLtMatmulAlgoConfigAttributes_t attribute, auto value) {
    std::size_t written = 0;
    if (lt.cublasLtMatmulAlgoConfigGetAttribute(&chosen_, attribute, &value, sizeof value, &written) != CUBLAS_STATUS_SUCCESS) value = {};
    return static_cast<long>(value);
  };
  const long cluster = get(CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, std::uint16_t{});
  std::string cluster_text = "id" + std::to_string(cluster);
  for (const Size& known : kClusters)
    if (known.id == cluster) cluster_text = known.text;
  algorithm_ = "id=" + std::to_string(get(CUBLASLT_ALGO_CONFIG_ID, std::int32_t{})) + " tile_id=" + std::to_string(get(CUBLASLT_ALGO_CONFIG_TILE_ID, std::uint32_t{})) +
               " stages_id=" + std::to_string(get(CUBLASLT_ALGO_CONFIG_STAGES_ID, std::uint32_t{})) + " cluster=" + cluster_text +
               " split_k=" + std::to_string(get(CUBLASLT_ALGO_CONFIG_SPLITK_NUM, std::int32_t{})) +
               " swizzle=" + std::to_string(get(CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, std::uint32_t{})) + " workspace=" + std::to_string(workspace_bytes_);
  return {};
}

Reason LtProduct::launch(Context& context, const void* a, const void* b, void* c, const void* bias) {
  CublasLt& lt = context.libraries->cublaslt;
  if (has_bias_) ROOFTILE_LT(lt.cublasLtMatmulDescSetAttribute(&operation_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias));
  ROOFTILE_LT(lt.cublasLtMatmul(lt.handle, &operation_, &alpha_, b, &first_, a, &second_, &beta_, c, &result_, c, &result_, &chosen_, context.workspace.data(), workspace_bytes_,
                                context.stream));
  return {};
}

#else

Reason LtProduct::create(Context& context, const Gemm&, const GemmStrides&) { return context.libraries->cublaslt.missing; }
Reason LtProduct::launch(Context& context, const void*, const void*, void*, const void*) { return context.libraries->cublaslt.missing; }

#endif

namespace {

class GemmKernel final : public Kernel {
 public:
  explicit GemmKernel(const Gemm& problem) : p_(problem) {
    const std::size_t e = size_of(p_.type), eo = size_of(p_.out);
    const auto elements = [&](std::int64_t rows, std::int64_t cols) {
      return static_cast<std::size_t>(p_.batch) * static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols);
    };
    b_offset_ = align_up(elements(p_.m, p_.k) * e);
    bias_offset_ = b_offset_ + align_up(elements(p_.k, p_.n) * e);
    input_bytes = bias_offset_ + (p_.epilogue == Epilogue::none ? 0 : align_up(static_cast<std::size_t>(p_.n) * size_of(bias_type())));
    output_bytes = align_up(elements(p_.m, p_.n) * eo);
    input_type = p_.type;
    // Rounding of the result dominates; fp32 sums are exact to about sqrt(k) 2^-24, tf32 operands are rounded to 11 bits.
    tolerance = p_.out == Type::bf16 ? 8e-3 : p_.out == Type::fp16 ? 2e-3 : p_.type == Type::tf32 ? 2e-3 : 1e-4;
    if (p_.type == Type::fp8_e4m3) tolerance = 2e-2;
  }

  Reason create(Context& context) {
    ROOFTILE_TRY(product_.create(context, p_));
    algorithm = product_.algorithm();
    library = "cublaslt " + context.libraries->cublaslt.version;
    return {};
  }

  Reason prepare(Context& context, int sets) override {
    if (p_.type == Type::fp8_e4m3 && p_.epilogue != Epilogue::none) {  // the bias of an fp8 product is bf16
      for (int set = 0; set < sets; ++set) ROOFTILE_TRY(fill_normal(context, input(context, set, bias_offset_), static_cast<std::size_t>(p_.n), Type::bf16, 5));
      context.input_type.reset();
    }
    if (!p_.accumulate) return {};
    for (int set = 0; set < sets; ++set)
      ROOFTILE_TRY(fill_normal(context, output(context, set), static_cast<std::size_t>(p_.batch * p_.m * p_.n), p_.out, 77u + static_cast<std::uint64_t>(set)));
    return {};
  }

  Reason launch(Context& context, int set) override {
    return product_.launch(context, input(context, set), input(context, set, b_offset_), output(context, set), input(context, set, bias_offset_));
  }

  // Sampled rows times sampled columns of a few matrices of the batch, in double.
  Reason check(Context& context, double& error) override {
    const auto rows = sample(p_.m, 6, 1), cols = sample(p_.n, 6, 2), batches = sample(p_.batch, 2, 3);
    const std::byte *a = input(context, 0), *b = input(context, 0, b_offset_), *bias = input(context, 0, bias_offset_);
    std::byte* c = output(context, 0);
    const std::size_t e = size_of(p_.type), eo = size_of(p_.out), size_c = static_cast<std::size_t>(p_.batch * p_.m * p_.n);
    std::vector<double> buffer;
    const auto result = [&](std::vector<double>& to) -> Reason {
      to.clear();
      for (const std::int64_t batch : batches)
        for (const std::int64_t row : rows)
          for (const std::int64_t col : cols) {
            ROOFTILE_TRY(fetch(context, c + static_cast<std::size_t>((batch * p_.m + row) * p_.n + col) * eo, p_.out, 1, 1, buffer));
            to.push_back(buffer[0]);
          }
      return {};
    };
    std::vector<double> before, after;
    if (p_.accumulate) {
      ROOFTILE_TRY(result(before));
    } else {
      ROOFTILE_TRY(poison(context, c, size_c * eo));
    }
    ROOFTILE_TRY(launch(context, 0));
    std::uint64_t bad = 0;
    ROOFTILE_TRY(count_nonfinite(context, c, p_.out, size_c, bad));
    if (bad > 0) {
      error = std::nan("");
      return {};
    }
    ROOFTILE_TRY(result(after));
    ErrorSum sum;
    std::size_t at = 0;
    for (const std::int64_t batch : batches) {
      Eigen::MatrixXd left(static_cast<Eigen::Index>(rows.size()), p_.k), right(p_.k, static_cast<Eigen::Index>(cols.size()));
      for (std::size_t i = 0; i < rows.size(); ++i) {
        const std::int64_t first = batch * p_.m * p_.k + (p_.a_transposed ? rows[i] : rows[i] * p_.k);
        ROOFTILE_TRY(
            fetch(context, a + static_cast<std::size_t>(first) * e, p_.type, static_cast<std::size_t>(p_.k), static_cast<std::size_t>(p_.a_transposed ? p_.m : 1), buffer));
        left.row(static_cast<Eigen::Index>(i)) = Eigen::Map<const Eigen::RowVectorXd>(buffer.data(), p_.k);
      }
      for (std::size_t j = 0; j < cols.size(); ++j) {
        const std::int64_t first = batch * p_.k * p_.n + (p_.b_transposed ? cols[j] * p_.k : cols[j]);
        ROOFTILE_TRY(
            fetch(context, b + static_cast<std::size_t>(first) * e, p_.type, static_cast<std::size_t>(p_.k), static_cast<std::size_t>(p_.b_transposed ? 1 : p_.n), buffer));
        right.col(static_cast<Eigen::Index>(j)) = Eigen::Map<const Eigen::VectorXd>(buffer.data(), p_.k);
      }
      Eigen::MatrixXd expected = left * right;
      for (std::size_t i = 0; i < rows.size(); ++i)
        for (std::size_t j = 0; j < cols.size(); ++j, ++at) {
          double r = expected(static_cast<Eigen::Index>(i), static_cast<Eigen::Index>(j));
          if (p_.epilogue != Epilogue::none) {
            ROOFTILE_TRY(fetch(context, bias + static_cast<std::size_t>(cols[j]) * size_of(bias_type()), bias_type(), 1, 1, buffer));
            r += buffer[0];
          }
          if (p_.epilogue == Epilogue::gelu) r = 0.5 * r * (1 + std::tanh(0.7978845608028654 * (r + 0.044715 * r * r * r)));
          if (p_.accumulate) r += before[at];
          sum.add(after[at], r);
        }
    }
    error = sum.relative();
    return {};
  }

 private:
  Type bias_type() const { return p_.type == Type::fp8_e4m3 ? Type::bf16 : p_.out; }

  Gemm p_;
  LtProduct product_;
  std::size_t b_offset_ = 0, bias_offset_ = 0;
};

}  // namespace

std::unique_ptr<Kernel> make_gemm(Context& context, const Gemm& problem, Reason& reason) {
  auto kernel = std::make_unique<GemmKernel>(problem);
  reason = kernel->create(context);
  if (!reason.empty()) return nullptr;
  return kernel;
}

}  // namespace rooftile::kernels
