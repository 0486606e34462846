// Number formats. A dtype names how a kernel computes and how its operands are stored; tf32 is stored in 4 bytes and computed on tensor cores.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace rooftile {

enum class DType : std::uint8_t { bf16, fp16, tf32, fp32, fp64, fp8_e4m3, fp8_e5m2, fp4, int8, int4, int32, int64, boolean };

struct DTypeInfo {
  DType dtype;
  std::string_view name;
  int bits;
};

inline constexpr std::array<DTypeInfo, 13> kDTypes = {{{DType::bf16, "bf16", 16},
                                                       {DType::fp16, "fp16", 16},
                                                       {DType::tf32, "tf32", 32},
                                                       {DType::fp32, "fp32", 32},
                                                       {DType::fp64, "fp64", 64},
                                                       {DType::fp8_e4m3, "fp8_e4m3", 8},
                                                       {DType::fp8_e5m2, "fp8_e5m2", 8},
                                                       {DType::fp4, "fp4", 4},
                                                       {DType::int8, "int8", 8},
                                                       {DType::int4, "int4", 4},
                                                       {DType::int32, "int32", 32},
                                                       {DType::int64, "int64", 64},
                                                       {DType::boolean, "bool", 8}}};

constexpr std::string_view name_of(DType dtype) { return kDTypes[static_cast<std::size_t>(dtype)].name; }
constexpr int bits_of(DType dtype) { return kDTypes[static_cast<std::size_t>(dtype)].bits; }

// Bytes of one element; 0.5 for the 4-bit formats. bytes_of(DType::bf16) == 2.
constexpr double bytes_of(DType dtype) { return bits_of(dtype) / 8.0; }

// Accepts the names above plus "fp8" (e4m3), "float32", "float16", "bfloat16", "half".
std::optional<DType> parse_dtype(std::string_view name);

}  // namespace rooftile
