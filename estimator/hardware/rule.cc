#include "estimator/hardware/rule.h"

namespace rooftile {

std::optional<std::size_t> rule_word(std::string_view word) {
  for (std::size_t i = 0; i < kRuleWords.size(); ++i) {
    if (kRuleWords[i] == word) return i;
  }
  return std::nullopt;
}

double RuleExpression::value(const RuleSizes& sizes) const {
  double product = factor;
  for (const std::uint8_t index : times) product *= sizes[index];
  for (const std::uint8_t index : over) product /= sizes[index] > 0 ? sizes[index] : 1;
  return product;
}

}  // namespace rooftile
