// A transformer as its users describe it, with every default resolved and remembered. Filled by the YAML and the Hugging Face reader, turned into a Graph by expand().
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "estimator/core/count.h"
#include "estimator/core/dtype.h"
#include "estimator/core/result.h"

namespace rooftile {

enum class ModelKind : std::uint8_t { decoder, encoder, encoder_decoder, vision, speech };
enum class ActivationKind : std::uint8_t { gelu, relu, silu, swiglu, geglu, gelu_new };  // gelu_new: the tanh form that PyTorch's eager mode runs as elementary operators
enum class NormKind : std::uint8_t { layernorm, rmsnorm };
enum class PositionKind : std::uint8_t { learned, rope, alibi, relative, none };
enum class HeadKind : std::uint8_t { causal_lm, masked_lm, classifier, seq2seq_lm, none };
enum class LayerKind : std::uint8_t { global, local };  // full attention, sliding window

struct BiasSpec {
  bool qkv = false, attention_out = false, ffn = false, lm_head = false;
  bool key = true;  // false: the key projection alone has none (Whisper); means something only where qkv is true
};

struct MoeSpec {
  std::int64_t experts = 0, top_k = 0, expert_hidden = 0, shared_experts = 0, shared_hidden = 0, first_dense_layers = 0, every = 1;  // hidden sizes are those of one expert
  bool shared_gate = false;  // Qwen2-MoE: a [hidden, 1] gate on the shared expert
  bool router_bias = false;  // learned, counted (GPT-OSS)
  bool expert_bias = false;  // GPT-OSS
};

struct MlaSpec {
  std::int64_t q_lora_rank = 0;  // 0: plain query projection
  std::int64_t kv_lora_rank = 0, qk_nope_head_dim = 0, qk_rope_head_dim = 0, v_head_dim = 0;
};

struct VisionSpec {
  std::int64_t image = 224, patch = 16, channels = 3, labels = 2;
};

struct SpeechSpec {  // Whisper: two convolutions over mel frames
  std::int64_t mel_bins = 80, frames = 3000, max_source_positions = 1500;
};

// A value that the description did not give, and why it is what it is.
struct FilledDefault {
  std::string key, value, reason;
};

struct ModelSpec {
  std::string name;
  std::string source;  // where the facts come from
  std::string file;
  std::string family;  // Hugging Face model_type, or "yaml"
  ModelKind kind = ModelKind::decoder;
  HeadKind head = HeadKind::causal_lm;

  std::int64_t layers = 0, encoder_layers = 0, decoder_layers = 0;
  std::int64_t encoder_heads = 0, encoder_ffn_hidden = 0;  // of the encoder of an encoder_decoder or speech model where they differ (0: heads, ffn_hidden)
  std::int64_t hidden = 0, heads = 0, kv_heads = 0, head_dim = 0, v_head_dim = 0, vocab = 0, ffn_hidden = 0, max_positions = 0;
  ActivationKind activation = ActivationKind::gelu;
  NormKind norm = NormKind::layernorm;
  bool norm_bias = true;  // a layernorm's bias
  PositionKind positions = PositionKind::learned;
  std::int64_t position_offset = 0;  // rows of the learned table beyond max_positions (OPT: 2)
  std::int64_t relative_buckets = 32;
  bool tied_embeddings = true;
  BiasSpec bias;
  bool fused_qkv = true;       // one matmul for q, k and v (GPT-2, Megatron); else three
  bool fused_gate_up = false;  // one matmul for gate and up
  bool parallel_residual = false;
  bool shared_parallel_norm = false;  // one norm feeds attention and FFN of a parallel block (Falcon 7B, GPT-J)
  bool post_norm = false;             // normalisation after the residual instead of before the sublayer (BERT)
  bool final_norm = true;             // norm after the last layer
  bool embedding_norm = false;        // norm after the embeddings (BERT, BLOOM)
  bool post_norms = false;            // further norms on the outputs of attention and FFN (Gemma 2 and 3)
  bool qk_norm = false;
  bool qk_norm_full = false;                               // over all heads together (OLMoE) instead of per head
  bool attention_sinks = false;                            // GPT-OSS
  bool attention_softcap = false, logits_softcap = false;  // Gemma 2
  double rotary_fraction = 1.0;
  std::int64_t token_types = 0;     // BERT's second table
  std::int64_t labels = 2;          // of a classifier over text; an image classifier has vision.labels
  bool pooler = false;              // dense and tanh on the first token (BERT and ViT without another head)
  std::int64_t word_embed_dim = 0;  // OPT-350m: embeddings narrower than hidden (0: hidden)
  std::vector<std::string> traits;  // habits of the model's code that cost kernels but no size: "unit_offset", "by_head" (kModelTraits)
  double dropout = 0;
  DType dtype = DType::bf16;
  std::int64_t sliding_window = 0;
  std::vector<LayerKind> layer_pattern;  // repeated over the layers; empty: all global (or all local when sliding_window is set)
  MoeSpec moe;
  std::vector<std::int64_t> dense_layers;  // layers of a mixture that are dense, beyond first_dense_layers and every (qwen3_moe's mlp_only_layers)
  MlaSpec mla;
  VisionSpec vision;
  SpeechSpec speech;
  std::map<std::string, std::string> run;        // options of estimate that the model suggests
  std::map<std::string, std::string> run_place;  // file:line:column of each

  Count published_parameters = 0;  // 0: not stated
  std::vector<FilledDefault> filled;
  std::vector<Warning> warnings;
};

}  // namespace rooftile
