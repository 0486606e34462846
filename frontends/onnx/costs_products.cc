// Costs of matrix products, convolutions, recurrences and attention: what counts as multiply-accumulates.
#include <algorithm>
#include <string>

#include "frontends/onnx/costs.h"
#include "frontends/onnx/rules/attention.h"

namespace rooftile::onnx {

void CostCall::linear(Dim tokens, Dim in_size, Dim out_size, bool bias, bool transposed, Emission emission) {
  const Dim macs = dims.mul(tokens, dims.mul(in_size, out_size));
  if (macs == Dim(0)) return;
  LinearAttrs attrs;
  attrs.tokens = number(tokens);
  attrs.in = number(in_size);
  attrs.out = number(out_size);
  attrs.bias = bias;
  attrs.transposed_weight = transposed;
  attrs.weight_bytes = emission.weight_bytes;
  attrs.split = Split::none;
  emit(OpKind::linear, attrs, macs, std::move(emission));
}

void CostCall::matmul(Dim batch, Dim m, Dim n, Dim k, GemmLayout layout, Emission emission) {
  const Dim macs = dims.mul(batch, dims.mul(m, dims.mul(n, k)));
  if (macs == Dim(0)) return;
  MatmulAttrs attrs;
  attrs.batch = number(batch);
  attrs.m = number(m);
  attrs.n = number(n);
  attrs.k = number(k);
  attrs.layout = layout;
  attrs.split = Split::none;
  emit(OpKind::matmul, attrs, macs, std::move(emission));
}

namespace {

GemmLayout layout_of(bool transpose_a, bool transpose_b) {
  if (transpose_a) return transpose_b ? GemmLayout::tt : GemmLayout::tn;
  return transpose_b ? GemmLayout::nt : GemmLayout::nn;
}

// The product of two operands whose shapes are already in the order [batch..., rows, inner] and [batch..., inner, columns].
void product(CostCall& at, std::size_t left, std::size_t right, std::vector<Dim> a, std::vector<Dim> b, bool transpose_a, bool transpose_b, bool bias = false,
             std::string_view part = {}) {
  if (a.size() == 1) a.insert(a.begin(), 1);
  if (b.size() == 1) b.emplace_back(1);
  if (a.size() < 2 || b.size() < 2) return;
  const Dim m = a[a.size() - 2], k = a.back(), n = b.back();
  const Dim batch_a = at.call.product(a, 0, a.size() - 2), batch_b = at.call.product(b, 0, b.size() - 2);
  if (at.weight(right) && batch_b == Dim(1)) {
    const std::int64_t packed = at.in(right).packed_bytes;
    return at.linear(at.dims.mul(batch_a, m), k, n, bias, transpose_b == at.in(right).transposed,
                     {.part = part, .inputs = {at.in_id(left)}, .weight = at.in_id(right), .weight_bytes = packed});
  }
  if (at.weight(left) && batch_a == Dim(1) && !at.weight(right)) {
    const std::int64_t packed = at.in(left).packed_bytes;
    return at.linear(at.dims.mul(batch_b, n), k, m, bias, transpose_a != at.in(left).transposed,
                     {.part = part, .inputs = {at.in_id(right)}, .weight = at.in_id(left), .weight_bytes = packed});
  }
  const std::vector<std::uint32_t> operands{at.in_id(left), at.in_id(right)};
  if (batch_b == Dim(1)) return at.matmul(1, at.dims.mul(batch_a, m), n, k, layout_of(transpose_a, transpose_b), {.part = part, .inputs = operands});
  const auto batch = at.call.broadcast(std::vector<Dim>(a.begin(), a.end() - 2), std::vector<Dim>(b.begin(), b.end() - 2));
  at.matmul(at.call.product(*batch), m, n, k, layout_of(transpose_a, transpose_b), {.part = part, .inputs = operands});
}

void ordered_product(CostCall& at, std::size_t left, std::size_t right, bool transpose_a, bool transpose_b, bool bias) {
  if (!at.known_in(left) || !at.known_in(right) || at.in(left).rank() == 0 || at.in(right).rank() == 0) return at.unresolved();
  std::vector<Dim> a = at.in(left).shape, b = at.in(right).shape;
  if (transpose_a && a.size() > 1) std::swap(a[a.size() - 1], a[a.size() - 2]);
  if (transpose_b && b.size() > 1) std::swap(b[b.size() - 1], b[b.size() - 2]);
  product(at, left, right, std::move(a), std::move(b), transpose_a, transpose_b, bias);
}

// batch, channels and the products of the spatial sizes
void convolution(CostCall& at, std::size_t weight, bool bias) {
  if (!at.known_in(0) || !at.known_in(weight) || !at.known_out(0) || at.in(0).rank() < 2) return at.unresolved();
  const auto &x = at.in(0).shape, &w = at.in(weight).shape, &y = at.out(0).shape;
  const Dim kernel = at.call.product(w, 2), positions = at.call.product(y, 2);
  const Dim macs = at.dims.mul(at.dims.mul(y[0], positions), at.dims.mul(y[1], at.dims.mul(w[1], kernel)));
  if (macs == Dim(0)) return;
  ConvolutionAttrs attrs;
  attrs.batch = CostCall::number(y[0]);
  attrs.in_channels = CostCall::number(x[1]);
  attrs.out_channels = CostCall::number(y[1]);
  attrs.groups = std::max<std::int64_t>(at.call.attr_int("group", 1), 1);
  attrs.kernel_elements = CostCall::number(kernel);
  attrs.out_positions = CostCall::number(positions);
  attrs.in_positions = CostCall::number(at.call.product(x, 2));
  attrs.bias = bias;
  attrs.split = Split::none;
  // Stride equal to the kernel without padding: a product over patches.
  const auto strides = at.call.attr_ints("strides");
  bool patches = strides.has_value() && strides->size() + 2 == w.size() && attrs.groups == 1 && kernel != Dim(1);
  for (std::size_t i = 0; patches && i < strides->size(); ++i) patches = w[i + 2] == Dim((*strides)[i]);
  if (const auto pads = at.call.attr_ints("pads")) patches = patches && std::all_of(pads->begin(), pads->end(), [](std::int64_t pad) { return pad == 0; });
  attrs.patches = patches;
  at.emit(patches ? OpKind::patch_embedding : OpKind::convolution, attrs, macs, {.inputs = {at.in_id(0)}, .weight = at.in_id(weight)});
}

}  // namespace

void matmul_cost(CostCall& at) { ordered_product(at, 0, 1, false, false, false); }
void qlinear_matmul_cost(CostCall& at) { ordered_product(at, 0, 3, false, false, false); }
void gemm_cost(CostCall& at) { ordered_product(at, 0, 1, at.call.attr_int("transA", 0) != 0, at.call.attr_int("transB", 0) != 0, at.call.has(2)); }
void qgemm_cost(CostCall& at) { ordered_product(at, 0, 3, at.call.attr_int("transA", 0) != 0, at.call.attr_int("transB", 0) != 0, at.call.has(6)); }

void fused_matmul_cost(CostCall& at) {
  if (!at.known_in(0) || !at.known_in(1) || at.in(0).rank() < 2 || at.in(1).rank() < 2) return at.unresolved();
  std::vector<Dim> a = at.in(0).shape, b = at.in(1).shape;
  if (at.call.attr_int("transBatchA", 0) != 0 && a.size() > 2) std::rotate(a.begin(), a.begin() + 1, a.end() - 1);
  if (at.call.attr_int("transBatchB", 0) != 0 && b.size() > 2) std::rotate(b.begin(), b.begin() + 1, b.end() - 1);
  const bool transpose_a = at.call.attr_int("transA", 0) != 0, transpose_b = at.call.attr_int("transB", 0) != 0;
  if (transpose_a) std::swap(a[a.size() - 1], a[a.size() - 2]);
  if (transpose_b) std::swap(b[b.size() - 1], b[b.size() - 2]);
  product(at, 0, 1, std::move(a), std::move(b), transpose_a, transpose_b);
}

void matmul_gelu_cost(CostCall& at) {
  matmul_cost(at);
  gelu_cost(at);
}

void matmul_nbits_cost(CostCall& at) {
  if (!at.known_in(0) || at.in(0).rank() == 0) return at.unresolved();
  const std::int64_t k = at.call.attr_int("K", 0), n = at.call.attr_int("N", 0);
  if (k <= 0) return;
  // N ceil(K / block) blocks of packed weights, a scale each, and zero points: what the file stores of them.
  const std::int64_t packed = at.call.stored_bytes(1, 3);
  at.linear(at.dims.floordiv(at.in_elements(0), k), k, n, at.call.has(5), false, {.inputs = {at.in_id(0)}, .weight = at.in_id(1), .weight_bytes = packed});
}

// Each index is kept or summed; two operands are a batched product. n operands cost n - 1 multiplications per point of the index space.
void einsum_cost(CostCall& at) {
  const std::size_t operands = at.call.input_count();
  for (std::size_t i = 0; i < operands; ++i) {
    if (!at.known_in(i)) return at.unresolved();
  }
  if (!at.known_out(0)) return at.unresolved();
  if (operands < 2) return unary_cost(at);
  // Indices by operand, the ellipsis spelt out from the right with upper control characters.
  std::string text;
  for (const char c : at.call.attr_text("equation", "")) {
    if (c != ' ') text += c;
  }
  const std::size_t arrow = text.find("->");
  std::vector<std::string> terms(1);
  for (const char c : text.substr(0, arrow)) {
    if (c == ',') {
      terms.emplace_back();
    } else {
      terms.back() += c;
    }
  }
  if (terms.size() != operands) return at.unresolved();
  std::vector<std::pair<char, Dim>> sizes;
  std::vector<std::string> spelt(operands);
  for (std::size_t i = 0; i < operands; ++i) {
    const auto& shape = at.in(i).shape;
    const std::size_t dots = terms[i].find("...");
    const std::size_t named = terms[i].size() - (dots == std::string::npos ? 0 : 3);
    if (named > shape.size()) return at.unresolved();
    std::string letters = terms[i];
    if (dots != std::string::npos) {
      std::string hidden;
      for (std::size_t d = shape.size() - named; d-- > 0;) hidden += static_cast<char>(-1 - static_cast<int>(d));
      letters.replace(dots, 3, hidden);
    }
    if (letters.size() != shape.size()) return at.unresolved();
    for (std::size_t d = 0; d < letters.size(); ++d) {
      auto known = std::find_if(sizes.begin(), sizes.end(), [&](const auto& entry) { return entry.first == letters[d]; });
      if (known == sizes.end()) {
        sizes.emplace_back(letters[d], shape[d]);
      } else if (known->second == Dim(1)) {
        known->second = shape[d];
      }
    }
    spelt[i] = letters;
  }
  const auto result_has = [&](char letter) {
    if (arrow == std::string::npos) {
      int uses = 0;
      for (const std::string& letters : spelt) uses += static_cast<int>(std::count(letters.begin(), letters.end(), letter));
      return uses == 1 || letter < 0;
    }
    return letter < 0 || text.find(letter, arrow + 2) != std::string::npos;
  };
  Dim batch = 1, m = 1, n = 1, k = 1, total = 1;
  for (const auto& [letter, size] : sizes) {
    total = at.dims.mul(total, size);
    const bool in_a = spelt[0].find(letter) != std::string::npos, in_b = spelt[1].find(letter) != std::string::npos;
    Dim& part = !result_has(letter) ? k : in_a && in_b ? batch : in_a ? m : n;
    part = at.dims.mul(part, size);
  }
  if (operands == 2) return at.matmul(batch, m, n, k, GemmLayout::nn, {.inputs = {at.in_id(0), at.in_id(1)}});
  at.matmul(static_cast<std::int64_t>(operands) - 1, total, 1, 1, GemmLayout::nn, {});
}

void conv_cost(CostCall& at) { convolution(at, 1, at.call.has(2) && at.call.node.data->op != "ConvInteger" && at.call.node.data->op != "DeformConv"); }
void qlinear_conv_cost(CostCall& at) { convolution(at, 3, at.call.has(8)); }

// Every input position is multiplied with the whole kernel: the transposed convolution seen from the other side.
void conv_transpose_cost(CostCall& at) {
  if (!at.known_in(0) || !at.known_in(1) || !at.known_out(0) || at.in(0).rank() < 2) return at.unresolved();
  const auto &x = at.in(0).shape, &w = at.in(1).shape, &y = at.out(0).shape;
  const Dim kernel = at.call.product(w, 2), positions = at.call.product(x, 2);
  const Dim macs = at.dims.mul(at.dims.mul(x[0], positions), at.dims.mul(x[1], at.dims.mul(w[1], kernel)));
  if (macs == Dim(0)) return;
  ConvolutionAttrs attrs;
  attrs.batch = CostCall::number(x[0]);
  attrs.in_channels = CostCall::number(y[1]);
  attrs.out_channels = CostCall::number(x[1]);
  attrs.groups = std::max<std::int64_t>(at.call.attr_int("group", 1), 1);
  attrs.kernel_elements = CostCall::number(kernel);
  attrs.out_positions = CostCall::number(positions);
  attrs.in_positions = CostCall::number(at.call.product(y, 2));
  attrs.bias = at.call.has(2);
  attrs.split = Split::none;
  at.emit(OpKind::convolution, attrs, macs, {.inputs = {at.in_id(0)}, .weight = at.in_id(1)});
}

// dX and dW each cost the forward's multiplications.
void conv_gradient_cost(CostCall& at) {
  if (!at.known_in(0) || !at.known_in(1) || !at.known_in(2) || at.in(0).rank() < 2 || at.in(2).rank() < 2) return at.unresolved();
  const auto &y = at.in(0).shape, &w = at.in(2).shape;
  const Dim rows = at.dims.mul(y[0], at.call.product(y, 2)), depth = at.call.product(w, 1);
  if (at.call.wants(0)) at.matmul(1, rows, depth, y[1], GemmLayout::nn, {.part = "dgrad", .inputs = {at.in_id(0), at.in_id(2)}, .outputs = {at.out_id(0)}});
  if (at.call.wants(1)) at.matmul(1, y[1], depth, rows, GemmLayout::tn, {.part = "wgrad", .inputs = {at.in_id(0), at.in_id(1)}, .outputs = {at.out_id(1)}});
}

// All steps' inputs are projected in one product; the states step by step. LSTM 4 gates, GRU 3, RNN 1: 100 steps of an LSTM with 64 inputs and 64 hidden are
// 100 x 4 x 64 x (64 + 64) = 3,276,800.
void recurrent_cost(CostCall& at) {
  if (!at.known_in(0) || at.in(0).rank() != 3 || !at.known_out(0)) {
    // Only later outputs may be wanted; their shapes hold the hidden size too.
    if (!at.known_in(0) || at.in(0).rank() != 3 || !at.known_in(2) || at.in(2).rank() != 3) return at.unresolved();
  }
  const bool batch_first = at.call.attr_int("layout", 0) != 0;
  const auto& x = at.in(0).shape;
  const Dim steps = x[batch_first ? 1 : 0], batch = x[batch_first ? 0 : 1];
  Dim hidden = at.call.attr_int("hidden_size", 0);
  if (hidden == Dim(0) && at.known_in(2) && at.in(2).rank() == 3) hidden = at.in(2).shape[2];
  const std::int64_t directions = at.call.attr_text("direction", "forward") == "bidirectional" ? 2 : 1;
  const std::string_view op = at.call.node.data->op;
  const std::int64_t gates = op == "LSTM" ? 4 : op == "GRU" ? 3 : 1;
  const Dim width = at.dims.mul(gates, hidden);
  const std::uint32_t projected = at.internal(at.dims.mul(at.dims.mul(steps, batch), width), at.in(0).elem);
  at.linear(at.dims.mul(steps, batch), x[2], width, at.call.has(3), false,
            {.part = "input", .repeat = directions, .inputs = {at.in_id(0)}, .outputs = {projected}, .weight = at.in_id(1)});
  std::int64_t times = directions;
  if (steps.is_constant() && __builtin_mul_overflow(times, steps.value, &times)) return at.call.fail("steps");
  if (times == 0) return;
  const std::uint32_t gate = at.internal(at.dims.mul(batch, width), at.in(0).elem);
  at.linear(batch, hidden, width, at.call.has(3), false, {.part = "state", .repeat = times, .inputs = {projected}, .outputs = {gate}, .weight = at.in_id(2)});
  at.pointwise(PointwiseKind::sigmoid, at.dims.mul(batch, width), OpKind::elementwise, {.part = "gates", .repeat = times, .inputs = {gate}});
}

void attention_cost(CostCall& at) {
  const auto sizes = rules::attention_sizes(at.call);
  if (!sizes || at.call.failed()) return at.unresolved();
  DimContext& dims = at.dims;
  std::vector<std::uint32_t> inputs;
  for (std::size_t i = 0; i < 3; ++i) {
    if (at.call.has(i) && !at.weight(i)) inputs.push_back(at.in_id(i));
  }
  if (sizes->projection_in != Dim(0)) {
    const Dim tokens = dims.mul(sizes->batch, sizes->queries);
    const std::uint32_t projected = at.internal(dims.mul(tokens, sizes->projection_out), at.in(0).elem);
    if (at.weight(1) || !at.call.has(1)) {
      at.linear(tokens, sizes->projection_in, sizes->projection_out, at.call.has(2), true,
                {.part = "projection", .inputs = {at.in_id(0)}, .outputs = {projected}, .weight = at.in_id(1)});
    } else {
      at.matmul(1, tokens, sizes->projection_out, sizes->projection_in, GemmLayout::nn, {.part = "projection", .inputs = {at.in_id(0), at.in_id(1)}, .outputs = {projected}});
    }
    inputs = {projected};
  }
  if (sizes->rotary) {
    RotaryAttrs rotary;
    rotary.tokens = CostCall::number(dims.mul(sizes->batch, sizes->queries));
    rotary.heads = CostCall::number(sizes->heads);
    rotary.kv_heads = CostCall::number(sizes->key_heads);
    rotary.rotary_dim = CostCall::number(sizes->head_size);
    rotary.split = Split::none;
    const std::uint32_t rotated =
        at.internal(dims.mul(dims.mul(sizes->batch, sizes->queries), dims.mul(dims.add(sizes->heads, sizes->key_heads), sizes->head_size)), at.in(0).elem);
    at.emit(OpKind::rotary, rotary, 0, {.part = "rotary", .inputs = inputs, .outputs = {rotated}});
    inputs.push_back(rotated);
  }
  const Dim kept = dims.mul(dims.mul(sizes->batch, sizes->key_heads), dims.add(sizes->head_size, sizes->value_size));
  if (at.call.wants(1) && at.known_out(1) && dims.mul(kept, sizes->new_keys) != Dim(0)) {
    CacheWriteAttrs cache;
    cache.tokens = CostCall::number(dims.mul(sizes->batch, sizes->new_keys));
    cache.elements_per_token = CostCall::number(dims.mul(sizes->key_heads, dims.add(sizes->head_size, sizes->value_size)));
    cache.split = Split::none;
    at.emit(OpKind::cache_write, cache, 0, {.part = "cache", .inputs = inputs, .outputs = {at.out_id(1)}});
  }
  const Dim macs = dims.mul(dims.mul(sizes->batch, sizes->heads), dims.mul(dims.mul(sizes->queries, sizes->keys), dims.add(sizes->head_size, sizes->value_size)));
  if (macs == Dim(0)) return;
  AttentionAttrs attrs;
  attrs.batch = CostCall::number(sizes->batch);
  attrs.heads = CostCall::number(sizes->heads);
  attrs.kv_heads = CostCall::number(sizes->key_heads);
  attrs.seq_q = CostCall::number(sizes->queries);
  attrs.seq_kv = CostCall::number(sizes->keys);
  attrs.head_dim = CostCall::number(sizes->head_size);
  attrs.v_head_dim = CostCall::number(sizes->value_size);
  attrs.causal = attrs.model_flops_causal = sizes->causal;
  attrs.window = sizes->window;
  attrs.softcap = sizes->softcap;
  attrs.position_bias = sizes->position_bias;
  attrs.split = Split::none;
  at.emit(OpKind::attention, attrs, macs,
          {.part = sizes->projection_in != Dim(0) ? std::string_view("attention") : std::string_view(), .inputs = inputs, .outputs = {at.out_id(0)}});
}

void rotary_cost(CostCall& at) {
  const std::size_t input = at.call.node.data->op == "GemmaRotaryEmbedding" ? 1 : 0;
  if (!at.known_in(input)) return at.unresolved();
  // [B, N, S, D], or [B, S, N D] with the number of heads as an attribute; rotary_embedding_dim where only a part of each head is rotated.
  const auto& shape = at.in(input).shape;
  const std::int64_t stated = at.call.attr_int("num_heads", 0), part = at.call.attr_int("rotary_embedding_dim", 0);
  Dim heads = shape.size() == 4 ? shape[1] : Dim(std::max<std::int64_t>(stated, 1)), size = shape.empty() ? Dim(1) : shape.back();
  if (shape.size() == 3 && stated > 0) size = at.dims.floordiv(size, stated);
  const Dim head_elements = at.dims.mul(heads, size);
  if (input != 0 || shape.size() < 3 || at.in_elements(input) == Dim(0) || head_elements == Dim(0)) {
    return at.pointwise(PointwiseKind::rotary, at.in_elements(input), OpKind::elementwise);
  }
  RotaryAttrs attrs;
  attrs.tokens = CostCall::number(at.dims.floordiv(at.in_elements(input), head_elements));
  attrs.heads = CostCall::number(heads);
  attrs.rotary_dim = part > 0 ? part : CostCall::number(size);
  attrs.split = Split::none;
  at.emit(OpKind::rotary, attrs, 0, {.inputs = {at.in_id(input)}});
}

// A mixture of experts: the router's probabilities come in; each token visits k experts of two matrices, three where gated.
void moe_cost(CostCall& at) {
  const bool quantised = at.call.node.data->op == "QMoE";
  const std::size_t first = 2, second = quantised ? 5 : 4, third = quantised ? 8 : 6;
  if (!at.known_in(0) || !at.known_in(1) || !at.known_in(first) || at.in(0).rank() == 0 || at.in(1).rank() == 0 || at.in(first).rank() != 3) return at.unresolved();
  const Dim hidden = at.in(0).shape.back(), tokens = at.dims.floordiv(at.in_elements(0), hidden), experts = at.in(1).shape.back();
  const std::int64_t k = std::max<std::int64_t>(at.call.attr_int("k", 1), 1);
  // fc2 is [experts, hidden, inter] or its transposition; inter is the size that is not hidden. Packed weights hide sizes: inter from the larger of the two.
  const std::int64_t pack = quantised ? 8 / std::max<std::int64_t>(at.call.attr_int("expert_weight_bits", 4), 1) : 1;
  Dim inter = 0;
  if (at.known_in(second) && at.in(second).rank() == 3) {
    const Dim rows = at.in(second).shape[1], cols = at.in(second).shape[2];
    inter = rows == hidden ? at.dims.mul(cols, pack) : cols == hidden ? rows : at.dims.mul(rows, 1);
  } else {
    inter = at.in(first).shape[1];
  }
  const bool gated = at.call.has(third) || at.call.attr_text("activation_type", "relu") == "swiglu";
  struct Projection {
    std::string_view part;
    Dim in, out;
    std::size_t weight;
  };
  const Projection projections[] = {{"up", hidden, inter, first}, {"gate", hidden, inter, third}, {"down", inter, hidden, second}};
  std::uint32_t before = at.in_id(0);
  for (const Projection& projection : projections) {
    if (projection.part == "gate" && !gated) continue;
    LinearAttrs attrs;
    attrs.tokens = CostCall::number(tokens);
    attrs.in = CostCall::number(projection.in);
    attrs.out = CostCall::number(projection.out);
    attrs.experts = CostCall::number(experts);
    attrs.top_k = k;
    attrs.split = Split::none;
    // Packed matrices of all experts, with their scales in the input that follows.
    if (quantised && experts.is_constant() && experts.value > 0) attrs.weight_bytes = at.call.stored_bytes(projection.weight, projection.weight + 1) / experts.value;
    const Dim macs = at.dims.mul(at.dims.mul(tokens, k), at.dims.mul(projection.in, projection.out));
    if (macs == Dim(0)) return;
    const bool last = projection.part == "down";
    const std::uint32_t result = last ? at.out_id(0) : at.internal(at.dims.mul(at.dims.mul(tokens, k), projection.out), at.in(0).elem);
    at.emit(OpKind::grouped_linear, attrs, macs, {.part = projection.part, .inputs = {before}, .outputs = {result}, .weight = at.in_id(projection.weight)});
    if (!last) before = result;
  }
}

}  // namespace rooftile::onnx
