#include "frontends/expand_layers.h"
#include "frontends/model_words.h"

namespace rooftile {
namespace {

// The output of a whole model, [batch, seq, width] or [batch, width].
void set_output(GraphBuilder& builder, std::string_view name, TensorId tensor, std::initializer_list<std::int64_t> shape) {
  Graph& graph = builder.graph();
  graph.tensors[tensor].role = TensorRole::output;
  graph.model.outputs.push_back({std::string(name), graph.tensors[tensor].dtype, shape});
}

void add_loss(GraphBuilder& builder, TensorId logits, std::int64_t tokens, std::int64_t classes, Split split, bool upcast) {
  CrossEntropyAttrs loss;
  loss.tokens = tokens;
  loss.vocab = classes;
  loss.split = split;
  loss.upcast = upcast;
  builder.op(OpKind::cross_entropy, "loss", loss, {logits}, {builder.tensor("loss", {1}, Split::none)});
}

// One row per sequence: the first token for a classifier, the last for generation. A view.
TensorId pick_token(GraphBuilder& builder, const Stack& stack, std::string_view name, TensorId x) {
  if (stack.seq_q == 1) return x;
  const TensorId picked = builder.tensor(name, {stack.batch, stack.spec.hidden});
  builder.op(OpKind::free, name, FreeAttrs{}, {x}, {picked});
  return picked;
}

TensorId add_pooler(GraphBuilder& builder, const Stack& stack, TensorId x) {
  const ModelSpec& spec = stack.spec;
  const TensorId first = pick_token(builder, stack, "first_token", x);
  const TensorId dense = builder.linear({"pooler", stack.batch, spec.hidden, spec.hidden, Split::none, true}, first);
  return builder.pointwise(OpKind::activation, "pooler_act", PointwiseKind::tanh, {dense}, {stack.batch, spec.hidden}, Split::none);
}

void add_classifier(GraphBuilder& builder, const Stack& stack, const Options& options, TensorId x) {
  const ModelSpec& spec = stack.spec;
  const bool decoder = spec.kind == ModelKind::decoder;
  const std::int64_t labels = spec.kind == ModelKind::vision ? spec.vision.labels : spec.labels;
  const TensorId token = spec.pooler ? add_pooler(builder, stack, x) : pick_token(builder, stack, decoder ? "last_token" : "first_token", x);
  const TensorId logits = builder.linear({"classifier", stack.batch, spec.hidden, labels, Split::none, !decoder}, token);
  set_output(builder, "logits", logits, {stack.batch, labels});
  if (options.phase == Phase::train) add_loss(builder, logits, stack.batch, labels, Split::none, false);
}

// dense, activation and norm before BERT's output projection.
TensorId add_masked_lm_transform(GraphBuilder& builder, const Stack& stack, TensorId x) {
  const ModelSpec& spec = stack.spec;
  const TensorId dense = builder.linear({"head_dense", stack.tokens, spec.hidden, spec.hidden, Split::none, true}, x);
  const TensorId active = builder.pointwise(OpKind::activation, "head_act", PointwiseKind::gelu, {dense}, {stack.tokens, spec.hidden}, Split::none);
  return add_norm(builder, stack, "head_norm", active);
}

void add_language_head(GraphBuilder& builder, const Stack& stack, const Options& options, TensorId x) {
  const ModelSpec& spec = stack.spec;
  const bool last_only = stack.cache;
  if (spec.head == HeadKind::masked_lm) x = add_masked_lm_transform(builder, stack, x);
  if (last_only) x = pick_token(builder, stack, "last_token", x);
  const std::int64_t tokens = last_only ? stack.batch : stack.tokens;
  std::int64_t width = spec.hidden;
  if (spec.word_embed_dim > 0 && spec.word_embed_dim != spec.hidden) {
    x = builder.linear({"project_out", tokens, spec.hidden, spec.word_embed_dim, Split::none, false}, x);
    width = spec.word_embed_dim;
  }
  LinearAttrs head;
  head.tokens = tokens;
  head.in = width;
  head.out = spec.vocab;
  head.bias = spec.bias.lm_head;
  head.tied = spec.tied_embeddings;
  head.split = Split::column;
  TensorId logits = builder.tensor("lm_head", {tokens, spec.vocab}, Split::column);
  builder.op(OpKind::lm_head, "lm_head", head, {x}, {logits});
  if (spec.logits_softcap) logits = builder.pointwise(OpKind::elementwise, "logits_softcap", PointwiseKind::tanh, {logits}, {tokens, spec.vocab}, Split::column);
  set_output(builder, "logits", logits, {stack.batch, last_only ? 1 : stack.seq_q, spec.vocab});
  if (options.phase == Phase::train) add_loss(builder, logits, tokens, spec.vocab, Split::column, spec.head == HeadKind::causal_lm);
}

}  // namespace

void add_head(GraphBuilder& builder, const Stack& stack, const Options& options, TensorId x) {
  const ModelSpec& spec = stack.spec;
  builder.begin("head", SegmentRole::epilogue, 1, x);
  if (spec.final_norm) x = add_norm(builder, stack, "final_norm", x);
  switch (spec.head) {
    case HeadKind::causal_lm:
    case HeadKind::seq2seq_lm:
    case HeadKind::masked_lm:
      add_language_head(builder, stack, options, x);
      break;
    case HeadKind::classifier:
      add_classifier(builder, stack, options, x);
      break;
    case HeadKind::none:
      set_output(builder, "last_hidden_state", x, {stack.batch, stack.seq_q, spec.hidden});
      if (spec.pooler) {
        const TensorId pooled = add_pooler(builder, stack, x);
        set_output(builder, "pooler_output", pooled, {stack.batch, spec.hidden});
      }
      break;
  }
  builder.end(x);
}

}  // namespace rooftile
