// An ONNX file: read once, then asked any number of times for its operators at given sizes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "estimator/core/count.h"
#include "estimator/core/result.h"
#include "estimator/graph/graph.h"
#include "estimator/passes/options.h"

namespace rooftile {

namespace onnx {
struct Program;
}

// A free size of the graph.
struct OnnxSymbol {
  std::string name;
  std::vector<std::string> places;  // "input_ids, dimension 0", or the node whose trip count, branch or output size it is
  std::int64_t suggestion = 1;
  bool required = true;  // false: has a default
};

// Two sizes that the operators need equal although the file names them apart.
struct OnnxEquality {
  std::string left, right, node;
};

// Parameters as stored: every initializer once, tied or not, 4-bit weights unpacked; Constant nodes of more than 1 kB count. A training graph keeps its weights as inputs:
// those that take_weight_inputs() tells from data are counted.
struct OnnxParameters {
  Count all = 0;
  Count floats = 0;     // floating-point elements of initializers and Constant nodes, small ones included
  Count integers8 = 0;  // 8-bit elements of initializers
  Count bytes = 0;      // as stored
};

struct OnnxTensor {
  std::string name, dtype;  // dtype as ONNX names it: "float32", "int64"
  std::vector<std::int64_t> shape;
  bool known = false;  // the shape is
};

// What of the graph was understood.
struct OnnxCoverage {
  std::int64_t nodes = 0;             // executed, subgraphs included
  std::int64_t unknown_nodes = 0;     // operators without a rule: listed, not costed
  std::int64_t unresolved_nodes = 0;  // with a rule, but of unknown shape: not costed
  std::map<std::string, std::int64_t> unknown_operators;
  std::vector<std::string> unresolved;  // their names, the first 50
  double fraction() const { return nodes == 0 ? 1.0 : 1.0 - static_cast<double>(unknown_nodes + unresolved_nodes) / static_cast<double>(nodes); }
};

// Counts at given sizes, without a graph.
struct OnnxSummary {
  Count macs = 0;                                 // multiply-accumulates of products, convolutions, recurrences and attention (dense)
  std::map<std::string, Count> macs_by_operator;  // by ONNX operator type
  std::vector<OnnxTensor> outputs;
  OnnxCoverage coverage;
  std::vector<OnnxSymbol> symbols;
  std::vector<Warning> warnings;
};

// An input or output as a person reads it: "input_ids", "int64", "[batch, past + seq]".
struct OnnxPort {
  std::string name, dtype, shape;
};

// The graph without any size given.
struct OnnxDescription {
  std::vector<OnnxPort> inputs, outputs;
  std::vector<OnnxSymbol> symbols;
  std::vector<OnnxEquality> equalities;
  std::string macs;  // multiply-accumulates as an expression of the symbols; empty where a coefficient passes 2^63
  struct Operator {
    std::string name;
    std::int64_t nodes = 0;
    bool known = true;
  };
  std::vector<Operator> operators;  // the most frequent first
  OnnxCoverage coverage;
  std::vector<Warning> warnings;
};

class OnnxModel {
 public:
  explicit OnnxModel(std::shared_ptr<const onnx::Program> program, std::string source);

  // The operators at these sizes, patterns (attention, norms, activations, rotary) recognised. options.attention == standard keeps attention as its stages. options.dtype is
  // the dtype that floating-point operators are costed in. Errors (invalid): sizes without a value, each with its places and a suggestion; sizes that contradict each other.
  Result<Graph> bind(const std::map<std::string, std::int64_t>& dims, const Options& options) const;
  Result<OnnxSummary> summarise(const std::map<std::string, std::int64_t>& dims) const;

  // Without any size given: the free sizes, the equalities between them, and the multiply-accumulates as an expression of them.
  Result<std::vector<OnnxSymbol>> symbols() const;
  Result<std::vector<OnnxEquality>> equalities() const;
  Result<std::string> macs_expression() const;
  // That expression's value: one symbolic run serves many sizes.
  Result<std::vector<Count>> evaluate_macs(const std::vector<std::map<std::string, std::int64_t>>& points) const;

  // Errors (invalid): sizes in the file that contradict each other.
  Result<OnnxDescription> description() const;

  OnnxParameters parameters() const;
  bool contains_gradients() const;  // a training graph: it is costed as it is, not differentiated
  const std::string& source() const { return source_; }
  std::string producer() const;
  std::size_t nodes() const;  // of the file, subgraphs and functions written out
  std::map<std::string, std::int64_t> opsets() const;

 private:
  std::shared_ptr<const onnx::Program> program_;
  std::string source_;
};

// Reads a file; only the graph's structure and small integer tensors are looked at, external data never. Errors (invalid): not a file, malformed, cyclic, ambiguous names.
Result<OnnxModel> read_onnx(const std::filesystem::path& file);
// The same for bytes in memory; `source` names them in messages.
Result<OnnxModel> read_onnx_bytes(std::string bytes, std::string source);

// Markdown rows of the operator table, for the documentation.
std::string onnx_operator_table();

}  // namespace rooftile
