// Element-wise kernels as problems: operands, launches, references in double.
#include <Eigen/Core>
#include <cmath>

#include "kernels/device.h"
#include "kernels/pointwise.h"

namespace rooftile::kernels {

namespace {

using Array = Eigen::ArrayXd;

Array logistic(const Array& x) { return 1.0 / (1.0 + (-x).exp()); }
Array inner(const Array& x) { return 0.7978845608028654 * (x + 0.044715 * x.cube()); }
Array gelu(const Array& x) { return 0.5 * x * (1.0 + inner(x).tanh()); }
Array gelu_slope(const Array& x) {
  const Array t = inner(x).tanh();
  return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t.square()) * 0.7978845608028654 * (1.0 + 3.0 * 0.044715 * x.square());
}
Array silu_slope(const Array& x) {
  const Array s = logistic(x);
  return s * (1.0 + x * (1.0 - s));
}

struct Row {
  std::string_view name;
  int inputs, outputs;
  void (*reference)(const std::array<Array, 3>& x, std::array<Array, 2>& y);
};
#define IS [](const std::array<Array, 3>& x, std::array<Array, 2>& y)
// clang-format off
const Row kTable[] = {
    {"copy", 1, 1, IS { y[0] = x[0]; }},
    {"fill", 0, 1, IS { y[0] = Array::Constant(x[0].size(), 0.5); }},
    {"add", 2, 1, IS { y[0] = x[0] + x[1]; }},
    {"sub", 2, 1, IS { y[0] = x[0] - x[1]; }},
    {"mul", 2, 1, IS { y[0] = x[0] * x[1]; }},
    {"div", 2, 1, IS { y[0] = x[0] / x[1]; }},
    {"scale", 1, 1, IS { y[0] = 0.125 * x[0]; }},
    {"relu", 1, 1, IS { y[0] = x[0].max(0.0); }},
    {"relu_backward", 2, 1, IS { y[0] = (x[0] > 0.0).select(x[1], Array::Zero(x[0].size())); }},
    {"gelu", 1, 1, IS { y[0] = gelu(x[0]); }},
    {"gelu_backward", 2, 1, IS { y[0] = x[1] * gelu_slope(x[0]); }},
    {"silu", 1, 1, IS { y[0] = x[0] * logistic(x[0]); }},
    {"silu_backward", 2, 1, IS { y[0] = x[1] * silu_slope(x[0]); }},
    {"silu_mul", 2, 1, IS { y[0] = x[0] * logistic(x[0]) * x[1]; }},
    {"silu_mul_backward", 3, 2, IS { y[0] = x[2] * x[1] * silu_slope(x[0]); y[1] = x[2] * x[0] * logistic(x[0]); }},
    {"gelu_mul", 2, 1, IS { y[0] = gelu(x[0]) * x[1]; }},
    {"gelu_mul_backward", 3, 2, IS { y[0] = x[2] * x[1] * gelu_slope(x[0]); y[1] = x[2] * gelu(x[0]); }},
    {"tanh", 1, 1, IS { y[0] = x[0].tanh(); }},
    {"tanh_backward", 2, 1, IS { y[0] = x[1] * (1.0 - x[0].square()); }},
    {"sigmoid", 1, 1, IS { y[0] = logistic(x[0]); }},
    {"exp", 1, 1, IS { y[0] = x[0].exp(); }},
    {"sqrt", 1, 1, IS { y[0] = x[0].abs().sqrt(); }},
    {"unary", 1, 1, IS { y[0] = x[0].abs(); }},
    {"special", 1, 1, IS { y[0] = (-x[0].square()).exp(); }},
    {"cast", 1, 1, IS { y[0] = x[0]; }},
    {"bias", 1, 1, nullptr},
    {"rotary", 1, 1, nullptr},
};
// clang-format on
#undef IS

class PointwiseKernel final : public Kernel {
 public:
  PointwiseKernel(const Pointwise& problem, const Row& row) : p_(problem), row_(row) {
    if (p_.op != "cast") p_.to = p_.type;
    const std::size_t n = static_cast<std::size_t>(p_.numel);
    in_ = align_up(n * size_of(p_.type));
    out_ = align_up(n * size_of(p_.to));
    table_ = static_cast<std::size_t>(row.inputs) * in_;
    input_bytes = table_;
    if (p_.op == "bias") input_bytes += align_up(static_cast<std::size_t>(kBiasCols) * size_of(p_.type));
    if (p_.op == "rotary") input_bytes += 2 * table_bytes();
    output_bytes = static_cast<std::size_t>(row.outputs) * out_;
    touched_bytes = static_cast<std::size_t>(row.inputs) * in_ + output_bytes;
    input_type = p_.type;
    const auto rounding = [](Type type) { return type == Type::fp8_e4m3 ? 4e-2 : type == Type::bf16 ? 6e-3 : type == Type::fp16 ? 1e-3 : 1e-5; };
    tolerance = rounding(p_.to);
    library = "rooftile";
  }

  Reason launch(Context& context, int set) override {
    PointwiseOperands operands;
    operands.numel = p_.numel;
    for (int i = 0; i < row_.inputs; ++i) operands.x[static_cast<std::size_t>(i)] = input(context, set, static_cast<std::size_t>(i) * in_);
    for (int i = 0; i < row_.outputs; ++i) operands.y[static_cast<std::size_t>(i)] = output(context, set, static_cast<std::size_t>(i) * out_);
    bool known = false;
    if (p_.op == "cast")
      known = launch_cast(context.stream, p_.type, p_.to, operands.x[0], operands.y[0], p_.numel);
    else if (p_.op == "bias")
      known = launch_bias(context.stream, p_.type, operands.x[0], input(context, set, table_), operands.y[0], p_.numel);
    else if (p_.op == "rotary")
      known = launch_rotary(context.stream, p_.type, operands.x[0], input(context, set, table_), input(context, set, table_ + table_bytes()), operands.y[0], p_.numel);
    else
      known = launch_pointwise(context.stream, p_.op, p_.type, operands);
    if (!known) return "this kernel has no form in " + std::string(name_of(p_.type));
    ROOFTILE_CUDA(cudaGetLastError());
    return {};
  }

  // The first, the last and other stretches of 512 elements; the whole result is looked through for values that were not written.
  Reason check(Context& context, double& error) override {
    ROOFTILE_TRY(poison(context, output(context, 0), output_bytes));
    ROOFTILE_TRY(launch(context, 0));
    for (int i = 0; i < row_.outputs; ++i) {
      std::uint64_t bad = 0;
      ROOFTILE_TRY(count_nonfinite(context, output(context, 0, static_cast<std::size_t>(i) * out_), p_.to, static_cast<std::size_t>(p_.numel), bad));
      if (bad > 0 && p_.op != "div") {  // x / 0 is infinite
        error = std::nan("");
        return {};
      }
    }
    ErrorSum sum;
    const std::int64_t stretch = p_.op == "rotary" ? kRotaryDim : 512;
    std::vector<double> buffer;
    for (const std::int64_t block : sample((p_.numel + stretch - 1) / stretch, 8, 11)) {
      const std::int64_t first = block * stretch, count = std::min(stretch, p_.numel - first);
      const auto get = [&](const std::byte* data, Type type, std::int64_t at, std::int64_t n, Array& to) -> Reason {
        ROOFTILE_TRY(fetch(context, data + static_cast<std::size_t>(at) * size_of(type), type, static_cast<std::size_t>(n), 1, buffer));
        to = Eigen::Map<const Array>(buffer.data(), n);
        return {};
      };
      std::array<Array, 3> x;
      std::array<Array, 2> expected;
      x[0].resize(count);
      for (int i = 0; i < row_.inputs; ++i) ROOFTILE_TRY(get(input(context, 0, static_cast<std::size_t>(i) * in_), p_.type, first, count, x[static_cast<std::size_t>(i)]));
      if (row_.reference) {
        row_.reference(x, expected);
      } else if (p_.op == "bias") {
        ROOFTILE_TRY(get(input(context, 0, table_), p_.type, first % kBiasCols, count, x[1]));
        expected[0] = x[0] + x[1];
      } else {
        const std::int64_t half = kRotaryDim / 2, position = block / kRotaryHeads % kRotaryPositions;
        ROOFTILE_TRY(get(input(context, 0, table_), p_.type, position * half, half, x[1]));
        ROOFTILE_TRY(get(input(context, 0, table_ + table_bytes()), p_.type, position * half, half, x[2]));
        expected[0].resize(count);
        expected[0].head(half) = x[0].head(half) * x[1] - x[0].tail(half) * x[2];
        expected[0].tail(half) = x[0].tail(half) * x[1] + x[0].head(half) * x[2];
      }
      for (int i = 0; i < row_.outputs; ++i) {
        Array got;
        ROOFTILE_TRY(get(output(context, 0, static_cast<std::size_t>(i) * out_), p_.to, first, count, got));
        for (Eigen::Index at = 0; at < count; ++at) {
          const double want = expected[static_cast<std::size_t>(i)][at];
          if (std::isfinite(want) && std::abs(want) < 1e3) sum.add(got[at], want);
        }
      }
    }
    error = sum.relative();
    return {};
  }

 private:
  std::size_t table_bytes() const { return align_up(static_cast<std::size_t>(kRotaryPositions * kRotaryDim / 2) * size_of(p_.type)); }

  Pointwise p_;
  const Row& row_;
  std::size_t in_ = 0, out_ = 0, table_ = 0;
};

}  // namespace

std::vector<std::string> pointwise_names() {
  std::vector<std::string> names;
  for (const Row& row : kTable) names.emplace_back(row.name);
  return names;
}

std::unique_ptr<Kernel> make_pointwise(Context&, const Pointwise& problem, Reason& reason) {
  for (const Row& row : kTable) {
    if (row.name != problem.op) continue;
    if (problem.op == "rotary" && problem.numel % kRotaryDim != 0) reason = "rotary works on whole heads of 128 elements";
    if (problem.type == Type::fp8_e4m3 && problem.op != "cast") reason = "this kernel has no form in fp8_e4m3";
    if (!reason.empty()) return nullptr;
    return std::make_unique<PointwiseKernel>(problem, row);
  }
  reason = "there is no own kernel for '" + problem.op + "'";
  return nullptr;
}

}  // namespace rooftile::kernels
