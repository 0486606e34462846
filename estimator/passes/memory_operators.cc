// The forward side of the walk: what one operator allocates, keeps and frees.
#include <algorithm>

#include "estimator/passes/memory_walk.h"

namespace rooftile {
namespace {

std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }

bool is_norm(OpKind kind) { return kind == OpKind::layernorm || kind == OpKind::rmsnorm; }

}  // namespace

std::uint16_t MemoryWalk::conditions_of(const Operator& op) const {
  std::uint16_t holds = 0;
  const auto set = [&](bool condition, std::uint16_t bit) { holds = static_cast<std::uint16_t>(condition ? holds | bit : holds); };
  const auto model_has = [&](std::string_view trait) { return std::find(graph_.model.traits.begin(), graph_.model.traits.end(), trait) != graph_.model.traits.end(); };
  if (is_norm(op.kind)) {
    set(model_has("unit_offset"), kUnitOffset);
    set(model_has("low_norm"), kLowNorm);
  }
  if (op.kind == OpKind::gated_activation) set(model_has("composed_gate"), kComposedGate);
  if (const auto* move = std::get_if<MoeMoveAttrs>(&op.attrs)) set(move->combine, kCombine);
  if (const auto* loss = std::get_if<CrossEntropyAttrs>(&op.attrs)) set(loss->upcast, kUpcast);
  if (const auto* rotary = std::get_if<RotaryAttrs>(&op.attrs); rotary != nullptr && op.outputs > 0) {
    set(graph_.tensors[graph_.outputs_of(op)[0]].elements > rotary->tokens * rotary->heads * rotary->rotary_dim, kPartial);
  }
  if (const auto* attention = std::get_if<AttentionAttrs>(&op.attrs)) {
    set(standard_, kStandard);
    set(attention->fp32_softmax, kFp32Softmax);
    set(attention->softcap, kSoftcap);
    set(attention->padding_mask && !attention->causal, kMasked);
    set(model_has("composed_attention"), kComposed);
    set(train_ && !standard_ && attention->position_bias && model_has("relative_positions"), kLearnedBias);
  }
  return holds;
}

const MemoryProgram* MemoryWalk::program_of(const Operator& op) const {
  const auto* pointwise = std::get_if<PointwiseAttrs>(&op.attrs);
  std::uint16_t holds = 0;
  bool known = false;
  for (const MemoryProgram& program : runtime_.memory_programs) {
    if (program.op != op.kind) continue;
    if (program.function && (pointwise == nullptr || pointwise->kind != *program.function)) continue;
    if (!known) holds = conditions_of(op), known = true;
    if ((program.conditions & ~holds) == 0) return &program;
  }
  return nullptr;
}

MemoryWalk::Sizes MemoryWalk::sizes_of(const Operator& op) const {
  Sizes sizes;
  if (const auto* a = std::get_if<AttentionAttrs>(&op.attrs)) {
    const double rows = static_cast<double>(a->batch) * static_cast<double>(a->heads) * static_cast<double>(a->seq_q);
    sizes.queries = static_cast<double>(a->batch) * static_cast<double>(a->heads) * static_cast<double>(a->seq_kv) * static_cast<double>(a->head_dim);
    sizes.scores = rows * static_cast<double>(a->seq_kv);
    sizes.rows = rows;
  } else if (const auto* norm = std::get_if<NormAttrs>(&op.attrs)) {
    sizes.rows = static_cast<double>(norm->rows);
  }
  return sizes;
}

double MemoryWalk::multiplied_weights(const Operator& op) const {
  const auto* a = std::get_if<LinearAttrs>(&op.attrs);
  if (a == nullptr) return 0;
  const auto matrices = static_cast<double>(std::max<std::int64_t>(1, a->experts));
  return matrices * (static_cast<double>(a->in) * static_cast<double>(a->out) + (a->bias ? static_cast<double>(a->out) : 0));
}

float MemoryWalk::out_width(const Operator& op, TensorId tensor) const {
  const auto stored = static_cast<float>(bytes_of(graph_.tensors[tensor].dtype));
  if (!autocast_) return stored;
  if (op.kind == OpKind::embedding || is_norm(op.kind)) return parameter_;
  float widest = low_;
  for (const TensorId input : graph_.inputs_of(op)) {
    if (tensor_value_[input] >= 0 && op.kind != OpKind::patch_embedding && op.kind != OpKind::convolution) widest = std::max(widest, values_[at(tensor_value_[input])].width);
  }
  return std::get_if<PointwiseAttrs>(&op.attrs) != nullptr && std::get<PointwiseAttrs>(op.attrs).parameters > 0 ? std::max(widest, parameter_) : widest;
}

void MemoryWalk::run_operator(std::uint32_t index) {
  const Operator& op = graph_.ops[index];
  if (op.kind == OpKind::cache_write) {
    run_cache_write(op);
  } else if (!programs_) {
    run_kept(op);
  } else {
    const bool checkpoint = recording_ && !in_recompute_ && standard_ && op.kind == OpKind::attention && options_.recompute == Recompute::selective;
    if (checkpoint) {
      recording_ = false;
      Entry entry;
      entry.prim = MemoryPrim::keep;
      entry.op = index;
      for (const TensorId input : graph_.inputs_of(op)) {
        if (entry.arguments == 3) break;
        entry.argument[entry.arguments++] = tensor_value_[input];
        if (tensor_value_[input] >= 0) save(entry, values_[at(tensor_value_[input])].buffer);
      }
      const MemoryProgram* program = program_of(op);
      program != nullptr ? run_program(op, *program) : run_plain(op);
      recording_ = true;
      entry.result[0] = tensor_value_[graph_.outputs_of(op)[0]];
      values_[at(entry.result[0])].wants_gradient = true;
      tape_.push_back(entry);
    } else if (const MemoryProgram* program = program_of(op)) {
      run_program(op, *program);
    } else {
      run_plain(op);
    }
  }
  if (programs_ && runtime_.frames_hold) {
    const auto* move = std::get_if<MoeMoveAttrs>(&op.attrs);
    const bool spread = move != nullptr && !move->combine;
    if ((is_norm(op.kind) || spread) && op.outputs > 0 && tensor_value_[graph_.outputs_of(op)[0]] >= 0) {
      branch_.push_back(values_[at(tensor_value_[graph_.outputs_of(op)[0]])].buffer);
      hold(branch_.back());
    } else if (op.kind == OpKind::residual) {
      for (const std::int32_t buffer : branch_) drop(buffer);
      branch_.clear();
    }
  }
  for (const TensorId tensor : graph_.inputs_of(op)) {
    if (uses_[tensor] != 0xffff && --uses_[tensor] == 0) release_tensor(tensor);
  }
  for (const TensorId tensor : graph_.outputs_of(op)) {
    if (uses_[tensor] == 0) release_tensor(tensor);
  }
}

// A runtime without programs: operators keep what their gradients need, and that is all that counts. Without gradients it is what one operator reads and writes, beside the
// residual stream.
void MemoryWalk::run_kept(const Operator& op) {
  work_of(op, work_);
  const auto bytes = [&](TensorId tensor) { return static_cast<double>(graph_.tensors[tensor].elements) * bytes_of(graph_.tensors[tensor].dtype); };
  if (!train_) {
    double moving = bytes(graph_.segments[segment_].input);
    for (const TensorId tensor : graph_.inputs_of(op)) moving += bytes(tensor);
    for (const TensorId tensor : graph_.outputs_of(op)) moving += bytes(tensor);
    for (const SavedTensor& saved : work_.saved) moving += saved.attention_scores ? 2 * saved.extra_bytes : 0;  // scores and probabilities
    drop(allocate(moving, Kind::activation));
    return;
  }
  Entry entry;
  entry.whole_operator = true;
  entry.op = op_;
  if (recording_) {
    for (const SavedTensor& saved : work_.saved) {
      if (saved.extra_bytes > 0) {
        if (saved.attention_scores && options_.recompute == Recompute::selective && !in_recompute_) continue;
        save(entry, allocate(saved.extra_bytes, Kind::activation));
        drop(entry.saved[entry.saves - 1u]);
        continue;
      }
      std::int32_t& index = tensor_value_[saved.tensor];
      if (index < 0) index = value(0, 0, false, -1);
      values_[at(index)].bound = false;  // only what is kept counts
      Value& kept = values_[at(index)];
      if (kept.buffer < 0 || buffers_[at(kept.buffer)].refs <= 0) {
        const std::int32_t made = allocate(bytes(saved.tensor), Kind::activation);
        values_[at(tensor_value_[saved.tensor])].buffer = made;
        save(entry, made);
        drop(made);
      } else {
        save(entry, kept.buffer);
      }
    }
  }
  tape_.push_back(entry);
}

void MemoryWalk::run_cache_write(const Operator& op) {
  const auto& a = std::get<CacheWriteAttrs>(op.attrs);
  if (!runtime_.grows_cache) return;
  const double fresh = static_cast<double>(a.tokens) * static_cast<double>(a.elements_per_token) * low_;
  if (options_.phase != Phase::decode) {
    if (fresh > 0) allocate(fresh, Kind::cache);
    return;
  }
  // Keys, then values, are joined with what is cached in a new buffer, and the old one is freed.
  const double all = fresh / static_cast<double>(std::max<std::int64_t>(1, graph_.seq)) * static_cast<double>(options_.context + 1);
  drop(allocate(all / 2, Kind::cache));
}

void MemoryWalk::save(Entry& entry, std::int32_t buffer) {
  if (buffer < 0 || entry.saves >= entry.saved.size()) return;
  hold(buffer);
  entry.saved[entry.saves++] = buffer;
}

std::int32_t MemoryWalk::cast(std::int32_t index, float width) {
  const Value from = values_[at(index)];
  if (from.width == width || from.buffer < 0) return index;
  const std::int32_t made = allocate(from.elements * width, Kind::activation);
  const std::int32_t result = value(from.elements, width, from.wants_gradient, made);
  values_[at(result)].heads_first = from.heads_first;
  if (recording_ && from.wants_gradient) {
    Entry entry;
    entry.prim = MemoryPrim::like;
    entry.op = op_;
    entry.arguments = 1;
    entry.result[0] = result;
    entry.argument[0] = index;
    tape_.push_back(entry);
  }
  return result;
}

// An operator that no program describes: it makes its outputs, and keeps what its work function says.
void MemoryWalk::run_plain(const Operator& op) {
  work_of(op, work_);
  Entry entry;
  entry.whole_operator = true;
  entry.op = op_;
  bool wants = train_ && work_.parameters > 0;
  for (const TensorId tensor : graph_.inputs_of(op)) {
    if (tensor_value_[tensor] < 0) continue;
    wants = wants || values_[at(tensor_value_[tensor])].wants_gradient;
    if (entry.arguments < 3) entry.argument[entry.arguments++] = tensor_value_[tensor];
  }
  wants = wants || (train_ && op.kind == OpKind::embedding);
  entry.results = 0;
  for (const TensorId tensor : graph_.outputs_of(op)) {
    const auto elements = static_cast<double>(graph_.tensors[tensor].elements);
    const float width = out_width(op, tensor);
    std::int32_t buffer = -1;
    if (op.kind == OpKind::free && entry.arguments > 0) {
      buffer = values_[at(entry.argument[0])].buffer;  // a view
      hold(buffer);
    } else {
      buffer = allocate(elements * width, Kind::activation);
    }
    bind(tensor, value(elements, width, wants, buffer));
    if (entry.results < 3) entry.result[entry.results++] = tensor_value_[tensor];
  }
  if (!recording_ || !wants) return;
  for (const SavedTensor& saved : work_.saved) {
    if (saved.extra_bytes > 0) {
      if (op.kind == OpKind::embedding) continue;  // the ids, which are there anyway
      const std::int32_t extra = allocate(saved.extra_bytes, Kind::activation);
      save(entry, extra);
      drop(extra);
    } else if (tensor_value_[saved.tensor] >= 0) {
      save(entry, values_[at(tensor_value_[saved.tensor])].buffer);
    }
  }
  tape_.push_back(entry);
}

void MemoryWalk::run_program(const Operator& op, const MemoryProgram& program) {
  std::array<std::int32_t, kProgramNames> names;
  names.fill(-1);
  const auto inputs = graph_.inputs_of(op);
  for (std::size_t i = 0; i < std::min<std::size_t>(3, inputs.size()); ++i) names[i] = tensor_value_[inputs[i]];
  const Sizes sizes = sizes_of(op);
  names[kProgramWeight] = value(0, parameter_, train_, -1);
  names[kProgramTable] = value(0, parameter_, false, -1);
  const auto first = static_cast<std::int32_t>(values_.size());
  const auto forget = [&](std::size_t name) {
    const std::int32_t index = names[name];
    names[name] = -1;
    if (index < 0 || !values_[at(index)].bound) return;
    for (const std::int32_t other : names) {
      if (other == index) return;
    }
    if (name < kProgramOutput) {  // an input that no later operator reads
      if (uses_[inputs[name]] == 1) release_tensor(inputs[name]);
      return;
    }
    if (index < first) return;
    values_[at(index)].bound = false;
    drop(values_[at(index)].buffer);
  };
  for (const MemoryStep& step : program.steps) {
    bool there = true;
    for (int i = 0; i < info_of(step.prim).arguments; ++i) there = there && names[step.arguments[i]] >= 0;
    if (!there) continue;  // an operator with fewer inputs than the program has (a rotary embedding of queries only)
    names[step.result] = run_step(op, step, names, sizes);
    for (int i = 0; i < info_of(step.prim).arguments; ++i) {
      if ((step.dying >> i & 1) != 0 && step.arguments[i] != step.result) forget(step.arguments[i]);
    }
  }
  const auto outputs = graph_.outputs_of(op);
  for (std::size_t i = 0; i < outputs.size() && i < 3; ++i) {
    std::int32_t made = names[kProgramOutput + i];
    if (made < 0) made = value(static_cast<double>(graph_.tensors[outputs[i]].elements), low_, train_, -1);
    bind(outputs[i], made);
  }
  for (std::size_t name = kProgramLocal; name < names.size(); ++name) {
    if (names[name] >= 0) forget(name);
  }
}

std::int32_t MemoryWalk::run_step(const Operator& op, const MemoryStep& step, std::array<std::int32_t, kProgramNames>& names, const Sizes& sizes) {
  const MemoryPrimInfo& info = info_of(step.prim);
  std::array<std::int32_t, 3> argument{}, given{};
  for (int i = 0; i < info.arguments; ++i) given[i] = argument[i] = names[step.arguments[i]];
  // What is there already in the wanted form is not made again.
  const Value& x = values_[at(argument[0])];
  const auto* attention = std::get_if<AttentionAttrs>(&op.attrs);
  const bool grouped = attention != nullptr && attention->kv_heads < attention->heads;
  if (step.prim == MemoryPrim::to_fp32 && x.width >= 4) return argument[0];
  if (step.prim == MemoryPrim::to_low && x.width == low_) return argument[0];
  if (step.prim == MemoryPrim::like && x.width == values_[at(argument[1])].width) return argument[0];
  if (step.prim == MemoryPrim::contiguous && !x.heads_first) return argument[0];
  if (step.prim == MemoryPrim::repeat && !grouped) return argument[0];
  const bool folds = step.prim == MemoryPrim::fold || (step.prim == MemoryPrim::expand && !grouped);
  if (folds && (x.heads_first || (attention != nullptr && attention->batch == 1))) return argument[0];

  if (autocast_ && info.width == PrimWidth::fp32 && step.prim != MemoryPrim::to_fp32) {
    for (int i = 0; i < info.arguments; ++i) argument[i] = cast(argument[i], 4);
  }
  const bool low = info.width == PrimWidth::low && step.prim != MemoryPrim::to_low && step.prim != MemoryPrim::fused_norm;
  if (autocast_ && low) {
    for (int i = 0; i < info.arguments; ++i) argument[i] = cast(argument[i], low_);
  }
  double elements = 0;
  float width = 0;
  bool wants = step.prim == MemoryPrim::linear || step.prim == MemoryPrim::norm || step.prim == MemoryPrim::fused_norm ? train_ : false;
  for (int i = 0; i < info.arguments; ++i) {
    const Value& value = values_[at(argument[i])];
    if (step.prim != MemoryPrim::like || i == 0) elements = std::max(elements, value.elements), wants = wants || value.wants_gradient;
    width = std::max(width, value.width);
  }
  if (info.width == PrimWidth::low) width = low_;
  if (step.prim == MemoryPrim::to_fp32) width = 4;
  if (info.width == PrimWidth::like_second) width = values_[at(argument[1])].width;
  const auto outputs = graph_.outputs_of(op);
  const std::size_t which = step.result >= kProgramOutput && step.result < kProgramWeight ? step.result - kProgramOutput : 0;
  switch (info.size) {
    case PrimSize::half:
      elements /= 2;
      break;
    case PrimSize::rows:
      elements = sizes.rows;
      break;
    case PrimSize::one:
      elements = 1;
      break;
    case PrimSize::output:
      elements = which < outputs.size() ? static_cast<double>(graph_.tensors[outputs[which]].elements) : elements;
      break;
    case PrimSize::scores:
      elements = sizes.scores;
      break;
    case PrimSize::queries:
      elements = grouped ? sizes.queries : elements;
      break;
    case PrimSize::largest:
      break;
  }
  Entry entry;
  entry.prim = step.prim;
  entry.op = op_;
  entry.arguments = info.arguments;
  const bool record = recording_ && wants;
  std::int32_t weights = -1;
  if (step.prim == MemoryPrim::linear && autocast_ && parameter_ > low_ && options_.layout.zero < 3) {
    weights = allocate(multiplied_weights(op) * low_, Kind::cast);
    if (!in_recompute_) {
      casts_.push_back(weights);
      hold(weights);
    }
  }
  std::int32_t result = -1;
  if (step.prim == MemoryPrim::linear && outputs.size() > 1) {
    // One matmul, whose result is read in parts: the buffer lives as long as any of them.
    double whole = 0;
    for (const TensorId tensor : outputs) whole += static_cast<double>(graph_.tensors[tensor].elements);
    const std::int32_t buffer = allocate(whole * width, Kind::activation);
    entry.results = 0;
    for (std::size_t i = 0; i < std::min<std::size_t>(3, outputs.size()); ++i) {
      if (i > 0) hold(buffer);
      names[kProgramOutput + i] = value(static_cast<double>(graph_.tensors[outputs[i]].elements), width, wants, buffer);
      entry.result[entry.results++] = names[kProgramOutput + i];
    }
    result = names[step.result >= kProgramOutput && step.result < kProgramWeight ? step.result : kProgramOutput];
  } else {
    result = value(elements, width, wants, allocate(elements * width, Kind::activation));
    entry.result[0] = result;
  }
  const bool keeps_order = step.prim == MemoryPrim::sdpa && values_[at(argument[0])].heads_first;
  values_[at(result)].heads_first = step.prim == MemoryPrim::join || step.prim == MemoryPrim::mix || keeps_order;
  for (int i = 0; i < info.arguments; ++i) entry.argument[i] = argument[i];
  if (record) {
    for (int i = 0; i < info.arguments; ++i) {
      const bool other_wants = step.prim != MemoryPrim::mul || values_[at(argument[1 - i])].wants_gradient;
      if ((info.saves >> i & 1) != 0 && other_wants) save(entry, values_[at(argument[i])].buffer);
    }
    if ((info.saves & 8) != 0) save(entry, values_[at(result)].buffer);
    const double statistics = step.prim == MemoryPrim::sdpa ? 4 * sizes.rows : step.prim == MemoryPrim::norm || step.prim == MemoryPrim::fused_norm ? 8 * sizes.rows : 0;
    if (statistics > 0) {
      const std::int32_t rows = allocate(statistics, Kind::activation);
      save(entry, rows);
      drop(rows);
    }
    save(entry, weights);
    tape_.push_back(entry);
  }
  drop(weights);
  for (int i = 0; i < info.arguments; ++i) {
    if (argument[i] != given[i]) {
      values_[at(argument[i])].bound = false;
      drop(values_[at(argument[i])].buffer);
    }
  }
  return result;
}

}  // namespace rooftile
