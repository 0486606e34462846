// The parts of a transformer that expand() puts together: attention, feed-forward, layers, heads.
#pragma once

#include <cstdint>
#include <string_view>

#include "estimator/graph/graph.h"
#include "estimator/passes/options.h"
#include "frontends/graph_builder.h"
#include "frontends/model_spec.h"

namespace rooftile {

// One stack of layers as its parts see it. Sizes are those of one micro-batch.
struct Stack {
  const ModelSpec& spec;
  std::int64_t batch = 1;
  std::int64_t seq_q = 1;   // new tokens of a sequence
  std::int64_t seq_kv = 1;  // tokens they attend to, cached ones included
  std::int64_t tokens = 1;  // batch x seq_q
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0, v_head_dim = 0, ffn_hidden = 0;
  bool causal = true;
  bool cache = false;    // keys and values are written to a KV cache
  bool decode = false;   // one new token: MLA runs in its absorbed form
  bool dropout = false;  // training with dropout
  // Cross attention: tokens of the encoder's output, 0 without; its tensor; whether keys and values of it are cached already.
  std::int64_t cross_seq = 0;
  TensorId cross = 0;
  bool cross_cached = false;
};

struct LayerVariant {
  LayerKind kind = LayerKind::global;
  bool mixture = false;
};

Stack stack_of(GraphBuilder& builder, const ModelSpec& spec, const Options& options, std::int64_t seq);

// attention(normed x): from the projections to the output projection. Names of its operators begin with q, k, v, ... or cross_.
TensorId add_attention(GraphBuilder& builder, const Stack& stack, LayerVariant variant, TensorId x);
TensorId add_cross_attention(GraphBuilder& builder, const Stack& stack, TensorId x);
TensorId add_latent_attention(GraphBuilder& builder, const Stack& stack, TensorId x);  // DeepSeek's MLA

TensorId add_feed_forward(GraphBuilder& builder, const Stack& stack, bool mixture, TensorId x);

TensorId add_norm(GraphBuilder& builder, const Stack& stack, std::string_view name, TensorId x);
TensorId add_dropout(GraphBuilder& builder, const Stack& stack, std::string_view name, TensorId x);

// One layer: norms, attention, feed-forward, residuals, in the order that the model has. Returns its output.
TensorId add_layer(GraphBuilder& builder, const Stack& stack, LayerVariant variant, TensorId x);

// Logits and, in training, the loss, from the last layer's output: the last segment of every model.
void add_head(GraphBuilder& builder, const Stack& stack, const Options& options, TensorId x);

}  // namespace rooftile
