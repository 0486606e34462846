#include "frontends/onnx/proto.h"

#include <array>
#include <cmath>
#include <cstring>

#include "frontends/onnx/wire.h"

namespace rooftile::onnx {
namespace {

struct ElemRow {
  std::string_view name;
  int bits;
  char family;  // f float, i integer or boolean, o other
};
constexpr std::array<ElemRow, 27> kElems = {{{"undefined", 0, 'o'},      {"float32", 32, 'f'},  {"uint8", 8, 'i'},        {"int8", 8, 'i'},           {"uint16", 16, 'i'},
                                             {"int16", 16, 'i'},         {"int32", 32, 'i'},    {"int64", 64, 'i'},       {"string", 0, 'o'},         {"bool", 8, 'i'},
                                             {"float16", 16, 'f'},       {"float64", 64, 'f'},  {"uint32", 32, 'i'},      {"uint64", 64, 'i'},        {"complex64", 64, 'o'},
                                             {"complex128", 128, 'o'},   {"bfloat16", 16, 'f'}, {"float8e4m3fn", 8, 'f'}, {"float8e4m3fnuz", 8, 'f'}, {"float8e5m2", 8, 'f'},
                                             {"float8e5m2fnuz", 8, 'f'}, {"uint4", 4, 'i'},     {"int4", 4, 'i'},         {"float4e2m1", 4, 'f'},     {"float8e8m0", 8, 'f'},
                                             {"uint2", 2, 'i'},          {"int2", 2, 'i'}}};

double half_to_double(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int mantissa = bits & 1023;
  double value = 0;
  if (exponent == 31) {
    value = mantissa != 0 ? NAN : INFINITY;
  } else {
    value = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  }
  return (bits & 0x8000) != 0 ? -value : value;
}

double bfloat_to_double(std::uint16_t bits) {
  const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
  float value = 0;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

// Number of elements, or nothing when it passes `limit`.
bool count_elements(const TensorData& tensor, std::size_t limit, std::size_t& count) {
  count = 1;
  for (const std::int64_t dim : tensor.dims) {
    if (dim < 0) return false;
    if (dim == 0) {
      count = 0;
      return true;
    }
    if (static_cast<std::uint64_t>(dim) > limit || count * static_cast<std::size_t>(dim) > limit) return false;
    count *= static_cast<std::size_t>(dim);
  }
  return true;
}

template <typename T>
T load(const char* at) {
  T value{};
  std::memcpy(&value, at, sizeof value);
  return value;
}

}  // namespace

int bits_of(Elem elem) { return kElems[static_cast<std::size_t>(elem)].bits; }
std::string_view name_of(Elem elem) { return kElems[static_cast<std::size_t>(elem)].name; }
bool is_float(Elem elem) { return kElems[static_cast<std::size_t>(elem)].family == 'f'; }
bool is_integer(Elem elem) { return kElems[static_cast<std::size_t>(elem)].family == 'i'; }

bool decode_ints(const TensorData& tensor, std::size_t limit, std::vector<std::int64_t>& out) {
  std::size_t count = 0;
  if (tensor.external || !is_integer(tensor.elem) || !count_elements(tensor, limit, count)) return false;
  out.clear();
  if (count == 0) return true;
  const int bits = bits_of(tensor.elem);
  if (!tensor.raw.empty()) {
    if (bits < 8 || tensor.raw.size() < count * static_cast<std::size_t>(bits) / 8) return false;
    out.reserve(count);
    const char* at = tensor.raw.data();
    for (std::size_t i = 0; i < count; ++i, at += bits / 8) {
      switch (tensor.elem) {
        case Elem::uint8:
        case Elem::boolean:
          out.push_back(load<std::uint8_t>(at));
          break;
        case Elem::int8:
          out.push_back(load<std::int8_t>(at));
          break;
        case Elem::uint16:
          out.push_back(load<std::uint16_t>(at));
          break;
        case Elem::int16:
          out.push_back(load<std::int16_t>(at));
          break;
        case Elem::int32:
          out.push_back(load<std::int32_t>(at));
          break;
        case Elem::uint32:
          out.push_back(load<std::uint32_t>(at));
          break;
        default:
          out.push_back(load<std::int64_t>(at));
          break;
      }
    }
    return true;
  }
  if (!tensor.packed.empty()) {
    WireReader reader(tensor.packed);
    std::uint64_t value = 0;
    while (out.size() < count && !reader.at_end()) {
      if (!reader.varint(value)) return false;
      out.push_back(static_cast<std::int64_t>(value));
    }
  } else {
    out.assign(tensor.loose_ints.begin(), tensor.loose_ints.begin() + static_cast<std::ptrdiff_t>(std::min(count, tensor.loose_ints.size())));
  }
  return out.size() == count;
}

bool decode_reals(const TensorData& tensor, std::size_t limit, std::vector<double>& out) {
  std::size_t count = 0;
  if (tensor.external || !is_float(tensor.elem) || !count_elements(tensor, limit, count)) return false;
  out.clear();
  if (count == 0) return true;
  if (!tensor.raw.empty()) {
    const auto size = static_cast<std::size_t>(bits_of(tensor.elem)) / 8;
    if (size < 2 || tensor.raw.size() < count * size) return false;
    const char* at = tensor.raw.data();
    for (std::size_t i = 0; i < count; ++i, at += size) {
      switch (tensor.elem) {
        case Elem::float32:
          out.push_back(load<float>(at));
          break;
        case Elem::float64:
          out.push_back(load<double>(at));
          break;
        case Elem::float16:
          out.push_back(half_to_double(load<std::uint16_t>(at)));
          break;
        default:
          out.push_back(bfloat_to_double(load<std::uint16_t>(at)));
          break;
      }
    }
    return true;
  }
  if (!tensor.packed.empty()) {
    WireReader reader(tensor.packed);
    std::uint64_t value = 0;
    while (out.size() < count && !reader.at_end()) {
      if (tensor.elem == Elem::float32 || tensor.elem == Elem::float64) {
        if (!reader.fixed(tensor.elem == Elem::float32 ? 4 : 8, value)) return false;
        Field field;
        field.number_value = value;
        out.push_back(tensor.elem == Elem::float32 ? field.as_float() : field.as_double());
      } else {  // 16-bit floats lie in int32_data
        if (!reader.varint(value)) return false;
        out.push_back(tensor.elem == Elem::float16 ? half_to_double(static_cast<std::uint16_t>(value)) : bfloat_to_double(static_cast<std::uint16_t>(value)));
      }
    }
  } else {
    out.assign(tensor.loose_reals.begin(), tensor.loose_reals.begin() + static_cast<std::ptrdiff_t>(std::min(count, tensor.loose_reals.size())));
  }
  return out.size() == count;
}

}  // namespace rooftile::onnx
