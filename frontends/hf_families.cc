#include "frontends/hf_families.h"

#include "frontends/hf_odd.h"

namespace rooftile {
namespace {

constexpr NormKind kLayer = NormKind::layernorm;
constexpr NormKind kRms = NormKind::rmsnorm;

// Class defaults are those of the configuration classes of transformers 5.17.
// clang-format off
constexpr HfFamily kFamilies[] = {
    {.model_type = "gpt2", .class_name = "GPT2Config", .hidden = "n_embd|hidden_size", .layers = "n_layer|num_hidden_layers", .heads = "n_head|num_attention_heads", .kv_heads = "",
     .head_dim = "", .ffn = "n_inner", .positions = "n_positions|max_position_embeddings|n_ctx", .activation = "activation_function",
     .defaults = {768, 12, 12, 0, 0, 0, 50257, 1024}, .norm = kLayer, .position_kind = PositionKind::learned, .default_activation = "gelu_new", .gated = false, .bias = HfBias::all,
     .tied = true, .fused_qkv = true, .odd = odd_gpt2},
    {.model_type = "gpt_neo", .class_name = "GPTNeoConfig", .layers = "num_layers|num_hidden_layers", .heads = "num_heads|num_attention_heads", .kv_heads = "", .head_dim = "",
     .activation = "activation_function", .defaults = {2048, 24, 16, 0, 0, 0, 50257, 2048}, .norm = kLayer, .position_kind = PositionKind::learned, .default_activation = "gelu_new",
     .gated = false, .tied = true, .odd = odd_gpt_neo},
    {.model_type = "gptj", .class_name = "GPTJConfig", .hidden = "n_embd|hidden_size", .layers = "n_layer|num_hidden_layers", .heads = "n_head|num_attention_heads", .kv_heads = "",
     .head_dim = "", .ffn = "n_inner", .positions = "n_positions|max_position_embeddings", .activation = "activation_function",
     .defaults = {4096, 28, 16, 0, 0, 0, 50400, 2048}, .norm = kLayer, .default_activation = "gelu_new", .gated = false, .odd = odd_gptj},
    {.model_type = "gpt_neox", .class_name = "GPTNeoXConfig", .kv_heads = "", .head_dim = "", .defaults = {6144, 44, 64, 0, 0, 24576, 50432, 2048}, .norm = kLayer,
     .default_activation = "gelu", .gated = false, .fused_qkv = true, .odd = odd_gpt_neox},
    {.model_type = "opt", .class_name = "OPTConfig", .kv_heads = "", .head_dim = "", .ffn = "ffn_dim", .activation = "activation_function",
     .defaults = {768, 12, 12, 0, 0, 3072, 50272, 2048}, .norm = kLayer, .position_kind = PositionKind::learned, .default_activation = "relu", .gated = false, .tied = true, .odd = odd_opt},
    {.model_type = "bloom", .class_name = "BloomConfig", .hidden = "n_embed|hidden_size", .layers = "n_layer|num_hidden_layers", .heads = "n_head|num_attention_heads", .kv_heads = "",
     .head_dim = "", .ffn = "", .positions = "seq_length", .activation = "", .defaults = {64, 2, 8, 0, 0, 0, 250880, 2048}, .norm = kLayer, .position_kind = PositionKind::alibi,
     .default_activation = "gelu", .gated = false, .bias = HfBias::all, .tied = true, .fused_qkv = true, .odd = odd_bloom},
    {.model_type = "falcon", .class_name = "FalconConfig", .layers = "num_hidden_layers|n_layer", .heads = "num_attention_heads|n_head", .kv_heads = "", .head_dim = "",
     .ffn = "ffn_hidden_size", .activation = "activation", .defaults = {4544, 32, 71, 0, 0, 0, 65024, 2048}, .norm = kLayer, .default_activation = "gelu", .gated = false, .tied = true,
     .fused_qkv = true, .odd = odd_falcon},
    {.model_type = "llama", .class_name = "LlamaConfig", .defaults = {4096, 32, 32, 0, 0, 11008, 32000, 2048}, .bias = HfBias::attention_key, .odd = odd_llama},
    {.model_type = "mistral", .class_name = "MistralConfig", .defaults = {4096, 32, 32, 8, 0, 14336, 32000, 131072}, .odd = odd_mistral},
    {.model_type = "mixtral", .class_name = "MixtralConfig", .defaults = {4096, 32, 32, 8, 0, 14336, 32000, 131072}, .odd = odd_mixtral},
    {.model_type = "qwen2", .class_name = "Qwen2Config", .defaults = {4096, 32, 32, 32, 0, 22016, 151936, 32768}, .bias = HfBias::qkv, .odd = odd_qwen2},
    {.model_type = "qwen3", .class_name = "Qwen3Config", .defaults = {4096, 32, 32, 32, 128, 22016, 151936, 32768}, .bias = HfBias::attention_key, .odd = odd_qwen3},
    {.model_type = "qwen3_moe", .class_name = "Qwen3MoeConfig", .defaults = {2048, 24, 32, 4, 0, 6144, 151936, 32768}, .bias = HfBias::attention_key, .odd = odd_qwen3_moe},
    {.model_type = "qwen2_moe", .class_name = "Qwen2MoeConfig", .defaults = {2048, 24, 16, 16, 0, 5632, 151936, 32768}, .bias = HfBias::qkv, .odd = odd_qwen2_moe},
    {.model_type = "gemma", .class_name = "GemmaConfig", .activation = "hidden_act|hidden_activation", .defaults = {3072, 28, 16, 16, 256, 24576, 256000, 8192},
     .default_activation = "gelu_pytorch_tanh", .bias = HfBias::attention_key, .tied = true, .odd = odd_gemma},
    {.model_type = "gemma2", .class_name = "Gemma2Config", .activation = "hidden_activation|hidden_act", .defaults = {2304, 26, 8, 4, 256, 9216, 256000, 8192},
     .default_activation = "gelu_pytorch_tanh", .bias = HfBias::attention_key, .tied = true, .odd = odd_gemma2},
    {.model_type = "gemma3_text", .class_name = "Gemma3TextConfig", .activation = "hidden_activation|hidden_act", .defaults = {2304, 26, 8, 4, 256, 9216, 262208, 131072},
     .default_activation = "gelu_pytorch_tanh", .bias = HfBias::attention_key, .tied = true, .odd = odd_gemma3},
    {.model_type = "gpt_oss", .class_name = "GptOssConfig", .defaults = {2880, 36, 64, 8, 64, 2880, 201088, 131072}, .bias = HfBias::attention_key, .attention_bias_default = true,
     .odd = odd_gpt_oss},
    {.model_type = "deepseek_v2", .class_name = "DeepseekV2Config", .kv_heads = "", .head_dim = "", .defaults = {4096, 32, 32, 0, 0, 11008, 32000, 2048}, .bias = HfBias::attention_key,
     .odd = odd_deepseek_v2},
    {.model_type = "deepseek_v3", .class_name = "DeepseekV3Config", .kv_heads = "", .head_dim = "", .defaults = {7168, 61, 128, 0, 0, 18432, 129280, 4096},
     .bias = HfBias::attention_key, .odd = odd_deepseek_v3},
    {.model_type = "olmoe", .class_name = "OlmoeConfig", .defaults = {2048, 16, 16, 0, 0, 2048, 50304, 4096}, .bias = HfBias::attention_key, .odd = odd_olmoe},
    {.model_type = "olmo2", .class_name = "Olmo2Config", .defaults = {4096, 32, 32, 0, 0, 11008, 50304, 2048}, .bias = HfBias::attention_key, .odd = odd_olmo2},
    {.model_type = "phi", .class_name = "PhiConfig", .defaults = {2048, 24, 32, 0, 0, 8192, 51200, 2048}, .norm = kLayer, .default_activation = "gelu_new", .gated = false,
     .bias = HfBias::all, .odd = odd_phi},
    {.model_type = "starcoder2", .class_name = "Starcoder2Config", .defaults = {3072, 30, 24, 2, 0, 12288, 49152, 4096}, .norm = kLayer, .default_activation = "gelu_pytorch_tanh",
     .gated = false, .tied = true, .odd = odd_starcoder2},
    {.model_type = "phi3", .class_name = "Phi3Config", .defaults = {3072, 32, 32, 0, 0, 8192, 32064, 4096}, .fused_qkv = true, .odd = odd_phi3},
    {.model_type = "bert", .class_name = "BertConfig", .kind = ModelKind::encoder, .kv_heads = "", .head_dim = "", .defaults = {768, 12, 12, 0, 0, 3072, 30522, 512}, .norm = kLayer,
     .position_kind = PositionKind::learned, .default_activation = "gelu", .gated = false, .bias = HfBias::all, .tied = true, .odd = odd_bert},
    {.model_type = "roberta", .class_name = "RobertaConfig", .kind = ModelKind::encoder, .kv_heads = "", .head_dim = "", .defaults = {768, 12, 12, 0, 0, 3072, 50265, 512},
     .norm = kLayer, .position_kind = PositionKind::learned, .default_activation = "gelu", .gated = false, .bias = HfBias::all, .tied = true, .odd = odd_roberta},
    {.model_type = "distilbert", .class_name = "DistilBertConfig", .kind = ModelKind::encoder, .hidden = "dim|hidden_size", .layers = "n_layers|num_hidden_layers",
     .heads = "n_heads|num_attention_heads", .kv_heads = "", .head_dim = "", .ffn = "hidden_dim|intermediate_size", .activation = "activation",
     .defaults = {768, 6, 12, 0, 0, 3072, 30522, 512}, .norm = kLayer, .position_kind = PositionKind::learned, .default_activation = "gelu", .gated = false, .bias = HfBias::all,
     .tied = true, .pools = false, .odd = odd_distilbert},
    {.model_type = "t5", .class_name = "T5Config", .kind = ModelKind::encoder_decoder, .hidden = "d_model|hidden_size", .layers = "", .heads = "num_heads|num_attention_heads",
     .kv_heads = "", .head_dim = "d_kv", .ffn = "d_ff", .positions = "n_positions", .activation = "", .defaults = {512, 0, 8, 0, 64, 2048, 32128, 512}, .norm = kRms,
     .position_kind = PositionKind::relative, .default_activation = "relu", .gated = false, .tied = true, .odd = odd_t5},
    {.model_type = "vit", .class_name = "ViTConfig", .kind = ModelKind::vision, .kv_heads = "", .head_dim = "", .vocab = "", .positions = "",
     .defaults = {768, 12, 12, 0, 0, 3072, 0, 0}, .norm = kLayer, .position_kind = PositionKind::learned, .default_activation = "gelu", .gated = false, .bias = HfBias::all, .odd = odd_vit},
    {.model_type = "whisper", .class_name = "WhisperConfig", .kind = ModelKind::speech, .hidden = "d_model|hidden_size", .layers = "",
     .heads = "decoder_attention_heads|encoder_attention_heads|num_attention_heads", .kv_heads = "", .head_dim = "", .ffn = "decoder_ffn_dim", .positions = "max_target_positions",
     .activation = "activation_function", .defaults = {384, 0, 6, 0, 0, 1536, 51865, 448}, .norm = kLayer, .position_kind = PositionKind::learned, .default_activation = "gelu",
     .gated = false, .bias = HfBias::all, .tied = true, .odd = odd_whisper},
};
// clang-format on

}  // namespace

std::span<const HfFamily> hf_families() { return kFamilies; }

const HfFamily* find_hf_family(std::string_view model_type) {
  for (const HfFamily& family : kFamilies) {
    if (family.model_type == model_type) return &family;
  }
  return nullptr;
}

}  // namespace rooftile
