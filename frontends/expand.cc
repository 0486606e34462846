#include "frontends/expand.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "frontends/expand_layers.h"
#include "frontends/graph_builder.h"
#include "frontends/model_words.h"

namespace rooftile {
namespace {

// Segment names by whether layers differ in attention, in their feed-forward, or in both.
std::string_view layer_name(LayerVariant variant, bool kinds_differ, bool mixtures_differ) {
  const bool local = variant.kind == LayerKind::local;
  if (kinds_differ && mixtures_differ)
    return local ? (variant.mixture ? "layer_local_mixture" : "layer_local_dense") : (variant.mixture ? "layer_global_mixture" : "layer_global_dense");
  if (kinds_differ) return local ? "layer_local" : "layer_global";
  if (mixtures_differ) return variant.mixture ? "layer_mixture" : "layer_dense";
  return "layer";
}

// All layers of one stack: each variant is one segment with its repeat count; Graph::layers gets the order.
TensorId add_layers(GraphBuilder& builder, const Stack& stack, std::int64_t layers, TensorId x) {
  const ModelSpec& spec = stack.spec;
  Graph& graph = builder.graph();
  std::array<std::int64_t, 4> count{};
  std::array<LayerVariant, 4> order{};
  std::size_t variants = 0;
  const auto index_of = [](LayerVariant variant) { return (variant.kind == LayerKind::local ? 2u : 0u) + (variant.mixture ? 1u : 0u); };
  const auto variant_of = [&](std::int64_t i) { return LayerVariant{layer_kind(spec, i), is_mixture_layer(spec, i)}; };
  for (std::int64_t i = 0; i < layers; ++i) {
    const LayerVariant variant = variant_of(i);
    if (count[index_of(variant)]++ == 0) order[variants++] = variant;
  }
  const bool kinds_differ = count[0] + count[1] > 0 && count[2] + count[3] > 0;
  const bool mixtures_differ = count[0] + count[2] > 0 && count[1] + count[3] > 0;
  std::array<std::uint32_t, 4> segment{};
  for (std::size_t v = 0; v < variants; ++v) {
    builder.begin(layer_name(order[v], kinds_differ, mixtures_differ), SegmentRole::layer, count[index_of(order[v])], x);
    x = add_layer(builder, stack, order[v], x);
    segment[index_of(order[v])] = builder.end(x);
  }
  for (std::int64_t i = 0; i < layers; ++i) graph.layers.push_back(segment[index_of(variant_of(i))]);
  return x;
}

TensorId add_plain_layers(GraphBuilder& builder, const Stack& stack, std::string_view name, std::int64_t layers, TensorId x) {
  builder.begin(name, SegmentRole::layer, layers, x);
  x = add_layer(builder, stack, {layer_kind(stack.spec, 0), false}, x);
  const std::uint32_t segment = builder.end(x);
  builder.graph().layers.insert(builder.graph().layers.end(), static_cast<std::size_t>(layers), segment);
  return x;
}

// Token embedding, positions, token types, norm: what comes before the first layer of a stack over tokens.
TensorId add_token_embedding(GraphBuilder& builder, const Stack& stack, bool tied, TensorId ids) {
  const ModelSpec& spec = stack.spec;
  const std::int64_t width = spec.word_embed_dim > 0 ? spec.word_embed_dim : spec.hidden;
  EmbeddingAttrs embedding;
  embedding.tokens = stack.tokens;
  embedding.vocab = spec.vocab;
  embedding.hidden = width;
  embedding.tied = tied;
  TensorId x = builder.tensor("embedding", {stack.tokens, width});
  builder.op(OpKind::embedding, "embedding", embedding, {ids}, {x});
  if (width != spec.hidden) x = builder.linear({"project_in", stack.tokens, width, spec.hidden, Split::none, false}, x);
  if (spec.token_types > 0) {
    x = builder.pointwise(OpKind::position_add, "token_types", PointwiseKind::add, {x}, {stack.tokens, spec.hidden}, Split::sequence,
                          builder.product("token_types", {spec.token_types, spec.hidden}));
  }
  if (spec.positions == PositionKind::learned) {
    const std::int64_t rows = builder.sum("positions", spec.max_positions, spec.position_offset);
    x = builder.pointwise(OpKind::position_add, "positions", PointwiseKind::add, {x}, {stack.tokens, spec.hidden}, Split::sequence,
                          builder.product("positions", {rows, spec.hidden}));
  }
  if (spec.positions == PositionKind::relative || spec.positions == PositionKind::alibi) {
    const bool relative = spec.positions == PositionKind::relative;
    RelativeBiasAttrs bias;
    bias.heads = stack.heads;
    bias.buckets = relative ? spec.relative_buckets : 0;
    bias.seq_q = relative ? stack.seq_q : 1;  // ALiBi is a row per head: slope times distance
    bias.seq_kv = stack.seq_kv;
    const std::string_view name = relative ? "relative_bias" : "alibi_bias";
    builder.product(name, {bias.buckets, bias.heads});
    const TensorId scores = builder.tensor(name, {bias.heads, bias.seq_q, bias.seq_kv}, Split::column);
    builder.op(relative ? OpKind::relative_bias : OpKind::alibi_bias, name, bias, {}, {scores});
  }
  if (spec.embedding_norm) x = add_norm(builder, stack, "embedding_norm", x);
  return add_dropout(builder, stack, "embedding_dropout", x);
}

TensorId add_ids(GraphBuilder& builder, const Stack& stack) { return builder.tensor("embedding", {stack.tokens}, Split::none, TensorRole::input); }

void expand_one_stack(GraphBuilder& builder, const ModelSpec& spec, const Options& options, std::int64_t seq) {
  const Stack stack = stack_of(builder, spec, options, seq);
  const TensorId ids = add_ids(builder, stack);
  builder.begin("embedding", SegmentRole::prologue, 1, ids);
  TensorId x = add_token_embedding(builder, stack, false, ids);
  builder.end(x);
  x = add_layers(builder, stack, spec.layers, x);
  add_head(builder, stack, options, x);
  builder.graph().tokens = stack.tokens;
}

Stack encoder_of(GraphBuilder& builder, const ModelSpec& spec, const Options& options, std::int64_t seq) {
  Options whole = options;
  if (whole.phase != Phase::train) whole.phase = Phase::forward;
  Stack stack = stack_of(builder, spec, whole, seq);
  stack.causal = false;
  if (spec.encoder_heads != spec.heads) {
    stack.heads = stack.kv_heads = spec.encoder_heads;
    stack.head_dim = stack.v_head_dim = spec.hidden / spec.encoder_heads;
  }
  stack.ffn_hidden = spec.encoder_ffn_hidden;
  return stack;
}

// Audio frames to encoder positions (Whisper, arXiv 2212.04356, section 2.2): two convolutions of width 3 with GELU, the second with stride 2.
TensorId add_audio_embedding(GraphBuilder& builder, const Stack& stack, TensorId mel) {
  const ModelSpec& spec = stack.spec;
  const SpeechSpec& speech = spec.speech;
  ConvolutionAttrs convolution;
  convolution.batch = stack.batch;
  convolution.in_channels = speech.mel_bins;
  convolution.out_channels = spec.hidden;
  convolution.kernel_elements = 3;
  convolution.in_positions = convolution.out_positions = speech.frames;
  convolution.bias = true;
  convolution.input_gradient = false;
  builder.product("conv1", {speech.mel_bins, spec.hidden, 3});
  TensorId x = builder.tensor("conv1", {stack.batch, speech.frames, spec.hidden}, Split::none);
  builder.op(OpKind::convolution, "conv1", convolution, {mel}, {x});
  x = builder.pointwise(OpKind::activation, "conv1_act", PointwiseKind::gelu, {x}, {stack.batch, speech.frames, spec.hidden}, Split::none);
  convolution.in_channels = spec.hidden;
  convolution.out_positions = stack.seq_q;
  convolution.input_gradient = true;
  builder.product("conv2", {spec.hidden, spec.hidden, 3});
  TensorId y = builder.tensor("conv2", {stack.tokens, spec.hidden}, Split::none);
  builder.op(OpKind::convolution, "conv2", convolution, {x}, {y});
  y = builder.pointwise(OpKind::activation, "conv2_act", PointwiseKind::gelu, {y}, {stack.tokens, spec.hidden}, Split::none);
  return builder.pointwise(OpKind::position_add, "audio_positions", PointwiseKind::add, {y}, {stack.tokens, spec.hidden}, Split::sequence,
                           builder.product("audio_positions", {speech.max_source_positions, spec.hidden}));
}

void expand_two_stacks(GraphBuilder& builder, const ModelSpec& spec, const Options& options, std::int64_t seq) {
  const bool speech = spec.kind == ModelKind::speech;
  const bool decode = options.phase == Phase::decode;
  const std::int64_t source = speech ? spec.speech.max_source_positions : seq;
  const Stack encoder = encoder_of(builder, spec, options, source);
  Stack decoder = stack_of(builder, spec, options, seq);
  decoder.cross_seq = source;
  decoder.cross_cached = decode;
  TensorId x = 0;
  // In decode the encoder has run; its layers are still there for their weights' sake only where they run, so the graph begins at the decoder.
  if (!decode) {
    const TensorId entry = speech ? builder.tensor("conv1", {encoder.batch, spec.speech.frames, spec.speech.mel_bins}, Split::none, TensorRole::input) : add_ids(builder, encoder);
    if (speech) builder.graph().tensors[entry].dtype = options.dtype;
    builder.begin("encoder_embedding", SegmentRole::prologue, 1, entry);
    x = speech ? add_audio_embedding(builder, encoder, entry) : add_token_embedding(builder, encoder, false, entry);
    builder.end(x);
    x = add_plain_layers(builder, encoder, "encoder_layer", spec.encoder_layers, x);
  } else {
    x = builder.tensor("encoder_output", {encoder.tokens, spec.hidden}, Split::sequence, TensorRole::input);
  }
  const TensorId ids = add_ids(builder, decoder);
  builder.begin("decoder_embedding", SegmentRole::prologue, 1, ids);
  if (spec.final_norm && !decode) x = add_norm(builder, encoder, "encoder_norm", x);
  decoder.cross = x;
  x = add_token_embedding(builder, decoder, !speech && !decode, ids);
  builder.end(x);
  x = add_plain_layers(builder, decoder, "decoder_layer", spec.decoder_layers, x);
  add_head(builder, decoder, options, x);
  builder.graph().tokens = decoder.tokens;
}

void expand_vision(GraphBuilder& builder, const ModelSpec& spec, const Options& options) {
  const VisionSpec& vision = spec.vision;
  const std::int64_t side = vision.image / vision.patch;
  const std::int64_t patches = side * side;
  const Stack stack = stack_of(builder, spec, options, patches + 1);
  const TensorId pixels = builder.tensor("patch_embedding", {stack.batch, vision.channels, vision.image, vision.image}, Split::none, TensorRole::input);
  builder.graph().tensors[pixels].dtype = options.dtype;
  builder.begin("embedding", SegmentRole::prologue, 1, pixels);
  ConvolutionAttrs convolution;
  convolution.batch = stack.batch;
  convolution.in_channels = vision.channels;
  convolution.out_channels = spec.hidden;
  convolution.kernel_elements = vision.patch * vision.patch;
  convolution.out_positions = patches;
  convolution.in_positions = vision.image * vision.image;
  convolution.bias = true;
  convolution.input_gradient = false;
  convolution.patches = true;
  builder.product("patch_embedding", {vision.channels, convolution.kernel_elements, spec.hidden});
  TensorId x = builder.tensor("patch_embedding", {stack.batch, patches, spec.hidden}, Split::none);
  builder.op(OpKind::patch_embedding, "patch_embedding", convolution, {pixels}, {x});
  // The class token is copied in front of the patches; then the position table of all tokens.
  x = builder.pointwise(OpKind::copy, "class_token", PointwiseKind::concat, {x}, {stack.tokens, spec.hidden}, Split::sequence);
  const std::int64_t learned = builder.product("positions", {patches + 2, spec.hidden});
  x = builder.pointwise(OpKind::position_add, "positions", PointwiseKind::add, {x}, {stack.tokens, spec.hidden}, Split::sequence, learned);
  if (spec.embedding_norm) x = add_norm(builder, stack, "embedding_norm", x);
  x = add_dropout(builder, stack, "embedding_dropout", x);
  builder.end(x);
  x = add_layers(builder, stack, spec.layers, x);
  add_head(builder, stack, options, x);
  builder.graph().tokens = stack.tokens;
}

void describe_model(const ModelSpec& spec, Graph& graph) {
  ModelInfo& model = graph.model;
  model.name = spec.name;
  model.source = spec.source.empty() ? spec.file : spec.source;
  model.hidden = spec.hidden;
  model.heads = spec.heads;
  model.kv_heads = spec.mla.kv_lora_rank > 0 ? spec.heads : spec.kv_heads;
  model.layers = spec.layers;
  model.experts = spec.moe.experts;
  model.ffn_hidden = spec.ffn_hidden;
  model.vocab = spec.vocab;
  model.max_positions = spec.max_positions;
  model.traits = spec.traits;
  model.traits.emplace_back(name_in(kModelKinds, spec.kind));
  if (spec.positions == PositionKind::rope) model.traits.emplace_back("rope");
  if (spec.positions == PositionKind::learned) model.traits.emplace_back("learned_positions");
  if (spec.positions == PositionKind::alibi) model.traits.emplace_back("alibi");
  if (spec.positions == PositionKind::relative) model.traits.emplace_back("relative_positions");
  if (spec.head == HeadKind::masked_lm) model.traits.emplace_back("masked_lm");
  if (spec.head == HeadKind::classifier) model.traits.emplace_back("classifier");
  if (spec.sliding_window > 0) model.traits.emplace_back("windowed");
  if (spec.moe.experts > 0) model.traits.emplace_back("mixture");
  if (spec.rotary_fraction < 1) model.traits.emplace_back("partial");
  if (spec.qk_norm && !spec.qk_norm_full) model.traits.emplace_back("normed_heads");
  if (spec.tied_embeddings) model.traits.emplace_back("tied_table");
}

}  // namespace

Result<Graph> expand(const ModelSpec& spec, const Options& options) {
  const bool generates = spec.kind != ModelKind::encoder && spec.kind != ModelKind::vision;
  if (!generates && options.phase == Phase::decode) {
    return fail(ErrorCode::unsupported, fmt::format("{} is {} and has no decode phase", spec.name, with_article(spec.kind)), "--phase", "--phase forward");
  }
  if (options.mbs < 1 || options.seq < 0 || options.context < 0) return fail(ErrorCode::usage, "mbs must be positive, seq and context not negative", "--mbs");
  const std::int64_t seq = spec.kind == ModelKind::vision ? spec.max_positions : options.seq > 0 ? options.seq : std::clamp<std::int64_t>(spec.max_positions, 1, 4096);

  Graph graph;
  graph.ops.reserve(80);
  graph.tensors.reserve(120);
  graph.edges.reserve(240);
  graph.segments.reserve(8);
  graph.layers.reserve(static_cast<std::size_t>(std::min(spec.layers, 2 * kMaxLayers)));
  describe_model(spec, graph);
  const bool eight_bits = bits_of(options.dtype) <= 8;
  GraphBuilder builder(graph, options.dtype, eight_bits ? DType::bf16 : options.dtype);
  switch (spec.kind) {
    case ModelKind::decoder:
    case ModelKind::encoder:
      expand_one_stack(builder, spec, options, seq);
      break;
    case ModelKind::encoder_decoder:
    case ModelKind::speech:
      expand_two_stacks(builder, spec, options, seq);
      break;
    case ModelKind::vision:
      expand_vision(builder, spec, options);
      break;
  }
  if (builder.error()) return tl::unexpected(*builder.error());
  graph.batch = options.mbs;
  graph.seq = options.phase == Phase::decode ? 1 : seq;
  if (!generates && options.phase == Phase::prefill)
    graph.warnings.push_back({"prefill_without_cache", fmt::format("{} has no KV cache: prefill is its forward pass", with_article(spec.kind))});
  return graph;
}

}  // namespace rooftile
