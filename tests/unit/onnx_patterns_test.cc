// What is recognised in graphs as exporters write them.
#include <gtest/gtest.h>

#include <algorithm>

#include "estimator/ops/op_work.h"
#include "frontends/onnx/onnx_model.h"
#include "tests/onnx_writer.h"

namespace rooftile {
namespace {

using test::attr;
using test::attr_ints;
using test::OnnxGraph;

Graph graph_of(const OnnxGraph& onnx, AttentionKernel attention = AttentionKernel::fastest, Phase phase = Phase::forward) {
  const auto model = read_onnx_bytes(onnx.file(), "test.onnx");
  EXPECT_TRUE(model.has_value());
  Options options;
  options.phase = phase;
  options.attention = attention;
  auto graph = model->bind({}, options);
  EXPECT_TRUE(graph.has_value()) << (graph ? "" : describe(graph.error()));
  return *std::move(graph);
}

std::vector<OpKind> kinds_of(const Graph& graph) {
  std::vector<OpKind> kinds;
  for (const Operator& op : graph.ops) kinds.push_back(op.kind);
  return kinds;
}
using Kinds = std::vector<OpKind>;

void scalar(OnnxGraph& g, const std::string& name, float value) { g.initializer(test::float_tensor(name, {}, {value})); }

TEST(OnnxPatterns, LayerNormWrittenOut) {
  OnnxGraph g;
  g.input("x", {2, 5, 64}).weight("gamma", {64}).weight("beta", {64});
  scalar(g, "two", 2);
  scalar(g, "eps", 1e-5f);
  g.node("ReduceMean", {"x"}, {"m"}, {attr_ints("axes", {-1})})
      .node("Sub", {"x", "m"}, {"d"})
      .node("Pow", {"d", "two"}, {"s"})
      .node("ReduceMean", {"s"}, {"v"}, {attr_ints("axes", {-1})});
  g.node("Add", {"v", "eps"}, {"e"}).node("Sqrt", {"e"}, {"r"}).node("Div", {"d", "r"}, {"n"}).node("Mul", {"n", "gamma"}, {"g"}).node("Add", {"g", "beta"}, {"y"}).output("y");
  const Graph graph = graph_of(g);
  ASSERT_EQ(kinds_of(graph), Kinds{OpKind::layernorm});
  const auto& a = std::get<NormAttrs>(graph.ops[0].attrs);
  EXPECT_EQ(a.rows, 10);
  EXPECT_EQ(a.cols, 64);
  EXPECT_TRUE(a.weight);
  EXPECT_TRUE(a.bias);
  EXPECT_EQ(graph.ops[0].name, "Add(y)");
}

TEST(OnnxPatterns, RmsNormWrittenOutWithConversions) {
  OnnxGraph g;
  g.input("x", {2, 5, 64}).weight("gamma", {64});
  scalar(g, "two", 2);
  scalar(g, "eps", 1e-6f);
  g.node("Cast", {"x"}, {"f"}, {attr("to", 1)}).node("Pow", {"f", "two"}, {"s"}).node("ReduceMean", {"s"}, {"v"}, {attr_ints("axes", {-1})}).node("Add", {"v", "eps"}, {"e"});
  g.node("Sqrt", {"e"}, {"r"}).node("Reciprocal", {"r"}, {"i"}).node("Mul", {"f", "i"}, {"n"}).node("Mul", {"gamma", "n"}, {"y"}).output("y");
  const Graph graph = graph_of(g);
  ASSERT_EQ(kinds_of(graph), Kinds{OpKind::rmsnorm});
  EXPECT_TRUE(std::get<NormAttrs>(graph.ops[0].attrs).weight);
}

TEST(OnnxPatterns, GeluByErfAndByTanh) {
  OnnxGraph erf;
  erf.input("x", {4, 32});
  scalar(erf, "root", 1.41421356f);
  scalar(erf, "one", 1);
  scalar(erf, "half", 0.5f);
  erf.node("Div", {"x", "root"}, {"a"}).node("Erf", {"a"}, {"b"}).node("Add", {"b", "one"}, {"c"}).node("Mul", {"x", "c"}, {"d"}).node("Mul", {"d", "half"}, {"y"}).output("y");
  const Graph by_erf = graph_of(erf);
  ASSERT_EQ(kinds_of(by_erf), Kinds{OpKind::activation});
  EXPECT_EQ(std::get<PointwiseAttrs>(by_erf.ops[0].attrs).kind, PointwiseKind::gelu);
  EXPECT_EQ(std::get<PointwiseAttrs>(by_erf.ops[0].attrs).numel, 128);

  OnnxGraph tanh;
  tanh.input("x", {4, 32});
  for (const auto& [name, value] : {std::pair{"half", 0.5f}, std::pair{"three", 3.f}, std::pair{"small", 0.044715f}, std::pair{"scale", 0.797884f}, std::pair{"one", 1.f}})
    scalar(tanh, name, value);
  tanh.node("Mul", {"x", "half"}, {"h"}).node("Pow", {"x", "three"}, {"p"}).node("Mul", {"p", "small"}, {"q"}).node("Add", {"x", "q"}, {"r"}).node("Mul", {"r", "scale"}, {"s"});
  tanh.node("Tanh", {"s"}, {"t"}).node("Add", {"t", "one"}, {"u"}).node("Mul", {"h", "u"}, {"y"}).output("y");
  const Graph by_tanh = graph_of(tanh);
  ASSERT_EQ(kinds_of(by_tanh), Kinds{OpKind::activation});
  EXPECT_EQ(std::get<PointwiseAttrs>(by_tanh.ops[0].attrs).kind, PointwiseKind::gelu_new);
}

TEST(OnnxPatterns, SoftCapIsATanhAndNoGelu) {
  OnnxGraph g;
  g.input("x", {4, 32});
  scalar(g, "cap", 30);
  g.node("Div", {"x", "cap"}, {"a"}).node("Tanh", {"a"}, {"b"}).node("Mul", {"b", "cap"}, {"y"}).output("y");
  const Graph graph = graph_of(g);
  ASSERT_EQ(kinds_of(graph), Kinds{OpKind::activation});
  EXPECT_EQ(std::get<PointwiseAttrs>(graph.ops[0].attrs).kind, PointwiseKind::tanh);
}

TEST(OnnxPatterns, SwigluWithBiasesFolded) {
  OnnxGraph g;
  g.input("x", {4, 32}).weight("wg", {32, 64}).weight("wu", {32, 64}).weight("wd", {64, 32}).weight("bg", {64});
  g.node("MatMul", {"x", "wg"}, {"g0"}).node("Add", {"g0", "bg"}, {"g"}).node("MatMul", {"x", "wu"}, {"u"}).node("Sigmoid", {"g"}, {"s"}).node("Mul", {"g", "s"}, {"silu"});
  g.node("Mul", {"silu", "u"}, {"h"}).node("MatMul", {"h", "wd"}, {"y"}).output("y");
  const Graph graph = graph_of(g);
  ASSERT_EQ(kinds_of(graph), (Kinds{OpKind::linear, OpKind::linear, OpKind::gated_activation, OpKind::linear}));
  EXPECT_TRUE(std::get<LinearAttrs>(graph.ops[0].attrs).bias);
  EXPECT_FALSE(std::get<LinearAttrs>(graph.ops[1].attrs).bias);
  EXPECT_EQ(std::get<PointwiseAttrs>(graph.ops[2].attrs).kind, PointwiseKind::silu_mul);
}

// Grouped heads repeated by Unsqueeze, Expand and Reshape, a causal mask from Trilu, scores scaled.
OnnxGraph attention(std::int64_t batch, std::int64_t heads, std::int64_t kv_heads, std::int64_t length, std::int64_t size) {
  OnnxGraph g;
  g.input("q", {batch, length, heads, size}).input("k", {batch, length, kv_heads, size}).input("v", {batch, length, kv_heads, size});
  g.ints("two", {2}).ints("expanded", {batch, kv_heads, heads / kv_heads, length, size}).ints("merged", {batch, heads, length, size}).weight("ones", {1, 1, length, length});
  scalar(g, "scale", 8);
  g.node("Transpose", {"q"}, {"qt"}, {attr_ints("perm", {0, 2, 1, 3})});
  for (const std::string& x : {std::string("k"), std::string("v")}) {
    g.node("Transpose", {x}, {x + "t"}, {attr_ints("perm", {0, 2, 1, 3})}).node("Unsqueeze", {x + "t", "two"}, {x + "u"}).node("Expand", {x + "u", "expanded"}, {x + "e"});
    g.node("Reshape", {x + "e", "merged"}, {x + "r"});
  }
  g.node("Transpose", {"kr"}, {"kk"}, {attr_ints("perm", {0, 1, 3, 2})}).node("MatMul", {"qt", "kk"}, {"s"}).node("Div", {"s", "scale"}, {"ss"});
  g.node("Trilu", {"ones"}, {"mask"}, {attr("upper", 0)}).node("Add", {"ss", "mask"}, {"sm"}).node("Softmax", {"sm"}, {"p"}, {attr("axis", -1)});
  g.node("MatMul", {"p", "vr"}, {"o"}).node("Transpose", {"o"}, {"y"}, {attr_ints("perm", {0, 2, 1, 3})}).output("y");
  return g;
}

TEST(OnnxPatterns, AttentionWithGroupedHeadsAndCausalMask) {
  const Graph graph = graph_of(attention(2, 8, 2, 16, 4));
  ASSERT_EQ(kinds_of(graph), Kinds{OpKind::attention});
  const auto& a = std::get<AttentionAttrs>(graph.ops[0].attrs);
  EXPECT_EQ(a.batch, 2);
  EXPECT_EQ(a.heads, 8);
  EXPECT_EQ(a.kv_heads, 2);
  EXPECT_EQ(a.seq_q, 16);
  EXPECT_EQ(a.seq_kv, 16);
  EXPECT_EQ(a.head_dim, 4);
  EXPECT_TRUE(a.causal);
}

TEST(OnnxPatterns, StandardAttentionKeepsItsStages) {
  const Graph graph = graph_of(attention(2, 8, 2, 16, 4), AttentionKernel::standard);
  const Kinds kinds = kinds_of(graph);
  EXPECT_EQ(std::count(kinds.begin(), kinds.end(), OpKind::matmul), 2);
  EXPECT_EQ(std::count(kinds.begin(), kinds.end(), OpKind::softmax), 1);
  EXPECT_EQ(std::count(kinds.begin(), kinds.end(), OpKind::attention), 0);
}

TEST(OnnxPatterns, RotaryEmbedding) {
  OnnxGraph g;
  g.input("x", {2, 4, 16, 8}).weight("cos", {1, 1, 16, 8}).weight("sin", {1, 1, 16, 8}).ints("0", {0}).ints("4", {4}).ints("8", {8}).ints("3", {3});
  g.node("Mul", {"x", "cos"}, {"a"}).node("Slice", {"x", "0", "4", "3"}, {"x1"}).node("Slice", {"x", "4", "8", "3"}, {"x2"}).node("Neg", {"x2"}, {"n"});
  g.node("Concat", {"n", "x1"}, {"r"}, {attr("axis", -1)}).node("Mul", {"r", "sin"}, {"b"}).node("Add", {"a", "b"}, {"y"}).output("y");
  const Graph graph = graph_of(g);
  ASSERT_EQ(kinds_of(graph), Kinds{OpKind::rotary});
  const auto& a = std::get<RotaryAttrs>(graph.ops[0].attrs);
  EXPECT_EQ(a.tokens * a.heads * a.rotary_dim, 2 * 4 * 16 * 8);
}

// Patches as ViT exports write them: the transposition is read in place by the concatenation with the class token, whose position the classifier takes as a view.
TEST(OnnxPatterns, ClassTokenIsOneCopy) {
  OnnxGraph g;
  g.input("image", {2, 3, 32, 32}).weight("patches", {64, 3, 8, 8}).weight("class", {2, 1, 64}).weight("positions", {1, 17, 64}).weight("head", {64, 10});
  g.ints("flat", {2, 64, 16}).ints("first", {0}, true);
  g.node("Conv", {"image", "patches"}, {"conv"}, {attr_ints("kernel_shape", {8, 8}), attr_ints("strides", {8, 8})}).node("Reshape", {"conv", "flat"}, {"columns"});
  g.node("Transpose", {"columns"}, {"tokens"}, {attr_ints("perm", {0, 2, 1})}).node("Concat", {"class", "tokens"}, {"all"}, {attr("axis", 1)});
  g.node("Add", {"all", "positions"}, {"x"}).node("Gather", {"x", "first"}, {"token"}, {attr("axis", 1)}).node("MatMul", {"token", "head"}, {"y"}).output("y");
  const Graph graph = graph_of(g);
  ASSERT_EQ(kinds_of(graph), (Kinds{OpKind::patch_embedding, OpKind::copy, OpKind::elementwise, OpKind::linear}));
  EXPECT_EQ(std::get<PointwiseAttrs>(graph.ops[1].attrs).kind, PointwiseKind::concat);
  EXPECT_EQ(std::get<PointwiseAttrs>(graph.ops[1].attrs).numel, 2 * 17 * 64);
}

// GPT-NeoX: queries, keys and values side by side, brought to the front together; a quarter of each head is rotated and joins the rest. Two kernels.
TEST(OnnxPatterns, PartialRotationOfPackedHeads) {
  OnnxGraph g;
  g.input("x", {2, 16, 4, 96})
      .weight("cos", {1, 1, 16, 8})
      .weight("sin", {1, 1, 16, 8})
      .ints("0", {0})
      .ints("4", {4})
      .ints("8", {8})
      .ints("32", {32})
      .ints("3", {3})
      .ints("thirds", {32, 32, 32});
  g.node("Transpose", {"x"}, {"heads"}, {attr_ints("perm", {0, 2, 1, 3})}).node("Split", {"heads", "thirds"}, {"q", "k", "v"}, {attr("axis", -1)});
  for (const std::string x : {"q", "k"}) {
    g.node("Slice", {x, "0", "8", "3"}, {x + "r"})
        .node("Slice", {x, "8", "32", "3"}, {x + "p"})
        .node("Mul", {x + "r", "cos"}, {x + "a"})
        .node("Slice", {x + "r", "0", "4", "3"}, {x + "1"});
    g.node("Slice", {x + "r", "4", "8", "3"}, {x + "2"}).node("Neg", {x + "2"}, {x + "n"}).node("Concat", {x + "n", x + "1"}, {x + "s"}, {attr("axis", -1)});
    g.node("Mul", {x + "s", "sin"}, {x + "b"}).node("Add", {x + "a", x + "b"}, {x + "e"}).node("Concat", {x + "e", x + "p"}, {x + "f"}, {attr("axis", -1)});
  }
  g.node("Transpose", {"kf"}, {"kt"}, {attr_ints("perm", {0, 1, 3, 2})}).node("MatMul", {"qf", "kt"}, {"s"}).node("Softmax", {"s"}, {"w"}, {attr("axis", -1)});
  g.node("MatMul", {"w", "v"}, {"o"}).node("Transpose", {"o"}, {"y"}, {attr_ints("perm", {0, 2, 1, 3})}).output("y");
  const Graph graph = graph_of(g);
  ASSERT_EQ(kinds_of(graph), (Kinds{OpKind::rotary, OpKind::attention}));
  const auto& rotary = std::get<RotaryAttrs>(graph.ops[0].attrs);
  EXPECT_EQ(rotary.rotary_dim, 8);
  EXPECT_EQ(rotary.heads, 4);
  EXPECT_EQ(rotary.kv_heads, 4);
  EXPECT_EQ(rotary.tokens, 32);
}

// Words, positions and token types as BERT adds them: the words are a look-up, each other table is read by the sum that uses it.
TEST(OnnxPatterns, PositionTablesAreReadByTheirSum) {
  OnnxGraph g;
  g.input("ids", {2, 8}, test::kInt64).input("kinds", {2, 8}, test::kInt64).weight("words", {1000, 64}).weight("types", {2, 64}).weight("places", {16, 64});
  g.input("positions", {1, 8}, test::kInt64).node("Gather", {"words", "ids"}, {"w"}).node("Gather", {"types", "kinds"}, {"t"}).node("Gather", {"places", "positions"}, {"p"});
  g.node("Add", {"w", "t"}, {"a"}).node("Add", {"a", "p"}, {"y"}).output("y");
  const Graph graph = graph_of(g);
  ASSERT_EQ(kinds_of(graph), (Kinds{OpKind::embedding, OpKind::position_add, OpKind::position_add}));
  EXPECT_EQ(std::get<EmbeddingAttrs>(graph.ops[0].attrs).vocab, 1000);
  EXPECT_EQ(std::get<PointwiseAttrs>(graph.ops[1].attrs).parameters, 2 * 64);
  EXPECT_EQ(std::get<PointwiseAttrs>(graph.ops[2].attrs).parameters, 16 * 64);
}

// A mask made of an input step by step is one kernel.
TEST(OnnxPatterns, MaskChainsAreOneKernel) {
  OnnxGraph g;
  g.input("seen", {2, 16}, test::kInt64).input("x", {2, 16});
  scalar(g, "zero", 0);
  scalar(g, "low", -1e9f);
  g.node("Cast", {"seen"}, {"flags"}, {attr("to", 9)}).node("Not", {"flags"}, {"hidden"}).node("Where", {"hidden", "low", "zero"}, {"mask"}).node("Softmax", {"x"}, {"p"});
  g.node("Add", {"p", "mask"}, {"y"}).output("y");
  EXPECT_EQ(kinds_of(graph_of(g)), (Kinds{OpKind::elementwise, OpKind::softmax, OpKind::residual}));
}

// The standard's Attention as exporters of opset 23 use it: heads to the front and back, key heads repeated, a triangle as mask.
TEST(OnnxPatterns, AttentionOperatorWithWhatIsAroundIt) {
  OnnxGraph g;
  g.input("q", {2, 16, 8, 4})
      .input("k", {2, 16, 2, 4})
      .input("v", {2, 16, 2, 4})
      .ints("two", {2})
      .ints("wide", {2, 2, 4, 16, 4})
      .ints("merged", {2, 8, 16, 4})
      .weight("ones", {16, 16});
  g.node("Transpose", {"q"}, {"qt"}, {attr_ints("perm", {0, 2, 1, 3})}).node("Trilu", {"ones"}, {"mask"}, {attr("upper", 0)});
  for (const std::string x : {"k", "v"}) {
    g.node("Transpose", {x}, {x + "t"}, {attr_ints("perm", {0, 2, 1, 3})}).node("Unsqueeze", {x + "t", "two"}, {x + "u"}).node("Expand", {x + "u", "wide"}, {x + "e"});
    g.node("Reshape", {x + "e", "merged"}, {x + "r"});
  }
  g.node("Attention", {"qt", "kr", "vr", "mask"}, {"o"}).node("Transpose", {"o"}, {"y"}, {attr_ints("perm", {0, 2, 1, 3})}).output("y");
  const Graph graph = graph_of(g);
  ASSERT_EQ(kinds_of(graph), Kinds{OpKind::attention});
  const auto& a = std::get<AttentionAttrs>(graph.ops[0].attrs);
  EXPECT_EQ(a.heads, 8);
  EXPECT_EQ(a.kv_heads, 2);
  EXPECT_TRUE(a.causal);
  EXPECT_FALSE(a.position_bias);
}

// A cache comes in, new keys and values join it, and it goes out: a step writes its new tokens, keys and values by one kernel.
TEST(OnnxPatterns, CachesAreWrittenNotCopied) {
  OnnxGraph g;
  g.input("q", {2, 8, 3, 16}).input("k", {2, 4, 3, 16}).input("v", {2, 4, 3, 16}).input("past_k", {2, 4, 9, 16}).input("past_v", {2, 4, 9, 16});
  g.ints("axis", {2}).ints("wide", {2, 4, 2, 12, 16}).ints("heads", {2, 8, 12, 16});
  for (const std::string x : {"k", "v"}) {
    g.node("Concat", {"past_" + x, x}, {"present_" + x}, {attr("axis", 2)}).node("Unsqueeze", {"present_" + x, "axis"}, {x + "u"}).node("Expand", {x + "u", "wide"}, {x + "e"});
    g.node("Reshape", {x + "e", "heads"}, {x + "r"}).output("present_" + x);
  }
  g.node("Transpose", {"kr"}, {"kt"}, {attr_ints("perm", {0, 1, 3, 2})}).node("MatMul", {"q", "kt"}, {"s"}).node("Softmax", {"s"}, {"p"}, {attr("axis", -1)});
  g.node("MatMul", {"p", "vr"}, {"y"}).output("y");
  const Graph graph = graph_of(g);
  ASSERT_EQ(kinds_of(graph), (Kinds{OpKind::cache_write, OpKind::attention}));
  const auto& cache = std::get<CacheWriteAttrs>(graph.ops[0].attrs);
  EXPECT_EQ(cache.tokens, 2 * 3);
  EXPECT_EQ(cache.elements_per_token, 2 * 4 * 16);
  const auto& a = std::get<AttentionAttrs>(graph.ops[1].attrs);
  EXPECT_EQ(a.kv_heads, 4);
  EXPECT_EQ(a.seq_q, 3);
  EXPECT_EQ(a.seq_kv, 12);
}

TEST(OnnxPatterns, LayersAreFoldedAndTheirWorkIsKept) {
  OnnxGraph g;
  g.input("x0", {4, 32});
  for (int i = 0; i < 6; ++i) {
    const std::string l = std::to_string(i), next = std::to_string(i + 1);
    g.weight("u" + l, {32, 64})
        .weight("d" + l, {64, 32})
        .node("MatMul", {"x" + l, "u" + l}, {"a" + l})
        .node("Relu", {"a" + l}, {"r" + l})
        .node("MatMul", {"r" + l, "d" + l}, {"b" + l});
    g.node("Add", {"x" + l, "b" + l}, {"x" + next});
  }
  g.weight("head", {32, 2000}).node("MatMul", {"x6", "head"}, {"logits"}).output("logits");
  const Graph graph = graph_of(g, AttentionKernel::fastest, Phase::train);
  ASSERT_EQ(kinds_of(graph), (Kinds{OpKind::linear, OpKind::activation, OpKind::linear, OpKind::residual, OpKind::lm_head, OpKind::cross_entropy}));
  ASSERT_EQ(graph.segments.size(), 2u);
  EXPECT_EQ(graph.segments[0].repeat, 6);
  EXPECT_EQ(graph.segments[0].role, SegmentRole::layer);
  EXPECT_EQ(graph.layers.size(), 6u);
  EXPECT_EQ(graph.model.layers, 6);
  OpWork work;
  work.begin(graph, {});
  Count dense = 0, parameters = 0;
  for (const Segment& segment : graph.segments) {
    for (const Operator& op : graph.ops_of(segment)) {
      work_of(op, work);
      parameters += work.parameters * segment.repeat;
      for (const KernelUse& use : work.forward_uses) dense += use.conventions.dense * segment.repeat;
    }
  }
  EXPECT_EQ(dense, Count{2} * 4 * (6 * 2 * 32 * 64 + 32 * 2000));
  EXPECT_EQ(parameters, Count{6 * 2 * 32 * 64 + 32 * 2000});
}

}  // namespace
}  // namespace rooftile
