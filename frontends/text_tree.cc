#include "frontends/text_tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "estimator/core/suggest.h"

namespace rooftile {

std::string place_of(const std::string& file, TextMark mark) { return mark.line == 0 ? file : fmt::format("{}:{}:{}", file, mark.line, mark.column); }

const TextNode* TextNode::find(std::string_view key) const {
  for (const TextEntry& entry : entries) {
    if (entry.key == key) return &entry.value;
  }
  return nullptr;
}

std::string_view describe(TextNode::Kind kind) {
  switch (kind) {
    case TextNode::Kind::null:
      return "nothing";
    case TextNode::Kind::boolean:
      return "true or false";
    case TextNode::Kind::number:
      return "a number";
    case TextNode::Kind::text:
      return "a word";
    case TextNode::Kind::list:
      return "a list";
    case TextNode::Kind::map:
      return "a map";
  }
  return "nothing";
}

std::size_t find_invalid_utf8(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  for (std::size_t i = 0; i < text.size();) {
    const unsigned first = byte(i);
    if (first < 0x80) {
      ++i;
      continue;
    }
    const std::size_t length = first >= 0xC2 && first <= 0xDF ? 2 : first >= 0xE0 && first <= 0xEF ? 3 : first >= 0xF0 && first <= 0xF4 ? 4 : 0;
    if (length == 0 || i + length > text.size()) return i;
    for (std::size_t j = 1; j < length; ++j) {
      if ((byte(i + j) & 0xC0) != 0x80) return i;
    }
    const unsigned second = byte(i + 1);
    const bool overlong = (first == 0xE0 && second < 0xA0) || (first == 0xF0 && second < 0x90);
    const bool outside = (first == 0xED && second > 0x9F) || (first == 0xF4 && second > 0x8F);
    if (overlong || outside) return i;
    i += length;
  }
  return std::string_view::npos;
}

TextMark mark_at(std::string_view text, std::size_t offset) {
  offset = std::min(offset, text.size());
  TextMark mark{1, 1};
  for (std::size_t i = 0; i < offset; ++i) {
    if (text[i] == '\n') {
      ++mark.line;
      mark.column = 1;
    } else {
      ++mark.column;
    }
  }
  return mark;
}

std::string printable(std::string_view text, std::size_t limit) {
  std::string shown;
  std::size_t i = 0;
  while (i < text.size() && shown.size() < limit) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c >= 0x80) {
      const std::size_t length = c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : 2;
      const std::string_view letter = text.substr(i, length);
      if (letter.size() == length && find_invalid_utf8(letter) == std::string_view::npos) {
        shown += letter;
        i += length;
        continue;
      }
    }
    if (c < 0x20 || c >= 0x7F) {
      shown += fmt::format("\\x{:02x}", c);
    } else {
      shown += static_cast<char>(c);
    }
    ++i;
  }
  return i < text.size() ? shown + "..." : shown;
}

Result<std::int64_t> parse_size(std::string_view text) {
  std::string digits;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool between_digits = i > 0 && i + 1 < text.size() && text[i - 1] >= '0' && text[i - 1] <= '9' && text[i + 1] >= '0' && text[i + 1] <= '9';
    if (text[i] == '_' && between_digits) continue;
    digits += text[i];
  }
  const auto not_a_number = [&] { return fail(ErrorCode::invalid, fmt::format("'{}' is not a whole number", printable(text))); };
  const auto too_large = [&] { return fail(ErrorCode::invalid, fmt::format("{} is above 2^63 - 1, the largest size", printable(text))); };
  if (digits.empty() || digits.size() > 400) return not_a_number();
  const bool plain = digits.find_first_not_of("0123456789", digits[0] == '-' || digits[0] == '+' ? 1 : 0) == std::string::npos;
  if (plain) {
    if (digits.find_first_of("0123456789") == std::string::npos) return not_a_number();
    std::int64_t value = 0;
    for (const char c : digits) {
      if (c < '0' || c > '9') continue;
      if (value > (std::numeric_limits<std::int64_t>::max() - (c - '0')) / 10) return too_large();
      value = value * 10 + (c - '0');
    }
    return digits[0] == '-' ? -value : value;
  }
  if (digits.find_first_not_of("0123456789+-.eE") != std::string::npos) return not_a_number();
  char* end = nullptr;
  const double value = std::strtod(digits.c_str(), &end);
  if (end != digits.c_str() + digits.size() || std::isnan(value)) return not_a_number();
  if (std::fabs(value) >= 9223372036854775808.0) return too_large();
  if (value != std::floor(value)) return not_a_number();
  return static_cast<std::int64_t>(value);
}

MapReader::MapReader(const TextNode& map, std::string file, std::optional<Error>& error) : map_(map), file_(std::move(file)), error_(error) {
  if (map.kind != TextNode::Kind::map) fail_at(map.mark, fmt::format("expected keys and values, found {}", describe(map.kind)));
}

void MapReader::fail_at(TextMark mark, std::string message, std::string hint, ErrorCode code) {
  if (!error_) error_ = Error{code, std::move(message), place_of(file_, mark), std::move(hint)};
}

void MapReader::fail_at(std::string_view key, std::string message, std::string hint, ErrorCode code) { fail_at(mark_of(key), std::move(message), std::move(hint), code); }

TextMark MapReader::mark_of(std::string_view key) const {
  for (const TextEntry& entry : map_.entries) {
    if (entry.key == key) return entry.value.mark.line ? entry.value.mark : entry.mark;
  }
  return map_.mark;
}

bool MapReader::has(std::string_view key) const {
  const TextNode* node = map_.find(key);
  return node && !node->is_null();
}

const TextNode* MapReader::any(std::string_view key) {
  if (seen_.find(key) == seen_.end()) seen_.emplace(key);
  return error_ ? nullptr : map_.find(key);
}

const TextNode* MapReader::scalar(std::string_view key, std::string_view wanted) {
  const TextNode* node = any(key);
  if (!node || node->is_null()) return nullptr;
  if (!node->is_scalar()) {
    fail_at(key, fmt::format("'{}' needs {}, found {}", key, wanted, describe(node->kind)));
    return nullptr;
  }
  return node;
}

bool MapReader::integer(std::string_view key, std::int64_t& value, std::int64_t least) {
  const TextNode* node = scalar(key, "a whole number");
  if (!node) return false;
  if (node->typed && node->kind != TextNode::Kind::number) {
    fail_at(key, fmt::format("'{}' needs a whole number, found {} ({})", key, describe(node->kind), printable(node->text)));
    return false;
  }
  const Result<std::int64_t> parsed = parse_size(node->text);
  if (!parsed) {
    fail_at(key, fmt::format("'{}': {}", key, parsed.error().message));
    return false;
  }
  if (*parsed < least) {
    fail_at(key, fmt::format("'{}' is {}, and must be {}", key, *parsed, least == 1 ? "positive" : fmt::format("at least {}", least)));
    return false;
  }
  value = *parsed;
  return true;
}

bool MapReader::number(std::string_view key, double& value) {
  const TextNode* node = scalar(key, "a number");
  if (!node) return false;
  char* end = nullptr;
  const double parsed = node->text.empty() ? 0 : std::strtod(node->text.c_str(), &end);
  if ((node->typed && node->kind != TextNode::Kind::number) || node->text.empty() || *end != '\0' || !std::isfinite(parsed)) {
    fail_at(key, fmt::format("'{}' needs a number, found '{}'", key, printable(node->text)));
    return false;
  }
  value = parsed;
  return true;
}

bool MapReader::boolean(std::string_view key, bool& value) {
  const TextNode* node = scalar(key, "true or false");
  if (!node) return false;
  const std::string& text = node->text;
  const bool typed_ok = !node->typed || node->kind == TextNode::Kind::boolean;
  if (typed_ok && (text == "true" || text == "True" || text == "yes" || text == "on")) {
    value = true;
  } else if (typed_ok && (text == "false" || text == "False" || text == "no" || text == "off")) {
    value = false;
  } else {
    fail_at(key, fmt::format("'{}' needs true or false, found '{}'", key, printable(text)));
    return false;
  }
  return true;
}

bool MapReader::text(std::string_view key, std::string& value) {
  const TextNode* node = scalar(key, "a word");
  if (!node) return false;
  if (node->typed && node->kind != TextNode::Kind::text) {
    fail_at(key, fmt::format("'{}' needs a string, found {}", key, describe(node->kind)));
    return false;
  }
  value = node->text;
  return true;
}

const TextNode* MapReader::list(std::string_view key) {
  const TextNode* node = any(key);
  if (!node || node->is_null()) return nullptr;
  if (node->kind == TextNode::Kind::list) return node;
  fail_at(key, fmt::format("'{}' needs a list, found {}", key, describe(node->kind)));
  return nullptr;
}

const TextNode* MapReader::map(std::string_view key) {
  const TextNode* node = any(key);
  if (!node || node->is_null()) return nullptr;
  if (node->kind == TextNode::Kind::map) return node;
  fail_at(key, fmt::format("'{}' needs keys and values, found {}", key, describe(node->kind)));
  return nullptr;
}

std::vector<const TextEntry*> MapReader::unread() const {
  std::vector<const TextEntry*> entries;
  for (const TextEntry& entry : map_.entries) {
    if (seen_.find(entry.key) == seen_.end()) entries.push_back(&entry);
  }
  return entries;
}

void MapReader::refuse_unread(std::string_view what) {
  const std::vector<const TextEntry*> entries = unread();
  if (entries.empty()) return;
  const std::vector<std::string> known(seen_.begin(), seen_.end());
  fail_at(entries[0]->mark, fmt::format("unknown key '{}' {}", printable(entries[0]->key), what), did_you_mean(entries[0]->key, known, 100));
}

}  // namespace rooftile
