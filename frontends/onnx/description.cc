// What a graph is, told without any size given.
#include "frontends/onnx/description.h"

#include <algorithm>

#include "frontends/onnx/graph_builder.h"
#include "frontends/onnx/text.h"

namespace rooftile {
namespace {

OnnxPort port_of(onnx::Trace& trace, const onnx::Program& program, std::uint32_t id) {
  const onnx::TensorInfo& info = trace.tensors[id];
  OnnxPort port{onnx::readable(program.values[trace.names[id]].name), std::string(onnx::name_of(info.elem)), info.ranked ? "[" : "unknown"};
  if (!info.ranked) return port;
  for (std::size_t i = 0; i < info.shape.size(); ++i) port.shape += (i > 0 ? ", " : "") + trace.dims.text(info.shape[i]);
  port.shape += "]";
  return port;
}

std::vector<OnnxDescription::Operator> operators_of(const onnx::Program& program) {
  std::map<std::string, OnnxDescription::Operator> found;
  for (const auto& block : program.blocks) {
    for (const onnx::Node& node : block->nodes) {
      const std::string_view domain = node.data->domain;
      std::string name = (domain.empty() || domain == "ai.onnx" ? "" : onnx::readable(domain) + ".") + onnx::readable(node.data->op);
      OnnxDescription::Operator& entry = found[name];
      entry.name = std::move(name);
      entry.known = node.rule != nullptr;
      ++entry.nodes;
    }
  }
  std::vector<OnnxDescription::Operator> list;
  for (auto& [name, entry] : found) list.push_back(std::move(entry));
  std::stable_sort(list.begin(), list.end(), [](const auto& a, const auto& b) { return a.nodes > b.nodes; });
  return list;
}

}  // namespace

OnnxDescription onnx::describe(Trace& trace, const Program& program) {
  OnnxDescription description;
  for (const std::uint32_t id : trace.inputs) description.inputs.push_back(port_of(trace, program, id));
  for (const std::uint32_t id : trace.outputs) description.outputs.push_back(port_of(trace, program, id));
  for (const onnx::SymbolPlace& symbol : trace.symbols) description.symbols.push_back({symbol.name, symbol.places, symbol.suggestion, symbol.required});
  for (const onnx::Equality& equality : trace.equalities) description.equalities.push_back({equality.left, equality.right, equality.node});
  onnx::Dim total = 0;
  for (const onnx::Work& work : trace.works) total = trace.dims.add(total, trace.dims.mul(work.macs, work.repeat));
  if (!trace.dims.overflow()) description.macs = trace.dims.text(total);
  description.operators = operators_of(program);
  description.coverage = onnx::coverage_of(trace);
  description.warnings = trace.warnings;
  return description;
}

}  // namespace rooftile
