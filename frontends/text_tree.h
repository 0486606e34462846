// One tree for the text formats (YAML, JSON): values with the place where they stand, so that every message can say file:line:column. Built with bounds on size, depth,
// nodes and aliases, so that no document, however broken, takes long or much memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "estimator/core/result.h"

namespace rooftile {

struct TextMark {
  std::uint32_t line = 0, column = 0;  // from 1; 0: unknown
};

// "model.yaml:3:14"; the file alone where the mark is unknown.
std::string place_of(const std::string& file, TextMark mark);

struct TextEntry;

// A value. YAML scalars are `text` (or null) and are read as what the key needs; JSON's are typed.
struct TextNode {
  enum class Kind : std::uint8_t { null, boolean, number, text, list, map };
  Kind kind = Kind::null;
  bool typed = false;  // JSON: a string is never a number
  TextMark mark;
  std::string text;  // a scalar as it is written; "true" or "false" for a boolean
  std::vector<TextNode> items;
  std::vector<TextEntry> entries;

  bool is_null() const { return kind == Kind::null; }
  bool is_scalar() const { return kind != Kind::list && kind != Kind::map; }
  const TextNode* find(std::string_view key) const;
};
struct TextEntry {
  std::string key;
  TextMark mark;
  TextNode value;
};

// "a list", "a number", ... for messages.
std::string_view describe(TextNode::Kind kind);

struct TextLimits {
  std::size_t bytes = 256u << 10;
  int depth = 32;
  std::size_t nodes = 20'000;  // aliases count as often as they are used
};

// Errors (all invalid): empty, too large, not UTF-8, syntax, too deep, too many nodes, duplicate keys, cyclic or exploding aliases, more than one document.
Result<TextNode> parse_yaml(std::string_view text, const std::string& file, const TextLimits& limits = {});
Result<TextNode> parse_json(std::string_view text, const std::string& file, const TextLimits& limits = {});

// Offset of the first byte that is no valid UTF-8, or npos. find_invalid_utf8("a\xff") == 1.
std::size_t find_invalid_utf8(std::string_view text);
TextMark mark_at(std::string_view text, std::size_t offset);

// Printable ASCII and UTF-8 letters as they are, control characters and foreign bytes as \xNN, at most `limit` bytes: for quoting input in messages.
std::string printable(std::string_view text, std::size_t limit = 60);

// An integer as people write it: 4096, 1_000, 300e9, 1.5e3. Errors (a message): no number, not whole, beyond 2^63 - 1.
Result<std::int64_t> parse_size(std::string_view text);

// Reads the keys of one map. The first error is kept and later calls do nothing, so that a reader is a list of keys rather than a list of checks.
class MapReader {
 public:
  MapReader(const TextNode& map, std::string file, std::optional<Error>& error);

  // Each returns true and sets `value` when the key is there and not null. A wrong type, or a number below `least`, is an error.
  bool integer(std::string_view key, std::int64_t& value, std::int64_t least = 1);
  bool number(std::string_view key, double& value);
  bool boolean(std::string_view key, bool& value);
  bool text(std::string_view key, std::string& value);
  const TextNode* list(std::string_view key);
  const TextNode* map(std::string_view key);
  const TextNode* any(std::string_view key);  // null nodes too
  bool has(std::string_view key) const;       // there and not null; does not count as read

  void ignore(std::string_view key) { seen_.emplace(key); }
  std::vector<const TextEntry*> unread() const;
  void refuse_unread(std::string_view what);  // an unknown key: an error with a suggestion from the keys asked for
  void fail_at(TextMark mark, std::string message, std::string hint = {}, ErrorCode code = ErrorCode::invalid);
  void fail_at(std::string_view key, std::string message, std::string hint = {}, ErrorCode code = ErrorCode::invalid);
  bool failed() const { return error_.has_value(); }
  const TextNode& node() const { return map_; }
  const std::string& file() const { return file_; }
  std::optional<Error>& error() { return error_; }
  TextMark mark_of(std::string_view key) const;

 private:
  const TextNode* scalar(std::string_view key, std::string_view wanted);
  const TextNode& map_;
  std::string file_;
  std::optional<Error>& error_;
  std::set<std::string, std::less<>> seen_;
};

}  // namespace rooftile
