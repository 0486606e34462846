// A model made ready to be run over sizes, once per file: names resolved to numbers, nodes in an order that can be executed, functions written out in place, stored tensors and
// constants decoded where they are small.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "estimator/core/count.h"
#include "frontends/onnx/proto.h"
#include "frontends/onnx/rules/rule.h"
#include "frontends/onnx/value.h"

namespace rooftile::onnx {

using ValueId = std::uint32_t;  // one name in one scope
inline constexpr ValueId kAbsent = 0;

struct Block;

struct Node {
  const NodeData* data = nullptr;
  const Rule* rule = nullptr;             // nothing: unknown operator
  std::vector<Attribute> own_attributes;  // of a node inside a function whose attributes refer to the caller's; else data->attributes holds
  bool has_own_attributes = false;
  std::vector<ValueId> inputs, outputs;
  std::vector<std::pair<std::string_view, const Block*>> blocks;  // by attribute name
  std::int32_t constant = -1;                                     // of a Constant node with a tensor: its index in Program::stored
  std::string_view prefix;                                        // path of function calls around it, "" at the top
  int opset = 0;                                                  // version of its domain

  const std::vector<Attribute>& attributes() const { return has_own_attributes ? own_attributes : data->attributes; }
  const Attribute* attribute(std::string_view name) const;
  std::string label() const;  // its name, or "Op(first output)"
};

// A graph or subgraph.
struct Block {
  std::string_view name;
  std::vector<Node> nodes;
  std::vector<ValueId> inputs, outputs;
  std::vector<std::pair<ValueId, std::uint32_t>> stored;  // initializers: value, index into Program::stored
};

struct StoredTensor {
  std::string name;
  Elem elem = Elem::undefined;
  std::vector<std::int64_t> dims;
  Value value;  // small ones
  bool constant_node = false;
  bool input = false;  // a weight that a training graph takes as an input
  std::int64_t elements = 0;
};

struct ValueName {
  std::string_view name;
  const DeclaredType* declared = nullptr;  // value_info, input or output declaration
};

struct Program {
  std::shared_ptr<const void> storage;  // the bytes that every view points into
  ModelData model;
  std::vector<std::unique_ptr<Block>> blocks;  // [0] is the graph
  std::vector<ValueName> values;
  std::vector<StoredTensor> stored;
  std::vector<std::unique_ptr<std::string>> texts;
  std::vector<Warning> warnings;
  std::vector<ValueId> graph_inputs;  // without those that are initializers
  std::map<std::string, std::int64_t> domain_versions;
  std::size_t node_count = 0;  // subgraphs and functions included

  const Block& main() const { return *blocks[0]; }
};

// Errors (invalid): a cycle, with a node of it; a name that two nodes give; a function that calls itself; over 200,000 nodes after functions are written out. Unsorted nodes,
// missing or doubled opset imports, initializers that are also inputs, and names that nobody gives are warnings.
Result<Program> make_program(std::shared_ptr<const void> storage, ModelData model);

}  // namespace rooftile::onnx
