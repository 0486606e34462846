// An ONNX file as plain structs: what onnx.proto (onnx/onnx, IR version 3 to 12) says, without the bytes of weights. Text is a view into the file's bytes, which outlive it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "estimator/core/result.h"

namespace rooftile::onnx {

// TensorProto.DataType, by its numbers.
enum class Elem : std::uint8_t {
  undefined = 0,
  float32 = 1,
  uint8 = 2,
  int8 = 3,
  uint16 = 4,
  int16 = 5,
  int32 = 6,
  int64 = 7,
  string = 8,
  boolean = 9,
  float16 = 10,
  float64 = 11,
  uint32 = 12,
  uint64 = 13,
  complex64 = 14,
  complex128 = 15,
  bfloat16 = 16,
  float8e4m3fn = 17,
  float8e4m3fnuz = 18,
  float8e5m2 = 19,
  float8e5m2fnuz = 20,
  uint4 = 21,
  int4 = 22,
  float4e2m1 = 23,
  float8e8m0 = 24,
  uint2 = 25,
  int2 = 26
};
int bits_of(Elem elem);  // 0 for strings and unknown numbers
std::string_view name_of(Elem elem);
bool is_float(Elem elem);
bool is_integer(Elem elem);  // integers and booleans
inline Elem elem_of(std::int64_t number) { return number >= 0 && number <= 26 ? static_cast<Elem>(number) : Elem::undefined; }

// A stored tensor. Its data stays where it is; `decode_ints` and `decode_reals` read small ones.
struct TensorData {
  std::string_view name;
  std::vector<std::int64_t> dims;
  Elem elem = Elem::undefined;
  bool external = false;
  std::string_view raw;                  // raw_data
  std::string_view packed;               // the typed field that holds the data, packed
  std::vector<std::int64_t> loose_ints;  // typed fields written one by one (old writers)
  std::vector<double> loose_reals;
};

// The elements of a tensor of at most `limit` elements, or false when they are absent, external, more, or too short for the dims.
bool decode_ints(const TensorData& tensor, std::size_t limit, std::vector<std::int64_t>& out);
bool decode_reals(const TensorData& tensor, std::size_t limit, std::vector<double>& out);

struct DeclaredDim {
  std::int64_t value = 0;
  std::string_view param;
  enum class Kind : std::uint8_t { unknown, value, param } kind = Kind::unknown;
};

enum class TypeKind : std::uint8_t { tensor, sequence, optional, map };

struct DeclaredType {
  TypeKind kind = TypeKind::tensor;
  Elem elem = Elem::undefined;
  bool has_shape = false;
  std::vector<DeclaredDim> dims;  // of the tensor itself, or of the elements of a sequence
};

struct ValueInfo {
  std::string_view name;
  DeclaredType type;
};

struct GraphData;

struct Attribute {
  std::string_view name, reference;  // reference: the attribute of the enclosing function that it stands for
  std::int64_t type = 0;             // AttributeProto.AttributeType, 0 in very old files
  std::int64_t i = 0;
  float f = 0;
  bool has_i = false, has_f = false, has_s = false;
  std::string_view s;
  std::vector<std::int64_t> ints;
  std::vector<float> floats;
  std::vector<std::string_view> strings;
  std::shared_ptr<const TensorData> tensor;
  std::shared_ptr<const GraphData> graph;
};

struct NodeData {
  std::string_view name, op, domain, overload;
  std::vector<std::string_view> inputs, outputs;
  std::vector<Attribute> attributes;
};

struct GraphData {
  std::string_view name;
  std::vector<NodeData> nodes;
  std::vector<TensorData> initializers;
  std::vector<TensorData> sparse_initializers;  // dims of the dense tensor, name of its values
  std::vector<ValueInfo> inputs, outputs, values;
};

struct OpsetImport {
  std::string_view domain;
  std::int64_t version = 0;
};

struct FunctionData {
  std::string_view name, domain, overload;
  std::vector<std::string_view> inputs, outputs;
  std::vector<Attribute> defaults;
  std::vector<NodeData> nodes;
  std::vector<OpsetImport> opsets;
};

struct ModelData {
  std::int64_t ir_version = 0;
  std::string_view producer, producer_version;
  std::vector<OpsetImport> opsets;
  GraphData graph;
  bool has_graph = false;
  bool has_training_info = false;
  std::vector<FunctionData> functions;
};

// Reads the structure of a model. Errors (invalid): malformed bytes with the part they are in, subgraphs nested over 32 deep, more structure than 64 MB of memory holds, no
// graph. Unknown fields are skipped.
Result<ModelData> read_model(std::string_view bytes);

// One TensorProto (the .pb files of a test suite).
Result<TensorData> read_tensor(std::string_view bytes);

}  // namespace rooftile::onnx
