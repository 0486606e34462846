#include "validate/errors.h"

#include <algorithm>
#include <cmath>

namespace rooftile {

ErrorStatistics error_statistics(std::span<const double> ratios) {
  ErrorStatistics statistics;
  statistics.rows = ratios.size();
  if (ratios.empty()) return statistics;
  std::vector<double> sizes;
  for (const double ratio : ratios) {
    sizes.push_back(std::abs(ratio - 1));
    statistics.mean += sizes.back();
    statistics.bias += ratio - 1;
  }
  const auto rows = static_cast<double>(ratios.size());
  statistics.mean /= rows;
  statistics.bias /= rows;
  std::sort(sizes.begin(), sizes.end());
  const std::size_t half = sizes.size() / 2;
  statistics.median = sizes.size() % 2 == 1 ? sizes[half] : (sizes[half - 1] + sizes[half]) / 2;
  statistics.p90 = sizes[static_cast<std::size_t>(std::ceil(0.9 * rows)) - 1];
  return statistics;
}

std::string family_of(const KernelCall& call) {
  std::string family(name_of(call.kernel));
  if (call.kernel == KernelClass::collective) return family + " " + std::string(name_of(call.collective().kind));
  const bool passes = call.kernel == KernelClass::attention || call.kernel == KernelClass::softmax || call.kernel == KernelClass::layernorm ||
                      call.kernel == KernelClass::rmsnorm || call.kernel == KernelClass::embedding || call.kernel == KernelClass::cross_entropy;
  if (passes) family += call.pass == Pass::fwd ? " fwd" : " bwd";
  return family + " " + std::string(name_of(call.dtype));
}

}  // namespace rooftile
