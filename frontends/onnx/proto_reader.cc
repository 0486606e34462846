// The messages of onnx.proto, one function each; field numbers are those of the schema (onnx/onnx.proto, message by message).
#include <string>

#include "frontends/onnx/proto.h"
#include "frontends/onnx/wire.h"

namespace rooftile::onnx {
namespace {

constexpr int kMaxDepth = 32;                     // of graphs within graphs
constexpr std::size_t kMaxStructure = 64u << 20;  // bytes of structs; a graph of 100,000 nodes takes about 40 MB
constexpr std::size_t kMaxLoose = 1u << 16;

class Reader {
 public:
  bool model(std::string_view bytes, ModelData& out);
  bool tensor(std::string_view bytes, TensorData& out);
  std::string problem;

 private:
  bool graph(std::string_view bytes, GraphData& out, int depth);
  bool node(std::string_view bytes, NodeData& out, int depth);
  bool attribute(std::string_view bytes, Attribute& out, int depth);
  bool function(std::string_view bytes, FunctionData& out);
  bool value_info(std::string_view bytes, ValueInfo& out);
  bool type(std::string_view bytes, DeclaredType& out, int depth);
  bool tensor_type(std::string_view bytes, DeclaredType& out);
  bool shape(std::string_view bytes, DeclaredType& out);
  bool sparse(std::string_view bytes, TensorData& out);
  bool opset(std::string_view bytes, OpsetImport& out);
  bool integers(const Field& field, std::vector<std::int64_t>& out, std::size_t limit);

  template <typename T>
  T* append(std::vector<T>& list) {
    used_ += sizeof(T);
    if (used_ > kMaxStructure) {
      problem = "the graph has more nodes, attributes and tensors than fit in memory";
      return nullptr;
    }
    return &list.emplace_back();
  }
  bool append_text(std::vector<std::string_view>& list, const Field& field) {
    std::string_view* text = append(list);
    if (text == nullptr) return false;
    *text = field.bytes;
    return true;
  }
  bool bad(const char* where) {
    if (problem.empty()) problem = std::string("malformed bytes in ") + where;
    return false;
  }
  std::size_t used_ = 0;
};

bool is_bytes(const Field& field) { return field.type == WireType::bytes; }

bool Reader::integers(const Field& field, std::vector<std::int64_t>& out, std::size_t limit) {
  if (field.type == WireType::varint) {
    std::int64_t* value = out.size() < limit ? append(out) : nullptr;
    if (value != nullptr) *value = field.as_int();
    return problem.empty();
  }
  if (!is_bytes(field)) return false;
  WireReader reader(field.bytes);
  std::uint64_t raw = 0;
  while (!reader.at_end() && out.size() < limit) {
    if (!reader.varint(raw)) return false;
    std::int64_t* value = append(out);
    if (value == nullptr) return false;
    *value = static_cast<std::int64_t>(raw);
  }
  return true;
}

bool Reader::tensor(std::string_view bytes, TensorData& out) {
  WireReader reader(bytes);
  Field field;
  while (reader.next(field)) {
    switch (field.number) {
      case 1:
        if (!integers(field, out.dims, 64)) return bad("a tensor's dims");
        break;
      case 2:
        out.elem = elem_of(field.as_int());
        break;
      case 4:   // float_data
      case 10:  // double_data
        if (is_bytes(field)) {
          out.packed = field.bytes;
        } else if (out.loose_reals.size() < kMaxLoose) {
          double* value = append(out.loose_reals);
          if (value == nullptr) return false;
          *value = field.number == 4 ? field.as_float() : field.as_double();
        }
        break;
      case 5:   // int32_data
      case 7:   // int64_data
      case 11:  // uint64_data
        if (is_bytes(field)) {
          out.packed = field.bytes;
        } else if (out.loose_ints.size() < kMaxLoose) {
          std::int64_t* value = append(out.loose_ints);
          if (value == nullptr) return false;
          *value = field.as_int();
        }
        break;
      case 8:
        out.name = field.bytes;
        break;
      case 9:
        out.raw = field.bytes;
        break;
      case 13:
        out.external = true;
        break;
      case 14:
        out.external = out.external || field.number_value == 1;
        break;
      default:
        break;
    }
  }
  return !reader.broken() || bad("a tensor");
}

bool Reader::sparse(std::string_view bytes, TensorData& out) {
  WireReader reader(bytes);
  Field field;
  std::vector<std::int64_t> dims;
  while (reader.next(field)) {
    if (field.number == 1 && is_bytes(field) && !tensor(field.bytes, out)) return false;
    if (field.number == 3 && !integers(field, dims, 64)) return bad("a sparse tensor's dims");
  }
  out.dims = dims;
  out.external = true;  // its values are not those of the dense tensor
  return !reader.broken() || bad("a sparse tensor");
}

bool Reader::shape(std::string_view bytes, DeclaredType& out) {
  WireReader reader(bytes);
  Field field;
  out.has_shape = true;
  while (reader.next(field)) {
    if (field.number != 1 || !is_bytes(field)) continue;
    if (out.dims.size() >= 64) return bad("a shape of more than 64 dimensions");
    DeclaredDim* dim = append(out.dims);
    if (dim == nullptr) return false;
    WireReader inner(field.bytes);
    Field part;
    while (inner.next(part)) {
      if (part.number == 1) {
        dim->kind = DeclaredDim::Kind::value;
        dim->value = part.as_int();
      } else if (part.number == 2 && is_bytes(part) && !part.bytes.empty()) {
        dim->kind = DeclaredDim::Kind::param;
        dim->param = part.bytes;
      }
    }
    if (inner.broken()) return bad("a dimension");
  }
  return !reader.broken() || bad("a shape");
}

bool Reader::tensor_type(std::string_view bytes, DeclaredType& out) {
  WireReader reader(bytes);
  Field field;
  while (reader.next(field)) {
    if (field.number == 1) out.elem = elem_of(field.as_int());
    if (field.number == 2 && is_bytes(field) && !shape(field.bytes, out)) return false;
  }
  return !reader.broken() || bad("a type");
}

bool Reader::type(std::string_view bytes, DeclaredType& out, int depth) {
  if (depth > 8) return bad("a type nested over 8 deep");
  WireReader reader(bytes);
  Field field;
  while (reader.next(field)) {
    if (!is_bytes(field)) continue;
    if (field.number == 1 || field.number == 8) {
      if (!tensor_type(field.bytes, out)) return false;
    } else if (field.number == 4 || field.number == 9) {  // sequence, optional: field 1 is the type of its elements
      WireReader inner(field.bytes);
      Field part;
      while (inner.next(part)) {
        if (part.number == 1 && is_bytes(part) && !type(part.bytes, out, depth + 1)) return false;
      }
      if (inner.broken()) return bad("a type");
      if (field.number == 4 || out.kind != TypeKind::sequence) out.kind = field.number == 4 ? TypeKind::sequence : TypeKind::optional;
    } else if (field.number == 5) {
      out.kind = TypeKind::map;
    }
  }
  return !reader.broken() || bad("a type");
}

bool Reader::value_info(std::string_view bytes, ValueInfo& out) {
  WireReader reader(bytes);
  Field field;
  while (reader.next(field)) {
    if (field.number == 1) out.name = field.bytes;
    if (field.number == 2 && is_bytes(field) && !type(field.bytes, out.type, 0)) return false;
  }
  return !reader.broken() || bad("a value_info");
}

bool Reader::attribute(std::string_view bytes, Attribute& out, int depth) {
  WireReader reader(bytes);
  Field field;
  while (reader.next(field)) {
    switch (field.number) {
      case 1:
        out.name = field.bytes;
        break;
      case 2:
        out.f = field.as_float();
        out.has_f = true;
        break;
      case 3:
        out.i = field.as_int();
        out.has_i = true;
        break;
      case 4:
        out.s = field.bytes;
        out.has_s = true;
        break;
      case 5: {
        auto data = std::make_shared<TensorData>();
        used_ += sizeof(TensorData);
        if (!is_bytes(field) || !tensor(field.bytes, *data)) return bad("an attribute's tensor");
        out.tensor = std::move(data);
        break;
      }
      case 22: {
        auto data = std::make_shared<TensorData>();
        used_ += sizeof(TensorData);
        if (!is_bytes(field) || !sparse(field.bytes, *data)) return bad("an attribute's sparse tensor");
        out.tensor = std::move(data);
        break;
      }
      case 6: {
        auto data = std::make_shared<GraphData>();
        used_ += sizeof(GraphData);
        if (!is_bytes(field) || !graph(field.bytes, *data, depth + 1)) return bad("an attribute's graph");
        out.graph = std::move(data);
        break;
      }
      case 7: {
        if (is_bytes(field)) {
          WireReader inner(field.bytes);
          std::uint64_t raw = 0;
          while (!inner.at_end() && inner.fixed(4, raw)) {
            float* value = append(out.floats);
            if (value == nullptr) return false;
            Field one;
            one.number_value = raw;
            *value = one.as_float();
          }
          if (inner.broken()) return bad("an attribute's floats");
        } else {
          float* value = append(out.floats);
          if (value == nullptr) return false;
          *value = field.as_float();
        }
        break;
      }
      case 8:
        if (!integers(field, out.ints, kMaxStructure)) return bad("an attribute's ints");
        break;
      case 9:
        if (!append_text(out.strings, field)) return false;
        break;
      case 20:
        out.type = field.as_int();
        break;
      case 21:
        out.reference = field.bytes;
        break;
      default:
        break;
    }
  }
  return !reader.broken() || bad("an attribute");
}

bool Reader::node(std::string_view bytes, NodeData& out, int depth) {
  WireReader reader(bytes);
  Field field;
  while (reader.next(field)) {
    switch (field.number) {
      case 1:
        if (!append_text(out.inputs, field)) return false;
        break;
      case 2:
        if (!append_text(out.outputs, field)) return false;
        break;
      case 3:
        out.name = field.bytes;
        break;
      case 4:
        out.op = field.bytes;
        break;
      case 5: {
        Attribute* attribute_slot = append(out.attributes);
        if (attribute_slot == nullptr) return false;
        if (!is_bytes(field) || !attribute(field.bytes, *attribute_slot, depth)) return bad("an attribute");
        break;
      }
      case 7:
        out.domain = field.bytes;
        break;
      case 8:
        out.overload = field.bytes;
        break;
      default:
        break;
    }
  }
  return !reader.broken() || bad("a node");
}

bool Reader::graph(std::string_view bytes, GraphData& out, int depth) {
  if (depth > kMaxDepth) {
    problem = "graphs nested over 32 deep";
    return false;
  }
  WireReader reader(bytes);
  Field field;
  const auto read = [&](auto& list, auto&& one) {
    auto* slot = append(list);
    return slot != nullptr && is_bytes(field) && one(*slot);
  };
  while (reader.next(field)) {
    bool good = true;
    switch (field.number) {
      case 1:
        good = read(out.nodes, [&](NodeData& slot) { return node(field.bytes, slot, depth); });
        break;
      case 2:
        out.name = field.bytes;
        break;
      case 5:
        good = read(out.initializers, [&](TensorData& slot) { return tensor(field.bytes, slot); });
        break;
      case 15:
        good = read(out.sparse_initializers, [&](TensorData& slot) { return sparse(field.bytes, slot); });
        break;
      case 11:
        good = read(out.inputs, [&](ValueInfo& slot) { return value_info(field.bytes, slot); });
        break;
      case 12:
        good = read(out.outputs, [&](ValueInfo& slot) { return value_info(field.bytes, slot); });
        break;
      case 13:
        good = read(out.values, [&](ValueInfo& slot) { return value_info(field.bytes, slot); });
        break;
      default:
        break;
    }
    if (!good) return bad("a graph");
  }
  return !reader.broken() || bad("a graph");
}

bool Reader::opset(std::string_view bytes, OpsetImport& out) {
  WireReader reader(bytes);
  Field field;
  while (reader.next(field)) {
    if (field.number == 1) out.domain = field.bytes;
    if (field.number == 2) out.version = field.as_int();
  }
  return !reader.broken() || bad("an opset import");
}

bool Reader::function(std::string_view bytes, FunctionData& out) {
  WireReader reader(bytes);
  Field field;
  while (reader.next(field)) {
    bool good = true;
    switch (field.number) {
      case 1:
        out.name = field.bytes;
        break;
      case 4:
        good = append_text(out.inputs, field);
        break;
      case 5:
        good = append_text(out.outputs, field);
        break;
      case 7: {
        NodeData* slot = append(out.nodes);
        good = slot != nullptr && is_bytes(field) && node(field.bytes, *slot, 0);
        break;
      }
      case 9: {
        OpsetImport* slot = append(out.opsets);
        good = slot != nullptr && is_bytes(field) && opset(field.bytes, *slot);
        break;
      }
      case 10:
        out.domain = field.bytes;
        break;
      case 11: {
        Attribute* slot = append(out.defaults);
        good = slot != nullptr && is_bytes(field) && attribute(field.bytes, *slot, 0);
        break;
      }
      case 13:
        out.overload = field.bytes;
        break;
      default:
        break;
    }
    if (!good) return bad("a function");
  }
  return !reader.broken() || bad("a function");
}

bool Reader::model(std::string_view bytes, ModelData& out) {
  WireReader reader(bytes);
  Field field;
  while (reader.next(field)) {
    bool good = true;
    switch (field.number) {
      case 1:
        out.ir_version = field.as_int();
        break;
      case 2:
        out.producer = field.bytes;
        break;
      case 3:
        out.producer_version = field.bytes;
        break;
      case 7:
        good = is_bytes(field) && graph(field.bytes, out.graph, 0);
        out.has_graph = true;
        break;
      case 8: {
        OpsetImport* slot = append(out.opsets);
        good = slot != nullptr && is_bytes(field) && opset(field.bytes, *slot);
        break;
      }
      case 20:
        out.has_training_info = true;
        break;
      case 25: {
        FunctionData* slot = append(out.functions);
        good = slot != nullptr && is_bytes(field) && function(field.bytes, *slot);
        break;
      }
      default:
        break;
    }
    if (!good) return bad("the model");
  }
  return !reader.broken() || bad("the model");
}

}  // namespace

Result<ModelData> read_model(std::string_view bytes) {
  Reader reader;
  ModelData model;
  if (!reader.model(bytes, model)) {
    return fail(ErrorCode::invalid, "not a readable ONNX model: " + reader.problem, {}, "the file may be truncated, or a Git LFS pointer instead of the model");
  }
  if (!model.has_graph) return fail(ErrorCode::invalid, "not an ONNX model: it has no graph");
  return model;
}

Result<TensorData> read_tensor(std::string_view bytes) {
  Reader reader;
  TensorData tensor;
  if (!reader.tensor(bytes, tensor)) return fail(ErrorCode::invalid, "not a readable ONNX tensor: " + reader.problem);
  return tensor;
}

}  // namespace rooftile::onnx
