#include "validate/neighbours.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>

namespace rooftile {
namespace {

const GemmShape& shape_of(const JudgedRow& judged) { return judged.row->call.gemm(); }

double useful_flops(const GemmShape& s) { return 2.0 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k) * static_cast<double>(s.batch); }

bool near(std::int64_t a, std::int64_t b) { return static_cast<double>(std::max(a, b)) <= kNeighbour * static_cast<double>(std::min(a, b)); }

}  // namespace

OrderCount& OrderCount::operator+=(const OrderCount& other) {
  pairs += other.pairs, right += other.right, far_pairs += other.far_pairs, far_right += other.far_right;
  return *this;
}

std::vector<NeighbourPair> neighbour_pairs(const std::vector<JudgedRow>& rows) {
  // Rows that agree in everything but their sizes, in the order of m.
  std::map<std::string, std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, const JudgedRow*>> groups;
  for (const JudgedRow& judged : rows) {
    if (judged.row->call.kernel != KernelClass::gemm) continue;
    KernelCall rest = judged.row->call;
    GemmShape& s = std::get<GemmShape>(rest.shape);
    const std::tuple size(s.m, s.n, s.k);
    s.m = s.n = s.k = 1;
    groups[fmt::format("{} {} {} {}", judged.row->protocol, name_of(rest.dtype), print_shape(rest), static_cast<int>(judged.row->clocks))].try_emplace(size, &judged);
  }
  std::vector<NeighbourPair> pairs;
  for (const auto& [key, group] : groups) {
    for (auto first = group.begin(); first != group.end(); ++first) {
      const GemmShape& a = shape_of(*first->second);
      for (auto second = std::next(first); second != group.end() && near(shape_of(*second->second).m, a.m); ++second) {
        const GemmShape& b = shape_of(*second->second);
        if (!near(a.n, b.n) || !near(a.k, b.k)) continue;
        const double flops = useful_flops(b) / useful_flops(a);
        const NeighbourPair pair{first->second, second->second, second->second->row->measured_s / first->second->row->measured_s / flops,
                                 second->second->predicted_s / first->second->predicted_s / flops};
        if (std::max(pair.measured, 1 / pair.measured) > kApart) pairs.push_back(pair);
      }
    }
  }
  return pairs;
}

OrderCount count_order(const std::vector<NeighbourPair>& pairs) {
  OrderCount count;
  for (const NeighbourPair& pair : pairs) {
    const bool far = std::max(pair.measured, 1 / pair.measured) > kFarApart;
    ++count.pairs, count.right += pair.right(), count.far_pairs += far, count.far_right += far && pair.right();
  }
  return count;
}

}  // namespace rooftile
