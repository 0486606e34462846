// Laws of memory over shipped models and runtimes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "estimator/passes/memory_walk.h"
#include "frontends/expand.h"
#include "frontends/hardware_files.h"
#include "frontends/model_files.h"

namespace rooftile {
namespace {

const DataPath& data() {
  static const DataPath path{{ROOFTILE_SOURCE_DIR}};
  return path;
}

constexpr const char* kRuntimes[] = {"torch-eager", "torch-compile", "fused", "megatron"};

Runtime runtime(const std::string& name) { return *read_runtime(*data().find(DataKind::runtime, name)); }

ModelSpec model(const std::string& name) {
  const auto file = data().find(DataKind::model, name);
  return *read_yaml_model(*read_text(*file), file->string());
}

Options options_of(Phase phase, std::int64_t mbs = 1, std::int64_t seq = 256) {
  Options options;
  options.phase = phase;
  options.mbs = options.gbs = mbs;
  options.seq = seq;
  options.context = phase == Phase::decode ? 500 : 0;
  options.layout.gpus = options.layout.dp = 1;
  if (phase != Phase::train) options.precision = Precision::pure;
  return options;
}

double peak(const ModelSpec& spec, const Options& options, const Runtime& with) {
  const Result<Graph> graph = expand(spec, options);
  if (!graph) return 0;
  Device device;
  device.memory_bytes = 1e15;
  const StepGraph step = differentiate(*graph, options);
  double most = 0;
  for (const Stage& stage : stages_of(step.graph, options.layout)) {
    most = std::max(most, to_double(memory_of(shard(step, options, with, stage), stage, options, with, device).peak_bytes));
  }
  return most;
}

TEST(MemoryLaws, MoreNeverTakesLess) {
  for (const char* name : kRuntimes) {
    const Runtime with = runtime(name);
    for (const char* file : {"gpt2", "llama-3.2-1b", "bert-base", "olmoe-1b-7b", "pythia-1.4b", "gemma-2-9b", "t5-base"}) {
      SCOPED_TRACE(std::string(name) + " " + file);
      ModelSpec spec = model(file);
      for (const Phase phase : {Phase::train, Phase::forward, Phase::prefill}) {
        double last = 0;
        for (const std::int64_t mbs : {1, 2, 3, 8, 32}) {
          const double now = peak(spec, options_of(phase, mbs), with);
          EXPECT_GE(now, last) << mbs;
          last = now;
        }
        last = 0;
        for (const std::int64_t seq : {16, 64, 128, 512}) {
          const double now = peak(spec, options_of(phase, 2, seq), with);
          EXPECT_GE(now, last) << seq;
          last = now;
        }
      }
      if (spec.kind == ModelKind::encoder_decoder) continue;
      double last = 0;
      for (const std::int64_t layers : {1, 2, 5, 12}) {
        spec.layers = layers;
        const double now = peak(spec, options_of(Phase::train, 4), with);
        EXPECT_GT(now, last) << layers;
        last = now;
      }
    }
  }
}

TEST(MemoryLaws, RecomputationNeverTakesMore) {
  for (const char* name : kRuntimes) {
    const Runtime with = runtime(name);
    for (const char* file : {"gpt2", "llama-3.2-1b", "bert-base", "olmoe-1b-7b", "pythia-1.4b"}) {
      for (const AttentionKernel attention : {AttentionKernel::fastest, AttentionKernel::standard}) {
        for (const Precision precision : {Precision::pure, Precision::mixed}) {
          Options options = options_of(Phase::train, 8);
          options.attention = attention;
          options.precision = precision;
          const double none = peak(model(file), options, with);
          options.recompute = Recompute::selective;
          const double selective = peak(model(file), options, with);
          options.recompute = Recompute::full;
          const double full = peak(model(file), options, with);
          EXPECT_LE(selective, none * 1.0001) << name << " " << file;
          // Beside the gradients a layer's forward pass may hold a little more than its backward pass (a mixture's copies of rows).
          EXPECT_LE(full, selective * 1.002) << name << " " << file;
        }
      }
    }
  }
}

TEST(MemoryLaws, EachZeroStageSharesMore) {
  for (const char* name : kRuntimes) {
    Options options = options_of(Phase::train, 4);
    options.layout.gpus = options.layout.dp = 8;
    options.gbs = 32;
    double last = 1e18;
    for (int zero = 0; zero <= 3; ++zero) {
      options.layout.zero = zero;
      const double now = peak(model("llama-3.2-1b"), options, runtime(name));
      EXPECT_LE(now, last) << name << " " << zero;
      last = now;
    }
  }
}

// After the step only the state, gradients and cache are left, and the ids with what came from another stage.
TEST(MemoryLaws, NothingIsForgotten) {
  for (const char* name : kRuntimes) {
    const Runtime with = runtime(name);
    for (const char* file : {"gpt2", "llama-3.2-1b", "bert-base", "olmoe-1b-7b", "pythia-1.4b", "gemma-2-9b", "t5-base", "vit-base", "whisper-small", "deepseek-v2-lite",
                             "falcon-7b", "gpt-oss-20b"}) {
      for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
        for (const AttentionKernel attention : {AttentionKernel::fastest, AttentionKernel::standard}) {
          Options options = options_of(Phase::train, 2);
          options.recompute = recompute;
          options.attention = attention;
          options.precision = recompute == Recompute::none ? Precision::mixed : Precision::pure;
          const Graph graph = *expand(model(file), options);
          const StepGraph step = differentiate(graph, options);
          const Stage stage = stages_of(step.graph, options.layout).front();
          const StepGraph rank = shard(step, options, with, stage);
          const MemoryBase base;
          MemoryWalk walk(rank, options, with, Device{}, base);
          walk.run();
          double inputs = 0;
          for (const Tensor& tensor : rank.graph.tensors) inputs += tensor.role == TensorRole::input ? 8 * static_cast<double>(tensor.elements) + 512 : 0;
          EXPECT_LE(std::abs(walk.left_over()), inputs + 1) << name << " " << file << " recompute " << static_cast<int>(recompute) << " standard " << static_cast<int>(attention);
        }
      }
    }
  }
}

}  // namespace
}  // namespace rooftile
