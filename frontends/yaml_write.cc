// ModelSpec -> YAML that reads back to the same spec. Everything that shapes the model is written, so that the text shows what was resolved.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "frontends/model_files.h"
#include "frontends/model_words.h"
#include "frontends/text_tree.h"

namespace rooftile {
namespace {

class Writer {
 public:
  void line(std::string_view key, std::string_view value) { text_ += fmt::format("{}: {}\n", key, value); }
  void size(std::string_view key, std::int64_t value) {
    if (value != 0) line(key, std::to_string(value));
  }
  void flag(std::string_view key, bool value) { line(key, value ? "true" : "false"); }
  void flag_if(std::string_view key, bool value) {
    if (value) flag(key, true);
  }
  void quoted(std::string_view key, std::string_view value) {
    if (!value.empty()) line(key, quote(value));
  }
  static std::string quote(std::string_view value) {
    std::string text = "\"";
    for (const char c : value) {
      if (c == '"' || c == '\\') text += '\\';
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
        text += fmt::format("\\x{:02x}", static_cast<unsigned>(static_cast<unsigned char>(c)));
      } else {
        text += c;
      }
    }
    return text + "\"";
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

std::string_view yes_no(bool value) { return value ? "true" : "false"; }

void write_sizes(Writer& out, const ModelSpec& spec) {
  const bool two_stacks = spec.encoder_layers > 0;
  if (two_stacks) {
    out.size("encoder_layers", spec.encoder_layers);
    out.size("decoder_layers", spec.decoder_layers);
    if (spec.encoder_heads != spec.heads) out.size("encoder_heads", spec.encoder_heads);
    if (spec.encoder_ffn_hidden != spec.ffn_hidden) out.size("encoder_ffn_hidden", spec.encoder_ffn_hidden);
  } else {
    out.size("layers", spec.layers);
  }
  out.size("hidden", spec.hidden);
  out.size("heads", spec.heads);
  if (spec.mla.kv_lora_rank == 0) {
    out.size("kv_heads", spec.kv_heads);
    out.size("head_dim", spec.head_dim);
    if (spec.v_head_dim != spec.head_dim) out.size("v_head_dim", spec.v_head_dim);
  }
  out.size("vocab", spec.vocab);
  out.size("ffn_hidden", spec.ffn_hidden);
  if (spec.kind != ModelKind::vision) out.size("max_positions", spec.max_positions);
  out.size("position_offset", spec.position_offset);
  out.size("token_types", spec.token_types);
  out.size("word_embed_dim", spec.word_embed_dim);
  if (spec.positions == PositionKind::relative) out.size("relative_buckets", spec.relative_buckets);
  if (spec.head == HeadKind::classifier && spec.kind != ModelKind::vision) out.size("labels", spec.labels);
}

void write_structure(Writer& out, const ModelSpec& spec) {
  out.line("activation", name_in(kActivations, spec.activation));
  out.line("norm", name_in(kNorms, spec.norm));
  if (spec.norm == NormKind::layernorm && !spec.norm_bias) out.flag("norm_bias", false);
  out.line("positions", name_in(kPositions, spec.positions));
  if (spec.positions == PositionKind::rope && spec.rotary_fraction != 1.0) out.line("rotary_fraction", fmt::format("{}", spec.rotary_fraction));
  out.line("head", name_in(kHeadKinds, spec.head));
  out.flag("tied_embeddings", spec.tied_embeddings);
  const BiasSpec& bias = spec.bias;
  const std::string key = bias.key ? "" : ", key: false";
  out.line("bias",
           fmt::format("{{qkv: {}, attention_out: {}, ffn: {}, lm_head: {}{}}}", yes_no(bias.qkv), yes_no(bias.attention_out), yes_no(bias.ffn), yes_no(bias.lm_head), key));
  out.flag("fused_qkv", spec.fused_qkv);
  out.flag_if("fused_gate_up", spec.fused_gate_up);
  out.flag_if("parallel_residual", spec.parallel_residual);
  out.flag_if("shared_parallel_norm", spec.shared_parallel_norm);
  out.flag_if("post_norm", spec.post_norm);
  if (spec.final_norm == spec.post_norm) out.flag("final_norm", spec.final_norm);
  out.flag_if("embedding_norm", spec.embedding_norm);
  out.flag_if("post_norms", spec.post_norms);
  if (spec.qk_norm) out.line("qk_norm", spec.qk_norm_full ? "full" : "per_head");
  out.flag_if("attention_sinks", spec.attention_sinks);
  out.flag_if("attention_softcap", spec.attention_softcap);
  out.flag_if("logits_softcap", spec.logits_softcap);
  out.flag_if("pooler", spec.pooler);
  std::string traits;
  for (const std::string& trait : spec.traits) traits += (traits.empty() ? "" : ", ") + trait;
  if (!traits.empty()) out.line("traits", "[" + traits + "]");
  if (spec.dropout > 0) out.line("dropout", fmt::format("{}", spec.dropout));
  if (spec.dtype != DType::bf16) out.line("dtype", name_of(spec.dtype));
  out.size("sliding_window", spec.sliding_window);
  if (!spec.layer_pattern.empty()) {
    std::string kinds;
    for (const LayerKind kind : spec.layer_pattern) kinds += fmt::format("{}{}", kinds.empty() ? "" : ", ", name_in(kLayerKinds, kind));
    out.line("layer_pattern", fmt::format("[{}]", kinds));
  }
}

void write_parts(Writer& out, const ModelSpec& spec) {
  if (const MoeSpec& moe = spec.moe; moe.experts > 0) {
    std::string text = fmt::format("{{experts: {}, top_k: {}, expert_hidden: {}", moe.experts, moe.top_k, moe.expert_hidden);
    if (moe.shared_experts > 0) text += fmt::format(", shared_experts: {}, shared_hidden: {}", moe.shared_experts, moe.shared_hidden);
    if (moe.first_dense_layers > 0) text += fmt::format(", first_dense_layers: {}", moe.first_dense_layers);
    if (moe.every != 1) text += fmt::format(", every: {}", moe.every);
    if (moe.shared_gate) text += ", shared_gate: true";
    if (moe.router_bias) text += ", router_bias: true";
    if (moe.expert_bias) text += ", expert_bias: true";
    if (!spec.dense_layers.empty()) text += fmt::format(", dense_layers: [{}]", fmt::join(spec.dense_layers, ", "));
    out.line("moe", text + "}");
  }
  if (const MlaSpec& mla = spec.mla; mla.kv_lora_rank > 0) {
    const std::string query = mla.q_lora_rank > 0 ? fmt::format("q_lora_rank: {}, ", mla.q_lora_rank) : "";
    out.line("mla", fmt::format("{{{}kv_lora_rank: {}, qk_nope_head_dim: {}, qk_rope_head_dim: {}, v_head_dim: {}}}", query, mla.kv_lora_rank, mla.qk_nope_head_dim,
                                mla.qk_rope_head_dim, mla.v_head_dim));
  }
  if (spec.kind == ModelKind::vision) {
    out.line("vision", fmt::format("{{image: {}, patch: {}, channels: {}, labels: {}}}", spec.vision.image, spec.vision.patch, spec.vision.channels, spec.vision.labels));
  }
  if (spec.kind == ModelKind::speech) {
    out.line("speech", fmt::format("{{mel_bins: {}, frames: {}, max_source_positions: {}}}", spec.speech.mel_bins, spec.speech.frames, spec.speech.max_source_positions));
  }
  if (!spec.run.empty()) {
    std::string options;
    for (const auto& [option, value] : spec.run) options += fmt::format("{}{}: {}", options.empty() ? "" : ", ", option, Writer::quote(value));
    out.line("run", fmt::format("{{{}}}", options));
  }
}

}  // namespace

std::string write_yaml_model(const ModelSpec& spec) {
  Writer out;
  out.quoted("name", spec.name);
  out.quoted("source", spec.source);
  if (fits_int64(spec.published_parameters) && spec.published_parameters > 0) out.line("parameters", to_string(spec.published_parameters));
  out.quoted("family", spec.family);
  out.line("kind", name_in(kModelKinds, spec.kind));
  write_sizes(out, spec);
  write_structure(out, spec);
  write_parts(out, spec);
  return out.take();
}

}  // namespace rooftile
