// FLOPs per token against figures that others imply: NVIDIA's published TFLOP/s divided by tokens/s (Megatron-Bridge performance summary), and sums worked by hand.
#include <gtest/gtest.h>

#include <ostream>

#include <filesystem>

#include "estimator/ops/op_work.h"
#include "frontends/expand.h"
#include "frontends/model_files.h"

namespace rooftile {
namespace {

const std::filesystem::path kRoot = ROOFTILE_SOURCE_DIR;

Graph graph_of(const std::string& name, const Options& options) {
  const std::filesystem::path file = kRoot / "models" / (name + ".yaml");
  const auto spec = read_yaml_model(read_text(file).value(), file.string());
  EXPECT_TRUE(spec) << name;
  return expand(*spec, options).value();
}

ModelFlops flops_of(const Graph& graph, bool backward) {
  ModelFlops sum;
  OpWork work;
  work.begin(graph, {});
  for (const Segment& segment : graph.segments) {
    for (const Operator& op : graph.ops_of(segment)) {
      work_of(op, work);
      for (const KernelUse& use : work.forward_uses) {
        sum.dense += use.conventions.dense * segment.repeat;
        sum.model += use.conventions.model * segment.repeat;
      }
      for (const KernelUse& use : work.backward_uses) {
        sum.dense += backward ? use.conventions.dense * segment.repeat : 0;
        sum.model += backward ? use.conventions.model * segment.repeat : 0;
      }
    }
  }
  return sum;
}

double training_gflop_per_token(const std::string& name, std::int64_t seq) {
  Options options;
  options.seq = seq;
  const Graph graph = graph_of(name, options);
  return to_double(flops_of(graph, true).model) / static_cast<double>(graph.tokens) / 1e9;
}

struct Golden {
  const char* model;
  std::int64_t seq;
  double gflop_per_token;
};
void PrintTo(const Golden& golden, std::ostream* out) { *out << golden.model; }  // names of tests must not hold addresses
class TrainingFlops : public testing::TestWithParam<Golden> {};

TEST_P(TrainingFlops, WithinThreePerMille) {
  const Golden& golden = GetParam();
  const double gflop = training_gflop_per_token(golden.model, golden.seq);
  EXPECT_NEAR(gflop / golden.gflop_per_token, 1.0, 0.003) << golden.model << ": " << gflop;
}

INSTANTIATE_TEST_SUITE_P(Published, TrainingFlops,
                         testing::Values(Golden{"llama-3-8b", 8192, 51.47}, Golden{"llama-3-70b", 8192, 449.2}, Golden{"llama-3.1-405b", 8192, 2524},
                                         Golden{"qwen3-30b-a3b", 4096, 23.01}, Golden{"qwen3-235b-a22b", 4096, 148.0}, Golden{"deepseek-v3", 4096, 249.8},
                                         Golden{"gpt-oss-120b", 4096, 32.63}));

// By hand, GPT-2 with 1024 tokens: a layer's matmuls 12 x 768^2, the head 50257 x 768, attention 2 x 1024 x 768 a layer; 2 FLOPs each, all of the attention square.
TEST(ForwardFlops, Gpt2ByHand) {
  Options options;
  options.phase = Phase::forward;
  options.seq = 1024;
  const Count per_token = Count{2} * (12 * (12 * 768 * 768 + 2 * 1024 * 768) + 50257 * 768);
  EXPECT_EQ(to_string(flops_of(graph_of("gpt2", options), false).dense), to_string(per_token * 1024));
}

// Training is three times forward, and the model convention halves the causal attention exactly.
TEST(ForwardFlops, CausalAttentionIsHalved) {
  Options options;
  options.seq = 1024;
  const Graph graph = graph_of("gpt2", options);
  const ModelFlops train = flops_of(graph, true);
  const Count attention = Count{3} * 2 * 12 * 2 * 1024 * 768 * 1024;
  EXPECT_EQ(to_string(train.dense - train.model), to_string(attention / 2));
}

// ViT-B/16, one image of 224 x 224: 197 tokens, 12 layers, patches 196 x 768 x 768, 2 labels. 17.56 GMAC without the attention square, 35 GFLOP.
TEST(ForwardFlops, VitByHand) {
  Options options;
  options.phase = Phase::forward;
  options.seq = 4096;  // of no effect: the image gives the length
  const Graph graph = graph_of("vit-base", options);
  EXPECT_EQ(graph.seq, 197);
  const Count layers = Count{12} * (197 * (12 * 768 * 768) + 2 * 197 * 197 * 768);
  const Count macs = layers + Count{196} * 768 * 768 + 768 * 2;
  EXPECT_EQ(to_string(flops_of(graph, false).dense), to_string(2 * macs));
  EXPECT_EQ(to_string(flops_of(graph, false).model), to_string(2 * macs));  // nothing is causal here
}

// A mixture's router is work, but none in the model convention.
TEST(ForwardFlops, RouterIsFreeInTheModelConvention) {
  Options options;
  options.phase = Phase::forward;
  options.seq = 128;
  const Graph graph = graph_of("mixtral-8x7b", options);
  const ModelFlops flops = flops_of(graph, false);
  const Count router = Count{2} * 32 * 128 * 4096 * 8;
  const Count causal = Count{2} * 32 * 128 * 128 * 4096;  // half of 2 products
  EXPECT_EQ(to_string(flops.dense - flops.model), to_string(router + causal));
}

}  // namespace
}  // namespace rooftile
