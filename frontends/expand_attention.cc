#include "frontends/expand_layers.h"
#include "frontends/model_words.h"

namespace rooftile {
namespace {

struct Heads {
  TensorId q, k, v;
};

// Queries, keys and values from one fused matmul or three. A fused one has three outputs: they are parts of one buffer, and each is kept or dropped by itself.
Heads project(GraphBuilder& builder, const Stack& stack, TensorId x) {
  const ModelSpec& spec = stack.spec;
  const std::int64_t q_width = builder.product("q", {stack.heads, stack.head_dim});
  const std::int64_t k_width = builder.product("k", {stack.kv_heads, stack.head_dim});
  const std::int64_t v_width = builder.product("v", {stack.kv_heads, stack.v_head_dim});
  const bool one_bias = spec.bias.key || !spec.bias.qkv;
  if (spec.fused_qkv && one_bias) {
    const Heads heads = {builder.tensor("qkv", {stack.tokens, q_width}, Split::column), builder.tensor("qkv", {stack.tokens, k_width}, Split::column),
                         builder.tensor("qkv", {stack.tokens, v_width}, Split::column)};
    const std::int64_t out = builder.sum("qkv", q_width, builder.sum("qkv", k_width, v_width));
    builder.linear({"qkv", stack.tokens, spec.hidden, out, Split::column, spec.bias.qkv}, x, {heads.q, heads.k, heads.v});
    return heads;
  }
  Heads heads{};
  heads.q = builder.linear({"q", stack.tokens, spec.hidden, q_width, Split::column, spec.bias.qkv}, x);
  heads.k = builder.linear({"k", stack.tokens, spec.hidden, k_width, Split::column, spec.bias.qkv && spec.bias.key}, x);
  heads.v = builder.linear({"v", stack.tokens, spec.hidden, v_width, Split::column, spec.bias.qkv}, x);
  return heads;
}

void add_qk_norms(GraphBuilder& builder, const Stack& stack, Heads& heads) {
  if (!stack.spec.qk_norm) return;
  const OpKind kind = stack.spec.norm == NormKind::rmsnorm ? OpKind::rmsnorm : OpKind::layernorm;
  const bool bias = kind == OpKind::layernorm && stack.spec.norm_bias;
  if (stack.spec.qk_norm_full) {
    heads.q = builder.norm(kind, "q_norm", heads.q, stack.tokens, builder.product("q_norm", {stack.heads, stack.head_dim}), bias, Split::column);
    heads.k = builder.norm(kind, "k_norm", heads.k, stack.tokens, builder.product("k_norm", {stack.kv_heads, stack.head_dim}), bias, Split::column);
    return;
  }
  heads.q = builder.norm(kind, "q_norm", heads.q, builder.product("q_norm", {stack.tokens, stack.heads}), stack.head_dim, bias, Split::column, stack.head_dim);
  heads.k = builder.norm(kind, "k_norm", heads.k, builder.product("k_norm", {stack.tokens, stack.kv_heads}), stack.head_dim, bias, Split::column, stack.head_dim);
}

void add_rotary(GraphBuilder& builder, const Stack& stack, Heads& heads) {
  if (stack.spec.positions != PositionKind::rope) return;
  RotaryAttrs rotary;
  rotary.tokens = stack.tokens;
  rotary.heads = stack.heads;
  rotary.kv_heads = stack.kv_heads;
  const double fraction = stack.spec.rotary_fraction;
  rotary.rotary_dim = fraction >= 1 ? stack.head_dim : static_cast<std::int64_t>(static_cast<double>(stack.head_dim) * fraction);
  rotary.head_dim = stack.head_dim;
  const TensorId q = builder.tensor("rotary", {stack.tokens, stack.heads, stack.head_dim}, Split::column);
  const TensorId k = builder.tensor("rotary", {stack.tokens, stack.kv_heads, stack.head_dim}, Split::column);
  builder.op(OpKind::rotary, "rotary", rotary, {heads.q, heads.k}, {q, k});
  heads.q = q;
  heads.k = k;
}

AttentionAttrs attention_attrs(const Stack& stack, LayerVariant variant) {
  const ModelSpec& spec = stack.spec;
  AttentionAttrs attrs;
  attrs.batch = stack.batch;
  attrs.heads = stack.heads;
  attrs.kv_heads = stack.kv_heads;
  attrs.seq_q = stack.seq_q;
  attrs.seq_kv = stack.seq_kv;
  attrs.head_dim = stack.head_dim;
  attrs.v_head_dim = stack.v_head_dim;
  attrs.causal = stack.causal;
  attrs.model_flops_causal = stack.causal;
  if (variant.kind == LayerKind::local && spec.sliding_window < stack.seq_kv) attrs.window = spec.sliding_window;
  attrs.sinks = spec.attention_sinks;
  attrs.softcap = spec.attention_softcap;
  // The learned-position families of GPT-2, BERT and Whisper, T5 and GPT-OSS leave the softmax in the dtype of the scores; all later ones, OPT (relu) and ViT cast up.
  const bool plain = spec.positions == PositionKind::learned && spec.norm == NormKind::layernorm && spec.activation != ActivationKind::relu && spec.kind != ModelKind::vision;
  attrs.fp32_softmax = !plain && spec.positions != PositionKind::relative && !spec.attention_sinks;
  attrs.padding_mask = spec.kind == ModelKind::encoder;
  attrs.position_bias = spec.positions == PositionKind::alibi || spec.positions == PositionKind::relative;
  return attrs;
}

void write_cache(GraphBuilder& builder, const Stack& stack, const Heads& heads) {
  if (!stack.cache) return;
  CacheWriteAttrs cache;
  cache.tokens = stack.tokens;
  cache.elements_per_token = builder.product("cache_write", {stack.kv_heads, builder.sum("cache_write", stack.head_dim, stack.v_head_dim)});
  builder.op(OpKind::cache_write, "cache_write", cache, {heads.k, heads.v}, {});
}

}  // namespace

TensorId add_attention(GraphBuilder& builder, const Stack& stack, LayerVariant variant, TensorId x) {
  const ModelSpec& spec = stack.spec;
  if (spec.mla.kv_lora_rank > 0) return add_latent_attention(builder, stack, x);
  Heads heads = project(builder, stack, x);
  add_qk_norms(builder, stack, heads);
  add_rotary(builder, stack, heads);
  write_cache(builder, stack, heads);
  const std::int64_t width = builder.product("attention", {stack.heads, stack.v_head_dim});
  const TensorId mixed = builder.tensor("attention", {stack.tokens, width}, Split::column);
  builder.op(OpKind::attention, "attention", attention_attrs(stack, variant), {heads.q, heads.k, heads.v}, {mixed});
  return builder.linear({"attention_out", stack.tokens, width, spec.hidden, Split::row, spec.bias.attention_out}, mixed);
}

TensorId add_cross_attention(GraphBuilder& builder, const Stack& stack, TensorId x) {
  const ModelSpec& spec = stack.spec;
  const std::int64_t q_width = builder.product("cross_q", {stack.heads, stack.head_dim});
  const std::int64_t kv_width = builder.product("cross_k", {stack.kv_heads, stack.head_dim});
  const std::int64_t source_tokens = builder.product("cross_k", {stack.batch, stack.cross_seq});
  const TensorId q = builder.linear({"cross_q", stack.tokens, spec.hidden, q_width, Split::column, spec.bias.qkv}, x);
  // In decode the keys and values of the encoder's output were projected once, with the prompt: the weights stay, the work is none.
  const std::int64_t projected = stack.cross_cached ? 0 : source_tokens;
  const TensorId k = builder.tensor("cross_k", {source_tokens, kv_width}, Split::column);
  const TensorId v = builder.tensor("cross_v", {source_tokens, kv_width}, Split::column);
  builder.linear({"cross_k", projected, spec.hidden, kv_width, Split::column, spec.bias.qkv && spec.bias.key}, stack.cross, {k});
  builder.linear({"cross_v", projected, spec.hidden, kv_width, Split::column, spec.bias.qkv}, stack.cross, {v});
  if (stack.cache) {
    CacheWriteAttrs cache;
    cache.tokens = projected;  // in decode nothing is written, yet the cache is there
    cache.elements_per_token = builder.product("cross_cache_write", {2, kv_width});
    builder.op(OpKind::cache_write, "cross_cache_write", cache, {k, v}, {});
  }
  AttentionAttrs attrs = attention_attrs(stack, {});
  attrs.seq_kv = stack.cross_seq;
  attrs.causal = attrs.model_flops_causal = attrs.position_bias = false;
  const TensorId mixed = builder.tensor("cross_attention", {stack.tokens, q_width}, Split::column);
  builder.op(OpKind::attention, "cross_attention", attrs, {q, k, v}, {mixed});
  return builder.linear({"cross_attention_out", stack.tokens, q_width, spec.hidden, Split::row, spec.bias.attention_out}, mixed);
}

// DeepSeek-V2 (arXiv 2405.04434, section 2.1): keys and values come from one compressed vector per token, which with the shared rotary key is all that is cached. With all
// tokens at hand the compressed vectors are expanded to heads; a decoder that reads a long cache instead multiplies the expansion into the query and the output (its
// section 2.1.2), so that one "KV head" of kv_lora_rank + qk_rope_head_dim serves all query heads.
TensorId add_latent_attention(GraphBuilder& builder, const Stack& stack, TensorId x) {
  const ModelSpec& spec = stack.spec;
  const MlaSpec& mla = spec.mla;
  const OpKind norm = spec.norm == NormKind::rmsnorm ? OpKind::rmsnorm : OpKind::layernorm;
  const std::int64_t q_width = builder.product("q", {stack.heads, stack.head_dim});
  const std::int64_t v_width = builder.product("v", {stack.heads, mla.v_head_dim});
  const std::int64_t nope_width = builder.product("kv_b", {stack.heads, mla.qk_nope_head_dim});
  const std::int64_t cached = builder.sum("kv_a", mla.kv_lora_rank, mla.qk_rope_head_dim);
  TensorId q;
  if (mla.q_lora_rank > 0) {
    const TensorId q_a = builder.linear({"q_a", stack.tokens, spec.hidden, mla.q_lora_rank, Split::none, spec.bias.qkv}, x);
    const TensorId normed = builder.norm(norm, "q_a_norm", q_a, stack.tokens, mla.q_lora_rank, false, Split::none);
    q = builder.linear({"q_b", stack.tokens, mla.q_lora_rank, q_width, Split::column, false}, normed);
  } else {
    q = builder.linear({"q", stack.tokens, spec.hidden, q_width, Split::column, false}, x);
  }
  const TensorId compressed = builder.tensor("kv_a", {stack.tokens, mla.kv_lora_rank}, Split::none);
  const TensorId rotary_key = builder.tensor("kv_a", {stack.tokens, mla.qk_rope_head_dim}, Split::none);
  builder.linear({"kv_a", stack.tokens, spec.hidden, cached, Split::none, spec.bias.qkv}, x, {compressed, rotary_key});
  const TensorId latent = builder.norm(norm, "kv_a_norm", compressed, stack.tokens, mla.kv_lora_rank, false, Split::none);

  RotaryAttrs rotary;
  rotary.tokens = stack.tokens;
  rotary.heads = stack.heads;
  rotary.kv_heads = 1;
  rotary.rotary_dim = mla.qk_rope_head_dim;
  AttentionAttrs attrs = attention_attrs(stack, {});
  CacheWriteAttrs cache;
  cache.tokens = stack.tokens;
  cache.elements_per_token = cached;
  cache.split = Split::none;
  const TensorId mixed = builder.tensor("attention", {stack.tokens, v_width}, Split::column);

  if (!stack.decode) {
    const TensorId k_nope = builder.tensor("kv_b", {stack.tokens, nope_width}, Split::column);
    const TensorId v = builder.tensor("kv_b", {stack.tokens, v_width}, Split::column);
    builder.linear({"kv_b", stack.tokens, mla.kv_lora_rank, builder.sum("kv_b", nope_width, v_width), Split::column, false}, latent, {k_nope, v});
    const TensorId rotated_q = builder.tensor("rotary", {stack.tokens, q_width}, Split::column);
    const TensorId k = builder.tensor("rotary", {stack.tokens, q_width}, Split::column);
    builder.op(OpKind::rotary, "rotary", rotary, {q, rotary_key, k_nope}, {rotated_q, k});
    if (stack.cache) builder.op(OpKind::cache_write, "cache_write", cache, {latent, rotary_key}, {});
    builder.op(OpKind::attention, "attention", attrs, {rotated_q, k, v}, {mixed});
  } else {
    LinearAttrs absorb;  // one small matrix per head: the two halves of kv_b
    absorb.tokens = stack.tokens;
    absorb.experts = absorb.top_k = stack.heads;
    absorb.in = mla.qk_nope_head_dim;
    absorb.out = mla.kv_lora_rank;
    absorb.split = Split::column;
    const TensorId rotated_q = builder.tensor("rotary", {stack.tokens, q_width}, Split::column);
    const TensorId k = builder.tensor("rotary", {stack.tokens, mla.qk_rope_head_dim}, Split::none);
    builder.op(OpKind::rotary, "rotary", rotary, {q, rotary_key}, {rotated_q, k});
    builder.op(OpKind::cache_write, "cache_write", cache, {latent, k}, {});
    const TensorId wide_q = builder.tensor("kv_b_query", {stack.tokens, stack.heads, cached}, Split::column);
    builder.op(OpKind::grouped_linear, "kv_b_query", absorb, {rotated_q}, {wide_q});
    attrs.kv_heads = 1;
    attrs.head_dim = cached;
    attrs.v_head_dim = mla.kv_lora_rank;
    const TensorId wide = builder.tensor("attention", {stack.tokens, stack.heads, mla.kv_lora_rank}, Split::column);
    builder.op(OpKind::attention, "attention", attrs, {wide_q, latent, k}, {wide});
    absorb.in = mla.kv_lora_rank;
    absorb.out = mla.v_head_dim;
    builder.op(OpKind::grouped_linear, "kv_b_value", absorb, {wide}, {mixed});
  }
  return builder.linear({"attention_out", stack.tokens, v_width, spec.hidden, Split::row, spec.bias.attention_out}, mixed);
}

}  // namespace rooftile
