#include "frontends/onnx/program.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "frontends/onnx/text.h"

namespace rooftile::onnx {
namespace {

constexpr std::size_t kMaxNodes = 200'000;
constexpr int kMaxCallDepth = 32;
constexpr std::size_t kMaxRealElements = 1024;  // floats are followed only where they are scalars, scales or short tables

using Scope = std::unordered_map<std::string_view, ValueId>;

std::string_view plain_domain(std::string_view domain) { return domain == "ai.onnx" ? std::string_view() : domain; }

class Builder {
 public:
  explicit Builder(Program& program) : program_(program) {}
  Result<void> build();

 private:
  // What surrounds a node: names visible in it and, inside a function, the caller's attributes.
  struct Surroundings {
    std::vector<Scope*> scopes;                      // innermost last
    const std::vector<Attribute>* caller = nullptr;  // attributes of the function call
    const FunctionData* function = nullptr;
    std::string_view prefix;
    int call_depth = 0;
    int graph_depth = 0;
  };

  Result<Block*> graph(const GraphData& data, Surroundings around);
  Result<void> nodes(const std::vector<NodeData>& list, const Surroundings& around, Block& block);
  Result<void> node(const NodeData& data, const Surroundings& around, Block& block);
  Result<void> call(const NodeData& data, const FunctionData& function, const Surroundings& around, Block& block);
  Result<void> sort(Block& block, std::size_t first);

  ValueId fresh(std::string_view name);
  ValueId use(const Surroundings& around, std::string_view name);
  ValueId define(Scope& scope, std::string_view name) {
    const ValueId id = fresh(name);
    scope[name] = id;
    return id;
  }
  void declare(const Scope& scope, const std::vector<ValueInfo>& infos);
  std::int32_t store(const TensorData& data, bool constant_node);
  std::string_view keep(std::string text) { return *program_.texts.emplace_back(std::make_unique<std::string>(std::move(text))); }
  void warn(std::string code, std::string message) { program_.warnings.push_back({std::move(code), std::move(message)}); }
  int opset_of(std::string_view domain, const FunctionData* function) const;

  Program& program_;
  std::unordered_map<std::string, const FunctionData*> functions_;
  std::unordered_map<const TensorData*, std::int32_t> constants_;
  std::unordered_map<ValueId, const NodeData*> constant_givers_;
  std::unordered_set<const NodeData*> replaced_;
  std::size_t unsorted_ = 0, unknown_names_ = 0;
  std::string first_unknown_, first_replaced_;
  std::size_t missing_imports_ = 0;
  std::string missing_domain_;
};

ValueId Builder::fresh(std::string_view name) {
  program_.values.push_back({name, nullptr});
  return static_cast<ValueId>(program_.values.size() - 1);
}

ValueId Builder::use(const Surroundings& around, std::string_view name) {
  if (name.empty()) return kAbsent;
  for (auto scope = around.scopes.rbegin(); scope != around.scopes.rend(); ++scope) {
    const auto found = (*scope)->find(name);
    if (found != (*scope)->end()) return found->second;
  }
  if (unknown_names_++ == 0) first_unknown_ = name;
  return define(*around.scopes.back(), name);  // stays unknown
}

void Builder::declare(const Scope& scope, const std::vector<ValueInfo>& infos) {
  for (const ValueInfo& info : infos) {
    const auto found = scope.find(info.name);
    if (found == scope.end()) continue;
    const DeclaredType*& declared = program_.values[found->second].declared;
    if (declared == nullptr || (!declared->has_shape && info.type.has_shape)) declared = &info.type;
  }
}

std::int32_t Builder::store(const TensorData& data, bool constant_node) {
  StoredTensor tensor;
  tensor.name = std::string(data.name);
  tensor.elem = data.elem;
  tensor.dims = data.dims;
  tensor.constant_node = constant_node;
  std::vector<std::int64_t> ints;
  std::vector<double> reals;
  std::vector<Element> elements;
  if (decode_ints(data, kMaxElements, ints)) {
    elements.assign(ints.begin(), ints.end());
  } else if (const bool mask = data.dims.size() == 4 && data.dims[0] == 1 && data.dims[1] == 1 && data.dims[2] == data.dims[3];
             decode_reals(data, mask ? kMaxElements : kMaxRealElements, reals)) {
    for (const double real : reals) elements.push_back(Element::real(real));
  }
  const bool known = is_integer(data.elem) ? !ints.empty() : !reals.empty();
  if (known) tensor.value = std::make_shared<const std::vector<Element>>(std::move(elements));
  program_.stored.push_back(std::move(tensor));
  return static_cast<std::int32_t>(program_.stored.size() - 1);
}

int Builder::opset_of(std::string_view domain, const FunctionData* function) const {
  if (function != nullptr) {
    for (const OpsetImport& import : function->opsets) {
      if (plain_domain(import.domain) == domain) return static_cast<int>(std::clamp<std::int64_t>(import.version, 0, 1000));
    }
  }
  const auto found = program_.domain_versions.find(std::string(domain));
  return found == program_.domain_versions.end() ? 0 : static_cast<int>(found->second);
}

Result<void> Builder::build() {
  ModelData& model = program_.model;
  for (const OpsetImport& import : model.opsets) {
    const std::string domain(plain_domain(import.domain));
    const std::int64_t version = std::clamp<std::int64_t>(import.version, 0, 1000);
    const auto [known, fresh_domain] = program_.domain_versions.try_emplace(domain, version);
    if (!fresh_domain && known->second != version) {
      warn("opset_imported_twice", "domain '" + readable(domain.empty() ? "ai.onnx" : domain) + "' is imported in versions " + std::to_string(known->second) + " and " +
                                       std::to_string(version) + "; the higher one is taken");
      known->second = std::max(known->second, version);
    }
  }
  if (!program_.domain_versions.contains("")) {
    const bool old = model.ir_version < 3;
    program_.domain_versions[""] = old ? 1 : 17;
    if (!old) warn("opset_import_missing", "the default domain is not imported; opset 17 is assumed");
  }
  for (const FunctionData& function : model.functions) {
    functions_[std::string(plain_domain(function.domain)) + ":" + std::string(function.name) + ":" + std::string(function.overload)] = &function;
  }
  auto main = graph(model.graph, {});
  if (!main) return tl::unexpected(main.error());
  if (unsorted_ > 0) warn("nodes_not_sorted", std::to_string(unsorted_) + " nodes stand before one of their inputs; they were put in order");
  if (!replaced_.empty()) {
    warn("constant_given_twice",
         std::to_string(replaced_.size()) + " Constant nodes give a name that a later one gives too, the first '" + readable(first_replaced_) + "'; the last holds");
  }
  if (unknown_names_ > 0) {
    warn("undefined_name", std::to_string(unknown_names_) + " inputs are given by no node, the first is '" + readable(first_unknown_) + "'; their shapes are unknown");
  }
  if (missing_imports_ > 0) warn("opset_import_missing", std::to_string(missing_imports_) + " nodes use domain '" + readable(missing_domain_) + "' without an import of it");
  return {};
}

Result<Block*> Builder::graph(const GraphData& data, Surroundings around) {
  Block* block = program_.blocks.emplace_back(std::make_unique<Block>()).get();
  const bool top = program_.blocks.size() == 1;
  block->name = data.name;
  Scope scope;
  around.scopes.push_back(&scope);
  for (const auto* list : {&data.initializers, &data.sparse_initializers}) {
    for (const TensorData& tensor : *list) {
      if (tensor.name.empty()) continue;
      if (scope.contains(tensor.name)) {
        return fail(ErrorCode::invalid, "two initializers have the name '" + readable(tensor.name) + "'", readable(tensor.name));
      }
      block->stored.push_back({define(scope, tensor.name), static_cast<std::uint32_t>(store(tensor, false))});
    }
  }
  std::size_t doubled = 0;
  for (const ValueInfo& input : data.inputs) {
    const bool initialised = scope.contains(input.name);
    doubled += initialised ? 1 : 0;
    const ValueId id = initialised ? scope[input.name] : define(scope, input.name);
    if (!initialised && top) program_.graph_inputs.push_back(id);
    if (!initialised || !top) block->inputs.push_back(id);
  }
  if (top && doubled > 0 && program_.model.ir_version >= 4) {
    warn("initializers_are_inputs", std::to_string(doubled) + " initializers are listed as inputs too; they are taken as weights");
  }
  if (const auto done = nodes(data.nodes, around, *block); !done) return tl::unexpected(done.error());
  for (const ValueInfo& output : data.outputs) block->outputs.push_back(use(around, output.name));
  declare(scope, data.inputs);
  declare(scope, data.outputs);
  declare(scope, data.values);
  return block;
}

Result<void> Builder::nodes(const std::vector<NodeData>& list, const Surroundings& around, Block& block) {
  Scope& scope = *around.scopes.back();
  // Names first, so that a node may stand before those that feed it.
  const std::size_t before = program_.values.size();
  for (const NodeData& data : list) {
    for (const std::string_view output : data.outputs) {
      if (output.empty()) continue;
      const auto found = scope.find(output);
      if (found != scope.end() && found->second >= before) {
        // Optimisers append a Constant of a name that exists; the last one holds.
        const NodeData*& giver = constant_givers_[found->second];
        if (giver != nullptr && data.op == "Constant" && data.inputs.empty()) {
          if (replaced_.empty()) first_replaced_ = output;
          replaced_.insert(giver);
          giver = &data;
          continue;
        }
        return fail(ErrorCode::invalid, "two nodes give a tensor of the name '" + readable(output) + "'", std::string(around.prefix) + readable(data.name));
      }
      if (found != scope.end()) {
        return fail(ErrorCode::invalid, "a node gives a tensor of the name '" + readable(output) + "', which is an input or initializer",
                    std::string(around.prefix) + readable(data.name));
      }
      const ValueId id = define(scope, output);
      if (data.op == "Constant" && data.inputs.empty()) constant_givers_[id] = &data;
    }
  }
  const std::size_t first = block.nodes.size();
  for (const NodeData& data : list) {
    if (replaced_.contains(&data)) {
      for (const Attribute& attribute : data.attributes) {
        if (attribute.tensor != nullptr) store(*attribute.tensor, true);  // stored all the same
      }
      continue;
    }
    if (const auto done = node(data, around, block); !done) return done;
  }
  return sort(block, first);
}

Result<void> Builder::node(const NodeData& data, const Surroundings& around, Block& block) {
  if (++program_.node_count > kMaxNodes) {
    return fail(ErrorCode::invalid, "the graph has over 200,000 nodes once its functions are written out", readable(data.name));
  }
  const std::string_view domain = plain_domain(data.domain);
  if (!functions_.empty()) {
    const std::string key = std::string(domain) + ":" + std::string(data.op) + ":";
    auto found = functions_.find(key + std::string(data.overload));
    if (found == functions_.end()) found = functions_.find(key);
    // A function that wraps an operator with a rule of ours (Gelu, LayerNormalization) is taken by the rule.
    if (found != functions_.end() && find_rule(domain, data.op) == nullptr) return call(data, *found->second, around, block);
  }
  Node node;
  node.data = &data;
  node.prefix = around.prefix;
  node.opset = opset_of(domain, around.function);
  node.rule = find_rule(domain, data.op);
  if (!domain.empty() && node.opset == 0) {
    if (missing_imports_++ == 0) missing_domain_ = domain;
  }
  for (const std::string_view input : data.inputs) node.inputs.push_back(use(around, input));
  for (const std::string_view output : data.outputs) node.outputs.push_back(output.empty() ? kAbsent : around.scopes.back()->at(output));
  const bool refers = std::any_of(data.attributes.begin(), data.attributes.end(), [](const Attribute& attribute) { return !attribute.reference.empty(); });
  if (refers) {
    node.has_own_attributes = true;
    for (const Attribute& attribute : data.attributes) {
      if (attribute.reference.empty()) {
        node.own_attributes.push_back(attribute);
        continue;
      }
      const auto named = [&](const std::vector<Attribute>* list) -> const Attribute* {
        if (list == nullptr) return nullptr;
        const auto found = std::find_if(list->begin(), list->end(), [&](const Attribute& other) { return other.name == attribute.reference; });
        return found == list->end() ? nullptr : &*found;
      };
      const Attribute* value = named(around.caller);
      if (value == nullptr && around.function != nullptr) value = named(&around.function->defaults);
      if (value != nullptr) {
        node.own_attributes.push_back(*value);
        node.own_attributes.back().name = attribute.name;
      }
    }
  }
  if (data.op == "Constant" && domain.empty()) {
    const Attribute* value = node.attribute("value");
    if (value == nullptr) value = node.attribute("sparse_value");
    if (value != nullptr && value->tensor != nullptr) {
      const auto [known, fresh_tensor] = constants_.try_emplace(value->tensor.get(), 0);
      if (fresh_tensor) known->second = store(*value->tensor, true);
      node.constant = known->second;
    }
  }
  if (around.graph_depth > kMaxCallDepth) return fail(ErrorCode::invalid, "subgraphs nested over 32 deep", readable(data.name));
  for (const Attribute& attribute : node.attributes()) {
    if (attribute.graph == nullptr) continue;
    Surroundings inner = around;
    inner.graph_depth = around.graph_depth + 1;
    auto sub = graph(*attribute.graph, inner);
    if (!sub) return tl::unexpected(sub.error());
    node.blocks.emplace_back(attribute.name, *sub);
  }
  block.nodes.push_back(std::move(node));
  return {};
}

Result<void> Builder::call(const NodeData& data, const FunctionData& function, const Surroundings& around, Block& block) {
  if (around.call_depth >= kMaxCallDepth) {
    return fail(ErrorCode::invalid, "function '" + readable(function.name) + "' calls itself, or calls are nested over 32 deep", readable(data.name));
  }
  Scope scope;
  for (std::size_t i = 0; i < function.inputs.size(); ++i) {
    scope[function.inputs[i]] = i < data.inputs.size() && !data.inputs[i].empty() ? use(around, data.inputs[i]) : kAbsent;
  }
  Surroundings inner;
  inner.scopes = {&scope};
  inner.function = &function;
  inner.call_depth = around.call_depth + 1;
  inner.graph_depth = around.graph_depth;
  inner.prefix = keep(std::string(around.prefix) + (data.name.empty() ? readable(data.op) : readable(data.name)) + "/");
  // Attributes of the call may themselves refer to the enclosing function's.
  std::vector<Attribute> attributes;
  for (const Attribute& attribute : data.attributes) {
    if (attribute.reference.empty()) {
      attributes.push_back(attribute);
      continue;
    }
    for (const auto* list : {around.caller, around.function != nullptr ? &around.function->defaults : nullptr}) {
      if (list == nullptr) continue;
      const auto found = std::find_if(list->begin(), list->end(), [&](const Attribute& other) { return other.name == attribute.reference; });
      if (found == list->end()) continue;
      attributes.push_back(*found);
      attributes.back().name = attribute.name;
      break;
    }
  }
  inner.caller = &attributes;
  // The outputs of the body are the outputs of the call: nodes of the body that give them are led to the caller's names.
  std::vector<std::pair<ValueId, ValueId>> renamed;
  const std::size_t first = block.nodes.size();
  if (const auto done = nodes(function.nodes, inner, block); !done) return done;
  for (std::size_t i = 0; i < data.outputs.size() && i < function.outputs.size(); ++i) {
    if (data.outputs[i].empty()) continue;
    const auto found = scope.find(function.outputs[i]);
    if (found == scope.end() || found->second == kAbsent) continue;
    renamed.emplace_back(found->second, around.scopes.back()->at(data.outputs[i]));
  }
  for (std::size_t i = 0; i < renamed.size(); ++i) {
    const auto inside = renamed[i].first, outside = renamed[i].second;
    bool given = false;
    for (std::size_t at = first; at < block.nodes.size() && !given; ++at) {
      given = std::find(block.nodes[at].outputs.begin(), block.nodes[at].outputs.end(), inside) != block.nodes[at].outputs.end();
    }
    const bool again = std::any_of(renamed.begin(), renamed.begin() + static_cast<std::ptrdiff_t>(i), [&](const auto& other) { return other.first == inside; });
    if (given && !again) {
      for (std::size_t at = first; at < block.nodes.size(); ++at) {
        for (auto* list : {&block.nodes[at].inputs, &block.nodes[at].outputs}) std::replace(list->begin(), list->end(), inside, outside);
      }
      for (auto& entry : scope) {
        if (entry.second == inside) entry.second = outside;
      }
      for (auto& other : renamed) {
        if (other.first == inside) other.first = outside;
      }
    } else {  // an input that is passed through, or one tensor under two names
      static const NodeData kIdentity = [] {
        NodeData identity;
        identity.op = "Identity";
        return identity;
      }();
      Node identity;
      identity.data = &kIdentity;
      identity.rule = find_rule("", "Identity");
      identity.prefix = inner.prefix;
      identity.inputs = {renamed[i].first};
      identity.outputs = {outside};
      block.nodes.push_back(std::move(identity));
    }
  }
  return {};
}

// Values that a block and the blocks inside it read, for the order.
void collect_reads(const Node& node, std::vector<ValueId>& reads) {
  reads.insert(reads.end(), node.inputs.begin(), node.inputs.end());
  for (const auto& [name, block] : node.blocks) {
    for (const Node& inner : block->nodes) collect_reads(inner, reads);
    reads.insert(reads.end(), block->outputs.begin(), block->outputs.end());
  }
}

Result<void> Builder::sort(Block& block, std::size_t first) {
  const std::size_t count = block.nodes.size() - first;
  std::unordered_map<ValueId, std::uint32_t> giver;
  giver.reserve(count * 2);
  for (std::size_t i = 0; i < count; ++i) {
    for (const ValueId output : block.nodes[first + i].outputs) {
      if (output != kAbsent) giver[output] = static_cast<std::uint32_t>(i);
    }
  }
  std::vector<std::vector<std::uint32_t>> users(count);
  std::vector<std::uint32_t> waits(count, 0);
  std::vector<ValueId> reads;
  bool sorted = true;
  for (std::size_t i = 0; i < count; ++i) {
    reads.clear();
    collect_reads(block.nodes[first + i], reads);
    for (const ValueId read : reads) {
      const auto found = giver.find(read);
      if (found == giver.end()) continue;
      if (found->second == i) {
        return fail(ErrorCode::invalid, "the graph has a cycle: a node reads its own output", block.nodes[first + i].label());
      }
      users[found->second].push_back(static_cast<std::uint32_t>(i));
      ++waits[i];
      if (found->second > i) {
        sorted = false;
        ++unsorted_;
      }
    }
  }
  if (sorted) return {};
  // The order of the file as far as it can be kept: always the earliest node that is ready.
  std::vector<std::uint32_t> ready, order;
  for (std::uint32_t i = 0; i < count; ++i) {
    if (waits[i] == 0) ready.push_back(i);
  }
  std::make_heap(ready.begin(), ready.end(), std::greater<>());
  while (!ready.empty()) {
    std::pop_heap(ready.begin(), ready.end(), std::greater<>());
    const std::uint32_t at = ready.back();
    ready.pop_back();
    order.push_back(at);
    for (const std::uint32_t user : users[at]) {
      if (--waits[user] == 0) {
        ready.push_back(user);
        std::push_heap(ready.begin(), ready.end(), std::greater<>());
      }
    }
  }
  if (order.size() != count) {
    std::size_t at = 0;
    while (waits[at] == 0) ++at;
    return fail(ErrorCode::invalid, "the graph has a cycle", block.nodes[first + at].label());
  }
  std::vector<Node> arranged;
  arranged.reserve(count);
  for (const std::uint32_t at : order) arranged.push_back(std::move(block.nodes[first + at]));
  std::move(arranged.begin(), arranged.end(), block.nodes.begin() + static_cast<std::ptrdiff_t>(first));
  return {};
}

}  // namespace

const Attribute* Node::attribute(std::string_view name) const {
  for (const Attribute& attribute : attributes()) {
    if (attribute.name == name) return &attribute;
  }
  return nullptr;
}

std::string Node::label() const {
  std::string text(prefix);
  if (!data->name.empty()) return text + readable(data->name);
  text += readable(data->op);
  for (const std::string_view output : data->outputs) {
    if (!output.empty()) return text + "(" + readable(output) + ")";
  }
  return text;
}

Result<Program> make_program(std::shared_ptr<const void> storage, ModelData model) {
  Program program;
  program.storage = std::move(storage);
  program.model = std::move(model);
  program.values.push_back({});
  Builder builder(program);
  if (const auto done = builder.build(); !done) return tl::unexpected(done.error());
  return program;
}

}  // namespace rooftile::onnx
