#include <algorithm>
#include <array>
#include <vector>

#include "frontends/onnx/costs.h"
#include "frontends/onnx/rules/rule.h"
#include "frontends/onnx/rules/rules.h"

namespace rooftile::onnx {
namespace {

constexpr Rule kRules[] = {
#define RULE(domain, op, shape, cost) {domain, #op, &rules::shape, &rooftile::onnx::cost, #shape, #cost},
#include "frontends/onnx/rules/rules.def"
#undef RULE
};

struct Order {
  bool operator()(const Rule* a, const Rule* b) const { return a->op != b->op ? a->op < b->op : a->domain < b->domain; }
};

const std::vector<const Rule*>& sorted_rules() {
  static const std::vector<const Rule*> sorted = [] {
    std::vector<const Rule*> list;
    for (const Rule& rule : kRules) list.push_back(&rule);
    std::sort(list.begin(), list.end(), Order());
    return list;
  }();
  return sorted;
}

}  // namespace

const Rule* find_rule(std::string_view domain, std::string_view op) {
  if (domain == "ai.onnx") domain = "";
  const Rule wanted{domain, op, nullptr, nullptr, {}, {}};
  const auto& list = sorted_rules();
  const auto found = std::lower_bound(list.begin(), list.end(), &wanted, Order());
  return found != list.end() && (*found)->op == op && (*found)->domain == domain ? *found : nullptr;
}

std::span<const Rule> rule_table() { return kRules; }

}  // namespace rooftile::onnx
