#include <array>

#include "estimator/passes/prediction.h"

namespace rooftile {
namespace {
template <typename Enum, std::size_t N>
std::string_view pick(const std::array<std::string_view, N>& names, Enum value) {
  return names[static_cast<std::size_t>(value)];
}
}  // namespace

std::string_view name_of(Phase phase) { return pick<Phase, 4>({"train", "forward", "prefill", "decode"}, phase); }
std::string_view name_of(Precision precision) { return pick<Precision, 2>({"pure", "mixed"}, precision); }
std::string_view name_of(Recompute recompute) { return pick<Recompute, 3>({"none", "selective", "full"}, recompute); }
std::string_view name_of(OptimizerChoice optimizer) { return pick<OptimizerChoice, 3>({"adamw", "sgd", "none"}, optimizer); }
std::string_view name_of(Mode mode) { return pick<Mode, 3>({"sol", "model", "calibrated"}, mode); }
std::string_view name_of(ClockState clocks) { return pick<ClockState, 3>({"auto", "burst", "sustained"}, clocks); }
std::string_view name_of(PipelineSchedule schedule) { return pick<PipelineSchedule, 3>({"1f1b", "gpipe", "interleaved"}, schedule); }
std::string_view name_of(StepPhase phase) { return pick<StepPhase, 5>({"forward", "backward", "recompute", "optimizer", "communication"}, phase); }
std::string_view name_of(Grade grade) { return pick<Grade, 3>({"excellent", "acceptable", "danger"}, grade); }

}  // namespace rooftile
