// Hugging Face config.json -> ModelSpec. Key names and oddities of each family are in hf_families.cc and hf_odd.cc; here is what all share.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "estimator/core/suggest.h"
#include "frontends/hf_families.h"
#include "frontends/model_files.h"
#include "frontends/model_words.h"

namespace rooftile {
namespace {

constexpr TextLimits kLimits = {8u << 20, 32, 200'000};

template <typename Visit>
void for_each_key(std::string_view keys, Visit visit) {
  while (!keys.empty()) {
    const std::size_t bar = keys.find('|');
    if (visit(keys.substr(0, bar))) return;
    keys = bar == std::string_view::npos ? std::string_view{} : keys.substr(bar + 1);
  }
}

std::string known_families() {
  std::string known = "gemma3";
  for (const HfFamily& family : hf_families()) known += fmt::format(", {}", family.model_type);
  return known;
}

// The activation of the feed-forward layer, a gated one where the family gates.
void read_activation(HfConfig& config) {
  ModelSpec& spec = config.spec;
  const HfFamily& family = config.family;
  std::string name(family.default_activation);
  std::string_view key = family.activation;
  bool found = family.activation.empty();  // the family leaves no choice
  for_each_key(family.activation, [&](std::string_view candidate) {
    key = candidate;
    return found = config.map.text(candidate, name);
  });
  if (!found) config.fill("activation", name, fmt::format("{} is absent: the default of {}", key, family.class_name));
  ActivationKind plain = ActivationKind::gelu;
  if (name == "silu" || name == "swish")
    plain = ActivationKind::silu;
  else if (name == "gelu_new" || name == "gelu_fast")
    plain = ActivationKind::gelu_new;
  else if (name == "relu")
    plain = ActivationKind::relu;
  else if (name.rfind("gelu", 0) != 0 && name != "quick_gelu") {
    config.map.fail_at(key, fmt::format("activation '{}' is not supported", printable(name)), "known: gelu and its approximations, relu, silu", ErrorCode::unsupported);
    return;
  }
  spec.activation = plain;
  if (!family.gated) return;
  if (plain == ActivationKind::relu) config.map.fail_at(key, "a gated relu is not supported", "known gated: silu, gelu", ErrorCode::unsupported);
  spec.activation = plain == ActivationKind::silu ? ActivationKind::swiglu : ActivationKind::geglu;
}

void read_bias(HfConfig& config) {
  BiasSpec& bias = config.spec.bias;
  switch (config.family.bias) {
    case HfBias::none:
      bias = {false, false, false, false, true};
      break;
    case HfBias::all:
      bias = {true, true, true, false, true};
      break;
    case HfBias::qkv:
      bias = {true, false, false, false, true};
      break;
    case HfBias::attention_key: {
      const bool attention = config.flag("attention_bias", config.family.attention_bias_default);
      bias = {attention, attention, false, false, true};
      break;
    }
  }
}

void read_sizes(HfConfig& config) {
  ModelSpec& spec = config.spec;
  const HfFamily& family = config.family;
  const HfFamily::Defaults& defaults = family.defaults;
  config.size(family.hidden, "hidden", spec.hidden, defaults.hidden);
  config.size(family.layers, "layers", spec.layers, defaults.layers);
  config.size(family.heads, "heads", spec.heads, defaults.heads);
  // Null means as many as heads; an absent key takes the class default, unless that is no divisor of the heads at hand.
  const bool null_kv_heads = config.map.node().find(family.kv_heads) && !config.map.has(family.kv_heads);
  const bool default_divides = defaults.kv_heads > 0 && spec.heads % defaults.kv_heads == 0;
  config.size(family.kv_heads, "kv_heads", spec.kv_heads, null_kv_heads || !default_divides ? 0 : defaults.kv_heads);
  const bool null_head_dim = config.map.node().find(family.head_dim) && !config.map.has(family.head_dim);
  config.size(family.head_dim, "head_dim", spec.head_dim, null_head_dim ? 0 : defaults.head_dim);
  config.size(family.ffn, "ffn_hidden", spec.ffn_hidden, defaults.ffn);
  config.size(family.vocab, "vocab", spec.vocab, defaults.vocab);
  config.size(family.positions, "max_positions", spec.max_positions, defaults.positions);
}

void read_tied(HfConfig& config) {
  ModelSpec& spec = config.spec;
  const bool language = spec.kind != ModelKind::vision;
  if (!language) {
    config.map.ignore("tie_word_embeddings");
    spec.tied_embeddings = false;
    return;
  }
  if (config.map.boolean("tie_word_embeddings", spec.tied_embeddings)) return;
  spec.tied_embeddings = config.family.tied;
  const std::string effect =
      spec.vocab > 0 && spec.hidden < INT64_MAX / spec.vocab ? fmt::format("; the other choice changes the count by {} parameters", spec.vocab * spec.hidden) : "";
  config.fill("tied_embeddings", spec.tied_embeddings ? "true" : "false", fmt::format("tie_word_embeddings is absent: the default of {}{}", config.family.class_name, effect));
}

bool ends_with(std::string_view text, std::string_view end) { return text.size() >= end.size() && text.substr(text.size() - end.size()) == end; }

// The head by the class that `architectures` names, else the family's default.
void read_head(HfConfig& config) {
  ModelSpec& spec = config.spec;
  spec.head = default_head(config.family.kind);
  std::string architecture;
  if (const TextNode* list = config.map.any("architectures"); list && list->kind == TextNode::Kind::list && !list->items.empty()) architecture = list->items[0].text;
  const bool pools = config.family.pools && (spec.kind == ModelKind::encoder || spec.kind == ModelKind::vision);
  if (architecture.empty()) {
    config.fill("head", std::string(name_in(kHeadKinds, spec.head)), "architectures is absent");
  } else if (ends_with(architecture, "ForCausalLM") || ends_with(architecture, "LMHeadModel")) {
    if (spec.kind != ModelKind::decoder)
      config.warn("head_not_modelled", fmt::format("{} is not modelled; computed with a {} head", printable(architecture), name_in(kHeadKinds, spec.head)));
  } else if (ends_with(architecture, "ForMaskedLM") && spec.kind == ModelKind::encoder) {
    spec.head = HeadKind::masked_lm;
  } else if (ends_with(architecture, "ForConditionalGeneration")) {
    if (spec.kind == ModelKind::speech) spec.head = HeadKind::seq2seq_lm;
  } else if (ends_with(architecture, "ForSequenceClassification") && (spec.kind == ModelKind::encoder || spec.kind == ModelKind::decoder)) {
    spec.head = HeadKind::classifier;
    spec.pooler = spec.kind == ModelKind::encoder;
  } else if (ends_with(architecture, "ForImageClassification")) {
    spec.head = HeadKind::classifier;
  } else if (ends_with(architecture, "Model") && !ends_with(architecture, "EncoderModel") && !ends_with(architecture, "DoubleHeadsModel")) {
    spec.head = HeadKind::none;
    spec.pooler = pools;
  } else {
    config.warn("head_not_modelled", fmt::format("{} is not modelled; computed with a {} head", printable(architecture), name_in(kHeadKinds, spec.head)));
  }
  std::int64_t labels = 2;
  const bool given = config.map.integer("num_labels", labels);
  if (const TextNode* names = config.map.any("id2label"); !given && names && !names->entries.empty())
    labels = static_cast<std::int64_t>(names->entries.size());
  else if (!given && spec.head == HeadKind::classifier)
    config.fill(spec.kind == ModelKind::vision ? "vision.labels" : "labels", "2", "id2label is absent");
  spec.labels = spec.vision.labels = labels;
}

// Keys that change no size, although they look like one.
constexpr std::array<std::string_view, 34> kHarmless = {"num_beams",
                                                        "num_beam_groups",
                                                        "num_return_sequences",
                                                        "chunk_size_feed_forward",
                                                        "no_repeat_ngram_size",
                                                        "encoder_no_repeat_ngram_size",
                                                        "max_length",
                                                        "min_length",
                                                        "pretraining_tp",
                                                        "n_group",
                                                        "topk_group",
                                                        "rope_theta",
                                                        "n_ctx",
                                                        "rotary_emb_base",
                                                        "max_window_layers",
                                                        "top_k",
                                                        "num_nextn_predict_layers",
                                                        "seq_length",
                                                        "attention_hidden_size",
                                                        "relative_attention_max_distance",
                                                        "original_max_position_embeddings",
                                                        "ep_size",
                                                        "seq_aux",
                                                        "num_experts_per_tok",
                                                        "n_positions",
                                                        "initial_context_length",
                                                        "experts_per_token",
                                                        "norm_num_groups",
                                                        "mtp_num_layers",
                                                        "task_specific_params",
                                                        "rotary_dim",
                                                        "num_kv_heads",
                                                        "sliding_window",
                                                        "decoder_sparse_step"};

// A number that looks like a size but that nothing has read may mean work that is not modelled.
void warn_unread_sizes(HfConfig& config) {
  constexpr std::array<std::string_view, 13> kEndings = {"_size",  "_dim",      "_rank",  "_layers", "_heads",   "_experts", "_hidden",
                                                         "_width", "_channels", "_depth", "_freq",   "_buckets", "_topk"};
  for (const TextEntry* entry : config.map.unread()) {
    const std::string& key = entry->key;
    if (entry->value.kind != TextNode::Kind::number || std::find(kHarmless.begin(), kHarmless.end(), key) != kHarmless.end()) continue;
    const bool looks = key.rfind("num_", 0) == 0 || key.rfind("n_", 0) == 0 || key.rfind("d_", 0) == 0 ||
                       std::any_of(kEndings.begin(), kEndings.end(), [&](std::string_view ending) { return ends_with(key, ending); });
    if (!looks) continue;
    config.warn("unknown_config_key", fmt::format("{}: '{}' = {} looks like a size, but is not known for {}; it has no effect here", place_of(config.map.file(), entry->mark),
                                                  printable(key), printable(entry->value.text), config.family.model_type));
    if (config.spec.warnings.size() > 20) return;
  }
}

void refuse_unmodelled(HfConfig& config) {
  if (const TextNode* sparse = config.map.any("per_layer_config"); sparse && !(sparse->is_null() || (sparse->entries.empty() && sparse->items.empty()))) {
    config.map.fail_at("per_layer_config", "sizes that differ by layer (per_layer_config) are not supported", "", ErrorCode::unsupported);
  }
  if (config.map.has("quantization_config")) {
    config.map.ignore("quantization_config");
    config.warn("quantization_ignored", "quantization_config is about storage; weights are counted in the dtype of the run");
  }
}

Result<ModelSpec> read_family(const TextNode& node, const HfFamily& family, const std::string& file, ModelSpec spec) {
  std::optional<Error> error;
  MapReader map(node, file, error);
  HfConfig config(map, family, spec);
  for (const std::string_view key : {"model_type", "_name_or_path", "transformers_version"}) map.ignore(key);
  for (const std::string_view key : {"torch_dtype", "dtype"}) {
    const TextNode* stored = map.any(key);
    if (stored == nullptr || stored->kind != TextNode::Kind::text || stored->text == "auto" || parse_dtype(stored->text)) continue;
    spec.warnings.push_back({"unknown_dtype", fmt::format("{} '{}' is not known and not used; --dtype says what is computed in", key, printable(stored->text))});
  }
  spec.family = family.model_type;
  spec.kind = family.kind;
  spec.norm = family.norm;
  spec.norm_bias = family.norm == NormKind::layernorm;
  spec.positions = family.position_kind;
  spec.fused_qkv = family.fused_qkv;
  read_sizes(config);
  read_activation(config);
  read_bias(config);
  if (!error && family.odd) family.odd(config);
  read_tied(config);
  read_head(config);
  refuse_unmodelled(config);
  if (error) return tl::unexpected(*error);
  warn_unread_sizes(config);
  Result<ModelSpec> resolved = resolve(std::move(spec));
  if (!resolved && resolved.error().place.empty()) resolved.error().place = file;
  return resolved;
}

std::string name_from(const TextNode& root, const std::string& file, std::string_view model_type) {
  if (const TextNode* path = root.find("_name_or_path"); path && path->kind == TextNode::Kind::text && !path->text.empty()) {
    const std::string name = std::filesystem::path(path->text).filename().string();
    if (!name.empty() && name != "." && name != "..") return name;
  }
  const std::filesystem::path path(file);
  if (path.stem() != "config") return path.stem().string();
  const std::string folder = path.parent_path().filename().string();
  return folder.empty() || folder == "." ? std::string(model_type) : folder;
}

}  // namespace

void HfConfig::size(std::string_view keys, std::string_view key, std::int64_t& field, std::int64_t class_default) {
  bool found = false;
  for_each_key(keys, [&](std::string_view candidate) { return found = map.integer(candidate, field); });
  if (found) {  // the other names of the same size are known too
    for_each_key(keys, [&](std::string_view candidate) {
      map.ignore(candidate);
      return false;
    });
    return;
  }
  if (class_default == 0 || map.failed()) return;
  field = class_default;
  fill(key, std::to_string(class_default), fmt::format("{} is absent: the default of {}", keys.substr(0, keys.find('|')), family.class_name));
}

bool HfConfig::flag(std::string_view key, bool class_default) {
  bool value = class_default;
  if (!map.boolean(key, value) && !map.node().find(key)) fill(key, value ? "true" : "false", fmt::format("absent: the default of {}", family.class_name));
  return value;
}

void HfConfig::fill(std::string_view key, std::string value, std::string reason) { spec.filled.push_back({std::string(key), std::move(value), std::move(reason)}); }

void HfConfig::warn(std::string code, std::string message) { spec.warnings.push_back({std::move(code), std::move(message)}); }

Result<ModelSpec> read_hf_config(std::string_view text, const std::string& file) {
  const Result<TextNode> root = parse_json(text, file, kLimits);
  if (!root) return tl::unexpected(root.error());
  std::optional<Error> error;
  MapReader map(*root, file, error);
  std::string model_type;
  const bool typed = map.text("model_type", model_type);
  if (error) return tl::unexpected(*error);
  if (!typed) return fail(ErrorCode::invalid, "'model_type' is missing: this is no Hugging Face config.json", file, "known: " + known_families());

  ModelSpec spec;
  spec.file = file;
  spec.source = file;
  spec.name = name_from(*root, file, model_type);
  const TextNode* node = &*root;
  if (const TextNode* nested = root->find("text_config"); nested && nested->kind == TextNode::Kind::map) {
    // A model of text and images: the language model is described in a part of its own.
    const TextNode* type = nested->find("model_type");
    const std::string inner = type && type->kind == TextNode::Kind::text ? type->text : model_type == "gemma3" ? "gemma3_text" : "";
    if (find_hf_family(inner) && !find_hf_family(model_type)) {
      spec.warnings.push_back({"only_text_part", fmt::format("{} has a vision or audio part; only its language model ({}) is computed", printable(model_type), inner)});
      model_type = inner;
      node = nested;
    }
  }
  const HfFamily* family = find_hf_family(model_type);
  if (!family) {
    std::vector<std::string> known;
    for (const HfFamily& row : hf_families()) known.emplace_back(row.model_type);
    const std::string near = nearest(model_type, known);
    return fail(ErrorCode::unsupported, fmt::format("model_type '{}' is not known", printable(model_type)), place_of(file, map.mark_of("model_type")),
                fmt::format("{}known: {}; any transformer can be described in YAML (kind, layers, hidden, heads, vocab, ffn_hidden)",
                            near.empty() ? "" : fmt::format("did you mean '{}'? ", near), known_families()));
  }
  return read_family(*node, *family, file, std::move(spec));
}

}  // namespace rooftile
