// What both readers' fuzz targets do with a model that was read: it must write, read back, expand in every phase and count without overflow.
#pragma once

#include <cstdlib>

#include "estimator/ops/op_work.h"
#include "frontends/expand.h"
#include "frontends/model_files.h"

namespace rooftile {

inline void exercise(const ModelSpec& spec) {
  const std::string text = write_yaml_model(spec);
  const auto again = read_yaml_model(text, "again.yaml");
  if (!again || write_yaml_model(*again) != text) std::abort();
  for (const Phase phase : {Phase::train, Phase::forward, Phase::prefill, Phase::decode}) {
    Options options;
    options.phase = phase;
    options.context = 7;
    const auto graph = expand(spec, options);
    if (!graph) {
      if (graph.error().code != ErrorCode::invalid && graph.error().code != ErrorCode::unsupported) std::abort();
      continue;
    }
    OpWork work;
    work.begin(*graph, {});
    Count parameters = 0;
    for (const Segment& segment : graph->segments) {
      for (const Operator& op : graph->ops_of(segment)) {
        work_of(op, work);
        parameters += work.parameters * segment.repeat;
      }
    }
    if (parameters < 0) std::abort();
  }
}

}  // namespace rooftile
