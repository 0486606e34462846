// JSON -> TextNode through nlohmann's SAX interface, which does not recurse.
#include <fmt/format.h>

#include <iterator>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "frontends/text_tree.h"

namespace rooftile {
namespace {

// An iterator that shows how far the parser has read.
struct CountingIterator {
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;
  const char* at = nullptr;
  const char** seen = nullptr;
  reference operator*() const { return *at; }
  CountingIterator& operator++() {
    ++at;
    if (seen) *seen = at;
    return *this;
  }
  CountingIterator operator++(int) {
    const CountingIterator before = *this;
    ++*this;
    return before;
  }
  bool operator==(const CountingIterator& other) const { return at == other.at; }
  bool operator!=(const CountingIterator& other) const { return at != other.at; }
};

class TreeSax {
 public:
  TreeSax(std::string_view text, const char** seen, const TextLimits& limits) : text_(text), seen_(seen), limits_(limits) {}

  bool null() { return scalar(TextNode::Kind::null, "null", 4); }
  bool boolean(bool value) { return scalar(TextNode::Kind::boolean, value ? "true" : "false", value ? 4 : 5); }
  bool number_integer(std::int64_t value) { return number(std::to_string(value)); }
  bool number_unsigned(std::uint64_t value) { return number(std::to_string(value)); }
  bool number_float(double, const std::string& written) { return number(written); }
  bool string(std::string& value) { return scalar(TextNode::Kind::text, value, value.size() + 2); }
  bool binary(nlohmann::json::binary_t&) { return refuse("binary data"); }
  bool start_object(std::size_t) { return open(TextNode::Kind::map); }
  bool start_array(std::size_t) { return open(TextNode::Kind::list); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(std::string& name) {
    TextNode& map = open_.back();
    if (!keys_.back().insert(name).second) {
      const TextNode* first = map.find(name);
      error_ = Error{ErrorCode::invalid, fmt::format("'{}' stands twice", printable(name)), {}, fmt::format("first at line {}; keep one of them", first->mark.line)};
      mark_ = here(name.size() + 2);
      return false;
    }
    map.entries.push_back({name, here(name.size() + 2), {}});
    return count();
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& error) {
    // what() begins with the library's own tag and position; the sentence after them is kept.
    const std::string_view what = error.what();
    const std::size_t colon = what.find(": ");
    error_ = Error{ErrorCode::invalid, "not valid JSON: " + printable(colon == std::string_view::npos ? what : what.substr(colon + 2), 200), {}, {}};
    mark_ = here(1);
    return false;
  }

  std::optional<Error> error_;
  TextMark mark_;
  TextNode root_;

 private:
  // Line and column of a token of `length` bytes that was just read.
  TextMark here(std::size_t length) const {
    const auto offset = static_cast<std::size_t>(*seen_ - text_.data());
    const std::size_t begin = offset > length ? offset - length : 0;
    // The text is walked once: marks come in order.
    if (begin < walked_) return mark_at(text_, begin);
    for (; walked_ < begin; ++walked_) {
      if (text_[walked_] == '\n') {
        ++walked_mark_.line;
        walked_mark_.column = 1;
      } else {
        ++walked_mark_.column;
      }
    }
    return walked_mark_;
  }
  bool count() {
    if (++nodes_ <= limits_.nodes) return true;
    return refuse(fmt::format("over {} values", limits_.nodes));
  }
  bool refuse(std::string message) {
    error_ = Error{ErrorCode::invalid, std::move(message), {}, {}};
    mark_ = here(1);
    return false;
  }
  bool number(std::string written) {
    const std::size_t length = written.size();
    return scalar(TextNode::Kind::number, std::move(written), length + 1);  // the parser has read one letter past a number
  }
  bool scalar(TextNode::Kind kind, std::string text, std::size_t length) {
    TextNode node;
    node.kind = kind;
    node.typed = true;
    node.mark = here(length);
    node.text = std::move(text);
    place(std::move(node));
    return count();
  }
  bool open(TextNode::Kind kind) {
    if (static_cast<int>(open_.size()) >= limits_.depth) return refuse(fmt::format("nested deeper than {} levels", limits_.depth));
    TextNode node;
    node.kind = kind;
    node.typed = true;
    node.mark = here(1);
    open_.push_back(std::move(node));
    keys_.emplace_back();
    return count();
  }
  bool close() {
    TextNode node = std::move(open_.back());
    open_.pop_back();
    keys_.pop_back();
    place(std::move(node));
    return true;
  }
  void place(TextNode node) {
    if (open_.empty()) {
      root_ = std::move(node);
    } else if (open_.back().kind == TextNode::Kind::list) {
      open_.back().items.push_back(std::move(node));
    } else {
      open_.back().entries.back().value = std::move(node);
    }
  }

  std::string_view text_;
  const char** seen_;
  TextLimits limits_;
  std::vector<TextNode> open_;
  std::vector<std::unordered_set<std::string>> keys_;  // of the open objects
  std::size_t nodes_ = 0;
  mutable std::size_t walked_ = 0;
  mutable TextMark walked_mark_{1, 1};
};

}  // namespace

Result<TextNode> parse_json(std::string_view text, const std::string& file, const TextLimits& limits) {
  if (text.size() > limits.bytes) return fail(ErrorCode::invalid, fmt::format("{} bytes of JSON; at most {} are read", text.size(), limits.bytes), file);
  if (text.substr(0, 3) == "\xEF\xBB\xBF") text.remove_prefix(3);
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) return fail(ErrorCode::invalid, "the file is empty", file);
  if (const std::size_t bad = find_invalid_utf8(text); bad != std::string_view::npos) {
    return fail(ErrorCode::invalid, fmt::format("byte 0x{:02x} is no UTF-8", static_cast<unsigned char>(text[bad])), place_of(file, mark_at(text, bad)), "save the file as UTF-8");
  }
  const char* seen = text.data();
  TreeSax sax(text, &seen, limits);
  try {
    const bool parsed = nlohmann::json::sax_parse(CountingIterator{text.data(), &seen}, CountingIterator{text.data() + text.size(), nullptr}, &sax);
    if (sax.error_) return fail(sax.error_->code, sax.error_->message, place_of(file, sax.mark_), sax.error_->hint);
    if (!parsed) return fail(ErrorCode::invalid, "not valid JSON", file);
  } catch (const std::exception& error) {
    return fail(ErrorCode::invalid, "not valid JSON: " + printable(error.what(), 200), file);
  }
  return std::move(sax.root_);
}

}  // namespace rooftile
