// Layers that are alike, stored once with a repeat count.
#pragma once

#include "estimator/graph/graph.h"

namespace rooftile::onnx {

// Finds runs of operators that repeat with the same kinds and sizes and makes each run one segment of role layer; the operators before and after stay what they are. The
// names are those of the first layer. 2 + 12 x 10 + 2 operators of a GPT-2 become 2 + 10 + 2.
void fold_layers(Graph& graph);

}  // namespace rooftile::onnx
