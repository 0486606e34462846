#include "report/json_writer.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

namespace rooftile {
namespace {

// Length of the valid UTF-8 sequence at the start of `text` (1 to 4), or 0 when there is none: overlong forms, surrogates and code points above U+10FFFF are invalid.
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto continues = [&](std::size_t i, unsigned char low = 0x80, unsigned char high = 0xBF) { return i < text.size() && byte(i) >= low && byte(i) <= high; };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return continues(1) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) return continues(1, lead == 0xE0 ? 0xA0 : 0x80, lead == 0xED ? 0x9F : 0xBF) && continues(2) ? 3 : 0;
  if (lead >= 0xF0 && lead <= 0xF4) return continues(1, lead == 0xF0 ? 0x90 : 0x80, lead == 0xF4 ? 0x8F : 0xBF) && continues(2) && continues(3) ? 4 : 0;
  return 0;
}

}  // namespace

void append_json_string(std::string& out, std::string_view text) {
  out.push_back('"');
  while (!text.empty()) {
    // The common case, a run of plain characters, is copied at once.
    std::size_t plain = 0;
    while (plain < text.size() && static_cast<unsigned char>(text[plain]) >= 0x20 && static_cast<unsigned char>(text[plain]) < 0x7F && text[plain] != '"' && text[plain] != '\\')
      ++plain;
    out.append(text.substr(0, plain));
    text.remove_prefix(plain);
    if (text.empty()) break;
    const auto c = static_cast<unsigned char>(text[0]);
    const std::size_t length = utf8_length(text);
    if (c == '"' || c == '\\') {
      out.push_back('\\');
      out.push_back(text[0]);
      text.remove_prefix(1);
    } else if (c == '\n' || c == '\t' || c == '\r') {
      out += c == '\n' ? "\\n" : c == '\t' ? "\\t" : "\\r";
      text.remove_prefix(1);
    } else if (length < 2) {  // a control character, or a byte that is no UTF-8
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", c);
      text.remove_prefix(1);
    } else {
      out.append(text.substr(0, length));
      text.remove_prefix(length);
    }
  }
  out.push_back('"');
}

void append_json_number(std::string& out, double value) {
  if (!std::isfinite(value)) {
    out += "null";
    return;
  }
  char digits[32];
  const auto result = std::to_chars(digits, digits + sizeof digits, value);
  out.append(digits, result.ptr);
}

void append_json_count(std::string& out, Count value) {
  if (!fits_int64(value)) {
    // With an exponent, so that a reader takes it for a double.
    char digits[32];
    out.append(digits, std::to_chars(digits, digits + sizeof digits, to_double(value), std::chars_format::scientific).ptr);
    return;
  }
  char digits[24];
  const auto result = std::to_chars(digits, digits + sizeof digits, static_cast<std::int64_t>(value));
  out.append(digits, result.ptr);
}

void JsonWriter::separate() {
  if (!first_) {
    out_ += break_line_ ? ",\n" : ", ";
  } else if (break_line_) {
    out_ += '\n';
  }
  first_ = false;
  break_line_ = false;
}

void JsonWriter::name(std::string_view key) {
  separate();
  out_ += '"';
  out_ += key;  // keys are ours: plain ASCII
  out_ += "\": ";
}

void JsonWriter::begin(char bracket) {
  out_ += bracket;
  first_ = true;
}

void JsonWriter::end(char bracket) {
  if (break_line_) out_ += '\n';
  out_ += bracket;
  first_ = false;
  break_line_ = false;
}

}  // namespace rooftile
