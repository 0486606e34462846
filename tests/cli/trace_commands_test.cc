// calibrate --from TRACE, as people run it.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "tests/cli/run_binary.h"

namespace {

namespace fs = std::filesystem;

class TraceCommands : public testing::Test {
 protected:
  void SetUp() override { folder_ = rooftile::test::make_scratch("rooftile-trace"); }
  void TearDown() override { fs::remove_all(folder_); }

  using Ran = rooftile::test::RunResult;
  Ran run(const std::string& arguments) { return rooftile::test::run_binary(arguments, folder_, "cd '" + folder_.string() + "' &&"); }
  std::string slurp(const std::string& name) { return rooftile::test::slurp(folder_ / name); }
  void write(const std::string& name, const std::string& text) { std::ofstream(folder_ / name, std::ios::binary) << text; }
  static std::string trace(const std::string& run) { return std::string("'") + ROOFTILE_SOURCE_DIR + "/tests/data/traces/" + run + ".json.gz'"; }

  fs::path folder_;
};

TEST_F(TraceCommands, LearnsChecksAndWrites) {
  const Ran ran = run("calibrate --from " + trace("gpt2-train-b16-s1024") + " --check " + trace("bert-large-train-b32-s512") + " -o mine.yaml --save rows.csv --date 2026-11-30");
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(ran.err, "");
  EXPECT_HAS(ran.out, "H200");  // from the trace
  EXPECT_HAS(ran.out, "left out");
  EXPECT_HAS(ran.out, "aten::cumsum");
  EXPECT_HAS(ran.out, "none of which was learned from");
  EXPECT_HAS(ran.out, "all between matmuls");
  const std::string layer = slurp("mine.yaml");
  EXPECT_HAS(layer, "level: device\ndevice: \"h200_sxm\"");
  EXPECT_HAS(layer, "torch.layernorm_input.");
  EXPECT_EQ(layer.find("torch.strided."), std::string::npos) << "GPT-2 has no strided kernel";
  EXPECT_EQ(layer.find("gemm."), std::string::npos);
  EXPECT_HAS(layer, "residuals:");

  // The layer changes what is estimated; the rows are a measurement CSV.
  const auto step = [&](const std::string& more) {
    return nlohmann::json::parse(
               run("estimate bert-large --device h200_sxm --runtime torch-eager --precision pure --mbs 32 --seq 512 --format json" + more).out)["totals"]["step_time_s"]
        .get<double>();
  };
  EXPECT_NE(step(""), step(" --calibration ./mine.yaml"));
  const Ran judged = run("validate --measurements rows.csv --device h200_sxm --format csv");
  EXPECT_EQ(judged.code, 0) << judged.err;
  EXPECT_HAS(judged.out, "layernorm");
  EXPECT_HAS(judged.out, "pytorch-profiler");
  // A profiler's rows hold no launch, those of another source do.
  std::string other = slurp("rows.csv");
  for (std::size_t at = 0; (at = other.find("pytorch-profiler", at)) != std::string::npos;) other.replace(at, 16, "somewhere");
  write("other.csv", other);
  const auto sum_of = [&](const std::string& file) {
    const Ran ran_csv = run("validate --measurements " + file + " --device h200_sxm --format csv");
    std::istringstream lines(ran_csv.out);
    std::string header, line;
    std::getline(lines, header);
    const auto column = std::count(header.begin(), header.begin() + static_cast<std::ptrdiff_t>(header.find("predicted_us")), ',');
    double sum = 0;
    while (std::getline(lines, line)) {
      std::istringstream fields(line);
      std::string field;
      for (std::ptrdiff_t i = 0; i <= column && std::getline(fields, field, ','); ++i) continue;
      if (!field.empty()) sum += std::stod(field);
    }
    return sum;
  };
  const double without = sum_of("rows.csv"), with = sum_of("other.csv");
  EXPECT_GT(without, 1000);
  EXPECT_GT(with, without + 20);  // 46 rows, 0.8 us and more each
  EXPECT_LT(with, without + 46 * 3);
  EXPECT_EQ(run("calibrate --from " + trace("gpt2-train-b16-s1024") + " --save rows.csv").code, 2);  // it is there
}

TEST_F(TraceCommands, ADeviceMayBeNamed) {
  const Ran ran = run("calibrate --from " + trace("gpt2-train-b16-s1024") + " --device h100_sxm");
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_HAS(ran.out, "H100");
}

TEST_F(TraceCommands, WhatCannotBeReadIsRefused) {
  const auto expect = [&](const std::string& name, int code, const std::string& part) {
    const Ran ran = run("calibrate --from " + name);
    EXPECT_EQ(ran.code, code) << name << "\n" << ran.err;
    EXPECT_EQ(ran.out, "") << name;
    EXPECT_HAS(ran.err, part);
    EXPECT_EQ(ran.err.rfind("rooftile: ", 0), 0u) << ran.err;
  };
  std::ifstream whole(std::string(ROOFTILE_SOURCE_DIR) + "/tests/data/traces/gpt2-train-b16-s1024.json.gz", std::ios::binary);
  std::ostringstream bytes;
  bytes << whole.rdbuf();
  write("cut.json.gz", bytes.str().substr(0, 5000));
  expect("cut.json.gz", 3, "cut.json.gz: the gzip file ends early");
  write("renamed", bytes.str().substr(0, 5000));  // told by its content
  expect("renamed", 3, "the gzip file ends early");
  write("cut.json", "{\"traceEvents\": [{\"ph\": \"X\"");
  expect("cut.json", 3, "cut.json: byte ");
  write("model.json", "{\"hidden\": 768}");
  expect("model.json", 3, "not a profiler trace");
  write("cpu.json", R"({"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1, "dur": 1}]})");
  expect("cpu.json", 3, "no GPU kernel");
  const std::string kernel =
      R"({"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 1, "args": {"External id": 1}}, {"ph": "X", "cat": "cpu_op", "name": "aten::neg", "ts": 1, "dur": 1,
                                 "args": {"External id": 1}})";
  write("nowhere.json", "{\"traceEvents\": [" + kernel + "]}");
  expect("nowhere.json", 2, "--device");
  write("unknown.json", R"({"deviceProperties": [{"id": 0, "name": "NVIDIA Imaginary"}], "traceEvents": [)" + kernel + "]}");
  expect("unknown.json", 5, "no device file describes NVIDIA Imaginary");
  expect("unknown.json --device h200_sxm", 3, "record_shapes=True");
  expect("none.json.gz", 3, "no such file");
  expect(".", 2, "--device");
}

TEST_F(TraceCommands, WhatIsLeftOutIsNamedOnStderrWhenItIsMuch) {
  const std::string operators =
      R"({"ph": "X", "cat": "cpu_op", "name": "mylib::scan", "ts": 1, "dur": 1, "args": {"External id": 1}},
         {"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 60, "args": {"External id": 1}},
         {"ph": "X", "cat": "cpu_op", "name": "aten::neg", "ts": 2, "dur": 1, "args": {"External id": 2, "Input Dims": [[4096, 1024]], "Input type": ["float"], "Input Strides": [[1024, 1]]}},
         {"ph": "X", "cat": "kernel", "name": "k", "ts": 70, "dur": 40, "args": {"External id": 2}})";
  write("mine.json", "{\"traceEvents\": [" + operators + "]}");
  const Ran ran = run("calibrate --from mine.json --device h200_sxm");
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_HAS(ran.err, "60.0 % of the kernel time could not be used: mylib::scan 60.0 % (no class of the model)");
}

}  // namespace
