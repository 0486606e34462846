// The accuracy gate of memory: every measured step of hardware/measurements/h200_sxm-steps.csv. No number of the model was fitted to these rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "estimator/passes/step.h"
#include "frontends/expand.h"
#include "frontends/hardware_files.h"
#include "frontends/model_files.h"
#include "tests/accuracy/step_runs.h"

namespace rooftile {
namespace {

TEST(StepMemory, MeasuredPeaksAreMet) {
  const DataPath data{{ROOFTILE_SOURCE_DIR}};
  const std::string folder = std::string(ROOFTILE_SOURCE_DIR) + "/hardware/measurements/";
  const auto table = read_table(read_text(folder + "h200_sxm-steps.csv").value());
  const auto configs = nlohmann::json::parse(read_text(folder + "h200_sxm-steps-models.json").value());
  const Machine machine = load_machine(data, "h200_sxm", "", "").value();
  const Runtime eager = *read_runtime(*data.find(DataKind::runtime, "torch-eager")), compiled = *read_runtime(*data.find(DataKind::runtime, "torch-compile"));
  double sum = 0, worst = 0;
  int rows = 0;
  for (const auto& row : table) {
    const auto field = [&](const std::string& name) { return row.at(name); };
    if (field("peak_bytes").empty()) continue;
    const auto spec = read_hf_config(configs.at(field("model")).dump(), field("model"));
    if (!spec) continue;  // a family that is not known
    Options options;
    const std::string phase = field("phase");
    options.phase = phase == "train" ? Phase::train : phase == "forward" ? Phase::forward : phase == "prefill" ? Phase::prefill : Phase::decode;
    options.mbs = std::stoll(field("batch"));
    options.seq = std::stoll(field("seq"));
    options.context = std::stoll(field("context"));
    options.precision = field("precision") == "mixed" ? Precision::mixed : Precision::pure;
    options.attention = field("attention") == "eager" ? AttentionKernel::standard : AttentionKernel::fastest;
    options.recompute = field("recompute") == "True" ? Recompute::full : Recompute::none;
    options.gbs = options.mbs;
    options.layout.dp = options.layout.gpus = 1;
    const Runtime& runtime = field("compiled") == "True" ? compiled : eager;
    const Graph graph = expand(*spec, options).value();
    const StepGraph step = differentiate(graph, options);
    const Stage stage = stages_of(step.graph, options.layout).front();
    const MemoryTotals memory = memory_of(shard(step, options, runtime, stage), stage, options, runtime, machine.device);
    const double error = std::abs(to_double(memory.peak_bytes) / std::stod(field("peak_bytes")) - 1);
    EXPECT_LT(error, 0.01) << field("id");
    sum += error;
    worst = std::max(worst, error);
    ++rows;
  }
  ASSERT_GE(rows, 60);
  EXPECT_LT(sum / rows, 0.0015);
  RecordProperty("mean_error", std::to_string(sum / rows));
  RecordProperty("worst_error", std::to_string(worst));
}

}  // namespace
}  // namespace rooftile
