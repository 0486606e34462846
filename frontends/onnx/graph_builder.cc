#include "frontends/onnx/graph_builder.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include "frontends/onnx/fold_layers.h"
#include "frontends/onnx/text.h"

namespace rooftile::onnx {
namespace {

class GraphBuilder {
 public:
  GraphBuilder(const Program& program, const Trace& trace, const Options& options)
      : program_(program), trace_(trace), options_(options), roles_(trace.tensors.size(), TensorRole::activation) {
    for (const std::uint32_t id : trace.inputs) roles_[id] = TensorRole::input;
    for (const std::uint32_t id : trace.outputs) roles_[id] = TensorRole::output;
  }
  Result<Graph> build();

 private:
  TensorId tensor(std::uint32_t id);
  void edges(const Work& work, Operator& op);
  void learned(const Work& work, Operator& op, std::int64_t repeat);
  std::string_view name_of_work(const Work& work);
  void describe();
  void note_coverage();
  void note_dtype();
  void finish_head();
  void uncounted_weights(Segment& weights);

  const Program& program_;
  const Trace& trace_;
  const Options& options_;
  Graph graph_;
  std::vector<TensorRole> roles_;  // of the trace's tensors: the graph's inputs and outputs
  std::unordered_map<std::uint32_t, TensorId> tensors_;
  std::set<std::int32_t> counted_;         // stored tensors that an operator before has counted
  std::map<std::string, int> used_names_;  // and how often each was taken
};

TensorId GraphBuilder::tensor(std::uint32_t id) {
  const std::uint32_t root = trace_.tensors[id].view_of != 0 ? trace_.tensors[id].view_of : id;
  const auto [known, fresh] = tensors_.try_emplace(root, static_cast<TensorId>(graph_.tensors.size()));
  if (fresh) {
    const TensorInfo& info = trace_.tensors[root];
    Tensor out;
    out.dtype = dtype_of(info.elem, options_.dtype);
    out.role = info.constant ? TensorRole::constant : TensorRole::activation;
    Count elements = info.ranked ? 1 : 0;
    for (const Dim dim : info.shape) elements = fits_int64(elements) ? elements * dim.value : elements;
    out.elements = fits_int64(elements) ? static_cast<std::int64_t>(elements) : INT64_MAX;
    if (roles_[root] != TensorRole::activation) out.role = roles_[root];
    graph_.tensors.push_back(out);
  }
  return known->second;
}

void GraphBuilder::edges(const Work& work, Operator& op) {
  op.first_edge = static_cast<std::uint32_t>(graph_.edges.size());
  std::vector<std::uint32_t> inputs = work.inputs;
  std::erase(inputs, 0u);
  // Work functions keep their operands for the backward pass: a product has two, everything else at least one.
  const std::size_t least = work.kind == OpKind::matmul ? 2 : 1;
  while (inputs.size() < least) inputs.push_back(!inputs.empty() ? inputs.back() : work.weight != 0 ? work.weight : work.outputs.empty() ? 0 : work.outputs.front());
  for (const std::uint32_t input : inputs) graph_.edges.push_back(tensor(input));
  for (const std::uint32_t output : work.outputs) {
    graph_.edges.push_back(tensor(output));
    // The whole cache is counted as such, not as what a pass holds between its operators.
    if (work.kind == OpKind::cache_write) graph_.tensors[graph_.edges.back()].elements = 0;
  }
  op.inputs = static_cast<std::uint16_t>(std::min<std::size_t>(inputs.size(), UINT16_MAX));
  op.outputs = static_cast<std::uint16_t>(std::min<std::size_t>(work.outputs.size(), UINT16_MAX));
}

// A stored tensor is counted by the first operator that uses it; in a loop, which runs many times over one copy, by an operator without work before it.
void GraphBuilder::learned(const Work& work, Operator& op, std::int64_t repeat) {
  const std::int32_t stored = work.weight != 0 ? trace_.tensors[work.weight].stored : -1;
  const bool again = stored >= 0 && !counted_.insert(stored).second;
  const bool tied = again || repeat > 1;
  if (auto* linear = std::get_if<LinearAttrs>(&op.attrs)) linear->tied = tied || linear->tied;
  if (auto* embedding = std::get_if<EmbeddingAttrs>(&op.attrs)) embedding->tied = tied;
  if (auto* norm = std::get_if<NormAttrs>(&op.attrs); norm != nullptr && tied) norm->weight = norm->bias = false;
  if (auto* pointwise = std::get_if<PointwiseAttrs>(&op.attrs); pointwise != nullptr && tied) pointwise->parameters = 0;
  if (auto* linear = std::get_if<LinearAttrs>(&op.attrs); linear != nullptr && repeat > 1 && !again && work.weight != 0 && linear->experts == 0) {
    if (linear->bias) linear->bias = false;
  }
}

std::string_view GraphBuilder::name_of_work(const Work& work) {
  std::string name = trace_.steps[work.step].node->label();
  if (!work.part.empty()) name += "." + std::string(work.part);
  // The next free number is remembered: a body that a loop repeats has the same names thousands of times.
  if (auto [known, fresh] = used_names_.try_emplace(name, 1); !fresh) {
    std::string numbered;
    do {
      numbered = name + "#" + std::to_string(++known->second);
    } while (!used_names_.try_emplace(numbered, 1).second);
    name = std::move(numbered);
  }
  graph_.names.push_back(std::move(name));
  return graph_.names.back();
}

// Batch, length and tokens from the first input that looks like them: integer ids [B, S], else the leading sizes.
void GraphBuilder::describe() {
  const TensorInfo* first = nullptr;
  for (const std::uint32_t id : trace_.inputs) {
    const TensorInfo& info = trace_.tensors[id];
    if (!info.ranked || info.rank() == 0) continue;
    if (first == nullptr) first = &info;
    if (is_integer(info.elem) && info.rank() == 2) {
      first = &info;
      break;
    }
  }
  if (first == nullptr) return;
  const auto size = [&](std::size_t axis) { return std::max<std::int64_t>(first->shape[axis].value, 1); };
  graph_.batch = size(0);
  graph_.seq = first->rank() == 2 || first->rank() == 3 ? size(1) : 1;
  if (!is_integer(first->elem) && first->rank() == 2) graph_.seq = 1;
  graph_.tokens = graph_.batch * graph_.seq;
}

void GraphBuilder::note_coverage() {
  const OnnxCoverage coverage = coverage_of(trace_);
  if (coverage.unknown_nodes > 0) {
    std::string list;
    for (const auto& [op, count] : coverage.unknown_operators) list += (list.empty() ? "" : ", ") + op + " x" + std::to_string(count);
    graph_.warnings.push_back({"operators_without_rule", std::to_string(coverage.unknown_nodes) + " of " + std::to_string(coverage.nodes) + " nodes are not costed: " + list});
  }
  if (coverage.unresolved_nodes > 0) {
    std::string list;
    for (std::size_t i = 0; i < std::min<std::size_t>(coverage.unresolved.size(), 5); ++i) list += (list.empty() ? "" : ", ") + coverage.unresolved[i];
    graph_.warnings.push_back(
        {"shapes_unknown", std::to_string(coverage.unresolved_nodes) + " of " + std::to_string(coverage.nodes) + " nodes have unknown shapes and are not costed: " + list});
  }
}

void GraphBuilder::note_dtype() {
  std::map<std::string_view, int> found;
  for (const Work& work : trace_.works) {
    if (is_float(work.elem) && bits_of(work.elem) > 8 && stored_dtype(work.elem) != options_.dtype) ++found[onnx::name_of(work.elem)];
  }
  // Packed weights: what they take in memory is known, but the operators' kernels have one dtype.
  std::set<std::int32_t> packed;
  Count bytes = 0;
  for (const Work& work : trace_.works) {
    if (!work.alive || work.weight == 0 || work.kind == OpKind::embedding || bits_of(work.elem) <= 8) continue;
    const std::int32_t stored = trace_.tensors[work.weight].stored;
    if (stored < 0 || bits_of(program_.stored[static_cast<std::size_t>(stored)].elem) > 8 || !packed.insert(stored).second) continue;
    Count elements = 1;
    for (const std::int64_t dim : program_.stored[static_cast<std::size_t>(stored)].dims) elements = fits_int64(elements) ? elements * dim : elements;
    bytes += (elements * bits_of(program_.stored[static_cast<std::size_t>(stored)].elem) + 7) / 8;
  }
  if (!packed.empty()) {
    graph_.warnings.push_back({"packed_weights", std::to_string(packed.size()) + " weights are stored in 8 bits or fewer (" + to_string(bytes) +
                                                     " bytes in all): they are read as stored and multiplied in " + std::string(rooftile::name_of(options_.dtype))});
  }
  for (const auto& [elem, count] : found) {
    graph_.warnings.push_back({"dtype_of_graph", "operators stored in " + std::string(elem) + " are costed in " + std::string(rooftile::name_of(options_.dtype)) + " (--dtype)"});
  }
}

// A last linear that gives the graph's output over many classes is the head; in training it gets the loss that the exported graph lacks.
void GraphBuilder::finish_head() {
  if (graph_.ops.empty() || graph_.segments.back().repeat != 1) return;
  Operator& last = graph_.ops.back();
  const auto* linear = std::get_if<LinearAttrs>(&last.attrs);
  if (last.kind != OpKind::linear || linear == nullptr || last.outputs == 0 || linear->out < 2) return;
  const TensorId logits = graph_.outputs_of(last)[0];
  if (graph_.tensors[logits].role != TensorRole::output) return;
  if (linear->out >= 1000) last.kind = OpKind::lm_head;
  const bool has_loss = std::any_of(graph_.ops.begin(), graph_.ops.end(), [](const Operator& op) { return op.kind == OpKind::cross_entropy || op.kind == OpKind::optimizer; });
  if (options_.phase != Phase::train || has_loss) return;
  Operator loss;
  loss.kind = OpKind::cross_entropy;
  loss.name = "cross_entropy";
  loss.dtype = last.dtype;
  CrossEntropyAttrs attrs;
  attrs.tokens = linear->tokens;
  attrs.vocab = linear->out;
  attrs.split = Split::none;
  loss.attrs = attrs;
  loss.first_edge = static_cast<std::uint32_t>(graph_.edges.size());
  loss.inputs = loss.outputs = 1;
  graph_.edges.push_back(logits);
  graph_.edges.push_back(static_cast<TensorId>(graph_.tensors.size()));
  graph_.tensors.push_back({1, last.dtype, TensorRole::output, Split::none});
  graph_.ops.push_back(loss);
  ++graph_.segments.back().op_count;
  graph_.warnings.push_back({"loss_added", "the graph has no loss; a cross entropy over its " + std::to_string(attrs.vocab) + " classes is added for training"});
}

// Matrices that a training graph takes as inputs and that no row counts as its weight (a table read by a foreign look-up) are parameters all the same.
void GraphBuilder::uncounted_weights(Segment& weights) {
  std::set<std::int32_t> used;
  for (const Work& work : trace_.works) {
    if (work.alive && work.weight != 0) used.insert(trace_.tensors[work.weight].stored);
  }
  for (std::size_t i = 0; i < program_.stored.size(); ++i) {
    const StoredTensor& stored = program_.stored[i];
    if (!stored.input || stored.dims.size() < 2 || used.contains(static_cast<std::int32_t>(i))) continue;
    LinearAttrs kept;  // without tokens: no work
    kept.in = stored.elements;
    kept.out = 1;
    kept.split = Split::none;
    graph_.names.push_back(readable(stored.name));
    Operator op;
    op.kind = OpKind::linear;
    op.dtype = dtype_of(stored.elem, options_.dtype);
    op.attrs = kept;
    op.name = graph_.names.back();
    op.first_edge = static_cast<std::uint32_t>(graph_.edges.size());
    graph_.ops.push_back(op);
    ++weights.op_count;
  }
}

Result<Graph> GraphBuilder::build() {
  graph_.names.reserve(trace_.works.size() * 2 + program_.stored.size() + 8);
  graph_.ops.reserve(trace_.works.size());
  graph_.warnings = trace_.warnings;
  describe();
  graph_.tensors.push_back({});  // tensor 0: nothing
  std::int64_t current = 0;
  // Weights that only loops use, counted once by operators without work.
  Segment weights;
  weights.name = "weights";
  for (const Work& work : trace_.works) {
    if (!work.alive || work.repeat <= 1 || work.weight == 0 || trace_.tensors[work.weight].stored < 0) continue;
    const auto* linear = std::get_if<LinearAttrs>(&work.attrs);
    if (linear == nullptr || linear->experts > 0 || !counted_.insert(trace_.tensors[work.weight].stored).second) continue;
    Operator op;
    op.kind = OpKind::linear;
    op.dtype = dtype_of(work.elem, options_.dtype);
    graph_.names.push_back(trace_.steps[work.step].node->label() + (work.part.empty() ? "" : "." + std::string(work.part)));
    op.name = graph_.names.back();
    LinearAttrs kept = *linear;
    kept.tokens = 0;
    op.attrs = kept;
    op.first_edge = static_cast<std::uint32_t>(graph_.edges.size());
    graph_.ops.push_back(op);
    ++weights.op_count;
  }
  uncounted_weights(weights);
  if (weights.op_count > 0) graph_.segments.push_back(weights);
  for (const Work& work : trace_.works) {
    if (!work.alive) continue;
    if (graph_.segments.empty() || current != work.repeat) {
      Segment segment;
      graph_.names.push_back(graph_.segments.size() <= (weights.op_count > 0 ? 1u : 0u) && work.repeat == 1
                                 ? "graph"
                                 : (work.repeat == 1 ? "graph" : "loop") + std::to_string(graph_.segments.size()));
      segment.name = graph_.names.back();
      segment.first_op = static_cast<std::uint32_t>(graph_.ops.size());
      segment.repeat = work.repeat;
      graph_.segments.push_back(segment);
      current = work.repeat;
      used_names_.clear();
    }
    if (graph_.names.size() + 2 >= graph_.names.capacity()) return fail(ErrorCode::internal, "names of the graph were not counted right");
    Operator op;
    op.kind = work.kind;
    op.attrs = work.attrs;
    op.dtype = dtype_of(work.elem, options_.dtype);
    if (auto* pointwise = std::get_if<PointwiseAttrs>(&op.attrs)) {
      pointwise->to = work.outputs.empty() ? op.dtype : dtype_of(trace_.tensors[work.outputs.front()].elem, options_.dtype);
    }
    op.name = name_of_work(work);
    edges(work, op);
    learned(work, op, work.repeat);
    // Images and ids need no gradient.
    if (op.inputs > 0 && graph_.tensors[graph_.edges[op.first_edge]].role == TensorRole::input) {
      if (auto* linear = std::get_if<LinearAttrs>(&op.attrs)) linear->input_gradient = false;
      if (auto* convolution = std::get_if<ConvolutionAttrs>(&op.attrs)) convolution->input_gradient = false;
    }
    Segment& segment = graph_.segments.back();
    if (segment.op_count == 0 && op.inputs > 0) segment.input = graph_.edges[op.first_edge];
    if (op.outputs > 0) segment.output = graph_.edges[op.first_edge + op.inputs];
    ++segment.op_count;
    graph_.ops.push_back(op);
  }
  if (!graph_.segments.empty()) graph_.segments.back().role = SegmentRole::epilogue;
  finish_head();
  fold_layers(graph_);
  for (const std::uint32_t id : trace_.outputs) {
    const TensorInfo& info = trace_.tensors[id];
    NamedShape shape{readable(program_.values[trace_.names[id]].name), stored_dtype(info.elem), {}};
    for (const Dim dim : info.shape) shape.shape.push_back(dim.value);
    graph_.model.outputs.push_back(std::move(shape));
  }
  note_coverage();
  note_dtype();
  return std::move(graph_);
}

}  // namespace

DType stored_dtype(Elem elem) {
  switch (elem) {
    case Elem::float16:
      return DType::fp16;
    case Elem::bfloat16:
      return DType::bf16;
    case Elem::float64:
    case Elem::complex64:
      return DType::fp64;
    case Elem::float8e4m3fn:
    case Elem::float8e4m3fnuz:
    case Elem::float8e8m0:
      return DType::fp8_e4m3;
    case Elem::float8e5m2:
    case Elem::float8e5m2fnuz:
      return DType::fp8_e5m2;
    case Elem::float4e2m1:
      return DType::fp4;
    case Elem::uint4:
    case Elem::int4:
    case Elem::uint2:
    case Elem::int2:
      return DType::int4;
    case Elem::uint8:
    case Elem::int8:
      return DType::int8;
    case Elem::boolean:
      return DType::boolean;
    case Elem::int32:
    case Elem::uint32:
    case Elem::int16:
    case Elem::uint16:
      return DType::int32;
    case Elem::int64:
    case Elem::uint64:
      return DType::int64;
    default:
      return DType::fp32;
  }
}

DType dtype_of(Elem elem, DType compute) {
  const bool computes = elem == Elem::float32 || elem == Elem::float16 || elem == Elem::bfloat16 || elem == Elem::float64 || elem == Elem::undefined;
  return computes ? compute : stored_dtype(elem);
}

OnnxCoverage coverage_of(const Trace& trace) {
  OnnxCoverage coverage;
  coverage.nodes = trace.executed_nodes;
  coverage.unknown_nodes = trace.unknown_nodes;
  coverage.unresolved_nodes = trace.unresolved_nodes;
  coverage.unknown_operators = trace.unknown_operators;
  coverage.unresolved = trace.unresolved;
  return coverage;
}

Result<Graph> build_graph(const Program& program, const Trace& trace, const Options& options) { return GraphBuilder(program, trace, options).build(); }

}  // namespace rooftile::onnx
