// YAML -> TextNode through yaml-cpp's event interface: the tree is ours, so aliases are copied under a budget and nothing is expanded that was not paid for.
#include <fmt/format.h>
#include <yaml-cpp/anchor.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <istream>
#include <map>
#include <streambuf>

#include "frontends/text_tree.h"

namespace rooftile {
namespace {

struct Refusal {
  std::string message;
  TextMark mark;
  std::string hint;
};

TextMark mark_of(const YAML::Mark& mark) {
  if (mark.line < 0 || mark.column < 0) return {};
  return {static_cast<std::uint32_t>(mark.line) + 1, static_cast<std::uint32_t>(mark.column) + 1};
}

class ViewBuffer : public std::streambuf {
 public:
  explicit ViewBuffer(std::string_view text) {
    char* begin = const_cast<char*>(text.data());
    setg(begin, begin, begin + text.size());
  }
};

// yaml-cpp takes a quoted scalar that never ends to run to the end of the file. Where the quote at `at` is left open.
bool quote_left_open(std::string_view text, std::size_t at) {
  if (at >= text.size() || (text[at] != '"' && text[at] != '\'')) return false;
  const char quote = text[at];
  for (std::size_t i = at + 1; i < text.size(); ++i) {
    if (quote == '"' && text[i] == '\\') {
      ++i;
    } else if (text[i] == quote) {
      if (quote == '"' || i + 1 >= text.size() || text[i + 1] != quote) return false;
      ++i;  // '' is a quote inside
    }
  }
  return true;
}

class TreeBuilder : public YAML::EventHandler {
 public:
  TreeBuilder(std::string_view text, const TextLimits& limits) : text_(text), limits_(limits) {}

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    TextNode node;
    node.mark = mark_of(mark);
    add(std::move(node), anchor);
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, const std::string& value) override {
    TextNode node;
    node.mark = mark_of(mark);
    const bool plain = tag == "?" || tag.empty();
    if (!plain && mark.pos >= 0 && quote_left_open(text_, static_cast<std::size_t>(mark.pos))) throw Refusal{"a quote is opened and not closed", node.mark, ""};
    node.kind = plain && (value.empty() || value == "~" || value == "null" || value == "Null" || value == "NULL") ? TextNode::Kind::null : TextNode::Kind::text;
    node.text = value;
    add(std::move(node), anchor);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto target = finished_.find(anchor);
    if (target == finished_.end()) throw Refusal{"an alias that refers to itself", mark_of(mark), "write the value out"};
    nodes_ += size_of(target->second);
    check(mark_of(mark));
    TextNode copy = target->second;
    add(std::move(copy), 0);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor, YAML::EmitterStyle::value) override { open(TextNode::Kind::list, mark, anchor); }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor, YAML::EmitterStyle::value) override { open(TextNode::Kind::map, mark, anchor); }
  void OnMapEnd() override { close(); }

  TextNode& root() { return root_; }

 private:
  struct Open {
    TextNode node;
    YAML::anchor_t anchor = 0;
    bool has_key = false;
    TextEntry entry;  // whose value comes next
  };

  static std::size_t size_of(const TextNode& node) {
    std::size_t size = 1 + node.text.size() / 64;
    for (const TextNode& item : node.items) size += size_of(item);
    for (const TextEntry& entry : node.entries) size += size_of(entry.value);
    return size;
  }
  void check(TextMark mark) const {
    if (nodes_ > limits_.nodes) throw Refusal{fmt::format("over {} values", limits_.nodes), mark, "aliases count as often as they are used"};
  }

  void open(TextNode::Kind kind, const YAML::Mark& mark, YAML::anchor_t anchor) {
    if (static_cast<int>(open_.size()) >= limits_.depth) throw Refusal{fmt::format("nested deeper than {} levels", limits_.depth), mark_of(mark), ""};
    Open level;
    level.node.kind = kind;
    level.node.mark = mark_of(mark);
    level.anchor = anchor;
    open_.push_back(std::move(level));
  }
  void close() {
    Open level = std::move(open_.back());
    open_.pop_back();
    add(std::move(level.node), level.anchor);
  }
  void add(TextNode node, YAML::anchor_t anchor) {
    ++nodes_;
    check(node.mark);
    if (anchor != 0) finished_[anchor] = node;
    if (open_.empty()) {
      root_ = std::move(node);
      return;
    }
    Open& level = open_.back();
    if (level.node.kind == TextNode::Kind::list) {
      level.node.items.push_back(std::move(node));
    } else if (!level.has_key) {
      if (!node.is_scalar()) throw Refusal{"a key must be a word", node.mark, ""};
      for (const TextEntry& entry : level.node.entries) {
        if (entry.key == node.text) {
          throw Refusal{fmt::format("'{}' stands twice", printable(node.text)), node.mark, fmt::format("first at line {}; keep one of them", entry.mark.line)};
        }
      }
      level.entry = {node.text, node.mark, {}};
      level.has_key = true;
    } else {
      level.entry.value = std::move(node);
      level.node.entries.push_back(std::move(level.entry));
      level.has_key = false;
      if (level.node.entries.size() > kMaxKeys) throw Refusal{fmt::format("over {} keys in one map", kMaxKeys), level.node.mark, ""};
    }
  }

  static constexpr std::size_t kMaxKeys = 1000;
  std::string_view text_;
  TextLimits limits_;
  TextNode root_;
  std::vector<Open> open_;
  std::map<YAML::anchor_t, TextNode> finished_;
  std::size_t nodes_ = 0;
};

}  // namespace

Result<TextNode> parse_yaml(std::string_view text, const std::string& file, const TextLimits& limits) {
  if (text.size() > limits.bytes) return fail(ErrorCode::invalid, fmt::format("{} bytes of YAML; at most {} are read", text.size(), limits.bytes), file);
  if (const std::size_t bad = find_invalid_utf8(text); bad != std::string_view::npos) {
    return fail(ErrorCode::invalid, fmt::format("byte 0x{:02x} is no UTF-8", static_cast<unsigned char>(text[bad])), place_of(file, mark_at(text, bad)), "save the file as UTF-8");
  }
  if (const std::size_t zero = text.find('\0'); zero != std::string_view::npos) {
    return fail(ErrorCode::invalid, "a zero byte", place_of(file, mark_at(text, zero)), "a model is described by text");
  }
  ViewBuffer buffer(text);
  std::istream stream(&buffer);
  try {
    YAML::Parser parser(stream);
    TreeBuilder builder(text, limits);
    if (!parser.HandleNextDocument(builder)) return fail(ErrorCode::invalid, "the file is empty", file, "a model needs at least kind, layers, hidden, heads, vocab, ffn_hidden");
    TextNode root = std::move(builder.root());
    TreeBuilder second(text, limits);
    if (parser.HandleNextDocument(second)) return fail(ErrorCode::invalid, "a second document ('---'); one file describes one model", place_of(file, second.root().mark));
    return root;
  } catch (const Refusal& refusal) {
    return fail(ErrorCode::invalid, refusal.message, place_of(file, refusal.mark), refusal.hint);
  } catch (const YAML::Exception& error) {
    return fail(ErrorCode::invalid, "not valid YAML: " + printable(error.msg, 200), place_of(file, mark_of(error.mark)));
  } catch (const std::exception& error) {
    return fail(ErrorCode::invalid, "not valid YAML: " + printable(error.what(), 200), file);
  }
}

}  // namespace rooftile
