// How an operand lies in memory, from the sizes and strides that a profiler records.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "estimator/core/dtype.h"
#include "frontends/trace/trace.h"

namespace rooftile {

// A tensor argument; dimensions of one element are left out, since their strides say nothing.
struct TensorView {
  DType dtype = DType::bf16;
  std::vector<std::int64_t> dims, strides;  // without dimensions of one
  std::vector<std::int64_t> whole;          // dims with them

  std::int64_t numel() const;
  bool contiguous() const;  // row-major without gaps
  bool row_major() const;   // strides fall from the first dimension to the last; there may be gaps
  bool repeats() const;     // a stride of 0
  bool dense() const;       // no gaps and no repetition, in whatever order
  bool floating() const { return bits_of(dtype) >= 16 && dtype != DType::int32 && dtype != DType::int64; }
};

// The argument at `index` when it is one tensor with a known dtype and sizes that can be real: none negative, numel below 2^62. Python scalars have none.
std::optional<TensorView> tensor_of(const TraceOperator& op, std::size_t index);

// Product of sizes; 0 where one is not positive or the product would pass 2^62.
std::int64_t numel_of(const std::vector<std::int64_t>& dims);

// A whole number as PyTorch writes a scalar argument ("-1", "2.", ""), and a list of them ("[0, 1]"); nothing where it is something else.
std::optional<std::int64_t> whole_of(const std::string& value);
std::optional<std::vector<std::int64_t>> list_of(const std::string& value);

}  // namespace rooftile
