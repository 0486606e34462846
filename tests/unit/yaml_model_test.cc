// Model YAML: what is read, what is filled in, and how broken input is answered.
#include <gtest/gtest.h>

#include <chrono>
#include <sstream>

#include "frontends/model_files.h"
#include "frontends/text_tree.h"

namespace rooftile {
namespace {

const std::string kSmall = "name: my-gpt\nkind: decoder\nlayers: 2\nhidden: 64\nheads: 4\nvocab: 100\nffn_hidden: 256\n";

ModelSpec good(const std::string& text) {
  const auto spec = read_yaml_model(text, "m.yaml");
  EXPECT_TRUE(spec) << describe(spec.error());
  return spec.value_or(ModelSpec{});
}

Error bad(const std::string& text, ErrorCode code = ErrorCode::invalid) {
  const auto begin = std::chrono::steady_clock::now();
  const auto spec = read_yaml_model(text, "m.yaml");
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), 1.0);
  EXPECT_FALSE(spec) << text.substr(0, 200);
  if (spec) return {};
  EXPECT_EQ(spec.error().code, code) << describe(spec.error());
  EXPECT_FALSE(spec.error().message.empty());
  return spec.error();
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

const FilledDefault* filled(const ModelSpec& spec, const std::string& key) {
  for (const FilledDefault& entry : spec.filled) {
    if (entry.key == key) return &entry;
  }
  return nullptr;
}

TEST(YamlModel, DefaultsFollowFromTheNormAndAreRemembered) {
  const ModelSpec layernorm = good(kSmall);
  EXPECT_EQ(layernorm.name, "my-gpt");
  EXPECT_EQ(layernorm.kv_heads, 4);
  EXPECT_EQ(layernorm.head_dim, 16);
  EXPECT_EQ(layernorm.positions, PositionKind::learned);
  EXPECT_TRUE(layernorm.tied_embeddings);
  EXPECT_TRUE(layernorm.bias.qkv && layernorm.bias.attention_out && layernorm.bias.ffn);
  EXPECT_FALSE(layernorm.bias.lm_head);
  EXPECT_EQ(layernorm.activation, ActivationKind::gelu);
  const ModelSpec rmsnorm = good(kSmall + "norm: rmsnorm\n");
  EXPECT_EQ(rmsnorm.positions, PositionKind::rope);
  EXPECT_FALSE(rmsnorm.tied_embeddings);
  EXPECT_FALSE(rmsnorm.bias.qkv || rmsnorm.bias.attention_out || rmsnorm.bias.ffn || rmsnorm.bias.lm_head);
  for (const char* key : {"kv_heads", "head_dim", "activation", "positions", "tied_embeddings", "bias", "max_positions", "head"}) {
    ASSERT_TRUE(filled(rmsnorm, key)) << key;
    EXPECT_FALSE(filled(rmsnorm, key)->reason.empty()) << key;
  }
  EXPECT_FALSE(filled(good(kSmall + "kv_heads: 2\n"), "kv_heads"));
}

TEST(YamlModel, EveryKeyOfTheContract) {
  const ModelSpec spec = good(
      "name: all\nkind: decoder\nlayers: 40\nhidden: 6144\nheads: 48\nvocab: 51200\nffn_hidden: 24576\nkv_heads: 8\nhead_dim: 128\nactivation: swiglu\nnorm: rmsnorm\n"
      "positions: rope\nmax_positions: 2048\ntied_embeddings: true\nbias: {qkv: true, attention_out: false, ffn: false, lm_head: true}\nparallel_residual: true\nqk_norm: true\n"
      "post_norms: true\nrotary_fraction: 0.5\ndtype: fp16\nsliding_window: 4096\nlayer_pattern: [local, local, global]\n"
      "moe: {experts: 8, top_k: 2, expert_hidden: 14336, shared_experts: 1, shared_hidden: 512, first_dense_layers: 1, every: 2}\n"
      "vision: {image: 224, patch: 16, channels: 3, labels: 1000}\nrun: {seq: 2048, mbs: 1, pp-schedule: gpipe}\n");
  EXPECT_EQ(spec.layer_pattern, (std::vector<LayerKind>{LayerKind::local, LayerKind::local, LayerKind::global}));
  EXPECT_EQ(spec.moe.every, 2);
  EXPECT_EQ(spec.moe.shared_hidden, 512);
  EXPECT_TRUE(spec.bias.qkv && spec.bias.lm_head);
  EXPECT_EQ(spec.rotary_fraction, 0.5);
  EXPECT_EQ(spec.dtype, DType::fp16);
  EXPECT_EQ(spec.run.at("pp_schedule"), "gpipe");
  EXPECT_EQ(spec.run.at("seq"), "2048");
  const ModelSpec mla = good(kSmall + "mla: {q_lora_rank: 1536, kv_lora_rank: 512, qk_nope_head_dim: 128, qk_rope_head_dim: 64, v_head_dim: 128}\n");
  EXPECT_EQ(mla.head_dim, 192);
  EXPECT_EQ(mla.v_head_dim, 128);
}

TEST(YamlModel, NumbersAsPeopleWriteThem) {
  const ModelSpec spec = good("kind: decoder\nlayers: 2\nhidden: 1_024\nheads: 16\nvocab: 50e3\nffn_hidden: 4.096e3\nparameters: 300e9\n");
  EXPECT_EQ(spec.hidden, 1024);
  EXPECT_EQ(spec.vocab, 50000);
  EXPECT_EQ(spec.ffn_hidden, 4096);
  EXPECT_EQ(to_string(spec.published_parameters), "300000000000");
  EXPECT_EQ(parse_size("9223372036854775807").value(), INT64_MAX);
  for (const char* broken : {"", "-", "1.5", "1e", "0x10", "_1", "1__0", "nan", "inf", "1e400", "9223372036854775808", "1e19", "twelve", "1 2", "--1"})
    EXPECT_FALSE(parse_size(broken)) << broken;
}

TEST(YamlModel, UnknownKeysSuggest) {
  const Error error = bad(kSmall + "kv_haeds: 2\n");
  EXPECT_EQ(error.place, "m.yaml:8:1");
  EXPECT_TRUE(contains(error.message, "kv_haeds"));
  EXPECT_TRUE(contains(error.hint, "kv_heads"));
  EXPECT_TRUE(contains(bad(kSmall + "moe: {experts: 8, top_k: 2, expert_hiden: 4}\n").hint, "expert_hidden"));
  EXPECT_TRUE(contains(bad(kSmall + "run: {sequ: 8}\n").hint, "seq"));
  EXPECT_TRUE(contains(bad(kSmall + "norm: rmsnrom\n").hint, "rmsnorm"));
  EXPECT_TRUE(contains(bad(kSmall + "layer_pattern: [locl, global]\nsliding_window: 8\n").hint, "local"));
}

// docs/model-yaml.md names exactly the keys that the reader knows.
TEST(YamlModel, EveryKeyIsDocumented) {
  const std::string docs = read_text(std::string(ROOFTILE_SOURCE_DIR) + "/docs/model-yaml.md").value();
  std::istringstream known(bad("qqqqqqqqqqqqqqqqqqqqqqqqqqqq: 1\n").hint);
  std::string word;
  int keys = 0;
  while (known >> word) {
    if (word == "known:") continue;
    if (word.back() == ',') word.pop_back();
    EXPECT_TRUE(contains(docs, "`" + word + "`")) << word;
    ++keys;
  }
  EXPECT_GT(keys, 50);
  std::istringstream lines(docs);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("| `", 0) != 0) continue;
    const std::string cell = line.substr(0, line.find(" |", 2));
    for (std::size_t at = cell.find('`'); at != std::string::npos; at = cell.find('`', at + 1)) {
      const std::size_t end = cell.find('`', at + 1);
      const auto spec = read_yaml_model(cell.substr(at + 1, end - at - 1) + ": ~\n", "m.yaml");
      ASSERT_FALSE(spec);
      EXPECT_FALSE(contains(spec.error().message, "unknown key")) << spec.error().message;
      at = end;
    }
  }
}

TEST(YamlModel, BlocksAreNotYetSupported) {
  const Error error = bad(kSmall + "blocks:\n  - linear: {in: hidden, out: 4 * hidden}\n", ErrorCode::unsupported);
  EXPECT_TRUE(contains(error.message, "not yet supported"));
  EXPECT_TRUE(contains(error.place, "m.yaml:"));
}

TEST(YamlModel, WrongSizes) {
  EXPECT_TRUE(contains(bad("kind: decoder\nlayers: 0\nhidden: 64\nheads: 4\nvocab: 10\nffn_hidden: 8\n").place, "m.yaml:2:9"));
  bad("kind: decoder\nlayers: -3\nhidden: 64\nheads: 4\nvocab: 10\nffn_hidden: 8\n");
  bad("kind: decoder\nlayers: 2.5\nhidden: 64\nheads: 4\nvocab: 10\nffn_hidden: 8\n");
  bad("kind: decoder\nlayers: many\nhidden: 64\nheads: 4\nvocab: 10\nffn_hidden: 8\n");
  bad("kind: decoder\nlayers: [2]\nhidden: 64\nheads: 4\nvocab: 10\nffn_hidden: 8\n");
  EXPECT_TRUE(contains(bad(kSmall + "max_positions: 9223372036854775808\n").message, "2^63"));
  bad(kSmall + "max_positions: 99999999999999999999999999999999\n");
  EXPECT_TRUE(contains(bad("layers: 2\nhidden: 65\nheads: 4\nvocab: 10\nffn_hidden: 8\n").hint, "head_dim"));
  bad(kSmall + "kv_heads: 3\n");
  bad(kSmall + "kv_heads: 8\n");
  bad(kSmall + "rotary_fraction: 0\n");
  bad(kSmall + "dropout: 1.5\n");
  bad(kSmall + "moe: {experts: 4, top_k: 5, expert_hidden: 8}\n");
  bad(kSmall + "moe: {experts: 4}\n");
  bad(kSmall + "mla: {kv_lora_rank: 4}\n");
  bad(kSmall + "layer_pattern: [local, global]\n");
  bad(kSmall + "head: masked_lm\n");
  EXPECT_TRUE(contains(bad("hidden: 64\nheads: 4\nvocab: 10\nffn_hidden: 8\n").message, "'layers' is missing"));
  EXPECT_TRUE(contains(bad("layers: 2\nhidden: 64\nheads: 4\nvocab: 10\n").hint, "256"));
  EXPECT_TRUE(contains(bad("kind: decoder\nlayers: 1000000000\nhidden: 64\nheads: 4\nvocab: 10\nffn_hidden: 8\n").message, "layers"));
  bad("kind: vision\nlayers: 2\nhidden: 64\nheads: 4\nffn_hidden: 8\nvision: {image: 8, patch: 16}\n");
  bad("kind: vision\nlayers: 2\nhidden: 64\nheads: 4\nffn_hidden: 8\nvision: {image: 9000000000000000000, patch: 1}\n");
}

TEST(YamlModel, MixtureWithoutDenseLayersNeedsNoFfn) {
  EXPECT_EQ(good("layers: 2\nhidden: 64\nheads: 4\nvocab: 10\nmoe: {experts: 4, top_k: 1, expert_hidden: 8}\n").moe.experts, 4);
  bad("layers: 2\nhidden: 64\nheads: 4\nvocab: 10\nmoe: {experts: 4, top_k: 1, expert_hidden: 8, first_dense_layers: 1}\n");
}

TEST(YamlModel, BrokenText) {
  EXPECT_TRUE(contains(bad("").message, "empty"));
  EXPECT_TRUE(contains(bad("# nothing\n").message, "empty"));
  bad("---\n");
  bad("just words\n");
  bad("- a\n- b\n");
  EXPECT_EQ(bad("kind: decoder\nname: \xff\xfe\n").place, "m.yaml:2:7");
  bad(std::string("kind: decoder\nname: a\0b\n", 24));
  EXPECT_EQ(bad("kind: decoder\nkind: encoder\n").place, "m.yaml:2:1");
  EXPECT_TRUE(contains(bad("kind: decoder\nkind: encoder\n").message, "twice"));
  bad("kind: decoder\n\tlayers: 2\n");
  bad("kind: \"unterminated\n");
  bad("kind: [decoder\n");
  bad(kSmall + "---\n" + kSmall);
  bad("? [a, b]\n: c\n");
  bad("%YAML 9.9\n---\nkind: decoder\n");
  bad("kind: *nowhere\n");
  bad(kSmall + "<<: {layers: 3}\n");
}

TEST(YamlModel, DeepNesting) {
  bad(std::string(100000, '['));
  bad(std::string(100000, '{'));
  bad("a: " + std::string(50000, '[') + std::string(50000, ']'));
  std::string dashes;
  for (int i = 0; i < 50000; ++i) dashes += "- ";
  bad(dashes + "a\n");
  std::string questions;
  for (int i = 0; i < 50000; ++i) questions += "? ";
  bad(questions + "a\n");
  std::string maps;
  for (int i = 0; i < 400; ++i) maps += std::string(static_cast<std::size_t>(i), ' ') + "a:\n";
  bad(maps);
  bad(std::string(300u << 10, 'a'));
}

TEST(YamlModel, ExplodingAndCyclicAnchors) {
  std::string laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 12; ++i) {
    laughs += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [";
    for (int j = 0; j < 9; ++j) laughs += (j ? ", *a" : "*a") + std::to_string(i - 1);
    laughs += "]\n";
  }
  const Error error = bad(laughs);
  EXPECT_TRUE(contains(error.message, "values"));
  EXPECT_TRUE(contains(bad("a: &a [*a]\n").message, "itself"));
  EXPECT_TRUE(contains(bad("a: &a {b: *a}\n").message, "itself"));
  std::string many = "a: &a x\nb: [";
  for (int i = 0; i < 300; ++i) many += "*a, ";
  bad(many + "]\n");
  EXPECT_EQ(good("layers: 2\nhidden: &h 64\nheads: 4\nvocab: 10\nffn_hidden: *h\n").ffn_hidden, 64);
}

TEST(ModelFiles, ToldApartByContent) {
  EXPECT_EQ(sniff_model("{\"model_type\": \"gpt2\"}"), ModelFormat::hf_config);
  EXPECT_EQ(sniff_model("\xEF\xBB\xBF \n{\n \"a\": 1}"), ModelFormat::hf_config);
  EXPECT_EQ(sniff_model("{kind: decoder}"), ModelFormat::yaml);
  EXPECT_EQ(sniff_model("[{\"model_type\": \"gpt2\"}]"), ModelFormat::hf_config);
  EXPECT_EQ(sniff_model("name: gpt"), ModelFormat::yaml);
  EXPECT_EQ(sniff_model(""), ModelFormat::yaml);
  EXPECT_EQ(sniff_model(std::string_view("\x08\x07\x12\x07pytorch", 11)), ModelFormat::onnx);
  EXPECT_EQ(sniff_model(std::string_view("\x3a\x10\x0a\x05graph", 9)), ModelFormat::onnx);
}

TEST(ReadYamlModel, AnOpenQuoteIsNamed) {
  const auto broken = read_yaml_model("name: \"x\nkind: decoder\nlayers: 2\n", "m.yaml");
  ASSERT_FALSE(broken);
  EXPECT_NE(broken.error().message.find("quote"), std::string::npos) << broken.error().message;
  EXPECT_EQ(broken.error().place.rfind("m.yaml:1:7", 0), 0u) << broken.error().place;
  const auto closed = read_yaml_model("name: 'it''s \\'\nkind: decoder\nlayers: 2\nhidden: 64\nheads: 4\nvocab: \"100\"\nffn_hidden: 256\n", "m.yaml");
  EXPECT_TRUE(closed) << closed.error().message;
}

TEST(ModelFiles, MissingFoldersAndEndlessFiles) {
  EXPECT_EQ(read_text("/nonexistent/model.yaml").error().code, ErrorCode::invalid);
  EXPECT_TRUE(contains(read_text("/").error().message, "folder"));
  EXPECT_FALSE(read_text("/dev/zero", 1u << 20));
}

}  // namespace
}  // namespace rooftile
