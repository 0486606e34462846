// Weights that a training graph takes as inputs.
#pragma once

#include "frontends/onnx/program.h"

namespace rooftile::onnx {

// Does the graph hold gradients or an optimizer? Then it is costed as it is.
bool contains_gradients(const Program& program);

// Moves such weights from the graph's inputs to its stored tensors (StoredTensor::input). In a graph with a loss, gradients or an optimizer they are the floating-point inputs of
// fixed size that an output named after them updates ("w" and "w_grad", "w_updated") or whose name ends in "weight" or "bias".
void take_weight_inputs(Program& program);

}  // namespace rooftile::onnx
