#include "report/json_writer.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "report/utf8.h"

namespace rooftile {
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

void JsonWriter::tile_field(std::string_view key, int rows, int cols) {
  name(key);
  out_ += '"';
  append_json_count(out_, rows);
  out_ += 'x';
  append_json_count(out_, cols);
  out_ += '"';
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
