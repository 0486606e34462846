// Attention operators of the standard (opset 23) and of com.microsoft (onnxruntime docs/ContribOperators.md), and their companions.
#include "frontends/onnx/rules/attention.h"

#include "frontends/onnx/rules/rules.h"

namespace rooftile::onnx::rules {
namespace {

Dim divide(Call& call, Dim a, Dim b, std::string_view what) {
  if (b.is_constant() && b.value <= 0) {
    call.fail(std::string(what) + " is " + std::to_string(b.value));
    return 1;
  }
  if (a.is_constant() && b.is_constant() && a.value % b.value != 0) {
    call.fail("width " + std::to_string(a.value) + " is not a multiple of " + std::string(what) + " " + std::to_string(b.value));
    return 1;
  }
  return call.dims.floordiv(a, b);
}

bool rank_is(const Call& call, std::size_t input, std::size_t rank) { return call.ranked(input) && call.in(input).rank() == rank; }
Dim dim(const Call& call, std::size_t input, std::size_t axis) { return call.in(input).shape[axis]; }

// com.microsoft Attention and QAttention: the projection of q, k, v is part of the operator.
std::optional<AttentionSizes> fused_projection(Call& call, std::size_t past) {
  if (!rank_is(call, 0, 3)) return std::nullopt;
  AttentionSizes sizes;
  sizes.heads = sizes.key_heads = call.attr_int("num_heads", 1);
  sizes.batch = dim(call, 0, 0);
  sizes.queries = sizes.new_keys = dim(call, 0, 1);
  Dim key_width = 0, value_width = 0, query_width = 0;
  if (const auto widths = call.attr_ints("qkv_hidden_sizes"); widths && widths->size() == 3) {
    query_width = (*widths)[0];
    key_width = (*widths)[1];
    value_width = (*widths)[2];
  } else if (rank_is(call, 1, 2)) {
    query_width = key_width = value_width = divide(call, dim(call, 1, 1), 3, "the three of q, k and v");
  } else {
    query_width = key_width = value_width = dim(call, 0, 2);
  }
  sizes.projection_in = dim(call, 0, 2);
  sizes.projection_out = call.dims.add(query_width, call.dims.add(key_width, value_width));
  if (rank_is(call, 1, 2)) call.unify(sizes.projection_in, dim(call, 1, 0), "the input's width and the weight's rows");
  sizes.head_size = divide(call, query_width, sizes.heads, "num_heads");
  sizes.value_size = divide(call, value_width, sizes.heads, "num_heads");
  sizes.keys = sizes.queries;
  if (rank_is(call, past, 5)) sizes.keys = call.dims.add(sizes.queries, dim(call, past, 3));  // [2, B, N, P, D]
  sizes.causal = call.attr_int("unidirectional", 0) != 0;
  sizes.position_bias = past == 4 && call.has(5);
  sizes.rotary = call.attr_int("do_rotary", 0) != 0;
  return sizes;
}

std::optional<AttentionSizes> multi_head(Call& call, std::size_t past, std::size_t bias_input) {
  if (!call.ranked(0)) return std::nullopt;
  AttentionSizes sizes;
  sizes.heads = sizes.key_heads = call.attr_int("num_heads", 1);
  const std::size_t rank = call.in(0).rank();
  if (rank == 5) {  // [B, S, N, 3, D]
    sizes.batch = dim(call, 0, 0);
    sizes.queries = sizes.keys = sizes.new_keys = dim(call, 0, 1);
    sizes.heads = sizes.key_heads = dim(call, 0, 2);
    sizes.head_size = sizes.value_size = dim(call, 0, 4);
  } else if (rank == 3) {
    sizes.batch = dim(call, 0, 0);
    sizes.queries = sizes.keys = sizes.new_keys = dim(call, 0, 1);
    sizes.head_size = sizes.value_size = divide(call, dim(call, 0, 2), sizes.heads, "num_heads");
  } else {
    return std::nullopt;
  }
  bool whole_cache = false;
  if (rank_is(call, 1, 5)) {  // [B, L, N, 2, D]
    sizes.new_keys = dim(call, 1, 1);
  } else if (rank_is(call, 1, 4)) {  // [B, N, L, D]: the keys of a cross attention, already cached
    sizes.new_keys = dim(call, 1, 2);
    whole_cache = true;
  } else if (rank_is(call, 1, 3)) {
    sizes.new_keys = dim(call, 1, 1);
  } else if (call.has(1) && !call.ranked(1)) {
    return std::nullopt;
  }
  if (rank_is(call, 2, 4)) sizes.value_size = dim(call, 2, 3);
  if (rank_is(call, 2, 3)) sizes.value_size = divide(call, dim(call, 2, 2), sizes.heads, "num_heads");
  sizes.keys = sizes.new_keys;
  if (!whole_cache && rank_is(call, past, 4)) sizes.keys = call.dims.add(sizes.new_keys, dim(call, past, 2));
  sizes.causal = call.attr_int("unidirectional", 0) != 0;
  sizes.position_bias = call.has(bias_input);
  return sizes;
}

std::optional<AttentionSizes> group_query(Call& call) {
  if (!rank_is(call, 0, 3)) return std::nullopt;
  AttentionSizes sizes;
  sizes.heads = call.attr_int("num_heads", 1);
  sizes.key_heads = call.attr_int("kv_num_heads", call.attr_int("num_heads", 1));
  sizes.batch = dim(call, 0, 0);
  sizes.queries = sizes.new_keys = dim(call, 0, 1);
  const Dim width = dim(call, 0, 2);
  const bool packed = !call.has(1);  // q, k and v side by side: (N + 2 K) D wide
  sizes.head_size = divide(call, width, packed ? call.dims.add(sizes.heads, call.dims.mul(2, sizes.key_heads)) : sizes.heads, "the number of heads");
  sizes.value_size = sizes.head_size;
  if (rank_is(call, 1, 3)) {
    sizes.new_keys = dim(call, 1, 1);
    call.unify(dim(call, 1, 2), call.dims.mul(sizes.key_heads, sizes.head_size), "the key's width and kv_num_heads x head size");
  }
  sizes.keys = sizes.new_keys;
  if (rank_is(call, 3, 4)) sizes.keys = call.dims.add(sizes.new_keys, dim(call, 3, 2));
  if (const auto total = call.in_dim(6)) sizes.keys = *total;  // the cache may be a buffer of its greatest length
  sizes.causal = true;
  sizes.window = std::max<std::int64_t>(call.attr_int("local_window_size", -1), 0);
  sizes.rotary = call.attr_int("do_rotary", 0) != 0;
  sizes.softcap = call.attr_float("softcap", 0) > 0;
  sizes.position_bias = call.has(10);
  return sizes;
}

std::optional<AttentionSizes> standard(Call& call) {
  if (!call.ranked(0) || !call.ranked(1) || !call.ranked(2)) return std::nullopt;
  AttentionSizes sizes;
  const std::size_t rank = call.in(0).rank();
  if (rank != call.in(1).rank() || rank != call.in(2).rank() || (rank != 3 && rank != 4)) {
    call.fail("query " + call.shape_text(call.in(0)) + ", key " + call.shape_text(call.in(1)) + " and value " + call.shape_text(call.in(2)) + " are neither all 3-D nor all 4-D");
    return std::nullopt;
  }
  sizes.rank = rank;
  sizes.batch = dim(call, 0, 0);
  if (rank == 4) {
    sizes.heads = dim(call, 0, 1);
    sizes.key_heads = dim(call, 1, 1);
    sizes.queries = dim(call, 0, 2);
    sizes.new_keys = dim(call, 1, 2);
    sizes.head_size = dim(call, 0, 3);
    sizes.value_size = dim(call, 2, 3);
  } else {
    const std::int64_t heads = call.attr_int("q_num_heads", 0), key_heads = call.attr_int("kv_num_heads", 0);
    if (heads <= 0 || key_heads <= 0) {
      call.fail("3-D inputs need q_num_heads and kv_num_heads");
      return std::nullopt;
    }
    sizes.heads = heads;
    sizes.key_heads = key_heads;
    sizes.queries = dim(call, 0, 1);
    sizes.new_keys = dim(call, 1, 1);
    sizes.head_size = divide(call, dim(call, 0, 2), heads, "q_num_heads");
    sizes.value_size = divide(call, dim(call, 2, 2), key_heads, "kv_num_heads");
  }
  sizes.keys = sizes.new_keys;
  if (rank_is(call, 4, 4)) sizes.keys = call.dims.add(sizes.new_keys, dim(call, 4, 2));
  sizes.causal = call.attr_int("is_causal", 0) != 0;
  sizes.position_bias = call.has(3);
  sizes.softcap = call.attr_float("softcap", 0) > 0;
  return sizes;
}

}  // namespace

std::optional<AttentionSizes> attention_sizes(Call& call) {
  const std::string_view op = call.node.data->op;
  if (call.node.data->domain.empty() || call.node.data->domain == "ai.onnx") return standard(call);
  if (op == "Attention") return fused_projection(call, 4);
  if (op == "QAttention") return fused_projection(call, 8);
  if (op == "GroupQueryAttention") return group_query(call);
  if (op == "DecoderMaskedMultiHeadAttention") return multi_head(call, 5, 4);
  return multi_head(call, 6, 5);
}

void attention_shape(Call& call) {
  const Elem elem = call.node.data->op == "QAttention" && call.in(3).elem != Elem::undefined ? call.in(3).elem : call.in(0).elem;
  for (std::size_t i = 0; i < call.output_count(); ++i) call.set_type(i, elem);
  const auto sizes = attention_sizes(call);
  if (!sizes || call.failed()) return;
  const std::string_view op = call.node.data->op;
  const bool standard_op = call.node.data->domain.empty() || call.node.data->domain == "ai.onnx";
  if (sizes->rank == 4) {
    call.set(0, elem, {sizes->batch, sizes->heads, sizes->queries, sizes->value_size});
  } else {
    call.set(0, elem, {sizes->batch, sizes->queries, call.dims.mul(sizes->heads, sizes->value_size)});
  }
  if (!standard_op && (op == "Attention" || op == "QAttention")) {
    if (call.output_count() > 1) call.set(1, elem, {2, sizes->batch, sizes->heads, sizes->keys, sizes->head_size});
    return;
  }
  if (call.output_count() > 1) call.set(1, elem, {sizes->batch, sizes->key_heads, sizes->keys, sizes->head_size});
  if (call.output_count() > 2) call.set(2, elem, {sizes->batch, sizes->key_heads, sizes->keys, sizes->value_size});
  if (call.output_count() > 3) call.set(3, elem, {sizes->batch, sizes->heads, sizes->queries, sizes->keys});
}

// com.microsoft PackedMultiHeadAttention and friends keep tokens in one dimension.
void packed_attention(Call& call) { call.same(0, 0); }

void embed_layer_norm(Call& call) {
  const Elem elem = call.in(2).elem;
  for (std::size_t i = 0; i < call.output_count(); ++i) call.set_type(i, i == 1 ? Elem::int32 : elem);
  if (!rank_is(call, 0, 2) || !rank_is(call, 2, 2)) return;
  const std::vector<Dim> shape{dim(call, 0, 0), dim(call, 0, 1), dim(call, 2, 1)};
  call.set(0, elem, shape);
  call.set(1, Elem::int32, {dim(call, 0, 0)});
  call.set(2, elem, shape);
}

void skip_layer_norm(Call& call) {
  call.same(0, 0);
  for (std::size_t i = 1; i < call.output_count(); ++i) {
    call.same(i, 0);
    if (i < 3) {
      call.set_type(i, Elem::float32);
      if (call.out(i).ranked && !call.out(i).shape.empty()) call.out(i).shape.back() = 1;
    }
  }
}

void layer_norm(Call& call) {
  call.same(0, 0);
  if (call.has(1) && call.in(1).elem != Elem::undefined && call.in(0).elem == Elem::undefined) call.set_type(0, call.in(1).elem);
  std::size_t axis = 0;
  if (!call.ranked(0) || call.in(0).rank() == 0 || !call.axis_of(call.attr_int("axis", -1), call.in(0).rank(), axis)) return;
  for (std::size_t i = 1; i < call.output_count(); ++i) {
    call.same(i, 0);
    if (call.has_attr("stash_type")) call.set_type(i, elem_of(call.attr_int("stash_type", 1)));
    for (std::size_t d = axis; d < call.out(i).shape.size(); ++d) call.out(i).shape[d] = 1;
  }
}

void half_last(Call& call) {
  call.same(0, 0);
  if (call.out(0).ranked && !call.out(0).shape.empty()) call.out(0).shape.back() = call.dims.floordiv(call.out(0).shape.back(), 2);
}

// LSTM, GRU, RNN.
void recurrent(Call& call) {
  const TensorInfo &x = call.in(0), &r = call.in(2);
  for (std::size_t i = 0; i < 3; ++i) call.set_type(i, x.elem);
  if (!rank_is(call, 0, 3)) return;
  const bool batch_first = call.attr_int("layout", 0) != 0;
  const Dim steps = x.shape[batch_first ? 1 : 0], batch = x.shape[batch_first ? 0 : 1];
  Dim hidden = call.attr_int("hidden_size", 0);
  if (hidden == Dim(0) && r.ranked && r.rank() == 3) hidden = r.shape[2];
  Dim directions = call.attr_text("direction", "forward") == "bidirectional" ? 2 : 1;
  if (rank_is(call, 1, 3)) call.unify(call.in(1).shape[2], x.shape[2], "the input's width and the weight's");
  if (call.failed()) return;
  if (batch_first) {
    call.set(0, x.elem, {batch, steps, directions, hidden});
    for (std::size_t i = 1; i < 3; ++i) call.set(i, x.elem, {batch, directions, hidden});
  } else {
    call.set(0, x.elem, {steps, directions, batch, hidden});
    for (std::size_t i = 1; i < 3; ++i) call.set(i, x.elem, {directions, batch, hidden});
  }
}

// com.microsoft GatherBlockQuantized: the data's last dimension may be packed two to a byte.
void gather_block_quantized(Call& call) {
  gather(call);
  call.out(0).value = nullptr;
  call.set_type(0, call.in(2).elem);
  TensorInfo& out = call.out(0);
  if (out.ranked && !out.shape.empty() && call.in(0).elem == Elem::uint8 && call.attr_int("bits", 4) == 4) out.shape.back() = call.dims.mul(out.shape.back(), 2);
}

void matmul_fast_gelu(Call& call) { matmul(call); }

}  // namespace rooftile::onnx::rules
