// Patterns that exporters write as many nodes and that run as one kernel.
#pragma once

#include "frontends/onnx/propagate.h"

namespace rooftile::onnx {

struct RecogniseOptions {
  bool attention = true;  // false keeps attention as its stages
};

// Replaces the rows of recognised groups by one row each; the counts of multiply-accumulates stay what they were.
void recognise(const Program& program, Trace& trace, const RecogniseOptions& options);

}  // namespace rooftile::onnx
