#include "frontends/hardware_rules.h"

#include <array>
#include <charconv>
#include <optional>
#include <string>

#include "estimator/core/suggest.h"
#include "frontends/hardware_names.h"

namespace rooftile {
namespace {

constexpr std::size_t kLongest = 60;  // of a word that an error repeats

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

std::optional<double> number_of(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

class RuleReader {
 public:
  explicit RuleReader(HardwareReader& reader) : reader_(reader) {}

  std::optional<LoweringRule> rule(const YamlNode& node) {
    LoweringRule rule;
    const std::string op = reader_.text(node, "op", Need::required);
    rule.part = reader_.text(node, "part", Need::required);
    if (!reader_.ok()) return std::nullopt;
    reader_.allow_keys(node, {"op", "part", "when", "kernels", "source", "kind", "date", "note"});
    const auto index = position(kOperatorNames, op);
    if (!index) {
      refuse(*node.find("op"), "operator", op, near(kOperatorNames, op));
      return std::nullopt;
    }
    rule.op = static_cast<OpKind>(*index);
    rule.when = when(node, &rule.when_text);
    if (const YamlNode* kernels = reader_.get_list(node, "kernels", Need::required)) {
      for (const YamlNode& item : kernels->items) rule.kernels.push_back(kernel(item));
    }
    if (!reader_.ok()) return std::nullopt;
    return rule;
  }

 private:
  void refuse(const YamlNode& node, std::string_view what, std::string_view word, std::string hint) {
    reader_.refuse(node, "unknown " + std::string(what) + " '" + std::string(word.substr(0, kLongest)) + "'", std::move(hint));
  }

  RuleExpression expression(const YamlNode& node, std::string_view text) {
    RuleExpression result;
    bool divides = false;
    while (true) {
      const std::size_t end = text.find_first_of("*/");
      const std::string_view factor = trimmed(text.substr(0, end));
      if (const auto value = number_of(factor)) {
        result.factor = divides ? result.factor / (*value != 0 ? *value : 1) : result.factor * *value;
      } else if (const auto size = position(kRuleSizeNames, factor)) {
        (divides ? result.over : result.times).push_back(static_cast<std::uint8_t>(*size));
      } else {
        refuse(node, "size", factor, near(kRuleSizeNames, factor));
        return result;
      }
      if (end == std::string_view::npos) return result;
      divides = text[end] == '/';
      text.remove_prefix(end + 1);
    }
  }

  std::optional<RuleExpression> expression_at(const YamlNode& node, std::string_view key) {
    const YamlNode* value = reader_.get(node, key, Need::optional);
    if (value == nullptr) return std::nullopt;
    return expression(*value, reader_.text(node, key, Need::required));
  }

  void condition(const YamlNode& node, std::string_view text, RuleCondition& result) {
    text = trimmed(text);
    if (const std::size_t sign = text.find_first_of("<>"); sign != std::string_view::npos) {
      const auto right = number_of(trimmed(text.substr(sign + 1)));
      if (!right) return reader_.refuse(node, "a comparison ends with a number: '" + std::string(text.substr(0, kLongest)) + "'");
      result.comparisons.push_back({expression(node, text.substr(0, sign)), text[sign] == '<', *right});
      return;
    }
    const bool negated = text.substr(0, 4) == "not ";
    const std::string_view word = trimmed(negated ? text.substr(4) : text);
    if (word.substr(0, 5) == "name:") {
      (negated ? result.not_names : result.names).emplace_back(word.substr(5));
    } else if (word.substr(0, 9) == "function:") {
      if (!position(kPointwiseNames, word.substr(9))) return refuse(node, "pointwise kind", word.substr(9), near(kPointwiseNames, word.substr(9)));
      (negated ? result.not_functions : result.functions).emplace_back(word.substr(9));
    } else if (const auto index = rule_word(word)) {
      (negated ? result.no : result.yes) |= RuleWords{1} << *index;
    } else {
      refuse(node, "condition", word, near(kRuleWords, word));
    }
  }

  RuleCondition when(const YamlNode& node, std::string* text = nullptr) {
    RuleCondition result;
    const YamlNode* list = reader_.get_list(node, "when", Need::optional);
    if (list == nullptr) return result;
    for (const YamlNode& item : list->items) {
      condition(item, item.scalar, result);
      if (text != nullptr) *text += (text->empty() ? "" : ", ") + item.scalar;
    }
    return result;
  }

  RuleKernel kernel(const YamlNode& node) {
    RuleKernel kernel;
    const std::string kind = reader_.text(node, "kind", Need::required);
    if (!reader_.ok()) return kernel;
    reader_.allow_keys(node, {"kind", "part", "of", "rows", "cols", "m", "n", "k", "batch", "layout", "pass", "calls", "launches", "dtype", "to", "full", "once", "waits", "when"});
    what(node, kind, kernel);
    kernel.part = reader_.text(node, "part", Need::optional);
    kernel.of = expression_at(node, "of");
    kernel.rows = expression_at(node, "rows");
    kernel.cols = expression_at(node, "cols");
    kernel.m = expression_at(node, "m");
    kernel.n = expression_at(node, "n");
    kernel.k = expression_at(node, "k");
    kernel.batch = expression_at(node, "batch");
    kernel.calls = expression_at(node, "calls").value_or(RuleExpression{});
    kernel.launches = expression_at(node, "launches").value_or(RuleExpression{});
    if (!(kernel.calls.factor > 0) || !(kernel.launches.factor > 0)) reader_.refuse(node, "calls and launches are positive");
    if (const std::string pass = reader_.text(node, "pass", Need::optional); pass == "bwd")
      kernel.pass = Pass::bwd;
    else if (!pass.empty() && pass != "fwd")
      refuse(*node.find("pass"), "pass", pass, "fwd, bwd");
    if (const std::string layout = reader_.text(node, "layout", Need::optional); !layout.empty()) {
      constexpr std::array<std::string_view, 4> kLayouts = {"nt", "nn", "tn", "tt"};
      if (const auto index = position(kLayouts, layout))
        kernel.layout = static_cast<GemmLayout>(*index);
      else
        refuse(*node.find("layout"), "layout", layout, "nt, nn, tn, tt");
    }
    kernel.dtype = dtype_at(node, "dtype");
    kernel.to = dtype_at(node, "to");
    kernel.full = reader_.boolean(node, "full", false);
    if (kernel.full && kernel.what != RuleKernel::What::same) reader_.refuse(node, "full is an option of 'same'");
    kernel.once = reader_.boolean(node, "once", false);
    kernel.waits = reader_.boolean(node, "waits", false);
    kernel.when = when(node);
    return kernel;
  }

  void what(const YamlNode& node, std::string_view kind, RuleKernel& kernel) {
    if (kind == "same") {
      kernel.what = RuleKernel::What::same;
    } else if (kind == "gemm") {
      kernel.what = RuleKernel::What::matmul;
    } else if (const auto index = position(kPointwiseNames, kind)) {
      kernel.pointwise = static_cast<PointwiseKind>(*index);
    } else {
      kernel.what = RuleKernel::What::row;
      std::vector<std::string> names = {"same", "gemm"};
      for (std::size_t i = 0; i < kKernelClasses; ++i) {
        const auto row = static_cast<KernelClass>(i);
        if (!is_row_kernel(row)) continue;
        if (name_of(row) == kind) {
          kernel.row = row;
          return;
        }
        names.emplace_back(name_of(row));
      }
      names.insert(names.end(), kPointwiseNames.begin(), kPointwiseNames.end());
      refuse(*node.find("kind"), "kernel", kind, did_you_mean(kind, names));
    }
  }

  std::optional<DType> dtype_at(const YamlNode& node, std::string_view key) {
    const std::string name = reader_.text(node, key, Need::optional);
    if (name.empty()) return std::nullopt;
    const auto dtype = parse_dtype(name);
    if (!dtype) refuse(*node.find(std::string(key)), "dtype", name, "bf16, fp32, int64");
    return dtype;
  }

  HardwareReader& reader_;
};

}  // namespace

std::vector<LoweringRule> read_rules(HardwareReader& reader, const YamlNode& list, std::vector<Fact>& facts) {
  std::vector<LoweringRule> rules;
  RuleReader rule_reader(reader);
  for (const YamlNode& node : list.items) {
    std::optional<LoweringRule> rule = rule_reader.rule(node);
    if (!rule) return rules;
    for (const LoweringRule& other : rules) {
      if (other.op == rule->op && other.part == rule->part && other.when_text == rule->when_text)
        reader.refuse(node, "a rule for " + std::string(name_of(rule->op)) + " " + rule->part + " stands here twice");
    }
    Fact fact;
    fact.key = "rules." + std::string(name_of(rule->op)) + "." + rule->part + (rule->when_text.empty() ? "" : " (" + rule->when_text + ")") + ".kernels";
    fact.value = static_cast<double>(rule->kernels.size());
    fact.unit = "kernel";
    fact.section = "rules";
    reader.provenance(node, Need::required, fact);
    facts.push_back(std::move(fact));
    rules.push_back(std::move(*rule));
    if (!reader.ok()) break;
  }
  return rules;
}

}  // namespace rooftile
