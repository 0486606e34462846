// Weights as graphs store them: packed, quantised, transposed, or given as inputs of a training graph.
#include <gtest/gtest.h>

#include "estimator/ops/op_work.h"
#include "frontends/onnx/onnx_model.h"
#include "tests/onnx_writer.h"

namespace rooftile {
namespace {

using test::attr;
using test::attr_ints;
using test::OnnxGraph;
constexpr std::string_view kMs = "com.microsoft";

Graph graph_of(const OnnxGraph& onnx, Phase phase = Phase::forward) {
  const auto model = read_onnx_bytes(onnx.file(21), "test.onnx");
  EXPECT_TRUE(model.has_value());
  Options options;
  options.phase = phase;
  options.dtype = DType::bf16;
  auto graph = model->bind({}, options);
  EXPECT_TRUE(graph.has_value()) << (graph ? "" : describe(graph.error()));
  return *std::move(graph);
}

// The forward kernel of the only product of a graph.
KernelCall product_of(const Graph& graph) {
  OpWork work;
  work.begin(graph, {});
  for (const Operator& op : graph.ops) {
    if (row_of(op.kind).category != OpCategory::gemm) continue;
    work_of(op, work);
    return work.forward_uses.at(0).call;
  }
  ADD_FAILURE() << "no product";
  return {};
}

// 4-bit weights of [48, 64] in blocks of 32: 48 x 2 blocks of 16 bytes, 96 scales of 4 bytes and 48 bytes of zero points are 1,968 bytes instead of 6,144 in bf16.
TEST(OnnxWeights, MatMulNBitsIsReadAsStored) {
  OnnxGraph g;
  g.input("x", {3, 64}).weight("w", {48, 2, 16}, test::kUint8).weight("scales", {96}).weight("zero", {48}, test::kUint8);
  g.node("MatMulNBits", {"x", "w", "scales", "zero"}, {"y"}, {attr("K", 64), attr("N", 48), attr("bits", 4), attr("block_size", 32)}, kMs).output("y");
  const KernelCall call = product_of(graph_of(g));
  EXPECT_EQ(call.gemm().b_bytes, 48 * 2 * 16 + 96 * 4 + 48);
  EXPECT_EQ(call.gemm().m, 3);
  const KernelWork work = work_of(call);
  EXPECT_EQ(work.bytes_read, Count{3 * 64 * 2 + 1968});
  EXPECT_EQ(work.flops, Count{2 * 3 * 48 * 64});
}

// int8 weights behind DequantizeLinear, transposed or not: their bytes and the scales'.
TEST(OnnxWeights, QuantisedWeightsAreReadAsStored) {
  for (const bool transposed : {false, true}) {
    OnnxGraph g;
    g.input("x", {4, 64}).weight("scale", {32});
    if (transposed) {
      g.weight("w", {32, 64}, test::kInt8).node("DequantizeLinear", {"w", "scale"}, {"d"}, {attr("axis", 0)}).node("Transpose", {"d"}, {"t"}, {attr_ints("perm", {1, 0})});
    } else {
      g.weight("w", {64, 32}, test::kInt8).node("DequantizeLinear", {"w", "scale"}, {"t"}, {attr("axis", 1)});
    }
    g.node("MatMul", {"x", "t"}, {"y"}).output("y");
    const Graph graph = graph_of(g);
    ASSERT_EQ(graph.ops.size(), 1u);
    const KernelCall call = product_of(graph);
    EXPECT_EQ(call.dtype, DType::bf16);
    EXPECT_EQ(call.gemm().b_bytes, 64 * 32 + 32 * 4) << transposed;
    EXPECT_EQ(call.gemm().layout, transposed ? GemmLayout::nt : GemmLayout::nn);
    ASSERT_FALSE(graph.warnings.empty());
    EXPECT_EQ(graph.warnings[0].code, "packed_weights");
  }
}

TEST(OnnxWeights, IntegerProductsComputeInEightBits) {
  OnnxGraph g;
  g.input("x", {4, 64}, test::kUint8).weight("w", {64, 32}, test::kInt8).node("MatMulInteger", {"x", "w"}, {"y"}).output("y");
  const KernelCall call = product_of(graph_of(g));
  EXPECT_EQ(call.dtype, DType::int8);
  EXPECT_EQ(work_of(call).bytes_read, Count{4 * 64 + 64 * 32});
}

TEST(OnnxWeights, PackedWeightsOfExpertsAreOneExpertsShare) {
  // 8 experts, hidden 32, inter 64, 4 bits: 1,024 bytes of one matrix and 64 or 32 scales of 4 bytes.
  OnnxGraph g;
  g.input("x", {10, 32}).input("router", {10, 8}).weight("up", {8, 64, 16}, test::kUint8).weight("us", {8, 64}).weight("down", {8, 32, 32}, test::kUint8).weight("ds", {8, 32});
  g.node("QMoE", {"x", "router", "up", "us", "", "down", "ds"}, {"y"}, {attr("k", 2), attr("expert_weight_bits", 4)}, kMs).output("y");
  const Graph graph = graph_of(g);
  ASSERT_EQ(graph.ops.size(), 2u);
  EXPECT_EQ(std::get<LinearAttrs>(graph.ops[0].attrs).weight_bytes, 1024 + 64 * 4);
  EXPECT_EQ(std::get<LinearAttrs>(graph.ops[1].attrs).weight_bytes, 1024 + 32 * 4);
}

// PyTorch's Linear keeps [out, in]; a Transpose before the product is folded, and the kernel reads what is stored.
TEST(OnnxWeights, ATransposedWeightKeepsItsLayout) {
  for (const bool transposed : {false, true}) {
    OnnxGraph g;
    g.input("x", {4, 64});
    if (transposed) {
      g.weight("w", {32, 64}).node("Transpose", {"w"}, {"t"}, {attr_ints("perm", {1, 0})});
    } else {
      g.weight("t", {64, 32});
    }
    g.node("MatMul", {"x", "t"}, {"y"}).output("y");
    const Graph graph = graph_of(g);
    ASSERT_EQ(graph.ops.size(), 1u);
    EXPECT_EQ(product_of(graph).gemm().layout, transposed ? GemmLayout::nt : GemmLayout::nn);
    EXPECT_EQ(product_of(graph).gemm().b_bytes, 0);
  }
}

Count parameters_of(const Graph& graph) {
  OpWork work;
  work.begin(graph, {});
  Count parameters = 0;
  for (const Segment& segment : graph.segments) {
    for (const Operator& op : graph.ops_of(segment)) {
      work_of(op, work);
      parameters += work.parameters * segment.repeat;
    }
  }
  return parameters;
}

// A step with its own gradients: weights come in as inputs, told by the gradients and updates named after them. Data of fixed size stay data.
TEST(OnnxWeights, TrainingGraphsTakeTheirWeightsAsInputs) {
  OnnxGraph g;
  g.input("data", {4, 16}).input("labels", {4}, test::kInt64).input("fc", {16, 10}).input("table", {100, 16}).input("rate", {1});
  g.node("MatMul", {"data", "fc"}, {"logits"}).node("SoftmaxCrossEntropyLoss", {"logits", "labels"}, {"loss", "log"});
  g.node("SoftmaxCrossEntropyLossGrad", {"loss", "log", "labels"}, {"dlogits"}, {}, kMs).node("Transpose", {"data"}, {"data_t"}, {attr_ints("perm", {1, 0})});
  g.node("MatMul", {"data_t", "dlogits"}, {"fc_grad"}).node("Identity", {"table"}, {"table_grad"}).output("loss").output("fc_grad").output("table_grad");
  const auto model = read_onnx_bytes(g.file(), "test.onnx");
  ASSERT_TRUE(model.has_value());
  EXPECT_TRUE(model->contains_gradients());
  EXPECT_EQ(model->parameters().all, Count{16 * 10 + 100 * 16});
  EXPECT_EQ(model->parameters().floats, Count{0});  // nothing is stored in the file
  const Graph graph = graph_of(g);
  EXPECT_EQ(parameters_of(graph), Count{16 * 10 + 100 * 16});
  std::int64_t inputs = 0;
  for (const Tensor& tensor : graph.tensors) inputs += tensor.role == TensorRole::input ? tensor.elements : 0;
  EXPECT_LE(inputs, 4 * 16 + 4 + 1);
}

// In a graph without a loss a float input of fixed size is data, whatever its name.
TEST(OnnxWeights, OtherGraphsKeepTheirInputs) {
  OnnxGraph g;
  g.input("x", {4, 16}).input("weight", {16, 10}).node("MatMul", {"x", "weight"}, {"y"}).output("y");
  const auto model = read_onnx_bytes(g.file(), "test.onnx");
  ASSERT_TRUE(model.has_value());
  EXPECT_EQ(model->parameters().all, Count{0});
  EXPECT_EQ(graph_of(g).ops.at(0).kind, OpKind::matmul);
}

}  // namespace
}  // namespace rooftile
