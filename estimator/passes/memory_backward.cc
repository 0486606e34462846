// The backward side of the walk: gradients appear, saved tensors go.
#include <algorithm>

#include "estimator/passes/memory_walk.h"

namespace rooftile {
namespace {

std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }

constexpr double kSmallIndices = 3072;  // up to so many tokens the gradient of an embedding needs no sorted copies (PyTorch, EmbeddingBackwardKernel.cu)

}  // namespace

void MemoryWalk::backward(std::size_t from) {
  while (tape_.size() > from) {
    Entry entry = tape_.back();
    tape_.pop_back();
    op_ = entry.op;
    backward_entry(entry);
  }
}

// `buffer` comes with a reference that is handed over.
void MemoryWalk::give(std::int32_t index, std::int32_t buffer) {
  Value& value = values_[at(index)];
  if (!value.wants_gradient) return drop(buffer);
  if (value.gradient < 0) {
    value.gradient = buffer;
    return;
  }
  if (buffers_[at(value.gradient)].refs == 1) return drop(buffer);  // added in place
  const std::int32_t sum = allocate(value.elements * value.width, Kind::activation, true);
  drop(values_[at(index)].gradient);
  drop(buffer);
  values_[at(index)].gradient = sum;
}

void MemoryWalk::give_new(std::int32_t index, double elements) {
  const Value& value = values_[at(index)];
  if (!value.wants_gradient || value.elements <= 0) return;
  const double size = elements > 0 ? elements : value.elements;
  give(index, allocate(size * value.width, Kind::activation, true));
}

// The gradient of weights: computed in `width`, kept in the dtype of the parameters.
void MemoryWalk::weight_gradient(const Operator& op, double elements, float width) {
  if (elements <= 0 || base_.gradients_persist) return;
  const bool expert = std::get_if<LinearAttrs>(&op.attrs) != nullptr && std::get<LinearAttrs>(op.attrs).experts > 0;
  const double share = expert ? base_.expert_gradient_share : base_.gradient_share;
  const std::int32_t raw = programs_ && (width != static_cast<float>(state_.gradient) || share < 1) ? allocate(elements * width, Kind::activation, true) : -1;
  const std::int32_t kept = allocate(elements * state_.gradient * share, Kind::gradient);
  drop(raw);
  if (base_.gradients_accumulate) drop(kept);
}

void MemoryWalk::parameter_gradients(const Operator& op) {
  if (base_.gradients_persist) return;
  work_of(op, work_);
  const double parameters = to_double(work_.parameters);
  if (op.kind != OpKind::embedding || !programs_) return weight_gradient(op, parameters, static_cast<float>(state_.gradient));
  const auto& a = std::get<EmbeddingAttrs>(op.attrs);
  const double table = static_cast<double>(a.vocab) * static_cast<double>(a.hidden);
  const auto tokens = static_cast<double>(a.tokens);
  const std::int32_t sorted = tokens > kSmallIndices ? allocate(6 * 8 * tokens, Kind::activation, true) : -1;
  if (tied_gradient_) {
    // The head has left a gradient of this table; the two are added into a third.
    const std::int32_t mine = allocate(table * state_.gradient, Kind::activation, true);
    drop(sorted);
    const std::int32_t sum = allocate(table * state_.gradient, Kind::activation, true);
    drop(mine);
    drop(sum);
    return;
  }
  weight_gradient(op, table, static_cast<float>(state_.gradient));
  drop(sorted);
}

void MemoryWalk::backward_linear(const Entry& entry) {
  const Operator& op = graph_.ops[entry.op];
  const auto* a = std::get_if<LinearAttrs>(&op.attrs);
  std::int32_t gradient = values_[at(entry.result[0])].gradient;
  if (entry.results > 1) {
    double whole = 0;
    for (int i = 0; i < entry.results; ++i) whole += values_[at(entry.result[i])].elements * values_[at(entry.result[i])].width;
    gradient = allocate(whole, Kind::activation, true);
    for (int i = 0; i < entry.results; ++i) {
      Value& part = values_[at(entry.result[i])];
      drop(part.gradient);
      part.gradient = -1;
    }
  } else {
    values_[at(entry.result[0])].gradient = -1;
  }
  if (a != nullptr && a->input_gradient) give_new(entry.argument[0]);
  const double elements = multiplied_weights(op);
  if (a != nullptr && a->tied && op.kind == OpKind::lm_head) tied_gradient_ = true;
  weight_gradient(op, elements, low_);
  drop(gradient);
}

// cuDNN accumulates the gradient of the queries in fp32; with fewer KV heads than heads it writes dK and dV per query head and adds them up.
void MemoryWalk::backward_sdpa(const Entry& entry) {
  const auto* a = std::get_if<AttentionAttrs>(&graph_.ops[entry.op].attrs);
  const std::int32_t gradient = values_[at(entry.result[0])].gradient;
  values_[at(entry.result[0])].gradient = -1;
  for (int i = 0; i < entry.arguments; ++i) give_new(entry.argument[i]);
  const double queries = values_[at(entry.argument[0])].elements;
  double transient = 4 * queries;
  if (a != nullptr && a->kv_heads < a->heads) transient += 2 * queries * low_;
  drop(allocate(transient, Kind::activation, true));
  drop(gradient);
}

// An operator without a program.
void MemoryWalk::backward_operator(const Entry& entry) {
  const Operator& op = graph_.ops[entry.op];
  if (!programs_) {
    if (const auto* loss = std::get_if<CrossEntropyAttrs>(&op.attrs)) {
      drop(allocate(static_cast<double>(loss->tokens) * static_cast<double>(loss->vocab) * runtime_.logits_copies_bytes, Kind::activation, true));
    }
    if (options_.recompute == Recompute::selective && op.kind == OpKind::attention) {
      work_of(op, work_);
      for (const SavedTensor& saved : work_.saved) drop(saved.attention_scores ? allocate(saved.extra_bytes, Kind::activation, true) : -1);
    }
    return parameter_gradients(op);
  }
  const bool passes = op.kind == OpKind::residual || op.kind == OpKind::position_add;
  for (int i = 0; i < entry.arguments; ++i) {
    const std::int32_t gradient = entry.results > 0 ? values_[at(entry.result[0])].gradient : -1;
    const bool same = gradient >= 0 && values_[at(entry.argument[i])].width == values_[at(entry.result[0])].width;
    if (passes && same) {
      hold(gradient);
      give(entry.argument[i], gradient);
    } else {
      give_new(entry.argument[i]);
    }
  }
  parameter_gradients(op);
  for (int i = 0; i < entry.results; ++i) {
    drop(values_[at(entry.result[i])].gradient);
    values_[at(entry.result[i])].gradient = -1;
  }
}

void MemoryWalk::backward_entry(Entry& entry) {
  const auto finish = [&] {
    for (int i = 0; i < entry.saves; ++i) drop(entry.saved[i]);
  };
  if (entry.whole_operator) {
    backward_operator(entry);
    return finish();
  }
  const Operator& op = graph_.ops[entry.op];
  if (entry.prim == MemoryPrim::keep) {
    // Selective recomputation: the operator runs again, this time recorded.
    const std::int32_t gradient = values_[at(entry.result[0])].gradient;
    const std::size_t from = tape_.size();
    recording_ = in_recompute_ = true;
    for (int i = 0; i < entry.arguments; ++i) bind(graph_.inputs_of(op)[static_cast<std::size_t>(i)], entry.argument[i]);
    const MemoryProgram* program = program_of(op);
    program != nullptr ? run_program(op, *program) : run_plain(op);
    in_recompute_ = false;
    const TensorId output = graph_.outputs_of(op)[0];
    values_[at(tensor_value_[output])].gradient = gradient;
    values_[at(entry.result[0])].gradient = -1;
    release_tensor(output);
    backward(from);
    return finish();
  }
  if (entry.prim == MemoryPrim::linear) {
    backward_linear(entry);
    return finish();
  }
  const std::int32_t result = entry.result[0];
  if (values_[at(result)].gradient < 0 && values_[at(result)].elements > 1) {
    return finish();  // nothing depends on it
  }
  if (entry.prim == MemoryPrim::sdpa) {
    backward_sdpa(entry);
    return finish();
  }
  const MemoryPrimInfo& info = info_of(entry.prim);
  if (entry.prim == MemoryPrim::fused_loss) {
    // The logits are an output of the compiled graph, so they come with a gradient of zeros of their own.
    const Value& logits = values_[at(entry.argument[0])];
    const auto* loss = std::get_if<CrossEntropyAttrs>(&op.attrs);
    const std::int32_t zeros = allocate(logits.elements * logits.width, Kind::activation, true);
    const bool padded = runtime_.pads_odd_vocabulary && loss != nullptr && loss->vocab % 8 != 0;
    // The head's weight is padded beside them.
    const std::int32_t weight = padded ? allocate(static_cast<double>(loss->vocab) * static_cast<double>(graph_.model.hidden) * low_, Kind::activation, true) : -1;
    give_new(entry.argument[0]);
    drop(weight);
    drop(zeros);
    return finish();
  }
  std::int32_t transient = -1;
  if (entry.prim == MemoryPrim::pow) transient = allocate(values_[at(entry.argument[0])].elements * values_[at(entry.argument[0])].width, Kind::activation, true);
  for (int i = 0; i < entry.arguments; ++i) {
    if (entry.prim == MemoryPrim::like && i > 0) break;
    const Value& value = values_[at(entry.argument[i])];
    if (!value.wants_gradient) continue;
    const Value& made = values_[at(result)];
    if (info.gradient == PrimGradient::share && made.width == value.width) {
      hold(made.gradient);
      give(entry.argument[i], made.gradient);
    } else if (value.elements < made.elements && entry.prim == MemoryPrim::mul) {
      // A product with a broadcast operand: formed whole, then summed.
      drop(allocate(made.elements * made.width, Kind::activation, true));
      give_new(entry.argument[i]);
    } else {
      give_new(entry.argument[i]);
    }
  }
  drop(transient);
  if (entry.prim == MemoryPrim::norm || entry.prim == MemoryPrim::fused_norm) parameter_gradients(op);
  if (entry.prim == MemoryPrim::mul && op.kind == OpKind::rmsnorm && values_[at(entry.argument[1])].buffer < 0) parameter_gradients(op);
  drop(values_[at(result)].gradient);
  values_[at(result)].gradient = -1;
  finish();
}

}  // namespace rooftile
