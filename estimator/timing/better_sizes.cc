#include "estimator/timing/better_sizes.h"

#include <algorithm>

namespace rooftile {
namespace {

constexpr double kWorthwhile = 0.97, kAbout = 1.01;
constexpr std::int64_t kGranules[] = {8, 16, 32, 64, 128, 256};

}  // namespace

std::vector<BetterSize> better_sizes(const KernelCall& call, KernelTimer& timer) {
  std::vector<BetterSize> found;
  if (call.kernel != KernelClass::gemm) return found;
  const double own_s = timer(call).time_s;
  if (!(own_s > 0)) return found;
  const std::pair<std::string_view, std::int64_t GemmShape::*> dimensions[] = {{"m", &GemmShape::m}, {"n", &GemmShape::n}, {"k", &GemmShape::k}};
  for (const auto& [name, member] : dimensions) {
    const std::int64_t size = call.gemm().*member;
    for (const bool up : {true, false}) {
      double best = kWorthwhile / kAbout;
      std::int64_t last = size;
      for (const std::int64_t granule : kGranules) {
        const std::int64_t down = size / granule * granule;
        if (size % granule == 0 || (up && down > INT64_MAX - granule)) continue;
        const std::int64_t other = up ? down + granule : down;
        if (other <= 0 || other == last || std::abs(other - size) > size / 8) continue;
        last = other;
        KernelCall changed = call;
        std::get<GemmShape>(changed.shape).*member = other;
        const double time_s = timer(changed).time_s, per_flop = time_s / own_s * static_cast<double>(size) / static_cast<double>(other);
        if (per_flop > best * kAbout || (up && time_s >= own_s)) continue;
        found.push_back({name, other, time_s, per_flop});
        best = std::min(best, per_flop);
      }
    }
  }
  return found;
}

}  // namespace rooftile
