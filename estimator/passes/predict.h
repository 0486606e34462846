// The whole way: Graph -> differentiate -> shard -> lower -> time -> schedule -> account -> Prediction. A pure function of its arguments (the timer only remembers).
#pragma once

#include "estimator/core/result.h"
#include "estimator/graph/graph.h"
#include "estimator/hardware/runtime.h"
#include "estimator/passes/options.h"
#include "estimator/passes/prediction.h"
#include "estimator/timing/timer.h"

namespace rooftile {

// Predicts one step. `graph` is the forward graph of one micro-batch (expand() or an ONNX file). Errors: layout that does not divide (usage), sizes past 2^63 (invalid).
Result<Prediction> predict(const Graph& graph, const Options& options, const Machine& machine, const Runtime& runtime, KernelTimer& timer);

// Parameters of the whole model, counted by the operator table: all, used per token, and in embedding tables.
struct ParameterCounts {
  Count all = 0, active = 0, embedding = 0;
};
ParameterCounts count_parameters(const Graph& graph);

}  // namespace rooftile
