#include "validate/fit_torch.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <set>

#include "estimator/timing/constants.h"
#include "estimator/timing/torch_kernels.h"
#include "validate/fit_device.h"
#include "validate/simplex.h"
#include "validate/torch_constants.h"

namespace rooftile {
namespace {

constexpr double kPrior = 0.02;      // of loss, shared by the rows, for a constant that is its `sigma` away from its start: keeps what rows cannot tell in place
constexpr double kNearPrior = 0.05;  // the same where few rows move constants of a campaign
constexpr double kSmooth = 0.03;     // of the loss around 0, much the same as the noise of neighbouring sizes
constexpr double kKinSigma = 0.7;    // of a constant's sigma where kernels of the same make are known
constexpr double kMostScale = 2;     // that a class's rates may be scaled by
constexpr double kTwoSizes = 1.5;    // sizes that differ by less are one
constexpr int kStarts = 24;
constexpr std::string_view kSizes[] = {"rows", "cols", "numel", "tokens", "hidden"};

const TorchField& field_of(std::string_view name) {
  return *std::find_if(kTorchFields.begin(), kTorchFields.end(), [&](const TorchField& field) { return field.name == name; });
}

// One constant that a group of rows may move.
struct Variable {
  std::string walk;
  const TorchField* field;
  std::string_view unit;
  double lowest, highest, start, sigma;

  double to_coordinate(double value) const { return lowest > 0 ? std::log(value) / sigma : value / sigma; }
  double from_coordinate(double x) const { return std::clamp(lowest > 0 ? std::exp(x * sigma) : x * sigma, lowest, highest); }
};

// Rows whose time depends on the same walks that nothing else tells.
struct Group {
  std::vector<std::string> walks;
  std::vector<const FitRow*> rows;
};

class TorchFitter {
 public:
  TorchFitter(const Machine& machine, const TorchFitOptions& options, std::string date)
      : machine_(machine), options_(options), constants_(resolve_constants(machine_, Mode::calibrated)), kernels_(machine_, constants_), date_(std::move(date)) {}

  const TorchKernels& kernels() const { return kernels_; }
  const Constants& constants() const { return constants_; }

  void hold(std::vector<Fact>& facts) {
    for (const TorchHeld& held : torch_held()) {
      kernels_.set(held.walk, field_of(held.field), held.value);
      facts.push_back(Fact{.key = fmt::format("torch.{}.{}", held.walk, held.field),
                           .value = held.value,
                           .unit = std::string(held.unit),
                           .source = "rows",
                           .kind = "derived",
                           .date = date_,
                           .note = std::string(held.note)});
    }
  }

  TorchClassFit fit(const Group& group, std::vector<Fact>& facts) {
    TorchClassFit report;
    report.walk = fmt::format("{}", fmt::join(group.walks, "+"));
    report.rows = group.rows.size();
    rows_.clear();
    std::copy_if(group.rows.begin(), group.rows.end(), std::back_inserter(rows_), [](const FitRow* row) { return !row->kept_out; });
    report.fitted = rows_.size();
    if (rows_.empty()) return report;
    report.before = kernels_.covers(rows_.front()->call) ? loss() : 0;
    variables_ = variables_of(group.walks);
    const bool scale_only = !options_.campaign && (static_cast<int>(rows_.size()) < options_.least_rows || one_size());
    report.scaled = scale_only;
    std::vector<double> best = scale_only ? scaled() : searched();
    apply(best);
    report.after = loss();
    for (std::size_t i = 0; i < variables_.size(); ++i) {
      const Variable& v = variables_[i];
      told_[v.walk + "." + std::string(v.field->name)] = best[i];
      if (!options_.campaign && best[i] == v.start) continue;
      facts.push_back(Fact{.key = "torch." + v.walk + "." + std::string(v.field->name),
                           .value = best[i],
                           .unit = std::string(v.unit),
                           .source = "rows",
                           .kind = "fitted",
                           .date = date_,
                           .note = scale_only ? fmt::format("rates of the class scaled on {} rows", rows_.size()) : fmt::format("{} rows fitted", rows_.size())});
    }
    return report;
  }

 private:
  std::vector<Variable> variables_of(const std::vector<std::string>& walks) const {
    std::vector<Variable> out;
    for (const std::string& walk : walks) {
      for (const std::string_view name : torch_fields(walk)) {
        const TorchBounds& b = torch_bounds(name);
        Variable v{walk, &field_of(name), b.unit, b.lowest, b.highest, b.neutral, b.sigma};
        if (const TorchStart* other = torch_start(walk, name)) v.start = other->start, v.sigma = other->sigma, v.highest = std::max(v.highest, 4 * other->start);
        if (const auto found = machine_.calibration.find("torch." + walk + "." + std::string(name)); found && !options_.campaign) v.start = std::clamp(*found, v.lowest, v.highest);
        if (options_.campaign) {
          for (std::string_view like = torch_kin(walk); !like.empty(); like = torch_kin(like)) {
            if (const auto told = told_.find(fmt::format("{}.{}", like, name)); told != told_.end()) {
              v.start = std::clamp(told->second, v.lowest, v.highest);
              v.sigma *= kKinSigma;
              break;
            }
          }
        }
        out.push_back(std::move(v));
      }
    }
    return out;
  }

  void apply(std::span<const double> values) {
    for (std::size_t i = 0; i < values.size(); ++i) kernels_.set(variables_[i].walk, *variables_[i].field, values[i]);
  }

  // Mean |predicted / measured - 1|; `smooth` rounds the kink off, without which a class of few rows is drawn through some of them exactly.
  double loss(double smooth = 0) const {
    double sum = 0;
    for (const FitRow* row : rows_) {
      const double error = kernels_.time(row->call).time_s / row->measured_s - 1;
      sum += std::sqrt(error * error + smooth * smooth) - smooth;
    }
    return sum / static_cast<double>(rows_.size());
  }

  double size(const FitRow& row) const { return to_double(work_of(row.call).bytes()); }
  bool one_size() const {
    const auto [least, most] = std::minmax_element(rows_.begin(), rows_.end(), [&](const FitRow* a, const FitRow* b) { return size(*a) < size(*b); });
    return size(**most) < kTwoSizes * size(**least);
  }

  // One factor on every rate of the class; what is fixed stays.
  std::vector<double> scaled() {
    const auto at = [&](double scale) {
      std::vector<double> values;
      for (const Variable& v : variables_) {
        const std::string_view name = v.field->name;
        const bool rate = name == "elements_per_clock_per_sm" || name == "efficiency", cycles = name.ends_with("cycles") || name == "stage_s";
        values.push_back(rate ? std::clamp(v.start * scale, v.lowest, v.highest) : cycles ? std::clamp(v.start / scale, v.lowest, v.highest) : v.start);
      }
      return values;
    };
    const std::vector<double> found = minimise(
        [&](std::span<const double> x) {
          const double scale = std::exp(std::clamp(x[0], -std::log(kMostScale), std::log(kMostScale)));
          apply(at(scale));
          return loss(kSmooth) + kNearPrior / static_cast<double>(rows_.size()) * x[0] * x[0];
        },
        {0.0}, {0.2}, 120);
    return at(std::exp(std::clamp(found[0], -std::log(kMostScale), std::log(kMostScale))));
  }

  std::vector<double> searched() {
    const std::size_t n = variables_.size();
    std::vector<double> start(n), best;
    for (std::size_t i = 0; i < n; ++i) start[i] = variables_[i].to_coordinate(variables_[i].start);
    const double prior = (options_.campaign ? kPrior : kNearPrior) / static_cast<double>(rows_.size());
    const auto values_at = [&](std::span<const double> x) {
      std::vector<double> values(n);
      for (std::size_t i = 0; i < n; ++i) values[i] = variables_[i].from_coordinate(x[i]);
      return values;
    };
    const auto cost = [&](std::span<const double> x) {
      const std::vector<double> values = values_at(x);
      apply(values);
      double sum = loss(kSmooth);
      for (std::size_t i = 0; i < n; ++i) {
        const double inside = variables_[i].to_coordinate(values[i]);
        sum += prior * (inside - start[i]) * (inside - start[i]) + 0.01 * (x[i] - inside) * (x[i] - inside);  // outside of the bounds nothing is gained
      }
      return sum;
    };
    const std::vector<double> step(n, 0.5);
    double least = 0;
    // The loss has more than one valley: starts are spread by a sequence that fills the box evenly.
    for (int s = 0; s < (options_.campaign ? kStarts : 1); ++s) {
      std::vector<double> x = start;
      for (std::size_t i = 0; i < n && s > 0; ++i) x[i] += 4 * (halton(s, i) - 0.5);
      for (int again = 0; again < 4; ++again) x = minimise(cost, x, step, 150 * n);
      const double found = cost(x);
      if (best.empty() || found < least) best = x, least = found;
    }
    return values_at(best);
  }

  static double halton(int index, std::size_t dimension) {
    constexpr std::array kPrimes = {2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47};
    const int base = kPrimes[dimension % kPrimes.size()];
    double value = 0, share = 1;
    for (int rest = index; rest > 0; rest /= base) value += (share /= base) * (rest % base);
    return value;
  }

  Machine machine_;
  const TorchFitOptions& options_;
  Constants constants_;
  TorchKernels kernels_;
  std::string date_;
  std::vector<const FitRow*> rows_;
  std::vector<Variable> variables_;
  std::map<std::string, double, std::less<>> told_;  // "vector.efficiency": values found so far
};

// Calls that one walk decides come first; then those that add a walk to known ones.
std::vector<Group> groups_of(const std::vector<const FitRow*>& rows) {
  std::vector<Group> groups;
  std::set<std::string, std::less<>> told;
  for (std::size_t depth = 1; depth <= 3; ++depth) {
    std::map<std::vector<std::string>, std::vector<const FitRow*>> found;
    for (const FitRow* row : rows) {
      const std::vector<std::string_view> walks = torch_walks(row->call);
      if (walks.size() != depth) continue;
      std::vector<std::string> open;
      for (const std::string_view walk : walks) {
        if (!told.contains(walk)) open.emplace_back(walk);
      }
      if (open.empty()) open.emplace_back(walks.front());
      found[open].push_back(row);
    }
    const std::size_t begin = groups.size();
    for (auto& [walks, members] : found) {
      if (depth > 1 && walks.size() == 1 && told.contains(walks.front())) continue;
      // Rows of one walk that begin with different others are fitted together.
      const auto shares = [&](const Group& group) { return std::any_of(walks.begin(), walks.end(), [&](const std::string& w) { return std::ranges::count(group.walks, w) > 0; }); };
      auto into = std::find_if(groups.begin() + static_cast<std::ptrdiff_t>(begin), groups.end(), shares);
      if (into == groups.end()) into = groups.insert(groups.end(), Group{});
      for (const std::string& walk : walks) {
        if (std::ranges::count(into->walks, walk) == 0) into->walks.push_back(walk);
      }
      into->rows.insert(into->rows.end(), members.begin(), members.end());
    }
    for (std::size_t i = begin; i < groups.size(); ++i) {
      if (std::any_of(groups[i].rows.begin(), groups[i].rows.end(), [](const FitRow* row) { return !row->kept_out; })) told.insert(groups[i].walks.begin(), groups[i].walks.end());
    }
    std::stable_sort(groups.begin() + static_cast<std::ptrdiff_t>(begin), groups.end(),
                     [](const Group& a, const Group& b) { return torch_generation(a.walks.front()) < torch_generation(b.walks.front()); });
  }
  return groups;
}

using Times = std::map<std::string, std::pair<std::vector<double>, std::vector<double>>>;

std::map<std::string, Residuals> residuals_of_all(const Times& times) {
  std::map<std::string, Residuals> out;
  for (const auto& [family, pair] : times) out[family] = residuals_of(pair.first, pair.second);
  return out;
}

std::vector<ValidRange> sizes_of(const std::vector<const FitRow*>& rows, std::string_view family) {
  std::vector<ValidRange> ranges;
  for (const std::string_view key : kSizes) {
    double lowest = 1e300, highest = 0;
    for (const FitRow* row : rows) {
      if (torch_family(row->call) != family) continue;
      lowest = std::min(lowest, size_of(row->call, key)), highest = std::max(highest, size_of(row->call, key));
    }
    if (highest > lowest) ranges.push_back({std::string(key), lowest, highest});  // a single size does not bound a range
  }
  return ranges;
}

}  // namespace

std::string torch_family(const KernelCall& call) {
  const std::string_view walk = call.impl == Impl::torch ? torch_walk(call) : std::string_view{};
  return walk.empty() ? std::string() : "torch." + std::string(walk);
}

Result<TorchFit> fit_torch_classes(const Machine& machine, std::span<const FitRow> rows, const TorchFitOptions& options) {
  TorchFit fit;
  std::vector<const FitRow*> used;
  for (const FitRow& row : rows) {
    if (torch_family(row.call).empty() || !(row.measured_s > 0)) {
      ++fit.ignored;
      continue;
    }
    used.push_back(&row);
    if (!row.kept_out) ++fit.fitted_rows;
  }
  fit.rows = used.size();
  if (fit.fitted_rows == 0) return fail(ErrorCode::invalid, "no row of PyTorch's kernels can be used for a fit", "", "rows need impl=torch and a class that the model knows");

  Machine own = machine;
  if (options.campaign) {
    for (CalibrationLayer& layer : own.calibration.layers) std::erase_if(layer.facts, [](const Fact& fact) { return fact.key.starts_with("torch."); });
  }
  CalibrationLayer& layer = fit.layer;
  layer.level = options.campaign ? LayerLevel::architecture : LayerLevel::device;
  layer.architecture = options.campaign ? "any" : "";
  layer.device = options.campaign ? "" : machine.device.id;
  layer.library = options.library;
  TorchFitter fitter(own, options, options.date);
  if (options.campaign) layer.rows_of = machine.device.id;
  if (options.campaign) fitter.hold(layer.facts);
  for (const Group& group : groups_of(used)) fit.classes.push_back(fitter.fit(group, layer.facts));
  const auto vector = std::find_if(layer.facts.begin(), layer.facts.end(), [](const Fact& fact) { return fact.key == "torch.vector.efficiency"; });
  if (options.campaign && vector != layer.facts.end()) {
    Fact reference = *vector;
    reference.key = "torch.pointwise_reference", reference.kind = "derived";
    reference.note = "what pointwise kernels reach where the efficiencies below were found; those of a device whose own reach less (GDDR6) shrink with it";
    layer.facts.insert(layer.facts.begin(), std::move(reference));
  }

  const Constants constants = resolve_constants(machine, Mode::calibrated);
  const TorchKernels before(machine, constants);
  KernelTimer ideal(machine, Mode::sol, ClockState::burst);
  Times now, old, fixed;
  for (const FitRow* row : used) {
    if (!row->kept_out || !fitter.kernels().covers(row->call)) continue;
    for (const std::string& family : {torch_family(row->call), std::string("torch")}) {
      const auto add = [&](Times& times, double predicted_s) {
        times[family].first.push_back(predicted_s);
        times[family].second.push_back(row->measured_s);
      };
      add(now, fitter.kernels().time(row->call).time_s);
      add(fixed, fixed_factor_roofline_s(ideal(row->call).peak_s));
      if (before.covers(row->call)) add(old, before.time(row->call).time_s);
    }
  }
  fit.residuals = residuals_of_all(now), fit.before = residuals_of_all(old), fit.fixed = residuals_of_all(fixed);
  fit.all = fit.residuals["torch"], fit.all_before = fit.before["torch"], fit.all_fixed = fit.fixed["torch"];
  for (auto* map : {&fit.residuals, &fit.before, &fit.fixed}) map->erase("torch");
  for (const auto& [family, residuals] : fit.residuals) {
    if (residuals.rows >= kLeastTorchRows) layer.residuals[family] = residuals;
  }
  if (fit.all.rows >= kLeastTorchRows) layer.residuals["torch"] = fit.all;
  for (const auto& [family, residuals] : fit.residuals) layer.validity[family] = sizes_of(used, family);
  std::erase_if(layer.validity, [](const auto& entry) { return entry.second.empty(); });
  return fit;
}

}  // namespace rooftile
