#include "frontends/model_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <system_error>

#include "frontends/text_tree.h"

namespace rooftile {
namespace {

// A protobuf ModelProto begins with one of its fields: ir_version (1, varint), producer_name (2), graph (7) and so on; text never begins with these control bytes.
bool looks_like_protobuf(std::string_view bytes) {
  if (bytes.empty()) return false;
  const auto tag = static_cast<unsigned char>(bytes[0]);
  const bool field = tag == 0x08 || tag == 0x12 || tag == 0x1A || tag == 0x22 || tag == 0x28 || tag == 0x32 || tag == 0x3A || tag == 0x42 || tag == 0x72;
  if (!field) return false;
  if (tag == 0x08 || tag == 0x12 || tag == 0x1A) return true;  // control characters
  // '"', '(', '2', ':', 'B', 'r' are letters too: a binary file shows it soon.
  const std::string_view head = bytes.substr(0, 512);
  return std::any_of(head.begin(), head.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte < 0x20 && c != '\n' && c != '\r' && c != '\t';
  });
}

}  // namespace

ModelFormat sniff_model(std::string_view bytes) {
  if (looks_like_protobuf(bytes)) return ModelFormat::onnx;
  if (bytes.substr(0, 3) == "\xEF\xBB\xBF") bytes.remove_prefix(3);
  const std::size_t first = bytes.find_first_not_of(" \t\r\n");
  // A YAML flow map begins with a brace too, but its keys are bare words.
  if (first != std::string_view::npos && bytes[first] == '{') {
    const std::size_t next = bytes.find_first_not_of(" \t\r\n", first + 1);
    if (next == std::string_view::npos || bytes[next] == '"' || bytes[next] == '}') return ModelFormat::hf_config;
  }
  return ModelFormat::yaml;
}

Result<std::string> read_text(const std::filesystem::path& file, std::size_t limit) {
  std::error_code error;
  const std::string name = file.string();
  const auto status = std::filesystem::status(file, error);
  if (!std::filesystem::exists(status)) return fail(ErrorCode::invalid, "no such file", name, "a model is a shipped name ('rooftile models' lists them) or a file");
  if (std::filesystem::is_directory(status)) return fail(ErrorCode::invalid, "is a folder, not a file", name, "name the config.json, .yaml or .onnx in it");
  const bool regular = std::filesystem::is_regular_file(status);
  if (regular) {
    const auto size = std::filesystem::file_size(file, error);
    if (!error && size > limit) return fail(ErrorCode::invalid, fmt::format("{} bytes; at most {} are read", size, limit), name);
  }
  std::ifstream stream(file, std::ios::binary);
  if (!stream) return fail(ErrorCode::invalid, "cannot be opened", name, "check its permissions");
  std::string text;
  char block[1 << 14];
  while (stream.read(block, sizeof block) || stream.gcount() > 0) {  // pipes and /dev/zero tell no size
    text.append(block, static_cast<std::size_t>(stream.gcount()));
    if (text.size() > limit) return fail(ErrorCode::invalid, fmt::format("over {} bytes", limit), name);
  }
  if (stream.bad()) return fail(ErrorCode::invalid, "cannot be read", name);
  return text;
}

}  // namespace rooftile
