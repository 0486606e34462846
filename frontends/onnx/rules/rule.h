// The table of ONNX operators: one row is one operator, with how its outputs' shapes follow (and, for small integer tensors, their elements) and what it costs.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace rooftile::onnx {

class Call;      // one execution of a node: its inputs, attributes and outputs (call.h)
class CostCall;  // one execution, shapes known, asked for its work (costs.h)

struct Rule {
  std::string_view domain;  // "" is the default domain
  std::string_view op;
  void (*shape)(Call&);
  void (*cost)(CostCall&);
  std::string_view shape_name, cost_name;  // as written in the table, for the documentation
};

// Nothing for an operator without a row. Domain "ai.onnx" is "".
const Rule* find_rule(std::string_view domain, std::string_view op);
std::span<const Rule> rule_table();

}  // namespace rooftile::onnx
