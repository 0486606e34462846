// Walks the operator table: every row has a hand-derived golden case, documentation, and counts that scale as they should.
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <map>
#include <sstream>

#include "estimator/ops/op_work.h"

namespace rooftile {
namespace {

// One operator with small sizes and what it must do, worked out by hand (see the comment of each row).
struct GoldenCase {
  OpAttrs attrs;
  std::int64_t forward_flops = 0;   // algorithmic, all forward kernels
  std::int64_t backward_flops = 0;  // algorithmic, all backward kernels
  std::int64_t dense = 0;           // 2 x MACs forward
  std::int64_t model = 0;           // Megatron convention forward
  std::int64_t parameters = 0;
  double saved_bytes = 0;  // beside graph tensors
  int saved_tensors = 0;
  std::size_t forward_kernels = 1, backward_kernels = 1;
};

Operator make(OpKind kind, const OpAttrs& attrs) {
  Operator op;
  op.kind = kind;
  op.name = "x";
  op.dtype = DType::bf16;
  op.attrs = attrs;
  op.first_edge = 0;
  op.inputs = 3;
  op.outputs = 1;
  return op;
}

Graph four_tensors() {
  Graph graph;
  graph.tensors = {{64, DType::bf16}, {64, DType::bf16}, {64, DType::bf16}, {64, DType::bf16}};
  graph.edges = {0, 1, 2, 3};
  return graph;
}

const std::map<OpKind, GoldenCase>& golden() {
  static const std::map<OpKind, GoldenCase> kCases = {
      // y[8, 32] = x[8, 16] W: 2 x 8 x 16 x 32 = 8192; backward two of them and 8 x 32 = 256 additions of the bias gradient; 16 x 32 + 32 parameters; keeps x
      {OpKind::linear, {LinearAttrs{.tokens = 8, .in = 16, .out = 32, .bias = true}, 8192, 2 * 8192 + 256, 8192, 8192, 544, 0, 1, 1, 3}},
      // tied: the same work without parameters
      {OpKind::lm_head, {LinearAttrs{.tokens = 8, .in = 16, .out = 100, .tied = true}, 25600, 51200, 25600, 25600, 0, 0, 1, 1, 2}},
      // 8 tokens x 2 of 4 experts: 16 rows: 2 x 16 x 16 x 32 = 16384; 4 x 16 x 32 = 2048 parameters
      {OpKind::grouped_linear, {LinearAttrs{.tokens = 8, .in = 16, .out = 32, .experts = 4, .top_k = 2}, 16384, 32768, 16384, 16384, 2048, 0, 1, 1, 2}},
      // 2 x 3 x (4 x 5 x 6) = 720 forward, two of them backward, keeps both operands
      {OpKind::matmul, {MatmulAttrs{.batch = 3, .m = 4, .n = 5, .k = 6}, 720, 1440, 720, 720, 0, 0, 2, 1, 2}},
      // causal 4 x 4: 10 pairs x 2 heads x 2 x (8 + 8) = 640 forward; backward five matmuls for two: 1600; dense 16 pairs: 1024; model 8 pairs: 512; lse 2 x 4 x 4 B; keeps q, k,
      // v, o
      {OpKind::attention,
       {AttentionAttrs{.batch = 1, .heads = 2, .kv_heads = 1, .seq_q = 4, .seq_kv = 4, .head_dim = 8, .v_head_dim = 8, .causal = true, .model_flops_causal = true}, 640, 1600, 1024,
        512, 0, 32, 4, 1, 1}},
      // statistics: 8 bytes a row; weight and bias of 16
      {OpKind::layernorm, {NormAttrs{.rows = 4, .cols = 16, .weight = true, .bias = true}, -1, -1, 0, 0, 32, 32, 1, 1, 1}},
      {OpKind::rmsnorm, {NormAttrs{.rows = 4, .cols = 16}, -1, -1, 0, 0, 16, 16, 1, 1, 1}},
      // gelu: 8 FLOPs an element forward, 12 backward
      {OpKind::activation, {PointwiseAttrs{.kind = PointwiseKind::gelu, .numel = 100}, 800, 1200, 0, 0, 0, 0, 3, 1, 1}},
      {OpKind::gated_activation, {PointwiseAttrs{.kind = PointwiseKind::silu_mul, .numel = 100}, 500, 1000, 0, 0, 0, 0, 3, 1, 1}},
      // 4 tokens x (2 + 1) heads x 8 = 96 elements x 3
      {OpKind::rotary, {RotaryAttrs{.tokens = 4, .heads = 2, .kv_heads = 1, .rotary_dim = 8}, 288, 288, 0, 0, 0, 0, 0, 1, 1}},
      {OpKind::residual, {PointwiseAttrs{.kind = PointwiseKind::add, .numel = 100}, 100, 100, 0, 0, 0, 0, 0, 1, 1}},
      // one byte of mask per element
      {OpKind::dropout, {PointwiseAttrs{.kind = PointwiseKind::dropout, .numel = 100}, 200, 100, 0, 0, 0, 100, 0, 1, 1}},
      {OpKind::elementwise, {PointwiseAttrs{.kind = PointwiseKind::mul, .numel = 100}, 100, 100, 0, 0, 0, 0, 3, 1, 1}},
      // ids of 8 bytes; 50 x 16 parameters
      {OpKind::embedding, {EmbeddingAttrs{.tokens = 4, .vocab = 50, .hidden = 16}, 0, -1, 0, 0, 800, 32, 0, 1, 1}},
      // a table of 50 positions is added to 2 sequences: 100 additions; its gradient sums over the 2 sequences
      {OpKind::position_add, {PointwiseAttrs{.kind = PointwiseKind::bias, .numel = 100, .parameters = 50}, 100, 100, 0, 0, 50, 0, 0, 1, 1}},
      {OpKind::relative_bias, {RelativeBiasAttrs{.heads = 2, .buckets = 32, .seq_q = 4, .seq_kv = 4}, 0, 32, 0, 0, 64, 0, 1, 1, 1}},
      {OpKind::alibi_bias, {RelativeBiasAttrs{.heads = 2, .buckets = 0, .seq_q = 4, .seq_kv = 4}, 0, 0, 0, 0, 0, 0, 1, 1, 0}},
      {OpKind::softmax, {SoftmaxAttrs{.rows = 4, .cols = 16}, -1, -1, 0, 0, 0, 0, 1, 1, 1}},
      // maximum and sum of each row in fp32: 8 bytes
      {OpKind::cross_entropy, {CrossEntropyAttrs{.tokens = 4, .vocab = 50}, -1, -1, 0, 0, 0, 32, 1, 1, 1}},
      // probabilities of 4 tokens x 8 experts in fp32
      {OpKind::router, {RouterAttrs{.tokens = 4, .experts = 8, .top_k = 2}, -1, -1, 0, 0, 0, 128, 0, 3, 1}},
      {OpKind::moe_move, {MoeMoveAttrs{.tokens = 4, .hidden = 16, .top_k = 2}, 0, -1, 0, 0, 0, 0, 0, 1, 1}},
      // 2 images x 4 patches, 3 channels x 16 pixels -> 8: 2 x 8 x 8 x 48 = 6144; no input gradient: one matmul and 8 x 8 bias additions backward
      {OpKind::patch_embedding,
       {ConvolutionAttrs{
            .batch = 2, .in_channels = 3, .out_channels = 8, .kernel_elements = 16, .out_positions = 4, .in_positions = 64, .bias = true, .input_gradient = false, .patches = true},
        6144, 6144 + 64, 6144, 6144, 8 * 48 + 8, 0, 1, 1, 2}},
      // depthwise, 4 groups of 1 -> 2 channels, 9 taps, 10 positions: 2 x 10 x 8 x 9 = 1440
      {OpKind::convolution,
       {ConvolutionAttrs{.batch = 1, .in_channels = 4, .out_channels = 8, .groups = 4, .kernel_elements = 9, .out_positions = 10, .in_positions = 10}, 1440, 2880, 1440, 1440, 72,
        0, 1, 1, 2}},
      {OpKind::reduction, {ReductionAttrs{.rows = 4, .cols = 16}, 64, 0, 0, 0, 0, 0, 0, 1, 1}},
      {OpKind::copy, {PointwiseAttrs{.kind = PointwiseKind::permute, .numel = 100}, 0, 0, 0, 0, 0, 0, 0, 1, 1}},
      {OpKind::cache_write, {CacheWriteAttrs{.tokens = 4, .elements_per_token = 32}, 0, 0, 0, 0, 0, 0, 0, 1, 0}},
      {OpKind::optimizer, {OptimizerAttrs{.kind = OptimizerKind::adamw, .parameters = 100}, -1, 0, 0, 0, 0, 0, 0, 1, 0}},
      {OpKind::collective, {CollectiveAttrs{.kind = CollectiveKind::all_reduce, .bytes = 1024, .ranks = 2}, -1, 0, 0, 0, 0, 0, 0, 1, 0}},
      {OpKind::free, {FreeAttrs{}, 0, 0, 0, 0, 0, 0, 0, 0, 0}},
  };
  return kCases;
}

TEST(Operators, EveryRowHasItsGoldenCase) {
  const Graph graph = four_tensors();
  OpWork work;
  work.begin(graph, {});
  for (const OperatorRow& row : operator_table()) {
    SCOPED_TRACE(row.name);
    ASSERT_TRUE(golden().contains(row.kind)) << "operator without a golden case";
    const GoldenCase& expected = golden().at(row.kind);
    work_of(make(row.kind, expected.attrs), work);
    Count forward = 0, backward = 0, dense = 0, model = 0;
    for (const KernelUse& use : work.forward_uses) forward += use.flops, dense += use.conventions.dense, model += use.conventions.model;
    for (const KernelUse& use : work.backward_uses) backward += use.flops;
    if (expected.forward_flops >= 0) {
      EXPECT_EQ(static_cast<std::int64_t>(forward), expected.forward_flops);
    }
    if (expected.backward_flops >= 0) {
      EXPECT_EQ(static_cast<std::int64_t>(backward), expected.backward_flops);
    }
    EXPECT_EQ(static_cast<std::int64_t>(dense), expected.dense);
    EXPECT_EQ(static_cast<std::int64_t>(model), expected.model);
    EXPECT_EQ(static_cast<std::int64_t>(work.parameters), expected.parameters);
    EXPECT_EQ(work.forward_uses.size(), expected.forward_kernels);
    EXPECT_EQ(work.backward_uses.size(), expected.backward_kernels);
    double bytes = 0;
    int tensors = 0;
    for (const SavedTensor& saved : work.saved) saved.extra_bytes > 0 ? bytes += saved.extra_bytes : ++tensors;
    EXPECT_DOUBLE_EQ(bytes, expected.saved_bytes);
    EXPECT_EQ(tensors, expected.saved_tensors);
  }
}

TEST(Operators, EveryRowIsDocumented) {
  std::ifstream file(std::string(ROOFTILE_SOURCE_DIR) + "/docs/operators.md");
  ASSERT_TRUE(file) << "docs/operators.md is missing: docs/regenerate.sh writes it";
  std::stringstream text;
  text << file.rdbuf();
  for (const OperatorRow& row : operator_table()) {
    EXPECT_FALSE(row.doc.empty()) << row.name;
    EXPECT_NE(text.str().find("| `" + std::string(row.name) + "` |"), std::string::npos) << row.name << " is not in docs/operators.md";
    EXPECT_NE(text.str().find(row.doc), std::string::npos) << row.name << ": docs/operators.md has another description";
  }
}

TEST(Operators, MatmulWorkIsLinearInTokens) {
  const Graph graph = four_tensors();
  OpWork once, twice;
  once.begin(graph, {});
  twice.begin(graph, {});
  for (const OpKind kind : {OpKind::linear, OpKind::lm_head, OpKind::grouped_linear}) {
    LinearAttrs attrs = std::get<LinearAttrs>(golden().at(kind).attrs);
    work_of(make(kind, attrs), once);
    attrs.tokens *= 2;
    work_of(make(kind, attrs), twice);
    ASSERT_EQ(once.backward_uses.size(), twice.backward_uses.size());
    EXPECT_EQ(2 * static_cast<std::int64_t>(once.forward_uses[0].flops), static_cast<std::int64_t>(twice.forward_uses[0].flops));
    for (std::size_t i = 0; i < once.backward_uses.size(); ++i)
      EXPECT_EQ(2 * static_cast<std::int64_t>(once.backward_uses[i].flops), static_cast<std::int64_t>(twice.backward_uses[i].flops));
  }
}

TEST(Operators, StandardAttentionIsFourStagesWithTheSameConventions) {
  const Graph graph = four_tensors();
  OpWork fused, standard;
  fused.begin(graph, {});
  standard.begin(graph, {.attention = AttentionKernel::standard});
  const Operator op = make(OpKind::attention, golden().at(OpKind::attention).attrs);
  work_of(op, fused);
  work_of(op, standard);
  ASSERT_EQ(standard.forward_uses.size(), 4u);
  EXPECT_EQ(standard.forward_uses[0].part, "qk");
  EXPECT_EQ(standard.forward_uses[2].part, "softmax");
  EXPECT_EQ(standard.forward_uses[3].part, "pv");
  const auto sum = [](const std::vector<KernelUse>& uses) {
    ModelFlops total;
    for (const KernelUse& use : uses) total.dense += use.conventions.dense, total.model += use.conventions.model;
    return total;
  };
  EXPECT_EQ(static_cast<std::int64_t>(sum(fused.forward_uses).dense), static_cast<std::int64_t>(sum(standard.forward_uses).dense));
  EXPECT_EQ(static_cast<std::int64_t>(sum(fused.forward_uses).model), static_cast<std::int64_t>(sum(standard.forward_uses).model));
  EXPECT_EQ(static_cast<std::int64_t>(sum(fused.backward_uses).dense), static_cast<std::int64_t>(sum(standard.backward_uses).dense));
  EXPECT_EQ(static_cast<std::int64_t>(sum(fused.backward_uses).model), static_cast<std::int64_t>(sum(standard.backward_uses).model));
}

TEST(Operators, WindowCountsMinOfWindowAndCausal) {
  const Graph graph = four_tensors();
  OpWork work;
  work.begin(graph, {});
  AttentionAttrs attrs{
      .batch = 1, .heads = 1, .kv_heads = 1, .seq_q = 4096, .seq_kv = 4096, .head_dim = 64, .v_head_dim = 64, .causal = true, .window = 128, .model_flops_causal = true};
  work_of(make(OpKind::attention, attrs), work);
  // 2 x (64 + 64) FLOPs a pair; 4096 queries x 128 keys
  EXPECT_EQ(static_cast<std::int64_t>(work.forward_uses[0].conventions.model), 256LL * 4096 * 128);
  attrs.window = 4000;  // wider than the causal mean of 2048
  work_of(make(OpKind::attention, attrs), work);
  EXPECT_EQ(static_cast<std::int64_t>(work.forward_uses[0].conventions.model), 256LL * 4096 * 2048);
}

TEST(Operators, ActiveExpertsWhenTokensAreFew) {
  const Graph graph = four_tensors();
  OpWork work;
  work.begin(graph, {});
  // One token visits exactly its top 8 of 128 experts; FLOPs are of 8 rows.
  work_of(make(OpKind::grouped_linear, LinearAttrs{.tokens = 1, .in = 16, .out = 32, .experts = 128, .top_k = 8}), work);
  EXPECT_EQ(work.forward_uses[0].call.gemm().batch, 8);
  EXPECT_EQ(work.forward_uses[0].call.gemm().m, 1);
  EXPECT_EQ(static_cast<std::int64_t>(work.forward_uses[0].flops), 2 * 8 * 16 * 32);
  // 8 tokens: 128 (1 - (1 - 1/16)^8) = 51.6 experts
  work_of(make(OpKind::grouped_linear, LinearAttrs{.tokens = 8, .in = 16, .out = 32, .experts = 128, .top_k = 8}), work);
  EXPECT_EQ(work.forward_uses[0].call.gemm().batch, 52);
}

}  // namespace
}  // namespace rooftile
