#include "estimator/core/dtype.h"

namespace rooftile {

std::optional<DType> parse_dtype(std::string_view name) {
  for (const DTypeInfo& info : kDTypes) {
    if (info.name == name) return info.dtype;
  }
  if (name == "fp8") return DType::fp8_e4m3;
  if (name == "float32" || name == "float") return DType::fp32;
  if (name == "float16" || name == "half") return DType::fp16;
  if (name == "bfloat16") return DType::bf16;
  return std::nullopt;
}

}  // namespace rooftile
