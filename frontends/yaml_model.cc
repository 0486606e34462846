// Model YAML -> ModelSpec. One line per key; what a key means stands in model_spec.h and docs, its default in resolve.cc or beside the line that fills it.
#include <fmt/format.h>

#include <algorithm>

#include "estimator/core/suggest.h"
#include "frontends/model_files.h"
#include "frontends/model_words.h"
#include "frontends/text_tree.h"

namespace rooftile {
namespace {

// Options of `estimate` that a model may suggest under `run:`; written with _ or -.
constexpr std::string_view kRunOptions[] = {"device",
                                            "phase",
                                            "dtype",
                                            "mbs",
                                            "gbs",
                                            "seq",
                                            "context",
                                            "runtime",
                                            "attention",
                                            "precision",
                                            "optimizer",
                                            "recompute",
                                            "clocks",
                                            "mode",
                                            "gpus",
                                            "calibration",
                                            "cuda_graphs",
                                            "cluster",
                                            "tp",
                                            "sp",
                                            "pp",
                                            "vpp",
                                            "cp",
                                            "ep",
                                            "etp",
                                            "dp",
                                            "dp_shard",
                                            "gpus_per_node",
                                            "zero",
                                            "layers",
                                            "format",
                                            "pp_schedule",
                                            "overlap_grad_reduce",
                                            "overlap_param_gather"};

template <typename Enum, std::size_t N>
bool word(MapReader& map, std::string_view key, const WordTable<Enum, N>& table, Enum& value) {
  std::string text;
  if (!map.text(key, text)) return false;
  const std::optional<Enum> parsed = parse_in(table, text);
  if (!parsed) {
    map.fail_at(key, fmt::format("'{}' is no {}", printable(text), key), did_you_mean(text, words_of(table)));
    return false;
  }
  value = *parsed;
  return true;
}

template <typename T>
void fill(ModelSpec& spec, std::string_view key, T& field, T value, std::string_view shown, std::string reason) {
  field = value;
  spec.filled.push_back({std::string(key), std::string(shown), std::move(reason)});
}

std::string_view yes_no(bool value) { return value ? "true" : "false"; }

void read_bias(MapReader& map, ModelSpec& spec) {
  const bool layernorm = spec.norm == NormKind::layernorm;
  const TextNode* node = map.any("bias");
  if (node && node->kind == TextNode::Kind::map) {
    MapReader bias(*node, map.file(), map.error());
    spec.bias = {layernorm, layernorm, layernorm, false, true};
    bias.boolean("qkv", spec.bias.qkv);
    bias.boolean("attention_out", spec.bias.attention_out);
    bias.boolean("ffn", spec.bias.ffn);
    bias.boolean("lm_head", spec.bias.lm_head);
    bias.boolean("key", spec.bias.key);
    bias.refuse_unread("in bias");
    return;
  }
  bool all = layernorm;
  if (!map.boolean("bias", all)) spec.filled.push_back({"bias", std::string(yes_no(all)), fmt::format("default for {}", name_in(kNorms, spec.norm))});
  spec.bias = {all, all, all, false, true};
}

void read_pattern(MapReader& map, ModelSpec& spec) {
  const TextNode* list = map.list("layer_pattern");
  if (!list) return;
  if (list->items.empty()) map.fail_at("layer_pattern", "an empty layer_pattern", "leave it out where all layers are alike");
  for (const TextNode& item : list->items) {
    const auto kind = item.is_scalar() ? parse_in(kLayerKinds, item.text) : std::nullopt;
    if (!kind) {
      map.fail_at(item.mark, fmt::format("'{}' is no layer kind", printable(item.text)), did_you_mean(item.text, words_of(kLayerKinds)));
      return;
    }
    spec.layer_pattern.push_back(*kind);
  }
}

void read_moe(MapReader& map, ModelSpec& spec) {
  const TextNode* node = map.map("moe");
  if (!node) return;
  MapReader moe(*node, map.file(), map.error());
  const bool experts = moe.integer("experts", spec.moe.experts);
  const bool top_k = moe.integer("top_k", spec.moe.top_k);
  if (!map.failed() && !(experts && top_k))
    map.fail_at(node->mark, fmt::format("moe needs '{}'", experts ? "top_k" : "experts"), "moe: {experts: 8, top_k: 2, expert_hidden: 14336}");
  moe.integer("expert_hidden", spec.moe.expert_hidden);
  moe.integer("shared_experts", spec.moe.shared_experts, 0);
  moe.integer("shared_hidden", spec.moe.shared_hidden, 0);
  moe.integer("first_dense_layers", spec.moe.first_dense_layers, 0);
  moe.integer("every", spec.moe.every);
  moe.boolean("shared_gate", spec.moe.shared_gate);
  moe.boolean("router_bias", spec.moe.router_bias);
  moe.boolean("expert_bias", spec.moe.expert_bias);
  if (const TextNode* dense = moe.list("dense_layers")) {
    for (const TextNode& item : dense->items) {
      const Result<std::int64_t> index = item.is_scalar() ? parse_size(item.text) : fail(ErrorCode::invalid, "a layer is a number from 0");
      if (!index || *index < 0) {
        moe.fail_at(item.mark, index ? "a layer is a number from 0" : index.error().message);
        break;
      }
      spec.dense_layers.push_back(*index);
    }
  }
  moe.refuse_unread("in moe");
}

void read_mla(MapReader& map, ModelSpec& spec) {
  const TextNode* node = map.map("mla");
  if (!node) return;
  MapReader mla(*node, map.file(), map.error());
  mla.integer("q_lora_rank", spec.mla.q_lora_rank, 0);
  const bool all = mla.integer("kv_lora_rank", spec.mla.kv_lora_rank) & mla.integer("qk_nope_head_dim", spec.mla.qk_nope_head_dim) &
                   mla.integer("qk_rope_head_dim", spec.mla.qk_rope_head_dim) & mla.integer("v_head_dim", spec.mla.v_head_dim);
  if (!all && !map.failed())
    map.fail_at(node->mark, "mla needs kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim and v_head_dim", "q_lora_rank may be left out: a plain query projection");
  mla.refuse_unread("in mla");
}

// A size of a part (`vision`, `speech`) that keeps its preset value when it is absent, which is recorded where the model has that part.
void part_size(MapReader* part, ModelSpec& spec, std::string_view name, std::string_view key, std::int64_t& field, bool used) {
  if (part && part->integer(key, field)) return;
  if (used) spec.filled.push_back({fmt::format("{}.{}", name, key), std::to_string(field), "default"});
}

void read_vision(MapReader& map, ModelSpec& spec) {
  const bool used = spec.kind == ModelKind::vision;
  const TextNode* node = map.map("vision");
  std::optional<MapReader> vision;
  if (node) vision.emplace(*node, map.file(), map.error());
  MapReader* part = vision ? &*vision : nullptr;
  part_size(part, spec, "vision", "image", spec.vision.image, used);
  part_size(part, spec, "vision", "patch", spec.vision.patch, used);
  part_size(part, spec, "vision", "channels", spec.vision.channels, used);
  part_size(part, spec, "vision", "labels", spec.vision.labels, used && spec.head == HeadKind::classifier);
  if (part) part->refuse_unread("in vision");
}

void read_speech(MapReader& map, ModelSpec& spec) {
  const bool used = spec.kind == ModelKind::speech;
  const TextNode* node = map.map("speech");
  std::optional<MapReader> speech;
  if (node) speech.emplace(*node, map.file(), map.error());
  MapReader* part = speech ? &*speech : nullptr;
  part_size(part, spec, "speech", "mel_bins", spec.speech.mel_bins, used);
  part_size(part, spec, "speech", "max_source_positions", spec.speech.max_source_positions, used);
  // The second convolution halves the frames.
  if (spec.speech.max_source_positions <= INT64_MAX / 2) spec.speech.frames = 2 * spec.speech.max_source_positions;
  part_size(part, spec, "speech", "frames", spec.speech.frames, used);
  if (part) part->refuse_unread("in speech");
}

void read_run(MapReader& map, ModelSpec& spec) {
  const TextNode* node = map.map("run");
  if (!node) return;
  for (const TextEntry& entry : node->entries) {
    std::string option = entry.key;
    std::replace(option.begin(), option.end(), '-', '_');
    if (std::find(std::begin(kRunOptions), std::end(kRunOptions), option) == std::end(kRunOptions)) {
      const std::vector<std::string> known(std::begin(kRunOptions), std::end(kRunOptions));
      map.fail_at(entry.mark, fmt::format("unknown option '{}' in run", printable(entry.key)), did_you_mean(option, known));
      return;
    }
    if (!entry.value.is_scalar()) {
      map.fail_at(entry.value.mark, fmt::format("run.{} needs one value", option));
      return;
    }
    spec.run[option] = entry.value.is_null() ? "" : entry.value.text;
    spec.run_place[option] = place_of(map.file(), entry.value.mark);
  }
}

void read_sizes(MapReader& map, ModelSpec& spec) {
  const bool layers = map.integer("layers", spec.layers);
  map.integer("encoder_layers", spec.encoder_layers);
  map.integer("decoder_layers", spec.decoder_layers);
  map.integer("encoder_heads", spec.encoder_heads);
  map.integer("encoder_ffn_hidden", spec.encoder_ffn_hidden);
  map.integer("hidden", spec.hidden);
  map.integer("heads", spec.heads);
  map.integer("vocab", spec.vocab);
  map.integer("ffn_hidden", spec.ffn_hidden);
  map.integer("kv_heads", spec.kv_heads);
  map.integer("head_dim", spec.head_dim);
  map.integer("v_head_dim", spec.v_head_dim);
  map.integer("max_positions", spec.max_positions);
  map.integer("position_offset", spec.position_offset, 0);
  map.integer("relative_buckets", spec.relative_buckets);
  map.integer("token_types", spec.token_types, 0);
  map.integer("word_embed_dim", spec.word_embed_dim);
  map.integer("labels", spec.labels);
  const bool two_stacks = spec.kind == ModelKind::encoder_decoder || spec.kind == ModelKind::speech;
  if (two_stacks && layers) {  // one number for both stacks
    if (spec.encoder_layers == 0) spec.encoder_layers = spec.layers;
    if (spec.decoder_layers == 0) spec.decoder_layers = spec.layers;
  }
}

void read_structure(MapReader& map, ModelSpec& spec) {
  const std::string default_of_norm = fmt::format("default for {}", name_in(kNorms, spec.norm));
  const bool layernorm = spec.norm == NormKind::layernorm;
  if (!word(map, "activation", kActivations, spec.activation)) fill(spec, "activation", spec.activation, ActivationKind::gelu, "gelu", "default");
  if (!word(map, "positions", kPositions, spec.positions)) {
    const PositionKind positions = layernorm ? PositionKind::learned : PositionKind::rope;
    fill(spec, "positions", spec.positions, positions, name_in(kPositions, positions), default_of_norm);
  }
  if (!map.boolean("tied_embeddings", spec.tied_embeddings)) fill(spec, "tied_embeddings", spec.tied_embeddings, layernorm, yes_no(layernorm), default_of_norm);
  spec.norm_bias = layernorm;
  map.boolean("norm_bias", spec.norm_bias);
  if (!map.boolean("fused_qkv", spec.fused_qkv)) fill(spec, "fused_qkv", spec.fused_qkv, true, "true", "default: one matmul for queries, keys and values");
  map.boolean("fused_gate_up", spec.fused_gate_up);
  map.boolean("parallel_residual", spec.parallel_residual);
  map.boolean("shared_parallel_norm", spec.shared_parallel_norm);
  map.boolean("post_norm", spec.post_norm);
  spec.final_norm = !spec.post_norm;
  map.boolean("final_norm", spec.final_norm);
  map.boolean("embedding_norm", spec.embedding_norm);
  map.boolean("post_norms", spec.post_norms);
  map.boolean("attention_sinks", spec.attention_sinks);
  map.boolean("attention_softcap", spec.attention_softcap);
  map.boolean("logits_softcap", spec.logits_softcap);
  map.boolean("pooler", spec.pooler);
  std::string qk_norm;
  if (const TextNode* node = map.any("qk_norm"); node && (node->text == "full" || node->text == "per_head")) {
    spec.qk_norm = true;
    spec.qk_norm_full = node->text == "full";
  } else {
    map.boolean("qk_norm", spec.qk_norm);
  }
  map.number("rotary_fraction", spec.rotary_fraction);
  if (const TextNode* traits = map.list("traits")) {
    for (const TextNode& item : traits->items) {
      if (std::find(kModelTraits.begin(), kModelTraits.end(), item.text) == kModelTraits.end()) {
        map.fail_at(item.mark, fmt::format("unknown trait '{}'", printable(item.text)), fmt::format("known: {}", fmt::join(kModelTraits, ", ")));
        break;
      }
      spec.traits.push_back(item.text);
    }
  }
  map.number("dropout", spec.dropout);
  map.integer("sliding_window", spec.sliding_window, 0);
  std::string dtype;
  if (map.text("dtype", dtype)) {
    const auto parsed = parse_dtype(dtype);
    if (!parsed) map.fail_at("dtype", fmt::format("unknown dtype '{}'", printable(dtype)), "known: bf16, fp16, tf32, fp32, fp8");
    if (parsed) spec.dtype = *parsed;
  }
}

}  // namespace

Result<ModelSpec> read_yaml_model(std::string_view text, const std::string& file) {
  const Result<TextNode> root = parse_yaml(text, file);
  if (!root) return tl::unexpected(root.error());
  if (root->is_null()) return fail(ErrorCode::invalid, "the file is empty", file, "a model needs at least kind, layers, hidden, heads, vocab, ffn_hidden");
  std::optional<Error> error;
  MapReader map(*root, file, error);
  ModelSpec spec;
  spec.file = file;
  spec.family = "yaml";
  if (!map.text("name", spec.name) || spec.name.empty()) spec.name = std::filesystem::path(file).stem().string();
  map.text("source", spec.source);
  if (map.text("family", spec.family) && spec.family.empty()) spec.family = "yaml";
  if (const TextNode* blocks = map.any("blocks"); blocks && !blocks->is_null()) {
    map.fail_at("blocks", "custom models ('blocks:') are not yet supported", "describe the model with the keys of a transformer, or give an ONNX file", ErrorCode::unsupported);
  }
  if (!word(map, "kind", kModelKinds, spec.kind)) fill(spec, "kind", spec.kind, ModelKind::decoder, "decoder", "default");
  if (!word(map, "norm", kNorms, spec.norm)) fill(spec, "norm", spec.norm, NormKind::layernorm, "layernorm", "default");
  if (!word(map, "head", kHeadKinds, spec.head))
    fill(spec, "head", spec.head, default_head(spec.kind), name_in(kHeadKinds, default_head(spec.kind)), fmt::format("default for {}", name_in(kModelKinds, spec.kind)));
  read_sizes(map, spec);
  read_structure(map, spec);
  read_bias(map, spec);
  read_pattern(map, spec);
  read_moe(map, spec);
  read_mla(map, spec);
  read_vision(map, spec);
  read_speech(map, spec);
  read_run(map, spec);
  std::int64_t parameters = 0;
  if (map.integer("parameters", parameters)) spec.published_parameters = parameters;
  map.refuse_unread("in a model");
  if (error) return tl::unexpected(*error);
  Result<ModelSpec> resolved = resolve(std::move(spec));
  if (!resolved && resolved.error().place.empty()) resolved.error().place = file;
  return resolved;
}

}  // namespace rooftile
