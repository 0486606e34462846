// What commands do with ONNX files: sweeps over symbolic sizes, descriptions, errors.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cli/run_binary.h"
#include "tests/onnx_writer.h"

namespace {

namespace fs = std::filesystem;
using rooftile::test::attr_ints;
using rooftile::test::OnnxGraph;
using rooftile::test::RunResult;

fs::path scratch() {
  static const fs::path kFolder = rooftile::test::make_scratch("rooftile-onnx-test");
  return kFolder;
}

RunResult run(const std::string& arguments) { return rooftile::test::run_binary(arguments, scratch()); }

// [batch, seq, 64] x [64, 32], then the product of the result with itself.
std::string file() {
  static const std::string kFile = [] {
    OnnxGraph g;
    g.input("x", {"batch", "seq", 64}).weight("w", {64, 32}).node("MatMul", {"x", "w"}, {"y"}).node("Transpose", {"y"}, {"t"}, {attr_ints("perm", {0, 2, 1})});
    g.node("MatMul", {"y", "t"}, {"z"}).output("z");
    const fs::path path = scratch() / "small.onnx";
    std::ofstream(path, std::ios::binary) << g.file();
    return "'" + path.string() + "'";
  }();
  return kFile;
}

std::int64_t flops_at(std::int64_t batch, std::int64_t seq) { return 2 * batch * seq * (64 * 32 + 32 * seq); }

TEST(OnnxCommands, DimsTakeRanges) {
  const std::string sweep = "estimate " + file() + " --device h100_sxm --phase forward --dim batch=1,8-32*2 --dim seq=128-256+128 --format ";
  const RunResult lines = run(sweep + "jsonl");
  ASSERT_EQ(lines.code, 0) << lines.err;
  std::istringstream text(lines.out);
  std::vector<std::pair<std::int64_t, std::int64_t>> expected;
  for (const std::int64_t batch : {1, 8, 16, 32})
    for (const std::int64_t seq : {128, 256}) expected.emplace_back(batch, seq);
  std::size_t count = 0;
  for (std::string line; std::getline(text, line); ++count) {
    const auto json = nlohmann::json::parse(line);
    ASSERT_LT(count, expected.size());
    const auto [batch, seq] = expected[count];
    EXPECT_EQ(json["context"]["variant"]["dim.batch"], std::to_string(batch)) << line;
    EXPECT_EQ(json["context"]["variant"]["dim.seq"], std::to_string(seq));
    EXPECT_EQ(json["totals"]["flops_matmul_dense"], flops_at(batch, seq));
    EXPECT_EQ(json["model"]["outputs"][0]["shape"], nlohmann::json::array({batch, seq, seq}));
  }
  EXPECT_EQ(count, 8u);
  const RunResult csv = run(sweep + "csv");
  EXPECT_HAS(csv.out.substr(0, csv.out.find('\n')), "dim.batch,dim.seq");
  EXPECT_EQ(std::count(csv.out.begin(), csv.out.end(), '\n'), 9);
  EXPECT_EQ(nlohmann::json::parse(run(sweep + "json").out).size(), 8u);
  EXPECT_HAS(run(sweep + "md").out, "dim.seq");
  EXPECT_HAS(run(sweep + "table").out, "dim.batch");
}

TEST(OnnxCommands, WhatIsWrongWithADimIsSaid) {
  const auto refused = [](const std::string& dims, int code, const std::string& part) {
    const RunResult result = run("estimate " + file() + " --device h100_sxm --phase forward " + dims);
    EXPECT_EQ(result.code, code) << dims << "\n" << result.err;
    EXPECT_HAS(result.err, part);
  };
  refused("--dim batch=8-1 --dim seq=4", 2, "ends before it begins");
  refused("--dim batch=1- --dim seq=4", 2, "--dim");
  refused("--dim batch --dim seq=4", 2, "is not NAME=VALUE");
  refused("--dim batch=2,x --dim seq=4", 2, "'x' is not a whole number");
  refused("--dim batch=2", 3, "seq (x, dimension 1)");
  refused("--dim batch=1,2", 3, "seq (x, dimension 1)");
}

TEST(OnnxCommands, ManyBindingsOfOneFile) {
  const RunResult result = run("estimate " + file() + " --device h100_sxm --phase forward --dim batch=1-40 --dim seq=1-20 --format csv");
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 801);
}

TEST(OnnxCommands, ModelsShowDescribesAGraph) {
  const RunResult result = run("models show " + file());
  ASSERT_EQ(result.code, 0) << result.err;
  for (const char* part :
       {"2048", "8192", "float32 [batch, seq, 64]", "float32 [batch, seq, seq]", "--dim batch=1", "MatMul", "Transpose", "100 %", "2048*batch*seq + 32*batch*seq*seq"})
    EXPECT_HAS(result.out, part);
  const auto json = nlohmann::json::parse(run("models show " + file() + " --format json").out);
  bool operators = false;
  for (const auto& row : json) operators |= row["what"] == "operator" && row["name"] == "MatMul" && row["value"] == "2";
  EXPECT_TRUE(operators) << json.dump();
}

// 4-bit weights take their stored bytes in memory too: 48 x 64 weights in 1,536 bytes and 96 scales of 4.
TEST(OnnxCommands, PackedWeightsStayPackedInMemory) {
  OnnxGraph g;
  using rooftile::test::attr;
  g.input("x", {3, 64}).weight("w", {48, 2, 16}, rooftile::test::kUint8).weight("scales", {96});
  g.node("MatMulNBits", {"x", "w", "scales"}, {"y"}, {attr("K", 64), attr("N", 48), attr("bits", 4), attr("block_size", 32)}, "com.microsoft").output("y");
  const fs::path path = scratch() / "packed.onnx";
  std::ofstream(path, std::ios::binary) << g.file();
  const RunResult result = run("estimate '" + path.string() + "' --device h100_sxm --phase forward --format json");
  ASSERT_EQ(result.code, 0) << result.err;
  const auto json = nlohmann::json::parse(result.out);
  EXPECT_EQ(json["totals"]["memory"]["parameters_bytes"], 1536 + 96 * 4);
  EXPECT_NEAR(json["ops"][0]["bytes"].get<double>(), 3 * 64 * 2 + 1536 + 96 * 4 + 3 * 48 * 2, 1);  // traffic is a modelled number, rounded down
}

TEST(OnnxCommands, TrainingIsDerivedFromAForwardGraph) {
  const RunResult result = run("estimate " + file() + " --device h100_sxm --dim batch=2 --dim seq=16 --format json");
  ASSERT_EQ(result.code, 0) << result.err;
  const auto json = nlohmann::json::parse(result.out);
  EXPECT_EQ(json["context"]["phase"], "train");
  // The product of two activations has two gradients; the first product's input needs none.
  EXPECT_EQ(json["totals"]["flops_matmul_dense"], 2 * (2 * 16 * 64 * 32) * 2 + 2 * (2 * 16 * 16 * 32) * 3);
}

}  // namespace
