// What a runtime allocates and keeps while it executes one operator: the elementary operations that it runs in place of the operator, each with the tensors that automatic
// differentiation saves for it. A runtime file writes a program as lines such as "h = float x", "n = mul h r".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "estimator/core/result.h"
#include "estimator/graph/op_kind.h"
#include "estimator/timing/kernel_call.h"

namespace rooftile {

// One elementary operation. What it saves, what autocast does to its operands and what its backward allocates is in kMemoryPrims.
enum class MemoryPrim : std::uint8_t {
  to_fp32,
  to_low,
  like,
  add,
  scale,
  half,
  mul,
  pow,
  mean,
  rsqrt,
  function,
  function_of_output,
  norm,
  fused_norm,
  linear,
  softmax,
  log_softmax,
  nll,
  fused_loss,
  sdpa,
  scores,
  mix,
  scores32,
  mix32,
  scores_as,
  mix_as,
  copy,
  fold,
  contiguous,
  join,
  expand,
  repeat,
  gather,
  collect,
  keep
};

enum class PrimSize : std::uint8_t { largest, half, rows, one, output, scores, queries };
enum class PrimWidth : std::uint8_t { promote, fp32, low, like_second };  // of the result, and under autocast of the operands (fp32, low)
enum class PrimGradient : std::uint8_t { none, share, own };              // of the operands: none, the incoming buffer itself, a buffer of their own

struct MemoryPrimInfo {
  std::string_view name;
  std::uint8_t arguments;
  std::uint8_t saves;  // bit 0..2: operands, bit 3: the result
  PrimSize size;
  PrimWidth width;
  PrimGradient gradient;
};

const MemoryPrimInfo& info_of(MemoryPrim prim);

// Names in a program: x x2 x3 the operator's inputs, y y2 y3 its outputs, w a learned vector, table a constant shared by all layers; any other name is a local tensor.
inline constexpr std::uint8_t kProgramOutput = 3, kProgramWeight = 6, kProgramTable = 7, kProgramLocal = 8, kProgramNames = 32;

struct MemoryStep {
  MemoryPrim prim = MemoryPrim::copy;
  std::uint8_t result = 0;
  std::uint8_t arguments[3] = {0, 0, 0};
  std::uint8_t dying = 0;  // bits: operands that are no outputs and are not read again
};

// What a program may ask of the operator before it applies; all of them must hold.
//   unit_offset  an RMS norm whose weight is applied in fp32 (Gemma, OLMo 2)
//   partial      a rotary embedding of a part of each head
//   standard     attention with its scores in memory
//   fp32_softmax a softmax that is computed and kept in fp32
//   softcap      soft-capped scores
//   masked       attention of an encoder over padded tokens
//   upcast       a loss whose logits are first cast to fp32
//   combine      the way back from the order of experts
//   low_norm     a norm that multiplies its 16-bit input by an fp32 factor (T5)
//   composed     attention that is never fused (BLOOM)
//   composed_gate a gated activation whose gelu is written out (T5 1.1)
//   learned_bias fused attention in training whose scores get a bias that wants a gradient
enum ProgramCondition : std::uint16_t {
  kUnitOffset = 1,
  kPartial = 2,
  kStandard = 4,
  kFp32Softmax = 8,
  kSoftcap = 16,
  kMasked = 32,
  kUpcast = 64,
  kCombine = 128,
  kLowNorm = 256,
  kLearnedBias = 512,
  kComposed = 1024,
  kComposedGate = 2048
};
inline constexpr std::string_view kProgramConditions[] = {"unit_offset", "partial", "standard", "fp32_softmax", "softcap",  "masked",
                                                          "upcast",      "combine", "low_norm", "learned_bias", "composed", "composed_gate"};

struct MemoryProgram {
  OpKind op = OpKind::free;
  std::uint16_t conditions = 0;
  std::optional<PointwiseKind> function;  // of an activation or another pointwise operator
  std::vector<MemoryStep> steps;
  std::vector<std::uint8_t> kept_to_end;  // locals that a Python frame holds until the operator is done
};

// Parses one program. Errors: a word that is no operation, a wrong number of operands, a name read before it is written, more than 24 local names.
Result<MemoryProgram> parse_memory_program(const std::vector<std::string>& lines);

}  // namespace rooftile
