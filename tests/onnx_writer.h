// A tiny writer of ONNX files for tests: enough of the protobuf wire format to build graphs by hand.
#pragma once

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace rooftile::test {

class Message {
 public:
  Message& integer(int field, std::int64_t value) {
    tag(field, 0);
    varint(static_cast<std::uint64_t>(value));
    return *this;
  }
  Message& real(int field, float value) {
    tag(field, 5);
    char raw[4];
    std::memcpy(raw, &value, 4);
    bytes_.append(raw, 4);
    return *this;
  }
  Message& text(int field, std::string_view value) {
    tag(field, 2);
    varint(value.size());
    bytes_ += value;
    return *this;
  }
  Message& message(int field, const Message& value) { return text(field, value.bytes_); }
  const std::string& bytes() const { return bytes_; }

 private:
  void tag(int field, int type) { varint(static_cast<std::uint64_t>(field) << 3 | static_cast<std::uint64_t>(type)); }
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }
  std::string bytes_;
};

using Size = std::variant<std::int64_t, const char*>;  // a number, a name, or an expression; "" is neither
inline constexpr int kFloat = 1, kUint8 = 2, kInt8 = 3, kInt64 = 7, kBool = 9;

inline Message value_info(std::string_view name, int elem, const std::vector<Size>& dims) {
  Message shape;
  for (const Size& size : dims) {
    Message dim;
    if (const auto* number = std::get_if<std::int64_t>(&size)) dim.integer(1, *number);
    if (const auto* param = std::get_if<const char*>(&size); param != nullptr && **param != 0) dim.text(2, *param);
    shape.message(1, dim);
  }
  return Message().text(1, name).message(2, Message().message(1, Message().integer(1, elem).message(2, shape)));
}

// A tensor whose data is elsewhere: only its size is known.
inline Message external_tensor(std::string_view name, int elem, const std::vector<std::int64_t>& dims) {
  Message tensor;
  for (const std::int64_t dim : dims) tensor.integer(1, dim);
  tensor.integer(2, elem).text(8, name);
  return tensor.message(13, Message().text(1, "location").text(2, "weights.bin")).integer(14, 1);
}

inline Message int_tensor(std::string_view name, const std::vector<std::int64_t>& values, bool scalar = false) {
  Message tensor;
  if (!scalar) tensor.integer(1, static_cast<std::int64_t>(values.size()));
  tensor.integer(2, kInt64).text(8, name);
  std::string raw(values.size() * 8, 0);
  if (!values.empty()) std::memcpy(raw.data(), values.data(), raw.size());
  return tensor.text(9, raw);
}

inline Message float_tensor(std::string_view name, const std::vector<std::int64_t>& dims, const std::vector<float>& values) {
  Message tensor;
  for (const std::int64_t dim : dims) tensor.integer(1, dim);
  tensor.integer(2, kFloat).text(8, name);
  std::string raw(values.size() * 4, 0);
  if (!values.empty()) std::memcpy(raw.data(), values.data(), raw.size());
  return tensor.text(9, raw);
}

inline Message attr(std::string_view name, std::int64_t value) { return Message().text(1, name).integer(3, value).integer(20, 2); }
inline Message attr_float(std::string_view name, float value) { return Message().text(1, name).real(2, value).integer(20, 1); }
inline Message attr_text(std::string_view name, std::string_view value) { return Message().text(1, name).text(4, value).integer(20, 3); }
inline Message attr_ints(std::string_view name, const std::vector<std::int64_t>& values) {
  Message attribute;
  attribute.text(1, name).integer(20, 7);
  for (const std::int64_t value : values) attribute.integer(8, value);
  return attribute;
}
inline Message attr_tensor(std::string_view name, const Message& tensor) { return Message().text(1, name).message(5, tensor).integer(20, 4); }
inline Message attr_graph(std::string_view name, const Message& graph) { return Message().text(1, name).message(6, graph).integer(20, 5); }

inline Message node_message(std::string_view op, const std::vector<std::string>& inputs, const std::vector<std::string>& outputs, const std::vector<Message>& attributes = {},
                            std::string_view domain = {}) {
  Message node;
  for (const auto& input : inputs) node.text(1, input);
  for (const auto& output : outputs) node.text(2, output);
  node.text(4, op);
  for (const Message& attribute : attributes) node.message(5, attribute);
  if (!domain.empty()) node.text(7, domain);
  return node;
}

class OnnxGraph {
 public:
  OnnxGraph& input(std::string_view name, const std::vector<Size>& dims, int elem = kFloat) {
    graph_.message(11, value_info(name, elem, dims));
    return *this;
  }
  OnnxGraph& output(std::string_view name, const std::vector<Size>& dims = {}, int elem = kFloat) {
    graph_.message(12, dims.empty() ? Message().text(1, name) : value_info(name, elem, dims));
    return *this;
  }
  OnnxGraph& weight(std::string_view name, const std::vector<std::int64_t>& dims, int elem = kFloat) {
    graph_.message(5, external_tensor(name, elem, dims));
    return *this;
  }
  OnnxGraph& initializer(const Message& tensor) {
    graph_.message(5, tensor);
    return *this;
  }
  OnnxGraph& ints(std::string_view name, const std::vector<std::int64_t>& values, bool scalar = false) { return initializer(int_tensor(name, values, scalar)); }
  OnnxGraph& node(std::string_view op, const std::vector<std::string>& inputs, const std::vector<std::string>& outputs, const std::vector<Message>& attributes = {},
                  std::string_view domain = {}) {
    graph_.message(1, node_message(op, inputs, outputs, attributes, domain));
    return *this;
  }
  const Message& message() const { return graph_; }

  // The whole file.
  std::string file(std::int64_t opset = 17, const std::vector<Message>& functions = {}) const {
    Message model;
    model.integer(1, 8).text(2, "test").message(7, graph_);
    model.message(8, Message().text(1, "").integer(2, opset)).message(8, Message().text(1, "com.microsoft").integer(2, 1));
    for (const Message& function : functions) model.message(25, function);
    return model.bytes();
  }

 private:
  Message graph_;
};

}  // namespace rooftile::test
