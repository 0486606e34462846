// Counts of small graphs, derived by hand or reported publicly as bugs of other tools.
#include "frontends/onnx/onnx_model.h"

#include <gtest/gtest.h>

#include "tests/onnx_writer.h"

namespace rooftile {
namespace {

using test::attr;
using test::attr_graph;
using test::attr_ints;
using test::attr_tensor;
using test::attr_text;
using test::Message;
using test::OnnxGraph;
constexpr std::string_view kMs = "com.microsoft";

OnnxModel model_of(const std::string& bytes) {
  auto model = read_onnx_bytes(bytes, "test.onnx");
  EXPECT_TRUE(model.has_value()) << (model ? "" : describe(model.error()));
  return *model;
}

OnnxSummary summary_of(const OnnxGraph& graph, const std::map<std::string, std::int64_t>& dims = {}, std::int64_t opset = 17) {
  auto summary = model_of(graph.file(opset)).summarise(dims);
  EXPECT_TRUE(summary.has_value()) << (summary ? "" : describe(summary.error()));
  return summary ? *summary : OnnxSummary();
}

Count macs_of(const OnnxGraph& graph, const std::map<std::string, std::int64_t>& dims = {}) { return summary_of(graph, dims).macs; }
using Shape = std::vector<std::int64_t>;

TEST(OnnxCounts, BatchedMatMulCountsEveryMatrix) {
  OnnxGraph g;
  g.input("a", {1, 12, 256, 64}).input("b", {1, 12, 64, 256}).node("MatMul", {"a", "b"}, {"y"}).output("y");
  const auto s = summary_of(g);
  EXPECT_EQ(s.macs, Count{50331648});
  EXPECT_EQ(s.outputs[0].shape, (Shape{1, 12, 256, 256}));
}

TEST(OnnxCounts, RecurrencesCountEveryStep) {
  for (const auto& [op, gates, expected] : {std::tuple{"LSTM", 4, 3276800}, std::tuple{"GRU", 3, 2457600}, std::tuple{"RNN", 1, 819200}}) {
    OnnxGraph g;
    g.input("x", {100, 1, 64}).weight("w", {1, gates * 64, 64}).weight("r", {1, gates * 64, 64});
    g.node(op, {"x", "w", "r"}, {"y", "h"}, {attr("hidden_size", 64)}).output("y").output("h");
    const auto s = summary_of(g);
    EXPECT_EQ(s.macs, Count{expected}) << op;
    EXPECT_EQ(s.outputs[0].shape, (Shape{100, 1, 1, 64}));
    EXPECT_EQ(s.outputs[1].shape, (Shape{1, 1, 64}));
  }
}

TEST(OnnxCounts, UnknownOperatorsAreListedAndTheRestIsCosted) {
  OnnxGraph g;
  g.input("q", {2, 10, 64}).input("k", {2, 20, 64}).input("v", {2, 20, 64});
  g.node("MultiHeadAttention", {"q", "k", "v"}, {"a"}, {attr("num_heads", 4)}, kMs).node("MatrixInverse", {"a"}, {"b"}, {}, "somebody").output("b", {2, 10, 64});
  const auto s = summary_of(g);
  EXPECT_EQ(s.macs, Count{2} * 4 * 10 * 20 * (16 + 16));
  EXPECT_EQ(s.coverage.unknown_nodes, 1);
  EXPECT_EQ(s.coverage.unknown_operators.at("somebody.MatrixInverse"), 1);
  EXPECT_DOUBLE_EQ(s.coverage.fraction(), 0.5);
  EXPECT_EQ(s.outputs[0].shape, (Shape{2, 10, 64}));
}

TEST(OnnxCounts, VectorOperands) {
  OnnxGraph g;
  g.input("v", {64}).input("m", {5, 64, 7}).node("MatMul", {"v", "m"}, {"y"}).node("MatMul", {"v", "v"}, {"dot"}).output("y").output("dot");
  const auto s = summary_of(g);
  EXPECT_EQ(s.macs, Count{5 * 64 * 7 + 64});
  EXPECT_EQ(s.outputs[0].shape, (Shape{5, 7}));
  EXPECT_EQ(s.outputs[1].shape, Shape{});
}

TEST(OnnxCounts, PackedInt4Weights) {
  // [M, K] times [N, K] packed: M K N multiply-accumulates; N K parameters although the stored bytes are half as many.
  OnnxGraph g;
  g.input("x", {"M", 64}).weight("w", {48, 2, 16}, test::kUint8).weight("scales", {96});
  g.node("MatMulNBits", {"x", "w", "scales"}, {"y"}, {attr("K", 64), attr("N", 48), attr("bits", 4), attr("block_size", 32)}, kMs).output("y");
  const auto s = summary_of(g, {{"M", 3}});
  EXPECT_EQ(s.macs, Count{3 * 64 * 48});
  EXPECT_EQ(s.outputs[0].shape, (Shape{3, 48}));
  EXPECT_EQ(model_of(g.file()).parameters().all, Count{48 * 64 + 96});
}

OnnxGraph group_query(std::int64_t kv_heads, bool fourth_output) {
  OnnxGraph g;
  g.input("q", {2, 7, 8 * 16}).input("k", {2, 7, kv_heads * 16}).input("v", {2, 7, kv_heads * 16}).input("pk", {2, kv_heads, 5, 16}).input("pv", {2, kv_heads, 5, 16});
  g.input("seqlens", {2}, 6).input("total", {}, 6);
  std::vector<std::string> outputs{"y", "ck", "cv"};
  if (fourth_output) outputs.emplace_back("qk");
  g.node("GroupQueryAttention", {"q", "k", "v", "pk", "pv", "seqlens", "total"}, outputs, {attr("num_heads", 8), attr("kv_num_heads", kv_heads)}, kMs);
  for (const auto& output : outputs) g.output(output);
  return g;
}

TEST(OnnxCounts, GroupedHeadsCountLikeQueryHeads) {
  const Count expected = Count{2} * 8 * 7 * 12 * (16 + 16);
  EXPECT_EQ(macs_of(group_query(8, false)), expected);
  EXPECT_EQ(macs_of(group_query(2, false)), expected);
  const auto s = summary_of(group_query(2, true));
  EXPECT_EQ(s.outputs[1].shape, (Shape{2, 2, 12, 16}));
  EXPECT_EQ(s.outputs[3].shape, (Shape{2, 8, 7, 12}));
}

TEST(OnnxShapes, BroadcastLeavesOperandsAlone) {
  OnnxGraph g;
  g.input("mask", {1, 1, 1024, 1024}, test::kBool).input("scores", {4, 4, 1024, 1024}).initializer(test::float_tensor("low", {}, {-1e9f}));
  g.node("Where", {"mask", "scores", "low"}, {"y"}).node("Not", {"mask"}, {"again"}).output("y").output("again");
  const auto s = summary_of(g);
  EXPECT_EQ(s.outputs[0].shape, (Shape{4, 4, 1024, 1024}));
  EXPECT_EQ(s.outputs[1].shape, (Shape{1, 1, 1024, 1024}));
}

TEST(OnnxShapes, ReshapeWithAnOpenSize) {
  for (const Shape& target : {Shape{0, 0, -1}, Shape{0, -1, 6}}) {
    OnnxGraph g;
    g.input("x", {"a", "b", 2, 3}).ints("target", target).node("Reshape", {"x", "target"}, {"y"}).output("y");
    EXPECT_EQ(summary_of(g, {{"a", 5}, {"b", 7}}).outputs[0].shape, (Shape{5, 7, 6}));
  }
}

TEST(OnnxShapes, ReshapeNamesWhatDoesNotFit) {
  OnnxGraph g;
  g.input("x", {"batch", 6}).ints("target", {5, 6}).node("Reshape", {"x", "target"}, {"y"}).output("y");
  const auto summary = model_of(g.file()).summarise({{"batch", 4}});
  ASSERT_FALSE(summary.has_value());
  EXPECT_EQ(summary.error().code, ErrorCode::invalid);
  EXPECT_NE(summary.error().place.find("Reshape(y)"), std::string::npos);
  EXPECT_NE(summary.error().message.find("[4,6]"), std::string::npos);
  EXPECT_NE(summary.error().hint.find("batch=4"), std::string::npos);
}

// A state that grows by one row each time: the product over it is 1 + 2 + 3 + 4 rows.
TEST(OnnxLoops, GrowingStateIsFollowed) {
  OnnxGraph body;
  body.input("i", {}, test::kInt64).input("c", {}, test::kBool).input("state", {"rows", 8});
  body.node("Concat", {"state", "row"}, {"longer"}, {attr("axis", 0)}).node("MatMul", {"longer", "w"}, {"p"}).node("Identity", {"c"}, {"c2"});
  body.node("ReduceSum", {"p"}, {"sum"}, {attr("keepdims", 0)}).output("c2").output("longer").output("sum");
  OnnxGraph g;
  g.input("row", {1, 8}).input("start", {1, 8}).ints("n", {4}, true).weight("w", {8, 3});
  g.node("Loop", {"n", "", "start"}, {"last", "sums"}, {attr_graph("body", body.message())}).output("last").output("sums");
  const auto s = summary_of(g);
  EXPECT_EQ(s.outputs[0].shape, (Shape{5, 8}));
  EXPECT_EQ(s.outputs[1].shape, Shape{4});
  EXPECT_EQ(s.macs, Count{(2 + 3 + 4 + 5) * 8 * 3});
}

TEST(OnnxLoops, TripCountMultiplies) {
  OnnxGraph body;
  body.input("i", {}, test::kInt64).input("c", {}, test::kBool).input("state", {4, 8});
  body.node("MatMul", {"state", "w"}, {"next"}).node("Identity", {"c"}, {"c2"}).output("c2").output("next");
  OnnxGraph g;
  g.input("x", {4, 8}).input("n", {}, test::kInt64).weight("w", {8, 8}).node("Loop", {"n", "", "x"}, {"y"}, {attr_graph("body", body.message())}).output("y");
  const auto once = summary_of(g);
  EXPECT_EQ(once.macs, Count{4 * 8 * 8});
  EXPECT_EQ(once.warnings.front().code, "unknown_trip_count");
  EXPECT_EQ(summary_of(g, {{"n", 10}}).macs, Count{10 * 4 * 8 * 8});  // the input's value
  EXPECT_EQ(summary_of(g, {{"Loop(y).trip_count", 7}}).macs, Count{7 * 4 * 8 * 8});
}

TEST(OnnxLoops, BranchByKnownCondition) {
  const auto branch = [](std::string_view weight) {
    OnnxGraph b;
    b.node("MatMul", {"x", std::string(weight)}, {"r"}).output("r");
    return b.message();
  };
  OnnxGraph g;
  g.input("x", {4, 8}).input("flag", {}, test::kBool).weight("small", {8, 2}).weight("large", {8, 64});
  g.node("If", {"flag"}, {"y"}, {attr_graph("else_branch", branch("large")), attr_graph("then_branch", branch("small"))}).output("y");
  EXPECT_EQ(macs_of(g), Count{4 * 8 * 2});
  EXPECT_EQ(summary_of(g).warnings.front().code, "undecided_branch");
  EXPECT_EQ(summary_of(g, {{"flag", 0}}).macs, Count{4 * 8 * 64});
  EXPECT_EQ(summary_of(g, {{"If(y).then", 0}}).macs, Count{4 * 8 * 64});
}

OnnxGraph sdpa(const std::vector<test::Size>& shape, const Shape& perm, const Shape& key_perm) {
  OnnxGraph g;
  g.input("q", shape).input("k", shape).input("v", shape);
  g.node("Transpose", {"q"}, {"qt"}, {attr_ints("perm", perm)})
      .node("Transpose", {"k"}, {"kt"}, {attr_ints("perm", key_perm)})
      .node("Transpose", {"v"}, {"vt"}, {attr_ints("perm", perm)});
  g.node("MatMul", {"qt", "kt"}, {"s"}).node("Softmax", {"s"}, {"p"}, {attr("axis", -1)}).node("MatMul", {"p", "vt"}, {"y"}).output("y");
  return g;
}

TEST(OnnxCounts, AttentionByItsLayout) {
  // q, k, v of [1, 12, 64, 64]: 12,582,912 FLOPs.
  EXPECT_EQ(2 * macs_of(sdpa({1, 12, 64, 64}, {0, 1, 2, 3}, {0, 1, 3, 2})), Count{12582912});
  // The same stored as [B, S, H, D]: S^2 H, not H^2 S.
  EXPECT_EQ(macs_of(sdpa({1, 64, 12, 64}, {0, 2, 1, 3}, {0, 2, 3, 1})), Count{2 * 12 * 64 * 64 * 64});
  EXPECT_EQ(macs_of(sdpa({1, 1, 64, 128}, {0, 1, 2, 3}, {0, 1, 3, 2})), Count{1048576});
}

TEST(OnnxCounts, SharedWeightsCountOnce) {
  OnnxGraph g;
  g.input("x", {1, 100}).weight("w", {100, 100}).node("MatMul", {"x", "w"}, {"a"}).node("MatMul", {"a", "w"}, {"b"}).node("MatMul", {"b", "w"}, {"c"}).output("c");
  EXPECT_EQ(2 * macs_of(g), Count{60000});
  const auto model = model_of(g.file());
  EXPECT_EQ(model.parameters().all, Count{10000});
  Options forward;
  forward.phase = Phase::forward;
  const auto graph = model.bind({}, forward);
  ASSERT_TRUE(graph.has_value());
  int untied = 0;
  for (const Operator& op : graph->ops) untied += std::get<LinearAttrs>(op.attrs).tied ? 0 : 1;
  EXPECT_EQ(untied, 1);
  EXPECT_EQ(graph->ops.size(), 3u);
}

TEST(OnnxCounts, LinearOverAllLeadingDimensions) {
  OnnxGraph g;
  g.input("x", {5, 10, 3}).weight("w", {3, 8}).node("MatMul", {"x", "w"}, {"y"}).output("y");
  EXPECT_EQ(macs_of(g), Count{1200});
}

TEST(OnnxCounts, ConstantNodesAreParameters) {
  OnnxGraph g;
  g.input("x", {2, 64}).node("Constant", {}, {"w"}, {attr_tensor("value", test::external_tensor("", test::kFloat, {64, 32}))});
  g.node("Constant", {}, {"small"}, {attr_tensor("value", test::float_tensor("", {1}, {1.f}))});
  g.node("MatMul", {"x", "w"}, {"y"}).node("Add", {"y", "small"}, {"z"}).output("z");
  EXPECT_EQ(model_of(g.file()).parameters().all, Count{64 * 32});
}

// ViT-B/16 on 224 x 224: 16.87 G multiply-accumulates without the head (patches 115.6 M, 12 blocks of 197 x (4 + 8) x 768^2 and two products of 197^2 x 768).
TEST(OnnxCounts, VisionTransformerBase) {
  OnnxGraph g;
  g.input("image", {"batch", 3, 224, 224})
      .weight("patches", {768, 3, 16, 16})
      .weight("class", {1, 1, 768})
      .ints("flat", {0, 768, 196})
      .ints("split", {0, 197, 12, 64})
      .ints("merge", {0, 197, 768});
  g.node("Conv", {"image", "patches"}, {"conv"}, {attr_ints("kernel_shape", {16, 16}), attr_ints("strides", {16, 16})}).node("Reshape", {"conv", "flat"}, {"tokens0"});
  g.node("Transpose", {"tokens0"}, {"tokens1"}, {attr_ints("perm", {0, 2, 1})}).node("Shape", {"image"}, {"n"}, {attr("end", 1)}).ints("rest", {1, 768});
  g.node("Concat", {"n", "rest"}, {"class_shape"}, {attr("axis", 0)}).node("Expand", {"class", "class_shape"}, {"class_tokens"});
  g.node("Concat", {"class_tokens", "tokens1"}, {"x0"}, {attr("axis", 1)});
  for (int i = 0; i < 12; ++i) {
    const std::string l = std::to_string(i) + ".", x = "x" + std::to_string(i);
    for (const char* name : {"q", "k", "v", "o"}) g.weight(l + "w" + name, {768, 768});
    g.weight(l + "up", {768, 3072}).weight(l + "down", {3072, 768});
    for (const char* name : {"q", "k", "v"}) {
      g.node("MatMul", {x, l + "w" + name}, {l + name}).node("Reshape", {l + name, "split"}, {l + name + "4"});
      g.node("Transpose", {l + name + "4"}, {l + name + "t"}, {attr_ints("perm", *name == 'k' ? Shape{0, 2, 3, 1} : Shape{0, 2, 1, 3})});
    }
    g.node("MatMul", {l + "qt", l + "kt"}, {l + "s"}).node("Softmax", {l + "s"}, {l + "p"}, {attr("axis", -1)}).node("MatMul", {l + "p", l + "vt"}, {l + "a"});
    g.node("Transpose", {l + "a"}, {l + "at"}, {attr_ints("perm", {0, 2, 1, 3})}).node("Reshape", {l + "at", "merge"}, {l + "am"}).node("MatMul", {l + "am", l + "wo"}, {l + "y"});
    g.node("Add", {x, l + "y"}, {l + "h"}).node("MatMul", {l + "h", l + "up"}, {l + "u"}).node("Gelu", {l + "u"}, {l + "g"}).node("MatMul", {l + "g", l + "down"}, {l + "d"});
    g.node("Add", {l + "h", l + "d"}, {"x" + std::to_string(i + 1)});
  }
  g.output("x12");
  const Count patches = Count{768} * 768 * 196, block = Count{197} * 12 * 768 * 768 + Count{2} * 197 * 197 * 768;
  const auto s = summary_of(g, {{"batch", 2}}, 20);
  EXPECT_EQ(s.macs, 2 * (patches + 12 * block));
  EXPECT_NEAR(to_double(s.macs) / 2e9, 17.5, 0.5);
  EXPECT_EQ(s.outputs[0].shape, (Shape{2, 197, 768}));
}

TEST(OnnxSymbols, UnboundSizesAreListedWithPlaceAndSuggestion) {
  OnnxGraph g;
  g.input("ids", {"batch", "seq"}, test::kInt64).input("mask", {"batch", "past + seq"}, test::kInt64).node("Identity", {"ids"}, {"y"}).output("y");
  const auto summary = model_of(g.file()).summarise({{"batch", 2}});
  ASSERT_FALSE(summary.has_value());
  EXPECT_EQ(summary.error().code, ErrorCode::invalid);
  EXPECT_NE(summary.error().message.find("seq (ids, dimension 1; mask, dimension 1)"), std::string::npos) << summary.error().message;
  EXPECT_NE(summary.error().message.find("past (mask, dimension 1)"), std::string::npos);
  EXPECT_EQ(summary.error().message.find("batch ("), std::string::npos);
  EXPECT_NE(summary.error().hint.find("--dim seq=512"), std::string::npos);
  EXPECT_TRUE(model_of(g.file()).summarise({{"batch", 2}, {"seq", 3}, {"past", 0}}).has_value());
}

TEST(OnnxSymbols, OneSymbolicRunServesManySizes) {
  OnnxGraph g;
  g.input("x", {"batch", "seq", 64})
      .weight("w", {64, 32})
      .node("MatMul", {"x", "w"}, {"y"})
      .node("Transpose", {"y"}, {"t"}, {attr_ints("perm", {0, 2, 1})})
      .node("MatMul", {"y", "t"}, {"z"})
      .output("z");
  const auto model = model_of(g.file());
  EXPECT_EQ(model.macs_expression(), "2048*batch*seq + 32*batch*seq*seq");
  const auto points = model.evaluate_macs({{{"batch", 1}, {"seq", 8}}, {{"batch", 3}, {"seq", 100}}});
  ASSERT_TRUE(points.has_value());
  EXPECT_EQ((*points)[0], summary_of(g, {{"batch", 1}, {"seq", 8}}).macs);
  EXPECT_EQ((*points)[1], summary_of(g, {{"batch", 3}, {"seq", 100}}).macs);
}

TEST(OnnxSymbols, ImpliedEqualitiesAreReported) {
  OnnxGraph g;
  g.input("a", {"batch", "n"}).input("b", {"batch", "m"}).node("Add", {"a", "b"}, {"y"}).output("y");
  const auto equalities = model_of(g.file()).equalities();
  ASSERT_TRUE(equalities.has_value());
  ASSERT_EQ(equalities->size(), 1u);
  EXPECT_EQ((*equalities)[0].left, "n");
  EXPECT_EQ((*equalities)[0].right, "m");
  EXPECT_EQ((*equalities)[0].node, "Add(y)");
}

TEST(OnnxSymbols, ABindingThatTheGraphLacksIsAWarning) {
  OnnxGraph g;
  g.input("x", {"batch", 4}).node("Relu", {"x"}, {"y"}).output("y");
  const auto s = summary_of(g, {{"batch", 2}, {"bacth", 3}});
  ASSERT_EQ(s.warnings.size(), 1u);
  EXPECT_EQ(s.warnings[0].code, "unknown_dimension");
}

TEST(OnnxFunctions, AreWrittenOutWithTheirAttributes) {
  // scale(x) = x W where W's size comes from the caller's attribute.
  Message function;
  function.text(1, "Project").text(4, "x").text(4, "w").text(5, "y").text(6, "alpha").text(10, "mine");
  function.message(7, test::node_message("Gemm", {"x", "w"}, {"y"}, {Message().text(1, "transB").text(21, "alpha").integer(20, 2)}));
  function.message(9, Message().text(1, "").integer(2, 17));
  OnnxGraph g;
  g.input("x", {4, 8}).weight("w", {3, 8}).node("Project", {"x", "w"}, {"y"}, {attr("alpha", 1)}, "mine").output("y");
  const auto summary = model_of(g.file(17, {function})).summarise({});
  ASSERT_TRUE(summary.has_value()) << describe(summary.error());
  EXPECT_EQ(summary->outputs[0].shape, (Shape{4, 3}));
  EXPECT_EQ(summary->macs, Count{4 * 8 * 3});
}

TEST(OnnxErrors, BrokenGraphsAreInvalid) {
  const auto code = [](const std::string& bytes) {
    const auto model = read_onnx_bytes(bytes, "broken.onnx");
    if (!model) return model.error().code;
    const auto graph = model->bind({}, Options());
    return graph ? ErrorCode::gate_failed : graph.error().code;
  };
  EXPECT_EQ(code(""), ErrorCode::invalid);
  EXPECT_EQ(code("version https://git-lfs.github.com/spec/v1\n"), ErrorCode::invalid);
  OnnxGraph cycle;
  cycle.input("x", {1}).node("Add", {"x", "b"}, {"a"}).node("Relu", {"a"}, {"b"}).output("b");
  EXPECT_EQ(code(cycle.file()), ErrorCode::invalid);
  OnnxGraph clash;
  clash.input("x", {1}).node("Relu", {"x"}, {"a"}).node("Tanh", {"x"}, {"a"}).output("a");
  EXPECT_EQ(code(clash.file()), ErrorCode::invalid);
  OnnxGraph huge;
  huge.input("x", {std::int64_t{1} << 40, std::int64_t{1} << 40}).node("Relu", {"x"}, {"a"}).output("a");
  EXPECT_EQ(code(huge.file()), ErrorCode::invalid);
  OnnxGraph negative;
  negative.input("x", {-5, 2}).node("Relu", {"x"}, {"a"}).output("a");
  EXPECT_EQ(code(negative.file()), ErrorCode::invalid);
  OnnxGraph fine;
  fine.input("x", {3, 2}).node("Relu", {"x"}, {"a"}).output("a");
  EXPECT_EQ(code(fine.file()), ErrorCode::gate_failed);  // no error
  const std::string bytes = fine.file();
  for (std::size_t length = 1; length < bytes.size(); ++length) code(bytes.substr(0, length));  // must only return
  // A function that calls itself, and graphs within graphs.
  Message recursive;
  recursive.text(1, "F").text(4, "x").text(5, "y").text(10, "mine").message(7, test::node_message("F", {"x"}, {"y"}, {}, "mine"));
  OnnxGraph caller;
  caller.input("x", {1}).node("F", {"x"}, {"y"}, {}, "mine").output("y");
  EXPECT_EQ(code(caller.file(17, {recursive})), ErrorCode::invalid);
  Message nested;
  for (int i = 0; i < 200; ++i) nested = Message().message(1, test::node_message("If", {"c"}, {"y"}, {attr_graph("then_branch", nested)}));
  EXPECT_EQ(code(Message().message(7, nested).bytes()), ErrorCode::invalid);
}

}  // namespace
}  // namespace rooftile
