// PyTorch's kernels: the gate on their rows, the errors that are stated for them, and the fit that wrote their constants.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "estimator/timing/torch_kernels.h"
#include "frontends/hardware_files.h"
#include "frontends/model_files.h"
#include "validate/fit_device.h"
#include "validate/fit_torch.h"

namespace rooftile {
namespace {

constexpr double kSlack = 0.005;  // rounding of the constants in their file

const Machine& h200() {
  static const Machine machine = load_machine(DataPath{{ROOFTILE_SOURCE_DIR}}, "h200_sxm", "", "").value();
  return machine;
}

const CalibrationLayer& shipped() {
  const auto& layers = h200().calibration.layers;
  return *std::find_if(layers.begin(), layers.end(), [](const CalibrationLayer& layer) { return layer.id == "pytorch"; });
}

const std::vector<FitRow>& rows() {
  static const std::vector<FitRow> all = [] {
    const std::string file = std::string(ROOFTILE_SOURCE_DIR) + "/hardware/measurements/h200_sxm-torch.csv";
    std::map<std::string, std::size_t> refused;
    return fit_rows(parse_measurements(read_text(file, std::size_t{1} << 26).value(), file).value(), h200().device, refused);
  }();
  return all;
}

struct Times {
  std::vector<double> predicted, measured;
};

// Of kept-out rows by family.
std::map<std::string, Times> times() {
  std::map<std::string, Times> out;
  KernelTimer timer(h200(), Mode::calibrated, ClockState::burst);
  for (const FitRow& row : rows()) {
    const std::string family = torch_family(row.call);
    if (!row.kept_out || family.empty()) continue;
    for (const std::string& name : {family, std::string("torch")}) {
      out[name].predicted.push_back(timer(row.call).time_s);
      out[name].measured.push_back(row.measured_s);
    }
  }
  return out;
}

TEST(TorchAccuracy, RowsAreAsWellPredictedAsStored) {
  const auto found = times();
  for (const auto& [family, stored] : shipped().residuals) {
    ASSERT_TRUE(found.contains(family)) << family;
    const Residuals now = residuals_of(found.at(family).predicted, found.at(family).measured);
    EXPECT_EQ(now.rows, stored.rows) << family;
    EXPECT_LE(now.mean_abs, stored.mean_abs + kSlack) << family;
  }
  EXPECT_GE(shipped().residuals.size(), 15u);
  EXPECT_LE(shipped().residuals.at("torch").mean_abs, 0.06);
}

// The half of the kept-out rows that has odd places in its family, in the interval that the other half gives; families of few rows share one.
TEST(TorchAccuracy, EightyOfAHundredLieInTheInterval) {
  std::map<std::string, std::vector<double>> told, tried;
  for (const auto& [family, t] : times()) {
    if (family == "torch") continue;
    const std::string name = t.predicted.size() < 20 ? "few" : family;
    for (std::size_t i = 0; i < t.predicted.size(); ++i) (i % 2 == 0 ? told : tried)[name].push_back(std::log(t.measured[i] / t.predicted[i]));
  }
  int inside = 0, all = 0;
  for (auto& [family, logs] : told) {
    std::sort(logs.begin(), logs.end());
    const double low = logs[static_cast<std::size_t>(0.1 * static_cast<double>(logs.size() - 1))],
                 high = logs[static_cast<std::size_t>(std::ceil(0.9 * static_cast<double>(logs.size() - 1)))];
    for (const double log : tried[family]) inside += log >= low && log <= high, ++all;
  }
  EXPECT_GE(all, 250);
  EXPECT_GE(inside, 0.75 * all) << inside << " of " << all;
  EXPECT_LE(inside, 0.85 * all) << inside << " of " << all;
}

TEST(TorchAccuracy, StatedErrorsComeFromTheResiduals) {
  KernelTimer timer(h200(), Mode::calibrated, ClockState::burst);
  const KernelTime norm = timer(*parse_kernel("layernorm", "bf16", "rows=16384 cols=1024 pass=fwd", "torch"));
  EXPECT_EQ(norm.confidence, Confidence::calibrated);
  EXPECT_DOUBLE_EQ(norm.error_p90, shipped().residuals.at("torch.layernorm").p90_abs);
  // A class of few rows: the error of all classes.
  const KernelTime few = timer(*parse_kernel("softmax", "bf16", "rows=16384 cols=4096 pass=fwd", "torch"));
  EXPECT_DOUBLE_EQ(few.error_p90, shipped().residuals.at("torch").p90_abs);
  // Ten times longer rows than any measured.
  const KernelTime far = timer(*parse_kernel("layernorm", "bf16", "rows=16384 cols=200000 pass=fwd", "torch"));
  EXPECT_EQ(far.confidence, Confidence::extrapolated);
  EXPECT_GT(far.error_p90, norm.error_p90);
  // Carried to another GPU the same constants are worth less.
  const Machine l40s = load_machine(DataPath{{ROOFTILE_SOURCE_DIR}}, "l40s", "", "").value();
  KernelTimer other(l40s, Mode::calibrated, ClockState::burst);
  const KernelTime carried = other(*parse_kernel("layernorm", "bf16", "rows=16384 cols=1024 pass=fwd", "torch"));
  EXPECT_EQ(carried.confidence, Confidence::extrapolated);
  EXPECT_GE(carried.error_p90, norm.error_p90);
}

TEST(TorchFit, GivesTheShippedFileAgain) {
  TorchFitOptions options;
  options.date = "2026-11-30";
  const auto fit = fit_torch_classes(h200(), rows(), options);
  ASSERT_TRUE(fit.has_value());
  ASSERT_EQ(fit->layer.facts.size(), shipped().facts.size());
  for (std::size_t i = 0; i < shipped().facts.size(); ++i) {
    EXPECT_EQ(fit->layer.facts[i].key, shipped().facts[i].key);
    EXPECT_NEAR(fit->layer.facts[i].value / std::max(1e-300, shipped().facts[i].value), fit->layer.facts[i].value == 0 ? 0 : 1, 1e-2) << shipped().facts[i].key;
  }
  EXPECT_LE(fit->all.mean_abs, fit->all_before.mean_abs + kSlack);
  EXPECT_LT(fit->all.mean_abs, 0.25 * fit->all_fixed.mean_abs);
}

// Rows as the model itself times them with other constants.
std::vector<FitRow> synthetic(const std::vector<std::pair<std::string, double>>& changed, const std::vector<std::string>& shapes) {
  Machine machine = h200();
  machine.calibration.layers.emplace_back();
  machine.calibration.layers.back().level = LayerLevel::site;
  for (const auto& [key, value] : changed) {
    machine.calibration.layers.back().facts.emplace_back();
    machine.calibration.layers.back().facts.back().key = key, machine.calibration.layers.back().facts.back().value = value;
  }
  KernelTimer timer(machine, Mode::calibrated, ClockState::burst);
  std::vector<FitRow> out;
  for (const std::string& shape : shapes) {
    const KernelCall call = *parse_kernel("pointwise", "bf16", shape, "torch");
    out.push_back({call, timer(call).time_s, ClockState::burst, "", residual_family(call), false, false});
  }
  return out;
}

TorchFitOptions few() {
  TorchFitOptions options;
  options.campaign = false;
  return options;
}

double value_of(const CalibrationLayer& layer, const std::string& key) {
  for (const Fact& fact : layer.facts) {
    if (fact.key == key) return fact.value;
  }
  return -1;
}

TEST(TorchFit, FewRowsScaleOnlyTheirClass) {
  const auto slower = synthetic({{"torch.vector.efficiency", 0.7}}, {"kind=add numel=67108864", "kind=mul numel=67108864"});
  const auto fit = fit_torch_classes(h200(), slower, few());
  ASSERT_TRUE(fit.has_value());
  ASSERT_EQ(fit->classes.size(), 1u);
  EXPECT_TRUE(fit->classes.front().scaled);
  EXPECT_LT(fit->classes.front().after, 0.02);
  EXPECT_NEAR(value_of(fit->layer, "torch.vector.efficiency"), 0.7, 0.03);
  EXPECT_EQ(value_of(fit->layer, "torch.vector.fixed_s"), -1) << "one size says nothing about what is fixed";
  for (const Fact& fact : fit->layer.facts) EXPECT_EQ(fact.key.rfind("torch.vector.", 0), 0u) << fact.key;
  EXPECT_EQ(fit->layer.level, LayerLevel::device);
  EXPECT_EQ(fit->layer.device, "h200_sxm");
}

TEST(TorchFit, ManySizesTellMore) {
  std::vector<std::string> shapes;
  for (int i = 14; i < 29; ++i) shapes.push_back("kind=add numel=" + std::to_string(1 << i));
  const auto fit = fit_torch_classes(h200(), synthetic({{"torch.vector.efficiency", 0.8}, {"torch.vector.fixed_s", 2e-6}}, shapes), few());
  ASSERT_TRUE(fit.has_value());
  EXPECT_FALSE(fit->classes.front().scaled);
  EXPECT_NEAR(value_of(fit->layer, "torch.vector.efficiency"), 0.8, 0.02);
  EXPECT_NEAR(value_of(fit->layer, "torch.vector.fixed_s"), 2e-6, 2.5e-7);
}

TEST(TorchFit, WhatIsNotPyTorchsIsLeftOut) {
  std::vector<FitRow> own = synthetic({}, {"kind=add numel=1024"});
  own.front().call.impl = Impl::rooftile;
  const auto none = fit_torch_classes(h200(), own, few());
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().code, ErrorCode::invalid);
}

}  // namespace
}  // namespace rooftile
