// A prediction seen from three sides: by phase, by what the layers are made of, by what kernels do. Each view parts the step's time without rest.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "estimator/passes/prediction.h"

namespace rooftile {

// What a row is for. An attention block holds its projections, rotary embedding and cache; a mixture its router, moves, experts and shared expert; the head what follows the layers
// except its norm and the loss. `other` is what an imported graph does not name.
enum class LayerRole : std::uint8_t { embedding, norm, attention, mlp, moe, residual, head, loss, optimizer, communication, other };
inline constexpr std::size_t kLayerRoles = 11;
std::string_view name_of(LayerRole kind);
LayerRole layer_role_of(const OpRow& row);

// What a row's kernels do, whatever for; a profiler's kernels are told apart by the same words (tests/device/step_families.py).
//   matmul         matmuls and convolutions, those of unfused attention and of experts included
//   attention      fused attention
//   norm           layer norms and RMS norms in kernels of their own; composed ones are pointwise kernels and reductions
//   softmax        softmax, log-softmax, negative log likelihood, cross entropy
//   pointwise      arithmetic by element, constant fills, small kernels over ids and masks
//   copy           copies, casts, other orders of dimensions, concatenation, rows by index, memory set by the driver
//   reduction      sums and means over rows or columns, sorts, running sums
//   fused          kernels that a compiler generated for several of the above
//   embedding      rows of a table and their gradient
enum class OperatorFamily : std::uint8_t { matmul, attention, norm, softmax, pointwise, copy, reduction, fused, embedding, optimizer, communication };
inline constexpr std::size_t kOperatorFamilies = 11;
std::string_view name_of(OperatorFamily family);
OperatorFamily family_of(const OpRow& row);

inline constexpr std::size_t kStepPhases = 5;

// Times are exposed times; FLOPs are those wanted (OpRow::flops), bytes those of DRAM.
struct ViewSum {
  double time_s = 0;
  Count flops = 0, matmul_flops = 0;  // matmul: of matmuls and attention alone
  Count bytes = 0, launches = 0;
  // Matmul FLOPs over time and peak, none where there are no such FLOPs. 5e11 FLOPs in 1 ms at a peak of 1e15 FLOP/s: 0.5.
  std::optional<double> mfu(double peak_flops) const;
};

struct ViewLine {
  std::string_view name;
  bool waits = false;  // no kernel runs: the pipeline's bubble, gaps between kernels, waiting for the host
  double share = 0;    // of the step
  ViewSum all;
  std::array<ViewSum, kStepPhases> phases;  // by StepPhase
};

enum class ViewKind : std::uint8_t { phase, layer, family };
inline constexpr std::size_t kViewKinds = 3;
std::string_view name_of(ViewKind kind);
std::optional<ViewKind> parse_view_kind(std::string_view name);

// Lines that hold something, in the order of the enums, waits last ("bubble", "gaps", "host"). Their times sum to totals.step_time_s to 1e-9, their FLOPs, bytes and launches to
// those of the rows. Rows of 7 and 2 ms and 1 ms of gaps: shares 0.7, 0.2, 0.1.
std::vector<ViewLine> view_of(const Prediction& prediction, ViewKind kind);

}  // namespace rooftile
