// The words that model files use for the kinds in ModelSpec: one table each, read by the YAML reader, its writer and messages.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "frontends/model_spec.h"

namespace rooftile {

template <typename Enum, std::size_t N>
using WordTable = std::array<std::pair<std::string_view, Enum>, N>;

inline constexpr WordTable<ModelKind, 5> kModelKinds = {{{"decoder", ModelKind::decoder},
                                                         {"encoder", ModelKind::encoder},
                                                         {"encoder_decoder", ModelKind::encoder_decoder},
                                                         {"vision", ModelKind::vision},
                                                         {"speech", ModelKind::speech}}};
inline constexpr WordTable<HeadKind, 5> kHeadKinds = {
    {{"causal_lm", HeadKind::causal_lm}, {"masked_lm", HeadKind::masked_lm}, {"classifier", HeadKind::classifier}, {"seq2seq_lm", HeadKind::seq2seq_lm}, {"none", HeadKind::none}}};
inline constexpr WordTable<ActivationKind, 6> kActivations = {{{"gelu", ActivationKind::gelu},
                                                               {"relu", ActivationKind::relu},
                                                               {"silu", ActivationKind::silu},
                                                               {"swiglu", ActivationKind::swiglu},
                                                               {"geglu", ActivationKind::geglu},
                                                               {"gelu_new", ActivationKind::gelu_new}}};
inline constexpr WordTable<NormKind, 2> kNorms = {{{"layernorm", NormKind::layernorm}, {"rmsnorm", NormKind::rmsnorm}}};
inline constexpr WordTable<PositionKind, 5> kPositions = {
    {{"learned", PositionKind::learned}, {"rope", PositionKind::rope}, {"alibi", PositionKind::alibi}, {"relative", PositionKind::relative}, {"none", PositionKind::none}}};
inline constexpr WordTable<LayerKind, 2> kLayerKinds = {{{"global", LayerKind::global}, {"local", LayerKind::local}}};

// Habits of a model's code that cost kernels but no size, for a runtime's rules (see rule.h). unit_offset: a norm's weight is applied in fp32, by Gemma as 1 + w. by_head: a fused
// qkv holds q, k, v of one head after another. sliced_qkv: a fused qkv is cut by slices. scaled_query: queries are scaled before the attention. masked_positions: positions are
// counted from a mask. narrow_softmax: unfused attention takes its softmax in the dtype of the run instead of fp32. low_norm: a norm multiplies its 16-bit input, not an fp32 copy,
// by the fp32 factor. scaled_head: what the head reads is scaled first. contiguous_heads: queries, keys and values are copied into the order of heads before the attention.
// clamped_gate: the experts' gate and up projection are every second column of one product and are clamped (GPT-OSS). composed_attention: no fused attention is ever called; ALiBi
// is what the first product adds to (BLOOM). written_gelu: the tanh form of gelu written out in both directions, its input kept. joined_rotary: what was rotated is joined with the
// rest of the head even where there is no rest. composed_gate: the gelu of a gated feed-forward is the one that GPT-2 writes out (T5 1.1). mask_tensor: fused attention is given a
// mask tensor instead of being told that it is causal.
inline constexpr std::array<std::string_view, 18> kModelTraits = {
    "unit_offset", "by_head",     "sliced_qkv",       "scaled_query", "masked_positions",   "renormalised", "scaled_embedding", "two_rotary_tables", "narrow_softmax",
    "low_norm",    "scaled_head", "contiguous_heads", "clamped_gate", "composed_attention", "written_gelu", "joined_rotary",    "mask_tensor",       "composed_gate"};

// name_in(kNorms, NormKind::rmsnorm) == "rmsnorm".
template <typename Enum, std::size_t N>
std::string_view name_in(const WordTable<Enum, N>& table, Enum value) {
  for (const auto& [word, meaning] : table) {
    if (meaning == value) return word;
  }
  return "";
}

template <typename Enum, std::size_t N>
std::optional<Enum> parse_in(const WordTable<Enum, N>& table, std::string_view name) {
  for (const auto& [word, meaning] : table) {
    if (word == name) return meaning;
  }
  return std::nullopt;
}

template <typename Enum, std::size_t N>
std::vector<std::string> words_of(const WordTable<Enum, N>& table) {
  std::vector<std::string> words;
  for (const auto& row : table) words.emplace_back(row.first);
  return words;
}

// "an encoder", "a vision model": for messages.
inline std::string_view with_article(ModelKind kind) {
  switch (kind) {
    case ModelKind::decoder:
      return "a decoder";
    case ModelKind::encoder:
      return "an encoder";
    case ModelKind::encoder_decoder:
      return "an encoder-decoder";
    case ModelKind::vision:
      return "a vision model";
    case ModelKind::speech:
      return "a speech model";
  }
  return "a model";
}

inline bool is_gated(ActivationKind activation) { return activation == ActivationKind::swiglu || activation == ActivationKind::geglu; }

// Layers at which a model is refused: each layer has an entry in Graph::layers.
inline constexpr std::int64_t kMaxLayers = 100'000;

// Whether layer `index` (from 0) is a mixture: behind the first dense ones, every `every`-th counted from 1, and not named as dense.
inline bool is_mixture_layer(const ModelSpec& spec, std::int64_t index) {
  if (spec.moe.experts == 0 || index < spec.moe.first_dense_layers || (index + 1) % spec.moe.every != 0) return false;
  for (const std::int64_t dense : spec.dense_layers) {
    if (dense == index) return false;
  }
  return true;
}

inline LayerKind layer_kind(const ModelSpec& spec, std::int64_t index) {
  if (spec.layer_pattern.empty()) return spec.sliding_window > 0 ? LayerKind::local : LayerKind::global;
  return spec.layer_pattern[static_cast<std::size_t>(index) % spec.layer_pattern.size()];
}

// Shortest pattern that repeats to the same list: [local, global, local, global] gives [local, global].
std::vector<LayerKind> shortest_period(const std::vector<LayerKind>& kinds);

// The head that a description means when it names none (interface: decoders causal LM, encoders masked LM, images two labels, speech none).
constexpr HeadKind default_head(ModelKind kind) {
  switch (kind) {
    case ModelKind::decoder:
      return HeadKind::causal_lm;
    case ModelKind::encoder:
      return HeadKind::masked_lm;
    case ModelKind::encoder_decoder:
      return HeadKind::seq2seq_lm;
    case ModelKind::vision:
      return HeadKind::classifier;
    case ModelKind::speech:
      return HeadKind::none;
  }
  return HeadKind::none;
}

}  // namespace rooftile
