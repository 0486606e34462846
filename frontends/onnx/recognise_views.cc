// What kernels read and write in place: transposed operands, caches.
#include <algorithm>

#include "frontends/onnx/patterns.h"

namespace rooftile::onnx {
namespace {

// Parts and insertions of dimensions, which keep strides.
bool keeps_strides(const Patterns& p, std::uint32_t step) {
  return p.is(step, "Split") || p.is(step, "Slice") || p.is(step, "Unsqueeze") || p.is(step, "Squeeze") || p.is(step, "Identity") || p.is(step, "Expand") ||
         p.is(step, "Transpose");
}

// Do only kernels read the tensor that take operands with strides: attention, rotary embeddings, caches and concatenations?
bool read_with_strides(Patterns& p, std::uint32_t tensor, int& budget) {
  if (p.given_out(tensor) || p.users(tensor).empty()) return false;
  for (const std::uint32_t user : p.users(tensor)) {
    if (--budget < 0) return false;
    const auto rows = p.works(user);
    const bool alive = !rows.empty() && rows[0].alive;
    if (alive) {
      const OpKind kind = rows[0].kind;
      const bool strided = kind == OpKind::attention || kind == OpKind::rotary || kind == OpKind::cache_write || (kind == OpKind::copy && p.is(user, "Concat"));
      if (!strided) return false;
    } else if (rows.empty() || p.is(user, "Transpose")) {
      // A view passes the strides on; a row that a pattern stands for is read by that pattern's kernel.
      if (!keeps_strides(p, user)) return false;
      for (const std::uint32_t output : p.trace.outputs_of(p.trace.steps[user])) {
        if (output != 0 && !p.users(output).empty() && !read_with_strides(p, output, budget)) return false;
      }
    }
  }
  return true;
}

}  // namespace

void read_in_place(Patterns& p) {
  for (std::uint32_t step = 0; step < p.trace.steps.size(); ++step) {
    if (!p.is(step, "Transpose") || p.works(step).empty() || !p.works(step)[0].alive) continue;
    int budget = 64;
    if (!read_with_strides(p, p.output(step), budget)) continue;
    for (const std::uint32_t user : p.users(p.output(step))) {
      for (Work& row : p.works(user)) std::replace(row.inputs.begin(), row.inputs.end(), p.output(step), p.input(step, 0));
    }
    p.kill(step);
  }
}

// present = Concat(past, new), given in and given out: a cache, of which a step writes its new tokens. Keys and values of a layer are written by one kernel.
void recognise_caches(Patterns& p) {
  Work* keys = nullptr;
  for (std::uint32_t step = 0; step < p.trace.steps.size(); ++step) {
    if (!p.is(step, "Concat") || p.trace.steps[step].inputs != 2 || p.trace.steps[step].repeat != 1 || p.works(step).empty() || !p.works(step)[0].alive) continue;
    const std::uint32_t past = p.input(step, 0), fresh = p.input(step, 1), present = p.output(step);
    const TensorInfo &before = p.trace.tensors[past], &added = p.trace.tensors[fresh];
    const bool given = std::find(p.trace.inputs.begin(), p.trace.inputs.end(), past) != p.trace.inputs.end();
    const bool kept = std::find(p.trace.outputs.begin(), p.trace.outputs.end(), present) != p.trace.outputs.end();
    if (!given || !kept || before.rank() != 4 || added.rank() != 4 || !is_float(before.elem) || p.elements(fresh) <= 0) continue;
    // [batch, heads, tokens, size]
    const std::int64_t tokens = added.shape[0].value * added.shape[2].value;
    CacheWriteAttrs attrs;
    attrs.tokens = tokens;
    attrs.elements_per_token = p.elements(fresh) / tokens;
    attrs.split = Split::none;
    if (keys != nullptr && std::get<CacheWriteAttrs>(keys->attrs).tokens == tokens) {
      attrs.elements_per_token += std::get<CacheWriteAttrs>(keys->attrs).elements_per_token;
      std::vector<std::uint32_t> inputs = keys->inputs, outputs = keys->outputs;
      inputs.push_back(fresh);
      outputs.push_back(present);
      keys->alive = false;
      keys = nullptr;
      p.become(step, OpKind::cache_write, attrs, std::move(inputs), std::move(outputs));
    } else {
      keys = p.become(step, OpKind::cache_write, attrs, {fresh}, {present});
    }
  }
}

void pair_rotations(Patterns& p) {
  Work* queries = nullptr;  // a rotation that may have its pair ahead
  for (std::uint32_t step = 0; step < p.trace.steps.size(); ++step) {
    const auto rows = p.works(step);
    if (rows.size() != 1 || !rows[0].alive || rows[0].kind != OpKind::rotary) continue;
    Work& row = rows[0];
    auto& attrs = std::get<RotaryAttrs>(row.attrs);
    if (queries != nullptr) {
      const auto& first = std::get<RotaryAttrs>(queries->attrs);
      const auto readers = p.users(queries->outputs.front());
      const bool later = std::all_of(readers.begin(), readers.end(), [&](std::uint32_t reader) { return reader > step; });
      if (later && first.tokens == attrs.tokens && first.rotary_dim == attrs.rotary_dim && queries->repeat == row.repeat && first.kv_heads == 0 && attrs.kv_heads == 0) {
        attrs.kv_heads = attrs.heads;
        attrs.heads = first.heads;
        row.inputs.insert(row.inputs.begin(), queries->inputs.front());
        row.outputs.insert(row.outputs.begin(), queries->outputs.front());
        queries->alive = false;
        queries = nullptr;
        continue;
      }
    }
    queries = &row;
  }
}

namespace {

EmbeddingAttrs* table_of(Patterns& p, std::uint32_t step) {
  if (!p.is(step, "Gather") || p.works(step).size() != 1 || !p.works(step)[0].alive) return nullptr;
  return std::get_if<EmbeddingAttrs>(&p.works(step)[0].attrs);
}

bool pointwise_row(Patterns& p, std::uint32_t step) {
  return step != Patterns::kNone && p.works(step).size() == 1 && p.works(step)[0].alive && p.works(step)[0].kind == OpKind::elementwise;
}

}  // namespace

void fold_position_tables(Patterns& p) {
  for (std::uint32_t step = 0; step < p.trace.steps.size(); ++step) {
    const EmbeddingAttrs* table = table_of(p, step);
    if (table == nullptr) continue;
    const std::uint32_t rows = p.output(step), add = p.only_user(rows);
    if (!p.is(add, "Add") || p.works(add).size() != 1 || !p.works(add)[0].alive || p.trace.steps[add].repeat != p.trace.steps[step].repeat) continue;
    const std::uint32_t beside = p.other(add, rows);
    if (beside == rows || p.fixed(beside) || p.elements(beside) < p.elements(rows)) continue;
    const std::uint32_t maker = p.maker(beside);
    if (const EmbeddingAttrs* other = maker == Patterns::kNone ? nullptr : table_of(p, maker); other != nullptr && other->vocab < table->vocab) continue;
    PointwiseAttrs attrs;
    attrs.kind = PointwiseKind::add;
    attrs.numel = p.elements(p.output(add));
    attrs.split = Split::none;
    if (__builtin_mul_overflow(table->vocab, table->hidden, &attrs.parameters)) continue;
    const std::uint32_t weight = p.works(step)[0].weight;
    p.kill(step);
    if (Work* row = p.become(add, OpKind::position_add, attrs, {beside}, {p.output(add)}); row != nullptr) row->weight = weight;
  }
}

void fold_mask_chains(Patterns& p) {
  for (std::uint32_t step = 0; step < p.trace.steps.size(); ++step) {
    if (!pointwise_row(p, step) || is_float(p.trace.tensors[p.output(step)].elem)) continue;
    const std::uint32_t next = p.only_user(p.output(step));
    if (!pointwise_row(p, next) || p.trace.steps[next].repeat != p.trace.steps[step].repeat) continue;
    Work& reader = p.works(next)[0];
    std::erase(reader.inputs, p.output(step));
    reader.inputs.insert(reader.inputs.end(), p.works(step)[0].inputs.begin(), p.works(step)[0].inputs.end());
    p.kill(step);
  }
}

// An Attention operator is what the pattern becomes; what exporters write around it is folded as around the pattern: heads repeated for grouped queries, a mask that is a triangle,
// heads brought back behind the tokens.
void complete_attention(Patterns& p) {
  for (std::uint32_t step = 0; step < p.trace.steps.size(); ++step) {
    if (!p.is(step, "Attention") || p.works(step).empty()) continue;
    for (Work& row : p.works(step)) {
      auto* attrs = std::get_if<AttentionAttrs>(&row.attrs);
      if (attrs == nullptr || !row.alive || row.inputs.size() < 3 || row.outputs.empty()) continue;
      if (const std::uint32_t mask = p.input(step, 3); mask != 0 && masks_causally(p, mask, attrs->seq_q, attrs->seq_kv)) {
        attrs->causal = attrs->model_flops_causal = true;
        attrs->position_bias = false;
      }
      const Operand query = walk_back(p, row.inputs[0], step), key = walk_back(p, row.inputs[1], step), value = walk_back(p, row.inputs[2], step);
      if (key.copies > 1 && key.copies == value.copies && attrs->heads % key.copies == 0) attrs->kv_heads = attrs->heads / key.copies;
      for (const Operand* operand : {&query, &key, &value}) {
        for (const std::uint32_t folded : operand->steps) p.kill(folded);
      }
      row.inputs = {query.tensor, key.tensor, value.tensor};
      if (const std::uint32_t next = p.only_user(row.outputs[0]); p.is(next, "Transpose") && p.trace.steps[next].repeat == p.trace.steps[step].repeat) {
        p.kill(next);
        row.outputs[0] = p.output(next);
      }
    }
  }
}

}  // namespace rooftile::onnx
