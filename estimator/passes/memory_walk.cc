#include "estimator/passes/memory_walk.h"

#include <algorithm>

#include "estimator/passes/memory_blocks.h"

namespace rooftile {
namespace {

constexpr std::uint16_t kExternal = 0xffff;  // uses of a tensor that another segment made

}  // namespace

MemoryWalk::MemoryWalk(const StepGraph& rank, const Options& options, const Runtime& runtime, const Device& device, const MemoryBase& base)
    : rank_(rank), graph_(rank.graph), options_(options), runtime_(runtime), base_(base), state_(state_bytes(options, runtime)) {
  programs_ = !runtime.memory_programs.empty();
  train_ = options.phase == Phase::train;
  autocast_ = state_.transient_weight > 0;
  parameter_ = static_cast<float>(state_.weight);
  low_ = static_cast<float>(autocast_ ? state_.transient_weight : state_.weight);
  WorkContext context = work_context(options, runtime, &device);
  context.kernels = false;
  standard_ = context.attention == AttentionKernel::standard;
  work_.begin(graph_, context);
  last_reader_.assign(graph_.tensors.size(), 0);
  for (std::uint32_t s = 0; s < graph_.segments.size(); ++s) {
    const Segment& segment = graph_.segments[s];
    if (segment.repeat == 0 || segment.op_count == 0 || graph_.ops[segment.first_op].kind == OpKind::optimizer) continue;
    last_reader_[segment.input] = s;
    for (const Operator& op : graph_.ops_of(segment)) {
      for (const TensorId tensor : graph_.inputs_of(op)) last_reader_[tensor] = s;
    }
  }
  if (runtime.frames_hold) keep_outside_tensors();
  gained_.assign(2 * graph_.segments.size(), 0);
  buffers_.reserve(512);
  values_.reserve(512);
  tape_.reserve(256);
}

// The caller holds what goes into the model until the step is over, and the model returns beside its result what repeated layers read from outside: an encoder's output.
void MemoryWalk::keep_outside_tensors() {
  const auto beyond = static_cast<std::uint32_t>(graph_.segments.size());
  std::vector<bool> made(graph_.tensors.size(), false);
  for (const Segment& segment : graph_.segments) {
    if (segment.repeat == 0 || segment.role != SegmentRole::layer) continue;
    for (const Operator& op : graph_.ops_of(segment)) {
      for (const TensorId tensor : graph_.inputs_of(op)) {
        if (tensor == segment.input || made[tensor] || last_reader_[tensor] == beyond) continue;
        last_reader_[tensor] = beyond;
        returned_.push_back(tensor);
      }
      for (const TensorId tensor : graph_.outputs_of(op)) made[tensor] = true;
    }
  }
  for (TensorId tensor = 0; tensor < graph_.tensors.size(); ++tensor) {
    if (graph_.tensors[tensor].role == TensorRole::input) last_reader_[tensor] = beyond;
  }
}

void MemoryWalk::run() {
  play();
  event_ = 0;
}

void MemoryWalk::explain(MemoryTotals& totals) {
  totals_ = &totals;
  target_ = peak_at_.event;
  const Segment& segment = graph_.segments[peak_at_.segment];
  totals.peak_phase = peak_at_.event < 0 ? StepPhase::forward : peak_at_.phase;
  totals.peak_segment = segment.name;
  totals.peak_operator = peak_at_.phase == StepPhase::optimizer || peak_at_.event < 0 ? std::string_view() : graph_.ops[peak_at_.op].name;
  totals.top.clear();
  play();
  if (target_ < 0 || peak_at_.phase == StepPhase::optimizer) snapshot();
  totals_ = nullptr;
  target_ = -1;
}

void MemoryWalk::play() {
  buffers_.clear();
  values_.clear();
  tape_.clear();
  casts_.clear();
  held_.clear();
  branch_.clear();
  shared_.assign(graph_.segments.size(), {});
  tensor_value_.assign(graph_.tensors.size(), -1);
  uses_.assign(graph_.tensors.size(), kExternal);
  tape_begin_.assign(graph_.segments.size(), 0);
  multiple_.assign(graph_.segments.size(), 1);
  checkpoints_.assign(graph_.segments.size(), -1);
  gradients_ = base_.gradients;
  cache_ = base_.cache;
  live_casts_ = 0;
  in_flight_ = 0;
  tied_gradient_ = false;
  event_ = 0;
  const bool first = target_ < 0 && totals_ == nullptr;
  live_ = base_.weights + base_.optimizer + base_.gradients + base_.cache + base_.workspace;
  local_moving_ = 0;
  if (first) moving_ = 0, peak_ = live_, peak_gradients_ = gradients_, peak_cache_ = cache_;
  phase_ = StepPhase::forward;
  double layers = 0;
  std::uint32_t last_layer = 0;
  const auto segments = static_cast<std::uint32_t>(graph_.segments.size());
  const auto walked = [&](std::uint32_t s) {
    const Segment& segment = graph_.segments[s];
    return segment.repeat > 0 && segment.op_count > 0 && graph_.ops[segment.first_op].kind != OpKind::optimizer;
  };
  for (std::uint32_t s = 0; s < segments; ++s) {
    if (walked(s) && graph_.segments[s].role == SegmentRole::layer) last_layer = s;
  }
  for (std::uint32_t s = 0; s < segments; ++s) {
    if (!walked(s)) continue;
    forward_repeated(s);
    const SegmentRole role = graph_.segments[s].role;
    if (role == SegmentRole::layer) layers += gained_[s] * static_cast<double>(graph_.segments[s].repeat);
    if (runtime_.frames_hold && role == SegmentRole::prologue && tensor_value_[graph_.segments[s].output] >= 0) {
      // A copy stands for it: the layers are walked once, and only the first of them reads this very tensor.
      const Value& embedded = values_[static_cast<std::size_t>(tensor_value_[graph_.segments[s].output])];
      held_.push_back(allocate(embedded.elements * embedded.width, Kind::activation));
    }
    if (s == last_layer) {
      for (const std::int32_t buffer : held_) drop(buffer);
      held_.clear();
      in_flight_ = (base_.in_flight - 1) * layers;
      live_ += in_flight_;
    }
  }
  if (!train_) return;
  for (std::uint32_t s = 0; s < segments; ++s) {
    if (walked(s) && graph_.segments[s].role == SegmentRole::epilogue) release_tensor(graph_.segments[s].output);  // the model's function has returned
  }
  for (const TensorId tensor : returned_) release_tensor(tensor);
  release_casts();
  live_ += base_.backward_workspace;
  phase_ = StepPhase::backward;
  for (std::uint32_t s = segments; s-- > 0;) {
    if (!walked(s)) continue;
    backward_repeated(s);
    if (graph_.segments[s].role != SegmentRole::layer || base_.gradients > 0) continue;
    live_ += base_.gradient_waste * static_cast<double>(graph_.segments[s].repeat);
    gradients_ += base_.gradient_waste * static_cast<double>(graph_.segments[s].repeat);
  }
  phase_ = StepPhase::optimizer;
  local_peak_ = 0;
  note();
  if (first && live_ > peak_) {
    peak_ = live_;
    peak_at_ = local_at_;
    peak_gradients_ = gradients_, peak_cache_ = cache_, peak_casts_ = live_casts_;
  }
}

// What one repetition keeps is kept by each, so the peak is in the first or in the last one.
void MemoryWalk::finish(double before, double local_peak, double gained, std::int64_t repeat, const Moment& at) {
  const double more = static_cast<double>(repeat - 1) * gained;
  const double candidate = local_peak + std::max(0.0, more);
  if (candidate > peak_ && totals_ == nullptr) {
    peak_ = candidate;
    peak_at_ = at;
    peak_at_.last = more > 0;
    peak_gradients_ = local_gradients_, peak_cache_ = local_cache_, peak_casts_ = local_casts_;
  }
  live_ = before + gained + more;
}

void MemoryWalk::finish_moving(double gained, std::int64_t repeat) {
  moving_ = std::max(moving_, local_moving_ + std::max(0.0, static_cast<double>(repeat - 1) * gained));
  local_moving_ = 0;
}

void MemoryWalk::forward_repeated(std::uint32_t s) {
  const Segment& segment = graph_.segments[s];
  const bool checkpoint = train_ && options_.recompute == Recompute::full && segment.role == SegmentRole::layer;
  segment_ = s;
  op_ = segment.first_op;
  local_peak_ = 0;
  enter(segment);
  // What all repetitions read from outside (an encoder's output) must not go with the one that is walked.
  std::vector<std::int32_t>& shared = shared_[s];
  for (const Operator& op : graph_.ops_of(segment)) {
    for (const TensorId tensor : graph_.inputs_of(op)) {
      if (segment.repeat == 1 || tensor == segment.input || tensor_value_[tensor] < 0) continue;
      shared.push_back(values_[static_cast<std::size_t>(tensor_value_[tensor])].buffer);
      hold(shared.back());
    }
  }
  const double before = live_, gradients = gradients_, cache = cache_, casts = live_casts_;
  tape_begin_[s] = tape_.size();
  others_ = peak_at_.last && totals_ != nullptr ? static_cast<double>(segment.repeat - 1) * gained_[s] : 0;
  if (checkpoint) {
    const std::int32_t input = checkpoints_[s] = tensor_value_[segment.input];
    const bool there = values_[static_cast<std::size_t>(input)].buffer >= 0;
    const Tensor& tensor = graph_.tensors[segment.input];
    const std::int32_t kept = there ? -1 : allocate(static_cast<double>(tensor.elements) * bytes_of(tensor.dtype), Kind::activation);
    there ? hold(values_[static_cast<std::size_t>(input)].buffer) : void(values_[static_cast<std::size_t>(input)].buffer = kept);
  }
  forward(s, train_ && !checkpoint);
  const double gained = live_ - before, more = static_cast<double>(segment.repeat - 1);
  if (totals_ == nullptr) gained_[s] = gained;
  if (gained > 0) local_cache_ += more * (cache_ - cache), local_casts_ += more * (live_casts_ - casts);
  finish(before, local_peak_, gained, segment.repeat, local_at_);
  finish_moving(gained - (gradients_ - gradients) - (cache_ - cache) - (live_casts_ - casts), segment.repeat);
  gradients_ += more * (gradients_ - gradients);
  cache_ += more * (cache_ - cache);
  live_casts_ += more * (live_casts_ - casts);
  multiple_[s] = static_cast<double>(segment.repeat);
  if (!train_) release_shared(s);
}

void MemoryWalk::release_shared(std::uint32_t s) {
  for (const std::int32_t buffer : shared_[s]) drop(buffer);
  shared_[s].clear();
}

// What enters the first segment of a stage: ids, pixels, or what another stage has sent.
void MemoryWalk::enter(const Segment& segment) {
  if (tensor_value_[segment.input] >= 0) return;
  const Tensor& tensor = graph_.tensors[segment.input];
  const bool input = tensor.role == TensorRole::input;
  const bool ids = input && graph_.ops[segment.first_op].kind == OpKind::embedding;
  const double bytes = static_cast<double>(tensor.elements) * (ids ? 8 : bytes_of(tensor.dtype));
  const std::int32_t buffer = programs_ && bytes > 0 ? allocate(bytes, Kind::activation) : -1;
  bind(segment.input, value(static_cast<double>(tensor.elements), static_cast<float>(bytes_of(tensor.dtype)), train_ && !input, buffer));
  values_.back().bound = programs_;
}

void MemoryWalk::forward(std::uint32_t s, bool record) {
  const Segment& segment = graph_.segments[s];
  recording_ = record;
  prepare_uses(segment);
  for (std::uint32_t i = 0; i < segment.op_count; ++i) {
    op_ = segment.first_op + i;
    run_operator(op_);
  }
  for (const std::int32_t buffer : branch_) drop(buffer);
  branch_.clear();
  for (const Operator& op : graph_.ops_of(segment)) {
    for (const TensorId tensor : graph_.inputs_of(op)) {
      if (uses_[tensor] == kExternal && last_reader_[tensor] == s) release_tensor(tensor);
    }
  }
}

void MemoryWalk::backward_repeated(std::uint32_t s) {
  const Segment& segment = graph_.segments[s];
  const std::size_t at = graph_.segments.size() + s;
  segment_ = s;
  op_ = segment.first_op;
  local_peak_ = 0;
  // From another stage, or of a model without a loss.
  if (programs_ && segment.role != SegmentRole::epilogue && tensor_value_[segment.output] >= 0) {
    Value& output = values_[static_cast<std::size_t>(tensor_value_[segment.output])];
    if (output.gradient < 0) output.gradient = allocate(output.elements * output.width, Kind::activation, true);
  }
  // Repeated layers add to one gradient of what they all read from outside (an encoder's output); it is made before them.
  for (const Operator& op : graph_.ops_of(segment)) {
    for (const TensorId tensor : graph_.inputs_of(op)) {
      if (!programs_ || segment.repeat == 1 || uses_[tensor] != kExternal || tensor == segment.input || tensor_value_[tensor] < 0) continue;
      const auto index = static_cast<std::size_t>(tensor_value_[tensor]);
      if (values_[index].wants_gradient && values_[index].gradient < 0) values_[index].gradient = allocate(values_[index].elements * values_[index].width, Kind::activation, true);
    }
  }
  const double before = live_, gradients = gradients_, casts = live_casts_;
  const auto more = static_cast<double>(segment.repeat - 1);
  multiple_[s] = 1;
  others_ = totals_ == nullptr ? 0 : more * (gained_[s] + (peak_at_.last ? gained_[at] : 0));
  if (checkpoints_[s] >= 0) {
    phase_ = StepPhase::recompute;
    const std::int32_t output = tensor_value_[segment.output];
    const std::int32_t gradient = output >= 0 ? values_[static_cast<std::size_t>(output)].gradient : -1;
    if (output >= 0) values_[static_cast<std::size_t>(output)].gradient = -1;
    const std::int32_t input = checkpoints_[s];
    tensor_value_[segment.input] = input;
    tape_begin_[s] = tape_.size();
    in_recompute_ = true;
    forward(s, true);
    in_recompute_ = false;
    phase_ = StepPhase::backward;
    if (tensor_value_[segment.output] >= 0) {
      Value& again = values_[static_cast<std::size_t>(tensor_value_[segment.output])];
      again.gradient = gradient;
      release_tensor(segment.output);
    }
  }
  backward(tape_begin_[s]);
  if (checkpoints_[s] >= 0) drop(values_[static_cast<std::size_t>(checkpoints_[s])].buffer);
  const double gained = live_ - before;
  if (totals_ == nullptr) gained_[at] = gained;
  if (gained > 0) local_gradients_ += more * (gradients_ - gradients);
  finish(before, local_peak_, gained, segment.repeat, local_at_);
  finish_moving(gained - (gradients_ - gradients) - (live_casts_ - casts), segment.repeat);
  gradients_ += more * (gradients_ - gradients);
  live_casts_ += more * (live_casts_ - casts);
  multiple_[s] = static_cast<double>(segment.repeat);
  release_shared(s);
}

// Autocast forgets its copies of the weights when the forward pass ends; what the backward pass needs of them lives on.
void MemoryWalk::release_casts() {
  for (const std::int32_t index : casts_) {
    Buffer& buffer = buffers_[static_cast<std::size_t>(index)];
    if (--buffer.refs > 0) continue;
    live_ -= buffer.bytes * multiple_[buffer.segment];
    live_casts_ -= buffer.bytes * multiple_[buffer.segment];
  }
  casts_.clear();
}

std::int32_t MemoryWalk::allocate(double bytes, Kind kind, bool moving) {
  if (runtime_.caching_allocator) bytes = block_bytes(bytes);
  buffers_.push_back({bytes, 1, op_, segment_, kind, moving || phase_ == StepPhase::backward});
  live_ += bytes;
  if (kind == Kind::gradient) gradients_ += bytes;
  if (kind == Kind::cache) cache_ += bytes;
  if (kind == Kind::cast) live_casts_ += bytes;
  largest_ = std::max(largest_, bytes);
  note();
  return static_cast<std::int32_t>(buffers_.size()) - 1;
}

void MemoryWalk::drop(std::int32_t index) {
  if (index < 0) return;
  Buffer& buffer = buffers_[static_cast<std::size_t>(index)];
  if (--buffer.refs > 0) return;
  live_ -= buffer.bytes;
  if (buffer.kind == Kind::gradient) gradients_ -= buffer.bytes;
  if (buffer.kind == Kind::cache) cache_ -= buffer.bytes;
  if (buffer.kind == Kind::cast) live_casts_ -= buffer.bytes;
}

void MemoryWalk::note() {
  ++event_;
  if (live_ > local_peak_) {
    local_peak_ = live_;
    local_at_ = {phase_, segment_, op_, event_, false};
    local_gradients_ = gradients_, local_cache_ = cache_, local_casts_ = live_casts_;
  }
  local_moving_ = std::max(local_moving_, live_ - gradients_ - cache_ - live_casts_);
  if (event_ == target_) snapshot();
}

std::int32_t MemoryWalk::value(double elements, float width, bool wants_gradient, std::int32_t buffer) {
  values_.push_back({buffer, -1, elements, width, wants_gradient, false, true});
  return static_cast<std::int32_t>(values_.size()) - 1;
}

void MemoryWalk::prepare_uses(const Segment& segment) {
  for (const Operator& op : graph_.ops_of(segment)) {
    for (const TensorId tensor : graph_.inputs_of(op)) uses_[tensor] = kExternal;
  }
  // The body's function has returned when the head runs: only its output, after the final norm if there is one, is still referred to.
  const OpKind first = graph_.ops[segment.first_op].kind;
  const bool returned = segment.role == SegmentRole::epilogue && (first == OpKind::layernorm || first == OpKind::rmsnorm);
  if (returned && tensor_value_[segment.input] >= 0) uses_[segment.input] = 0;
  for (const Operator& op : graph_.ops_of(segment)) {
    for (const TensorId tensor : graph_.outputs_of(op)) uses_[tensor] = 0;
  }
  for (const Operator& op : graph_.ops_of(segment)) {
    for (const TensorId tensor : graph_.inputs_of(op)) {
      if (uses_[tensor] != kExternal) ++uses_[tensor];
    }
  }
  if (uses_[segment.output] != kExternal) ++uses_[segment.output];
  const auto here = static_cast<std::uint32_t>(&segment - graph_.segments.data());
  for (const Operator& op : graph_.ops_of(segment)) {
    for (const TensorId tensor : graph_.outputs_of(op)) {
      if (last_reader_[tensor] > here && tensor != segment.output) ++uses_[tensor];  // an encoder's output
    }
  }
}

void MemoryWalk::bind(TensorId tensor, std::int32_t index) { tensor_value_[tensor] = index; }

void MemoryWalk::release_tensor(TensorId tensor) {
  const std::int32_t index = tensor_value_[tensor];
  if (index < 0 || !values_[static_cast<std::size_t>(index)].bound) return;
  values_[static_cast<std::size_t>(index)].bound = false;
  drop(values_[static_cast<std::size_t>(index)].buffer);
}

void MemoryWalk::snapshot() {
  if (totals_ == nullptr || !totals_->top.empty()) return;
  std::vector<MemoryTerm>& terms = totals_->top;
  const auto add = [&](std::string name, double bytes) {
    if (bytes < 1) return;
    const auto same = std::find_if(terms.begin(), terms.end(), [&](const MemoryTerm& term) { return term.name == name; });
    if (same != terms.end()) {
      same->bytes += static_cast<Count>(bytes + 0.5);
    } else {
      terms.push_back({std::move(name), static_cast<Count>(bytes + 0.5)});
    }
  };
  double gradients = base_.gradients, cache = base_.cache, casts = 0;
  for (const Buffer& buffer : buffers_) {
    if (buffer.refs <= 0) continue;
    const double bytes = buffer.bytes * multiple_[buffer.segment];
    if (buffer.kind == Kind::gradient) gradients += bytes;
    if (buffer.kind == Kind::cache) cache += bytes;
    if (buffer.kind == Kind::cast) casts += bytes;
    if (buffer.kind != Kind::activation) continue;
    std::string name(graph_.segments[buffer.segment].name);
    name.append(".").append(graph_.ops[buffer.op].name);
    if (buffer.moving) name.append(".grad");
    add(std::move(name), bytes);
  }
  add("weights", base_.weights);
  add("optimizer states", base_.optimizer);
  add("gradients", gradients);
  add("KV cache", cache);
  add("low-precision weights", casts);
  add("workspace", base_.workspace + (phase_ == StepPhase::forward ? 0 : base_.backward_workspace));
  add(std::string(graph_.segments[segment_].name) + ", its other repetitions", others_);
  add("activations of other micro-batches", in_flight_);
  std::stable_sort(terms.begin(), terms.end(), [](const MemoryTerm& a, const MemoryTerm& b) { return a.bytes > b.bytes; });
  if (terms.size() > 10) terms.resize(10);
}

}  // namespace rooftile
