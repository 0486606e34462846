#include <cctype>

#include "frontends/onnx/dims/dim.h"

namespace rooftile::onnx {
namespace {

bool starts_name(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool continues_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == ':' || c == '$'; }

// expression := term (('+' | '-') term)* ; term := factor (('*' | '/' | '//' | '%') factor)* ; factor := number | name | name '(' list ')' | '(' expression ')' | '-' factor
class Parser {
 public:
  Parser(DimContext& context, std::string_view text) : context_(context), text_(text) {}

  std::optional<Dim> whole() {
    const auto value = expression(0);
    skip();
    if (!value || at_ != text_.size()) return std::nullopt;
    return value;
  }

 private:
  void skip() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool take(char c) {
    skip();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  std::optional<Dim> expression(int depth) {
    auto left = term(depth);
    while (left) {
      const bool plus = take('+');
      if (!plus && !take('-')) return left;
      const auto right = term(depth);
      if (!right) return std::nullopt;
      left = plus ? context_.add(*left, *right) : context_.sub(*left, *right);
    }
    return left;
  }

  std::optional<Dim> term(int depth) {
    auto left = factor(depth);
    while (left) {
      char operation = 0;
      if (take('*')) {
        operation = '*';
      } else if (take('/')) {
        operation = '/';
        take('/');
      } else if (take('%')) {
        operation = '%';
      } else {
        return left;
      }
      const auto right = factor(depth);
      if (!right || (operation != '*' && *right == Dim(0))) return std::nullopt;
      left = operation == '*' ? context_.mul(*left, *right) : operation == '/' ? context_.floordiv(*left, *right) : context_.mod(*left, *right);
    }
    return left;
  }

  std::optional<Dim> factor(int depth) {
    if (depth > 32) return std::nullopt;
    skip();
    if (at_ >= text_.size()) return std::nullopt;
    if (take('-')) {
      const auto value = factor(depth + 1);
      if (!value) return std::nullopt;
      return context_.mul(*value, -1);
    }
    if (take('(')) {
      const auto value = expression(depth + 1);
      if (!value || !take(')')) return std::nullopt;
      return value;
    }
    if (std::isdigit(static_cast<unsigned char>(text_[at_])) != 0) {
      std::int64_t number = 0;
      while (at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])) != 0) {
        if (__builtin_mul_overflow(number, std::int64_t{10}, &number) || __builtin_add_overflow(number, std::int64_t{text_[at_] - '0'}, &number)) return std::nullopt;
        ++at_;
      }
      return Dim(number);
    }
    if (!starts_name(text_[at_])) return std::nullopt;
    const std::size_t begin = at_;
    while (at_ < text_.size() && continues_name(text_[at_])) ++at_;
    const std::string_view name = text_.substr(begin, at_ - begin);
    if (at_ < text_.size() && text_[at_] == '(') return call(name, depth);
    return context_.symbol(name);
  }

  std::optional<Dim> call(std::string_view name, int depth) {
    ++at_;
    std::string lower;
    for (const char c : name) lower += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (lower == "ceil" || lower == "ceiling") return ceiling(depth);
    std::vector<Dim> arguments;
    do {
      const auto argument = expression(depth + 1);
      if (!argument || arguments.size() >= 16) return std::nullopt;
      arguments.push_back(*argument);
    } while (take(','));
    if (!take(')')) return std::nullopt;
    if (lower == "floor" && arguments.size() == 1) return arguments[0];  // division already rounds down
    if (lower == "max" || lower == "min") {
      Dim value = arguments[0];
      for (std::size_t i = 1; i < arguments.size(); ++i) value = lower == "max" ? context_.max(value, arguments[i]) : context_.min(value, arguments[i]);
      return value;
    }
    if (arguments.size() == 2 && arguments[1] != Dim(0)) {
      if (lower == "floordiv") return context_.floordiv(arguments[0], arguments[1]);
      if (lower == "ceildiv") return context_.ceildiv(arguments[0], arguments[1]);
      if (lower == "mod") return context_.mod(arguments[0], arguments[1]);
    }
    return std::nullopt;
  }

  // ceil(a / b) with one division at its top: split the text at the last '/' outside parentheses.
  std::optional<Dim> ceiling(int depth) {
    int nesting = 1;
    std::size_t end = at_, slash = std::string_view::npos;
    for (; end < text_.size(); ++end) {
      if (text_[end] == '(') ++nesting;
      if (text_[end] == ')' && --nesting == 0) break;
      if (text_[end] == '/' && nesting == 1) slash = end;
    }
    if (end >= text_.size() || depth > 32) return std::nullopt;
    const std::string_view inside = text_.substr(at_, end - at_);
    std::optional<Dim> value;
    if (slash == std::string_view::npos) {
      value = Parser(context_, inside).whole();
    } else {
      const auto above = Parser(context_, text_.substr(at_, slash - at_)).whole();
      const auto below = Parser(context_, text_.substr(slash + 1, end - slash - 1)).whole();
      if (above && below && *below != Dim(0)) value = context_.ceildiv(*above, *below);
    }
    at_ = end + 1;
    return value;
  }

  DimContext& context_;
  std::string_view text_;
  std::size_t at_ = 0;
};

// "seq-len": exporters' users write names with hyphens; a subtraction is written with blanks around it, or has a number beside it.
bool has_hyphen_in_name(std::string_view text) {
  for (std::size_t i = 1; i + 1 < text.size(); ++i) {
    if (text[i] == '-' && starts_name(text[i + 1]) && continues_name(text[i - 1]) && text.find(' ') == std::string_view::npos && text.find('(') == std::string_view::npos)
      return true;
  }
  return false;
}

}  // namespace

Dim parse_dim(DimContext& context, std::string_view text) {
  text = text.substr(0, 256);
  bool name = !text.empty() && !has_hyphen_in_name(text) ? starts_name(text[0]) : false;
  for (const char c : text) name = name && continues_name(c);
  if (name) return context.symbol(text);
  if (!has_hyphen_in_name(text)) {
    const bool before = context.overflow();
    const auto value = Parser(context, text).whole();
    const bool overflowed = context.overflow() && !before;
    if (overflowed) context.clear_overflow();
    if (value && !overflowed) return *value;
  }
  return context.symbol(text);
}

}  // namespace rooftile::onnx
