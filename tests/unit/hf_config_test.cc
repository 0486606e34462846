// Hugging Face configs: the traps that real files set, defaults that are shown, broken input.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "estimator/passes/predict.h"
#include "frontends/expand.h"
#include "frontends/hf_families.h"
#include "frontends/model_files.h"

namespace rooftile {
namespace {

ModelSpec good(const std::string& text, const std::string& file = "config.json") {
  const auto spec = read_hf_config(text, file);
  EXPECT_TRUE(spec) << describe(spec.error());
  return spec.value_or(ModelSpec{});
}

Error bad(const std::string& text, ErrorCode code = ErrorCode::invalid) {
  const auto begin = std::chrono::steady_clock::now();
  const auto spec = read_hf_config(text, "config.json");
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), 1.0);
  EXPECT_FALSE(spec) << text.substr(0, 200);
  if (spec) return {};
  EXPECT_EQ(spec.error().code, code) << describe(spec.error());
  return spec.error();
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

const FilledDefault* filled(const ModelSpec& spec, const std::string& key) {
  for (const FilledDefault& entry : spec.filled) {
    if (entry.key == key) return &entry;
  }
  return nullptr;
}

bool warned(const ModelSpec& spec, const std::string& code) {
  for (const Warning& warning : spec.warnings) {
    if (warning.code == code) return true;
  }
  return false;
}

// A config of `model_type` with usual sizes and `more` keys.
std::string config(const std::string& model_type, const std::string& more = "") {
  return "{\"model_type\": \"" + model_type + "\", \"hidden_size\": 96, \"intermediate_size\": 272, \"num_hidden_layers\": 4, \"num_attention_heads\": 6, \"vocab_size\": 1009" +
         (more.empty() ? "" : ", " + more) + "}";
}

TEST(HfTraps, HeadDimNullAbsentOrOdd) {
  EXPECT_EQ(good(config("llama", "\"head_dim\": null")).head_dim, 16);
  EXPECT_EQ(good(config("llama")).head_dim, 16);
  EXPECT_EQ(good(config("llama", "\"head_dim\": 24")).head_dim, 24);
  EXPECT_EQ(filled(good(config("llama", "\"head_dim\": null")), "head_dim")->reason, "hidden / heads");
  EXPECT_EQ(good(config("qwen3")).head_dim, 128);  // the class has a default of its own
  EXPECT_EQ(good(config("qwen3", "\"head_dim\": null, \"num_key_value_heads\": 3")).head_dim, 16);
}

TEST(HfTraps, KvHeadsNullOrAbsent) {
  EXPECT_EQ(good(config("llama", "\"num_key_value_heads\": null")).kv_heads, 6);
  EXPECT_EQ(good(config("llama")).kv_heads, 6);
  EXPECT_EQ(good(config("llama", "\"num_key_value_heads\": 2")).kv_heads, 2);
  EXPECT_EQ(good(config("mistral", "\"num_key_value_heads\": null")).kv_heads, 6);
  bad(config("llama", "\"num_key_value_heads\": 4"));
  bad(config("llama", "\"num_key_value_heads\": 0"));
}

TEST(HfTraps, PositionsAreALimit) { EXPECT_EQ(good(config("llama", "\"max_position_embeddings\": 131072")).max_positions, 131072); }

TEST(HfTraps, TiedEmbeddingsDefaultByFamily) {
  for (const char* tied : {"gemma2", "gemma3_text", "opt", "bert"}) EXPECT_TRUE(good(config(tied)).tied_embeddings) << tied;
  for (const char* untied : {"llama", "mistral", "mixtral", "qwen2", "qwen3", "gpt_oss", "gpt_neox", "phi3", "olmoe"}) {
    // Sizes of the class where 96 / 6 does not fit its head counts.
    const ModelSpec spec = good(config(untied, "\"num_key_value_heads\": 6"));
    EXPECT_FALSE(spec.tied_embeddings) << untied;
    EXPECT_TRUE(contains(filled(spec, "tied_embeddings")->reason, "96864")) << "the effect on the count is shown";
  }
  EXPECT_FALSE(good(config("gemma2", "\"tie_word_embeddings\": false")).tied_embeddings);
  EXPECT_TRUE(good(config("llama", "\"tie_word_embeddings\": true")).tied_embeddings);
}

TEST(HfTraps, SlidingWindowThatIsSwitchedOff) {
  EXPECT_EQ(good(config("qwen2", "\"sliding_window\": 64, \"use_sliding_window\": false, \"num_key_value_heads\": 6")).sliding_window, 0);
  EXPECT_EQ(good(config("qwen2", "\"sliding_window\": 64, \"num_key_value_heads\": 6")).sliding_window, 0);
  const ModelSpec on = good(config("qwen2", "\"sliding_window\": 64, \"use_sliding_window\": true, \"max_window_layers\": 3, \"num_key_value_heads\": 6"));
  EXPECT_EQ(on.sliding_window, 64);
  EXPECT_EQ(on.layer_pattern, (std::vector<LayerKind>{LayerKind::global, LayerKind::global, LayerKind::global, LayerKind::local}));
  EXPECT_EQ(good(config("qwen3_moe", "\"sliding_window\": 64")).sliding_window, 0);
  EXPECT_EQ(good(config("mistral", "\"num_key_value_heads\": 3, \"sliding_window\": null")).sliding_window, 0);
  EXPECT_EQ(good(config("mistral", "\"num_key_value_heads\": 3")).sliding_window, 4096);
}

TEST(HfTraps, StorageDtypeIsNotComputePrecision) {
  EXPECT_EQ(good(config("llama", "\"torch_dtype\": \"float32\"")).dtype, DType::bf16);
  EXPECT_EQ(good(config("llama", "\"dtype\": \"float16\"")).dtype, DType::bf16);
  EXPECT_EQ(good(config("llama", "\"dtype\": null")).dtype, DType::bf16);
  EXPECT_TRUE(warned(good(config("llama", "\"quantization_config\": {\"bits\": 4}")), "quantization_ignored"));
}

TEST(HfTraps, RotaryKeysNeverFail) {
  for (const char* keys :
       {"\"rope_theta\": 1e4, \"rope_scaling\": null", "\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2.0}", "\"rope_parameters\": {\"rope_theta\": 1.0, \"what\": [1]}",
        "\"rope_parameters\": {\"full_attention\": {\"rope_theta\": 1}}", "\"rope_scaling\": \"odd\""}) {
    EXPECT_EQ(good(config("llama", keys)).rotary_fraction, 1.0) << keys;
  }
  EXPECT_EQ(good(config("gpt_neox", "\"rotary_pct\": 0.5")).rotary_fraction, 0.5);
  EXPECT_EQ(good(config("gpt_neox", "\"rope_parameters\": {\"partial_rotary_factor\": 0.5}")).rotary_fraction, 0.5);
  EXPECT_EQ(good(config("gpt_neox")).rotary_fraction, 0.25);
}

TEST(HfTraps, LayerTypes) {
  const Error error = bad(config("qwen2", "\"use_sliding_window\": true, \"layer_types\": [\"full_attention\", \"linear_attention\"]"), ErrorCode::unsupported);
  EXPECT_TRUE(contains(error.message, "linear_attention"));
  EXPECT_TRUE(contains(error.place, "config.json:1:"));
  bad(config("gemma2", "\"layer_types\": [\"chunked_attention\"]"), ErrorCode::unsupported);
  bad(config("llama", "\"per_layer_config\": {\"3\": {\"intermediate_size\": 8}}"), ErrorCode::unsupported);
  const std::string heads = "\"num_key_value_heads\": 3, ";
  EXPECT_EQ(good(config("gemma2", heads + "\"sliding_window\": 64")).layer_pattern, (std::vector<LayerKind>{LayerKind::local, LayerKind::global}));
  const std::string types = "\"layer_types\": [\"full_attention\", \"sliding_attention\", \"full_attention\", \"sliding_attention\"]";
  EXPECT_EQ(good(config("gemma2", heads + types)).layer_pattern, (std::vector<LayerKind>{LayerKind::global, LayerKind::local}));
  EXPECT_EQ(good(config("gpt_oss", "\"num_key_value_heads\": 3, \"head_dim\": 16")).layer_pattern, (std::vector<LayerKind>{LayerKind::local, LayerKind::global}));
}

TEST(HfTraps, UnknownSizesWarnAndHarmlessKeysDoNot) {
  const ModelSpec spec =
      good(config("llama", "\"pretraining_tp\": 2, \"attention_dropout\": 0.1, \"bos_token_id\": 1, \"use_cache\": true, \"initializer_range\": 0.02, \"num_beams\": 4"));
  EXPECT_TRUE(spec.warnings.empty()) << spec.warnings[0].message;
  EXPECT_EQ(spec.dropout, 0);
  const ModelSpec odd = good(config("llama", "\"extra_ffn_size\": 77"));
  ASSERT_TRUE(warned(odd, "unknown_config_key"));
  EXPECT_TRUE(contains(odd.warnings[0].message, "extra_ffn_size"));
}

TEST(HfTraps, ExpertsUnderEitherName) {
  const std::string rest = "\"head_dim\": 16, \"num_key_value_heads\": 3, \"moe_intermediate_size\": 32, \"num_experts_per_tok\": 2, ";
  EXPECT_EQ(good(config("qwen3_moe", rest + "\"num_experts\": 8")).moe.experts, 8);
  EXPECT_EQ(good(config("qwen3_moe", rest + "\"num_local_experts\": 8")).moe.experts, 8);
  EXPECT_EQ(good(config("mixtral", "\"num_key_value_heads\": 3, \"num_local_experts\": 4")).moe.expert_hidden, 272);  // the size is one expert's
}

TEST(HfTraps, DenseLayersOfAMixture) {
  const ModelSpec spec = good(config("qwen3_moe", "\"head_dim\": 16, \"num_key_value_heads\": 3, \"decoder_sparse_step\": 2, \"mlp_only_layers\": [3]"));
  EXPECT_EQ(spec.moe.every, 2);
  EXPECT_EQ(spec.dense_layers, (std::vector<std::int64_t>{3}));
  bad(config("qwen3_moe", "\"mlp_only_layers\": [-1]"));
  bad(config("qwen3_moe", "\"mlp_only_layers\": [\"a\"]"));
}

TEST(HfTraps, FamiliesWithHiddenBiasesAndGates) {
  const ModelSpec qwen2 = good(config("qwen2", "\"num_key_value_heads\": 6"));
  EXPECT_TRUE(qwen2.bias.qkv);
  EXPECT_FALSE(qwen2.bias.attention_out || qwen2.bias.ffn);
  const auto t5 = [](const std::string& projection) {
    return good(
        "{\"model_type\": \"t5\", \"d_model\": 96, \"d_kv\": 24, \"d_ff\": 64, \"num_layers\": 2, \"num_decoder_layers\": null, \"num_heads\": 6, \"vocab_size\": 100, "
        "\"feed_forward_proj\": \"" +
        projection + "\"}");
  };
  EXPECT_EQ(t5("relu").activation, ActivationKind::relu);
  EXPECT_EQ(t5("gated-gelu").activation, ActivationKind::geglu);
  EXPECT_EQ(t5("gated-gelu").traits, (std::vector<std::string>{"narrow_softmax", "low_norm", "scaled_head", "composed_gate"}));
  EXPECT_EQ(t5("relu").traits, (std::vector<std::string>{"narrow_softmax", "low_norm", "scaled_head"}));
  EXPECT_EQ(t5("relu").decoder_layers, 2);
  EXPECT_EQ(t5("relu").head_dim, 24);
  EXPECT_EQ(good("{\"model_type\": \"gpt2\", \"n_embd\": 96, \"n_head\": 6, \"n_inner\": null}").ffn_hidden, 384);
  EXPECT_EQ(good("{\"model_type\": \"gpt2\", \"n_embd\": 96, \"n_head\": 6, \"n_inner\": 100}").ffn_hidden, 100);
  bad(config("llama", "\"hidden_act\": \"relu6\""), ErrorCode::unsupported);
}

TEST(HfTraps, DeepSeekHeads) {
  const std::string rest =
      "\"kv_lora_rank\": 40, \"qk_nope_head_dim\": 24, \"qk_rope_head_dim\": 8, \"v_head_dim\": 20, \"head_dim\": 8, \"num_key_value_heads\": 3, \"n_routed_experts\": 8";
  const ModelSpec spec = good(config("deepseek_v3", rest + ", \"q_lora_rank\": null, \"num_nextn_predict_layers\": 1, \"first_k_dense_replace\": 1"));
  EXPECT_EQ(spec.mla.q_lora_rank, 0);
  EXPECT_EQ(spec.head_dim, 32);  // never the key, which is the rotary part
  EXPECT_EQ(spec.kv_heads, 6);
  EXPECT_TRUE(warned(spec, "mtp_left_out"));
  EXPECT_EQ(good(config("deepseek_v3", rest)).mla.q_lora_rank, 1536);  // absent: the class default
}

TEST(HfConfig, HeadsByArchitecture) {
  const auto head = [](const std::string& type, const std::string& architecture) { return good(config(type, "\"architectures\": [\"" + architecture + "\"]")); };
  EXPECT_EQ(head("llama", "LlamaForCausalLM").head, HeadKind::causal_lm);
  EXPECT_EQ(head("llama", "LlamaModel").head, HeadKind::none);
  EXPECT_EQ(head("llama", "LlamaForSequenceClassification").head, HeadKind::classifier);
  EXPECT_EQ(head("bert", "BertForMaskedLM").head, HeadKind::masked_lm);
  EXPECT_EQ(head("bert", "BertModel").head, HeadKind::none);
  EXPECT_TRUE(head("bert", "BertModel").pooler);
  EXPECT_TRUE(warned(head("bert", "BertForPreTraining"), "head_not_modelled"));
  EXPECT_EQ(good(config("llama")).head, HeadKind::causal_lm);
  EXPECT_EQ(good(config("bert")).head, HeadKind::masked_lm);
  EXPECT_TRUE(filled(good(config("bert")), "head"));
  EXPECT_EQ(good("{\"model_type\": \"vit\"}").vision.labels, 2);
  EXPECT_EQ(good("{\"model_type\": \"vit\", \"id2label\": {\"0\": \"a\", \"1\": \"b\", \"2\": \"c\"}}").vision.labels, 3);
  EXPECT_EQ(good("{\"model_type\": \"whisper\"}").head, HeadKind::none);
}

TEST(HfConfig, UnknownFamilyListsTheKnownOnes) {
  const Error error = bad(config("mamba"), ErrorCode::unsupported);
  for (const HfFamily& family : hf_families()) EXPECT_TRUE(contains(error.hint, std::string(family.model_type))) << family.model_type;
  EXPECT_TRUE(contains(error.hint, "YAML"));
  EXPECT_EQ(error.place, "config.json:1:16");
  EXPECT_TRUE(contains(bad(config("lama"), ErrorCode::unsupported).hint, "did you mean 'llama'"));
  EXPECT_TRUE(contains(bad("{\"hidden_size\": 3}").message, "model_type"));
}

TEST(HfConfig, NestedTextPart) {
  const std::string text = config("gemma3_text", "\"head_dim\": 16, \"num_key_value_heads\": 3");
  const ModelSpec nested = good("{\"model_type\": \"gemma3\", \"vision_config\": {\"hidden_size\": 8}, \"text_config\": " + text + "}");
  EXPECT_TRUE(warned(nested, "only_text_part"));
  EXPECT_EQ(write_yaml_model(nested), write_yaml_model([&] {
              ModelSpec plain = good(text);
              plain.name = nested.name;
              return plain;
            }()));
}

TEST(HfConfig, NamesComeFromTheFile) {
  EXPECT_EQ(good(config("llama"), "models/tiny/config.json").name, "tiny");
  EXPECT_EQ(good(config("llama"), "tiny.json").name, "tiny");
  EXPECT_EQ(good(config("llama"), "config.json").name, "llama");
  EXPECT_EQ(good(config("llama", "\"_name_or_path\": \"someone/small-llama\""), "config.json").name, "small-llama");
}

TEST(HfConfig, BrokenText) {
  bad("");
  bad("   \n");
  bad("{");
  bad("[1, 2]");
  bad("null");
  bad("{\"model_type\": 3}");
  bad("{\"model_type\": \"llama\", \"hidden_size\": NaN}");
  bad("{\"model_type\": \"llama\", \"hidden_size\": 1e999}");
  EXPECT_TRUE(contains(bad("{\"model_type\": \"llama\",\n \"hidden_size\": 99999999999999999999999}").message, "2^63"));
  EXPECT_EQ(bad("{\"model_type\": \"llama\",\n  \"hidden_size\": \"many\"}").place, "config.json:2:18");
  EXPECT_EQ(bad("{\"model_type\": \"llama\",\n  \"hidden_size\": -5}").place, "config.json:2:18");
  EXPECT_EQ(bad("{\"model_type\": \"llama\",\n  \"hidden_size\": 0,\n \"a\": 1}").place, "config.json:2:18");
  EXPECT_EQ(bad("{\"model_type\": \"llama\",\n  \"model_type\": \"gpt2\"}").place, "config.json:2:3");
  bad("{\"model_type\": \"llama\", \"tie_word_embeddings\": \"yes\"}");
  bad("{\"model_type\": \"llama\", \"tie_word_embeddings\": 1}");
  bad("{\"model_type\": \"llama\", \"hidden_size\": [1]}");
  bad("{\"model_type\": \"llama\xff\"}");
  bad("{\"model_type\": \"llama\"} trailing");
  bad("{\"a\": " + std::string(100000, '[') + "}");
  bad("{\"a\": " + std::string(100000, '{') + "}");
  std::string many = "{\"model_type\": \"llama\"";
  for (int i = 0; i < 30000; ++i) many += ", \"key" + std::to_string(i) + "\": 1";
  good(many + "}");
  std::string values = "{\"model_type\": \"llama\", \"x\": [1";
  for (int i = 0; i < 300000; ++i) values += ",1";
  bad(values + "]}");
  bad("{\"model_type\": \"roberta\", \"max_position_embeddings\": 2}");
  bad("{\"model_type\": \"gpt_neo\", \"attention_types\": [[[\"global\"], 99999999999]]}");
  bad("{\"model_type\": \"bert\", \"is_decoder\": true}", ErrorCode::unsupported);
}

// Counts of the published checkpoints; each is what the class gives by default, but for the keys named.
TEST(HfConfig, ParametersOfFurtherFamilies) {
  const struct {
    const char *text, *parameters;
  } kRows[] = {
      {R"({"model_type": "phi"})", "1418270720"},  // Phi-1.5
      {R"({"model_type": "gemma", "hidden_size": 2048, "num_hidden_layers": 18, "num_attention_heads": 8, "num_key_value_heads": 1, "intermediate_size": 16384})",
       "2506172416"},                                                      // Gemma 2B
      {R"({"model_type": "starcoder2"})", "3030371328"},                   // StarCoder2 3B
      {R"({"model_type": "olmo2", "vocab_size": 100352})", "7298617344"},  // OLMo 2 7B
      {R"({"model_type": "qwen2_moe"})", "14315784192"},                   // Qwen1.5-MoE-A2.7B
      {R"({"model_type": "distilbert", "architectures": ["DistilBertForMaskedLM"]})", "66985530"},
  };
  for (const auto& row : kRows) {
    const auto graph = expand(good(row.text), Options{});
    ASSERT_TRUE(graph) << row.text;
    EXPECT_EQ(to_string(count_parameters(*graph).all), row.parameters) << row.text;
  }
}

TEST(HfConfig, AnUnknownStorageTypeIsSaid) {
  const auto text = [](const char* dtype) {
    return std::string("{\"model_type\":\"gpt2\",\"torch_dtype\":\"") + dtype + "\",\"n_embd\":768,\"n_layer\":2,\"n_head\":12,\"vocab_size\":50257,\"n_positions\":1024}";
  };
  const auto odd = read_hf_config(text("float7"), "config.json"), known = read_hf_config(text("bfloat16"), "config.json");
  ASSERT_TRUE(odd && known);
  const auto warned = [](const ModelSpec& spec) { return std::any_of(spec.warnings.begin(), spec.warnings.end(), [](const Warning& w) { return w.code == "unknown_dtype"; }); };
  EXPECT_TRUE(warned(*odd));
  EXPECT_FALSE(warned(*known));
}

}  // namespace
}  // namespace rooftile
