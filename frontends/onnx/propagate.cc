#include "frontends/onnx/propagate.h"

#include <algorithm>

#include "frontends/onnx/call.h"
#include "frontends/onnx/costs.h"
#include "frontends/onnx/text.h"

namespace rooftile::onnx {
namespace {

// Sizes that the file leaves open without a name are taken as 3, 4, 5, ... by axis: small, and different so that nothing broadcasts by accident.
constexpr std::int64_t kUnnamedSize = 3;

bool has_name(const DeclaredDim& dim) { return dim.kind == DeclaredDim::Kind::param && dim.param != "?" && dim.param != "-1" && dim.param != "None"; }

// A value that is likely for a size of that name, for the hint.
std::int64_t suggested(std::string_view name, const DeclaredType& type, std::size_t axis) {
  std::string lower;
  for (const char c : name) lower += static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  const auto has = [&](std::string_view part) { return lower.find(part) != std::string::npos; };
  if (has("batch") || has("beam")) return 1;
  if (has("total")) return 1024;
  if (has("past") || has("cache")) return 512;
  if (has("seq") || has("len") || has("tokens")) return 512;
  if (has("height") || has("width") || has("image")) return 224;
  if (has("channel")) return 3;
  return axis == 1 && is_integer(type.elem) && type.dims.size() == 2 ? 512 : 1;  // ids by sentence and position
}

// Operators through which a folded weight stays the stored tensor that it is.
bool keeps_stored(const Rule& rule) { return rule.cost == &layout_cost || rule.cost == &cast_cost || rule.cost == &dequantize_cost; }

bool swaps_last_two(const Call& call) {
  const std::size_t rank = call.in(0).rank();
  if (call.node.data->op != "Transpose" || rank < 2) return false;
  const auto perm = call.attr_ints("perm");
  if (!perm) return rank == 2;
  if (perm->size() != rank) return false;
  const auto last = static_cast<std::int64_t>(rank) - 1;
  return (*perm)[rank - 1] == last - 1 && (*perm)[rank - 2] == last;
}

bool is_search_block(std::string_view attribute) { return attribute == "decoder" || attribute == "encoder" || attribute == "init_decoder"; }

}  // namespace

Propagation::Propagation(const Program& ready, const DimBindings& given, TraceMode how) : program(ready), bindings(given), mode(how), current_(ready.values.size(), 0) {
  trace.tensors.emplace_back();
  trace.names.push_back(kAbsent);
  trace.names.reserve(ready.values.size() + 1);
}

void Propagation::set_tensor(ValueId id, TensorInfo info) {
  if (id == kAbsent) return;
  const auto index = static_cast<std::uint32_t>(trace.tensors.size());
  if (info.view_of == 0) info.view_of = index;
  trace.tensors.push_back(std::move(info));
  trace.names.push_back(id);
  current_[id] = index;
}

const TensorInfo* Propagation::tensor_of(ValueId id) const {
  if (id == kAbsent) return nullptr;
  static const TensorInfo unknown;
  return current_[id] == 0 ? &unknown : &trace.tensors[current_[id]];
}

bool Propagation::spend(std::int64_t work) {
  if (work > work_left_) return false;
  work_left_ -= work;
  return true;
}

void Propagation::fail_at(const Node& node, std::string message) {
  // A later, more telling message about the same node replaces an earlier one.
  if (failed_ && error_.place != node.label()) return;
  failed_ = true;
  std::string bound;
  for (const auto& [name, value] : bindings) bound += (bound.empty() ? "" : ", ") + readable(name) + "=" + std::to_string(value);
  error_ = {ErrorCode::invalid, std::string(node.data->op) + ": " + std::move(message), node.label(), bound.empty() ? "" : "with " + bound};
}

void Propagation::warn(std::string code, std::string message) {
  if (dry_ > 0 || trace.warnings.size() >= 200 || !warned_.insert(code + message).second) return;
  trace.warnings.push_back({std::move(code), std::move(message)});
}

Dim Propagation::bindable(const std::string& name, const std::string& place, Dim fallback, std::string_view code, const std::string& why) {
  if (dry_ == 0 || mode == TraceMode::bound) {
    const auto [at, fresh] = symbol_index_.try_emplace(name, trace.symbols.size());
    if (fresh) {
      const auto value = fallback.is_constant() ? fallback.value : 1;
      trace.symbols.push_back({name, {place}, value, bindings.contains(name), false});
    }
  }
  if (const auto bound = bindings.find(name); bound != bindings.end()) return bound->second;
  if (mode == TraceMode::symbolic) return trace.dims.symbol(name);
  warn(std::string(code), place + ": " + why + "; " + name + " = " + dim_text(fallback) + " is assumed (--dim " + name + "=N)");
  return fallback;
}

Dim Propagation::declared_dim(const DeclaredDim& dim, const std::string& fresh_name) {
  if (dim.kind == DeclaredDim::Kind::value && dim.value >= 0) return dim.value;
  const std::string text = dim.kind == DeclaredDim::Kind::param ? readable(dim.param, 250) : std::string();
  const bool nameless = !has_name(dim);
  const Dim parsed = nameless ? trace.dims.symbol(fresh_name) : parse_dim(trace.dims, text);
  if (mode == TraceMode::symbolic || parsed.is_constant()) return parsed;
  // A name that is bound as a whole wins over the expression that it spells.
  if (const auto whole = bindings.find(nameless ? fresh_name : text); whole != bindings.end()) return whole->second;
  const auto value = trace.dims.evaluate(parsed, [this](std::string_view name) -> std::optional<std::int64_t> {
    const auto found = bindings.find(std::string(name));
    if (found != bindings.end()) return found->second;
    const auto assumed = assumed_.find(std::string(name));
    return assumed == assumed_.end() ? std::nullopt : std::optional(assumed->second);
  });
  return value ? Dim(*value) : parsed;
}

void Propagation::equality(Dim a, Dim b, const Node& node) {
  if (dry_ > 0 || mode != TraceMode::symbolic || trace.equalities.size() >= 1000) return;
  const std::string left = dim_text(a), right = dim_text(b);
  if (warned_.insert("=" + left + "=" + right).second) trace.equalities.push_back({left, right, node.label()});
}

void Propagation::note_symbols(const DeclaredType& type, std::string_view name) {
  for (std::size_t axis = 0; axis < type.dims.size(); ++axis) {
    const std::string fresh = readable(name) + "_dim" + std::to_string(axis);
    const Dim dim = declared_dim(type.dims[axis], fresh);
    std::vector<std::string> names;
    if (mode == TraceMode::bound && dim.is_constant()) {
      // Bound: still listed, so that a binding that the graph does not have can be told from one that it has.
      DimContext scratch;
      const DeclaredDim& declared = type.dims[axis];
      if (declared.kind == DeclaredDim::Kind::param) {
        scratch.collect_symbols(parse_dim(scratch, readable(declared.param, 250)), names);
        if (bindings.contains(readable(declared.param, 250))) names = {readable(declared.param, 250)};
      }
      if (names.empty() && (declared.kind == DeclaredDim::Kind::unknown || (declared.kind == DeclaredDim::Kind::value && declared.value < 0) || bindings.contains(fresh)))
        names.push_back(fresh);
    } else {
      trace.dims.collect_symbols(dim, names);
    }
    for (const std::string& symbol : names) {
      const auto [at, is_new] = symbol_index_.try_emplace(symbol, trace.symbols.size());
      const bool nameless = symbol == fresh && !has_name(type.dims[axis]);
      if (is_new)
        trace.symbols.push_back({symbol, {}, nameless ? kUnnamedSize + static_cast<std::int64_t>(axis) : suggested(symbol, type, axis), bindings.contains(symbol), !nameless});
      if (is_new && nameless && mode == TraceMode::bound && !bindings.contains(symbol)) {
        const std::int64_t size = kUnnamedSize + static_cast<std::int64_t>(axis);
        assumed_[symbol] = size;
        warn("unnamed_size",
             readable(name) + ", dimension " + std::to_string(axis) + " has no name and no size in the file; " + std::to_string(size) + " is assumed (--dim " + symbol + "=N)");
      }
      auto& places = trace.symbols[at->second].places;
      if (places.size() < 8) places.push_back(readable(name) + ", dimension " + std::to_string(axis));
    }
  }
}

TensorInfo Propagation::from_declaration(ValueId id) {
  TensorInfo info;
  const ValueName& value = program.values[id];
  if (value.declared == nullptr) return info;
  info.elem = value.declared->elem;
  info.kind = value.declared->kind;
  info.ranked = value.declared->has_shape && info.kind == TypeKind::tensor;
  if (info.kind == TypeKind::optional && value.declared->has_shape) info.ranked = true;
  if (info.ranked) {
    for (std::size_t axis = 0; axis < value.declared->dims.size(); ++axis) {
      info.shape.push_back(declared_dim(value.declared->dims[axis], readable(value.name) + "_dim" + std::to_string(axis)));
    }
  }
  return info;
}

void Propagation::declare_input(ValueId id, bool required) {
  const ValueName& value = program.values[id];
  if (value.declared != nullptr && required && value.declared->kind == TypeKind::tensor) {
    note_symbols(*value.declared, value.name);
    for (const DeclaredDim& dim : value.declared->dims) {
      if (dim.kind == DeclaredDim::Kind::value && dim.value < -1 && !failed_) {
        failed_ = true;
        error_ = {ErrorCode::invalid, "an input has the size " + std::to_string(dim.value), readable(value.name), ""};
      } else if (dim.kind == DeclaredDim::Kind::value && dim.value == -1) {
        warn("negative_input_size", readable(value.name) + " has a size of -1; it is taken as a free size");
      }
    }
  }
  TensorInfo info = from_declaration(id);
  if (!info.ranked && info.kind == TypeKind::tensor) warn("input_without_shape", "input " + readable(value.name) + " has no declared shape");
  // A scalar input may be bound by its name: it decides branches and sizes.
  const std::string name = readable(value.name);
  const auto bound = bindings.find(name);
  if (bound != bindings.end() && info.ranked && is_integer(info.elem)) {
    bool single = true;
    for (const Dim dim : info.shape) single = single && dim == Dim(1);
    if (single) {
      info.value = std::make_shared<const std::vector<Element>>(std::vector<Element>{Element(Dim(bound->second))});
      const auto [at, fresh] = symbol_index_.try_emplace(name, trace.symbols.size());
      if (fresh) trace.symbols.push_back({name, {name}, bound->second, true, false});
    }
  }
  set_tensor(id, std::move(info));
}

bool Propagation::declare_inputs() {
  for (const ValueId id : program.graph_inputs) {
    declare_input(id, true);
    trace.inputs.push_back(current_[id]);
  }
  // Subgraphs of search operators have sizes of their own, which nothing else gives.
  for (const auto& block : program.blocks) {
    for (const Node& node : block->nodes) {
      for (const auto& [attribute, inner] : node.blocks) {
        if (!is_search_block(attribute)) continue;
        for (const ValueId id : inner->inputs) {
          if (program.values[id].declared != nullptr) note_symbols(*program.values[id].declared, program.values[id].name);
        }
      }
    }
  }
  if (failed_) return false;
  if (mode == TraceMode::symbolic) return true;
  std::string missing, hint;
  int listed = 0;
  for (const SymbolPlace& symbol : trace.symbols) {
    if (symbol.bound || !symbol.required) continue;
    if (++listed > 40) {
      missing += "\n  and more";
      break;
    }
    missing += "\n  " + symbol.name + " (";
    for (std::size_t i = 0; i < symbol.places.size(); ++i) missing += (i > 0 ? "; " : "") + symbol.places[i];
    missing += ")";
    hint += (hint.empty() ? "" : " ") + ("--dim " + symbol.name + "=" + std::to_string(symbol.suggestion));
  }
  if (!missing.empty()) {
    failed_ = true;
    error_ = {ErrorCode::invalid, "sizes of the graph's inputs have no value:" + missing, "", "give them, for example: " + hint};
    return false;
  }
  for (const auto& [name, value] : bindings) {
    if (value < 0) {
      failed_ = true;
      error_ = {ErrorCode::invalid, "size " + readable(name) + " is " + std::to_string(value), "--dim", "sizes are 0 or more"};
      return false;
    }
  }
  return true;
}

// What the file declares about a tensor fills in what no rule knows.
void Propagation::merge_declaration(ValueId id, TensorInfo& info) {
  if (info.ranked && info.elem != Elem::undefined) return;
  if (program.values[id].declared == nullptr) return;
  TensorInfo declared = from_declaration(id);
  if (info.elem == Elem::undefined) info.elem = declared.elem;
  if (info.kind == TypeKind::tensor && declared.kind != TypeKind::tensor) info.kind = declared.kind;
  if (!info.ranked && declared.ranked) {
    if (mode == TraceMode::bound) {
      for (const Dim dim : declared.shape) {
        if (!dim.is_constant()) return;
      }
    }
    info.ranked = true;
    info.shape = std::move(declared.shape);
  }
}

// Where a size was assumed, what the file says of its own outputs is better knowledge.
void Propagation::prefer_declared(ValueId id, TensorInfo& info) {
  const DeclaredType* declared = program.values[id].declared;
  if (declared == nullptr || !declared->has_shape || declared->kind != TypeKind::tensor) return;
  std::vector<Dim> shape;
  for (const DeclaredDim& dim : declared->dims) {
    if (dim.kind != DeclaredDim::Kind::value || dim.value < 0) return;
    shape.emplace_back(dim.value);
  }
  if (info.ranked && shape == info.shape) return;
  info.ranked = true;
  info.shape = std::move(shape);
  info.value = nullptr;
  trace.warnings.push_back({"declared_output_size", "output " + readable(program.values[id].name) + " follows from assumed sizes; its shape is the one that the file declares"});
}

bool Propagation::run_block(const Block& block, std::int64_t times) {
  if (depth_ >= 40) return false;
  std::int64_t product = 0;
  if (__builtin_mul_overflow(repeat_, std::max<std::int64_t>(times, 1), &product)) {
    failed_ = true;
    error_ = {ErrorCode::invalid, "trip counts multiply to more than 2^63", readable(block.name), ""};
    return false;
  }
  const std::int64_t outer = repeat_;
  repeat_ = product;
  ++depth_;
  for (const auto& [id, index] : block.stored) {
    const StoredTensor& stored = program.stored[index];
    TensorInfo info;
    info.elem = stored.elem;
    info.ranked = true;
    info.constant = true;
    info.stored = static_cast<std::int32_t>(index);
    info.value = stored.value;
    info.shape.assign(stored.dims.begin(), stored.dims.end());
    for (const Dim dim : info.shape) {
      if (dim.value < 0 && !failed_) {
        failed_ = true;
        error_ = {ErrorCode::invalid, "a stored tensor has the size " + std::to_string(dim.value), readable(stored.name), ""};
      }
    }
    set_tensor(id, std::move(info));
  }
  for (const Node& node : block.nodes) {
    if (failed_ || !run_node(node)) break;
  }
  --depth_;
  repeat_ = outer;
  return !failed_;
}

bool Propagation::run_node(const Node& node) {
  Call call(*this, node);
  if (node.rule != nullptr) {
    node.rule->shape(call);
  } else if (dry_ == 0) {
    ++trace.unknown_nodes;
    const std::string op = (node.data->domain.empty() ? "" : readable(node.data->domain) + ".") + readable(node.data->op);
    if (trace.unknown_operators[op]++ == 0) warn("operator_without_rule", node.label() + ": " + op + " has no rule; it costs nothing and its outputs are what the file declares");
  }
  if (trace.dims.overflow() && !failed_) fail_at(node, "a size passes 2^63");
  if (failed_) return false;
  finish(node, call);
  return !failed_;
}

void Propagation::finish(const Node& node, Call& call) {
  bool constant = node.blocks.empty() && (node.rule == nullptr || node.rule->cost != &random_cost);
  bool bookkeeping = constant, any_input = false;
  for (const ValueId id : node.inputs) {
    if (id == kAbsent) continue;
    const TensorInfo& info = *tensor_of(id);
    any_input = true;
    constant = constant && info.constant;
    bookkeeping = bookkeeping && (info.constant || info.bookkeeping);
  }
  constant = constant && node.rule != nullptr;
  // A look-up in a learned table is work also where the ids are positions.
  if (node.rule != nullptr && node.rule->cost == &gather_cost && call.has(0) && call.in(0).constant && is_float(call.in(0).elem)) bookkeeping = false;
  bookkeeping = bookkeeping && any_input && node.rule != nullptr;
  const bool converts = node.rule != nullptr && node.rule->cost == &cast_cost && call.has(0) && call.in(0).elem == call.out(0).elem;
  const bool view = node.rule != nullptr && (node.rule->cost == &view_cost || converts);
  Step step;
  step.node = &node;
  step.repeat = repeat_;
  step.first_ref = static_cast<std::uint32_t>(trace.refs.size());
  step.inputs = static_cast<std::uint16_t>(std::min<std::size_t>(node.inputs.size(), UINT16_MAX));
  step.outputs = static_cast<std::uint16_t>(std::min<std::size_t>(node.outputs.size(), UINT16_MAX));
  if (dry_ == 0) {
    for (std::size_t i = 0; i < step.inputs; ++i) trace.refs.push_back(node.inputs[i] == kAbsent ? 0 : current_[node.inputs[i]]);
  }
  step.free = true;
  for (std::size_t i = 0; i < node.outputs.size(); ++i) {
    const ValueId id = node.outputs[i];
    if (id == kAbsent) {
      if (dry_ == 0 && i < step.outputs) trace.refs.push_back(0);
      continue;
    }
    TensorInfo& info = call.out(i);
    merge_declaration(id, info);
    // Sizes that cannot be: negative, or more elements than 63 bits count.
    std::int64_t elements = 1;
    bool known_size = info.ranked, zero = false;
    for (const Dim dim : info.shape) {
      if (!dim.is_constant()) {
        known_size = false;
        continue;
      }
      zero = zero || dim.value == 0;
      if (dim.value < 0) return fail_at(node, "output " + readable(node.data->outputs[i]) + " gets the size " + std::to_string(dim.value));
      if (dim.value > 0 && __builtin_mul_overflow(elements, dim.value, &elements)) {
        return fail_at(node, "output " + readable(node.data->outputs[i]) + " has more than 2^63 elements");
      }
    }
    if (info.value != nullptr && known_size && static_cast<std::int64_t>(info.value->size()) != (zero ? 0 : elements)) info.value = nullptr;
    info.constant = info.constant || constant;
    bool known = info.value != nullptr;
    if (known) {
      for (const Element& element : *info.value) known = known && element.known();
    }
    info.bookkeeping = known || bookkeeping;
    if (view && i == 0 && !node.inputs.empty() && node.inputs[0] != kAbsent && current_[node.inputs[0]] != 0) {
      const TensorInfo& source = trace.tensors[current_[node.inputs[0]]];
      info.view_of = source.view_of;
      info.stored = source.stored;
      info.packed_bytes = source.packed_bytes;
      info.transposed = source.transposed && info.shape == source.shape;  // of another shape the pitch is not known
    }
    if (info.constant && i == 0 && node.rule != nullptr && keeps_stored(*node.rule) && !node.inputs.empty()) {
      const TensorInfo& source = *tensor_of(node.inputs[0]);
      info.stored = source.stored;
      info.transposed = source.transposed != (node.rule->cost == &layout_cost && swaps_last_two(call));
      info.packed_bytes = node.rule->cost == &dequantize_cost && source.packed_bytes == 0 ? call.stored_bytes(0, 2) : source.packed_bytes;
    }
    step.free = step.free && (info.constant || info.bookkeeping);
    set_tensor(id, std::move(info));
    if (dry_ == 0 && i < step.outputs) trace.refs.push_back(current_[id]);
  }
  if (dry_ > 0) return;
  if (node.outputs.empty()) step.free = false;
  ++trace.executed_nodes;
  trace.steps.push_back(step);
  if (!step.free && node.rule != nullptr) {
    CostCall cost(call, *this, static_cast<std::uint32_t>(trace.steps.size() - 1));
    node.rule->cost(cost);
    if (trace.dims.overflow() && mode == TraceMode::bound) fail_at(node, "its work passes 2^63");
    trace.dims.clear_overflow();
  }
}

Result<Trace> Propagation::run() {
  trace.warnings = program.warnings;
  if (!declare_inputs() || !run_block(program.main(), 1)) return tl::unexpected(error_);
  const bool assumed = std::any_of(trace.symbols.begin(), trace.symbols.end(), [](const SymbolPlace& symbol) { return !symbol.required && !symbol.bound; });
  for (const ValueId id : program.main().outputs) {
    if (id != kAbsent && current_[id] == 0) {  // an output that nothing gives
      set_tensor(id, from_declaration(id));
    }
    trace.outputs.push_back(id == kAbsent ? 0 : current_[id]);
    if (id != kAbsent && assumed && mode == TraceMode::bound) prefer_declared(id, trace.tensors[current_[id]]);
  }
  for (const auto& [name, value] : bindings) {
    if (!symbol_index_.contains(name)) trace.warnings.push_back({"unknown_dimension", "the graph has no size named " + readable(name)});
  }
  return std::move(trace);
}

Result<Trace> propagate(const Program& program, const DimBindings& bindings, TraceMode mode) {
  Propagation propagation(program, bindings, mode);
  return propagation.run();
}

}  // namespace rooftile::onnx
