// The Hugging Face families that are known: one row of key names, class defaults and traits per family plus, where it is odd, one function.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "frontends/model_spec.h"
#include "frontends/text_tree.h"

namespace rooftile {

struct HfFamily;

// A config.json while it is read.
class HfConfig {
 public:
  HfConfig(MapReader& reader, const HfFamily& row, ModelSpec& model) : map(reader), family(row), spec(model) {}

  // A size under the first of the keys ("n_embd|hidden_size") that is there and not null; else the class default, which is recorded as `key` of the model. Zero default: left open.
  void size(std::string_view keys, std::string_view key, std::int64_t& field, std::int64_t class_default);
  // A switch; an absent one takes the class default, recorded under its own name.
  bool flag(std::string_view key, bool class_default);
  void fill(std::string_view key, std::string value, std::string reason);
  void warn(std::string code, std::string message);

  MapReader& map;
  const HfFamily& family;
  ModelSpec& spec;
};

enum class HfBias : std::uint8_t { none, all, attention_key, qkv };  // attention_key: `attention_bias` says so for q, k, v and the output projection

struct HfFamily {
  std::string_view model_type, class_name;
  ModelKind kind = ModelKind::decoder;
  // Key names, alternatives separated by '|'; empty: the family has none.
  std::string_view hidden = "hidden_size", layers = "num_hidden_layers", heads = "num_attention_heads", kv_heads = "num_key_value_heads", head_dim = "head_dim",
                   ffn = "intermediate_size", vocab = "vocab_size", positions = "max_position_embeddings", activation = "hidden_act";
  struct Defaults {  // of the configuration class, for keys that a file leaves out; 0: derived from others
    std::int64_t hidden = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0, ffn = 0, vocab = 0, positions = 0;
  } defaults;
  NormKind norm = NormKind::rmsnorm;
  PositionKind position_kind = PositionKind::rope;
  std::string_view default_activation = "silu";
  bool gated = true;
  HfBias bias = HfBias::none;
  bool attention_bias_default = false;
  bool tied = false;  // when tie_word_embeddings is absent
  bool fused_qkv = false;
  bool pools = true;  // an encoder or image model without another head ends in a pooler
  void (*odd)(HfConfig&) = nullptr;
};

std::span<const HfFamily> hf_families();
const HfFamily* find_hf_family(std::string_view model_type);

}  // namespace rooftile
