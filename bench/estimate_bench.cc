// How long the estimator itself takes: a library call once files are parsed (at most 100 µs), a sweep (10,000 in a second), one GEMM.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <stdexcept>

#include "cli/request.h"
#include "cli/session.h"
#include "estimator/passes/predict.h"
#include "frontends/expand.h"
#include "report/render.h"

namespace rooftile {
namespace {

template <typename T>
T value_or_stop(Result<T> result) {
  if (!result) throw std::runtime_error(describe(result.error()));
  return std::move(*result);
}

Request training_request() {
  Request request;
  for (const auto& [name, value] : std::vector<Setting>{{"device", "h100_sxm"}, {"tp", "8"}, {"pp", "16"}, {"gpus", "1024"}, {"gbs", "512"}, {"zero", "1"}}) {
    value_or_stop(apply(request, name, value));
  }
  request.options.seq = 4096;
  value_or_stop(settle(request));
  return request;
}

// Everything is read and the kernels are known: what a search pays for one more look.
void predict_once_parsed(benchmark::State& state) {
  Session session;
  const Request request = training_request();
  const Model& model = *value_or_stop(session.model("llama-3.1-405b"));
  const Machine& machine = *value_or_stop(session.machine("h100_sxm", "", ""));
  const Runtime& runtime = *value_or_stop(session.runtime("fused"));
  KernelTimer timer(machine, Mode::model, ClockState::automatic);
  const Graph graph = value_or_stop(expand(model.spec, request.options));
  for (auto _ : state) benchmark::DoNotOptimize(value_or_stop(predict(graph, request.options, machine, runtime, timer)));
}
BENCHMARK(predict_once_parsed)->Unit(benchmark::kMicrosecond);

// The same under eager PyTorch, whose operators are programs in memory and many kernels in time. Recomputed, so that it fits and no setting that does is searched for.
void predict_eager(benchmark::State& state) {
  Session session;
  Request request = training_request();
  request.options.recompute = Recompute::full;
  request.options.layout.zero = 1;
  request.options.precision = Precision::pure;
  const Model& model = *value_or_stop(session.model("llama-3.1-405b"));
  const Machine& machine = *value_or_stop(session.machine("h100_sxm", "", ""));
  const Runtime& runtime = *value_or_stop(session.runtime("torch-eager"));
  KernelTimer timer(machine, Mode::model, ClockState::automatic);
  const Graph graph = value_or_stop(expand(model.spec, request.options));
  for (auto _ : state) benchmark::DoNotOptimize(value_or_stop(predict(graph, request.options, machine, runtime, timer)));
}
BENCHMARK(predict_eager)->Unit(benchmark::kMicrosecond);

void expand_graph(benchmark::State& state) {
  Session session;
  const Request request = training_request();
  const Model& model = *value_or_stop(session.model("llama-3.1-405b"));
  for (auto _ : state) benchmark::DoNotOptimize(value_or_stop(expand(model.spec, request.options)));
}
BENCHMARK(expand_graph)->Unit(benchmark::kMicrosecond);

// Batch and sequence both change, so no kernel is known already.
void sweep_of_10000(benchmark::State& state) {
  for (auto _ : state) {
    Session session;
    const Model& model = *value_or_stop(session.model("llama-3.1-405b"));
    Request request;
    request.device = "h100_sxm";
    std::string line;
    for (std::int64_t mbs = 1; mbs <= 100; ++mbs) {
      for (std::int64_t seq = 128; seq <= 12800; seq += 128) {
        request.options.mbs = mbs;
        request.options.seq = seq;
        line.clear();
        append_json(line, value_or_stop(session.predict(model, request)), {}, {true, false});
        benchmark::DoNotOptimize(line);
      }
    }
  }
}
BENCHMARK(sweep_of_10000)->Unit(benchmark::kMillisecond)->Iterations(2);

void time_one_gemm(benchmark::State& state) {
  Session session;
  const Machine& machine = *value_or_stop(session.machine("h100_sxm", "", ""));
  KernelTimer timer(machine, Mode::model, ClockState::automatic);
  GemmShape shape;
  shape.n = shape.k = 4096;
  for (auto _ : state) {
    ++shape.m;  // a new shape each time: nothing is remembered
    KernelCall call;
    call.shape = shape;
    benchmark::DoNotOptimize(timer(call).time_s);
    if (timer.distinct_calls() > 50'000) {
      state.PauseTiming();
      timer.~KernelTimer();
      new (&timer) KernelTimer(machine, Mode::model, ClockState::automatic);
      state.ResumeTiming();
    }
  }
}
BENCHMARK(time_one_gemm)->Unit(benchmark::kMicrosecond);

void render_json_with_operators(benchmark::State& state) {
  Session session;
  const Prediction prediction = value_or_stop(session.predict(*value_or_stop(session.model("llama-3.1-405b")), training_request()));
  std::string out;
  for (auto _ : state) {
    out.clear();
    append_json(out, prediction, {}, {true, true});
    benchmark::DoNotOptimize(out);
  }
}
BENCHMARK(render_json_with_operators)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace rooftile

int main(int argc, char** argv) {
  setenv("ROOFTILE_DATA", ROOFTILE_SOURCE_DIR, 0);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
