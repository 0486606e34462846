// The enum of operators, generated from operators.def: one row there is one operator here, in the name tables, in the docs and in the tests.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace rooftile {

enum class OpKind : std::uint8_t {
#define OPERATOR(id, onnx, category, function, doc) id,
#include "estimator/graph/operators.def"
};

enum class OpCategory : std::uint8_t { gemm, attention, norm, pointwise, embedding, moe, loss, optimizer, convolution, collective, movement };
std::string_view name_of(OpCategory category);

struct Operator;
class OpWork;

struct OperatorRow {
  OpKind kind;
  std::string_view name;
  std::string_view onnx;  // ONNX operator types that map to it, separated by blanks
  OpCategory category;
  void (*work)(const Operator&, OpWork&);
  std::string_view doc;
};

const OperatorRow& row_of(OpKind kind);
std::span<const OperatorRow> operator_table();
inline std::string_view name_of(OpKind kind) { return row_of(kind).name; }
std::optional<OpKind> parse_op_kind(std::string_view name);

}  // namespace rooftile
