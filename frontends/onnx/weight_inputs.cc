#include "frontends/onnx/weight_inputs.h"

#include <algorithm>
#include <set>

namespace rooftile::onnx {
namespace {

bool has_loss(const Program& program) {
  return std::any_of(program.main().nodes.begin(), program.main().nodes.end(), [](const Node& node) {
    const std::string_view op = node.data->op;
    return op.starts_with("SoftmaxCrossEntropyLoss") || op == "NegativeLogLikelihoodLoss" || op == "BCEWithLogitsLoss" || op == "MSELoss";
  });
}

std::set<std::string_view> outputs_of(const Program& program) {
  std::set<std::string_view> names;
  for (const ValueId id : program.main().outputs) {
    if (id != kAbsent) names.insert(program.values[id].name);
  }
  return names;
}

bool is_weight(std::string_view name, const std::set<std::string_view>& outputs) {
  if (name.ends_with("weight") || name.ends_with("bias")) return true;
  for (const std::string_view suffix : {"_grad", ".grad", "_gradient", "_updated", "_new"}) {
    if (outputs.contains(std::string(name) + std::string(suffix))) return true;
  }
  return false;
}

}  // namespace

bool contains_gradients(const Program& program) {
  return std::any_of(program.main().nodes.begin(), program.main().nodes.end(), [](const Node& node) {
    const std::string_view op = node.data->op;
    return op == "YieldOp" || op.ends_with("Grad") || op.find("Grad_") != std::string_view::npos || op == "SGD" || op == "AdamOptimizer" || op == "SGDOptimizer" ||
           op == "BroadcastGradientArgs";
  });
}

void take_weight_inputs(Program& program) {
  if (!has_loss(program) && !contains_gradients(program)) return;
  const std::set<std::string_view> outputs = outputs_of(program);
  std::vector<ValueId> kept;
  for (const ValueId id : program.graph_inputs) {
    const ValueName& value = program.values[id];
    const DeclaredType* type = value.declared;
    bool fixed = type != nullptr && type->kind == TypeKind::tensor && type->has_shape && is_float(type->elem) && !type->dims.empty();
    StoredTensor tensor;
    tensor.elements = 1;
    for (std::size_t i = 0; fixed && i < type->dims.size(); ++i) {
      const std::int64_t size = type->dims[i].value;
      fixed = type->dims[i].kind == DeclaredDim::Kind::value && size > 0 && !__builtin_mul_overflow(tensor.elements, size, &tensor.elements);
      tensor.dims.push_back(size);
    }
    if (!fixed || !is_weight(value.name, outputs)) {
      kept.push_back(id);
      continue;
    }
    tensor.name = std::string(value.name);
    tensor.elem = type->elem;
    tensor.input = true;
    program.blocks[0]->stored.emplace_back(id, static_cast<std::uint32_t>(program.stored.size()));
    program.stored.push_back(std::move(tensor));
  }
  program.graph_inputs = std::move(kept);
}

}  // namespace rooftile::onnx
