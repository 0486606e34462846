// The walk over a step's tensors against sums made by hand from what PyTorch keeps, and the allocator's blocks.
#include "estimator/passes/memory_walk.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "estimator/passes/memory_blocks.h"
#include "estimator/passes/predict.h"
#include "frontends/expand.h"
#include "frontends/hardware_files.h"
#include "frontends/model_files.h"

namespace rooftile {
namespace {

constexpr double kMiB = 1 << 20;

Runtime shipped(const std::string& name, bool blocks = false) {
  Runtime runtime = *read_runtime(*DataPath{{ROOFTILE_SOURCE_DIR}}.find(DataKind::runtime, name));
  runtime.caching_allocator = blocks && runtime.caching_allocator;
  return runtime;
}

// A small model whose logits are so many that the loss is the fullest moment.
ModelSpec small(std::int64_t layers) {
  ModelSpec spec;
  spec.name = "small";
  spec.layers = layers;
  spec.hidden = 64;
  spec.heads = 4;
  spec.ffn_hidden = 256;
  spec.vocab = 8192;
  spec.max_positions = 64;
  return spec;
}

ModelSpec gpt2_like(std::int64_t layers) {
  ModelSpec spec = small(layers);
  spec.activation = ActivationKind::gelu_new;
  spec.bias = {true, true, true, false, true};
  return spec;
}

ModelSpec llama_like(std::int64_t layers) {
  ModelSpec spec = small(layers);
  spec.kv_heads = 2;
  spec.norm = NormKind::rmsnorm;
  spec.activation = ActivationKind::swiglu;
  spec.positions = PositionKind::rope;
  spec.fused_qkv = false;
  return spec;
}

ModelSpec bert_like(std::int64_t layers) {
  ModelSpec spec = small(layers);
  spec.kind = ModelKind::encoder;
  spec.head = HeadKind::masked_lm;
  spec.post_norm = spec.embedding_norm = true;
  spec.final_norm = spec.fused_qkv = false;
  spec.bias = {true, true, true, true, true};
  return spec;
}

Options training(Precision precision = Precision::pure) {
  Options options;
  options.mbs = 2;
  options.seq = 64;
  options.precision = precision;
  options.gbs = 2;
  options.layout.dp = 1;
  options.layout.gpus = 1;
  return options;
}

MemoryTotals memory(const ModelSpec& spec, const Options& options, const Runtime& runtime) {
  const Graph graph = *expand(*resolve(spec), options);
  Device device;
  device.memory_bytes = 1e12;
  const StepGraph step = differentiate(graph, options);
  const Stage stage = stages_of(step.graph, options.layout).front();
  return memory_of(shard(step, options, runtime, stage), stage, options, runtime, device, true);
}

// What one more layer keeps, in bytes per token: what it adds to the activations.
double kept_per_token(ModelSpec (*spec)(std::int64_t), const Options& options, const std::string& runtime) {
  const MemoryTotals two = memory(spec(2), options, shipped(runtime)), three = memory(spec(3), options, shipped(runtime));
  EXPECT_EQ(three.peak_segment, "head");
  EXPECT_EQ(three.peak_operator, "loss");
  return to_double(three.activations_bytes - two.activations_bytes) / static_cast<double>(options.mbs * options.seq);
}

constexpr double H = 64, F = 256, Q = 64, K = 32, kHeads = 4, kStatistics = 16;  // two norms of 8 bytes a row

TEST(MemoryWalk, WhatALayerKeeps) {
  const Options pure = training(), mixed = training(Precision::mixed);
  // LN in and out 2 x (2H + 2H), q k v 6H, attention out 2H; NewGELU x, x/2, tanh, 1 + tanh, product 5 x 2F; one fp32 logsumexp a head.
  EXPECT_EQ(kept_per_token(gpt2_like, pure, "torch-eager"), 16 * H + 10 * F + 4 * kHeads + kStatistics);
  // Autocast: fp32 residual stream (4H + 2H a norm), 6H, 2H; fp32 input of the power, tanh and 1 + tanh.
  const double low_weights = to_double(memory(gpt2_like(3), mixed, shipped("torch-eager")).workspace_bytes - memory(gpt2_like(2), mixed, shipped("torch-eager")).workspace_bytes);
  EXPECT_EQ(low_weights, 2 * (4 * H * H + 2 * H * F + 3 * H + H + F + H));  // the casts of a layer's weights and biases
  EXPECT_EQ(kept_per_token(gpt2_like, mixed, "torch-eager"), 20 * H + 16 * F + 4 * kHeads + kStatistics);
  // RMS norms: fp32 x, normed, output; q, o, k, v; gate, silu, up, product. 4 bytes of 1/rms a norm.
  EXPECT_EQ(kept_per_token(llama_like, pure, "torch-eager"), 16 * H + 4 * Q + 4 * K + 8 * F + 4 * kHeads + 8);
  // Autocast casts the input of q, k, v and of gate and up once for each of them.
  EXPECT_EQ(kept_per_token(llama_like, mixed, "torch-eager"), 26 * H + 4 * Q + 4 * K + 8 * F + 4 * kHeads + 8);
  EXPECT_EQ(kept_per_token(bert_like, pure, "torch-eager"), 16 * H + 4 * F + 4 * kHeads + kStatistics);
  Options standard = pure;
  standard.attention = AttentionKernel::standard;
  // One bf16 matrix of probabilities in place of the logsumexp; Llama's in fp32 and bf16, with keys and values repeated for all heads.
  const double scores = 64 * kHeads;
  EXPECT_EQ(kept_per_token(gpt2_like, standard, "torch-eager"), 16 * H + 10 * F + 2 * scores + kStatistics);
  EXPECT_EQ(kept_per_token(llama_like, standard, "torch-eager"), 16 * H + 8 * Q + 8 * F + 6 * scores + 8);
  Options again = pure;
  again.recompute = Recompute::full;
  EXPECT_EQ(kept_per_token(gpt2_like, again, "torch-eager"), 2 * H);
  // Compiled: inputs of norms and matmuls, pre-activations; silu is computed again, repeated keys and values are real.
  EXPECT_EQ(kept_per_token(gpt2_like, pure, "torch-compile"), 16 * H + 4 * F + 4 * kHeads + kStatistics);
  EXPECT_EQ(kept_per_token(llama_like, pure, "torch-compile"), 8 * H + 8 * Q + 6 * F + 4 * kHeads + kStatistics);
}

TEST(MemoryWalk, TheLossHoldsTwelveBytesALogitOrSix) {
  const auto loss = [](ModelSpec (*make)(std::int64_t), const std::string& runtime) {
    ModelSpec more = make(2);
    const MemoryTotals base = memory(make(2), training(), shipped(runtime));
    more.vocab += 1024;
    return to_double(memory(more, training(), shipped(runtime)).activations_bytes - base.activations_bytes) / (128.0 * 1024);
  };
  EXPECT_EQ(loss(gpt2_like, "torch-eager"), 12);
  EXPECT_EQ(loss(bert_like, "torch-eager"), 6);
  EXPECT_EQ(loss(llama_like, "torch-compile"), 6);
}

TEST(MemoryWalk, WithFewTokensTheGradientsAreThePeak) {
  Options options = training();
  options.mbs = options.gbs = 1;
  options.seq = 1;
  ModelSpec spec = gpt2_like(2);
  const MemoryTotals tied = memory(spec, options, shipped("torch-eager"));
  EXPECT_EQ(tied.peak_segment, "embedding");
  // The embedding's gradient and its sum with the head's, beside all gradients.
  const double table = 2.0 * 8192 * 64, parameters = to_double(tied.parameters_bytes);
  EXPECT_NEAR(to_double(tied.peak_bytes), 4 * parameters + 2 * table + 64 * kMiB, 4096);
  spec.tied_embeddings = false;
  const MemoryTotals untied = memory(spec, options, shipped("torch-eager"));
  EXPECT_NEAR(to_double(untied.peak_bytes), 4 * to_double(untied.parameters_bytes) + 64 * kMiB, 4096);
}

TEST(MemoryWalk, InferenceHoldsOneLayerTheCacheAndTheLogits) {
  Options options = training();
  options.phase = Phase::prefill;
  const double u = 2 * 128 * H, f = 2 * 128 * F;
  // Last layer's feed-forward: three wide tensors, embeddings, layer input, residual and normed; keys and values of both layers.
  const MemoryTotals prefill = memory(llama_like(2), options, shipped("torch-eager"));
  EXPECT_EQ(to_double(prefill.kv_cache_bytes), 2 * 2 * 2 * 128 * K);
  EXPECT_EQ(to_double(prefill.activations_bytes), 3 * f + 4 * u + 8 * 128);  // and the ids, which the caller holds
  EXPECT_EQ(prefill.peak_operator, "act");
  options.phase = Phase::decode;
  options.context = 1000;
  // All caches, and the keys of one layer once more while they are joined with the new ones.
  const MemoryTotals decode = memory(llama_like(2), options, shipped("torch-eager"));
  EXPECT_NEAR(to_double(decode.peak_bytes - decode.parameters_bytes) - 32 * kMiB, 2 * 2 * 2 * 2 * 1001 * K + 2 * 2 * 1001 * K, 2000);
  EXPECT_EQ(decode.peak_operator, "cache_write");
}

TEST(MemoryWalk, TopIsSortedAndAddsUpToThePeak) {
  for (const char* name : {"torch-eager", "torch-compile", "fused", "megatron"}) {
    const MemoryTotals totals = memory(llama_like(3), training(), shipped(name));
    SCOPED_TRACE(name);
    ASSERT_FALSE(totals.top.empty());
    EXPECT_LE(totals.top.size(), 10u);
    EXPECT_TRUE(std::is_sorted(totals.top.begin(), totals.top.end(), [](const MemoryTerm& a, const MemoryTerm& b) { return a.bytes > b.bytes; }));
    Count sum = 0;
    for (const MemoryTerm& term : totals.top) sum += term.bytes;
    EXPECT_LE(to_double(sum), to_double(totals.peak_bytes) + 10);
    EXPECT_GE(to_double(sum), 0.85 * to_double(totals.peak_bytes));
    EXPECT_GE(to_double(totals.reserved_bytes), to_double(totals.peak_bytes));
  }
}

TEST(MemoryBlocks, RoundAsTheAllocatorDoes) {
  EXPECT_EQ(block_bytes(1), 512);
  EXPECT_EQ(block_bytes(1000), 1024);
  EXPECT_EQ(block_bytes(77194752), 77594624);                                 // GPT-2's table: 73.62 MiB in a segment of 74
  EXPECT_EQ(block_bytes(14.65 * kMiB), std::ceil(14.65 * kMiB / 512) * 512);  // 1.35 MiB of 16 are split off
  // Four of 4.88 MiB in a segment of 20 leave 0.48 MiB to the last one.
  const std::vector<double> four(4, 4.88 * kMiB);
  EXPECT_NEAR(allocation_waste(four, 1) / kMiB, 0.48, 0.01);
  EXPECT_NEAR(allocation_waste(four, 100) / kMiB, 48, 1);
  EXPECT_EQ(allocation_waste(std::vector<double>{64 * kMiB}, 10), 0);
}

TEST(MemoryProgram, RefusesWhatItCannotRun) {
  EXPECT_TRUE(parse_memory_program({"h = float x", "y = mul h w", "keep h"}));
  EXPECT_FALSE(parse_memory_program({"y = flaot x"}));
  EXPECT_FALSE(parse_memory_program({"y = mul x"}));
  EXPECT_FALSE(parse_memory_program({"y = float h"}));
  EXPECT_FALSE(parse_memory_program({"float x"}));
  EXPECT_NE(parse_memory_program({"y = flaot x"}).error().hint.find("float"), std::string::npos);
  std::vector<std::string> many = {"a0 = float x"};
  for (int i = 1; i < 40; ++i) many.push_back("a" + std::to_string(i) + " = float a" + std::to_string(i - 1));
  EXPECT_FALSE(parse_memory_program(many));
}

}  // namespace
}  // namespace rooftile
