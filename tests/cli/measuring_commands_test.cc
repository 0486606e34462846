// validate MODEL and calibrate with recorded measurements in the place of a GPU, and what they say without one.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/cli/run_binary.h"

namespace {

namespace fs = std::filesystem;

struct Ran {
  int code = -1;
  std::string text;  // both streams
};

class MeasuringCommands : public testing::Test {
 protected:
  void SetUp() override { folder_ = rooftile::test::make_scratch("rooftile-measuring"); }
  void TearDown() override { fs::remove_all(folder_); }

  Ran run(const std::string& arguments) {
    const rooftile::test::RunResult both = rooftile::test::run_shell("cd '" + folder_.string() + "' && '" ROOFTILE_BINARY "' " + arguments + " 2>&1");
    return {both.code, both.out};
  }
  std::string slurp(const std::string& name) { return rooftile::test::slurp(folder_ / name); }

  // A file as `validate --save` writes it: every kernel of the model took `factor` of what the roofline says.
  // `as_kernel`: what the shapes of attention must say.
  void record(const std::string& model, double factor, const std::string& name, const std::string& as_kernel = "") {
    std::ofstream(folder_ / "empty.csv") << "op,dtype,shape,measured_us,gpu\n";
    const Ran plan = run("validate " + model + " --device h200_sxm --replay empty.csv --format json -o plan.json");
    ASSERT_EQ(plan.code, 0) << plan.text;
    const auto json = nlohmann::json::parse(slurp("plan.json"));
    std::ofstream out(folder_ / name);
    out << "op,dtype,shape,measured_us,impl,gpu\n";
    for (const auto& op : json["ops"]) {
      const std::string kind = op["op"];
      const std::string shape = op["shape"];
      if (kind == "attention") {
        EXPECT_NE(shape.find(as_kernel), std::string::npos) << shape;
      }
      const bool vendor = kind == "gemm" || kind == "attention";
      out << kind << "," << op["dtype"].get<std::string>() << "," << op["shape"].get<std::string>() << "," << op["predicted_s"].get<double>() * 1e6 * factor << ","
          << (vendor ? "vendor" : "rooftile") << ",NVIDIA H200\n";
    }
  }

  fs::path folder_;
};

TEST_F(MeasuringCommands, WithoutAGpuTheyRefuseWithAReason) {
  if (fs::exists("/proc/driver/nvidia/version")) GTEST_SKIP() << "there is a GPU";
  for (const char* command : {"validate gpt2", "calibrate", "calibrate --quick", "devices new --probe"}) {
    const Ran ran = run(command);
    EXPECT_EQ(ran.code, 5) << command << ": " << ran.text;
    EXPECT_NE(ran.text.find("GPU"), std::string::npos) << ran.text;
  }
}

TEST_F(MeasuringCommands, ReplayOfPredictedTimesMatchesEverywhere) {
  record("bert-large --seq 128", 1.0, "same.csv");
  const Ran ran = run("validate bert-large --seq 128 --replay same.csv --format json -o out.json");  // the device is found by the GPU's name
  ASSERT_EQ(ran.code, 0) << ran.text;
  const auto json = nlohmann::json::parse(slurp("out.json"));
  EXPECT_EQ(json["device"], "h200_sxm");
  ASSERT_GT(json["ops"].size(), 15u);
  for (const auto& op : json["ops"]) {
    EXPECT_EQ(op["verdict"], "match") << op;
    EXPECT_NEAR(op["ratio"].get<double>(), 1.0, 1e-4) << op;
  }
  EXPECT_NEAR(json["step"]["predicted_sum_s"].get<double>() / json["step"]["measured_sum_s"].get<double>(), 1.0, 1e-4);
  EXPECT_TRUE(json["step"]["executed_s"].is_null());
}

TEST_F(MeasuringCommands, SlowKernelsAreSlowAndTheRatioSaysHowMuch) {
  record("gpt2 --phase forward", 3.0, "slow.csv");
  const Ran ran = run("validate gpt2 --phase forward --replay slow.csv --format json -o out.json");
  ASSERT_EQ(ran.code, 0) << ran.text;
  const auto json = nlohmann::json::parse(slurp("out.json"));
  for (const auto& op : json["ops"]) {
    EXPECT_EQ(op["verdict"], "slow") << op;
    EXPECT_NEAR(op["ratio"].get<double>(), 1.0 / 3, 1e-4) << op;
  }
}

// FlashAttention-3 is what the device's libraries run by default; a GPU measured by this program has cuDNN's kernel.
TEST_F(MeasuringCommands, AttentionIsTheKernelThatCanBeMeasured) {
  struct Case {
    const char* model;
    std::size_t attention_rows;
  };
  for (const Case& c : {Case{"gpt2 --phase train --mbs 16 --seq 1024", 2}, Case{"llama-3-8b --phase forward --mbs 1 --seq 2048", 1}, Case{"bert-large", 2}}) {
    record(std::string(c.model) + " --attention cudnn", 1.02, "cudnn.csv", "kernel=cudnn");
    const Ran ran = run("validate " + std::string(c.model) + " --replay cudnn.csv --format json -o out.json");
    ASSERT_EQ(ran.code, 0) << ran.text;
    const auto json = nlohmann::json::parse(slurp("out.json"));
    std::size_t attention = 0;
    for (const auto& op : json["ops"]) {
      EXPECT_FALSE(op["measured_s"].is_null()) << c.model << op;
      attention += op["op"] == "attention" ? 1 : 0;
    }
    EXPECT_EQ(attention, c.attention_rows) << c.model;
    EXPECT_EQ(json["step"]["predicted_without_measurement_s"], 0.0);
    const auto& warnings = json["warnings"];
    EXPECT_TRUE(std::any_of(warnings.begin(), warnings.end(), [](const auto& w) { return w["code"] == "attention_replaced"; })) << warnings;
  }
  // What the user names is not replaced.
  const Ran named = run("validate gpt2 --phase forward --attention flash3 --replay cudnn.csv --format json -o named.json");
  ASSERT_EQ(named.code, 0) << named.text;
  EXPECT_NE(slurp("named.json").find("kernel=flash3"), std::string::npos);
}

TEST_F(MeasuringCommands, RunSectionsMayUseUnderscores) {
  std::ofstream(folder_ / "empty.csv") << "op,dtype,shape,measured_us,gpu\n";
  std::ofstream(folder_ / "mine.yaml")
      << "name: mine\nfamily: gpt2\nkind: decoder\nlayers: 2\nhidden: 64\nheads: 2\nvocab: 256\nffn_hidden: 256\nactivation: gelu\nmax_positions: 128\n"
         "run:\n  mbs: 3\n  gpus_per_node: 4\n  cuda_graphs: true\n";
  const Ran ran = run("validate ./mine.yaml --phase forward --device h200_sxm --replay empty.csv --format json -o out.json");
  ASSERT_EQ(ran.code, 0) << ran.text;
  EXPECT_NE(slurp("out.json").find("m=384 n="), std::string::npos);  // 3 sequences of 128 tokens
}

TEST_F(MeasuringCommands, WhatIsSavedIsNotMeasuredAgain) {
  record("gpt2 --phase forward", 2.0, "first.csv");
  record("gpt2 --phase forward", 1.0, "second.csv");
  ASSERT_EQ(run("validate gpt2 --phase forward --replay first.csv --save kept.csv").code, 0);
  EXPECT_EQ(run("validate gpt2 --phase forward --replay second.csv --save kept.csv").code, 2);  // the file exists
  const std::string before = slurp("kept.csv");
  const Ran ran = run("validate gpt2 --phase forward --replay second.csv --save kept.csv --resume --format json -o out.json");
  ASSERT_EQ(ran.code, 0) << ran.text;
  EXPECT_EQ(slurp("kept.csv"), before);
  const auto json = nlohmann::json::parse(slurp("out.json"));
  for (const auto& op : json["ops"]) EXPECT_NEAR(op["ratio"].get<double>(), 0.5, 1e-4) << op;
}

TEST_F(MeasuringCommands, CalibrateRunsItsCampaignOnARecording) {
  const std::string recording = std::string(ROOFTILE_SOURCE_DIR) + "/hardware/measurements/h200_sxm-burst.csv";
  const Ran ran = run("calibrate --quick --replay '" + recording + "' --save measured.csv -o rooftile/none/x.yaml");
  EXPECT_NE(ran.code, 0);  // the folder is not there
  const Ran good = run("calibrate --quick --replay '" + recording + "' --save measured.csv --resume -o mine.yaml");
  ASSERT_EQ(good.code, 0) << good.text;
  EXPECT_NE(slurp("mine.yaml").find("gemm.bf16"), std::string::npos);
  EXPECT_NE(slurp("measured.csv").find("\ngemm,bf16,"), std::string::npos);
  // Mean errors of every row that was kept out of the fit: calibrated, without calibration, fixed-factor roofline.
  const std::size_t all = good.text.find("\nall ");
  ASSERT_NE(all, std::string::npos) << good.text;
  std::istringstream line(good.text.substr(all + 5));
  std::vector<double> numbers;
  for (std::string word; numbers.size() < 11 && line >> word;)
    if (word != "%") numbers.push_back(std::stod(word));
  ASSERT_EQ(numbers.size(), 11u);
  EXPECT_GT(numbers[0], 1000);               // rows
  EXPECT_LT(numbers[1], numbers[5]);         // calibrated below the model's own constants
  EXPECT_LT(numbers[5], numbers[8] * 1.05);  // and those below the roofline
}

// A device file of one's own, calibrated, and used from another folder: the calibration is found beside it, and --calibration names another.
TEST_F(MeasuringCommands, ADeviceFileFindsItsCalibrationBesideIt) {
  const std::string source = ROOFTILE_SOURCE_DIR;
  std::string text;
  std::ifstream known(source + "/hardware/devices/h200_sxm.yaml");
  for (std::string line; std::getline(known, line);) text += (line.rfind("id:", 0) == 0 ? "id: mine" : line) + "\n";
  fs::create_directories(folder_ / "lab");
  std::ofstream(folder_ / "lab/mine.yaml") << text;
  const std::string command = "estimate gpt2 --phase forward --format json --device lab/mine.yaml";
  const Ran before = run(command + " -o before.json");
  ASSERT_EQ(before.code, 0) << before.text;
  const Ran fitted = run("calibrate --quick --device lab/mine.yaml --replay '" + source +
                         "/hardware/measurements/h200_sxm-burst.csv' --save lab/measured.csv --default-protocol rooftile -o lab/mine-calibration.yaml");
  ASSERT_EQ(fitted.code, 0) << fitted.text;
  ASSERT_TRUE(fs::exists(folder_ / "lab/mine-calibration@rooftile.yaml"));
  const Ran after = run(command + " -o after.json");
  ASSERT_EQ(after.code, 0) << after.text;
  const auto uncalibrated = nlohmann::json::parse(slurp("before.json")), calibrated = nlohmann::json::parse(slurp("after.json"));
  EXPECT_EQ(uncalibrated["context"]["mode"], "model");
  EXPECT_EQ(calibrated["context"]["mode"], "calibrated");
  // Elsewhere it has to be named.
  fs::create_directories(folder_ / "other");
  fs::rename(folder_ / "lab/mine-calibration.yaml", folder_ / "other/fitted.yaml");
  fs::remove(folder_ / "lab/mine-calibration@rooftile.yaml");
  ASSERT_EQ(run(command + " -o alone.json").code, 0);
  EXPECT_EQ(nlohmann::json::parse(slurp("alone.json"))["context"]["mode"], "model");
  ASSERT_EQ(run(command + " --calibration other/fitted.yaml -o named.json").code, 0);
  EXPECT_EQ(nlohmann::json::parse(slurp("named.json"))["context"]["mode"], "calibrated");
}

}  // namespace
