#include <algorithm>
#include <string>

#include "frontends/onnx/onnx_model.h"
#include "frontends/onnx/rules/rule.h"

namespace rooftile {
namespace {

// "layer_norm_cost" -> "layer norm".
std::string words(std::string_view name) {
  if (name.ends_with("_cost")) name.remove_suffix(5);
  std::string text(name);
  std::replace(text.begin(), text.end(), '_', ' ');
  return text;
}

}  // namespace

std::string onnx_operator_table() {
  std::string text = "| domain | operator | shapes | costed as |\n|---|---|---|---|\n";
  for (const onnx::Rule& rule : onnx::rule_table()) {
    text +=
        "| " + std::string(rule.domain.empty() ? "ai.onnx" : rule.domain) + " | " + std::string(rule.op) + " | " + words(rule.shape_name) + " | " + words(rule.cost_name) + " |\n";
  }
  return text;
}

}  // namespace rooftile
