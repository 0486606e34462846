#include "validate/fit.h"

#include <fmt/format.h>

#include <Eigen/Cholesky>
#include <Eigen/Core>
#include <algorithm>
#include <cmath>

#include "estimator/timing/gemm.h"
#include "validate/errors.h"

namespace rooftile {
namespace {

constexpr double kStep = 0.02;  // of the finite differences, in coordinates: large enough to look past the steps that whole tiles make
constexpr double kAlignedBytes = 16;

// A constant as the solver sees it: its logarithm, or its share of the allowed range where that begins at 0.
double to_coordinate(const FitConstant& c, double value) { return c.lowest > 0 ? std::log(value) : (value - c.lowest) / (c.highest - c.lowest); }
double from_coordinate(const FitConstant& c, double x) {
  const double value = c.lowest > 0 ? std::exp(x) : c.lowest + x * (c.highest - c.lowest);
  return std::clamp(value, c.lowest, c.highest);
}

std::vector<std::string> protocols_of(std::span<const FitRow> rows) {
  std::vector<std::string> names;
  for (const FitRow& row : rows) {
    if (std::find(names.begin(), names.end(), row.protocol) == names.end()) names.push_back(row.protocol);
  }
  return names;
}

// Predicts the rows under constants laid over the machine.
class Predictor {
 public:
  Predictor(const Machine& machine, std::span<const FitRow> rows) : machine_(machine), rows_(rows), protocols_(protocols_of(rows)) {
    std::erase_if(machine_.calibration.layers, [](const CalibrationLayer& layer) { return layer.level == LayerLevel::protocol; });
    machine_.calibration.layers.emplace_back();
    machine_.calibration.layers.back().level = LayerLevel::site;
  }

  // Only rows of `protocol` when it is not empty; others keep what `times` has.
  void predict(std::span<const FittedConstant> constants, const std::string& protocol, std::vector<double>& times) {
    times.resize(rows_.size());
    for (const std::string& group : protocols_) {
      if (!protocol.empty() && group != protocol) continue;
      std::vector<Fact>& facts = machine_.calibration.layers.back().facts;
      facts.clear();
      for (const FittedConstant& c : constants) {
        if (!c.constant.protocol.empty() && c.constant.protocol != group) continue;
        facts.emplace_back();
        facts.back().key = c.constant.key, facts.back().value = c.value;
      }
      for (const ClockState clocks : {ClockState::automatic, ClockState::burst, ClockState::sustained}) {
        const auto wanted = [&](const FitRow& row) { return row.clocks == clocks && row.protocol == group; };
        if (std::none_of(rows_.begin(), rows_.end(), wanted)) continue;
        KernelTimer timer(machine_, Mode::calibrated, clocks);
        for (std::size_t i = 0; i < rows_.size(); ++i) {
          if (wanted(rows_[i])) times[i] = timer(rows_[i].call).time_s;
        }
      }
    }
  }

 private:
  Machine machine_;
  std::span<const FitRow> rows_;
  std::vector<std::string> protocols_;
};

// Soft-L1: twice sqrt(1 + z) - 1 for z the squared error in units of the scale; 0.05 of error at scale 0.05 costs 0.83.
double soft_l1(double error, double scale) { return 2 * (std::sqrt(1 + error * error / (scale * scale)) - 1); }

struct Problem {
  Predictor predictor;
  std::span<const FitRow> rows;
  const FitOptions& options;
  std::vector<FittedConstant>& constants;
  std::vector<std::size_t> free;  // which are fitted
  Eigen::VectorXd start;

  Eigen::VectorXd coordinates() const {
    Eigen::VectorXd x(static_cast<Eigen::Index>(free.size()));
    for (std::size_t i = 0; i < free.size(); ++i) x[static_cast<Eigen::Index>(i)] = to_coordinate(constants[free[i]].constant, constants[free[i]].value);
    return x;
  }
  void move_to(const Eigen::VectorXd& x) {
    for (std::size_t i = 0; i < free.size(); ++i) constants[free[i]].value = from_coordinate(constants[free[i]].constant, x[static_cast<Eigen::Index>(i)]);
  }
  Eigen::VectorXd errors(const std::vector<double>& times) const {
    Eigen::VectorXd error(static_cast<Eigen::Index>(rows.size()));
    for (std::size_t i = 0; i < rows.size(); ++i) error[static_cast<Eigen::Index>(i)] = std::log(times[i] / rows[i].measured_s);
    return error;
  }
  double cost(const Eigen::VectorXd& error, const Eigen::VectorXd& x) const {
    double sum = 0;
    for (const double e : error) sum += soft_l1(e, options.loss_scale);
    return sum + ((x - start) / options.prior).squaredNorm();
  }
  // d error / d coordinate of one constant, by central differences inside its bounds.
  Eigen::VectorXd slope(std::size_t which, const std::vector<double>& times) {
    FittedConstant& c = constants[which];
    const double value = c.value, x = to_coordinate(c.constant, value);
    std::vector<double> up = times, down = times;
    c.value = from_coordinate(c.constant, x + kStep);
    const double above = to_coordinate(c.constant, c.value);
    predictor.predict(constants, c.constant.protocol, up);
    c.value = from_coordinate(c.constant, x - kStep);
    const double below = to_coordinate(c.constant, c.value);
    predictor.predict(constants, c.constant.protocol, down);
    c.value = value;
    return (errors(up) - errors(down)) / std::max(above - below, 1e-9);
  }
};

// Constants that too few rows see stay fixed.
void choose_free(Problem& problem, const std::vector<double>& times) {
  problem.free.clear();
  for (std::size_t i = 0; i < problem.constants.size(); ++i) {
    FittedConstant& c = problem.constants[i];
    const Eigen::VectorXd slope = problem.slope(i, times);
    c.rows_seen = static_cast<int>(std::count_if(slope.begin(), slope.end(), [&](double s) { return std::abs(s) >= problem.options.least_effect; }));
    c.fitted = c.rows_seen >= problem.options.least_rows;
    c.reason = c.fitted ? "" : fmt::format("{} of {} rows see it", c.rows_seen, problem.rows.size());
    if (c.fitted) problem.free.push_back(i);
  }
}

// Gives the cost at the end.
double solve(Problem& problem) {
  std::vector<double> times;
  problem.predictor.predict(problem.constants, "", times);
  choose_free(problem, times);
  if (problem.free.empty()) return problem.cost(problem.errors(times), Eigen::VectorXd());
  const auto n = static_cast<Eigen::Index>(problem.free.size());
  Eigen::VectorXd x = problem.coordinates();
  if (problem.start.size() != n) problem.start = x;
  Eigen::VectorXd error = problem.errors(times);
  double cost = problem.cost(error, x), damping = 1e-2;
  for (int iteration = 0; iteration < problem.options.iterations; ++iteration) {
    Eigen::MatrixXd jacobian(error.size(), n);
    for (Eigen::Index i = 0; i < n; ++i) jacobian.col(i) = problem.slope(problem.free[static_cast<std::size_t>(i)], times);
    const double scale = problem.options.loss_scale;
    const Eigen::VectorXd weight = (1 + (error / scale).array().square()).rsqrt() / (scale * scale);
    Eigen::MatrixXd normal = jacobian.transpose() * weight.asDiagonal() * jacobian;
    Eigen::VectorXd gradient = jacobian.transpose() * weight.cwiseProduct(error);
    const double prior = 1 / (problem.options.prior * problem.options.prior);
    normal.diagonal().array() += prior;
    gradient += prior * (x - problem.start);
    bool better = false;
    double gained = 0;
    for (int attempt = 0; attempt < 8 && !better; ++attempt) {
      Eigen::MatrixXd damped = normal;
      damped.diagonal() *= 1 + damping;
      problem.move_to(x - damped.ldlt().solve(gradient));
      const Eigen::VectorXd moved = problem.coordinates();  // inside the bounds
      std::vector<double> next;
      problem.predictor.predict(problem.constants, "", next);
      const Eigen::VectorXd next_error = problem.errors(next);
      const double next_cost = problem.cost(next_error, moved);
      better = std::isfinite(next_cost) && next_cost < cost;
      if (better) {
        gained = cost - next_cost;
        x = moved, error = next_error, times = std::move(next), cost = next_cost;
        damping = std::max(1e-6, damping / 4);
      } else {
        damping *= 5;
      }
    }
    problem.move_to(x);
    if (!better || gained < 1e-5 * cost) break;
  }
  return cost;
}

double quantile(std::vector<double> sorted, double share) {
  const double position = share * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<std::size_t>(position);
  const std::size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (position - static_cast<double>(low)) * (sorted[high] - sorted[low]);
}

}  // namespace

std::string residual_family(const KernelCall& call) {
  std::string family(name_of(call.kernel));
  if (call.kernel == KernelClass::gemm) {
    family += "." + std::string(name_of(call.dtype));
    return alignment_of(call.gemm(), call.dtype) * bytes_of(call.dtype) < kAlignedBytes && call.dtype != DType::fp32 && call.dtype != DType::fp64 ? family + ".misaligned" : family;
  }
  if (call.kernel == KernelClass::collective) return family + "." + std::string(name_of(call.collective().kind));
  const bool passes = call.kernel == KernelClass::attention || call.kernel == KernelClass::softmax || call.kernel == KernelClass::layernorm ||
                      call.kernel == KernelClass::rmsnorm || call.kernel == KernelClass::embedding || call.kernel == KernelClass::cross_entropy;
  if (passes) family += call.pass == Pass::fwd ? ".fwd" : ".bwd";
  return family + "." + std::string(name_of(call.dtype));
}

bool kept_out_of_fit(const KernelCall& call) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : print_shape(call)) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return (hash >> 33 & 1) != 0;
}

Result<std::vector<FittedConstant>> fit_constants(const Machine& machine, std::span<const FitRow> rows, std::span<const FitConstant> constants, const FitOptions& options) {
  std::vector<FitRow> fitted;
  std::copy_if(rows.begin(), rows.end(), std::back_inserter(fitted), [](const FitRow& row) { return !row.kept_out; });
  if (fitted.empty()) return fail(ErrorCode::invalid, "there is no row to fit the constants on");
  std::vector<FittedConstant> result;
  for (const FitConstant& constant : constants) result.push_back({constant, std::clamp(constant.start, constant.lowest, constant.highest), 0, false, {}});
  Problem problem{Predictor(machine, fitted), fitted, options, result, {}, {}};
  std::vector<double> times;
  problem.predictor.predict(result, "", times);
  for (std::size_t i = 0; i < times.size(); ++i) {
    if (!(times[i] > 0) || !(fitted[i].measured_s > 0)) return fail(ErrorCode::invalid, "a row has no positive time: " + print_shape(fitted[i].call));
  }
  const std::vector<FittedConstant> begin = result;
  const double cost = solve(problem);
  if (std::none_of(result.begin(), result.end(), [](const FittedConstant& c) { return c.constant.other_start > 0; })) return result;
  std::vector<FittedConstant> first = result;
  result = begin;
  for (FittedConstant& c : result) {
    if (c.constant.other_start > 0) c.value = std::clamp(c.constant.other_start, c.constant.lowest, c.constant.highest);
  }
  problem.start.resize(0);
  if (solve(problem) >= cost) return first;
  return result;
}

std::vector<double> predict_rows(const Machine& machine, std::span<const FitRow> rows, std::span<const FittedConstant> constants) {
  std::vector<double> times;
  Predictor(machine, rows).predict(constants, "", times);
  return times;
}

Residuals residuals_of(std::span<const double> predicted_s, std::span<const double> measured_s) {
  std::vector<double> ratios, logs;
  for (std::size_t i = 0; i < predicted_s.size(); ++i) {
    ratios.push_back(predicted_s[i] / measured_s[i]);
    logs.push_back(-std::log(ratios.back()));
  }
  Residuals residuals;
  if (ratios.empty()) return residuals;
  const ErrorStatistics errors = error_statistics(ratios);
  std::sort(logs.begin(), logs.end());
  residuals.rows = static_cast<int>(errors.rows);
  residuals.mean_abs = errors.mean, residuals.median_abs = errors.median, residuals.p90_abs = errors.p90, residuals.bias = errors.bias;
  residuals.q10 = quantile(logs, 0.1), residuals.q90 = quantile(logs, 0.9);
  return residuals;
}

}  // namespace rooftile
