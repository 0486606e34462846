// Kernels over rows as problems: operands, launches, references in double.
#include "kernels/rows.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <Eigen/Core>
#include <algorithm>
#include <cmath>

#include "kernels/device.h"

namespace rooftile::kernels {

namespace {

constexpr float kEpsilon = 1e-5f;

template <typename T>
class RowsKernel final : public Kernel {
 public:
  RowsKernel(const Rows& problem, int sms) : p_(problem), sms_(sms) {
    const std::size_t matrix = align_up(static_cast<std::size_t>(p_.rows * p_.cols) * sizeof(T)), row = align_up(static_cast<std::size_t>(p_.cols) * sizeof(T));
    const std::size_t statistics = align_up(static_cast<std::size_t>(p_.rows) * sizeof(float)), column = align_up(static_cast<std::size_t>(p_.cols) * sizeof(float));
    input_type = p_.type;
    tolerance = p_.type == Type::fp32 ? 2e-5 : p_.type == Type::fp16 ? 2e-3 : 8e-3;
    library = "rooftile";
    const bool norm = p_.op == RowOp::layernorm || p_.op == RowOp::rmsnorm;
    // inputs: x, dy, gamma, beta; outputs: result, statistics, sums, scratch of the sums
    second_ = matrix;
    gamma_ = matrix * (p_.backward ? 2 : 1);
    beta_ = gamma_ + row;
    input_bytes = norm ? beta_ + row : gamma_;
    result_bytes_ = p_.op == RowOp::column_sum ? row : p_.op == RowOp::row_sum ? statistics : matrix;
    mean_ = result_bytes_;
    rstd_ = mean_ + statistics;
    dgamma_ = rstd_ + statistics;
    dbeta_ = dgamma_ + column;
    partial_ = norm ? dbeta_ + column : result_bytes_;
    output_bytes = partial_;
    if (norm && p_.backward) output_bytes += align_up(norm_backward_partial_bytes(sms, p_.cols));
    if (p_.op == RowOp::column_sum) {
      output_bytes += align_up(column_sum_partial_bytes(sms, p_.rows, p_.cols));
      counters_ = output_bytes;
      output_bytes += align_up(column_sum_counter_bytes(p_.cols));
    }
    touched_bytes = input_bytes + result_bytes_;
  }

  Reason prepare(Context& context, int sets) override {
    if (p_.op == RowOp::column_sum)
      for (int set = 0; set < sets; ++set) ROOFTILE_CUDA(cudaMemsetAsync(counters(context, set), 0, column_sum_counter_bytes(p_.cols), context.stream));
    if (!(p_.backward && (p_.op == RowOp::layernorm || p_.op == RowOp::rmsnorm))) return {};
    for (int set = 0; set < sets; ++set)  // the statistics that a forward pass would have left
      norm_forward<T>(context.stream, p_.op == RowOp::layernorm, in(context, set, 0), in(context, set, gamma_), in(context, set, beta_), out(context, set),
                      real(context, set, mean_), real(context, set, rstd_), p_.rows, p_.cols, kEpsilon);
    ROOFTILE_CUDA(cudaGetLastError());
    return {};
  }

  Reason launch(Context& context, int set) override {
    const T* x = in(context, set, 0);
    const T* dy = in(context, set, second_);
    switch (p_.op) {
      case RowOp::softmax:
        if (p_.backward)
          softmax_backward<T>(context.stream, x, dy, out(context, set), p_.rows, p_.cols);
        else
          softmax_forward<T>(context.stream, x, out(context, set), p_.rows, p_.cols);
        break;
      case RowOp::layernorm:
      case RowOp::rmsnorm: {
        const bool layernorm = p_.op == RowOp::layernorm;
        if (!p_.backward) {
          norm_forward<T>(context.stream, layernorm, x, in(context, set, gamma_), in(context, set, beta_), out(context, set), real(context, set, mean_), real(context, set, rstd_),
                          p_.rows, p_.cols, kEpsilon);
        } else if (!norm_backward<T>(context.stream, sms_, layernorm, x, dy, in(context, set, gamma_), real(context, set, mean_), real(context, set, rstd_), out(context, set),
                                     real(context, set, dgamma_), real(context, set, dbeta_), real(context, set, partial_), p_.rows, p_.cols)) {
          return "norm backward of rows this long is not implemented";
        }
        break;
      }
      case RowOp::column_sum:
        column_sum<T>(context.stream, sms_, x, out(context, set), real(context, set, partial_), counters(context, set), p_.rows, p_.cols);
        break;
      case RowOp::row_sum:
        row_sum<T>(context.stream, x, real(context, set, 0), p_.rows, p_.cols);
        break;
    }
    ROOFTILE_CUDA(cudaGetLastError());
    return {};
  }

  Reason check(Context& context, double& error) override {
    const std::int64_t results = p_.op == RowOp::column_sum ? p_.cols : p_.op == RowOp::row_sum ? p_.rows : p_.rows * p_.cols;
    const Type result_type = p_.op == RowOp::row_sum ? Type::fp32 : p_.type;
    ROOFTILE_TRY(poison(context, output(context, 0), result_bytes_));
    ROOFTILE_TRY(launch(context, 0));
    std::uint64_t bad = 0;
    ROOFTILE_TRY(count_nonfinite(context, output(context, 0), result_type, static_cast<std::size_t>(results), bad));
    if (bad > 0) {
      error = std::nan("");
      return {};
    }
    ErrorSum sum;
    if (p_.op == RowOp::column_sum) {
      ROOFTILE_TRY(check_columns(context, sum));
    } else {
      ROOFTILE_TRY(check_rows(context, sum));
    }
    error = sum.relative();
    if (p_.backward && (p_.op == RowOp::layernorm || p_.op == RowOp::rmsnorm)) {
      ErrorSum weights;  // kept apart: sums over many rows are larger than dx and would hide its error
      ROOFTILE_TRY(check_columns(context, weights));
      error = std::max(error, weights.relative());
    }
    return {};
  }

 private:
  const T* in(Context& context, int set, std::size_t offset) const { return reinterpret_cast<const T*>(input(context, set, offset)); }
  T* out(Context& context, int set) const { return reinterpret_cast<T*>(output(context, set)); }
  float* real(Context& context, int set, std::size_t offset) const { return reinterpret_cast<float*>(output(context, set, offset)); }
  unsigned* counters(Context& context, int set) const { return reinterpret_cast<unsigned*>(output(context, set, counters_)); }

  Reason fetch_row(Context& context, const T* data, Eigen::ArrayXd& to) const {
    std::vector<double> buffer;
    ROOFTILE_TRY(fetch(context, data, p_.type, static_cast<std::size_t>(p_.cols), 1, buffer));
    to = Eigen::Map<const Eigen::ArrayXd>(buffer.data(), p_.cols);
    return {};
  }

  Reason check_rows(Context& context, ErrorSum& sum) const {
    Eigen::ArrayXd x, dy, gamma, beta, y, expected;
    if (p_.op == RowOp::layernorm || p_.op == RowOp::rmsnorm) {
      ROOFTILE_TRY(fetch_row(context, in(context, 0, gamma_), gamma));
      ROOFTILE_TRY(fetch_row(context, in(context, 0, beta_), beta));
    }
    for (const std::int64_t row : sample(p_.rows, 6, 5)) {
      ROOFTILE_TRY(fetch_row(context, in(context, 0, 0) + row * p_.cols, x));
      if (p_.backward) ROOFTILE_TRY(fetch_row(context, in(context, 0, second_) + row * p_.cols, dy));
      if (p_.op == RowOp::row_sum) {
        std::vector<double> got;
        ROOFTILE_TRY(fetch(context, real(context, 0, 0) + row, Type::fp32, 1, 1, got));
        // A sum of random signs can be near zero: the error counts against the root of the sum of squares.
        sum.difference += (got[0] - x.sum()) * (got[0] - x.sum());
        sum.reference += x.square().sum();
        continue;
      }
      ROOFTILE_TRY(fetch_row(context, out(context, 0) + row * p_.cols, y));
      if (p_.op == RowOp::softmax) {
        if (p_.backward) {
          expected = x * (dy - (x * dy).sum());
        } else {
          expected = (x - x.maxCoeff()).exp();
          expected /= expected.sum();
        }
      } else {
        const double mean = p_.op == RowOp::layernorm ? x.mean() : 0.0;
        const double rstd = 1.0 / std::sqrt((x - mean).square().mean() + static_cast<double>(kEpsilon));
        const Eigen::ArrayXd hat = (x - mean) * rstd;
        if (p_.backward) {
          const Eigen::ArrayXd g = dy * gamma;
          expected = rstd * (g - (p_.op == RowOp::layernorm ? g.mean() : 0.0) - hat * (g * hat).mean());
        } else {
          expected = hat * gamma;
          if (p_.op == RowOp::layernorm) expected += beta;
        }
      }
      for (Eigen::Index i = 0; i < p_.cols; ++i) sum.add(y[i], expected[i]);
    }
    return {};
  }

  // Sums down sampled columns: the bias gradient, or the gradients of gamma and beta.
  Reason check_columns(Context& context, ErrorSum& sum) const {
    std::vector<double> x, dy, mean, rstd, got;
    const std::size_t rows = static_cast<std::size_t>(p_.rows), stride = static_cast<std::size_t>(p_.cols);
    const bool norm = p_.op != RowOp::column_sum, layernorm = p_.op == RowOp::layernorm;
    if (norm) {
      if (layernorm) ROOFTILE_TRY(fetch(context, real(context, 0, mean_), Type::fp32, rows, 1, mean));
      ROOFTILE_TRY(fetch(context, real(context, 0, rstd_), Type::fp32, rows, 1, rstd));
    }
    for (const std::int64_t col : sample(p_.cols, 6, 9)) {
      ROOFTILE_TRY(fetch(context, in(context, 0, 0) + col, p_.type, rows, stride, x));
      const Eigen::Map<const Eigen::ArrayXd> xs(x.data(), p_.rows);
      if (!norm) {
        ROOFTILE_TRY(fetch(context, out(context, 0) + col, p_.type, 1, 1, got));
        sum.difference += (got[0] - xs.sum()) * (got[0] - xs.sum());
        sum.reference += xs.square().sum();
        continue;
      }
      ROOFTILE_TRY(fetch(context, in(context, 0, second_) + col, p_.type, rows, stride, dy));
      const Eigen::Map<const Eigen::ArrayXd> g(dy.data(), p_.rows), scale(rstd.data(), p_.rows);
      Eigen::ArrayXd hat = xs;
      if (layernorm) hat -= Eigen::Map<const Eigen::ArrayXd>(mean.data(), p_.rows);
      hat *= scale;
      ROOFTILE_TRY(fetch(context, real(context, 0, dgamma_) + col, Type::fp32, 1, 1, got));
      sum.difference += std::pow(got[0] - (g * hat).sum(), 2);
      sum.reference += (g * hat).square().sum();
      if (layernorm) {
        ROOFTILE_TRY(fetch(context, real(context, 0, dbeta_) + col, Type::fp32, 1, 1, got));
        sum.difference += std::pow(got[0] - g.sum(), 2);
        sum.reference += g.square().sum();
      }
    }
    return {};
  }

  Rows p_;
  int sms_;
  std::size_t second_ = 0, gamma_ = 0, beta_ = 0, result_bytes_ = 0, mean_ = 0, rstd_ = 0, dgamma_ = 0, dbeta_ = 0, partial_ = 0, counters_ = 0;
};

}  // namespace

std::unique_ptr<Kernel> make_rows(Context& context, const Rows& problem, Reason& reason) {
  if (problem.rows > (std::int64_t{1} << 31) - 1) reason = "more rows than one launch can number";
  if (!reason.empty()) return nullptr;
  switch (problem.type) {
    case Type::bf16:
      return std::make_unique<RowsKernel<__nv_bfloat16>>(problem, context.machine.sms);
    case Type::fp16:
      return std::make_unique<RowsKernel<__half>>(problem, context.machine.sms);
    case Type::fp32:
    case Type::tf32:
      return std::make_unique<RowsKernel<float>>(problem, context.machine.sms);
    case Type::fp8_e4m3:
      reason = "kernels over rows have no fp8 form";
      break;
  }
  return nullptr;
}

}  // namespace rooftile::kernels
