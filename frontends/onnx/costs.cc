// Costs of pointwise operators, data movement, rows and look-ups.
#include "frontends/onnx/costs.h"

#include <algorithm>

#include "frontends/onnx/rules/spatial.h"

namespace rooftile::onnx {

const TensorInfo& CostCall::out(std::size_t i) const {
  const auto outputs = run_.trace.outputs_of(run_.trace.steps[step_]);
  return run_.trace.tensors[i < outputs.size() ? outputs[i] : 0];
}
std::uint32_t CostCall::in_id(std::size_t i) const {
  const auto inputs = run_.trace.inputs_of(run_.trace.steps[step_]);
  return i < inputs.size() ? inputs[i] : 0;
}
std::uint32_t CostCall::out_id(std::size_t i) const {
  const auto outputs = run_.trace.outputs_of(run_.trace.steps[step_]);
  return i < outputs.size() ? outputs[i] : 0;
}

void CostCall::emit(OpKind kind, OpAttrs attrs, Dim macs, Emission emission) {
  Work work;
  work.step = step_;
  work.kind = kind;
  work.attrs = std::move(attrs);
  work.part = emission.part;
  std::int64_t times = 0;
  if (__builtin_mul_overflow(run_.trace.steps[step_].repeat, emission.repeat, &times)) return call.fail("is executed more than 2^63 times");
  work.repeat = times;
  work.macs = macs;
  work.weight = emission.weight;
  work.inputs = std::move(emission.inputs);
  work.outputs = std::move(emission.outputs);
  if (work.inputs.empty()) {
    for (std::size_t i = 0; i < call.input_count(); ++i) {
      if (call.has(i) && in_id(i) != 0 && !in(i).constant && !in(i).bookkeeping) work.inputs.push_back(in_id(i));
    }
  }
  if (work.outputs.empty()) {
    for (std::size_t i = 0; i < call.output_count(); ++i) {
      if (out_id(i) != 0) work.outputs.push_back(out_id(i));
    }
  }
  work.elem = !work.outputs.empty() ? run_.trace.tensors[work.outputs.front()].elem : in(0).elem;
  for (const std::uint32_t input : work.inputs) {  // masks and ids do not decide how a kernel computes
    if (is_float(run_.trace.tensors[input].elem)) {
      work.elem = run_.trace.tensors[input].elem;
      break;
    }
  }
  // A product of integers gives wider ones; its kernel is that of its operands.
  const bool product = kind == OpKind::linear || kind == OpKind::matmul || kind == OpKind::convolution || kind == OpKind::patch_embedding;
  if (product && is_integer(work.elem) && !work.inputs.empty()) {
    const Elem operand = run_.trace.tensors[work.inputs.front()].elem;
    if (is_integer(operand) && bits_of(operand) <= 8) work.elem = operand;
  }
  run_.trace.works.push_back(std::move(work));
}

void CostCall::pointwise(PointwiseKind kind, Dim elements, OpKind op, Emission emission) {
  if (elements == Dim(0)) return;
  PointwiseAttrs attrs;
  attrs.kind = kind;
  attrs.numel = number(elements);
  attrs.split = Split::none;
  emit(op, attrs, 0, std::move(emission));
}

std::uint32_t CostCall::internal(Dim elements, Elem elem) {
  TensorInfo info;
  info.elem = elem;
  info.ranked = true;
  info.shape = {elements};
  info.view_of = static_cast<std::uint32_t>(run_.trace.tensors.size());
  run_.trace.tensors.push_back(std::move(info));
  run_.trace.names.push_back(kAbsent);
  return static_cast<std::uint32_t>(run_.trace.tensors.size() - 1);
}

void CostCall::unresolved() {
  ++run_.trace.unresolved_nodes;
  if (run_.trace.unresolved.size() < 50) run_.trace.unresolved.push_back(call.node.label());
}

namespace {

void unary(CostCall& at, PointwiseKind kind, OpKind op = OpKind::elementwise) {
  if (!at.known_out(0)) return at.unresolved();
  at.pointwise(kind, at.out_elements(0), op);
}

bool one_element(const CostCall& at, std::size_t i) {
  return at.known_in(i) && std::all_of(at.in(i).shape.begin(), at.in(i).shape.end(), [](Dim dim) { return dim == Dim(1); });
}

// A binary operator: both operands full, one a scalar, or one a row that repeats.
void binary(CostCall& at, PointwiseKind full, OpKind op = OpKind::elementwise) {
  if (!at.known_out(0)) return at.unresolved();
  const Dim elements = at.out_elements(0);
  std::size_t large = 0, learned = SIZE_MAX;
  bool scalar = false;
  for (std::size_t i = 0; i < at.call.input_count(); ++i) {
    if (!at.call.has(i)) continue;
    if (at.known_in(i) && at.in_elements(i) == elements && !at.weight(i)) ++large;
    scalar = scalar || one_element(at, i);
    if (at.weight(i) && at.in(i).stored >= 0 && is_float(at.in(i).elem)) learned = i;
  }
  PointwiseAttrs attrs;
  attrs.numel = CostCall::number(elements);
  attrs.split = Split::none;
  const bool additive = full == PointwiseKind::add || full == PointwiseKind::sub || full == PointwiseKind::mul || full == PointwiseKind::div;
  attrs.kind = large >= 2 || !additive ? full : scalar ? PointwiseKind::scale : PointwiseKind::bias;
  if (large < 2 && full == PointwiseKind::div) attrs.kind = PointwiseKind::scale;
  if (learned != SIZE_MAX) {
    const Dim count = at.in_elements(learned);
    if (count.is_constant() && count.value > 1) attrs.parameters = count.value;
  }
  if (attrs.numel == 0 && elements.is_constant()) return;
  Emission emission;
  if (attrs.parameters > 0) emission.weight = at.in_id(learned);
  at.emit(op == OpKind::residual && large < 2 ? OpKind::elementwise : op, attrs, 0, std::move(emission));
}

// Rows and columns of an operator that works along trailing (or one) dimensions.
void norm(CostCall& at, OpKind kind, Dim rows, Dim cols, Dim weight_cols, bool weight, bool bias, std::size_t weight_input, Emission emission = {}) {
  if (rows == Dim(0) || cols == Dim(0)) return;
  NormAttrs attrs;
  attrs.rows = CostCall::number(rows);
  attrs.cols = CostCall::number(cols);
  attrs.weight_cols = CostCall::number(weight_cols);
  attrs.weight = weight;
  attrs.bias = bias;
  attrs.split = Split::none;
  if (weight) emission.weight = at.in_id(weight_input);
  at.emit(kind, attrs, 0, std::move(emission));
}

std::size_t norm_axis(CostCall& at, std::int64_t fallback) {
  const auto rank = static_cast<std::int64_t>(at.in(0).rank());
  std::int64_t axis = at.call.attr_int("axis", fallback);
  if (axis < 0) axis += rank;
  return static_cast<std::size_t>(std::clamp<std::int64_t>(axis, 0, std::max<std::int64_t>(rank - 1, 0)));
}

void softmax_rows(CostCall& at, std::size_t input) {
  if (!at.known_in(input)) return at.unresolved();
  const auto& shape = at.in(input).shape;
  const bool flattened = at.call.node.opset > 0 && at.call.node.opset < 13 && at.call.node.data->domain.empty();
  const Dim total = at.call.product(shape);
  Dim cols = 1;
  if (!shape.empty()) {
    const auto rank = static_cast<std::int64_t>(shape.size());
    std::int64_t axis = at.call.attr_int("axis", flattened ? 1 : -1);
    if (axis < 0) axis += rank;
    const auto place = static_cast<std::size_t>(std::clamp<std::int64_t>(axis, 0, rank));
    cols = flattened ? at.call.product(shape, place) : place < shape.size() ? shape[place] : Dim(1);
  }
  if (total == Dim(0) || cols == Dim(0)) return;
  SoftmaxAttrs attrs;
  attrs.rows = CostCall::number(at.dims.floordiv(total, cols));
  attrs.cols = CostCall::number(cols);
  attrs.split = Split::none;
  at.emit(OpKind::softmax, attrs);
}

}  // namespace

void free_cost(CostCall&) {}
void view_cost(CostCall&) {}
// Slices, splits and expansions are views with strides: the kernels that follow read them in place.
void strided_view_cost(CostCall&) {}
void host_cost(CostCall&) {}

void add_cost(CostCall& at) { binary(at, PointwiseKind::add, OpKind::residual); }
void sub_cost(CostCall& at) { binary(at, PointwiseKind::sub); }
void mul_cost(CostCall& at) { binary(at, PointwiseKind::mul); }
void div_cost(CostCall& at) { binary(at, PointwiseKind::div); }
void binary_cost(CostCall& at) { binary(at, PointwiseKind::add); }
void pow_cost(CostCall& at) { unary(at, PointwiseKind::pow); }
void compare_cost(CostCall& at) { unary(at, PointwiseKind::compare); }
void where_cost(CostCall& at) { unary(at, PointwiseKind::where); }
void unary_cost(CostCall& at) { unary(at, PointwiseKind::unary); }
void special_cost(CostCall& at) { unary(at, PointwiseKind::special); }
void sqrt_cost(CostCall& at) { unary(at, PointwiseKind::sqrt); }
void exp_cost(CostCall& at) { unary(at, PointwiseKind::exp); }
void relu_cost(CostCall& at) { unary(at, PointwiseKind::relu, OpKind::activation); }
void activation_cost(CostCall& at) { unary(at, PointwiseKind::unary, OpKind::activation); }
void gelu_cost(CostCall& at) { unary(at, PointwiseKind::gelu, OpKind::activation); }
void silu_cost(CostCall& at) { unary(at, PointwiseKind::silu, OpKind::activation); }
void sigmoid_cost(CostCall& at) { unary(at, PointwiseKind::sigmoid, OpKind::activation); }
void tanh_cost(CostCall& at) { unary(at, PointwiseKind::tanh, OpKind::activation); }
void copy_cost(CostCall& at) { unary(at, PointwiseKind::copy, OpKind::copy); }
void layout_cost(CostCall& at) {
  // A transposition that only moves dimensions of size 1 is a view.
  unary(at, PointwiseKind::permute, OpKind::copy);
}
void concat_cost(CostCall& at) { unary(at, PointwiseKind::concat, OpKind::copy); }
void fill_cost(CostCall& at) { unary(at, PointwiseKind::fill); }
void random_cost(CostCall& at) { unary(at, PointwiseKind::special); }
void pick_cost(CostCall& at) { unary(at, PointwiseKind::gather); }
void resample_cost(CostCall& at) { unary(at, PointwiseKind::gather); }
void gelu_gradient_cost(CostCall& at) { unary(at, PointwiseKind::gelu_backward, OpKind::activation); }

void cast_cost(CostCall& at) {
  if (!at.known_out(0)) return at.unresolved();
  if (at.in(0).elem == at.out(0).elem) return;
  unary(at, PointwiseKind::cast);
}
void dequantize_cost(CostCall& at) { unary(at, PointwiseKind::cast); }

void dynamic_quantize_cost(CostCall& at) {
  if (!at.known_in(0)) return at.unresolved();
  const Dim elements = at.in_elements(0);
  if (elements == Dim(0)) return;
  ReductionAttrs range;
  range.rows = 1;
  range.cols = CostCall::number(elements);
  range.split = Split::none;
  at.emit(OpKind::reduction, range, 0, {.part = "range", .outputs = {at.internal(2, Elem::float32)}});
  at.pointwise(PointwiseKind::cast, elements, OpKind::elementwise, {.part = "quantize"});
}

void dropout_cost(CostCall& at) {
  if (!at.known_out(0)) return at.unresolved();
  // At inference it passes its input through; training_mode is its third input since opset 12.
  const auto mode = at.call.in_number(2);
  const bool training = at.call.has(2) ? (!mode || *mode != 0) : at.call.node.data->domain == "com.microsoft" && at.call.wants(1);
  if (training) unary(at, PointwiseKind::dropout, OpKind::dropout);
}

void pick_input_cost(CostCall& at) {
  if (!at.known_in(1)) return at.unresolved();
  at.pointwise(PointwiseKind::gather, at.in_elements(1));
}

void scatter_cost(CostCall& at) {
  const std::size_t updates = at.call.input_count() > 2 ? 2 : 0;
  if (!at.known_in(updates)) return at.unresolved();
  at.pointwise(PointwiseKind::scatter_add, at.in_elements(updates));
}

// Rows of a learned table are an embedding; anything else is a gather.
void gather_cost(CostCall& at) {
  if (!at.known_out(0)) return at.unresolved();
  const TensorInfo& table = at.in(0);
  const bool learned =
      table.constant && table.ranked && table.rank() == 2 && (is_float(table.elem) || bits_of(table.elem) <= 8) && at.call.attr_int("axis", 0) == 0 && at.known_in(1);
  // One position that is known (the class token, the last token) is a view with strides.
  const bool one = at.call.ranked(1) && at.in_elements(1) == Dim(1) && at.call.in_number(1).has_value();
  if (!learned && one) return;
  if (!learned) return at.pointwise(PointwiseKind::gather, at.out_elements(0), OpKind::elementwise);
  const Dim tokens = at.in_elements(1);
  if (tokens == Dim(0)) return;
  EmbeddingAttrs attrs;
  attrs.tokens = CostCall::number(tokens);
  attrs.vocab = CostCall::number(table.shape[0]);
  attrs.hidden = CostCall::number(at.dims.floordiv(at.out_elements(0), tokens));
  attrs.split = Split::none;
  at.emit(OpKind::embedding, attrs, 0, {.weight = at.in_id(0)});
}

void aten_cost(CostCall& at) {
  if (!at.known_out(0)) return at.unresolved();
  std::string_view op = at.call.attr_text("operator", "");
  if (op.starts_with("aten::")) op.remove_prefix(6);
  const bool backward = op == "embedding_backward" || op == "embedding_dense_backward";
  if (backward && at.known_in(0)) return at.pointwise(PointwiseKind::scatter_add, at.in_elements(0));
  at.pointwise(PointwiseKind::gather, at.out_elements(0));
}

void softmax_cost(CostCall& at) { softmax_rows(at, 0); }
void softmax_gradient_cost(CostCall& at) {  // reads gradient and output, writes a gradient: the traffic of one more operand
  softmax_rows(at, 0);
}

void reduce_cost(CostCall& at) {
  if (!at.known_in(0) || !at.known_out(0)) return at.unresolved();
  const Dim all = at.in_elements(0), kept = at.out_elements(0);
  if (all == Dim(0) || kept == Dim(0)) return;
  if (all == kept) return at.pointwise(PointwiseKind::unary, all);
  ReductionAttrs attrs;
  // Over rows when the last dimension survives: gradients of biases.
  const auto& before = at.in(0).shape;
  const auto& after = at.out(0).shape;
  attrs.over_rows = !before.empty() && !after.empty() && before.back() == after.back() && before.back() != Dim(1);
  const Dim folded = at.dims.floordiv(all, kept);
  attrs.rows = CostCall::number(attrs.over_rows ? folded : kept);
  attrs.cols = CostCall::number(attrs.over_rows ? kept : folded);
  attrs.split = Split::none;
  at.emit(OpKind::reduction, attrs);
}

void rows_cost(CostCall& at) {
  if (!at.known_in(0)) return at.unresolved();
  const Dim all = at.in_elements(0);
  if (all == Dim(0)) return;
  ReductionAttrs attrs;
  const Dim cols = at.in(0).shape.empty() ? Dim(1) : at.in(0).shape.back();
  attrs.cols = CostCall::number(cols);
  attrs.rows = CostCall::number(at.dims.floordiv(all, cols));
  attrs.split = Split::none;
  at.emit(OpKind::reduction, attrs);
}

void pool_cost(CostCall& at) {
  if (!at.known_out(0)) return at.unresolved();
  const Dim outputs = at.out_elements(0);
  if (outputs == Dim(0)) return;
  ReductionAttrs attrs;
  attrs.rows = CostCall::number(outputs);
  attrs.cols = 1;
  if (const auto kernel = at.call.attr_ints("kernel_shape")) {
    for (const std::int64_t size : *kernel) {
      if (size <= 0 || __builtin_mul_overflow(attrs.cols, size, &attrs.cols)) return at.call.fail("kernel_shape");
    }
  }
  attrs.split = Split::none;
  at.emit(OpKind::reduction, attrs);
}

void layer_norm_cost(CostCall& at) {
  if (!at.known_in(0)) return at.unresolved();
  const Dim cols = at.call.product(at.in(0).shape, norm_axis(at, -1));
  if (cols == Dim(0)) return;
  norm(at, OpKind::layernorm, at.dims.floordiv(at.in_elements(0), cols), cols, 0, at.weight(1), at.weight(2), 1);
}

void rms_norm_cost(CostCall& at) {
  if (!at.known_in(0)) return at.unresolved();
  const Dim cols = at.call.product(at.in(0).shape, norm_axis(at, -1));
  if (cols == Dim(0)) return;
  norm(at, OpKind::rmsnorm, at.dims.floordiv(at.in_elements(0), cols), cols, 0, at.weight(1), false, 1);
}

namespace {
void skip_norm(CostCall& at, OpKind kind, bool norm_bias) {
  if (!at.known_in(0) || at.in(0).rank() == 0) return at.unresolved();
  const Dim elements = at.in_elements(0), cols = at.in(0).shape.back();
  if (elements == Dim(0)) return;
  // The sum is output 3 where it is used, else it stays inside the kernel.
  const std::uint32_t sum = at.out_id(3) != 0 ? at.out_id(3) : at.internal(elements, at.in(0).elem);
  at.pointwise(PointwiseKind::add, elements, OpKind::residual, {.part = "residual", .inputs = {at.in_id(0), at.in_id(1)}, .outputs = {sum}});
  norm(at, kind, at.dims.floordiv(elements, cols), cols, 0, at.weight(2), norm_bias && at.weight(3), 2, {.part = "norm", .inputs = {sum}, .outputs = {at.out_id(0)}});
}
}  // namespace

void skip_layer_norm_cost(CostCall& at) { skip_norm(at, OpKind::layernorm, true); }
void skip_rms_norm_cost(CostCall& at) { skip_norm(at, OpKind::rmsnorm, false); }

// Up to three look-ups (words, positions, token types), their sum, and a norm.
void embed_layer_norm_cost(CostCall& at) {
  if (!at.known_out(0) || at.out(0).rank() != 3) return at.unresolved();
  const auto& shape = at.out(0).shape;
  const Dim tokens = at.dims.mul(shape[0], shape[1]);
  if (tokens == Dim(0)) return;
  const std::uint32_t sum = at.internal(at.out_elements(0), at.out(0).elem);
  static constexpr std::string_view kParts[] = {"words", "positions", "types"};
  for (std::size_t i = 0; i < 3; ++i) {
    if (!at.call.has(2 + i) || !at.known_in(2 + i) || at.in(2 + i).rank() != 2) continue;
    EmbeddingAttrs attrs;
    attrs.tokens = CostCall::number(tokens);
    attrs.vocab = CostCall::number(at.in(2 + i).shape[0]);
    attrs.hidden = CostCall::number(shape[2]);
    attrs.split = Split::none;
    at.emit(OpKind::embedding, attrs, 0, {.part = kParts[i], .inputs = {at.in_id(i == 2 ? 1 : 0)}, .outputs = {sum}, .weight = at.in_id(2 + i)});
  }
  norm(at, OpKind::layernorm, tokens, shape[2], 0, at.weight(5), at.weight(6), 5, {.part = "norm", .inputs = {sum}, .outputs = {at.out_id(0)}});
}

void layer_norm_gradient_cost(CostCall& at) {
  if (!at.known_in(1) || at.in(1).rank() == 0) return at.unresolved();
  const Dim cols = at.in(1).shape.back();
  if (at.in_elements(1) == Dim(0)) return;
  norm(at, OpKind::layernorm, at.dims.floordiv(at.in_elements(1), cols), cols, 0, false, false, 1);
}

void batch_norm_cost(CostCall& at) {
  if (!at.known_out(0)) return at.unresolved();
  PointwiseAttrs attrs;
  attrs.kind = PointwiseKind::bias;
  attrs.numel = CostCall::number(at.out_elements(0));
  attrs.split = Split::none;
  if (at.weight(1) && at.known_in(1)) attrs.parameters = 2 * CostCall::number(at.in_elements(1));  // the means and variances are not learned
  if (attrs.numel == 0) return;
  at.emit(OpKind::elementwise, attrs, 0, {.weight = at.weight(1) ? at.in_id(1) : 0});
}

void instance_norm_cost(CostCall& at) {
  if (!at.known_in(0) || at.in(0).rank() < 2) return at.unresolved();
  const auto& shape = at.in(0).shape;
  const std::int64_t groups = at.call.attr_int("num_groups", at.call.attr_int("groups", 0));
  const Dim rows = at.dims.mul(shape[0], groups > 0 ? Dim(groups) : shape[1]);
  const Dim all = at.in_elements(0);
  if (all == Dim(0)) return;
  norm(at, OpKind::layernorm, rows, at.dims.floordiv(all, rows), shape[1], at.weight(1), at.weight(2), 1);
}

void cross_entropy_cost(CostCall& at) {
  if (!at.known_in(0) || at.in(0).rank() < 2) return at.unresolved();
  const Dim classes = at.in(0).shape[1], all = at.in_elements(0);
  if (all == Dim(0)) return;
  CrossEntropyAttrs attrs;
  attrs.vocab = CostCall::number(classes);
  attrs.tokens = CostCall::number(at.dims.floordiv(all, classes));
  attrs.split = Split::none;
  at.emit(OpKind::cross_entropy, attrs);
}

void cross_entropy_gradient_cost(CostCall& at) {  // gradient of the logits from the probabilities: one pass over them
  if (!at.known_out(0)) return at.unresolved();
  at.pointwise(PointwiseKind::exp, at.out_elements(0));
}

void optimizer_cost(CostCall& at) {
  Dim parameters = 0;
  for (std::size_t i = 0; i < at.call.output_count(); ++i) {
    if (at.known_out(i)) parameters = at.dims.max(parameters, at.out_elements(i));
  }
  if (parameters == Dim(0)) return;
  OptimizerAttrs attrs;
  attrs.kind = at.call.node.data->op.find("Adam") != std::string_view::npos ? OptimizerKind::adamw : OptimizerKind::sgd;
  attrs.parameters = CostCall::number(parameters);
  at.emit(OpKind::optimizer, attrs);
}

}  // namespace rooftile::onnx
