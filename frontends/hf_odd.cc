#include "frontends/hf_odd.h"

#include <fmt/format.h>

#include <algorithm>

#include "frontends/hf_families.h"
#include "frontends/model_words.h"

namespace rooftile {
namespace {

// Width of the feed-forward layer where the file leaves it open: 4 x hidden.
void four_times_hidden(HfConfig& config) {
  ModelSpec& spec = config.spec;
  if (spec.ffn_hidden != 0 || spec.hidden > INT64_MAX / 4) return;
  spec.ffn_hidden = 4 * spec.hidden;
  config.fill("ffn_hidden", std::to_string(spec.ffn_hidden), "null or absent: 4 x hidden");
}

// Fraction of a head that rotates: `rotary_pct`, `partial_rotary_factor`, or that key within `rope_parameters` or `rope_scaling`. Nothing else of those changes the cost.
void rotary_fraction(HfConfig& config, double class_default) {
  ModelSpec& spec = config.spec;
  spec.rotary_fraction = class_default;
  bool found = false;
  for (const std::string_view key : {"rope_parameters", "rope_scaling"}) {
    const TextNode* node = config.map.any(key);
    if (!node || node->kind != TextNode::Kind::map) continue;
    MapReader rope(*node, config.map.file(), config.map.error());
    found = rope.number("partial_rotary_factor", spec.rotary_fraction) || found;
  }
  found = config.map.number("rotary_pct", spec.rotary_fraction) || found;
  found = config.map.number("partial_rotary_factor", spec.rotary_fraction) || found;
  if (!found && class_default != 1) config.fill("rotary_fraction", fmt::format("{}", class_default), fmt::format("absent: the default of {}", config.family.class_name));
}

// Windowed layers from the list `layer_types`, else from `rule`, which says whether layer i is windowed where a window is set.
template <typename Rule>
void layer_types(HfConfig& config, std::int64_t window_default, Rule rule) {
  ModelSpec& spec = config.spec;
  const bool null_window = config.map.node().find("sliding_window") && !config.map.has("sliding_window");
  if (!config.map.integer("sliding_window", spec.sliding_window, 0) && !null_window && window_default > 0) {
    spec.sliding_window = window_default;
    config.fill("sliding_window", std::to_string(window_default), fmt::format("absent: the default of {}", config.family.class_name));
  }
  if (config.map.has("use_sliding_window") && !config.flag("use_sliding_window", false)) spec.sliding_window = 0;  // set, but switched off
  std::vector<LayerKind> kinds;
  if (const TextNode* list = config.map.list("layer_types")) {
    for (const TextNode& item : list->items) {
      if (item.text == "full_attention") {
        kinds.push_back(LayerKind::global);
      } else if (item.text == "sliding_attention") {
        kinds.push_back(LayerKind::local);
      } else {
        config.map.fail_at(item.mark, fmt::format("layer type '{}' is not supported", printable(item.text)), "known: full_attention, sliding_attention", ErrorCode::unsupported);
        return;
      }
    }
    if (static_cast<std::int64_t>(kinds.size()) != spec.layers && !kinds.empty()) {
      config.warn("layer_types_length", fmt::format("layer_types has {} entries for {} layers; it is repeated or cut", kinds.size(), spec.layers));
    }
  } else if (spec.sliding_window > 0) {
    for (std::int64_t i = 0; i < std::min<std::int64_t>(spec.layers, kMaxLayers); ++i) kinds.push_back(rule(i) ? LayerKind::local : LayerKind::global);
    const auto windowed = std::count(kinds.begin(), kinds.end(), LayerKind::local);
    config.fill("layer_pattern", fmt::format("{} of {} layers local", windowed, kinds.size()), fmt::format("layer_types is absent: the rule of {}", config.family.class_name));
  }
  if (spec.sliding_window == 0) return;
  spec.layer_pattern = shortest_period(kinds);
  if (spec.layer_pattern.size() == 1) {
    if (spec.layer_pattern[0] == LayerKind::global) spec.sliding_window = 0;
    spec.layer_pattern.clear();
  }
}

void every_layer_windowed(HfConfig& config, std::int64_t window_default) {
  layer_types(config, window_default, [](std::int64_t) { return true; });
}

// Experts under either of their names.
void experts(HfConfig& config, std::string_view keys, std::int64_t experts_default, std::int64_t top_k_default) {
  MoeSpec& moe = config.spec.moe;
  config.size(keys, "moe.experts", moe.experts, experts_default);
  config.size("num_experts_per_tok", "moe.top_k", moe.top_k, top_k_default);
}

void latent_attention(HfConfig& config, std::int64_t q_rank_default) {
  MlaSpec& mla = config.spec.mla;
  const bool null_rank = config.map.node().find("q_lora_rank") && !config.map.has("q_lora_rank");
  config.size("q_lora_rank", "mla.q_lora_rank", mla.q_lora_rank, null_rank ? 0 : q_rank_default);  // null: a plain query projection
  config.size("kv_lora_rank", "mla.kv_lora_rank", mla.kv_lora_rank, 512);
  config.size("qk_nope_head_dim", "mla.qk_nope_head_dim", mla.qk_nope_head_dim, 128);
  config.size("qk_rope_head_dim", "mla.qk_rope_head_dim", mla.qk_rope_head_dim, 64);
  config.size("v_head_dim", "mla.v_head_dim", mla.v_head_dim, 128);
  for (const std::string_view key : {"head_dim", "qk_head_dim", "num_key_value_heads"}) config.map.ignore(key);  // the rotary part, and a leftover of the class it derives from
}

struct DeepseekDefaults {
  std::int64_t q_rank, experts, shared, top_k, expert_hidden, first_dense;
};

void deepseek(HfConfig& config, const DeepseekDefaults& defaults) {
  ModelSpec& spec = config.spec;
  MoeSpec& moe = spec.moe;
  latent_attention(config, defaults.q_rank);
  experts(config, "n_routed_experts|num_local_experts|num_experts", defaults.experts, defaults.top_k);
  const bool no_shared = config.map.node().find("n_shared_experts") && !config.map.has("n_shared_experts");
  std::int64_t shared = no_shared ? 0 : defaults.shared;
  if (!config.map.integer("n_shared_experts", shared, 0) && !no_shared)
    config.fill("moe.shared_experts", std::to_string(shared), fmt::format("absent: the default of {}", config.family.class_name));
  moe.shared_experts = shared;
  config.size("moe_intermediate_size", "moe.expert_hidden", moe.expert_hidden, defaults.expert_hidden);
  moe.shared_hidden = shared > 0 ? moe.expert_hidden : 0;
  if (!config.map.integer("first_k_dense_replace", moe.first_dense_layers, 0)) {
    moe.first_dense_layers = defaults.first_dense;
    config.fill("moe.first_dense_layers", std::to_string(defaults.first_dense), fmt::format("absent: the default of {}", config.family.class_name));
  }
  std::int64_t frequency = 1;
  if (config.map.integer("moe_layer_freq", frequency) && frequency != 1) {
    config.map.fail_at("moe_layer_freq", fmt::format("moe_layer_freq {} is not supported", frequency), "1: every layer behind the dense ones is a mixture", ErrorCode::unsupported);
  }
  std::int64_t extra = 0;
  if (config.map.integer("num_nextn_predict_layers", extra, 0) && extra > 0) {
    config.warn("mtp_left_out", fmt::format("{} multi-token prediction layer(s) (num_nextn_predict_layers) are left out", extra));
  }
}

void gemma(HfConfig& config) {
  ModelSpec& spec = config.spec;
  spec.post_norms = true;
  spec.traits = {"unit_offset", "scaled_embedding"};
  double cap = 0;
  spec.attention_softcap = config.map.number("attn_logit_softcapping", cap);
  spec.logits_softcap = config.map.number("final_logit_softcapping", cap);
  rotary_fraction(config, 1);
  config.map.ignore("query_pre_attn_scalar");
}

void bert_like(HfConfig& config) {
  ModelSpec& spec = config.spec;
  spec.post_norm = spec.embedding_norm = true;
  spec.traits = {"narrow_softmax"};
  spec.final_norm = false;
  spec.bias.lm_head = true;  // of the vocabulary, beside the tied weight
  config.size("type_vocab_size", "token_types", spec.token_types, 2);
  if (config.flag("is_decoder", false) || config.flag("add_cross_attention", false)) {
    config.map.fail_at(config.map.has("is_decoder") ? "is_decoder" : "add_cross_attention", fmt::format("a {} that decodes is not supported", config.family.model_type),
                       "describe it as a decoder in YAML", ErrorCode::unsupported);
  }
}

}  // namespace

void odd_gpt2(HfConfig& config) {
  config.spec.traits = {"narrow_softmax"};
  four_times_hidden(config);
  if (config.flag("add_cross_attention", false)) config.map.fail_at("add_cross_attention", "a gpt2 with cross attention is not supported", "", ErrorCode::unsupported);
}

// Windowed layers stand in `attention_layers`, or in `attention_types` as [[pattern, repeats], ...].
void odd_gpt_neo(HfConfig& config) {
  ModelSpec& spec = config.spec;
  four_times_hidden(config);
  spec.bias = {false, true, true, false, true};
  config.size("window_size", "sliding_window", spec.sliding_window, 256);
  std::vector<LayerKind> kinds;
  const auto add = [&](const TextNode& item) {
    const auto kind = parse_in(kLayerKinds, item.text);
    if (!kind) config.map.fail_at(item.mark, fmt::format("attention type '{}' is not supported", printable(item.text)), "known: global, local", ErrorCode::unsupported);
    if (kind) kinds.push_back(*kind);
  };
  const TextNode* types = config.map.any("attention_types");
  if (const TextNode* layers = config.map.list("attention_layers")) {
    for (const TextNode& item : layers->items) add(item);
  } else if (types && types->kind == TextNode::Kind::list) {
    for (const TextNode& group : types->items) {
      if (group.items.size() != 2 || group.items[0].kind != TextNode::Kind::list) {
        config.map.fail_at(group.mark, "attention_types is a list of [pattern, repeats]");
        return;
      }
      const auto repeats = parse_size(group.items[1].text);
      if (!repeats || *repeats < 0 || *repeats > kMaxLayers || group.items[0].items.size() > 1000 || kinds.size() > 1'000'000) {
        config.map.fail_at(group.mark, "attention_types is a list of [pattern, repeats]");
        return;
      }
      // A pattern that is longer than all layers is not needed.
      for (std::int64_t i = 0; i < *repeats && static_cast<std::int64_t>(kinds.size()) < kMaxLayers; ++i) {
        for (const TextNode& item : group.items[0].items) add(item);
      }
    }
  } else {
    kinds = {LayerKind::global, LayerKind::local};
    config.fill("layer_pattern", "[global, local]", "absent: the default of GPTNeoConfig");
  }
  spec.layer_pattern = kinds.empty() ? kinds : shortest_period(kinds);
}

void odd_gptj(HfConfig& config) {
  ModelSpec& spec = config.spec;
  four_times_hidden(config);
  spec.parallel_residual = spec.shared_parallel_norm = true;
  spec.bias = {false, false, true, true, true};
  std::int64_t rotary = 0;
  config.size("rotary_dim", "rotary_dim", rotary, 64);
  if (spec.heads > 0 && spec.hidden / spec.heads > 0) spec.rotary_fraction = std::min(1.0, static_cast<double>(rotary) / static_cast<double>(spec.hidden / spec.heads));
}

void odd_gpt_neox(HfConfig& config) {
  ModelSpec& spec = config.spec;
  spec.traits = {"by_head"};
  const bool attention_bias = config.flag("attention_bias", true);
  spec.bias = {attention_bias, attention_bias, true, false, true};
  spec.parallel_residual = config.flag("use_parallel_residual", true);
  rotary_fraction(config, 0.25);
}

void odd_opt(HfConfig& config) {
  ModelSpec& spec = config.spec;
  spec.traits = {"scaled_query", "masked_positions"};
  const bool bias = config.flag("enable_bias", true);
  spec.bias = {bias, bias, bias, false, true};
  const bool before = config.flag("do_layer_norm_before", true);
  spec.post_norm = !before;
  spec.final_norm = before && !config.flag("_remove_final_layer_norm", false);
  spec.position_offset = 2;  // two rows of the table come before position 0
  std::int64_t width = 0;
  if (config.map.integer("word_embed_proj_dim", width) && width != spec.hidden) spec.word_embed_dim = width;
  if (!config.flag("layer_norm_elementwise_affine", true)) {
    config.map.fail_at("layer_norm_elementwise_affine", "norms without learned weights are not supported", "", ErrorCode::unsupported);
  }
}

void odd_bloom(HfConfig& config) {
  config.spec.embedding_norm = true;
  config.spec.traits = {"sliced_qkv", "composed_attention", "written_gelu"};
  four_times_hidden(config);
}

void odd_falcon(HfConfig& config) {
  ModelSpec& spec = config.spec;
  spec.traits = {"by_head", "narrow_softmax", "mask_tensor"};
  four_times_hidden(config);
  const bool bias = config.flag("bias", false);
  spec.bias = {bias, bias, bias, false, true};
  const bool renewed = config.flag("new_decoder_architecture", false);
  const bool parallel = config.flag("parallel_attn", true);
  const bool multi_query = config.flag("multi_query", true);
  spec.parallel_residual = parallel || renewed;
  std::int64_t norms = renewed ? 2 : 1;
  config.map.integer("num_ln_in_parallel_attn", norms);
  spec.shared_parallel_norm = spec.parallel_residual && !(renewed && norms == 2);
  if (renewed) {
    config.map.integer("num_kv_heads", spec.kv_heads) || config.map.integer("n_head_kv", spec.kv_heads);
  } else {
    config.map.ignore("num_kv_heads");
    spec.kv_heads = multi_query ? 1 : spec.heads;
  }
  if (config.flag("alibi", false)) spec.positions = PositionKind::alibi;
  rotary_fraction(config, 1);
}

void odd_llama(HfConfig& config) {
  config.spec.bias.ffn = config.flag("mlp_bias", false);
  rotary_fraction(config, 1);
}

void odd_mistral(HfConfig& config) {
  every_layer_windowed(config, 4096);
  rotary_fraction(config, 1);
}

void odd_mixtral(HfConfig& config) {
  every_layer_windowed(config, 0);
  experts(config, "num_local_experts|num_experts", 8, 2);
  config.spec.moe.expert_hidden = config.spec.ffn_hidden;  // the size is one expert's
  config.spec.traits = {"renormalised"};
}

// q, k and v have a bias that no key names. A window counts only when it is switched on, and then from layer max_window_layers.
void odd_qwen2(HfConfig& config) {
  std::int64_t first = 28;
  config.map.integer("max_window_layers", first, 0);
  const bool windowed = config.flag("use_sliding_window", false);
  layer_types(config, windowed ? 4096 : 0, [first](std::int64_t i) { return i >= first; });
  if (!windowed) {
    config.spec.sliding_window = 0;
    config.spec.layer_pattern.clear();
  }
  rotary_fraction(config, 1);
}

void odd_qwen3(HfConfig& config) {
  config.spec.qk_norm = true;
  odd_qwen2(config);
}

void odd_qwen3_moe(HfConfig& config) {
  ModelSpec& spec = config.spec;
  spec.traits = {"renormalised"};
  spec.qk_norm = true;
  const bool windowed = config.flag("use_sliding_window", false);
  if (windowed) {
    every_layer_windowed(config, 4096);
  } else {
    config.map.ignore("sliding_window");
    config.map.ignore("layer_types");
  }
  config.map.ignore("max_window_layers");
  experts(config, "num_experts|num_local_experts", 128, 8);
  config.size("moe_intermediate_size", "moe.expert_hidden", spec.moe.expert_hidden, 768);
  config.size("decoder_sparse_step", "moe.every", spec.moe.every, 1);
  if (const TextNode* dense = config.map.list("mlp_only_layers")) {
    for (const TextNode& item : dense->items) {
      const auto index = item.kind == TextNode::Kind::number ? parse_size(item.text) : fail(ErrorCode::invalid, "");
      if (!index || *index < 0) {
        config.map.fail_at(item.mark, "mlp_only_layers is a list of layer numbers from 0");
        return;
      }
      spec.dense_layers.push_back(*index);
    }
  }
  rotary_fraction(config, 1);
}

// A shared expert beside the routed ones, behind a gate of its own.
void odd_qwen2_moe(HfConfig& config) {
  MoeSpec& moe = config.spec.moe;
  odd_qwen2(config);
  experts(config, "num_experts|num_local_experts", 60, 4);
  config.size("moe_intermediate_size", "moe.expert_hidden", moe.expert_hidden, 1408);
  config.size("shared_expert_intermediate_size", "moe.shared_hidden", moe.shared_hidden, 5632);
  config.size("decoder_sparse_step", "moe.every", moe.every, 1);
  moe.shared_experts = 1;
  moe.shared_gate = true;
  if (const TextNode* dense = config.map.list("mlp_only_layers"); dense && !dense->items.empty()) {
    config.map.fail_at("mlp_only_layers", "dense layers between those of a mixture are not supported for qwen2_moe", "describe it in YAML", ErrorCode::unsupported);
  }
}

void odd_gemma(HfConfig& config) { rotary_fraction(config, 1); }

void odd_gemma2(HfConfig& config) {
  gemma(config);
  layer_types(config, 4096, [](std::int64_t i) { return i % 2 == 0; });
}

void odd_gemma3(HfConfig& config) {
  gemma(config);
  config.spec.traits.emplace_back("two_rotary_tables");
  config.spec.qk_norm = true;
  std::int64_t period = 6;
  config.map.integer("sliding_window_pattern", period) || config.map.integer("_sliding_window_pattern", period);
  layer_types(config, 4096, [period](std::int64_t i) { return (i + 1) % period != 0; });
}

void odd_gpt_oss(HfConfig& config) {
  ModelSpec& spec = config.spec;
  spec.traits = {"clamped_gate"};
  spec.attention_sinks = true;
  experts(config, "num_local_experts|num_experts", 128, 4);
  spec.moe.expert_hidden = spec.ffn_hidden;
  spec.moe.router_bias = spec.moe.expert_bias = true;
  layer_types(config, 128, [](std::int64_t i) { return i % 2 == 0; });
  rotary_fraction(config, 1);
}

void odd_deepseek_v2(HfConfig& config) {
  deepseek(config, {1536, 64, 2, 6, 1407, 0});
  config.spec.bias.ffn = config.flag("mlp_bias", false);
}

void odd_deepseek_v3(HfConfig& config) { deepseek(config, {1536, 256, 1, 8, 2048, 3}); }

void odd_olmoe(HfConfig& config) {
  ModelSpec& spec = config.spec;
  experts(config, "num_experts|num_local_experts", 64, 8);
  spec.moe.expert_hidden = spec.ffn_hidden;
  spec.qk_norm = spec.qk_norm_full = true;
  rotary_fraction(config, 1);
}

// Norms stand on what attention and FFN give instead of on what they take.
void odd_olmo2(HfConfig& config) {
  config.spec.post_norm = true;
  config.spec.traits = {"unit_offset"};
  config.spec.qk_norm = config.spec.qk_norm_full = true;
  rotary_fraction(config, 1);
}

// One norm feeds attention and FFN, which run beside each other; the head has a bias.
void odd_phi(HfConfig& config) {
  ModelSpec& spec = config.spec;
  spec.bias = {true, true, true, true, true};
  spec.parallel_residual = spec.shared_parallel_norm = true;
  spec.qk_norm = config.flag("qk_layernorm", false);
  four_times_hidden(config);
  rotary_fraction(config, 0.5);
}

void odd_starcoder2(HfConfig& config) {
  const bool bias = config.flag("use_bias", true);
  config.spec.bias = {bias, bias, bias, false, true};
  every_layer_windowed(config, 0);
  rotary_fraction(config, 1);
}

void odd_phi3(HfConfig& config) {
  config.spec.fused_gate_up = true;
  config.spec.traits = {"sliced_qkv", "joined_rotary"};
  every_layer_windowed(config, 0);
  rotary_fraction(config, 1);
  config.map.ignore("original_max_position_embeddings");
}

void odd_bert(HfConfig& config) { bert_like(config); }

void odd_roberta(HfConfig& config) {
  bert_like(config);
  ModelSpec& spec = config.spec;
  if (spec.max_positions <= 2) {
    config.map.fail_at("max_position_embeddings", "roberta keeps two rows of its position table for padding; max_position_embeddings must be above 2");
    return;
  }
  spec.position_offset = 2;
  spec.max_positions -= 2;
  spec.traits.emplace_back("masked_positions");
}

void odd_distilbert(HfConfig& config) {
  ModelSpec& spec = config.spec;
  spec.post_norm = spec.embedding_norm = true;
  spec.final_norm = false;
  spec.bias.lm_head = true;
  spec.token_types = 0;
}

void odd_t5(HfConfig& config) {
  ModelSpec& spec = config.spec;
  spec.traits = {"narrow_softmax", "low_norm"};
  // Configurations older than the key say it by a tied table.
  bool scales = true;
  if (!config.map.boolean("scale_decoder_outputs", scales)) config.map.boolean("tie_word_embeddings", scales);
  if (scales) spec.traits.emplace_back("scaled_head");
  config.size("num_layers|num_hidden_layers", "encoder_layers", spec.encoder_layers, 6);
  if (!config.map.integer("num_decoder_layers", spec.decoder_layers)) {
    spec.decoder_layers = spec.encoder_layers;
    config.fill("decoder_layers", std::to_string(spec.decoder_layers), "null or absent: as many as num_layers");
  }
  config.size("relative_attention_num_buckets", "relative_buckets", spec.relative_buckets, 32);
  std::string projection = "relu";
  if (!config.map.text("feed_forward_proj", projection)) config.fill("activation", "relu", "absent: the default of T5Config");
  if (projection == "relu")
    spec.activation = ActivationKind::relu;
  else if (projection == "gelu")
    spec.activation = ActivationKind::gelu;
  else if (projection == "gated-gelu")
    spec.activation = ActivationKind::geglu, spec.traits.emplace_back("composed_gate");
  else if (projection == "gated-silu")
    spec.activation = ActivationKind::swiglu;
  else
    config.map.fail_at("feed_forward_proj", fmt::format("feed_forward_proj '{}' is not supported", printable(projection)), "known: relu, gelu, gated-gelu, gated-silu",
                       ErrorCode::unsupported);
}

void odd_vit(HfConfig& config) {
  ModelSpec& spec = config.spec;
  config.size("image_size", "vision.image", spec.vision.image, 224);
  config.size("patch_size", "vision.patch", spec.vision.patch, 16);
  config.size("num_channels", "vision.channels", spec.vision.channels, 3);
  spec.bias.qkv = config.flag("qkv_bias", true);
  config.map.ignore("pooler_output_size");
  config.map.ignore("encoder_stride");
}

void odd_whisper(HfConfig& config) {
  ModelSpec& spec = config.spec;
  config.size("encoder_layers", "encoder_layers", spec.encoder_layers, 4);
  config.size("decoder_layers", "decoder_layers", spec.decoder_layers, 4);
  config.size("encoder_attention_heads", "encoder_heads", spec.encoder_heads, 6);
  config.size("encoder_ffn_dim", "encoder_ffn_hidden", spec.encoder_ffn_hidden, 1536);
  config.size("num_mel_bins", "speech.mel_bins", spec.speech.mel_bins, 80);
  config.size("max_source_positions", "speech.max_source_positions", spec.speech.max_source_positions, 1500);
  if (spec.speech.max_source_positions <= INT64_MAX / 2) spec.speech.frames = 2 * spec.speech.max_source_positions;
  spec.bias.key = false;
  spec.traits = {"scaled_query", "narrow_softmax", "contiguous_heads"};
  for (const std::string_view key : {"classifier_proj_size", "num_hidden_layers", "mask_time_length", "mask_feature_length", "median_filter_width"}) config.map.ignore(key);
}

}  // namespace rooftile
