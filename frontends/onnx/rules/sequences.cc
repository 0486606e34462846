// Sequences and optionals: lists of tensors whose length and members are followed where they are known.
#include <algorithm>

#include "frontends/onnx/propagate.h"
#include "frontends/onnx/rules/rules.h"

namespace rooftile::onnx::rules {
namespace {

using Items = std::vector<TensorInfo>;

void set_items(Call& call, Items items) {
  TensorInfo& out = call.out(0);
  out.kind = TypeKind::sequence;
  if (!items.empty()) out.elem = items.front().elem;
  if (items.size() <= 4096 && call.propagation().spend(static_cast<std::int64_t>(items.size()) * 4)) out.items = std::make_shared<const Items>(std::move(items));
}

std::optional<std::size_t> position(Call& call, std::size_t input, std::size_t count, bool end_allowed) {
  std::int64_t at = static_cast<std::int64_t>(count) - (end_allowed ? 0 : 1);
  if (call.has(input)) {
    const auto given = call.in_dim(input);
    if (!given || !given->is_constant()) return std::nullopt;
    at = given->value < 0 ? given->value + static_cast<std::int64_t>(count) : given->value;
  }
  if (at < 0 || at > static_cast<std::int64_t>(count) - (end_allowed ? 0 : 1)) {
    call.fail("position " + std::to_string(at) + " of a sequence of " + std::to_string(count));
    return std::nullopt;
  }
  return static_cast<std::size_t>(at);
}

TensorInfo plain(const TensorInfo& tensor) {
  TensorInfo copy = tensor;
  copy.view_of = 0;
  copy.stored = -1;
  return copy;
}

// What all members have in common.
TensorInfo common(const Items& items) {
  TensorInfo out = items.empty() ? TensorInfo() : plain(items.front());
  for (const TensorInfo& item : items) {
    if (item.shape != out.shape || item.ranked != out.ranked) out.ranked = false;
    if (item.value != out.value) out.value = nullptr;
  }
  if (!out.ranked) out.shape.clear();
  return out;
}

}  // namespace

void sequence_empty(Call& call) {
  set_items(call, {});
  call.out(0).elem = elem_of(call.attr_int("dtype", 1));
}

void sequence_construct(Call& call) {
  Items items;
  for (std::size_t i = 0; i < call.input_count(); ++i) items.push_back(plain(call.in(i)));
  set_items(call, std::move(items));
}

void sequence_insert(Call& call) {
  call.out(0).kind = TypeKind::sequence;
  call.out(0).elem = call.in(1).elem;
  if (call.in(0).items == nullptr) return;
  Items items = *call.in(0).items;
  const auto at = position(call, 2, items.size(), true);
  if (!at) return;
  items.insert(items.begin() + static_cast<std::ptrdiff_t>(*at), plain(call.in(1)));
  set_items(call, std::move(items));
}

void sequence_erase(Call& call) {
  call.out(0).kind = TypeKind::sequence;
  call.out(0).elem = call.in(0).elem;
  if (call.in(0).items == nullptr) return;
  Items items = *call.in(0).items;
  const auto at = position(call, 1, items.size(), false);
  if (!at) return;
  items.erase(items.begin() + static_cast<std::ptrdiff_t>(*at));
  set_items(call, std::move(items));
}

void sequence_at(Call& call) {
  call.set_type(0, call.in(0).elem);
  if (call.in(0).items == nullptr) return;
  if (const auto at = position(call, 1, call.in(0).items->size(), false)) {
    call.out(0) = plain((*call.in(0).items)[*at]);
  } else if (!call.failed()) {
    call.out(0) = common(*call.in(0).items);
  }
}

void sequence_length(Call& call) {
  call.set(0, Elem::int64, {});
  if (call.in(0).items != nullptr) call.set_value(0, {Element(Dim(static_cast<std::int64_t>(call.in(0).items->size())))});
}

void split_to_sequence(Call& call) {
  const TensorInfo& data = call.in(0);
  call.out(0).kind = TypeKind::sequence;
  call.out(0).elem = data.elem;
  if (!data.ranked) return;
  std::size_t axis = 0;
  if (!call.axis_of(call.attr_int("axis", 0), data.rank(), axis)) return;
  const Dim size = data.shape[axis];
  std::vector<Dim> parts;
  bool keep = true;
  if (!call.has(1)) {
    keep = call.attr_int("keepdims", 1) != 0;
    if (!size.is_constant() || size.value > 4096) return;
    parts.assign(static_cast<std::size_t>(size.value), Dim(1));
  } else {
    const auto given = call.in_ints(1);
    if (!given) return;
    if (call.in(1).rank() == 0 && given->size() == 1) {
      if (!size.is_constant() || given->front() <= 0 || size.value / given->front() > 4096) return;
      for (std::int64_t left = size.value; left > 0; left -= given->front()) parts.emplace_back(std::min(left, given->front()));
    } else {
      parts.assign(given->begin(), given->end());
    }
  }
  Items items;
  for (const Dim part : parts) {
    TensorInfo item = plain(data);
    item.value = nullptr;
    item.shape[axis] = part;
    if (!keep) item.shape.erase(item.shape.begin() + static_cast<std::ptrdiff_t>(axis));
    items.push_back(std::move(item));
  }
  set_items(call, std::move(items));
}

void concat_from_sequence(Call& call) {
  call.set_type(0, call.in(0).elem);
  const auto& items = call.in(0).items;
  if (items == nullptr || items->empty() || !items->front().ranked) return;
  const bool fresh = call.attr_int("new_axis", 0) != 0;
  std::vector<Dim> shape = items->front().shape;
  std::size_t axis = 0;
  if (!call.axis_of(call.attr_int("axis", 0), shape.size() + (fresh ? 1 : 0), axis)) return;
  if (fresh) {
    shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(axis), static_cast<std::int64_t>(items->size()));
  } else {
    shape[axis] = 0;
    for (const TensorInfo& item : *items) {
      if (!item.ranked || item.rank() != shape.size()) return;
      shape[axis] = call.dims.add(shape[axis], item.shape[axis]);
    }
  }
  call.set(0, call.in(0).elem, std::move(shape));
}

void optional(Call& call) {
  if (call.has(0)) call.out(0) = plain(call.in(0));
  call.out(0).kind = call.has(0) ? call.in(0).kind : TypeKind::optional;
}

void optional_get(Call& call) { call.out(0) = plain(call.in(0)); }

void optional_has(Call& call) {
  call.set(0, Elem::boolean, {});
  if (!call.has(0)) {
    call.set_value(0, {Element(Dim(0))});
  } else if (call.in(0).kind != TypeKind::optional) {
    call.set_value(0, {Element(Dim(1))});
  }
}

}  // namespace rooftile::onnx::rules
