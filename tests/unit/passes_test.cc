// Each pass alone, on a graph small enough to work out by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "estimator/passes/predict.h"
#include "estimator/passes/schedule.h"
#include "estimator/passes/step.h"

namespace rooftile {
namespace {

// Two sequences of 8 tokens through `layers` layers of one norm, one column- and one row-parallel linear, then a head and its loss.
Graph small_graph(std::int64_t layers = 4) {
  Graph graph;
  graph.model.hidden = 16;
  graph.model.heads = 4;
  graph.model.kv_heads = 4;
  graph.batch = 2;
  graph.seq = 8;
  graph.tokens = 16;
  const auto tensor = [&](std::int64_t elements, Split split) {
    graph.tensors.push_back({elements, DType::bf16, TensorRole::activation, split});
    return static_cast<TensorId>(graph.tensors.size() - 1);
  };
  const auto add = [&](OpKind kind, std::string_view name, OpAttrs attrs, std::vector<TensorId> inputs, std::vector<TensorId> outputs) {
    Operator op;
    op.kind = kind;
    op.name = name;
    op.attrs = attrs;
    op.first_edge = static_cast<std::uint32_t>(graph.edges.size());
    op.inputs = static_cast<std::uint16_t>(inputs.size());
    op.outputs = static_cast<std::uint16_t>(outputs.size());
    graph.edges.insert(graph.edges.end(), inputs.begin(), inputs.end());
    graph.edges.insert(graph.edges.end(), outputs.begin(), outputs.end());
    graph.ops.push_back(op);
  };
  const auto segment = [&](std::string_view name, SegmentRole role, std::uint32_t first, std::int64_t repeat, TensorId input) {
    Segment s;
    s.name = name;
    s.role = role;
    s.first_op = first;
    s.op_count = static_cast<std::uint32_t>(graph.ops.size()) - first;
    s.repeat = repeat;
    s.input = input;
    graph.segments.push_back(s);
  };
  const TensorId ids = tensor(16, Split::none), x = tensor(256, Split::sequence), normed = tensor(256, Split::sequence), wide = tensor(1024, Split::column),
                 y = tensor(256, Split::sequence), logits = tensor(16 * 100, Split::column);
  add(OpKind::embedding, "embedding", EmbeddingAttrs{.tokens = 16, .vocab = 100, .hidden = 16}, {ids}, {x});
  segment("embedding", SegmentRole::prologue, 0, 1, ids);
  add(OpKind::rmsnorm, "norm", NormAttrs{.rows = 16, .cols = 16}, {x}, {normed});
  add(OpKind::linear, "up", LinearAttrs{.tokens = 16, .in = 16, .out = 64, .split = Split::column}, {normed}, {wide});
  add(OpKind::linear, "down", LinearAttrs{.tokens = 16, .in = 64, .out = 16, .split = Split::row}, {wide}, {y});
  segment("layer", SegmentRole::layer, 1, layers, x);
  add(OpKind::lm_head, "lm_head", LinearAttrs{.tokens = 16, .in = 16, .out = 100, .split = Split::column}, {y}, {logits});
  add(OpKind::cross_entropy, "loss", CrossEntropyAttrs{.tokens = 16, .vocab = 100}, {logits}, {});
  segment("head", SegmentRole::epilogue, 4, 1, y);
  graph.layers.assign(static_cast<std::size_t>(layers), 1);
  return graph;
}

Runtime plain_runtime() {
  Runtime runtime;
  runtime.name = "plain";
  return runtime;
}

Options training() {
  Options options;
  options.mbs = 2;
  options.gbs = 2;
  options.seq = 8;
  return options;
}

const CollectiveAttrs* find_collective(const StepGraph& rank, std::string_view name, std::string_view suffix = "") {
  for (const StepEntry& entry : rank.entries) {
    const Operator& op = rank.graph.ops[entry.op];
    if (op.kind == OpKind::collective && op.name == name && entry.suffix == suffix) return &std::get<CollectiveAttrs>(op.attrs);
  }
  return nullptr;
}

StepGraph rank_of(const Graph& graph, const Options& options, const Runtime& runtime) {
  const StepGraph step = differentiate(graph, options);
  return shard(step, options, runtime, stages_of(step.graph, options.layout)[0]);
}

TEST(CountParameters, SumsTheTable) {
  const ParameterCounts counts = count_parameters(small_graph(4));
  // embedding 1600, four layers of 16 + 1024 + 1024, head 1600
  EXPECT_EQ(static_cast<std::int64_t>(counts.all), 1600 + 4 * 2064 + 1600);
  EXPECT_EQ(static_cast<std::int64_t>(counts.embedding), 1600);
}

TEST(CountParameters, LinearInLayers) {
  const auto at = [](std::int64_t layers) { return static_cast<std::int64_t>(count_parameters(small_graph(layers)).all); };
  EXPECT_EQ(at(8) - at(4), at(4) - at(0));
}

TEST(Differentiate, ForwardAloneOutsideTraining) {
  Options options = training();
  options.phase = Phase::forward;
  for (const StepEntry& entry : differentiate(small_graph(), options).entries) EXPECT_EQ(entry.phase, StepPhase::forward);
}

TEST(Differentiate, BackwardRunsInReverseAndOptimizerLast) {
  const StepGraph step = differentiate(small_graph(), training());
  std::vector<std::uint32_t> forward, backward;
  for (const StepEntry& entry : step.entries) {
    if (entry.phase == StepPhase::forward) forward.push_back(entry.op);
    if (entry.phase == StepPhase::backward) backward.push_back(entry.op);
  }
  std::reverse(backward.begin(), backward.end());
  EXPECT_EQ(forward, backward);
  EXPECT_EQ(step.entries.back().phase, StepPhase::optimizer);
}

TEST(Differentiate, FullRecomputationRepeatsLayersOnly) {
  Options options = training();
  options.recompute = Recompute::full;
  const StepGraph step = differentiate(small_graph(), options);
  int recomputed = 0;
  for (const StepEntry& entry : step.entries) recomputed += entry.phase == StepPhase::recompute;
  EXPECT_EQ(recomputed, 3);
}

TEST(Shard, OneGpuIsNoLayout) {
  const StepGraph rank = rank_of(small_graph(), training(), plain_runtime());
  for (const StepEntry& entry : rank.entries) EXPECT_NE(entry.phase, StepPhase::communication);
  EXPECT_EQ(std::get<LinearAttrs>(rank.graph.ops[2].attrs).out, 64);
}

TEST(Shard, TensorParallelismDividesFeaturesAndReduces) {
  Options options = training();
  options.layout.gpus = options.layout.tp = 4;
  const StepGraph rank = rank_of(small_graph(), options, plain_runtime());
  EXPECT_EQ(std::get<LinearAttrs>(rank.graph.ops[2].attrs).out, 16);
  EXPECT_EQ(std::get<LinearAttrs>(rank.graph.ops[3].attrs).in, 16);
  EXPECT_EQ(std::get<LinearAttrs>(rank.graph.ops[4].attrs).out, 25);
  EXPECT_EQ(std::get<NormAttrs>(rank.graph.ops[1].attrs).rows, 16);
  // Without sequence parallelism: one all-reduce of 16 x 16 bf16 forward after the row-parallel linear, one backward at the column-parallel one.
  ASSERT_NE(find_collective(rank, "tp_output"), nullptr);
  EXPECT_EQ(find_collective(rank, "tp_output")->bytes, 512);
  EXPECT_EQ(find_collective(rank, "tp_output")->kind, CollectiveKind::all_reduce);
  EXPECT_EQ(find_collective(rank, "tp_output", "grad"), nullptr);
  ASSERT_NE(find_collective(rank, "tp_input", "grad"), nullptr);
  EXPECT_EQ(find_collective(rank, "tp_input"), nullptr);
}

TEST(Shard, SequenceParallelismDividesRowsAndScatters) {
  Options options = training();
  options.layout.gpus = options.layout.tp = 4;
  options.layout.sp = true;
  const StepGraph rank = rank_of(small_graph(), options, plain_runtime());
  EXPECT_EQ(std::get<NormAttrs>(rank.graph.ops[1].attrs).rows, 4);
  EXPECT_EQ(rank.graph.tensors[2].elements, 64);
  EXPECT_EQ(find_collective(rank, "tp_output")->kind, CollectiveKind::reduce_scatter);
  EXPECT_EQ(find_collective(rank, "tp_output", "grad")->kind, CollectiveKind::all_gather);
  EXPECT_EQ(find_collective(rank, "tp_input")->kind, CollectiveKind::all_gather);
}

TEST(Shard, GradientsAreReducedOnceAStep) {
  Options options = training();
  options.precision = Precision::pure;
  options.layout.gpus = options.layout.dp = 2;
  options.gbs = 4;
  const StepGraph rank = rank_of(small_graph(), options, plain_runtime());
  ASSERT_NE(find_collective(rank, "dp_reduce_gradients"), nullptr);
  EXPECT_EQ(find_collective(rank, "dp_reduce_gradients")->bytes, 2 * (1600 + 4 * 2064 + 1600));
}

TEST(Shard, ZeroDividesTheOptimizer) {
  Options options = training();
  options.layout.gpus = options.layout.dp = 4;
  options.layout.zero = 1;
  options.gbs = 8;
  const StepGraph rank = rank_of(small_graph(), options, plain_runtime());
  for (const StepEntry& entry : rank.entries) {
    if (entry.phase != StepPhase::optimizer) continue;
    EXPECT_EQ(std::get<OptimizerAttrs>(rank.graph.ops[entry.op].attrs).parameters, (1600 + 4 * 2064 + 1600) / 4);
  }
}

TEST(Stages, LayersAreDealtEvenlyAndEndsBelongToEnds) {
  Options options = training();
  options.layout.gpus = options.layout.pp = 3;
  const std::vector<Stage> stages = stages_of(small_graph(7), options.layout);
  ASSERT_EQ(stages.size(), 3u);
  EXPECT_EQ(stages[0].layers, 3);
  EXPECT_EQ(stages[1].layers, 2);
  EXPECT_EQ(stages[2].layers, 2);
  EXPECT_EQ(stages[0].repeats[0], 1);
  EXPECT_EQ(stages[0].repeats[2], 0);
  EXPECT_EQ(stages[2].repeats[2], 1);
  std::int64_t layers = 0, count = 0;
  options.layout.pp = 7;
  for (const Stage& stage : stages_of(small_graph(7), options.layout)) layers += stage.layers * stage.count, count += stage.count;
  EXPECT_EQ(layers, 7);
  EXPECT_EQ(count, 7);
}

TEST(Schedule, BubbleIsStagesMinusOneMicroBatches) {
  Layout layout;
  layout.pp = 4;
  EXPECT_DOUBLE_EQ(pipeline_bubble(layout, 0.010), 0.030);
  layout.vpp = 3;
  EXPECT_DOUBLE_EQ(pipeline_bubble(layout, 0.010), 0.010);
  layout.pp = 1;
  EXPECT_DOUBLE_EQ(pipeline_bubble(layout, 0.010), 0);
}

TEST(StateBytes, PureAndMixedAndAutocast) {
  Options options = training();
  Runtime runtime = plain_runtime();
  options.precision = Precision::pure;
  StateBytes state = state_bytes(options, runtime);
  EXPECT_EQ(state.weight + state.gradient + state.optimizer, 8);  // bf16: 2 + 2 + 2 x 2
  options.precision = Precision::mixed;
  state = state_bytes(options, runtime);
  EXPECT_EQ(state.weight, 2);
  EXPECT_EQ(state.gradient, 4);
  EXPECT_EQ(state.optimizer, 12);
  runtime.autocast = true;
  state = state_bytes(options, runtime);
  EXPECT_EQ(state.weight, 4);
  EXPECT_EQ(state.gradient, 4);
  EXPECT_EQ(state.optimizer, 8);
  EXPECT_EQ(state.transient_weight, 2);
  options.phase = Phase::decode;
  state = state_bytes(options, runtime);
  EXPECT_EQ(state.gradient + state.optimizer, 0);
}

TEST(Memory, KeepsEachTensorOnce) {
  Options options = training();
  options.precision = Precision::pure;
  Device device;
  device.memory_bytes = 1e9;
  const Runtime runtime = plain_runtime();
  const MemoryTotals memory = memory_of(rank_of(small_graph(), options, runtime), Stage{}, options, runtime, device);
  const std::int64_t parameters = 1600 + 4 * 2064 + 1600;
  EXPECT_EQ(static_cast<std::int64_t>(memory.parameters_bytes), 2 * parameters);
  EXPECT_EQ(static_cast<std::int64_t>(memory.optimizer_bytes), 4 * parameters);
  // A layer keeps x (512 B) and 4-byte statistics of 16 rows for the norm, the normed tensor (512) and the wide one (2048); the ends keep ids (128), y (512), logits (3200) and 128
  // B.
  EXPECT_EQ(static_cast<std::int64_t>(memory.activations_bytes), 4 * (512 + 64 + 512 + 2048) + 128 + 512 + 3200 + 128);
  EXPECT_TRUE(memory.fits);
}

TEST(Memory, RecomputationKeepsTheInputsAndOneLayer) {
  Options options = training();
  options.precision = Precision::pure;
  options.recompute = Recompute::full;
  Device device;
  device.memory_bytes = 1e9;
  const Runtime runtime = plain_runtime();
  const MemoryTotals memory = memory_of(rank_of(small_graph(), options, runtime), Stage{}, options, runtime, device);
  // At the loss: the inputs of four layers and what the ends keep. When a layer is there again (64 + 512 + 2048 beside its input), the head's 3840 bytes are gone.
  EXPECT_EQ(static_cast<std::int64_t>(memory.activations_bytes), 4 * 512 + 128 + 512 + 3200 + 128);
}

TEST(Memory, NamesTheTermThatBreaksItAndASettingThatFits) {
  Options options = training();
  Device device;
  device.memory_bytes = 120000;  // 11,456 parameters x 18 bytes = 206 kB
  const Runtime runtime = plain_runtime();
  const Graph graph = small_graph();
  MemoryTotals memory = memory_of(rank_of(graph, options, runtime), Stage{}, options, runtime, device);
  ASSERT_FALSE(memory.fits);
  advise_memory(memory, graph, options, runtime, device);
  EXPECT_NE(memory.breaks.find("optimizer states"), std::string::npos) << memory.breaks;
  EXPECT_NE(memory.would_fit.find("--zero 3"), std::string::npos) << memory.would_fit;
  EXPECT_LE(memory.would_fit_bytes, device.memory_bytes);
}

TEST(Memory, TheSettingThatFitsGivesWhatItSays) {
  const Runtime runtime = plain_runtime();
  const Graph graph = small_graph();
  for (const double capacity : {40000.0, 60000.0, 90000.0, 120000.0, 150000.0}) {
    for (const auto& [gpus, tp, pp] : {std::array<std::int64_t, 3>{1, 1, 1}, {8, 1, 1}, {8, 4, 1}, {8, 2, 2}, {16, 4, 2}}) {
      Options options = training();
      options.layout.gpus = gpus;
      options.layout.tp = tp;
      options.layout.pp = pp;
      options.gbs = 0;
      std::vector<Warning> warnings;
      options = *resolve_options(options, graph, warnings);
      Device device;
      device.memory_bytes = capacity;
      MemoryTotals memory = memory_of(rank_of(graph, options, runtime), Stage{}, options, runtime, device);
      if (memory.fits) continue;
      advise_memory(memory, graph, options, runtime, device);
      if (memory.would_fit.empty()) continue;
      const Options& tried = memory.would_fit_options;
      const StepGraph step = differentiate(graph, tried);
      Count peak = 0;
      for (const Stage& stage : stages_of(step.graph, tried.layout)) peak = std::max(peak, memory_of(shard(step, tried, runtime, stage), stage, tried, runtime, device).peak_bytes);
      EXPECT_DOUBLE_EQ(to_double(peak), memory.would_fit_bytes) << memory.would_fit;
      EXPECT_LT(to_double(peak), capacity) << memory.would_fit;
      ASSERT_TRUE(resolve_options(tried, graph, warnings)) << memory.would_fit;
    }
  }
}

TEST(Shard, MegatronPadsTheVocabulary) {
  Options options = training();
  options.layout.gpus = options.layout.tp = 2;
  Runtime runtime = plain_runtime();
  runtime.vocabulary_multiple = 64;  // 100 -> 128 over two ranks
  const StepGraph rank = rank_of(small_graph(), options, runtime);
  EXPECT_EQ(std::get<LinearAttrs>(rank.graph.ops[4].attrs).out, 64);
  EXPECT_EQ(std::get<EmbeddingAttrs>(rank.graph.ops[0].attrs).vocab, 64);
  EXPECT_EQ(std::get<CrossEntropyAttrs>(rank.graph.ops[5].attrs).vocab, 64);
  EXPECT_EQ(rank.graph.tensors[5].elements, 16 * 64);
}

struct Refusal {
  std::string_view place;
  void (*change)(Options&);
};

TEST(ResolveOptions, RefusesWhatDoesNotDivide) {
  const Refusal refusals[] = {{"--gpus", [](Options& o) { o.layout.gpus = 6, o.layout.tp = 4; }},
                              {"--gbs", [](Options& o) { o.layout.gpus = 2, o.gbs = 3; }},
                              {"--tp", [](Options& o) { o.layout.gpus = o.layout.tp = 3, o.gbs = 2; }},
                              {"--pp", [](Options& o) { o.layout.gpus = o.layout.pp = 5, o.gbs = 2; }},
                              {"--dp", [](Options& o) { o.layout.gpus = 8, o.layout.dp = 3, o.gbs = 0; }},
                              {"--dp", [](Options& o) { o.layout.gpus = 4, o.layout.dp = 1, o.gbs = 0; }},
                              {"--tp", [](Options& o) { o.layout.gpus = 8, o.layout.tp = o.layout.pp = 1 << 24, o.layout.cp = 1 << 16; }},
                              {"--dp-shard", [](Options& o) { o.layout.gpus = 8, o.layout.zero = 3, o.layout.dp_shard = 3, o.gbs = 0; }},
                              {"--mbs", [](Options& o) { o.mbs = 0; }},
                              {"--zero", [](Options& o) { o.layout.zero = 4; }}};
  for (const Refusal& refusal : refusals) {
    Options options = training();
    refusal.change(options);
    std::vector<Warning> warnings;
    const Result<Options> result = resolve_options(options, small_graph(), warnings);
    ASSERT_FALSE(result) << refusal.place;
    EXPECT_EQ(result.error().code, ErrorCode::usage);
    EXPECT_EQ(result.error().place, refusal.place);
  }
}

TEST(ResolveOptions, OddIsAWarning) {
  Options options = training();
  options.layout.gpus = options.layout.pp = 3;
  std::vector<Warning> warnings;
  ASSERT_TRUE(resolve_options(options, small_graph(4), warnings));
  std::vector<std::string> codes;
  for (const Warning& warning : warnings) codes.push_back(warning.code);
  EXPECT_NE(std::find(codes.begin(), codes.end(), "layers_not_divisible"), codes.end());
  EXPECT_NE(std::find(codes.begin(), codes.end(), "few_micro_batches"), codes.end());
}

}  // namespace
}  // namespace rooftile
