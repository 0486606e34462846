// Any model description: told apart by content, not by name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "estimator/core/result.h"
#include "frontends/model_spec.h"

namespace rooftile {

enum class ModelFormat : std::uint8_t { yaml, hf_config, onnx };

// What a file is, from its first bytes: JSON object -> hf_config, protobuf with an ONNX header -> onnx, else yaml.
ModelFormat sniff_model(std::string_view bytes);

// No description of a model is larger: a config.json with lists of layers has some 100 kB.
inline constexpr std::size_t kMaxModelText = 8u << 20;

// The text of a whole file or pipe. Never blocks for good and never reads more than `limit` bytes. Errors (invalid): missing, a directory, a device, a pipe from which nothing
// comes for 5 s, over `limit` bytes.
Result<std::string> read_text(const std::filesystem::path& file, std::size_t limit = 64u << 20);

// The first 512 bytes of a regular file, to tell what it is; empty for anything else.
std::string read_head(const std::filesystem::path& file);

// Model YAML (interface section 5). `file` is used in messages as file:line:column. Errors: invalid with a suggestion for an unknown key, exploding or cyclic anchors, depth.
Result<ModelSpec> read_yaml_model(std::string_view text, const std::string& file);

// A Hugging Face config.json. Unknown model_type: unsupported, with the list of known ones and the hint to write YAML. Nothing is guessed silently: see ModelSpec::filled.
Result<ModelSpec> read_hf_config(std::string_view text, const std::string& file);

// Fills every default of a spec that its reader left open (kv_heads, head_dim, ...), remembers them in spec.filled, and checks that the sizes make sense together.
Result<ModelSpec> resolve(ModelSpec spec);

// "yaml" text that read_yaml_model reads back to the same spec.
std::string write_yaml_model(const ModelSpec& spec);

}  // namespace rooftile
