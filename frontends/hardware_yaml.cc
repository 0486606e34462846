#include "frontends/hardware_yaml.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <system_error>

namespace rooftile {
namespace {

// Byte offset of the first byte that is not UTF-8 text (a NUL counts as such), or npos.
std::size_t first_invalid_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte == 0) return i;
    const int length = byte < 0x80 ? 1 : byte >= 0xC2 && byte < 0xE0 ? 2 : byte >= 0xE0 && byte < 0xF0 ? 3 : byte >= 0xF0 && byte < 0xF5 ? 4 : 0;
    if (length == 0 || i + static_cast<std::size_t>(length) > text.size()) return i;
    std::uint32_t code = length == 1 ? byte : byte & (0x7Fu >> length);
    for (int k = 1; k < length; ++k) {
      const auto next = static_cast<unsigned char>(text[i + static_cast<std::size_t>(k)]);
      if ((next & 0xC0) != 0x80) return i;
      code = code << 6 | (next & 0x3Fu);
    }
    if ((length == 3 && code < 0x800) || (length == 4 && (code < 0x10000 || code > 0x10FFFF)) || (code >= 0xD800 && code < 0xE000)) return i;
    i += static_cast<std::size_t>(length);
  }
  return std::string_view::npos;
}

std::string place_of(const std::string& file, int line, int column) { return file + ":" + std::to_string(line) + ":" + std::to_string(column); }

// Builds the tree. A refusal is thrown as yaml-cpp's own exception, with its position, and caught in parse_yaml.
class TreeBuilder : public YAML::EventHandler {
 public:
  explicit TreeBuilder(std::shared_ptr<const std::string> file) : file_(std::move(file)) {}

  YamlNode take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { leaf(mark, anchor, {}, false, YamlNode::Kind::null); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override { refuse(mark, "anchors and aliases are not used in these files; write the value out"); }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, const std::string& value) override {
    const bool quoted = tag == "!";
    const bool null = !quoted && (value.empty() || value == "~" || value == "null");
    leaf(mark, anchor, value, quoted, null ? YamlNode::Kind::null : YamlNode::Kind::scalar);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor, YAML::EmitterStyle::value) override { open(mark, anchor, YamlNode::Kind::list); }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor, YAML::EmitterStyle::value) override { open(mark, anchor, YamlNode::Kind::map); }
  void OnMapEnd() override { close(); }

 private:
  struct Frame {
    YamlNode node;
    bool has_key = false;
    YamlEntry entry;
  };

  [[noreturn]] static void refuse(const YAML::Mark& mark, const std::string& message) { throw YAML::ParserException(mark, message); }

  YamlNode make(const YAML::Mark& mark, YamlNode::Kind kind) const {
    YamlNode node;
    node.kind = kind;
    node.line = mark.line + 1;
    node.column = mark.column + 1;
    node.file = file_;
    return node;
  }

  void leaf(const YAML::Mark& mark, YAML::anchor_t anchor, const std::string& value, bool quoted, YamlNode::Kind kind) {
    if (anchor != 0) refuse(mark, "anchors and aliases are not used in these files; write the value out");
    if (!stack_.empty() && stack_.back().node.kind == YamlNode::Kind::map && !stack_.back().has_key) {
      Frame& frame = stack_.back();
      if (frame.node.find(value) != nullptr) refuse(mark, "the key '" + value + "' stands here twice");
      frame.has_key = true;
      frame.entry = YamlEntry{value, mark.line + 1, mark.column + 1, {}};
      return;
    }
    YamlNode node = make(mark, kind);
    node.scalar = value;
    node.quoted = quoted;
    add(std::move(node));
  }

  void open(const YAML::Mark& mark, YAML::anchor_t anchor, YamlNode::Kind kind) {
    if (anchor != 0) refuse(mark, "anchors and aliases are not used in these files; write the value out");
    if (!stack_.empty() && stack_.back().node.kind == YamlNode::Kind::map && !stack_.back().has_key) refuse(mark, "a key must be a plain word");
    if (stack_.size() >= static_cast<std::size_t>(kHardwareDepthLimit)) refuse(mark, "nested deeper than " + std::to_string(kHardwareDepthLimit) + " levels");
    stack_.push_back(Frame{make(mark, kind), false, {}});
  }

  void close() {
    YamlNode node = std::move(stack_.back().node);
    stack_.pop_back();
    add(std::move(node));
  }

  void add(YamlNode node) {
    if (stack_.empty()) {
      root_ = std::move(node);
      return;
    }
    Frame& frame = stack_.back();
    if (frame.node.kind == YamlNode::Kind::list) {
      frame.node.items.push_back(std::move(node));
    } else {
      frame.entry.value = std::move(node);
      frame.node.entries.push_back(std::move(frame.entry));
      frame.has_key = false;
    }
  }

  std::shared_ptr<const std::string> file_;
  std::vector<Frame> stack_;
  YamlNode root_;
};

bool is_number(const YamlNode& node) { return node.kind == YamlNode::Kind::map && node.find("value") != nullptr; }

}  // namespace

const YamlNode* YamlNode::find(std::string_view key) const {
  for (const YamlEntry& entry : entries) {
    if (entry.key == key) return &entry.value;
  }
  return nullptr;
}

std::string YamlNode::place() const { return place_of(file ? *file : std::string(), line, column); }

Result<YamlNode> parse_yaml(std::string_view text, const std::string& file) {
  if (text.size() > kHardwareFileLimit) return fail(ErrorCode::invalid, "file is larger than 1 MiB", file);
  if (text.substr(0, 3) == "\xEF\xBB\xBF") text.remove_prefix(3);
  if (const std::size_t bad = first_invalid_utf8(text); bad != std::string_view::npos) {
    const std::string_view before = text.substr(0, bad);
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    const std::size_t line_start = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
    return fail(ErrorCode::invalid, "not valid UTF-8 text", place_of(file, static_cast<int>(line), static_cast<int>(bad - line_start) + 1), "save the file as UTF-8");
  }
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    TreeBuilder builder(std::make_shared<const std::string>(file));
    if (!parser.HandleNextDocument(builder)) return fail(ErrorCode::invalid, "the file is empty", file + ":1:1");
    YamlNode root = builder.take();
    TreeBuilder rest(std::make_shared<const std::string>(file));
    if (parser.HandleNextDocument(rest)) return fail(ErrorCode::invalid, "holds more than one document", rest.take().place());
    if (root.kind != YamlNode::Kind::map)
      return fail(ErrorCode::invalid, root.kind == YamlNode::Kind::null ? "the file is empty" : "expected 'key: value' lines", place_of(file, 1, 1));
    return root;
  } catch (const YAML::Exception& error) {
    const bool known = !error.mark.is_null();
    return fail(ErrorCode::invalid, error.msg, place_of(file, known ? error.mark.line + 1 : 1, known ? error.mark.column + 1 : 1));
  }
}

Result<YamlNode> read_yaml(const std::filesystem::path& file) {
  std::error_code status;
  if (!std::filesystem::exists(file, status)) return fail(ErrorCode::unavailable, "no such file", file.string());
  if (!std::filesystem::is_regular_file(file, status)) return fail(ErrorCode::invalid, "is not a file", file.string());
  if (std::filesystem::file_size(file, status) > kHardwareFileLimit || status) return fail(ErrorCode::invalid, "file is larger than 1 MiB", file.string());
  std::ifstream stream(file, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  if (!stream) return fail(ErrorCode::unavailable, "cannot be read", file.string());
  return parse_yaml(text, file.string());
}

YamlNode merge_yaml(YamlNode base, const YamlNode& over) {
  if (base.kind != YamlNode::Kind::map || over.kind != YamlNode::Kind::map || is_number(base) || is_number(over)) return over;
  for (const YamlEntry& entry : over.entries) {
    const auto existing = std::find_if(base.entries.begin(), base.entries.end(), [&](const YamlEntry& candidate) { return candidate.key == entry.key; });
    if (entry.value.kind == YamlNode::Kind::null) {
      if (existing != base.entries.end()) base.entries.erase(existing);
    } else if (existing == base.entries.end()) {
      base.entries.push_back(entry);
    } else {
      existing->value = merge_yaml(std::move(existing->value), entry.value);
      existing->line = entry.line;
      existing->column = entry.column;
    }
  }
  base.line = over.line;
  base.column = over.column;
  base.file = over.file;
  return base;
}

}  // namespace rooftile
