#include "estimator/graph/op_kind.h"

#include <array>

#include "estimator/ops/op_work.h"

namespace rooftile {
namespace {

constexpr OperatorRow kTable[] = {
#define OPERATOR(id, onnx, category, function, doc) {OpKind::id, #id, onnx, OpCategory::category, &function, doc},
#include "estimator/graph/operators.def"
};

constexpr bool in_order() {
  for (std::size_t i = 0; i < std::size(kTable); ++i) {
    if (static_cast<std::size_t>(kTable[i].kind) != i) return false;
  }
  return true;
}
static_assert(in_order(), "row_of() indexes the table by kind");

}  // namespace

const OperatorRow& row_of(OpKind kind) { return kTable[static_cast<std::size_t>(kind)]; }
std::span<const OperatorRow> operator_table() { return kTable; }

std::optional<OpKind> parse_op_kind(std::string_view name) {
  for (const OperatorRow& row : kTable) {
    if (row.name == name) return row.kind;
  }
  return std::nullopt;
}

std::string_view name_of(OpCategory category) {
  static constexpr std::array<std::string_view, 11> kNames = {"gemm", "attention", "norm",        "pointwise",  "embedding", "moe",
                                                              "loss", "optimizer", "convolution", "collective", "movement"};
  return kNames[static_cast<std::size_t>(category)];
}

}  // namespace rooftile
