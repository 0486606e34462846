// Encoder-decoders in eager PyTorch against profiled steps on an H200: T5 base (training, batch 16, 512 tokens) and Whisper small (forward, batch 16, 448 tokens to the decoder).
#include <gtest/gtest.h>

#include <memory>

#include "estimator/passes/predict.h"
#include "frontends/expand.h"
#include "frontends/hardware_files.h"
#include "frontends/model_files.h"

namespace rooftile {
namespace {

Prediction eager_step(ModelSpec spec, Phase phase, std::int64_t mbs, std::int64_t seq) {
  const DataPath data{{ROOFTILE_SOURCE_DIR}};
  const Machine machine = *load_machine(data, "h200_sxm", "", "");
  KernelTimer timer(machine, Mode::model, ClockState::automatic);
  Options options;
  options.phase = phase;
  options.mbs = mbs;
  options.seq = seq;
  options.precision = Precision::pure;
  const Graph graph = *expand(spec, options);
  const Result<Prediction> prediction = predict(graph, options, machine, *read_runtime(*data.find(DataKind::runtime, "torch-eager")), timer);
  EXPECT_TRUE(prediction);
  return prediction ? *prediction : Prediction{};
}

ModelSpec shipped(const std::string& name) {
  const auto file = DataPath{{ROOFTILE_SOURCE_DIR}}.find(DataKind::model, name);
  return *read_yaml_model(*read_text(*file), file->string());
}

std::int64_t count(const Prediction& p, bool backward, KernelClass kernel) {
  std::int64_t sum = 0;
  for (const OpRow& row : p.rows) sum += row.call.kernel == kernel && (row.phase == StepPhase::backward) == backward && row.phase != StepPhase::optimizer ? row.count : 0;
  return sum;
}

double kernels_s(const Prediction& p) {
  double sum = 0;
  for (const OpRow& row : p.rows) sum += row.time_s;
  return sum;
}

TEST(EncoderDecoder, T5RunsTheKernelsThatATraceShows) {
  const Prediction p = eager_step(shipped("t5-base"), Phase::train, 16, 512);
  EXPECT_EQ(count(p, false, KernelClass::gemm), 241);
  EXPECT_EQ(count(p, true, KernelClass::gemm), 482);
  EXPECT_EQ(count(p, false, KernelClass::attention), 12);  // cross attention alone is fused
  EXPECT_EQ(count(p, false, KernelClass::softmax), 24);
  EXPECT_EQ(count(p, false, KernelClass::row_mean), 62);   // a norm each
  EXPECT_EQ(count(p, true, KernelClass::column_sum), 86);  // their weights, and the biases of 24 layers
  EXPECT_NEAR(to_double(p.totals.launches), 3751, 0.05 * 3751);
  EXPECT_NEAR(kernels_s(p), 0.1038, 0.04 * 0.1038);
  EXPECT_NEAR(to_double(p.totals.memory.peak_bytes), 15.697e9, 0.01 * 15.697e9);
}

TEST(EncoderDecoder, T5WithoutGradientsFusesAllAttention) {
  const Prediction p = eager_step(shipped("t5-base"), Phase::forward, 16, 512);
  EXPECT_EQ(count(p, false, KernelClass::attention), 36);
  EXPECT_EQ(count(p, false, KernelClass::softmax), 0);
}

TEST(EncoderDecoder, WhisperRunsTheKernelsThatATraceShows) {
  ModelSpec spec = shipped("whisper-small");
  spec.head = HeadKind::seq2seq_lm;
  const Prediction p = eager_step(spec, Phase::forward, 16, 448);
  EXPECT_EQ(count(p, false, KernelClass::attention), 36);
  EXPECT_EQ(count(p, false, KernelClass::layernorm), 62);
  EXPECT_NEAR(to_double(p.totals.launches), 768, 0.05 * 768);
  EXPECT_NEAR(kernels_s(p), 0.03634, 0.04 * 0.03634);
  EXPECT_NEAR(to_double(p.totals.memory.peak_bytes), 1.3357e9, 0.01 * 1.3357e9);
  std::int64_t copies = 0, sums = 0;  // 24 norms of the encoder's layers and the last one; two sums a layer
  for (const OpRow& row : p.rows) {
    copies += row.name.find("norm.transpose") != std::string::npos ? row.count : 0;
    sums += row.name.find("encoder_layer.residual") != std::string::npos && row.name.find(".add") != std::string::npos ? row.count : 0;
  }
  EXPECT_EQ(copies, 25);
  EXPECT_EQ(sums, 24);
}

}  // namespace
}  // namespace rooftile
