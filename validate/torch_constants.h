// What a fit of PyTorch's kernels knows before it sees a row: which constants each walk has, within which bounds, from where it starts, and which kernels are of one make.
#pragma once

#include <span>
#include <string_view>
#include <vector>

namespace rooftile {

// Bounds keep a constant within what is physically possible; `neutral` is where a campaign starts, `sigma` how far from there it is expected: of its logarithm, or of the constant
// where it may be 0. Long streams reach much the same share of the bandwidth; what is slower is held back by the SMs.
struct TorchBounds {
  std::string_view field, unit;
  double lowest, highest, neutral, sigma;
};
// The bounds of a constant by the last word of its key.
const TorchBounds& torch_bounds(std::string_view field);

// What the time of a walk depends on; a walk that is not named is flat. "copy_engine" gives "efficiency" alone.
const std::vector<std::string_view>& torch_fields(std::string_view walk);

// Where a walk's constant is of another size than its name usually is.
struct TorchStart {
  std::string_view walk, field;
  double start, sigma;
};
// Null where the bounds' own neutral value holds.
const TorchStart* torch_start(std::string_view walk, std::string_view field);

// What a campaign holds: a free one would take for DRAM what is work of the SMs, and fail on GPUs with less bandwidth for each SM.
struct TorchHeld {
  std::string_view walk, field;
  double value;
  std::string_view unit, note;
};
std::span<const TorchHeld> torch_held();

// Kernels of one make: where rows do not tell, a campaign leaves a walk as its kin. One generated kernel steps through operands with strides, another one converts on loading.
// "gelu" gives "sigmoid", "vector" nothing.
std::string_view torch_kin(std::string_view walk);
// How many kernels stand before this one: gelu 2.
int torch_generation(std::string_view walk);

}  // namespace rooftile
