#include "frontends/expand_layers.h"

#include "frontends/model_words.h"

namespace rooftile {
namespace {

PointwiseKind activation_kernel(ActivationKind activation) {
  switch (activation) {
    case ActivationKind::gelu:
      return PointwiseKind::gelu;
    case ActivationKind::gelu_new:
      return PointwiseKind::gelu_new;
    case ActivationKind::relu:
      return PointwiseKind::relu;
    case ActivationKind::silu:
      return PointwiseKind::silu;
    case ActivationKind::swiglu:
      return PointwiseKind::silu_mul;
    case ActivationKind::geglu:
      return PointwiseKind::gelu_mul;
  }
  return PointwiseKind::gelu;
}

// Names of the operators of one feed-forward block; the shared experts of a mixture are a second block of the same form.
struct FeedForwardNames {
  std::string_view gate_up, gate, up, down, plain_up, plain_down, activation;
};
constexpr FeedForwardNames kOwn = {"gate_up", "gate", "up", "down", "fc1", "fc2", "act"};
constexpr FeedForwardNames kShared = {"shared_gate_up", "shared_gate", "shared_up", "shared_down", "shared_fc1", "shared_fc2", "shared_act"};

TensorId add_dense(GraphBuilder& builder, const Stack& stack, std::int64_t width, const FeedForwardNames& names, TensorId x) {
  const ModelSpec& spec = stack.spec;
  const PointwiseKind function = activation_kernel(spec.activation);
  if (!is_gated(spec.activation)) {
    const TensorId up = builder.linear({names.plain_up, stack.tokens, spec.hidden, width, Split::column, spec.bias.ffn}, x);
    const TensorId active = builder.pointwise(OpKind::activation, names.activation, function, {up}, {stack.tokens, width}, Split::column);
    return builder.linear({names.plain_down, stack.tokens, width, spec.hidden, Split::row, spec.bias.ffn}, active);
  }
  TensorId gate, up;
  if (spec.fused_gate_up) {
    gate = builder.tensor(names.gate_up, {stack.tokens, width}, Split::column);
    up = builder.tensor(names.gate_up, {stack.tokens, width}, Split::column);
    builder.linear({names.gate_up, stack.tokens, spec.hidden, builder.product(names.gate_up, {2, width}), Split::column, spec.bias.ffn}, x, {gate, up});
  } else {
    gate = builder.linear({names.gate, stack.tokens, spec.hidden, width, Split::column, spec.bias.ffn}, x);
    up = builder.linear({names.up, stack.tokens, spec.hidden, width, Split::column, spec.bias.ffn}, x);
  }
  const TensorId active = builder.pointwise(OpKind::gated_activation, names.activation, function, {gate, up}, {stack.tokens, width}, Split::column);
  return builder.linear({names.down, stack.tokens, width, spec.hidden, Split::row, spec.bias.ffn}, active);
}

TensorId add_mixture(GraphBuilder& builder, const Stack& stack, TensorId x) {
  const ModelSpec& spec = stack.spec;
  const MoeSpec& moe = spec.moe;
  const bool gated = is_gated(spec.activation);

  LinearAttrs router;
  router.tokens = stack.tokens;
  router.in = spec.hidden;
  router.out = moe.experts;
  router.bias = moe.router_bias;
  router.router = true;
  router.split = Split::none;
  const TensorId scores = builder.tensor("router", {stack.tokens, moe.experts});
  builder.op(OpKind::linear, "router", router, {x}, {scores});
  RouterAttrs choice;
  choice.tokens = stack.tokens;
  choice.experts = moe.experts;
  choice.top_k = moe.top_k;
  const TensorId weights = builder.tensor("router_top_k", {stack.tokens, moe.top_k});
  builder.op(OpKind::router, "router_top_k", choice, {scores}, {weights});

  MoeMoveAttrs move;
  move.tokens = stack.tokens;
  move.hidden = spec.hidden;
  move.top_k = moe.top_k;
  const TensorId spread = builder.tensor("dispatch", {stack.tokens, moe.top_k, spec.hidden});
  builder.op(OpKind::moe_move, "dispatch", move, {x, weights}, {spread});

  LinearAttrs expert;
  expert.tokens = stack.tokens;
  expert.experts = moe.experts;
  expert.top_k = moe.top_k;
  expert.bias = moe.expert_bias;
  expert.split = Split::expert;
  expert.in = spec.hidden;
  expert.out = builder.product("experts_up", {gated ? 2 : 1, moe.expert_hidden});
  TensorId active;
  if (gated) {
    const TensorId gate = builder.tensor("experts_gate_up", {stack.tokens, moe.top_k, moe.expert_hidden}, Split::expert);
    const TensorId up = builder.tensor("experts_gate_up", {stack.tokens, moe.top_k, moe.expert_hidden}, Split::expert);
    builder.op(OpKind::grouped_linear, "experts_gate_up", expert, {spread}, {gate, up});
    active =
        builder.pointwise(OpKind::gated_activation, "experts_act", activation_kernel(spec.activation), {gate, up}, {stack.tokens, moe.top_k, moe.expert_hidden}, Split::expert);
  } else {
    const TensorId up = builder.tensor("experts_up", {stack.tokens, moe.top_k, moe.expert_hidden}, Split::expert);
    builder.op(OpKind::grouped_linear, "experts_up", expert, {spread}, {up});
    active = builder.pointwise(OpKind::activation, "experts_act", activation_kernel(spec.activation), {up}, {stack.tokens, moe.top_k, moe.expert_hidden}, Split::expert);
  }
  expert.in = moe.expert_hidden;
  expert.out = spec.hidden;
  const TensorId back = builder.tensor("experts_down", {stack.tokens, moe.top_k, spec.hidden});
  builder.op(OpKind::grouped_linear, "experts_down", expert, {active}, {back});
  move.combine = true;
  TensorId y = builder.tensor("combine", {stack.tokens, spec.hidden});
  builder.op(OpKind::moe_move, "combine", move, {back, weights}, {y});

  if (moe.shared_experts > 0) {
    const std::int64_t width = builder.product("shared_up", {moe.shared_experts, moe.shared_hidden});
    TensorId shared = add_dense(builder, stack, width, kShared, x);
    if (moe.shared_gate) {
      const TensorId gate = builder.linear({"shared_weight", stack.tokens, spec.hidden, 1, Split::none, false}, x);
      shared = builder.pointwise(OpKind::elementwise, "shared_scale", PointwiseKind::mul, {shared, gate}, {stack.tokens, spec.hidden});
    }
    y = builder.pointwise(OpKind::residual, "shared_add", PointwiseKind::add, {y, shared}, {stack.tokens, spec.hidden});
  }
  return y;
}

}  // namespace

Stack stack_of(GraphBuilder& builder, const ModelSpec& spec, const Options& options, std::int64_t seq) {
  Stack stack{spec};
  const bool decode = options.phase == Phase::decode;
  const bool cached = decode || options.phase == Phase::prefill;
  stack.batch = options.mbs;
  stack.seq_q = decode ? 1 : seq;
  stack.seq_kv = cached ? builder.sum("attention", stack.seq_q, options.context) : stack.seq_q;
  stack.tokens = builder.product("embedding", {stack.batch, stack.seq_q});
  stack.heads = spec.heads;
  stack.kv_heads = spec.kv_heads;
  stack.head_dim = spec.head_dim;
  stack.v_head_dim = spec.v_head_dim;
  stack.ffn_hidden = spec.ffn_hidden;
  stack.causal = spec.kind == ModelKind::decoder || spec.kind == ModelKind::encoder_decoder || spec.kind == ModelKind::speech;
  stack.cache = cached && stack.causal;
  stack.decode = decode;
  stack.dropout = options.phase == Phase::train && spec.dropout > 0;
  return stack;
}

TensorId add_norm(GraphBuilder& builder, const Stack& stack, std::string_view name, TensorId x) {
  const bool layernorm = stack.spec.norm == NormKind::layernorm;
  return builder.norm(layernorm ? OpKind::layernorm : OpKind::rmsnorm, name, x, stack.tokens, stack.spec.hidden, layernorm && stack.spec.norm_bias);
}

TensorId add_dropout(GraphBuilder& builder, const Stack& stack, std::string_view name, TensorId x) {
  if (!stack.dropout) return x;
  return builder.pointwise(OpKind::dropout, name, PointwiseKind::dropout, {x}, {stack.tokens, stack.spec.hidden});
}

TensorId add_feed_forward(GraphBuilder& builder, const Stack& stack, bool mixture, TensorId x) {
  return mixture ? add_mixture(builder, stack, x) : add_dense(builder, stack, stack.ffn_hidden, kOwn, x);
}

TensorId add_layer(GraphBuilder& builder, const Stack& stack, LayerVariant variant, TensorId x) {
  const ModelSpec& spec = stack.spec;
  const auto residual = [&](std::string_view name, TensorId a, TensorId b) {
    return builder.pointwise(OpKind::residual, name, PointwiseKind::add, {a, b}, {stack.tokens, spec.hidden});
  };
  if (spec.parallel_residual) {
    const TensorId normed = add_norm(builder, stack, "attention_norm", x);
    const TensorId ffn_in = spec.shared_parallel_norm ? normed : add_norm(builder, stack, "ffn_norm", x);
    const TensorId attention = add_dropout(builder, stack, "attention_dropout", add_attention(builder, stack, variant, normed));
    const TensorId ffn = add_dropout(builder, stack, "ffn_dropout", add_feed_forward(builder, stack, variant.mixture, ffn_in));
    return residual("residual2", x, residual("residual1", attention, ffn));
  }
  // Pre-norm: x + f(norm(x)). Post-norm (BERT): norm(x + f(x)). With post_norms (Gemma 2): x + norm(f(norm(x))).
  TensorId branch = spec.post_norm ? x : add_norm(builder, stack, "attention_norm", x);
  branch = add_dropout(builder, stack, "attention_dropout", add_attention(builder, stack, variant, branch));
  if (spec.post_norms) branch = add_norm(builder, stack, "attention_post_norm", branch);
  x = residual("residual1", x, branch);
  if (spec.post_norm) x = add_norm(builder, stack, "attention_norm", x);
  if (stack.cross_seq > 0) {
    branch = spec.post_norm ? x : add_norm(builder, stack, "cross_attention_norm", x);
    branch = add_dropout(builder, stack, "cross_attention_dropout", add_cross_attention(builder, stack, branch));
    x = residual("cross_residual", x, branch);
    if (spec.post_norm) x = add_norm(builder, stack, "cross_attention_norm", x);
  }
  branch = spec.post_norm ? x : add_norm(builder, stack, "ffn_norm", x);
  branch = add_dropout(builder, stack, "ffn_dropout", add_feed_forward(builder, stack, variant.mixture, branch));
  if (spec.post_norms) branch = add_norm(builder, stack, "ffn_post_norm", branch);
  x = residual("residual2", x, branch);
  return spec.post_norm ? add_norm(builder, stack, "ffn_norm", x) : x;
}

}  // namespace rooftile
