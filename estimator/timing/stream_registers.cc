#include "estimator/timing/stream_registers.h"

#include <array>
#include <cstddef>

namespace rooftile {
namespace {

// As ptxas reports them (nvcc 13.0, -O3, sm_90, --resource-usage). Vectors of a thread: 1, 2, 4, 8; elements alone: 8, 16.
struct Counts {
  std::array<short, 4> bf16, fp16, fp32;
  std::array<short, 2> single;
};
constexpr std::array<Counts, 8> kCounts = {{
    {{28, 36, 64, 64}, {28, 36, 64, 64}, {22, 30, 36, 64}, {44, 64}},            // softmax forward
    {{32, 58, 64, 64}, {32, 58, 64, 64}, {26, 32, 64, 64}, {44, 64}},            // softmax backward
    {{40, 56, 64, 64}, {40, 48, 63, 64}, {36, 48, 64, 64}, {64, 64}},            // rows that begin anywhere
    {{32, 48, 64, 64}, {31, 40, 64, 64}, {31, 40, 62, 64}, {64, 64}},            //
    {{32, 49, 64, 64}, {32, 49, 64, 64}, {31, 32, 51, 64}, {49, 64}},            // layernorm forward
    {{27, 38, 64, 64}, {32, 42, 64, 64}, {24, 32, 50, 64}, {48, 64}},            // rmsnorm forward
    {{64, 127, 128, 128}, {64, 128, 128, 128}, {64, 96, 128, 128}, {104, 128}},  // layernorm backward
    {{51, 99, 128, 128}, {50, 105, 128, 128}, {40, 60, 127, 128}, {72, 128}},    // rmsnorm backward
}};

}  // namespace

RowRegisters registers_of(RowKernel kernel, DType dtype, bool single, double per, bool wide) {
  const bool layernorm = kernel == RowKernel::layernorm_bwd, four_bytes = bytes_of(dtype) >= 4;
  if (wide && (layernorm || kernel == RowKernel::rmsnorm_bwd)) {
    // 1,024 threads leave 64 registers to each; what 16 elements and their sums need beyond that is spilled.
    if (single) return {layernorm && !four_bytes ? 32.0 : 64.0, layernorm ? (four_bytes ? 564.0 : 1212.0) : four_bytes ? 452.0 : 576.0};
    return {64, layernorm ? (four_bytes ? 300.0 : 150.0) : four_bytes ? 112.0 : 0.0};
  }
  const Counts& counts = kCounts[static_cast<std::size_t>(kernel)];
  if (single) return {static_cast<double>(counts.single[per > 8 ? 1 : 0]), 0};
  const std::size_t at = per <= 1 ? 0 : per <= 2 ? 1 : per <= 4 ? 2 : 3;
  const auto& vectors = four_bytes ? counts.fp32 : dtype == DType::fp16 ? counts.fp16 : counts.bf16;
  return {static_cast<double>(vectors[at]), 0};
}

}  // namespace rooftile
