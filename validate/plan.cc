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

}  // namespace rooftile
