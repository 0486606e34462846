// Laws of expand(): linear in layers and tokens, sizes that belong together, names that are unique, nothing above 2^63.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <set>

#include "estimator/ops/op_work.h"
#include "estimator/passes/predict.h"
#include "frontends/expand.h"
#include "frontends/model_files.h"

namespace rooftile {
namespace {

const std::filesystem::path kRoot = ROOFTILE_SOURCE_DIR;

std::vector<ModelSpec> shipped() {
  std::vector<ModelSpec> specs;
  for (const auto& entry : std::filesystem::directory_iterator(kRoot / "models")) {
    if (entry.path().extension() == ".yaml") specs.push_back(read_yaml_model(read_text(entry.path()).value(), entry.path().string()).value());
  }
  return specs;
}

ModelSpec model(const std::string& name) { return read_yaml_model(read_text(kRoot / "models" / (name + ".yaml")).value(), name).value(); }

Count dense_flops(const Graph& graph) {
  Count sum = 0;
  OpWork work;
  work.begin(graph, {});
  for (const Segment& segment : graph.segments) {
    for (const Operator& op : graph.ops_of(segment)) {
      work_of(op, work);
      for (const KernelUse& use : work.forward_uses) sum += use.conventions.dense * segment.repeat;
    }
  }
  return sum;
}

constexpr Phase kPhases[] = {Phase::train, Phase::forward, Phase::prefill, Phase::decode};

// Every shipped model in every phase: edges point at tensors, names are unique in their segment, layers name layer segments as often as these repeat, and each tensor that an
// operator of a layer reads was made before or enters the segment.
TEST(Expand, GraphsAreWellFormed) {
  for (const ModelSpec& spec : shipped()) {
    for (const Phase phase : kPhases) {
      Options options;
      options.phase = phase;
      options.mbs = 2;
      options.context = 100;
      const auto graph = expand(spec, options);
      if (!graph) {
        EXPECT_EQ(graph.error().code, ErrorCode::unsupported) << spec.name;
        EXPECT_TRUE(phase == Phase::decode && (spec.kind == ModelKind::encoder || spec.kind == ModelKind::vision)) << spec.name;
        continue;
      }
      std::set<TensorId> made;
      for (TensorId id = 0; id < graph->tensors.size(); ++id) {
        if (graph->tensors[id].role == TensorRole::input) made.insert(id);
      }
      std::vector<std::int64_t> repeats(graph->segments.size());
      for (const std::uint32_t segment : graph->layers) ++repeats.at(segment);
      for (std::size_t s = 0; s < graph->segments.size(); ++s) {
        const Segment& segment = graph->segments[s];
        std::set<std::string_view> names;
        if (segment.role == SegmentRole::layer) {
          EXPECT_EQ(repeats[s], segment.repeat) << spec.name << " " << segment.name;
        }
        for (const Operator& op : graph->ops_of(segment)) {
          EXPECT_TRUE(names.insert(op.name).second) << spec.name << " " << segment.name << "." << op.name << " stands twice";
          for (const TensorId id : graph->inputs_of(op)) EXPECT_TRUE(made.count(id)) << spec.name << " " << segment.name << "." << op.name << " reads a tensor that nobody made";
          for (const TensorId id : graph->outputs_of(op)) {
            EXPECT_LT(id, graph->tensors.size());
            EXPECT_GT(graph->tensors[id].elements, 0) << op.name;
            made.insert(id);
          }
        }
      }
      EXPECT_FALSE(graph->model.outputs.empty()) << spec.name;
      EXPECT_EQ(graph->tokens, phase == Phase::decode ? 2 : graph->tokens);
    }
  }
}

// Doubling the layers doubles what the layers cost and leaves the rest.
TEST(Expand, LinearInLayers) {
  for (ModelSpec spec : shipped()) {
    if (spec.encoder_layers > 0 || !spec.layer_pattern.empty() || spec.moe.first_dense_layers > 0) continue;
    Options options;
    options.seq = 256;
    const auto at = [&](std::int64_t layers) {
      spec.layers = layers;
      const Graph graph = expand(spec, options).value();
      return std::pair(count_parameters(graph).all, dense_flops(graph));
    };
    const auto [p1, f1] = at(1);
    const auto [p2, f2] = at(2);
    const auto [p5, f5] = at(5);
    EXPECT_EQ(to_string(p5 - p1), to_string(4 * (p2 - p1))) << spec.name;
    EXPECT_EQ(to_string(f5 - f1), to_string(4 * (f2 - f1))) << spec.name;
    EXPECT_GT(to_double(p2 - p1), 0);
  }
}

// The work is linear in the batch, and parameters do not depend on it or on the length.
TEST(Expand, LinearInBatch) {
  for (const ModelSpec& spec : shipped()) {
    Options options;
    options.seq = 192;
    const Graph one = expand(spec, options).value();
    options.mbs = 3;
    const Graph three = expand(spec, options).value();
    EXPECT_EQ(to_string(dense_flops(three)), to_string(3 * dense_flops(one))) << spec.name;
    EXPECT_EQ(to_string(count_parameters(three).all), to_string(count_parameters(one).all));
    EXPECT_EQ(three.tokens, 3 * one.tokens);
  }
}

// Decoding one token with n in the cache attends to n + 1 and writes one; prefill computes logits of the last token only.
TEST(Expand, PhasesOfGeneration) {
  const ModelSpec spec = model("llama-3-8b");
  Options options;
  options.phase = Phase::decode;
  options.mbs = 4;
  options.context = 999;
  const Graph decode = expand(spec, options).value();
  EXPECT_EQ(decode.tokens, 4);
  EXPECT_EQ(decode.seq, 1);
  int seen = 0;
  for (const Operator& op : decode.ops) {
    if (op.kind == OpKind::attention) {
      EXPECT_EQ(std::get<AttentionAttrs>(op.attrs).seq_q, 1);
      EXPECT_EQ(std::get<AttentionAttrs>(op.attrs).seq_kv, 1000);
      ++seen;
    }
    if (op.kind == OpKind::cache_write) {
      EXPECT_EQ(std::get<CacheWriteAttrs>(op.attrs).tokens, 4);
      EXPECT_EQ(std::get<CacheWriteAttrs>(op.attrs).elements_per_token, 8 * (128 + 128));
      ++seen;
    }
    EXPECT_NE(op.kind, OpKind::cross_entropy);
  }
  EXPECT_EQ(seen, 2);
  options.phase = Phase::prefill;
  options.context = 0;
  options.seq = 512;
  const Graph prefill = expand(spec, options).value();
  EXPECT_EQ(prefill.model.outputs.at(0).shape, (std::vector<std::int64_t>{4, 1, 128256}));
  options.phase = Phase::forward;
  EXPECT_EQ(expand(spec, options).value().model.outputs.at(0).shape, (std::vector<std::int64_t>{4, 512, 128256}));
}

// The window of Mistral counts at 8192 tokens and is no window at 2048; GPT-OSS alternates.
TEST(Expand, SlidingWindows) {
  Options options;
  options.seq = 8192;
  const auto windows = [&](const std::string& name) {
    std::vector<std::int64_t> found;
    const Graph graph = expand(model(name), options).value();
    for (const Operator& op : graph.ops) {
      if (op.kind == OpKind::attention) found.push_back(std::get<AttentionAttrs>(op.attrs).window);
    }
    return found;
  };
  EXPECT_EQ(windows("mistral-7b"), (std::vector<std::int64_t>{4096}));
  EXPECT_EQ(windows("gpt-oss-20b"), (std::vector<std::int64_t>{128, 0}));
  options.seq = 2048;
  EXPECT_EQ(windows("mistral-7b"), (std::vector<std::int64_t>{0}));
  const Graph gemma = expand(model("gemma-3-27b"), options).value();
  ASSERT_EQ(gemma.segments.size(), 4u);
  EXPECT_EQ(gemma.segments[1].name, "layer_local");
  EXPECT_EQ(gemma.segments[1].repeat, 52);
  EXPECT_EQ(gemma.segments[2].repeat, 10);
  EXPECT_EQ(gemma.layers.at(5), 2u);  // the sixth layer is the first global one
}

// Queries, keys and values share one normed input: what the backward pass keeps is counted once.
TEST(Expand, ProjectionsShareTheirInput) {
  Options options;
  options.seq = 64;
  const Graph graph = expand(model("llama-3-8b"), options).value();
  std::set<TensorId> inputs;
  for (const Operator& op : graph.ops_of(graph.segments[1])) {
    if (op.name == "q" || op.name == "k" || op.name == "v") inputs.insert(graph.inputs_of(op)[0]);
  }
  EXPECT_EQ(inputs.size(), 1u);
}

// DeepSeek decodes against the compressed cache: 512 + 64 numbers a token, one KV head of 576.
TEST(Expand, LatentAttentionDecodesFromTheCompressedCache) {
  Options options;
  options.phase = Phase::decode;
  options.context = 4095;
  const Graph graph = expand(model("deepseek-v3"), options).value();
  for (const Operator& op : graph.ops) {
    if (op.kind == OpKind::cache_write) {
      EXPECT_EQ(std::get<CacheWriteAttrs>(op.attrs).elements_per_token, 576);
    }
    if (op.kind == OpKind::attention) {
      EXPECT_EQ(std::get<AttentionAttrs>(op.attrs).kv_heads, 1);
      EXPECT_EQ(std::get<AttentionAttrs>(op.attrs).head_dim, 576);
      EXPECT_EQ(std::get<AttentionAttrs>(op.attrs).v_head_dim, 512);
    }
  }
}

TEST(Expand, SizesBeyond63BitsAreInputErrors) {
  Options options;
  options.mbs = std::int64_t{1} << 40;
  options.seq = std::int64_t{1} << 40;
  const auto batch = expand(model("gpt2"), options);
  ASSERT_FALSE(batch);
  EXPECT_EQ(batch.error().code, ErrorCode::invalid);
  ModelSpec wide = model("llama-3-8b");
  wide.ffn_hidden = INT64_MAX / 2;
  options.mbs = options.seq = 1;
  const auto ffn = expand(wide, options);
  ASSERT_FALSE(ffn);
  EXPECT_EQ(ffn.error().code, ErrorCode::invalid);
  EXPECT_EQ(ffn.error().place, "gate");
}

TEST(Expand, EncodersDoNotDecode) {
  Options options;
  options.phase = Phase::decode;
  const auto graph = expand(model("bert-base"), options);
  ASSERT_FALSE(graph);
  EXPECT_EQ(graph.error().code, ErrorCode::unsupported);
  options.phase = Phase::prefill;
  const auto prefill = expand(model("bert-base"), options);
  ASSERT_TRUE(prefill);
  EXPECT_EQ(prefill->warnings.at(0).code, "prefill_without_cache");
}

// A sweep expands each variant: it must stay far below the time of a prediction. The bound is loose for slow and sanitized builds.
TEST(Expand, IsFast) {
  const ModelSpec spec = model("llama-3.1-405b");
  Options options;
  const auto begin = std::chrono::steady_clock::now();
  std::size_t ops = 0;
  for (int i = 0; i < 1000; ++i) ops += expand(spec, options).value().ops.size();
  const double us = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count() / 1000;
  RecordProperty("us_per_expand", std::to_string(us));
  EXPECT_GT(ops, 0u);
  EXPECT_LT(us, 1000);
}

}  // namespace
}  // namespace rooftile
