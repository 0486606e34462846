#include "frontends/onnx/call.h"

#include <algorithm>
#include <cstdlib>

#include "frontends/onnx/propagate.h"
#include "frontends/onnx/text.h"

namespace rooftile::onnx {
namespace {
const TensorInfo kUnknown;
}

Call::Call(Propagation& propagation, const Node& at) : node(at), dims(propagation.trace.dims), propagation_(propagation) {
  in_.reserve(at.inputs.size());
  for (const ValueId id : at.inputs) in_.push_back(propagation.tensor_of(id));
  out_.resize(at.outputs.size());
}

bool Call::wants(std::size_t i) const { return i < node.outputs.size() && node.outputs[i] != kAbsent; }
const TensorInfo& Call::in(std::size_t i) const { return has(i) ? *in_[i] : kUnknown; }
TensorInfo& Call::out(std::size_t i) { return i < out_.size() ? out_[i] : scratch_; }

std::optional<std::size_t> Call::declared_rank(std::size_t output) const {
  if (!wants(output)) return std::nullopt;
  const DeclaredType* declared = propagation_.program.values[node.outputs[output]].declared;
  return declared != nullptr && declared->has_shape ? std::optional(declared->dims.size()) : std::nullopt;
}

std::int64_t Call::attr_int(std::string_view name, std::int64_t fallback) const {
  const Attribute* attribute = node.attribute(name);
  if (attribute == nullptr) return fallback;
  if (attribute->has_i) return attribute->i;
  if (!attribute->ints.empty()) return attribute->ints[0];
  return attribute->type == 2 ? 0 : fallback;  // an INT of 0 may be left out on the wire
}

double Call::attr_float(std::string_view name, double fallback) const {
  const Attribute* attribute = node.attribute(name);
  if (attribute == nullptr) return fallback;
  return attribute->has_f ? static_cast<double>(attribute->f) : attribute->type == 1 ? 0.0 : fallback;
}

std::string_view Call::attr_text(std::string_view name, std::string_view fallback) const {
  const Attribute* attribute = node.attribute(name);
  return attribute == nullptr || (!attribute->has_s && attribute->type != 3) ? fallback : attribute->s;
}

std::optional<std::vector<std::int64_t>> Call::attr_ints(std::string_view name) const {
  const Attribute* attribute = node.attribute(name);
  if (attribute == nullptr) return std::nullopt;
  if (attribute->ints.empty() && (attribute->has_i || attribute->type == 2)) return std::vector<std::int64_t>{attribute->i};
  return attribute->ints;
}

std::optional<std::vector<Dim>> Call::in_dims(std::size_t i) const {
  if (!has(i) || in(i).value == nullptr) return std::nullopt;
  std::vector<Dim> out;
  out.reserve(in(i).value->size());
  for (const Element& element : *in(i).value) {
    if (!element.is_integer()) return std::nullopt;
    out.push_back(element.dim());
  }
  return out;
}

std::optional<std::vector<std::int64_t>> Call::in_ints(std::size_t i) const {
  const auto list = in_dims(i);
  if (!list) return std::nullopt;
  std::vector<std::int64_t> out;
  for (const Dim dim : *list) {
    if (!dim.is_constant()) return std::nullopt;
    out.push_back(dim.value);
  }
  return out;
}

std::optional<double> Call::in_number(std::size_t i) const {
  if (!has(i) || in(i).value == nullptr || in(i).value->size() != 1 || !in(i).value->front().is_constant()) return std::nullopt;
  return in(i).value->front().number();
}

std::optional<Dim> Call::in_dim(std::size_t i) const {
  const auto list = in_dims(i);
  if (!list || list->size() != 1) return std::nullopt;
  return list->front();
}

std::optional<std::vector<std::int64_t>> Call::ints_of(std::string_view attribute, std::size_t input) const {
  if (has(input)) return in_ints(input);
  return attr_ints(attribute);
}

bool Call::axis_of(std::int64_t axis, std::size_t rank, std::size_t& out) {
  const auto size = static_cast<std::int64_t>(rank);
  if (axis < -size || axis >= size) {
    fail("axis " + std::to_string(axis) + " of a tensor with " + std::to_string(rank) + " dimensions");
    return false;
  }
  out = static_cast<std::size_t>(axis < 0 ? axis + size : axis);
  return true;
}

void Call::set(std::size_t i, Elem elem, std::vector<Dim> shape) {
  TensorInfo& tensor = out(i);
  tensor.elem = elem;
  tensor.ranked = true;
  tensor.shape = std::move(shape);
}

void Call::set_type(std::size_t i, Elem elem) { out(i).elem = elem; }

void Call::same(std::size_t i, std::size_t input) {
  TensorInfo& tensor = out(i);
  tensor.elem = in(input).elem;
  tensor.ranked = in(input).ranked;
  tensor.shape = in(input).shape;
}

void Call::set_value(std::size_t i, std::vector<Element> elements) {
  if (elements.size() > kMaxElements || !propagation_.spend(static_cast<std::int64_t>(elements.size()))) return;
  out(i).value = std::make_shared<const std::vector<Element>>(std::move(elements));
}

bool Call::wants_value(const std::vector<Dim>& shape) const {
  if (dims.overflow()) return false;  // reported once the rule returns
  std::int64_t count = 1;
  for (const Dim dim : shape) {
    if (!dim.is_constant() || dim.value < 0) return false;
    if (dim.value == 0) return true;
    if (dim.value > static_cast<std::int64_t>(kMaxElements)) return false;
    count *= dim.value;
    if (count > static_cast<std::int64_t>(kMaxElements)) return false;
  }
  return propagation_.spend(count);
}

Dim Call::broadcast_dim(Dim a, Dim b) {
  if (a == b || b == Dim(1)) return a;
  if (a == Dim(1)) return b;
  if (a.is_constant() && b.is_constant()) {
    fail("sizes " + std::to_string(a.value) + " and " + std::to_string(b.value) + " do not broadcast");
    return a;
  }
  if (a.is_constant()) return a;  // b is 1 or the same
  if (b.is_constant()) return b;
  propagation_.equality(a, b, node);
  return a;
}

std::optional<std::vector<Dim>> Call::broadcast(const std::vector<Dim>& a, const std::vector<Dim>& b) {
  const std::vector<Dim>& longer = a.size() >= b.size() ? a : b;
  const std::vector<Dim>& shorter = a.size() >= b.size() ? b : a;
  std::vector<Dim> out = longer;
  const std::size_t offset = longer.size() - shorter.size();
  for (std::size_t i = 0; i < shorter.size(); ++i) out[offset + i] = broadcast_dim(longer[offset + i], shorter[i]);
  return out;
}

std::optional<std::vector<Dim>> Call::broadcast(std::span<const std::size_t> inputs) {
  std::vector<Dim> shape;
  for (const std::size_t i : inputs) {
    if (!has(i)) continue;
    if (!ranked(i)) return std::nullopt;
    shape = *broadcast(shape, in(i).shape);
    if (failed()) {
      std::string text;
      for (const std::size_t j : inputs) {
        if (ranked(j)) text += (text.empty() ? "" : " with ") + input_name(j) + " " + shape_text(in(j));
      }
      fail("operands do not broadcast: " + text);
      return std::nullopt;
    }
  }
  return shape;
}

Dim Call::unify(Dim a, Dim b, std::string_view what) {
  if (a == b) return a;
  if (a.is_constant() && b.is_constant()) {
    fail(std::string(what) + " differ: " + std::to_string(a.value) + " and " + std::to_string(b.value));
    return a;
  }
  propagation_.equality(a, b, node);
  return a.is_constant() ? a : b.is_constant() ? b : a;
}

Dim Call::product(const std::vector<Dim>& shape, std::size_t begin, std::size_t end) const {
  Dim out = 1;
  for (std::size_t i = begin; i < std::min(end, shape.size()); ++i) out = dims.mul(out, shape[i]);
  return out;
}

std::int64_t Call::stored_bytes(std::size_t first, std::size_t last) const {
  if (!ranked(first) || !in(first).constant || bits_of(in(first).elem) == 0 || bits_of(in(first).elem) > 8) return 0;
  Count bytes = 0;
  for (std::size_t i = first; i <= last && i < input_count(); ++i) {
    if (!ranked(i) || !in(i).constant) continue;
    Count elements = 1;
    for (const Dim dim : in(i).shape) elements = dim.is_constant() && fits_int64(elements) ? elements * dim.value : Count{0};
    bytes += (elements * bits_of(in(i).elem) + 7) / 8;
  }
  return fits_int64(bytes) ? static_cast<std::int64_t>(bytes) : 0;
}

Dim Call::data_size(std::size_t output, std::string_view what, Dim fallback, std::size_t axis) {
  if (what.starts_with("dim")) axis = static_cast<std::size_t>(std::strtoul(std::string(what.substr(3)).c_str(), nullptr, 10));
  if (wants(output) && axis != SIZE_MAX) {
    const DeclaredType* declared = propagation_.program.values[node.outputs[output]].declared;
    if (declared != nullptr && declared->has_shape && axis < declared->dims.size()) {
      const DeclaredDim& dim = declared->dims[axis];
      if (dim.kind == DeclaredDim::Kind::value && dim.value >= 0) return dim.value;
      if (dim.kind == DeclaredDim::Kind::param && propagation_.mode == TraceMode::bound) {
        const Dim known = propagation_.declared_dim(dim, "");
        if (known.is_constant()) return known;
      }
    }
  }
  const std::string name = readable(output < node.data->outputs.size() ? node.data->outputs[output] : std::string_view("output")) + "." + std::string(what);
  return propagation_.bindable(name, node.label(), fallback, "data_dependent_size", "the data decides this size");
}

void Call::fail(std::string message) { propagation_.fail_at(node, std::move(message)); }
void Call::warn(std::string code, std::string message) { propagation_.warn(std::move(code), node.label() + ": " + message); }
bool Call::failed() const { return propagation_.failed(); }

std::string Call::shape_text(const TensorInfo& tensor) const {
  if (!tensor.ranked) return "[?]";
  std::string out = "[";
  for (std::size_t i = 0; i < tensor.shape.size(); ++i) out += (i > 0 ? "," : "") + dims.text(tensor.shape[i]);
  return out + "]";
}

std::string Call::input_name(std::size_t i) const { return i < node.data->inputs.size() ? readable(node.data->inputs[i]) : std::string(); }

}  // namespace rooftile::onnx
