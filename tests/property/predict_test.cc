// Laws that every prediction obeys, over shipped models, devices and runtimes.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <optional>

#include "estimator/passes/predict.h"
#include "estimator/passes/views.h"
#include "frontends/expand.h"
#include "frontends/hardware_files.h"
#include "frontends/model_files.h"

namespace rooftile {
namespace {

const DataPath& data() {
  static const DataPath path{{ROOFTILE_SOURCE_DIR}};
  return path;
}

ModelSpec model(const std::string& name) {
  const auto file = data().find(DataKind::model, name);
  const auto spec = read_yaml_model(*read_text(*file), file->string());
  EXPECT_TRUE(spec) << name;
  return *spec;
}

Runtime runtime(const std::string& name) { return *read_runtime(*data().find(DataKind::runtime, name)); }

struct Predictor {
  Machine machine;
  std::unique_ptr<KernelTimer> timer;
  explicit Predictor(const std::string& device, Mode mode = Mode::model)
      : machine(*load_machine(data(), device, "", "")), timer(std::make_unique<KernelTimer>(machine, mode, ClockState::automatic)) {}

  Prediction operator()(const ModelSpec& spec, const Options& options, const Runtime& with) {
    const Result<Graph> graph = expand(spec, options);
    EXPECT_TRUE(graph) << spec.name;
    Result<Prediction> prediction = predict(*graph, options, machine, with, *timer);
    EXPECT_TRUE(prediction) << spec.name << ": " << (prediction ? "" : describe(prediction.error()));
    return prediction ? *prediction : Prediction{};
  }
};

Options options_of(Phase phase, std::int64_t mbs = 1, std::int64_t seq = 512) {
  Options options;
  options.phase = phase;
  options.mbs = mbs;
  options.seq = seq;
  options.context = phase == Phase::decode ? 1000 : 0;
  if (phase != Phase::train) options.precision = Precision::pure;
  return options;
}

// Each view parts the step without rest.
void views_sum_up(const Prediction& p) {
  Count flops = 0, bytes = 0;
  for (const OpRow& row : p.rows) flops += row.flops, bytes += row.bytes;
  for (const ViewKind kind : {ViewKind::phase, ViewKind::layer, ViewKind::family}) {
    SCOPED_TRACE(name_of(kind));
    double time_s = 0, shares = 0, phases_s = 0;
    Count view_flops = 0, view_bytes = 0, launches = 0;
    for (const ViewLine& line : view_of(p, kind)) {
      time_s += line.all.time_s;
      shares += line.share;
      view_flops += line.all.flops;
      view_bytes += line.all.bytes;
      launches += line.all.launches;
      for (const ViewSum& phase : line.phases) phases_s += phase.time_s;
      if (line.waits) phases_s += line.all.time_s;
      EXPECT_LE(line.all.mfu(p.peak_flops).value_or(0), 1 + 1e-9) << line.name;
      EXPECT_NE(line.name, "other");  // of shipped models every operator is known
    }
    EXPECT_NEAR(time_s, p.totals.step_time_s, 1e-9 * p.totals.step_time_s);
    EXPECT_NEAR(phases_s, p.totals.step_time_s, 1e-9 * p.totals.step_time_s);
    EXPECT_NEAR(shares, 1, 1e-9);
    EXPECT_EQ(view_flops, flops);
    EXPECT_EQ(view_bytes, bytes);
    EXPECT_EQ(launches, p.totals.launches);
  }
}

void obeys_the_laws(const Prediction& p) {
  const Totals& t = p.totals;
  views_sum_up(p);
  double sum = 0;
  for (const OpRow& row : p.rows) {
    SCOPED_TRACE(row.name);
    sum += row.time_s;
    double loss = 0;
    for (const double seconds : row.loss_s) {
      EXPECT_GE(seconds, 0);
      loss += seconds;
    }
    EXPECT_NEAR(loss, row.time_s - row.peak_s, 1e-9 * row.time_s + 1e-15);
    EXPECT_TRUE(std::isfinite(row.time_s));
    EXPECT_GE(row.time_s, 0);
    EXPECT_LE(row.attainable_s, row.time_s * (1 + 1e-9));
    EXPECT_LE(row.utilization, 1 + 1e-9);
    EXPECT_LE(row.bandwidth_utilization, 1 + 1e-9);
    EXPECT_GT(row.error_p90, 0);
    EXPECT_GT(row.count, 0);
  }
  EXPECT_NEAR(sum + t.bubble_time_s + t.launch_gap_time_s + t.host_bound_time_s, t.step_time_s, 1e-9 * t.step_time_s);
  EXPECT_NEAR(t.forward_time_s + t.backward_time_s + t.recompute_time_s + t.optimizer_time_s + t.exposed_communication_time_s, sum, 1e-9 * sum);
  EXPECT_LT(t.step_time_low_s, t.step_time_s);
  EXPECT_GT(t.step_time_high_s, t.step_time_s);
  EXPECT_GE(t.flops_matmul_dense, t.flops_model);
  EXPECT_GT(t.mfu, 0);
  EXPECT_LE(t.busy_fraction, 1 + 1e-12);
  EXPECT_GE(t.memory.peak_bytes, t.memory.parameters_bytes);
}

TEST(Predict, LawsHoldOverModelsDevicesAndPhases) {
  for (const std::string device : {"h100_sxm", "a100_sxm_80gb", "b200_sxm", "l4", "t4"}) {
    Predictor predictor(device);
    for (const std::string name :
         {"gpt2", "llama-3-8b", "mixtral-8x7b", "gemma-2-9b", "deepseek-v2-lite", "gpt-oss-20b", "bert-base", "t5-base", "vit-base", "whisper-small", "bloom-7b1"}) {
      const ModelSpec spec = model(name);
      for (const Phase phase : {Phase::train, Phase::forward, Phase::prefill, Phase::decode}) {
        if (phase == Phase::decode && (spec.kind == ModelKind::encoder || spec.kind == ModelKind::vision)) continue;
        for (const std::string with : {"fused", "torch-eager"}) {
          SCOPED_TRACE(name + " on " + device + ", " + std::string(name_of(phase)) + ", " + with);
          Options options = options_of(phase);
          if (device == "t4") options.dtype = DType::fp16;
          obeys_the_laws(predictor(spec, options, runtime(with)));
        }
      }
    }
  }
}

TEST(Predict, LawsHoldOverLayouts) {
  Predictor predictor("h100_sxm");
  struct Case {
    const char* name;
    std::int64_t gpus, tp, pp, cp, ep;
    int zero;
    bool sp;
  };
  for (const Case& c : {Case{"llama-3-8b", 8, 8, 1, 1, 1, 0, true}, Case{"llama-3-70b", 64, 8, 4, 1, 1, 1, true}, Case{"llama-3-8b", 16, 1, 1, 1, 1, 3, false},
                        Case{"llama-3-8b", 16, 2, 2, 2, 1, 2, true}, Case{"mixtral-8x7b", 16, 1, 1, 1, 8, 1, false}, Case{"deepseek-v2-lite", 32, 1, 3, 1, 8, 1, false}}) {
    SCOPED_TRACE(c.name);
    Options options = options_of(Phase::train, 1, 4096);
    options.layout.gpus = c.pp == 3 ? 24 : c.gpus;
    options.layout.tp = c.tp;
    options.layout.pp = c.pp;
    options.layout.cp = c.cp;
    options.layout.ep = c.ep;
    options.layout.zero = c.zero;
    options.layout.sp = c.sp;
    options.gbs = 96;
    for (const Recompute recompute : {Recompute::none, Recompute::full}) {
      options.recompute = recompute;
      obeys_the_laws(predictor(model(c.name), options, runtime("megatron")));
    }
  }
}

TEST(Predict, FlopsAndTokensDoNotDependOnTheLayout) {
  Predictor predictor("h100_sxm");
  const ModelSpec spec = model("llama-3-8b");
  Options options = options_of(Phase::train, 1, 4096);
  options.gbs = 64;
  const Totals one = predictor(spec, options, runtime("fused")).totals;
  options.layout.gpus = 32;
  options.layout.tp = 4;
  options.layout.pp = 2;
  options.layout.sp = true;
  const Totals many = predictor(spec, options, runtime("fused")).totals;
  EXPECT_EQ(to_string(one.flops_model), to_string(many.flops_model));
  EXPECT_EQ(to_string(one.flops_matmul_dense), to_string(many.flops_matmul_dense));
  EXPECT_EQ(to_string(one.tokens), to_string(many.tokens));
  EXPECT_LT(many.step_time_s, one.step_time_s);
}

TEST(Predict, LinearInLayersAndMicroBatches) {
  Predictor predictor("h100_sxm");
  ModelSpec spec = model("llama-3-8b");
  Options options = options_of(Phase::train, 1, 2048);
  options.clocks = ClockState::burst;  // the power limit couples layers: the mix decides the clock
  const auto time = [&](std::int64_t layers) {
    spec.layers = layers;
    return predictor(spec, options, runtime("fused")).totals;
  };
  const Totals a = time(8), b = time(16), c = time(24);
  EXPECT_NEAR(c.forward_time_s - b.forward_time_s, b.forward_time_s - a.forward_time_s, 1e-9);
  EXPECT_NEAR(c.backward_time_s - b.backward_time_s, b.backward_time_s - a.backward_time_s, 1e-9);
  options.gbs = 4;
  EXPECT_NEAR(time(8).forward_time_s, 4 * a.forward_time_s, 1e-9);
}

TEST(Predict, RecomputationTakesTimeAndSavesMemory) {
  Predictor predictor("h100_sxm");
  const ModelSpec spec = model("llama-3-8b");
  Options options = options_of(Phase::train, 1, 4096);
  const Totals none = predictor(spec, options, runtime("fused")).totals;
  options.recompute = Recompute::full;
  const Totals full = predictor(spec, options, runtime("fused")).totals;
  EXPECT_GT(full.recompute_time_s, 0.5 * none.forward_time_s);
  EXPECT_LT(full.memory.activations_bytes, none.memory.activations_bytes);
  EXPECT_GT(full.flops_hardware, none.flops_hardware);
  EXPECT_EQ(to_string(full.flops_model), to_string(none.flops_model));
}

TEST(Predict, IdealRooflineIsNeverSlower) {
  Predictor modelled("h100_sxm"), ideal("h100_sxm", Mode::sol);
  for (const std::string name : {"gpt2", "llama-3-8b", "mixtral-8x7b"}) {
    const Options options = options_of(Phase::train);
    EXPECT_LT(ideal(model(name), options, runtime("fused")).totals.step_time_s, modelled(model(name), options, runtime("fused")).totals.step_time_s);
  }
}

TEST(Predict, ContextIsNothingToAPhaseWithoutACache) {
  Predictor predictor("h200_sxm");
  // Every pointwise kernel is as long as what decode copies of the cache: numel * span / seq / 2.
  Runtime eager = runtime("torch-eager");
  std::optional<RuleExpression> span;
  for (const LoweringRule& rule : eager.rules) {
    for (const RuleKernel& kernel : rule.kernels) {
      if (kernel.what == RuleKernel::What::pointwise && kernel.pointwise == PointwiseKind::concat_seq && kernel.of) span = kernel.of;
    }
  }
  ASSERT_TRUE(span);
  for (LoweringRule& rule : eager.rules) {
    for (RuleKernel& kernel : rule.kernels) {
      if (kernel.what == RuleKernel::What::pointwise && rule.op == OpKind::activation) kernel.of = span;
    }
  }
  Options options = options_of(Phase::forward);
  const double without = predictor(model("gpt2"), options, eager).totals.step_time_s;
  EXPECT_NE(without, predictor(model("gpt2"), options, runtime("torch-eager")).totals.step_time_s);
  for (const std::int64_t context : {std::int64_t{1000000}, std::numeric_limits<std::int64_t>::max()}) {
    options.context = context;
    EXPECT_EQ(predictor(model("gpt2"), options, eager).totals.step_time_s, without) << context;
  }
}

TEST(Predict, CacheOfDecodeByHand) {
  Predictor predictor("h100_sxm");
  // llama-3-8b: 32 layers x 2 x 8 heads x 128 x 2 bytes = 131,072 bytes a token; 1,001 tokens
  EXPECT_EQ(static_cast<std::int64_t>(predictor(model("llama-3-8b"), options_of(Phase::decode), runtime("fused")).totals.memory.kv_cache_bytes), 131072 * 1001);
  // t5-base: 12 layers x 2 x 768 x 2 bytes of 1,001 own tokens and of 512 from the encoder
  EXPECT_EQ(static_cast<std::int64_t>(predictor(model("t5-base"), options_of(Phase::decode), runtime("fused")).totals.memory.kv_cache_bytes), 36864 * (1001 + 512));
}

}  // namespace
}  // namespace rooftile
