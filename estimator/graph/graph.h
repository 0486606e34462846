// The operator graph: operators with concrete sizes, forward only, for one micro-batch of the whole model. Layers that are alike are stored once with a repeat count, so a
// model of 126 layers is some 25 operators.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "estimator/core/count.h"
#include "estimator/core/dtype.h"
#include "estimator/core/result.h"
#include "estimator/graph/op_kind.h"
#include "estimator/ops/attributes.h"

namespace rooftile {

using TensorId = std::uint32_t;

enum class TensorRole : std::uint8_t { activation, input, constant, output };

struct Tensor {
  std::int64_t elements = 0;
  DType dtype = DType::bf16;
  TensorRole role = TensorRole::activation;
  Split split = Split::none;  // sequence: divided over tp only with sequence parallelism; column: divided over tp; expert: over expert tensor parallelism
};

struct Operator {
  OpKind kind = OpKind::free;
  std::string_view name;  // unique within its segment, owned by Graph::names or static
  DType dtype = DType::bf16;
  OpAttrs attrs;
  std::uint32_t first_edge = 0;  // into Graph::edges: inputs, then outputs
  std::uint16_t inputs = 0, outputs = 0;
};

// A run of operators that is executed `repeat` times with the same sizes. A layer kind is one segment; Graph::layers gives the order in which they really come.
enum class SegmentRole : std::uint8_t { prologue, layer, epilogue };
struct Segment {
  std::string_view name;  // "embedding", "layer", "layer_local", "head"
  SegmentRole role = SegmentRole::prologue;
  std::uint32_t first_op = 0, op_count = 0;
  std::int64_t repeat = 1;
  TensorId input = 0;  // the tensor that enters it, kept when the segment is recomputed
  TensorId output = 0;
};

struct NamedShape {
  std::string name;
  DType dtype = DType::bf16;
  std::vector<std::int64_t> shape;
};

// What the frontend knows of the model as a whole.
struct ModelInfo {
  std::string name, source;
  std::int64_t hidden = 0, heads = 0, kv_heads = 0, layers = 0, experts = 0, ffn_hidden = 0, vocab = 0, max_positions = 0;  // 0: unknown
  std::vector<NamedShape> outputs;
  std::vector<std::string> traits;  // what a runtime's rules may ask about the whole model: "decoder", "rope", "unit_offset" (see rule.h)
};

struct Graph {
  ModelInfo model;
  std::vector<Operator> ops;
  std::vector<Tensor> tensors;
  std::vector<TensorId> edges;
  std::vector<Segment> segments;
  std::vector<std::uint32_t> layers;  // segment of each layer, in order of execution
  std::int64_t batch = 1, seq = 1;    // of one micro-batch; tokens = batch x seq
  std::int64_t tokens = 1;            // what throughput counts: target tokens, images' patches, new tokens of a decode
  std::vector<std::string> names;     // storage for operator names that are not literals; reserve before taking views
  std::vector<Warning> warnings;

  std::span<const TensorId> inputs_of(const Operator& op) const { return {edges.data() + op.first_edge, op.inputs}; }
  std::span<const TensorId> outputs_of(const Operator& op) const { return {edges.data() + op.first_edge + op.inputs, op.outputs}; }
  std::span<const Operator> ops_of(const Segment& segment) const { return {ops.data() + segment.first_op, segment.op_count}; }
};

}  // namespace rooftile
