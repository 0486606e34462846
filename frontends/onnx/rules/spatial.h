// Sizes of sliding windows, shared by shapes and costs.
#pragma once

#include <cstdint>

#include "frontends/onnx/call.h"

namespace rooftile::onnx::rules {

// Output size of one spatial dimension: floor((size + pads - dilation (kernel - 1) - 1) / stride) + 1, ceiling where asked; auto_pad SAME gives ceil(size / stride).
// 224 with kernel 7, stride 2, pads 3 + 3: 112.
struct Window {
  std::vector<std::int64_t> kernel, strides, dilations, pads;
  std::string_view auto_pad;
  bool ceil_mode = false;
};
Window window_of(Call& call, std::size_t spatial_rank);
Dim window_output(Call& call, const Window& window, std::size_t axis, Dim size);

}  // namespace rooftile::onnx::rules
