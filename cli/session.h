// Everything that several predictions of one process share: the data folders, models, machines and runtimes read once, kernel times remembered.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "cli/request.h"
#include "estimator/core/result.h"
#include "estimator/graph/graph.h"
#include "estimator/hardware/runtime.h"
#include "estimator/passes/prediction.h"
#include "estimator/timing/timer.h"
#include "frontends/hardware_files.h"
#include "frontends/model_files.h"
#include "frontends/model_spec.h"
#include "frontends/onnx/onnx_model.h"

namespace rooftile {

// A model file as read: a description, or an ONNX graph.
struct Model {
  std::string name;  // as it was asked for
  std::filesystem::path file;
  ModelFormat format = ModelFormat::yaml;
  ModelSpec spec;
  std::optional<OnnxModel> onnx;
};

class Session {
 public:
  Session();
  const DataPath& data() const { return data_; }

  // A shipped name or a file. Errors: usage with a suggestion (no such name), invalid (broken file), unsupported (unknown family).
  Result<const Model*> model(const std::string& name_or_file);
  Result<const Machine*> machine(const std::string& device, const std::string& cluster, const std::string& calibration);
  Result<const Runtime*> runtime(const std::string& name_or_file);
  KernelTimer& timer(const Machine& machine, Mode mode, ClockState clocks);

  Result<Prediction> predict(const Model& model, Request request);

 private:
  Result<const Graph*> graph_of(const Model& model, const Request& request);

  DataPath data_;
  std::map<std::string, std::unique_ptr<Model>, std::less<>> models_;
  std::map<std::tuple<std::string, std::string, std::string>, std::unique_ptr<Machine>> machines_;
  std::map<std::string, std::unique_ptr<Runtime>, std::less<>> runtimes_;
  std::map<std::tuple<const Machine*, Mode, ClockState>, std::unique_ptr<KernelTimer>> timers_;

  // The last graph: sweeps over layouts keep asking for the same one.
  struct GraphKey {
    const Model* model = nullptr;
    Phase phase = Phase::train;
    DType dtype = DType::bf16;
    std::int64_t mbs = 0, seq = 0, context = 0, layers = 0;
    AttentionKernel attention = AttentionKernel::fastest;
    std::vector<std::pair<std::string, std::int64_t>> dims;
    bool operator==(const GraphKey&) const = default;
  };
  GraphKey graph_key_;
  std::optional<Graph> graph_;
};

// Whether a calibration of the device itself, not just of its architecture, is among the layers.
bool has_calibration(const Machine& machine);

}  // namespace rooftile
