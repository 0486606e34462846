// What a shape rule sees of the node it is asked about.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "frontends/onnx/program.h"
#include "frontends/onnx/value.h"

namespace rooftile::onnx {

class Propagation;

class Call {
 public:
  Call(Propagation& propagation, const Node& at);

  const Node& node;
  DimContext& dims;

  std::size_t input_count() const { return in_.size(); }
  std::size_t output_count() const { return out_.size(); }
  bool has(std::size_t i) const { return i < in_.size() && in_[i] != nullptr; }
  bool wants(std::size_t i) const;            // the output has a name
  const TensorInfo& in(std::size_t i) const;  // an unknown tensor where absent
  TensorInfo& out(std::size_t i);             // a scratch tensor where absent
  bool ranked(std::size_t i) const { return has(i) && in(i).ranked; }

  std::optional<std::size_t> declared_rank(std::size_t output) const;  // what the file says of an output

  // Attributes, with the default where absent.
  bool has_attr(std::string_view name) const { return node.attribute(name) != nullptr; }
  std::int64_t attr_int(std::string_view name, std::int64_t fallback) const;
  double attr_float(std::string_view name, double fallback) const;
  std::string_view attr_text(std::string_view name, std::string_view fallback) const;
  std::optional<std::vector<std::int64_t>> attr_ints(std::string_view name) const;  // one INT counts as a list of one

  // Elements of an input: all known and integers, or nothing.
  std::optional<std::vector<Dim>> in_dims(std::size_t i) const;
  std::optional<std::vector<std::int64_t>> in_ints(std::size_t i) const;
  std::optional<double> in_number(std::size_t i) const;  // of a one-element tensor
  std::optional<Dim> in_dim(std::size_t i) const;        // of a one-element tensor

  // The list from an attribute (early opsets) or an input (later ones).
  std::optional<std::vector<std::int64_t>> ints_of(std::string_view attribute, std::size_t input) const;

  // Axis in [0, rank); reports an axis outside.
  bool axis_of(std::int64_t axis, std::size_t rank, std::size_t& out);

  // Sets an output's type and shape.
  void set(std::size_t i, Elem elem, std::vector<Dim> shape);
  void set_type(std::size_t i, Elem elem);
  void same(std::size_t i, std::size_t input);  // type and shape of an input
  void set_value(std::size_t i, std::vector<Element> elements);
  bool wants_value(const std::vector<Dim>& shape) const;  // few enough elements, all sizes constant, and work left to spend

  // Shape of operands broadcast together; reports what does not fit.
  std::optional<std::vector<Dim>> broadcast(std::span<const std::size_t> inputs);
  std::optional<std::vector<Dim>> broadcast(const std::vector<Dim>& a, const std::vector<Dim>& b);
  Dim broadcast_dim(Dim a, Dim b);
  // Two sizes that the operator needs equal; gives the better known one, reports a contradiction, notes an equality of symbols.
  Dim unify(Dim a, Dim b, std::string_view what);

  // Bytes of the stored inputs [first, last] of a node that unpacks weights: the packed tensor, its scales and zero points. 0 where the first is not stored in 8 bits or fewer.
  std::int64_t stored_bytes(std::size_t first, std::size_t last) const;

  Dim product(const std::vector<Dim>& shape, std::size_t begin = 0, std::size_t end = SIZE_MAX) const;

  // A size that only the data decides: a symbol named after the output, bound by the user or else set to `fallback` with a warning.
  // What the file declares of dimension `axis` of that output is preferred ("dim2" names its axis itself).
  Dim data_size(std::size_t output, std::string_view what, Dim fallback, std::size_t axis = SIZE_MAX);

  void fail(std::string message);  // the graph is impossible here
  void warn(std::string code, std::string message);
  bool failed() const;
  std::string shape_text(const TensorInfo& tensor) const;
  std::string input_name(std::size_t i) const;
  Propagation& propagation() { return propagation_; }

 private:
  friend class Propagation;
  Propagation& propagation_;
  std::vector<const TensorInfo*> in_;
  std::vector<TensorInfo> out_;
  TensorInfo scratch_;
};

}  // namespace rooftile::onnx
