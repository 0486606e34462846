// validate MODEL and calibrate with recorded measurements in the place of a GPU, and what they say without one.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

namespace {

namespace fs = std::filesystem;

struct Ran {
  int code = -1;
  std::string text;  // both streams
};

class MeasuringCommands : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("rooftile-measuring-" + std::to_string(getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  Ran run(const std::string& arguments) {
    const std::string command = "cd '" + folder_.string() + "' && '" ROOFTILE_BINARY "' " + arguments + " 2>&1";
    Ran ran;
    FILE* pipe = popen(command.c_str(), "r");
    std::array<char, 65536> buffer;
    for (std::size_t got = 0; (got = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) ran.text.append(buffer.data(), got);
    const int status = pclose(pipe);
    ran.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
    return ran;
  }
  std::string slurp(const std::string& name) {
    std::ostringstream text;
    text << std::ifstream(folder_ / name).rdbuf();
    return text.str();
  }

  // A file as `validate --save` writes it: every kernel of the model took `factor` of what the roofline says.
  void record(const std::string& model, double factor, const std::string& name) {
    std::ofstream(folder_ / "empty.csv") << "op,dtype,shape,measured_us,gpu\n";
    const Ran plan = run("validate " + model + " --device h200_sxm --replay empty.csv --format json -o plan.json");
    ASSERT_EQ(plan.code, 0) << plan.text;
    const auto json = nlohmann::json::parse(slurp("plan.json"));
    std::ofstream out(folder_ / name);
    out << "op,dtype,shape,measured_us,impl,gpu\n";
    for (const auto& op : json["ops"]) {
      const std::string kind = op["op"];
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
}

}  // namespace
