// Parameters equal transformers' own to the last one: shipped models, reduced configs of every Hugging Face family (tests/data, written by tests/device/parameter_truth.py),
// and, where they are present, further configs.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "estimator/passes/predict.h"
#include "frontends/expand.h"
#include "frontends/hf_families.h"
#include "frontends/model_files.h"

namespace rooftile {
namespace {

const std::filesystem::path kRoot = ROOFTILE_SOURCE_DIR;

ParameterCounts count(const ModelSpec& spec, Phase phase = Phase::train) {
  Options options;
  options.phase = phase;
  const auto graph = expand(spec, options);
  EXPECT_TRUE(graph) << spec.name << ": " << (graph ? "" : describe(graph.error()));
  return graph ? count_parameters(*graph) : ParameterCounts{};
}

std::map<std::string, std::pair<std::int64_t, std::int64_t>> read_truth() {
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> truth;
  std::ifstream file(kRoot / "tests/data/parameter_truth.csv");
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) {
    std::stringstream fields(line);
    std::string name, all, embedding;
    std::getline(fields, name, ',');
    std::getline(fields, all, ',');
    std::getline(fields, embedding, ',');
    if (!all.empty()) truth[name] = {std::stoll(all), std::stoll(embedding)};
  }
  return truth;
}

std::string read(const std::filesystem::path& file) { return read_text(file).value_or(""); }

TEST(ModelParameters, ShippedModelsEqualTransformersAndTheirOwnFigure) {
  const auto truth = read_truth();
  ASSERT_GE(truth.size(), 80u);
  std::set<std::string> shipped;
  for (const auto& entry : std::filesystem::directory_iterator(kRoot / "models")) {
    if (entry.path().extension() != ".yaml") continue;
    const auto spec = read_yaml_model(read(entry.path()), entry.path().string());
    ASSERT_TRUE(spec) << describe(spec.error());
    shipped.insert(spec->name);
    EXPECT_EQ(spec->name, entry.path().stem().string());
    EXPECT_FALSE(spec->source.empty()) << spec->name;
    const Count counted = count(*spec).all;
    EXPECT_EQ(to_string(counted), to_string(spec->published_parameters)) << spec->name;
    ASSERT_TRUE(truth.count(spec->name)) << spec->name;
    EXPECT_EQ(to_string(counted), std::to_string(truth.at(spec->name).first)) << spec->name;
  }
  // Names that scripts rely on.
  for (const char* name : {"gpt2",        "gpt2-medium",  "gpt2-large",   "gpt2-xl",       "gpt3-175b",       "megatron-22b", "megatron-530b", "megatron-1t",      "llama-2-7b",
                           "llama-2-13b", "llama-2-70b",  "llama-3-8b",   "llama-3-70b",   "llama-3.1-405b",  "llama-3.2-1b", "llama-3.2-3b",  "mistral-7b",       "mixtral-8x7b",
                           "qwen2-7b",    "qwen2.5-72b",  "qwen3-8b",     "qwen3-30b-a3b", "qwen3-235b-a22b", "gemma-2-9b",   "gemma-3-27b",   "deepseek-v2-lite", "deepseek-v3",
                           "gpt-oss-20b", "gpt-oss-120b", "olmoe-1b-7b",  "pythia-1.4b",   "gpt-neox-20b",    "opt-6.7b",     "bloom-7b1",     "falcon-7b",        "phi-3-mini",
                           "bert-base",   "bert-large",   "roberta-base", "t5-base",       "vit-base",        "vit-large",    "whisper-small"}) {
    EXPECT_TRUE(shipped.count(name)) << name;
  }
}

TEST(ModelParameters, ReducedConfigsOfEveryFamilyEqualTransformers) {
  std::ifstream file(kRoot / "tests/data/hf_mini.jsonl");
  std::string line;
  std::set<std::string> families;
  int rows = 0;
  while (std::getline(file, line)) {
    const auto record = nlohmann::json::parse(line);
    const std::string name = record["name"];
    // The whole config, and the shorter one that save_pretrained writes.
    for (const char* form : {"config", "diff"}) {
      const auto spec = read_hf_config(record[form].dump(), name + ".json");
      ASSERT_TRUE(spec) << name << ": " << describe(spec.error());
      EXPECT_EQ(to_string(count(*spec).all), std::to_string(record["parameters"].get<std::int64_t>())) << name << " " << form;
      families.insert(spec->family);
    }
    ++rows;
  }
  EXPECT_GE(rows, 45);
  for (const HfFamily& family : hf_families()) EXPECT_TRUE(families.count(std::string(family.model_type))) << family.model_type << " has no reduced config";
}

TEST(ModelParameters, PhasesHaveTheSameParameters) {
  for (const auto& entry : std::filesystem::directory_iterator(kRoot / "models")) {
    const auto spec = read_yaml_model(read(entry.path()), entry.path().string());
    ASSERT_TRUE(spec);
    const Count train = count(*spec).all;
    EXPECT_EQ(to_string(count(*spec, Phase::forward).all), to_string(train)) << spec->name;
    EXPECT_EQ(to_string(count(*spec, Phase::prefill).all), to_string(train)) << spec->name;
    if (spec->kind == ModelKind::decoder) {
      EXPECT_EQ(to_string(count(*spec, Phase::decode).all), to_string(train)) << spec->name;
    }
  }
}

// The text of a model and what is read from it say the same, for every shipped model and every family.
TEST(ModelParameters, WrittenYamlReadsBackToTheSameModel) {
  std::vector<ModelSpec> specs;
  for (const auto& entry : std::filesystem::directory_iterator(kRoot / "models")) specs.push_back(read_yaml_model(read(entry.path()), entry.path().string()).value());
  std::ifstream file(kRoot / "tests/data/hf_mini.jsonl");
  std::string line;
  while (std::getline(file, line)) {
    const auto record = nlohmann::json::parse(line);
    specs.push_back(read_hf_config(record["config"].dump(), record["name"].get<std::string>() + ".json").value());
  }
  ASSERT_GE(specs.size(), 80u);
  for (const ModelSpec& spec : specs) {
    const std::string text = write_yaml_model(spec);
    const auto again = read_yaml_model(text, "again.yaml");
    ASSERT_TRUE(again) << spec.name << ": " << describe(again.error()) << "\n" << text;
    EXPECT_EQ(write_yaml_model(*again), text);
    EXPECT_EQ(again->family, spec.family);
    EXPECT_EQ(again->layer_pattern, spec.layer_pattern);
    EXPECT_EQ(to_string(count(*again).all), to_string(count(spec).all)) << text;
  }
}

TEST(ModelParameters, SharedConfigs) {
  const char* given = std::getenv("ROOFTILE_SHARED");
  const std::filesystem::path folder = (given ? std::filesystem::path(given) : kRoot / "../shared") / "hf_configs";
  if (!std::filesystem::exists(folder / "parameters.json")) GTEST_SKIP() << "no folder of further configs (ROOFTILE_SHARED)";
  const auto parameters = nlohmann::json::parse(read(folder / "parameters.json"));
  int configs = 0;
  for (const auto& [name, expected] : parameters.items()) {
    const auto spec = read_hf_config(read(folder / (name + ".json")), name + ".json");
    ASSERT_TRUE(spec) << describe(spec.error());
    EXPECT_EQ(to_string(count(*spec).all), std::to_string(expected.get<std::int64_t>())) << name;
    ++configs;
  }
  EXPECT_EQ(configs, 10);
}

}  // namespace
}  // namespace rooftile
