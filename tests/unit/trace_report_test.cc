#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "report/render.h"

namespace rooftile {
namespace {

OpRow row(std::string name, std::string segment, StepPhase phase, std::int64_t count, double time_s) {
  OpRow row;
  row.name = std::move(name), row.segment = std::move(segment), row.phase = phase, row.count = count, row.time_s = time_s;
  row.call = *parse_kernel("gemm", "bf16", "m=8 n=8 k=8");
  return row;
}

Prediction prediction(std::int64_t layers) {
  Prediction p;
  p.model.name = "a \"quoted\" model", p.device_id = "h200_sxm";
  const double n = static_cast<double>(layers);
  p.rows = {row("embedding", "embedding", StepPhase::forward, 1, 1e-3), row("layer.qkv", "layer", StepPhase::forward, layers, n * 2e-3),
            row("layer.mlp", "layer", StepPhase::forward, layers, n * 3e-3), row("head", "head", StepPhase::forward, 1, 4e-3)};
  p.totals.launch_gap_time_s = (2 + 2 * n) * 1e-6, p.totals.host_bound_time_s = 5e-4;
  p.totals.step_time_s = 5e-3 + n * 5e-3 + p.totals.launch_gap_time_s + 5e-4;
  return p;
}

nlohmann::json trace_of(const Prediction& p) {
  std::string text;
  append_trace(text, p, {"1.0", "rooftile estimate"});
  return nlohmann::json::parse(text);
}

TEST(TraceReport, KernelsInOrderWithGapsAddUpToTheStep) {
  const Prediction p = prediction(3);
  const nlohmann::json trace = trace_of(p);
  double kernels_us = 0, previous_us = 0, end_us = 0;
  std::vector<std::string> names;
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    end_us = std::max(end_us, event.at("ts").get<double>() + event.at("dur").get<double>());
    if (event.at("cat") != "kernel") continue;
    EXPECT_GE(event.at("ts").get<double>(), previous_us - 1e-6);  // no two kernels at once
    previous_us = event.at("ts").get<double>() + event.at("dur").get<double>();
    kernels_us += event.at("dur").get<double>();
    names.push_back(event.at("name"));
    EXPECT_EQ(event.at("args").at("phase"), "forward");
    EXPECT_EQ(event.at("args").at("shape"), "m=8 n=8 k=8 batch=1 layout=nt");
  }
  // Layers follow each other, not the instances of each operator.
  EXPECT_EQ(names, (std::vector<std::string>{"embedding", "layer.qkv", "layer.mlp", "layer.qkv", "layer.mlp", "layer.qkv", "layer.mlp", "head"}));
  EXPECT_NEAR(kernels_us, 20e3, 1e-6);
  EXPECT_NEAR(end_us, 1e6 * p.totals.step_time_s, 1e-6);
}

TEST(TraceReport, ManyLayersAreDrawnAsOne) {
  const Prediction p = prediction(1'000'000);
  const nlohmann::json trace = trace_of(p);
  std::size_t kernels = 0;
  double end_us = 0;
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    end_us = std::max(end_us, event.at("ts").get<double>() + event.at("dur").get<double>());
    kernels += event.at("cat") == "kernel";
  }
  EXPECT_EQ(kernels, 4u);
  EXPECT_NEAR(end_us / (1e6 * p.totals.step_time_s), 1, 1e-9);
}

}  // namespace
}  // namespace rooftile
