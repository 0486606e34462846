// What a graph is, told without any size given.
#pragma once

#include "frontends/onnx/onnx_model.h"
#include "frontends/onnx/program.h"
#include "frontends/onnx/propagate.h"

namespace rooftile::onnx {

// Of a symbolic run. The multiply-accumulates are added up here, so the trace's expressions grow.
OnnxDescription describe(Trace& trace, const Program& program);

}  // namespace rooftile::onnx
