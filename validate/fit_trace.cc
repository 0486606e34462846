#include "validate/fit_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "estimator/timing/constants.h"
#include "estimator/timing/torch_kernels.h"

namespace rooftile {
namespace {

constexpr double kPriorWeight = 0.1;  // of one row
constexpr double kFirstStep = 0.4, kLastStep = 0.003;
constexpr double kLeastEfficiency = 0.05;
// Of a class that no layer describes yet.
constexpr double kUsualEfficiency = 0.85, kUsualFixed_s = 1e-6, kUsualSerialCycles = 1, kUsualStage_s = 1e-7;
constexpr double kStreamedBytes = 4;  // that a 16-bit kernel of one operand moves for an element

// Factors as logarithms: rate, efficiency, fixed times.
using Factors = std::array<double, 3>;
struct Prior {
  Factors sigma;
};
constexpr Prior kKnown = {{0.35, 0.1, 0.5}};
constexpr Prior kNew = {{1.5, 0.15, 0.7}};
constexpr Prior kNewWithoutSteps = {{1.5, 1.5, 0.7}};  // classes whose time does not depend on elements per clock

bool has_steps(std::string_view walk) {
  return walk != "optimizer" && walk != "layernorm.gamma" && walk != "rmsnorm.gamma" && walk != "nll" && walk != "nll.bwd" && walk != "copy_engine";
}

// The walks that a class's rows tell: a norm's backward pass is two kernels, of which only the sum is in a row of its own operator.
std::vector<std::string> walks_of(const std::string& name, std::span<const Measurement* const> rows) {
  std::vector<std::string> walks = {name};
  const auto backward = [&](KernelClass kernel) {
    return std::any_of(rows.begin(), rows.end(), [&](const Measurement* m) { return m->call.kernel == kernel && m->call.pass == Pass::bwd; });
  };
  if (backward(KernelClass::layernorm)) walks.emplace_back("layernorm.gamma");
  if (backward(KernelClass::rmsnorm)) walks.emplace_back("rmsnorm.gamma");
  return walks;
}

// How a constant goes with the factors; 0 for those that are sizes and shares.
double moved(std::string_view field, double value, const Factors& log_factors) {
  const double rate = std::exp(log_factors[0]), efficiency = std::exp(log_factors[1]), fixed = std::exp(log_factors[2]);
  if (field == "elements_per_clock_per_sm") return value * rate;
  if (field == "efficiency") return std::clamp(value * efficiency, kLeastEfficiency, 1.0);
  if (field == "fixed_s" || field == "half_s") return value * fixed;
  constexpr std::array<std::string_view, 6> kTimes = {"row_cycles", "load_cycles", "column_cycles", "byte_cycles", "serial_cycles", "stage_s"};
  return std::find(kTimes.begin(), kTimes.end(), field) != kTimes.end() ? value / rate : value;
}

class TraceFitter {
 public:
  TraceFitter(const Machine& machine, std::string date) : machine_(under_profiler(machine)), constants_(resolve_constants(machine_, Mode::calibrated)), date_(std::move(date)) {
    machine_.calibration.layers.emplace_back();
    machine_.calibration.layers.back().level = LayerLevel::site;
    machine_.calibration.layers.emplace_back(machine_.calibration.layers.back());  // found before; being tried
  }

  TraceClassFit fit(const std::string& name, std::span<const Measurement* const> all) {
    TraceClassFit report;
    report.name = name;
    base_.clear();
    bool known = true;
    for (const std::string& walk : walks_of(name, all)) known = collect(walk) && known;
    const Prior& prior = known ? kKnown : has_steps(name) ? kNew : kNewWithoutSteps;
    rows_.clear();
    for (const Measurement* m : all) {
      const double dram_s = to_double(work_of(m->call).bytes()) / machine_.device.memory_bandwidth;
      if (m->measured_s < dram_s)
        ++report.warm;
      else
        rows_.push_back(m);
    }
    report.rows = rows_.size();
    if (rows_.empty()) return report;
    report.before = mean_error();
    const Factors best = search(prior);
    lay(best);
    report.after = mean_error();
    report.rate = std::exp(best[0]), report.efficiency = std::exp(best[1]), report.fixed = std::exp(best[2]);
    keep(name, known, best);
    return report;
  }

  std::vector<Fact> facts() const { return found().facts; }

 private:
  CalibrationLayer& found() { return machine_.calibration.layers[machine_.calibration.layers.size() - 2]; }
  const CalibrationLayer& found() const { return machine_.calibration.layers[machine_.calibration.layers.size() - 2]; }
  CalibrationLayer& tried() { return machine_.calibration.layers.back(); }

  // The walk's constants as the machine has them; usual ones where it has none. Whether it had.
  bool collect(const std::string& walk) {
    const std::string prefix = "torch." + walk + ".";
    std::map<std::string, Fact> facts;
    for (const CalibrationLayer& layer : machine_.calibration.layers) {
      for (const Fact& fact : layer.facts) {
        if (fact.key.rfind(prefix, 0) == 0 && fact.key.find('.', prefix.size()) == std::string::npos) facts[fact.key.substr(prefix.size())] = fact;
      }
    }
    const bool known = !facts.empty();
    if (!known) {
      const auto usual = [&](const std::string& field, double value, const std::string& unit) {
        facts[field].value = value;
        facts[field].unit = unit;
      };
      const double clock_hz = machine_.device.boost_clock_hz > 0 ? machine_.device.boost_clock_hz : 1e9, sms = std::max(1.0, static_cast<double>(machine_.device.sms));
      usual("efficiency", machine_.calibration.find("dram.efficiency").value_or(kUsualEfficiency), "1");
      usual("fixed_s", kUsualFixed_s, "s");
      if (walk == "column_sum")
        usual("stage_s", kUsualStage_s, "s");
      else if (has_steps(walk))
        usual("elements_per_clock_per_sm", machine_.device.memory_bandwidth / (kStreamedBytes * sms * clock_hz), "1");
      if (walk.rfind("nll", 0) == 0) usual("serial_cycles", kUsualSerialCycles, "1");
    }
    for (auto& [field, fact] : facts) {
      fact.key = prefix + field;
      base_.emplace_back(field, fact);
    }
    return known;
  }

  void lay(const Factors& factors) {
    tried().facts.clear();
    for (const auto& [field, fact] : base_) {
      tried().facts.push_back(fact);
      tried().facts.back().value = moved(field, fact.value, factors);
    }
  }

  double loss(const Factors& factors, const Prior& prior) {
    lay(factors);
    const TorchKernels kernels(machine_, constants_);
    double sum = 0;
    for (const Measurement* m : rows_) sum += std::abs(std::log(kernels.time(m->call).time_s / m->measured_s));
    double held = 0;
    for (std::size_t i = 0; i < factors.size(); ++i) held += factors[i] * factors[i] / (prior.sigma[i] * prior.sigma[i]);
    return (sum + kPriorWeight * held) / static_cast<double>(rows_.size());
  }

  double mean_error() {
    const TorchKernels kernels(machine_, constants_);
    double sum = 0;
    for (const Measurement* m : rows_) {
      // A class that no layer describes is timed as any kernel that streams.
      const double time_s = kernels.covers(m->call) ? kernels.time(m->call).time_s : KernelTimer(machine_, Mode::calibrated, ClockState::automatic)(m->call).time_s;
      sum += std::abs(time_s / m->measured_s - 1);
    }
    return sum / static_cast<double>(rows_.size());
  }

  // Downhill along the axes and the diagonal of rate and efficiency, in steps that halve.
  Factors search(const Prior& prior) {
    constexpr std::array<Factors, 4> kDirections = {{{1, 0, 0}, {0, 1, 0}, {0, 0, 1}, {1, 1, 0}}};
    Factors at = {0, 0, 0};
    double least = loss(at, prior);
    for (double step = kFirstStep; step > kLastStep;) {
      bool better = false;
      for (const Factors& direction : kDirections) {
        for (const double sign : {1.0, -1.0}) {
          Factors next = at;
          for (std::size_t i = 0; i < at.size(); ++i) next[i] += sign * step * direction[i];
          const double there = loss(next, prior);
          if (!(there < least)) continue;
          at = next, least = there, better = true;
        }
      }
      if (!better) step /= 2;
    }
    return at;
  }

  void keep(const std::string& name, bool known, const Factors& best) {
    const std::size_t calls = rows_.size();
    for (const auto& [field, fact] : base_) {
      Fact out = fact;
      out.value = moved(field, fact.value, best);
      if (known && std::abs(out.value - fact.value) <= 1e-3 * std::abs(fact.value)) continue;
      out.source = "rows", out.kind = "fitted", out.date = date_, out.section.clear();
      out.note =
          fmt::format("class {}: {} distinct call{} of a trace; {} {:.4g}", name, calls, calls == 1 ? "" : "s", known ? "before" : "no constant before, started at", fact.value);
      found().facts.push_back(std::move(out));
    }
    tried().facts.clear();
  }

  Machine machine_;
  Constants constants_;
  std::string date_;
  std::vector<std::pair<std::string, Fact>> base_;  // by the last word of their keys
  std::vector<const Measurement*> rows_;
};

}  // namespace

Machine under_profiler(Machine machine) {
  std::erase_if(machine.calibration.layers, [](const CalibrationLayer& layer) { return layer.level == LayerLevel::protocol; });
  CalibrationLayer layer;
  layer.level = LayerLevel::protocol;
  layer.id = layer.protocol = "pytorch-profiler";
  for (const char* key : {"protocol.launch_s", "protocol.stream_launch_s"}) {
    layer.facts.push_back(Fact{.key = key, .value = 0, .unit = "s", .kind = "derived", .note = "a profiler's duration is the kernel alone"});
  }
  machine.calibration.layers.push_back(std::move(layer));
  return machine;
}

bool learned_from_traces(const KernelCall& call) {
  if (call.impl != Impl::torch || torch_walk(call).empty()) return false;
  if (call.kernel != KernelClass::pointwise) return true;
  return call.pointwise().kind != PointwiseKind::fused && call.pointwise().kind != PointwiseKind::fused_rows;
}

std::string trace_class(const KernelCall& call) {
  if (learned_from_traces(call)) return std::string(torch_walk(call));
  if (call.kernel == KernelClass::pointwise) return std::string(name_of(call.pointwise().kind));
  return std::string(name_of(call.kernel));
}

std::map<std::string, TraceClassError> trace_errors(const Machine& machine, std::span<const Measurement> rows) {
  const Machine profiled = under_profiler(machine);  // outlives the timer
  KernelTimer timer(profiled, Mode::calibrated, ClockState::automatic);
  std::map<std::string, TraceClassError> errors;
  for (const Measurement& m : rows) {
    if (!m.ok() || !unsupported_reason(m.call, machine.device).empty()) continue;
    const double predicted_s = timer(m.call).time_s, error = std::abs(predicted_s / m.measured_s - 1), calls = std::max(1, m.replays);
    const auto add = [&](TraceClassError& e) {
      ++e.rows;
      e.calls += static_cast<std::size_t>(calls);
      e.time_s += calls * m.measured_s;
      e.predicted_s += calls * predicted_s;
      e.mean_abs += error;
      e.of_time_abs += calls * m.measured_s * error;
    };
    add(errors[trace_class(m.call)]);
    if (learned_from_traces(m.call)) add(errors[""]);
  }
  for (auto& [name, e] : errors) {
    e.mean_abs /= static_cast<double>(e.rows);
    if (e.time_s > 0) e.of_time_abs /= e.time_s;
  }
  return errors;
}

Result<TraceFit> fit_trace(const Machine& machine, std::span<const Measurement> rows, const std::string& date) {
  std::map<std::string, std::vector<const Measurement*>> classes;
  for (const Measurement& m : rows) {
    if (m.ok() && learned_from_traces(m.call) && unsupported_reason(m.call, machine.device).empty()) classes[trace_class(m.call)].push_back(&m);
  }
  if (classes.empty()) return fail(ErrorCode::invalid, "no kernel of PyTorch's classes between matmuls is among the rows", "", "record the trace with record_shapes=True");
  TraceFitter fitter(machine, date);
  TraceFit fit;
  // Fills first: gradients of tables and of log-probabilities hold one.
  if (const auto fill = classes.find("fill"); fill != classes.end()) fit.classes.push_back(fitter.fit("fill", fill->second));
  for (const auto& [name, members] : classes) {
    if (name != "fill") fit.classes.push_back(fitter.fit(name, members));
  }
  fit.layer.level = LayerLevel::device;
  fit.layer.id = fit.layer.device = machine.device.id;
  fit.layer.facts = fitter.facts();
  return fit;
}

}  // namespace rooftile
