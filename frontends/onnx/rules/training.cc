// Losses, gradients and optimizers as training exporters write them.
#include <algorithm>

#include "frontends/onnx/rules/rules.h"

namespace rooftile::onnx::rules {

void softmax_cross_entropy(Call& call) {
  const Elem elem = call.in(0).elem;
  call.set_type(0, elem);
  call.same(1, 0);
  if (call.has_attr("output_type")) {
    call.set_type(0, elem_of(call.attr_int("output_type", 1)));
    call.set_type(1, elem_of(call.attr_int("output_type", 1)));
  }
  // One exporter keeps only the log probabilities, as the only output.
  if (call.output_count() == 1 && call.ranked(0) && call.declared_rank(0) == call.in(0).rank() && call.in(0).rank() > 1) return call.same(0, 0);
  if (call.attr_text("reduction", "mean") != "none") return call.set(0, call.out(0).elem, {});
  if (call.ranked(1)) call.set(0, call.out(0).elem, call.in(1).shape);
}

void loss_gradient(Call& call) {  // dY, log probabilities, labels, ...; some exporters leave dY out
  call.same(0, call.input_count() <= 2 ? 0 : 1);
}

void same_as_second(Call& call) { call.same(0, 1); }

void layer_norm_gradient(Call& call) {  // dY, X, scale, ...: dX, dscale, dbias
  call.same(0, 1);
  call.same(1, 2);
  call.same(2, 2);
}
void simplified_layer_norm_gradient(Call& call) {
  call.same(0, 1);
  call.same(1, 2);
}
void bias_gelu_gradient(Call& call) { call.same(0, 0); }

void gather_gradient(Call& call) {  // shape, indices, dY
  call.set_type(0, call.in(2).elem);
  if (auto shape = call.in_dims(0)) call.set(0, call.in(2).elem, std::move(*shape));
}
void slice_gradient(Call& call) {  // dY, shape, ...
  call.set_type(0, call.in(0).elem);
  if (auto shape = call.in_dims(1)) call.set(0, call.in(0).elem, std::move(*shape));
}

void concat_training(Call& call) {
  concat(call);
  const auto count = static_cast<std::int64_t>(call.input_count());
  call.set(1, Elem::int64, {count});
  std::vector<Element> lengths;
  if (call.out(0).ranked) {
    std::size_t axis = 0;
    if (!call.axis_of(call.attr_int("axis", 0), call.out(0).rank(), axis)) return;
    for (std::size_t i = 0; i < call.input_count(); ++i) {
      if (call.ranked(i) && axis < call.in(i).rank()) {
        lengths.emplace_back(call.in(i).shape[axis]);
      } else {
        lengths.emplace_back();
      }
    }
    call.set_value(1, std::move(lengths));
  }
}

// Axes over which the gradient of each operand of a broadcast is summed.
void broadcast_gradient_axes(Call& call) {
  for (std::size_t i = 0; i < 2; ++i) call.set_type(i, Elem::int64);
  const auto a = call.in_dims(0), b = call.in_dims(1);
  if (!a || !b) return;
  const std::size_t rank = std::max(a->size(), b->size());
  std::vector<Element> axes[2];
  for (std::size_t d = rank; d-- > 0;) {
    const auto at = [&](const std::vector<Dim>& shape) { return d + shape.size() >= rank ? shape[d + shape.size() - rank] : Dim(1); };
    const Dim left = at(*a), right = at(*b);
    if (left == Dim(1) && right != Dim(1)) axes[0].emplace_back(Dim(static_cast<std::int64_t>(d)));
    if (right == Dim(1) && left != Dim(1)) axes[1].emplace_back(Dim(static_cast<std::int64_t>(d)));
    if (left == Dim(1) && right == Dim(1)) {
      axes[0].emplace_back(Dim(static_cast<std::int64_t>(d)));
      axes[1].emplace_back(Dim(static_cast<std::int64_t>(d)));
    }
  }
  for (std::size_t i = 0; i < 2; ++i) {
    call.set(i, Elem::int64, {static_cast<std::int64_t>(axes[i].size())});
    call.set_value(i, axes[i]);
  }
}

void yield_op(Call& call) {
  for (std::size_t i = 0; i < call.output_count(); ++i) call.same(i, std::min(i, call.input_count() > 0 ? call.input_count() - 1 : 0));
}

// org.pytorch.aten ATen: the operator's name is an attribute.
void aten(Call& call) {
  std::string_view op = call.attr_text("operator", "");
  if (op.starts_with("aten::")) op.remove_prefix(6);
  if (op == "embedding") {
    call.set_type(0, call.in(0).elem);
    if (!call.ranked(0) || !call.ranked(1) || call.in(0).rank() != 2) return;
    std::vector<Dim> shape = call.in(1).shape;
    shape.push_back(call.in(0).shape[1]);
    return call.set(0, call.in(0).elem, std::move(shape));
  }
  if (op == "embedding_backward" || op == "embedding_dense_backward") {
    call.set_type(0, call.in(0).elem);
    const auto rows = call.in_dim(2);
    if (!call.ranked(0) || call.in(0).rank() == 0) return;
    return call.set(0, call.in(0).elem, {rows ? *rows : call.data_size(0, "rows", 1, 0), call.in(0).shape.back()});
  }
  call.warn("aten_without_rule", "the ATen operator '" + std::string(op.substr(0, 60)) + "' has no rule; its sizes come from the file");
}

void sgd(Call& call) {  // learning rate, weight, gradient: new weight, new gradient
  for (std::size_t i = 0; i < call.output_count(); ++i) call.same(i, std::min(i + 1, call.input_count() > 0 ? call.input_count() - 1 : 0));
}

// The SGD node of some training exporters: weight and gradient, in that order.
void sgd_plain(Call& call) {
  for (std::size_t i = 0; i < call.output_count(); ++i) call.same(i, 0);
}

// ai.onnx.preview.training: rate, step, then groups of tensors; the outputs are the groups without the gradients.
void momentum(Call& call) {
  const std::size_t groups = call.node.data->op == "Adam" ? 4 : 3;
  if (call.input_count() < 2) return;
  const std::size_t each = (call.input_count() - 2) / groups;
  if (each == 0) return;
  for (std::size_t i = 0; i < call.output_count(); ++i) {
    const std::size_t group = i / each;
    call.same(i, 2 + (group == 0 ? 0 : group + 1) * each + i % each);
  }
}

void conv_gradient(Call& call) {  // dY, X, W: dX, dW, dB
  call.same(0, 1);
  call.same(1, 2);
  call.set_type(2, call.in(0).elem);
  if (call.ranked(2) && call.in(2).rank() > 0) call.set(2, call.in(0).elem, {call.in(2).shape[0]});
}

void accumulate(Call& call) { call.same(0, 0); }

}  // namespace rooftile::onnx::rules
