// Control flow: If, Loop, Scan, SequenceMap, and the search operators whose subgraphs decode.
#include <algorithm>

#include "frontends/onnx/call.h"
#include "frontends/onnx/propagate.h"
#include "frontends/onnx/rules/rules.h"
#include "frontends/onnx/text.h"

namespace rooftile::onnx::rules {
namespace {

constexpr std::int64_t kMaxUnrolled = 4096;  // iterations whose states are followed one by one

const Block* block_of(const Call& call, std::string_view attribute) {
  for (const auto& [name, block] : call.node.blocks) {
    if (name == attribute) return block;
  }
  return nullptr;
}

TensorInfo copy_of(const TensorInfo* tensor) {
  TensorInfo copy = tensor != nullptr ? *tensor : TensorInfo();
  copy.constant = false;
  copy.stored = -1;
  return copy;
}

bool same_shapes(const TensorInfo& a, const TensorInfo& b) {
  return a.ranked == b.ranked && a.shape == b.shape && a.kind == b.kind && (a.items == b.items || (a.items && b.items && a.items->size() == b.items->size()));
}

void add_front(TensorInfo& tensor, Dim size, std::int64_t axis = 0) {
  tensor.value = nullptr;
  tensor.view_of = 0;
  if (!tensor.ranked) return;
  const auto rank = static_cast<std::int64_t>(tensor.rank()) + 1;
  const std::int64_t at = std::clamp<std::int64_t>(axis < 0 ? axis + rank : axis, 0, rank - 1);
  tensor.shape.insert(tensor.shape.begin() + at, size);
}

// A state whose sizes change from one iteration to the next and cannot be followed: those sizes are symbols.
void open_sizes(Call& call, std::size_t output, TensorInfo& state, const TensorInfo& before) {
  state.value = nullptr;
  if (!state.ranked || !before.ranked || state.rank() != before.rank()) {
    if (state.rank() != before.rank()) {
      state.ranked = false;
      state.shape.clear();
    }
    return;
  }
  for (std::size_t i = 0; i < state.rank(); ++i) {
    if (state.shape[i] != before.shape[i]) state.shape[i] = call.data_size(output, "dim" + std::to_string(i), state.shape[i]);
  }
}

}  // namespace

void if_branch(Call& call) {
  const Block* then_block = block_of(call, "then_branch");
  const Block* else_block = block_of(call, "else_branch");
  const Block* chosen = then_block != nullptr ? then_block : else_block;
  if (chosen == nullptr) return call.fail("no branches");
  const std::string name = call.node.label() + ".then";
  if (const auto condition = call.in_number(0)) {
    if (*condition == 0 && else_block != nullptr) chosen = else_block;
  } else {
    const Dim taken = call.propagation().bindable(name, call.node.label(), 1, "undecided_branch", "the condition is not known");
    if (taken == Dim(0) && else_block != nullptr) chosen = else_block;
  }
  if (!call.propagation().run_block(*chosen, 1)) return;
  for (std::size_t i = 0; i < call.output_count() && i < chosen->outputs.size(); ++i) {
    const TensorInfo* result = call.propagation().tensor_of(chosen->outputs[i]);
    if (result != nullptr) call.out(i) = *result;
  }
}

void loop(Call& call) {
  Propagation& run = call.propagation();
  const Block* body = block_of(call, "body");
  if (body == nullptr || body->inputs.size() < 2 || body->outputs.empty()) return call.fail("a body needs an iteration number and a condition");
  const std::size_t states = std::min(call.input_count() >= 2 ? call.input_count() - 2 : 0, body->inputs.size() - 2);
  const std::string name = call.node.label() + ".trip_count";
  // An initial condition that is false, or a trip count of 0, runs the body not at all.
  std::optional<Dim> trips = call.has(0) ? call.in_dim(0) : std::nullopt;
  const auto condition = call.has(1) ? call.in_number(1) : std::optional<double>(1);
  std::vector<TensorInfo> state;
  for (std::size_t i = 0; i < states; ++i) state.push_back(copy_of(call.has(i + 2) ? &call.in(i + 2) : nullptr));
  const std::vector<TensorInfo> initial = state;

  const auto enter = [&](std::int64_t iteration, bool known) {
    // Old converters declare the iteration number and the condition as lists of one.
    const auto listed = [&](std::size_t input) {
      const DeclaredType* declared = run.program.values[body->inputs[input]].declared;
      return declared != nullptr && declared->has_shape && declared->dims.size() == 1;
    };
    TensorInfo number;
    number.elem = Elem::int64;
    number.ranked = true;
    if (listed(0)) number.shape = {1};
    if (known) number.value = std::make_shared<const std::vector<Element>>(std::vector<Element>{Element(Dim(iteration))});
    run.set_tensor(body->inputs[0], number);
    TensorInfo flag;
    flag.elem = Elem::boolean;
    flag.ranked = true;
    if (listed(1)) flag.shape = {1};
    run.set_tensor(body->inputs[1], flag);
    for (std::size_t i = 0; i < states; ++i) {
      TensorInfo copy = state[i];
      if (copy.elem == Elem::undefined && run.program.values[body->inputs[i + 2]].declared != nullptr) copy.elem = run.program.values[body->inputs[i + 2]].declared->elem;
      run.set_tensor(body->inputs[i + 2], copy);
    }
  };
  const auto leave = [&] {
    for (std::size_t i = 0; i < states; ++i) {
      if (i + 1 < body->outputs.size()) state[i] = copy_of(run.tensor_of(body->outputs[i + 1]));
    }
  };
  const auto next_condition = [&]() -> std::optional<double> {
    const TensorInfo* flag = run.tensor_of(body->outputs[0]);
    if (flag == nullptr || flag->value == nullptr || flag->value->size() != 1 || !flag->value->front().is_constant()) return std::nullopt;
    return flag->value->front().number();
  };

  const std::size_t nodes = std::max<std::size_t>(body->nodes.size(), 1);
  std::int64_t done = 0;              // iterations followed
  std::optional<std::int64_t> total;  // iterations in all, once known
  if (condition && *condition == 0) total = 0;
  const bool bounded = trips && trips->is_constant() && !run.bindings.contains(name);
  if (bounded && !total && trips->value <= 0) total = 0;

  // Follow the body without recording it: does the state keep its sizes, does the condition end it?
  bool stable = true, decided = true;
  if (!total) {
    Propagation::DryRun dry(run);
    enter(0, true);
    if (!run.run_block(*body, 1)) return;
    leave();
    const auto go_on = next_condition();
    decided = go_on.has_value();
    for (std::size_t i = 0; i < states; ++i) stable = stable && same_shapes(state[i], initial[i]);
    if (go_on && *go_on == 0) total = 1;
    // Values (counters) matter to shapes only where the body is short; follow them as far as that is cheap.
    const std::int64_t limit = bounded ? trips->value : kMaxUnrolled;
    const bool follow = !total && (bounded || (decided && !call.has(0)) || (decided && trips == std::nullopt)) && limit <= kMaxUnrolled;
    done = 1;
    while (follow && done < limit && decided && run.spend(static_cast<std::int64_t>(nodes) * 20)) {
      const std::vector<TensorInfo> before = state;
      enter(done, true);
      if (!run.run_block(*body, 1)) return;
      leave();
      ++done;
      for (std::size_t i = 0; i < states; ++i) stable = stable && same_shapes(state[i], before[i]);
      const auto more = next_condition();
      if (!more) {
        decided = false;
        break;
      }
      if (*more == 0) {
        total = done;
        break;
      }
    }
  }
  if (!total) {
    if (bounded) {
      total = trips->value;
    } else {
      const Dim bound = run.bindable(name, call.node.label(), 1, "unknown_trip_count", "the number of iterations is not known");
      total = bound.is_constant() ? bound.value : 1;
    }
  }
  const std::vector<TensorInfo> followed = state;
  const bool followed_all = done == *total && done > 0;

  // Record: one body times the trip count where the state keeps its sizes, else iteration by iteration.
  state = initial;
  Dim trip_dim = *total;
  if (trips && !trips->is_constant() && !run.bindings.contains(name) && run.mode == TraceMode::symbolic) trip_dim = *trips;
  if (*total > 0 && stable) {
    enter(0, *total == 1);
    if (!run.run_block(*body, *total)) return;
    leave();
  } else if (*total > 0) {
    const std::int64_t limit = std::min<std::int64_t>(*total, kMaxUnrolled);
    std::int64_t at = 0;
    for (; at < limit && (at == 0 || run.spend(static_cast<std::int64_t>(nodes) * 20)); ++at) {
      enter(at, true);
      if (!run.run_block(*body, 1)) return;
      leave();
    }
    if (at < *total) {
      call.warn("loop_with_growing_state", "only " + std::to_string(at) + " of " + std::to_string(*total) + " iterations were followed; the rest are costed like the last");
      enter(at, false);
      if (!run.run_block(*body, *total - at)) return;
      const std::vector<TensorInfo> before = state;
      leave();
      for (std::size_t i = 0; i < states; ++i) open_sizes(call, i, state[i], before[i]);
    }
  }
  if (followed_all) {
    for (std::size_t i = 0; i < states; ++i) state[i].value = followed[i].value;
  } else if (*total > 1) {
    for (TensorInfo& tensor : state) tensor.value = nullptr;
  }
  if (!stable && run.mode == TraceMode::symbolic) {
    for (std::size_t i = 0; i < states; ++i) open_sizes(call, i, state[i], initial[i]);
  }
  for (std::size_t i = 0; i < call.output_count(); ++i) {
    if (i < states) {
      call.out(i) = state[i];
      call.out(i).view_of = 0;
    } else if (i + 1 < body->outputs.size()) {
      TensorInfo scanned;
      if (*total > 0) {
        scanned = copy_of(run.tensor_of(body->outputs[i + 1]));
      } else if (run.program.values[body->outputs[i + 1]].declared != nullptr) {
        scanned.elem = run.program.values[body->outputs[i + 1]].declared->elem;
      }
      add_front(scanned, trip_dim);
      call.out(i) = std::move(scanned);
    }
  }
}

void scan(Call& call) {
  Propagation& run = call.propagation();
  const Block* body = block_of(call, "body");
  if (body == nullptr) return call.fail("no body");
  const bool old = call.node.opset == 8 && call.has_attr("num_scan_inputs") && call.node.data->inputs.size() == body->inputs.size() + 1;  // a batch dimension and sequence lengths
  const std::size_t first = old ? 1 : 0;
  const std::int64_t scanned = call.attr_int("num_scan_inputs", 1);
  if (scanned < 1 || scanned > static_cast<std::int64_t>(call.input_count() - std::min(first, call.input_count())) || call.input_count() - first != body->inputs.size()) {
    return call.fail("num_scan_inputs is " + std::to_string(scanned) + " for " + std::to_string(call.input_count()) + " inputs and a body of " +
                     std::to_string(body->inputs.size()));
  }
  const std::size_t states = body->inputs.size() - static_cast<std::size_t>(scanned);
  const auto axes = call.attr_ints("scan_input_axes"), out_axes = call.attr_ints("scan_output_axes");
  Dim length = 1, batch = 1;
  bool known = false;
  std::vector<TensorInfo> state;
  for (std::size_t i = 0; i < states; ++i) {
    TensorInfo info = copy_of(call.has(first + i) ? &call.in(first + i) : nullptr);
    if (old && info.ranked && info.rank() > 0) {
      batch = info.shape[0];
      info.shape.erase(info.shape.begin());
      info.value = nullptr;
    }
    state.push_back(info);
  }
  std::vector<TensorInfo> slices;
  for (std::size_t i = 0; i < static_cast<std::size_t>(scanned); ++i) {
    TensorInfo info = copy_of(call.has(first + states + i) ? &call.in(first + states + i) : nullptr);
    info.value = nullptr;
    info.view_of = 0;
    if (info.ranked) {
      if (old && info.rank() > 0) {
        batch = info.shape[0];
        info.shape.erase(info.shape.begin());
      }
      std::size_t axis = 0;
      if (!call.axis_of(axes && i < axes->size() ? (*axes)[i] : 0, info.rank(), axis)) return;
      length = known ? call.unify(length, info.shape[axis], "lengths of the scanned inputs") : info.shape[axis];
      known = true;
      info.shape.erase(info.shape.begin() + static_cast<std::ptrdiff_t>(axis));
    }
    slices.push_back(std::move(info));
  }
  if (call.failed()) return;
  for (std::size_t i = 0; i < states; ++i) {
    state[i].value = nullptr;
    run.set_tensor(body->inputs[i], state[i]);
  }
  for (std::size_t i = 0; i < slices.size(); ++i) run.set_tensor(body->inputs[states + i], slices[i]);
  const std::int64_t trips = (length.is_constant() ? length.value : 1);
  std::int64_t times = std::max<std::int64_t>(trips, 1);
  if (old && batch.is_constant() && batch.value > 0 && __builtin_mul_overflow(times, batch.value, &times)) return call.fail("trip counts multiply to more than 2^63");
  if (!run.run_block(*body, times)) return;
  for (std::size_t i = 0; i < call.output_count() && i < body->outputs.size(); ++i) {
    TensorInfo result = copy_of(run.tensor_of(body->outputs[i]));
    result.value = nullptr;
    if (i >= states) add_front(result, length, out_axes && i - states < out_axes->size() ? (*out_axes)[i - states] : 0);
    if (old) add_front(result, batch);
    result.view_of = 0;
    call.out(i) = std::move(result);
  }
}

void sequence_map(Call& call) {
  Propagation& run = call.propagation();
  const Block* body = block_of(call, "body");
  if (body == nullptr || !call.has(0)) return call.fail("no body");
  const auto& items = call.in(0).items;
  const std::size_t count = items != nullptr ? items->size() : 1;
  std::vector<std::vector<TensorInfo>> results(body->outputs.size());
  for (std::size_t at = 0; at < count && run.spend(static_cast<std::int64_t>(body->nodes.size()) * 20 + 20); ++at) {
    for (std::size_t i = 0; i < body->inputs.size() && i < call.input_count(); ++i) {
      const TensorInfo& input = call.in(i);
      TensorInfo element = copy_of(input.items != nullptr && at < input.items->size() ? &(*input.items)[at] : &input);
      if (input.kind == TypeKind::sequence) element.kind = TypeKind::tensor;
      element.items = nullptr;
      run.set_tensor(body->inputs[i], element);
    }
    if (!run.run_block(*body, 1)) return;
    for (std::size_t i = 0; i < results.size(); ++i) {
      results[i].push_back(copy_of(run.tensor_of(body->outputs[i])));
      results[i].back().view_of = 0;
    }
  }
  for (std::size_t i = 0; i < results.size() && i < call.output_count(); ++i) {
    call.out(i).kind = TypeKind::sequence;
    if (!results[i].empty()) call.out(i).elem = results[i].front().elem;
    if (items != nullptr) call.out(i).items = std::make_shared<const std::vector<TensorInfo>>(std::move(results[i]));
  }
}

// com.microsoft BeamSearch, GreedySearch, Sampling, WhisperBeamSearch: the encoder once, the decoder once per pass.
void search(Call& call) {
  Propagation& run = call.propagation();
  for (const auto& [attribute, block] : call.node.blocks) {
    const bool decoder = attribute == "decoder";
    std::int64_t passes = 1;
    if (decoder) {
      const Dim bound = run.bindable(call.node.label() + ".passes", call.node.label(), 1, "search_counted_once", "the number of decoder passes depends on the data");
      passes = bound.is_constant() ? std::max<std::int64_t>(bound.value, 0) : 1;
    }
    for (const ValueId id : block->inputs) {
      const ValueName& value = run.program.values[id];
      TensorInfo info;
      if (value.declared != nullptr) {
        info.elem = value.declared->elem;
        info.ranked = value.declared->has_shape;
        for (std::size_t axis = 0; axis < value.declared->dims.size(); ++axis) {
          info.shape.push_back(run.declared_dim(value.declared->dims[axis], readable(value.name) + "_dim" + std::to_string(axis)));
        }
      }
      run.set_tensor(id, std::move(info));
    }
    if (passes > 0 && !run.run_block(*block, passes)) return;
  }
  call.set_type(0, Elem::int32);
  if (!call.ranked(0) || call.in(0).rank() == 0) return;
  const bool beams = call.node.data->op == "BeamSearch" || call.node.data->op == "WhisperBeamSearch";
  const auto length = call.in_dim(1);
  const Dim longest = length ? *length : call.data_size(0, "max_length", 1);
  if (!beams) return call.set(0, Elem::int32, {call.in(0).shape[0], longest});
  const auto count = call.in_dim(4);
  const Dim returned = count ? *count : call.data_size(0, "num_return_sequences", 1);
  call.set(0, Elem::int32, {call.in(0).shape[0], returned, longest});
  call.set(1, Elem::float32, {call.in(0).shape[0], returned});
}

}  // namespace rooftile::onnx::rules
