// A YAML file as a plain tree with positions, for the small files of hardware/. Built from yaml-cpp's events rather than its nodes: anchors and aliases are refused, depth and
// size are bounded, duplicate keys are errors, and quoted scalars stay apart from plain ones.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "estimator/core/result.h"

namespace rooftile {

struct YamlEntry;

struct YamlNode {
  enum class Kind : std::uint8_t { null, scalar, list, map };
  Kind kind = Kind::null;
  std::string scalar;
  bool quoted = false;
  int line = 0, column = 0;                 // from 1
  std::shared_ptr<const std::string> file;  // a tree merged from two files knows where each node is from
  std::vector<YamlNode> items;              // of a list
  std::vector<YamlEntry> entries;           // of a map, in the order of the file

  const YamlNode* find(std::string_view key) const;
  std::string place() const;  // "file:line:column"
};

struct YamlEntry {
  std::string key;
  int line = 0, column = 0;
  YamlNode value;
};

inline constexpr std::size_t kHardwareFileLimit = 1u << 20;  // bytes; shipped files are a few KB
inline constexpr int kHardwareDepthLimit = 24;

// The tree of one document. Errors (invalid, "file:line:column"): bytes that are not UTF-8, syntax, anchors, duplicate keys, depth, more than one document, an empty file.
Result<YamlNode> parse_yaml(std::string_view text, const std::string& file);

// Reads the file, then parse_yaml. Errors: unavailable when it cannot be opened, invalid when it is no regular file or too large.
Result<YamlNode> read_yaml(const std::filesystem::path& file);

// `base` with everything that `over` has put in its place: maps are merged key by key, except that a number ({value: ...}) is replaced whole; a null removes the key.
YamlNode merge_yaml(YamlNode base, const YamlNode& over);

}  // namespace rooftile
