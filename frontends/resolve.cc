// Defaults that follow from other sizes, and the checks that sizes make sense together. Whatever is filled in is written down.
#include <fmt/format.h>

#include <algorithm>

#include "frontends/model_files.h"
#include "frontends/model_words.h"

namespace rooftile {
namespace {

void fill(ModelSpec& spec, std::string_view key, std::int64_t& field, std::int64_t value, std::string reason) {
  if (field != 0) return;
  field = value;
  spec.filled.push_back({std::string(key), std::to_string(value), std::move(reason)});
}

tl::unexpected<Error> missing(std::string_view key, std::string hint) { return fail(ErrorCode::invalid, fmt::format("'{}' is missing", key), {}, std::move(hint)); }

bool head_fits(ModelKind kind, HeadKind head) {
  if (head == HeadKind::none) return true;
  switch (kind) {
    case ModelKind::decoder:
      return head == HeadKind::causal_lm || head == HeadKind::classifier;
    case ModelKind::encoder:
      return head == HeadKind::masked_lm || head == HeadKind::classifier;
    case ModelKind::vision:
      return head == HeadKind::classifier;
    case ModelKind::encoder_decoder:
    case ModelKind::speech:
      return head == HeadKind::seq2seq_lm;
  }
  return false;
}

bool has_dense_layers(const ModelSpec& spec) {
  if (spec.moe.experts == 0) return true;
  for (std::int64_t i = 0; i < std::min(spec.layers, kMaxLayers); ++i) {
    if (!is_mixture_layer(spec, i)) return true;
  }
  return false;
}

Result<void> fill_stacks(ModelSpec& spec) {
  const bool two_stacks = spec.kind == ModelKind::encoder_decoder || spec.kind == ModelKind::speech;
  if (two_stacks) {
    if (spec.encoder_layers == 0 && spec.decoder_layers == 0) return missing("encoder_layers", "a model of two stacks has encoder_layers and decoder_layers");
    fill(spec, "encoder_layers", spec.encoder_layers, spec.decoder_layers, "as many as decoder_layers");
    fill(spec, "decoder_layers", spec.decoder_layers, spec.encoder_layers, "as many as encoder_layers");
    if (spec.encoder_layers > kMaxLayers || spec.decoder_layers > kMaxLayers) return fail(ErrorCode::invalid, fmt::format("over {} layers", kMaxLayers));
    spec.layers = spec.encoder_layers + spec.decoder_layers;
    if (spec.encoder_heads == 0) spec.encoder_heads = spec.heads;
  } else if (spec.layers == 0) {
    return missing("layers", "the number of layers, for instance 32");
  }
  if (spec.layers > 2 * kMaxLayers || (!two_stacks && spec.layers > kMaxLayers))
    return fail(ErrorCode::invalid, fmt::format("{} layers; at most {} are computed", spec.layers, kMaxLayers));
  return {};
}

Result<void> fill_attention(ModelSpec& spec) {
  if (spec.mla.kv_lora_rank > 0) {
    const bool fits = spec.mla.qk_nope_head_dim <= INT64_MAX - spec.mla.qk_rope_head_dim;
    if (!fits) return fail(ErrorCode::invalid, "qk_nope_head_dim + qk_rope_head_dim is above 2^63 - 1");
    // DeepSeek's head_dim key means the rotary part only; the true size follows from the two parts.
    spec.head_dim = spec.mla.qk_nope_head_dim + spec.mla.qk_rope_head_dim;
    spec.v_head_dim = spec.mla.v_head_dim;
    spec.kv_heads = spec.heads;
    return {};
  }
  fill(spec, "kv_heads", spec.kv_heads, spec.heads, "as many as heads");
  if (spec.kv_heads > spec.heads || spec.heads % spec.kv_heads != 0) {
    return fail(ErrorCode::invalid, fmt::format("{} kv_heads do not divide {} heads", spec.kv_heads, spec.heads), {}, "each KV head serves heads / kv_heads query heads");
  }
  if (spec.head_dim == 0) {
    if (spec.hidden % spec.heads != 0) {
      return fail(ErrorCode::invalid, fmt::format("hidden {} does not divide by {} heads", spec.hidden, spec.heads), {}, "give head_dim where it is not hidden / heads");
    }
    fill(spec, "head_dim", spec.head_dim, spec.hidden / spec.heads, "hidden / heads");
  }
  if (spec.v_head_dim == 0) spec.v_head_dim = spec.head_dim;
  return {};
}

Result<void> fill_mixture(ModelSpec& spec) {
  MoeSpec& moe = spec.moe;
  if (moe.experts == 0) return {};
  if (moe.top_k > moe.experts) return fail(ErrorCode::invalid, fmt::format("top_k {} is above {} experts", moe.top_k, moe.experts));
  if (moe.every < 1) return fail(ErrorCode::invalid, "moe.every must be positive");
  if (moe.expert_hidden == 0) {
    if (spec.ffn_hidden == 0) return missing("moe.expert_hidden", "the width of one expert");
    fill(spec, "moe.expert_hidden", moe.expert_hidden, spec.ffn_hidden, "ffn_hidden");
  }
  if (moe.shared_hidden > 0) fill(spec, "moe.shared_experts", moe.shared_experts, 1, "shared_hidden is given");
  if (moe.shared_experts > 0) fill(spec, "moe.shared_hidden", moe.shared_hidden, moe.expert_hidden, "expert_hidden");
  return {};
}

Result<void> fill_positions(ModelSpec& spec) {
  if (spec.kind == ModelKind::vision) {
    const VisionSpec& vision = spec.vision;
    if (vision.patch > vision.image) return fail(ErrorCode::invalid, fmt::format("a patch of {} is larger than the image of {}", vision.patch, vision.image));
    if (vision.image > (std::int64_t{1} << 31)) return fail(ErrorCode::invalid, fmt::format("an image of {} x {} is above 2^63 pixels", vision.image, vision.image));
    const std::int64_t side = vision.image / vision.patch;
    spec.max_positions = side * side + 1;
    return {};
  }
  if (spec.max_positions == 0) {
    std::int64_t limit = 2048;
    if (const auto run = spec.run.find("seq"); run != spec.run.end()) {
      // `seq` may be a range, which is the command line's to understand; a plain number above the default raises it.
      if (!run->second.empty() && run->second.size() < 10 && run->second.find_first_not_of("0123456789") == std::string::npos)
        limit = std::max(limit, std::int64_t{std::stoll(run->second)});
    }
    fill(spec, "max_positions", spec.max_positions, limit, "not given");
  }
  return {};
}

}  // namespace

std::vector<LayerKind> shortest_period(const std::vector<LayerKind>& kinds) {
  for (std::size_t period = 1; period < kinds.size(); ++period) {
    bool repeats = true;
    for (std::size_t i = period; i < kinds.size() && repeats; ++i) repeats = kinds[i] == kinds[i - period];
    if (repeats) return {kinds.begin(), kinds.begin() + static_cast<std::ptrdiff_t>(period)};
  }
  return kinds;
}

Result<ModelSpec> resolve(ModelSpec spec) {
  if (spec.hidden == 0) return missing("hidden", "the width of the residual stream, for instance 4096");
  if (spec.heads == 0) return missing("heads", "the number of attention heads, for instance 32");
  if (auto filled = fill_stacks(spec); !filled) return tl::unexpected(filled.error());
  if (auto filled = fill_attention(spec); !filled) return tl::unexpected(filled.error());
  if (auto filled = fill_mixture(spec); !filled) return tl::unexpected(filled.error());
  if (auto filled = fill_positions(spec); !filled) return tl::unexpected(filled.error());
  const bool tokens = spec.kind != ModelKind::vision;
  if (tokens && spec.vocab == 0) return missing("vocab", "the size of the vocabulary, for instance 32000");
  if (spec.ffn_hidden == 0 && has_dense_layers(spec)) {
    return missing("ffn_hidden", spec.hidden < INT64_MAX / 4 ? fmt::format("the width of the feed-forward layer; 4 x hidden = {} is usual without a gate", 4 * spec.hidden)
                                                             : "the width of the feed-forward layer");
  }
  if (spec.encoder_ffn_hidden == 0 && spec.encoder_layers > 0) spec.encoder_ffn_hidden = spec.ffn_hidden;
  if (!(spec.rotary_fraction > 0) || spec.rotary_fraction > 1)
    return fail(ErrorCode::invalid, fmt::format("rotary_fraction is {}, and must be above 0 and at most 1", spec.rotary_fraction));
  if (!(spec.dropout >= 0) || spec.dropout >= 1) return fail(ErrorCode::invalid, fmt::format("dropout is {}, and must be at least 0 and below 1", spec.dropout));
  if (!spec.layer_pattern.empty()) {
    spec.layer_pattern = shortest_period(spec.layer_pattern);
    const bool any_local = std::find(spec.layer_pattern.begin(), spec.layer_pattern.end(), LayerKind::local) != spec.layer_pattern.end();
    if (any_local && spec.sliding_window == 0) return fail(ErrorCode::invalid, "layer_pattern has local layers, but sliding_window is missing", {}, "sliding_window: 4096");
    if (!any_local) spec.sliding_window = 0;
    if (spec.layer_pattern.size() == 1) spec.layer_pattern.clear();
  }
  if (spec.kind == ModelKind::encoder_decoder && !spec.layer_pattern.empty()) return fail(ErrorCode::unsupported, "layer_pattern in a model of two stacks");
  if ((spec.kind == ModelKind::encoder_decoder || spec.kind == ModelKind::speech) && spec.encoder_heads != spec.heads && spec.hidden % spec.encoder_heads != 0) {
    return fail(ErrorCode::invalid, fmt::format("hidden {} does not divide by {} encoder_heads", spec.hidden, spec.encoder_heads));
  }
  if (!head_fits(spec.kind, spec.head)) {
    return fail(ErrorCode::invalid, fmt::format("{} has no {} head", with_article(spec.kind), name_in(kHeadKinds, spec.head)), {},
                "decoder: causal_lm, classifier; encoder: masked_lm, classifier; encoder_decoder, speech: seq2seq_lm; vision: classifier; any: none");
  }
  return spec;
}

}  // namespace rooftile
