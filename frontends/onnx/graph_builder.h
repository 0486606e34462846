// Trace -> Graph: rows become operators, tensors that share memory become one, loops become segments with a repeat count.
#pragma once

#include "estimator/core/result.h"
#include "estimator/graph/graph.h"
#include "estimator/passes/options.h"
#include "frontends/onnx/onnx_model.h"
#include "frontends/onnx/propagate.h"

namespace rooftile::onnx {

Result<Graph> build_graph(const Program& program, const Trace& trace, const Options& options);
OnnxCoverage coverage_of(const Trace& trace);

// The estimator's dtype for an element type; floating-point types become `compute` unless they are 8 bits or fewer.
DType dtype_of(Elem elem, DType compute);
DType stored_dtype(Elem elem);

}  // namespace rooftile::onnx
