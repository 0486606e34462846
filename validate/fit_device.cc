#include "validate/fit_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include "estimator/timing/attention.h"

namespace rooftile {
namespace {

constexpr std::size_t kLeastRows = 30;  // of a family that is fitted, both halves together
constexpr std::string_view kSizes[] = {"m", "n", "k", "batch", "alignment", "heads", "seq_q", "seq_kv", "head_dim", "rows", "cols", "numel", "tokens", "vocab", "hidden"};

// A constant with its bounds; they keep a value that a set determines badly within what is physically possible.
struct Candidate {
  std::string key, fallback;  // where the machine says nothing under the key
  double lowest, highest, neutral;
  std::string unit = "1";
  bool protocol = false;
  double other_start = 0;
};

using Rows = std::vector<FitRow>;
using Select = std::function<bool(const FitRow&)>;

class DeviceFitter {
 public:
  DeviceFitter(Machine& machine, Rows& rows, const DeviceFitOptions& options, DeviceFit& fit) : machine_(machine), rows_(rows), options_(options), fit_(fit) {}

  // Fits the candidates on the selected rows; values found earlier (all those of this device, and those of each protocol) hold.
  Result<void> block(const std::string& name, const Select& select, std::vector<Candidate> candidates) {
    Rows chosen;
    for (const FitRow& row : rows_) {
      if (select(row)) chosen.push_back(row);
    }
    if (chosen.size() < (options_.physical ? kLeastRows : 1) || std::all_of(chosen.begin(), chosen.end(), [](const FitRow& row) { return row.kept_out; })) return {};
    std::vector<std::string> protocols;
    std::map<std::string, std::size_t> counts;
    for (const FitRow& row : chosen) {
      ++counts[row.protocol];
      if (std::find(protocols.begin(), protocols.end(), row.protocol) == protocols.end()) protocols.push_back(row.protocol);
    }
    // The protocol with most rows tells the GPU's own rate; the others may have held another clock.
    const std::string reference = std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) { return a.second < b.second; })->first;
    std::vector<FitConstant> constants;
    std::vector<FittedConstant> held;
    for (const Candidate& c : candidates) {
      if (!c.protocol && !options_.physical) continue;
      const auto add = [&](const std::string& protocol) {
        if (known(c.key, protocol)) return;
        const double start = machine_.calibration.find(c.key).value_or(c.fallback.empty() ? c.neutral : machine_.calibration.find(c.fallback).value_or(c.neutral));
        constants.push_back({c.key, c.unit, start, c.lowest, c.highest, protocol, c.other_start});
      };
      if (!c.protocol) add("");
      if (c.protocol) {
        // Whether an engine's call does more than the kernel is asked only of rows that do not say what ran.
        const auto says = [&](const std::string& protocol) {
          return std::any_of(chosen.begin(), chosen.end(), [&](const FitRow& r) { return r.kernel_known && r.protocol == protocol; });
        };
        for (const std::string& protocol : protocols) {
          if (c.key == "protocol.kv_write" && says(protocol)) continue;
          if (c.key == "protocol.clock_factor" && protocol == reference && !options_.keep && options_.physical) continue;
          add(protocol);
        }
      }
    }
    // What earlier blocks found for a protocol goes along as a constant without room to move.
    for (const FitReport& report : fit_.constants) {
      const FittedConstant& c = report.constant;
      if (c.constant.protocol.empty() || !c.fitted) continue;
      if (std::find(protocols.begin(), protocols.end(), c.constant.protocol) == protocols.end()) continue;
      constants.push_back({c.constant.key, c.constant.unit, c.value, c.value, c.value, c.constant.protocol, 0});
    }
    auto found = fit_constants(machine_, chosen, constants, options_.fit);
    if (!found) return tl::unexpected<Error>(found.error());
    for (FittedConstant& c : *found) {
      if (c.constant.lowest == c.constant.highest) continue;
      if (c.fitted && c.constant.protocol.empty()) machine_.calibration.layers.back().facts.push_back(fact_of(c, name, chosen.size()));
      fit_.constants.push_back({name, std::move(c)});
    }
    return {};
  }

  Fact fact_of(const FittedConstant& c, const std::string& block, std::size_t rows) const {
    const bool at_bound = c.value <= c.constant.lowest * 1.001 || c.value >= c.constant.highest * 0.999;
    return Fact{.key = c.constant.key,
                .value = c.value,
                .unit = c.constant.unit,
                .source = "rows",
                .kind = "fitted",
                .date = options_.date,
                .note = fmt::format("{}, {} rows of which half were kept out; {} fitted rows see it; started at {:.4g}{}", block, rows, c.rows_seen, c.constant.start,
                                    at_bound ? "; at the end of its allowed range" : "")};
  }

 private:
  bool known(const std::string& key, const std::string& protocol) const {
    for (const CalibrationLayer& layer : machine_.calibration.layers) {
      if (layer.level != LayerLevel::device || !protocol.empty() || &layer == &machine_.calibration.layers.back()) continue;
      if (std::any_of(layer.facts.begin(), layer.facts.end(), [&](const Fact& fact) { return fact.key == key; })) return true;
    }
    return std::any_of(fit_.constants.begin(), fit_.constants.end(),
                       [&](const FitReport& r) { return r.constant.fitted && r.constant.constant.key == key && r.constant.constant.protocol == protocol; });
  }

  Machine& machine_;
  Rows& rows_;
  const DeviceFitOptions& options_;
  DeviceFit& fit_;
};

// A power limiter acts within a few times of what the architecture's layer says: a fit must not make slow kernels out of low clocks.
std::vector<Candidate> shared_candidates(const Machine& machine) {
  const double burst_s = machine.calibration.find("clock.burst_s").value_or(1e-3);
  return {{"l2.bytes_per_clock_per_sm", "", 15, 400, 64, "1", false, 150},
          {"gemm.store_split", "", 0, 2, 0.3},
          {"split_k.reduce_s", "", 2e-7, 1e-5, 2e-6, "s"},
          {"clock.sustained_fraction", "", 0.3, 1, 0.9, "1", false, 0.55},
          {"clock.burst_s", "", burst_s / 4, 2e-2, 1e-3, "s", false, 3e-3},
          {"clock.sustained_s", "", 2e-4, 0.3, 3e-2, "s", false, 3e-2}};
}

std::vector<Candidate> protocol_candidates() {
  return {
      {"protocol.launch_s", "launch_s", 2e-7, 6e-5, 2e-6, "s", true}, {"protocol.warm_operands", "", 0, 1, 0, "1", true}, {"protocol.clock_factor", "", 0.6, 1.1, 1, "1", true}};
}

void append(std::vector<Candidate>& to, std::vector<Candidate> more) { to.insert(to.end(), more.begin(), more.end()); }

Result<void> fit_gemm(DeviceFitter& fitter, const Rows& rows, const Machine& machine) {
  // The dtype with most rows first: it tells what all share.
  std::map<DType, std::size_t> counts;
  for (const FitRow& row : rows) {
    if (row.call.kernel == KernelClass::gemm) ++counts[row.call.dtype];
  }
  std::vector<std::pair<std::size_t, DType>> order;
  for (const auto& [dtype, count] : counts) order.emplace_back(count + (bits_of(dtype) == 16 ? 1'000'000 : 0), dtype);
  std::sort(order.rbegin(), order.rend());
  for (const auto& [count, dtype] : order) {
    const std::string name(name_of(dtype)), prefix = "gemm." + (bits_of(dtype) == 8 && name.substr(0, 3) == "fp8" ? std::string("fp8") : name) + ".";
    std::vector<Candidate> candidates = {{prefix + "eta", "gemm.eta", 0.15, dtype == DType::fp32 ? 1.0 : 1.05, 0.85},
                                         {prefix + "epilogue_cycles", "gemm.epilogue_cycles", 0.2, 6, 1},
                                         {prefix + "operand_efficiency", "gemm.operand_efficiency", 0.25, 1, 0.85},
                                         {prefix + "latency_scale", "gemm.latency_scale", 0.2, 4, 1}};
    if (dtype == DType::fp32) candidates.push_back({prefix + "fragment_cost", "", 0, 4, 1.7});
    if (dtype == DType::tf32) candidates.push_back({prefix + "transpose_cost", "", 0, 2, 1});
    if (dtype == order.front().second) append(candidates, shared_candidates(machine));
    append(candidates, protocol_candidates());
    const std::string family = "gemm." + name;
    if (auto done = fitter.block(
            "gemm " + name, [&](const FitRow& row) { return row.family == family; }, candidates);
        !done)
      return done;

    // Kernels for other alignments: the rate of their family of instructions.
    std::vector<Candidate> rates;
    for (const KernelFamily& f : machine.catalogue.families) {
      const bool has = std::find(f.dtypes.begin(), f.dtypes.end(), dtype) != f.dtypes.end();
      if (!has || f.min_alignment * bytes_of(dtype) >= 16) continue;
      rates.push_back({"gemm.family." + f.name + ".rate", "", 0.03, 1, f.rate});
      rates.push_back({"gemm.family." + f.name + ".latency_scale", "", 0.2, 5, 1});
      rates.push_back({"gemm.family." + f.name + ".copy_cycles", "gemm.copy_cycles", 0.5, 20, 5});
      rates.push_back({"gemm.family." + f.name + ".nt_slowdown", "", 1, 3, 1.2});
    }
    if (dtype == order.front().second) rates.push_back({"gemm.line_split", "", 0, 2, 0.5});
    append(rates, protocol_candidates());
    if (auto done = fitter.block(
            "gemm " + name + " misaligned", [&](const FitRow& row) { return row.family == family + ".misaligned"; }, rates);
        !done)
      return done;
  }
  return {};
}

Result<void> fit_attention(DeviceFitter& fitter, const Rows& rows, const Machine& machine) {
  std::map<std::pair<AttentionKernel, Pass>, std::size_t> kinds;
  const auto kernel_of = [&](const FitRow& row) { return attention_kernel_of(row.call.attention(), row.call.dtype, machine.device); };
  for (const FitRow& row : rows) {
    if (row.call.kernel == KernelClass::attention) ++kinds[{kernel_of(row), row.call.pass}];
  }
  for (const auto& [kind, count] : kinds) {
    const auto [kernel, pass] = kind;
    if (kernel == AttentionKernel::standard) continue;
    const std::string prefix = "attention." + std::string(name_of(kernel)) + ".", direction = pass == Pass::fwd ? "fwd" : "bwd";
    const std::string own = pass == Pass::fwd ? "" : "bwd.";
    std::vector<Candidate> candidates = {{prefix + direction + ".efficiency", "attention." + direction + ".efficiency", 0.15, 1, 0.7},
                                         {prefix + own + "overlap_p", prefix + "overlap_p", 1, 6, 1.5},
                                         {prefix + "tile_tail", "attention.tile_tail", 0, 1.5, 0.5},
                                         {prefix + own + "tile_s", "attention.tile_s", 1e-7, 1e-5, 2.5e-6, "s"}};
    if (pass == Pass::fwd)
      append(candidates, {{prefix + "combine_s", "attention.combine_s", 5e-7, 1e-5, 3e-6, "s"}, {prefix + "decode.efficiency", "attention.decode.efficiency", 0.3, 1, 0.75}});
    if (pass == Pass::fwd) append(candidates, {{prefix + "fwd.wide_head", "", 0, 0.7, 0.2}, {prefix + "decode.wide_head", "", 0, 0.7, 0.2}});
    if (pass == Pass::fwd && kernel == AttentionKernel::cudnn) append(candidates, {{prefix + "prepare_s", "", 0, 5e-6, 1.5e-6, "s"}});
    if (pass == Pass::bwd) append(candidates, {{prefix + "bwd.wide_head", "", 0.2, 1, 0.8}});
    append(candidates,
           {{"protocol.attention_call_s", "", 0, 3e-5, 0, "s", true}, {"protocol.kv_write", "", 0, 1, 0, "1", true}, {"protocol.warm_operands", "", 0, 1, 0, "1", true}});
    const Select select = [&, &kernel = kernel, &pass = pass](const FitRow& row) {
      return row.call.kernel == KernelClass::attention && row.call.pass == pass && kernel_of(row) == kernel;
    };
    if (auto done = fitter.block(fmt::format("attention {} {}", direction, name_of(kernel)), select, candidates); !done) return done;
  }
  return {};
}

// A list of streaming classes that a device's rows have, each with its bandwidth and, where it may have one, a fixed part.
void append_classes(std::vector<Candidate>& candidates, const Rows& rows, std::initializer_list<KernelClass> kernels, bool own) {
  for (const KernelClass kernel : kernels) {
    const std::string name(name_of(kernel));
    const auto any = [&](Pass pass) { return std::any_of(rows.begin(), rows.end(), [&](const FitRow& row) { return row.call.kernel == kernel && row.call.pass == pass; }); };
    for (const Pass pass : {Pass::fwd, Pass::bwd}) {
      if (!any(pass)) continue;
      const std::string prefix = name + (pass == Pass::bwd ? ".bwd" : "");
      if (own && (kernel == KernelClass::softmax || kernel == KernelClass::row_sum)) continue;  // their plans say it all
      const bool norm = kernel == KernelClass::layernorm || kernel == KernelClass::rmsnorm;
      if (own && norm && pass == Pass::fwd) continue;
      if (own && (kernel == KernelClass::column_sum || (kernel == KernelClass::cross_entropy && pass == Pass::fwd))) {
        candidates.push_back({prefix + ".fixed_s", "", -2e-6, 2e-5, 0, "s"});
        continue;
      }
      candidates.push_back({prefix + ".efficiency", pass == Pass::fwd ? "dram.efficiency" : name + ".efficiency", 0.1, own ? 1.1 : 1, 0.8});
      // Pointwise kernels are one launch of CTAs that are all alike; the others may add a kernel, or have a longest CTA.
      if (kernel == KernelClass::pointwise) continue;
      candidates.push_back({prefix + ".fixed_s", "", own ? -2e-6 : 0, 2e-5, 0, "s"});
      if (!own) candidates.push_back({prefix + ".floor_s", "", 1e-7, 1e-4, 1e-6, "s", false, kernel == KernelClass::optimizer ? 3e-5 : 1.2e-5});
    }
  }
}

Result<void> fit_streams(DeviceFitter& fitter, const Rows& rows) {
  const auto streams = [](const FitRow& row) {
    return row.call.kernel != KernelClass::gemm && row.call.kernel != KernelClass::attention && row.call.kernel != KernelClass::collective;
  };
  // Own kernels first: pointwise ones tell what all share.
  const auto own = [&](const FitRow& row) { return streams(row) && row.call.impl == Impl::rooftile; };
  if (std::any_of(rows.begin(), rows.end(), own)) {
    std::vector<Candidate> shared = {{"dram.latency_s", "", 1e-7, 3e-6, 6e-7, "s"},
                                     {"dram.write_cost", "", 0, 1, 0.28},
                                     {"stream.convert_s", "", 0, 2e-7, 2.8e-8, "s"},
                                     {"stream.flop_s", "", 0, 5e-8, 3e-9, "s"},
                                     {"stream.flop_slots", "", 1, 12, 4}};
    append_classes(shared, rows, {KernelClass::pointwise}, true);
    append(shared, {{"protocol.stream_launch_s", "protocol.launch_s", 1e-7, 6e-5, 2e-6, "s", true}});
    if (auto done = fitter.block(
            "pointwise", [&](const FitRow& row) { return own(row) && row.call.kernel == KernelClass::pointwise; }, shared);
        !done)
      return done;
    std::vector<Candidate> others = {{"stream.warp_cycles", "", 1, 200, 4.3},        {"stream.single_cycles", "", 0.02, 5, 0.08},
                                     {"stream.convert_cycles", "", 0.002, 1, 0.025}, {"stream.partial_s", "", 1e-12, 1e-8, 7.1e-11, "s"},
                                     {"stream.vector_s", "", 1e-9, 1e-6, 7e-8, "s"}, {"stream.reduce_s", "", 1e-8, 2e-6, 2.7e-7, "s"},
                                     {"stream.load_s", "", 1e-8, 1e-6, 1.1e-7, "s"}, {"stream.start_s", "", 1e-8, 2e-6, 3.2e-7, "s"},
                                     {"sm.bytes_per_clock", "", 10, 200, 64}};
    append_classes(others, rows,
                   {KernelClass::softmax, KernelClass::layernorm, KernelClass::rmsnorm, KernelClass::column_sum, KernelClass::row_sum, KernelClass::embedding,
                    KernelClass::cross_entropy, KernelClass::optimizer},
                   true);
    if (auto done = fitter.block("own streams", own, others); !done) return done;
  }
  const auto foreign = [&](const FitRow& row) { return streams(row) && row.call.impl != Impl::rooftile; };
  // What pointwise kernels reach scales every class of PyTorch: their rows alone tell it, not norms whose kernels may be another library's.
  std::vector<Candidate> reach;
  append_classes(reach, rows, {KernelClass::pointwise}, false);
  append(reach, {{"protocol.stream_launch_s", "protocol.launch_s", 1e-7, 6e-5, 2e-6, "s", true}});
  if (auto done = fitter.block(
          "pointwise", [&](const FitRow& row) { return foreign(row) && row.call.kernel == KernelClass::pointwise; }, reach);
      !done)
    return done;
  std::vector<Candidate> candidates = {{"sm.bytes_per_clock", "", 10, 200, 64}};
  append_classes(
      candidates, rows,
      {KernelClass::softmax, KernelClass::layernorm, KernelClass::rmsnorm, KernelClass::column_sum, KernelClass::embedding, KernelClass::cross_entropy, KernelClass::optimizer},
      false);
  append(candidates, {{"protocol.stream_launch_s", "protocol.launch_s", 1e-7, 6e-5, 2e-6, "s", true}, {"protocol.warm_operands", "", 0, 1, 0, "1", true}});
  return fitter.block("streams", foreign, candidates);
}

// Sizes that the rows of a family span.
std::vector<ValidRange> validity_of(const Rows& rows, const std::string& family) {
  std::vector<ValidRange> ranges;
  for (const std::string_view key : kSizes) {
    double lowest = 1e300, highest = 0;
    for (const FitRow& row : rows) {
      if (row.family != family) continue;
      const double size = size_of(row.call, key);
      lowest = std::min(lowest, size), highest = std::max(highest, size);
    }
    if (highest > 0) ranges.push_back({std::string(key), lowest, highest});
  }
  return ranges;
}

std::map<std::string, Residuals> residuals_by_family(const Rows& rows, const std::vector<double>& times, const std::string* protocol) {
  std::map<std::string, std::pair<std::vector<double>, std::vector<double>>> families;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!rows[i].kept_out || (protocol != nullptr && rows[i].protocol != *protocol)) continue;
    families[rows[i].family].first.push_back(times[i]);
    families[rows[i].family].second.push_back(rows[i].measured_s);
  }
  std::map<std::string, Residuals> out;
  for (const auto& [family, pairs] : families) out[family] = residuals_of(pairs.first, pairs.second);
  return out;
}

Residuals residuals_of_all(const Rows& rows, const std::vector<double>& times) {
  std::vector<double> predicted, measured;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!rows[i].kept_out) continue;
    predicted.push_back(times[i]);
    measured.push_back(rows[i].measured_s);
  }
  return residuals_of(predicted, measured);
}

std::vector<double> fixed_factor_times(const Machine& machine, const Rows& rows) {
  KernelTimer ideal(machine, Mode::sol, ClockState::burst);
  std::vector<double> times;
  for (const FitRow& row : rows) times.push_back(fixed_factor_roofline_s(ideal(row.call).peak_s));
  return times;
}

}  // namespace

double fixed_factor_roofline_s(double ideal_s) { return ideal_s / 0.8 + 3e-6; }

std::vector<FitRow> fit_rows(const MeasurementTable& table, const Device& device, std::map<std::string, std::size_t>& refused) {
  std::vector<FitRow> rows;
  for (const MeasurementRow& row : table.rows) {
    const MeasuredCall measured = measured_call(table, row);
    std::string reason = measured.status != "ok" ? measured.status : measured.measured_s > 0 ? unsupported_reason(*measured.call, device) : "no measured time";
    if (reason.empty() && measured.call->kernel == KernelClass::collective) reason = "collectives are not fitted";
    if (!reason.empty()) {
      ++refused[reason];
      continue;
    }
    FitRow fit;
    fit.call = *measured.call;
    fit.measured_s = measured.measured_s;
    fit.clocks = table.field(row, "clocks").empty() ? ClockState::automatic : measured.clocks;
    fit.protocol = protocol_of(table.field(row, "source"));
    fit.family = residual_family(fit.call);
    fit.kept_out = kept_out_of_fit(fit.call);
    fit.kernel_known = !table.field(row, "kernel").empty();
    rows.push_back(std::move(fit));
  }
  return rows;
}

Result<DeviceFit> fit_device(Machine machine, std::vector<FitRow> rows, const DeviceFitOptions& options) {
  DeviceFit fit;
  std::vector<CalibrationLayer>& layers = machine.calibration.layers;
  if (options.physical && !options.keep) std::erase_if(layers, [](const CalibrationLayer& layer) { return layer.level != LayerLevel::architecture; });
  std::erase_if(layers, [](const CalibrationLayer& layer) { return layer.level == LayerLevel::protocol; });
  const std::vector<double> model_s = predict_rows(machine, rows, {}), fixed_s = fixed_factor_times(machine, rows);
  fit.before = residuals_by_family(rows, model_s, nullptr);
  fit.fixed = residuals_by_family(rows, fixed_s, nullptr);
  fit.all_before = residuals_of_all(rows, model_s);
  fit.all_fixed = residuals_of_all(rows, fixed_s);
  const Rows all = rows;
  if (options.most_rows > 0) {
    std::size_t seen = 0;
    const auto fitted = static_cast<std::size_t>(std::count_if(rows.begin(), rows.end(), [](const FitRow& row) { return !row.kept_out; }));
    const std::size_t stride = std::max<std::size_t>(1, (fitted + options.most_rows - 1) / options.most_rows);
    std::erase_if(rows, [&](const FitRow& row) { return !row.kept_out && seen++ % stride != 0; });
  }
  fit.rows = rows.size();
  fit.fitted_rows = static_cast<std::size_t>(std::count_if(rows.begin(), rows.end(), [](const FitRow& row) { return !row.kept_out; }));
  if (fit.fitted_rows == 0)
    return fail(ErrorCode::invalid, "no row can be used for a fit", options.source_file, "rows need op, dtype, shape and measured_us that this device can run");

  CalibrationLayer own;
  own.level = LayerLevel::device;
  own.id = own.device = machine.device.id;
  own.library = options.library;
  layers.push_back(own);
  DeviceFitter fitter(machine, rows, options, fit);
  for (const auto& step :
       {std::function<Result<void>()>([&] { return fit_gemm(fitter, rows, machine); }), std::function<Result<void>()>([&] { return fit_attention(fitter, rows, machine); }),
        std::function<Result<void>()>([&] { return fit_streams(fitter, rows); })}) {
    if (auto done = step(); !done) return tl::unexpected<Error>(done.error());
  }

  fit.device = layers.back();
  std::vector<FittedConstant> protocol_constants;
  for (const FitReport& report : fit.constants) {
    const FittedConstant& c = report.constant;
    if (!c.fitted || c.constant.protocol.empty()) continue;
    protocol_constants.push_back(c);
    auto layer = std::find_if(fit.protocols.begin(), fit.protocols.end(), [&](const CalibrationLayer& other) { return other.protocol == c.constant.protocol; });
    if (layer == fit.protocols.end()) {
      layer = fit.protocols.emplace(fit.protocols.end());
      layer->level = LayerLevel::protocol;
      layer->device = machine.device.id;
      layer->protocol = c.constant.protocol;
      layer->library = options.library;
      layer->id = machine.device.id + "@" + c.constant.protocol;
    }
    layer->facts.push_back(fitter.fact_of(c, report.block, fit.rows));
  }
  const std::vector<double> times = predict_rows(machine, all, protocol_constants);
  fit.device.residuals = residuals_by_family(all, times, nullptr);
  fit.all = residuals_of_all(all, times);
  for (const CalibrationLayer& layer : machine.calibration.layers) {
    // What a kept layer says about its families stays its own.
    for (const auto& [family, residuals] : layer.residuals) fit.device.residuals.erase(family);
  }
  for (const auto& [family, residuals] : fit.device.residuals) fit.device.validity[family] = validity_of(all, family);
  for (CalibrationLayer& layer : fit.protocols) {
    layer.residuals = residuals_by_family(all, times, &layer.protocol);
    Rows own_rows;
    std::copy_if(all.begin(), all.end(), std::back_inserter(own_rows), [&](const FitRow& row) { return row.protocol == layer.protocol; });
    for (const auto& [family, residuals] : layer.residuals) layer.validity[family] = validity_of(own_rows, family);
  }
  return fit;
}

std::string calibration_yaml(const CalibrationLayer& layer, const std::string& title, const std::map<std::string, std::string>& sources) {
  const auto quoted = [](std::string text) {
    for (char& c : text) {
      if (c == '"' || c == '\\' || static_cast<unsigned char>(c) < ' ') c = '\'';
    }
    return "\"" + text + "\"";
  };
  std::string out = fmt::format("kind: calibration\nid: {}\nname: {}\nlevel: {}\n", quoted(layer.id), quoted(title), name_of(layer.level));
  const auto line = [&](std::string_view key, const std::string& value) {
    if (!value.empty()) out += fmt::format("{}: {}\n", key, quoted(value));
  };
  line("architecture", layer.architecture);
  line("device", layer.device);
  line("library", layer.library);
  line("protocol", layer.protocol);
  line("site", layer.site);
  line("rows_of", layer.rows_of);
  if (layer.level == LayerLevel::protocol) out += fmt::format("default: {}\n", layer.standard);
  if (!sources.empty()) out += "\nsources:\n";
  for (const auto& [name, text] : sources) out += fmt::format("  {}: {}\n", name, quoted(text));
  out += layer.facts.empty() ? "\nconstants: {}\n" : "\nconstants:\n";
  for (const Fact& f : layer.facts) {
    out += fmt::format("  {}: {{value: {:.4g}, unit: \"{}\", source: {}, kind: {}, date: {}{}}}\n", f.key, f.value, f.unit, f.source, f.kind, f.date,
                       f.note.empty() ? "" : ", note: " + quoted(f.note));
  }
  if (!layer.residuals.empty()) out += "\nresiduals: # of rows kept out of the fit\n";
  for (const auto& [family, r] : layer.residuals) {
    out += fmt::format("  {}: {{rows: {}, mean_abs: {:.4f}, median_abs: {:.4f}, p90_abs: {:.4f}, bias: {:.4f}, q10: {:.4f}, q90: {:.4f}}}\n", family, r.rows, r.mean_abs,
                       r.median_abs, r.p90_abs, r.bias, r.q10, r.q90);
  }
  if (!layer.validity.empty()) out += "\nvalidity: # sizes that the rows span\n";
  for (const auto& [family, ranges] : layer.validity) {
    out += fmt::format("  {}: {{", family);
    for (std::size_t i = 0; i < ranges.size(); ++i) out += fmt::format("{}{}: [{:.15g}, {:.15g}]", i > 0 ? ", " : "", ranges[i].key, ranges[i].lowest, ranges[i].highest);
    out += "}\n";
  }
  return out;
}

}  // namespace rooftile
