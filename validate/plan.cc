#include "validate/plan.h"

#include <unordered_map>

namespace rooftile {

std::vector<PlannedCall> plan_of(std::span<const OpRow> rows) {
  std::vector<PlannedCall> plan;
  std::unordered_map<KernelCall, std::size_t, KernelCallHash> place;
  for (const OpRow& row : rows) {
    if (row.count <= 0) continue;
    const auto [found, added] = place.try_emplace(row.call, plan.size());
    if (added)
      plan.push_back({row.call, row.count});
    else
      plan[found->second].count += row.count;
  }
  return plan;
}

std::vector<StepBlock> blocks_of(std::span<const OpRow> rows) {
  std::vector<StepBlock> blocks;
  const OpRow* before = nullptr;
  for (const OpRow& row : rows) {
    if (row.count <= 0 || row.phase == StepPhase::communication || row.call.kernel == KernelClass::collective) continue;
    const bool same = before && before->segment == row.segment && before->phase == row.phase && before->count == row.count;
    if (!same) blocks.push_back({{}, row.count});
    blocks.back().calls.push_back(row.call);
    before = &row;
  }
  return blocks;
}

}  // namespace rooftile
