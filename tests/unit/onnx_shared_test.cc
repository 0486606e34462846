// Real files with known counts, where they are present: $ROOFTILE_SHARED/onnx or ../shared/onnx.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "estimator/ops/op_work.h"
#include "frontends/onnx/onnx_model.h"

namespace rooftile {
namespace {

namespace fs = std::filesystem;

fs::path shared_folder() {
  const char* given = std::getenv("ROOFTILE_SHARED");
  return (given != nullptr ? fs::path(given) : fs::path(ROOFTILE_SOURCE_DIR).parent_path() / "shared") / "onnx";
}

std::map<std::string, std::int64_t> bindings_of(const nlohmann::json& json) { return json.at("bindings").get<std::map<std::string, std::int64_t>>(); }

// 2 x multiply-accumulates of a graph's forward pass, by the estimator's own operators.
Count dense_flops(const Graph& graph) {
  OpWork work;
  work.begin(graph, {});
  Count sum = 0;
  for (const Segment& segment : graph.segments) {
    for (const Operator& op : graph.ops_of(segment)) {
      work_of(op, work);
      for (const KernelUse& use : work.forward_uses) sum += use.conventions.dense * segment.repeat;
    }
  }
  return sum;
}

TEST(OnnxShared, EveryFileIsExactAtEveryBinding) {
  const fs::path folder = shared_folder();
  if (!fs::exists(folder / "truth.json")) GTEST_SKIP() << folder << " is not there";
  const auto truth = nlohmann::json::parse(std::ifstream(folder / "truth.json"));
  int exact = 0;
  for (const auto& [name, entry] : truth.items()) {
    if (entry.at("macs").is_null()) continue;
    const auto model = read_onnx(folder / name);
    ASSERT_TRUE(model.has_value()) << describe(model.error());
    std::vector<std::map<std::string, std::int64_t>> points{bindings_of(entry)};
    std::vector<std::int64_t> macs{entry.at("macs").get<std::int64_t>()};
    if (entry.contains("more_points")) {
      for (const auto& point : entry.at("more_points")) {
        points.push_back(bindings_of(point));
        macs.push_back(point.at("macs").get<std::int64_t>());
      }
    }
    for (std::size_t i = 0; i < points.size(); ++i) {
      const auto summary = model->summarise(points[i]);
      ASSERT_TRUE(summary.has_value()) << name << ": " << describe(summary.error());
      EXPECT_EQ(summary->macs, Count{macs[i]}) << name;
      // The operators of the graph carry the same work: recognising patterns loses nothing.
      const auto graph = model->bind(points[i], Options());
      ASSERT_TRUE(graph.has_value()) << name << ": " << describe(graph.error());
      EXPECT_EQ(graph->model.outputs.size(), summary->outputs.size());
      EXPECT_EQ(dense_flops(*graph), 2 * summary->macs) << name;
      Options standard;
      standard.attention = AttentionKernel::standard;
      const auto staged = model->bind(points[i], standard);
      ASSERT_TRUE(staged.has_value());
      EXPECT_EQ(dense_flops(*staged), 2 * summary->macs) << name;
      if (i > 0) continue;
      for (const auto& output : entry.at("outputs")) {
        const auto found = std::find_if(summary->outputs.begin(), summary->outputs.end(), [&](const OnnxTensor& tensor) { return tensor.name == output.at(0).get<std::string>(); });
        ASSERT_NE(found, summary->outputs.end()) << name;
        EXPECT_EQ(found->shape, output.at(1).get<std::vector<std::int64_t>>()) << name << " " << found->name;
      }
      EXPECT_EQ(model->parameters().floats, Count{entry.at("float_initializer_elements").get<std::int64_t>()}) << name;
      EXPECT_EQ(model->parameters().integers8, Count{entry.at("int8_initializer_elements").get<std::int64_t>()}) << name;
    }
    ++exact;
  }
  EXPECT_EQ(exact, 22);
}

TEST(OnnxShared, TheImpossibleOneIsDiagnosed) {
  const fs::path file = shared_folder() / "trt_multi_device_attention_head.onnx";
  if (!fs::exists(file)) GTEST_SKIP() << file << " is not there";
  const auto summary = read_onnx(file)->summarise({{"batch", 2}, {"sequence_len", 8}});
  ASSERT_FALSE(summary.has_value());
  EXPECT_EQ(summary.error().code, ErrorCode::invalid);
  EXPECT_NE(summary.error().place.find("mm1"), std::string::npos);
  EXPECT_NE(summary.error().message.find("inner sizes"), std::string::npos);
}

TEST(OnnxShared, TheCustomOperatorIsNamed) {
  const fs::path file = shared_folder() / "ort_local_functions_quant.onnx";
  if (!fs::exists(file)) GTEST_SKIP() << file << " is not there";
  const auto summary = read_onnx(file)->summarise({});
  ASSERT_TRUE(summary.has_value());
  EXPECT_EQ(summary->coverage.unknown_operators.count("onnx_extented.ortops.tutorial.cpu.CustomGemmFloat8E4M3FN"), 1u);
}

}  // namespace
}  // namespace rooftile
