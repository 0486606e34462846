// The fitter: what it must find again, what it must leave alone, what it writes.
#include "validate/fit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "estimator/timing/constants.h"
#include "frontends/hardware_files.h"
#include "validate/fit_device.h"

namespace rooftile {
namespace {

Machine machine_of(const std::string& device) {
  Machine machine = load_machine(DataPath{{ROOFTILE_SOURCE_DIR}}, device, "", "").value();
  std::erase_if(machine.calibration.layers, [](const CalibrationLayer& layer) { return layer.level != LayerLevel::architecture; });
  machine.calibration.protocols.clear();
  return machine;
}

// 16-bit GEMMs of many sizes, deterministic.
std::vector<KernelCall> gemms(std::size_t count) {
  std::vector<KernelCall> calls;
  std::uint64_t state = 12345;
  const auto next = [&](std::int64_t low, std::int64_t high) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    const double share = static_cast<double>(state >> 11) / 9007199254740992.0;
    const double size = std::exp(std::log(static_cast<double>(low)) + share * std::log(static_cast<double>(high) / static_cast<double>(low)));
    return std::max<std::int64_t>(8, static_cast<std::int64_t>(size) / 8 * 8);
  };
  while (calls.size() < count) {
    const GemmShape shape{.m = next(16, 8192), .n = next(64, 16384), .k = next(64, 16384), .out = DType::bf16};
    calls.push_back({.kernel = KernelClass::gemm, .dtype = DType::bf16, .shape = shape});
  }
  return calls;
}

// Rows that the model itself timed with some constants changed.
std::vector<FitRow> synthetic(Machine machine, const std::vector<KernelCall>& calls, const std::vector<std::pair<std::string, double>>& changed, const std::string& protocol = "") {
  machine.calibration.layers.emplace_back();
  machine.calibration.layers.back().level = LayerLevel::site;
  for (const auto& [key, value] : changed) {
    machine.calibration.layers.back().facts.emplace_back();
    machine.calibration.layers.back().facts.back().key = key;
    machine.calibration.layers.back().facts.back().value = value;
  }
  KernelTimer timer(machine, Mode::calibrated, ClockState::automatic);
  std::vector<FitRow> rows;
  for (const KernelCall& call : calls) rows.push_back({call, timer(call).time_s, ClockState::automatic, protocol, residual_family(call), kept_out_of_fit(call)});
  return rows;
}

const FittedConstant& find(const std::vector<FittedConstant>& constants, const std::string& key, const std::string& protocol = "") {
  for (const FittedConstant& c : constants) {
    if (c.constant.key == key && c.constant.protocol == protocol) return c;
  }
  ADD_FAILURE() << "no constant " << key;
  return constants.front();
}

TEST(Fit, FindsPerturbedConstantsAgain) {
  const Machine machine = machine_of("h100_sxm");
  const auto rows = synthetic(machine, gemms(400), {{"gemm.bf16.eta", 0.70}, {"gemm.bf16.operand_efficiency", 0.75}, {"protocol.launch_s", 4e-6}});
  const std::vector<FitConstant> constants = {
      {"gemm.bf16.eta", "1", 0.86, 0.3, 1.05, "", 0}, {"gemm.bf16.operand_efficiency", "1", 0.87, 0.3, 1, "", 0}, {"protocol.launch_s", "s", 2e-6, 2e-7, 6e-5, "", 0}};
  const auto fitted = fit_constants(machine, rows, constants);
  ASSERT_TRUE(fitted) << describe(fitted.error());
  EXPECT_NEAR(find(*fitted, "gemm.bf16.eta").value, 0.70, 0.007);
  EXPECT_NEAR(find(*fitted, "gemm.bf16.operand_efficiency").value, 0.75, 0.01);
  EXPECT_NEAR(find(*fitted, "protocol.launch_s").value, 4e-6, 1e-7);
  const std::vector<double> times = predict_rows(machine, rows, *fitted);
  for (std::size_t i = 0; i < rows.size(); ++i) EXPECT_NEAR(times[i] / rows[i].measured_s, 1, 0.03);
}

TEST(Fit, OutliersDoNotBendIt) {
  const Machine machine = machine_of("h100_sxm");
  auto rows = synthetic(machine, gemms(400), {{"gemm.bf16.eta", 0.70}});
  for (std::size_t i = 0; i < rows.size(); i += 10) rows[i].measured_s *= 3;  // a tenth of the rows is nonsense
  const std::vector<FitConstant> constants = {{"gemm.bf16.eta", "1", 0.86, 0.3, 1.05, "", 0}};
  const auto fitted = fit_constants(machine, rows, constants);
  ASSERT_TRUE(fitted) << describe(fitted.error());
  EXPECT_NEAR((*fitted)[0].value, 0.70, 0.02);
}

TEST(Fit, KeepsWhatTheRowsCannotSee) {
  const Machine machine = machine_of("h100_sxm");
  // Large square products say nothing about a split of K, about attention, or about fp16.
  std::vector<KernelCall> calls;
  for (std::int64_t size = 4096; size < 4096 + 40 * 128; size += 128)
    calls.push_back({.kernel = KernelClass::gemm, .dtype = DType::bf16, .shape = GemmShape{.m = size, .n = size, .k = size, .out = DType::bf16}});
  const auto rows = synthetic(machine, calls, {{"gemm.bf16.eta", 0.8}, {"split_k.reduce_s", 9e-6}});
  const std::vector<FitConstant> constants = {{"gemm.bf16.eta", "1", 0.86, 0.3, 1.05, "", 0},
                                              {"split_k.reduce_s", "s", 2e-6, 2e-7, 1e-5, "", 0},
                                              {"attention.tile_s", "s", 2.5e-6, 1e-7, 1e-5, "", 0},
                                              {"gemm.fp16.eta", "1", 0.86, 0.3, 1.05, "", 0}};
  const auto fitted = fit_constants(machine, rows, constants);
  ASSERT_TRUE(fitted) << describe(fitted.error());
  EXPECT_TRUE(find(*fitted, "gemm.bf16.eta").fitted);
  EXPECT_NEAR(find(*fitted, "gemm.bf16.eta").value, 0.8, 0.01);
  for (const std::string key : {"split_k.reduce_s", "attention.tile_s", "gemm.fp16.eta"}) {
    const FittedConstant& c = find(*fitted, key);
    EXPECT_FALSE(c.fitted) << key;
    EXPECT_EQ(c.value, c.constant.start) << key;
    EXPECT_EQ(c.rows_seen, 0) << key;
    EXPECT_NE(c.reason, "") << key;
  }
}

TEST(Fit, ProtocolsShareOnlyPhysicalConstants) {
  const Machine machine = machine_of("h100_sxm");
  auto rows = synthetic(machine, gemms(300), {{"gemm.bf16.eta", 0.75}, {"protocol.launch_s", 3e-6}}, "graph");
  for (FitRow& row : synthetic(machine, gemms(300), {{"gemm.bf16.eta", 0.75}, {"protocol.launch_s", 2.4e-5}}, "percall")) rows.push_back(std::move(row));
  const auto fit = fit_device(machine, rows, {.date = "2026-11-30"});
  ASSERT_TRUE(fit) << describe(fit.error());
  ASSERT_EQ(fit->protocols.size(), 2u);
  EXPECT_NEAR(fit->protocols[0].facts[0].value, 3e-6, 2e-7);
  EXPECT_NEAR(fit->protocols[1].facts[0].value, 2.4e-5, 1e-6);
  EXPECT_EQ(fit->protocols[1].id, "h100_sxm@percall");
  const Residuals& residuals = fit->device.residuals.at("gemm.bf16");
  EXPECT_LT(residuals.mean_abs, 0.02);
  EXPECT_GT(residuals.rows, 200);
  EXPECT_LT(residuals.rows, 400);  // about half is kept out
}

TEST(Fit, LayersComeBackFromTheirFiles) {
  const Machine machine = machine_of("h100_sxm");
  const auto rows = synthetic(machine, gemms(200), {{"gemm.bf16.eta", 0.75}, {"protocol.launch_s", 3e-6}}, "graph");
  auto fit = fit_device(machine, rows, {.date = "2026-11-30"});
  ASSERT_TRUE(fit) << describe(fit.error());
  fit->protocols.at(0).standard = true;
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) / "rooftile_fit";
  std::filesystem::create_directories(folder);
  for (const CalibrationLayer& layer : {fit->device, fit->protocols[0]}) {
    const std::filesystem::path file = folder / "layer.yaml";
    std::ofstream(file) << calibration_yaml(layer, "a \"title\"", {{"rows", "made up"}});
    const auto read = read_calibration(file);
    ASSERT_TRUE(read) << describe(read.error());
    EXPECT_EQ(read->id, layer.id);
    EXPECT_EQ(read->level, layer.level);
    EXPECT_EQ(read->device, "h100_sxm");
    EXPECT_EQ(read->protocol, layer.protocol);
    EXPECT_EQ(read->standard, layer.standard);
    ASSERT_EQ(read->facts.size(), layer.facts.size());
    for (std::size_t i = 0; i < layer.facts.size(); ++i) {
      EXPECT_EQ(read->facts[i].key, layer.facts[i].key);
      EXPECT_NEAR(read->facts[i].value, layer.facts[i].value, 1e-3 * layer.facts[i].value);
      EXPECT_EQ(read->facts[i].kind, "fitted");
      EXPECT_EQ(read->facts[i].source, "made up");
    }
    ASSERT_EQ(read->residuals.size(), layer.residuals.size());
    EXPECT_NEAR(read->residuals.at("gemm.bf16").p90_abs, layer.residuals.at("gemm.bf16").p90_abs, 1e-4);
    ASSERT_EQ(read->validity.at("gemm.bf16").size(), layer.validity.at("gemm.bf16").size());
    EXPECT_EQ(read->validity.at("gemm.bf16")[0].highest, layer.validity.at("gemm.bf16")[0].highest);
  }
}

TEST(Fit, ConfidenceFollowsTheRange) {
  Machine machine = machine_of("h100_sxm");
  CalibrationLayer layer;
  layer.level = LayerLevel::device;
  layer.residuals["gemm.bf16"] = {.rows = 100, .p90_abs = 0.12};
  layer.validity["gemm.bf16"] = {{"m", 16, 8192}, {"alignment", 8, 8}};
  machine.calibration.layers.push_back(layer);
  KernelTimer timer(machine, Mode::calibrated, ClockState::automatic);
  const auto time = [&](std::int64_t m, std::int64_t k, DType dtype = DType::bf16) {
    return timer({.kernel = KernelClass::gemm, .dtype = dtype, .shape = GemmShape{.m = m, .n = 4096, .k = k, .out = dtype}});
  };
  EXPECT_EQ(time(4096, 4096).confidence, Confidence::calibrated);
  EXPECT_DOUBLE_EQ(time(4096, 4096).error_p90, 0.12);
  EXPECT_EQ(time(16384, 4096).confidence, Confidence::extrapolated);
  EXPECT_DOUBLE_EQ(time(16384, 4096).error_p90, 0.35);  // what the architecture's layer states
  EXPECT_EQ(time(4096, 4095).confidence, Confidence::extrapolated);
  EXPECT_EQ(time(4096, 4096, DType::fp16).confidence, Confidence::spec);
  KernelTimer model(machine, Mode::model, ClockState::automatic);
  EXPECT_EQ(model({.kernel = KernelClass::gemm, .dtype = DType::bf16, .shape = GemmShape{.m = 64, .n = 64, .k = 64, .out = DType::bf16}}).confidence, Confidence::spec);
}

TEST(Fit, ProtocolOfASource) {
  EXPECT_EQ(protocol_of("aiconfigurator/trtllm-1.3.0rc20"), "aiconfigurator-trtllm");
  EXPECT_EQ(protocol_of("neusight-test/torch2.1-cu121"), "neusight-torch");
  EXPECT_EQ(protocol_of("neusight-train/torch2.1-cu121"), "neusight-torch");
  EXPECT_EQ(protocol_of("simumax"), "simumax");
  EXPECT_EQ(protocol_of(""), "");
}

TEST(Fit, AnotherProtocolTakesTheDefaultsPlace) {
  Calibration calibration;
  const auto layer = [](LayerLevel level, const std::string& protocol, double launch) {
    CalibrationLayer l;
    l.level = level, l.protocol = protocol, l.id = protocol;
    l.facts.emplace_back();
    l.facts.back().key = "protocol.launch_s", l.facts.back().value = launch;
    return l;
  };
  calibration.protocols = {layer(LayerLevel::protocol, "graph", 2e-6), layer(LayerLevel::protocol, "percall", 2.5e-5)};
  calibration.layers = {layer(LayerLevel::architecture, "", 1e-6), calibration.protocols[0]};
  EXPECT_DOUBLE_EQ(calibration.find("protocol.launch_s").value(), 2e-6);
  EXPECT_DOUBLE_EQ(calibration.under("percall").find("protocol.launch_s").value(), 2.5e-5);
  EXPECT_EQ(calibration.under("percall").layers.size(), 2u);
  EXPECT_DOUBLE_EQ(calibration.under("unknown").find("protocol.launch_s").value(), 2e-6);
}

TEST(Fit, HalfOfTheShapesIsKeptOut) {
  std::size_t out = 0;
  const auto calls = gemms(2000);
  for (const KernelCall& call : calls) out += kept_out_of_fit(call);
  EXPECT_NEAR(static_cast<double>(out) / 2000, 0.5, 0.05);
  KernelCall other = calls[0];
  other.dtype = DType::fp16;
  std::get<GemmShape>(other.shape).out = DType::fp16;
  EXPECT_EQ(kept_out_of_fit(other), kept_out_of_fit(calls[0]));  // the same shape is on the same side whatever the dtype
}

TEST(Fit, ResidualsOfTwoRows) {
  const std::vector<double> predicted = {1.1, 0.9}, measured = {1, 1};
  const Residuals r = residuals_of(predicted, measured);
  EXPECT_EQ(r.rows, 2);
  EXPECT_NEAR(r.mean_abs, 0.1, 1e-12);
  EXPECT_NEAR(r.bias, 0, 1e-12);
  EXPECT_LT(r.q10, 0);
  EXPECT_GT(r.q90, 0);
}

TEST(Fit, NothingToFitIsAnError) {
  const Machine machine = machine_of("h100_sxm");
  EXPECT_EQ(fit_device(machine, {}, {}).error().code, ErrorCode::invalid);
  const auto table = parse_measurements("op,dtype,shape,measured_us\ngemm,bf16,m=0 n=8 k=8,10\ngemm,bf16,m=8 n=8 k=8,fast\nnonsense,bf16,m=8,1\n", "bad.csv");
  ASSERT_TRUE(table);
  std::map<std::string, std::size_t> refused;
  EXPECT_TRUE(fit_rows(*table, machine.device, refused).empty());
  EXPECT_EQ(refused.size(), 3u);
}

TEST(Fit, WarmOperandsFitWhereL2HoldsThem) {
  Constants constants;
  constants.warm_operands = 1;
  EXPECT_DOUBLE_EQ(warm_bytes(constants, 20e6, 30e6, 30e6), 15e6);
  EXPECT_DOUBLE_EQ(warm_bytes(constants, 20e6, 10e6, 15e6), 10e6);
  EXPECT_DOUBLE_EQ(warm_bytes(constants, 20e6, 50e6, 60e6), 0);
  constants.warm_operands = 0;
  EXPECT_DOUBLE_EQ(warm_bytes(constants, 20e6, 10e6, 15e6), 0);
}

}  // namespace
}  // namespace rooftile
