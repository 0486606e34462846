// Attention as exporters write it: a product of queries and keys, scales and masks, a softmax, a product with the values; and rotary embeddings.
#include <algorithm>
#include <set>

#include "frontends/onnx/patterns.h"

namespace rooftile::onnx {
namespace {

constexpr std::uint32_t kNone = Patterns::kNone;

bool is_view(const Patterns& p, std::uint32_t step) {
  return p.is(step, "Reshape") || p.is(step, "Unsqueeze") || p.is(step, "Squeeze") || p.is(step, "Identity") || p.is(step, "Flatten") || p.is(step, "Cast") ||
         p.is(step, "Dropout");
}

const MatmulAttrs* product_of(Patterns& p, std::uint32_t step) {
  if (step == kNone) return nullptr;
  const auto rows = p.works(step);
  if (rows.size() != 1 || !rows[0].alive || rows[0].kind != OpKind::matmul) return nullptr;
  return std::get_if<MatmulAttrs>(&rows[0].attrs);
}

// A lower triangle by its elements: the last row sees all, the first row sees the first keys only.
bool is_triangle(const TensorInfo& mask) {
  if (mask.value == nullptr || mask.rank() < 2) return false;
  const auto rows = static_cast<std::size_t>(mask.shape[mask.rank() - 2].value), cols = static_cast<std::size_t>(mask.shape.back().value);
  if (rows < 2 || cols < rows || mask.value->size() < rows * cols) return false;
  const auto same = [&](std::size_t a, std::size_t b) {
    return (*mask.value)[a].is_constant() && (*mask.value)[b].is_constant() && (*mask.value)[a].number() == (*mask.value)[b].number();
  };
  const std::size_t seen = (rows - 1) * cols;  // an entry of the last row
  for (std::size_t c = 0; c < cols; ++c) {
    if (!same(seen + c, seen)) return false;
    const bool visible = same(c, seen);
    if (visible != (c <= cols - rows)) return false;
  }
  return true;
}

// Does the mask come from a lower triangle? Its ancestors hold a Trilu, a comparison of positions with positions, or a stored square mask.
bool looks_causal(const Patterns& p, std::uint32_t mask, std::int64_t queries, std::int64_t keys) {
  std::vector<std::uint32_t> open{mask};
  std::set<std::uint32_t> seen;
  while (!open.empty() && seen.size() < 200) {
    const std::uint32_t tensor = open.back();
    open.pop_back();
    if (tensor == 0 || !seen.insert(tensor).second) continue;
    const TensorInfo& info = p.trace.tensors[tensor];
    const std::size_t rank = info.rank();
    const bool square = info.ranked && rank >= 2 && info.shape[rank - 1] == info.shape[rank - 2] && info.shape[rank - 1].value > 1;
    if (square && info.value != nullptr) {  // its elements tell
      if (is_triangle(info)) return true;
      continue;
    }
    // A stored square of flags that is larger than needed is the triangle that models keep as a buffer and slice; of others whose content lies elsewhere nothing is known.
    const bool stored = info.constant && square && (info.elem == Elem::boolean || info.elem == Elem::uint8);
    if (stored && info.shape[rank - 1].value > std::max(queries, keys)) return true;
    const std::uint32_t step = p.maker(tensor);
    if (step == kNone) continue;
    if (p.op(step) == "Trilu") return true;
    const bool compares = p.is(step, "Less") || p.is(step, "Greater") || p.is(step, "LessOrEqual") || p.is(step, "GreaterOrEqual");
    // Positions against positions: one operand a column, the other a row.
    if (compares && info.ranked && rank >= 2 && info.shape[rank - 1].value > 1 && info.shape[rank - 2].value > 1 && p.elements(p.input(step, 0)) < p.elements(tensor) &&
        p.elements(p.input(step, 1)) < p.elements(tensor))
      return true;
    for (const std::uint32_t input : p.trace.inputs_of(p.trace.steps[step])) open.push_back(input);
  }
  return false;
}

}  // namespace

Operand walk_back(const Patterns& p, std::uint32_t tensor, std::uint32_t user) {
  Operand operand;
  for (int i = 0; i < 12; ++i) {
    const std::uint32_t step = p.maker(tensor);
    if (step == kNone || p.trace.steps[step].free || p.only_user(tensor) != user) break;
    const bool scaling = (p.is(step, "Mul") || p.is(step, "Div")) && p.moving(step) != 0 && p.elements(p.other(step, p.moving(step))) == 1;
    const bool moves = p.is(step, "Transpose") || p.is(step, "Expand") || is_view(p, step);
    if (!moves && !scaling) break;
    const std::uint32_t before = scaling ? p.moving(step) : p.input(step, 0);
    if (p.is(step, "Expand")) {
      const std::int64_t from = p.elements(before), to = p.elements(tensor);
      if (from <= 0 || to % from != 0) break;
      operand.copies *= to / from;
    }
    operand.steps.push_back(step);
    tensor = before;
    user = step;
  }
  operand.tensor = tensor;
  return operand;
}

bool masks_causally(const Patterns& p, std::uint32_t mask, std::int64_t queries, std::int64_t keys) {
  const TensorInfo& info = p.trace.tensors[mask];
  return (queries == 1 && info.bookkeeping) || is_triangle(info) || looks_causal(p, mask, queries, keys);
}

namespace {

// Where(IsNaN(p), 0, p): a row without visible keys gives zeros. The Where, or kNone.
std::uint32_t nan_guard(const Patterns& p, std::uint32_t tensor) {
  std::uint32_t where = kNone, test = kNone;
  for (const std::uint32_t reader : p.users(tensor)) {
    if (p.is(reader, "IsNaN")) {
      test = reader;
    } else if (p.is(reader, "Where")) {
      where = reader;
    } else {
      return kNone;
    }
  }
  return test != kNone && where != kNone && p.input(where, 0) == p.output(test) && p.only_user(p.output(test)) == where ? where : kNone;
}

void attention_at(Patterns& p, std::uint32_t softmax) {
  // Backwards: scores -> [cast, mask, scale, cap] -> softmax.
  std::vector<std::uint32_t> between;
  std::uint32_t tensor = p.input(softmax, 0), user = softmax, qk = kNone;
  bool causal = false, bias = false, cap = false;
  std::vector<std::uint32_t> masks;
  for (int i = 0; i < 10; ++i) {
    const std::uint32_t step = p.maker(tensor);
    if (step == kNone || p.only_user(tensor) != user) return;
    if (product_of(p, step) != nullptr) {
      qk = step;
      break;
    }
    std::uint32_t before = 0;
    if (is_view(p, step)) {
      before = p.input(step, 0);
    } else if (p.is(step, "Tanh")) {
      before = p.input(step, 0);
      cap = true;
    } else if (p.is(step, "Where")) {
      // scores where the mask holds, or the other way round
      const std::uint32_t a = p.input(step, 1), b = p.input(step, 2);
      before = p.elements(a) == p.elements(p.output(step)) && !p.fixed(a) ? a : b;
      masks.push_back(p.input(step, 0));
    } else if (p.is(step, "Add") || p.is(step, "Sub") || p.is(step, "Mul") || p.is(step, "Div")) {
      const std::uint32_t a = p.input(step, 0), b = p.input(step, 1);
      // The scores are the operand that comes from a product; the other is a scale or a mask.
      const auto reaches_product = [&](std::uint32_t at) {
        for (int hop = 0; hop < 8; ++hop) {
          const std::uint32_t maker = p.maker(at);
          if (maker == kNone) return false;
          if (product_of(p, maker) != nullptr) return true;
          if (is_view(p, maker) || p.is(maker, "Tanh")) {
            at = p.input(maker, 0);
          } else if (p.moving(maker) != 0 || p.is(maker, "Add") || p.is(maker, "Mul") || p.is(maker, "Div")) {
            at = p.moving(maker) != 0 ? p.moving(maker) : p.input(maker, 0);
          } else {
            return false;
          }
        }
        return false;
      };
      before = reaches_product(a) ? a : reaches_product(b) ? b : 0;
      const std::uint32_t beside = before == a ? b : a;
      if (p.elements(beside) > 1) masks.push_back(beside);
    }
    if (before == 0) return;
    between.push_back(step);
    tensor = before;
    user = step;
  }
  if (qk == kNone) return;
  // Forwards: softmax -> [cast, dropout] -> product with the values.
  std::uint32_t result = p.output(softmax), pv = kNone;
  for (int i = 0; i < 6 && pv == kNone; ++i) {
    if (const std::uint32_t guard = nan_guard(p, result); guard != kNone) {
      for (const std::uint32_t reader : p.users(result)) between.push_back(reader);
      result = p.output(guard);
      continue;
    }
    const std::uint32_t next = p.only_user(result);
    if (next == kNone) return;
    if (product_of(p, next) != nullptr) {
      if (p.input(next, 0) != result) return;
      pv = next;
    } else if (is_view(p, next) || (p.is(next, "Mul") && p.moving(next) != 0)) {
      between.push_back(next);
      result = p.output(next);
    } else {
      return;
    }
  }
  if (pv == kNone || p.trace.steps[qk].repeat != p.trace.steps[pv].repeat) return;
  const MatmulAttrs scores = *product_of(p, qk), values = *product_of(p, pv);
  if (scores.batch != values.batch || scores.m != values.m || scores.n != values.k) return;

  const std::uint32_t q_in = p.input(qk, 0), k_in = p.input(qk, 1), v_in = p.input(pv, 1);
  const TensorInfo& q_info = p.trace.tensors[q_in];
  AttentionAttrs attrs;
  attrs.heads = q_info.rank() == 4 ? q_info.shape[1].value : 1;
  if (attrs.heads <= 0 || scores.batch % attrs.heads != 0) return;
  attrs.batch = scores.batch / attrs.heads;
  if (q_info.rank() == 3) {  // [B N, S, D]: heads and batch are one dimension
    attrs.heads = scores.batch;
    attrs.batch = 1;
  }
  Operand query = walk_back(p, q_in, qk), key = walk_back(p, k_in, qk), value = walk_back(p, v_in, pv);
  attrs.kv_heads = key.copies > 1 && attrs.heads % key.copies == 0 ? attrs.heads / key.copies : attrs.heads;
  attrs.seq_q = scores.m;
  attrs.seq_kv = scores.n;
  attrs.head_dim = scores.k;
  attrs.v_head_dim = values.n;
  for (const std::uint32_t mask : masks) {
    if (masks_causally(p, mask, attrs.seq_q, attrs.seq_kv)) {
      causal = true;
    } else {
      bias = true;
    }
  }
  attrs.causal = attrs.model_flops_causal = causal;
  attrs.position_bias = bias;
  attrs.softcap = cap;
  attrs.split = Split::none;
  const Dim macs = p.trace.dims.add(p.works(qk)[0].macs, p.works(pv)[0].macs);

  // Heads are brought to the front and back by views in attention kernels.
  std::uint32_t out = p.output(pv);
  if (const std::uint32_t next = p.only_user(out); p.is(next, "Transpose")) {
    p.kill(next);
    out = p.output(next);
  }
  for (const Operand* operand : {&query, &key, &value}) {
    for (const std::uint32_t step : operand->steps) p.kill(step);
  }
  for (const std::uint32_t step : between) p.kill(step);
  p.kill(softmax);
  p.kill(qk);
  Work* row = p.become(pv, OpKind::attention, attrs, {query.tensor, key.tensor, value.tensor}, {out});
  if (row != nullptr) row->macs = macs;
}

}  // namespace

void recognise_attention(Patterns& p) {
  for (std::uint32_t step = 0; step < p.trace.steps.size(); ++step) {
    if (p.is(step, "Softmax") && !p.trace.steps[step].free) attention_at(p, step);
  }
}

// x cos + rotate(x) sin, where rotate swaps the halves of x and negates one.
void recognise_rotary(Patterns& p) {
  for (std::uint32_t concat = 0; concat < p.trace.steps.size(); ++concat) {
    if (!p.is(concat, "Concat") || p.trace.steps[concat].free || p.trace.steps[concat].inputs != 2) continue;
    const std::uint32_t negation = p.maker(p.input(concat, 0)), half = p.maker(p.input(concat, 1));
    if (!p.is(negation, "Neg")) continue;
    const std::uint32_t first = p.maker(p.input(negation, 0));
    const bool slices = p.is(first, "Slice") && p.is(half, "Slice") && p.input(first, 0) == p.input(half, 0);
    const bool split = p.is(first, "Split") && first == half;
    if (!slices && !split) continue;
    const std::uint32_t x = p.input(first, 0);
    const std::uint32_t sine = p.only_user(p.output(concat));
    if (!p.is(sine, "Mul") || p.elements(p.output(concat)) != p.elements(x)) continue;
    const std::uint32_t sum = p.only_user(p.output(sine));
    if (!p.is(sum, "Add")) continue;
    const std::uint32_t cosine = p.maker(p.other(sum, p.output(sine)));
    if (!p.is(cosine, "Mul") || (p.input(cosine, 0) != x && p.input(cosine, 1) != x) || p.only_user(p.output(cosine)) != sum) continue;
    const TensorInfo& info = p.trace.tensors[x];
    if (!info.ranked || info.rank() < 2 || p.elements(x) <= 0) continue;
    RotaryAttrs attrs;
    attrs.rotary_dim = info.shape.back().value;
    attrs.heads = info.rank() == 4 ? info.shape[1].value : 1;
    attrs.tokens = p.elements(x) / attrs.rotary_dim / attrs.heads;
    attrs.split = Split::none;
    for (const std::uint32_t step : {negation, first, half, concat, sine, cosine}) p.kill(step);
    // Heads brought to the front just before are read in place.
    std::uint32_t source = x;
    const std::uint32_t before = p.maker(x);
    const auto inside = [&](std::uint32_t reader) { return reader == first || reader == half || reader == cosine; };
    if (p.is(before, "Transpose") && std::all_of(p.users(x).begin(), p.users(x).end(), inside)) {
      p.kill(before);
      source = p.input(before, 0);
    }
    // Where only a part of each head is rotated, the rest joins it again: the kernel rotates in place.
    std::uint32_t result = p.output(sum);
    const std::uint32_t join = p.only_user(result), part = p.maker(x);
    const auto takes_part = [&](std::uint32_t step) { return p.is(step, "Slice") || p.is(step, "Split"); };
    if (p.is(join, "Concat") && p.trace.steps[join].inputs == 2 && takes_part(part)) {
      const std::uint32_t rest = p.maker(p.other(join, result));
      if (takes_part(rest) && p.input(rest, 0) == p.input(part, 0) && p.elements(p.output(join)) == p.elements(p.input(part, 0))) {
        p.kill(join);
        source = p.input(part, 0);
        result = p.output(join);
      }
    }
    p.become(sum, OpKind::rotary, attrs, {source}, {result});
  }
}

}  // namespace rooftile::onnx
