#include "report/text_table.h"

#include <algorithm>

#include "report/quantity.h"
#include "report/utf8.h"

namespace rooftile {
namespace {

// The first `width` columns of a text, the last one a mark that something is missing.
std::string cut(const std::string& text, std::size_t width) {
  if (display_width(text) <= width) return text;
  std::string out;
  std::size_t used = 0;
  for (std::size_t i = 0; i < text.size() && used + 1 < width;) {
    const std::size_t length = std::max<std::size_t>(utf8_length(std::string_view(text).substr(i)), 1);
    out.append(text, i, length);
    i += length;
    ++used;
  }
  return out + "…";
}

std::string padded(const std::string& text, std::size_t width, Align align) {
  const std::size_t used = display_width(text);
  const std::string blanks(width > used ? width - used : 0, ' ');
  return align == Align::left ? text + blanks : blanks + text;
}

}  // namespace

std::string tinted(std::string_view text, Tint tint, bool color) {
  if (!color || tint == Tint::none) return std::string(text);
  const char* code = "";
  switch (tint) {
    case Tint::none:
      break;
    case Tint::bold:
      code = "1";
      break;
    case Tint::dim:
      code = "2";
      break;
    case Tint::red:
      code = "31";
      break;
    case Tint::yellow:
      code = "33";
      break;
    case Tint::green:
      code = "32";
      break;
  }
  return "\x1b[" + std::string(code) + "m" + std::string(text) + "\x1b[0m";
}

TextTable::Layout TextTable::layout(std::size_t width, std::string_view indent) const {
  Layout layout;
  std::vector<std::size_t>& widths = layout.widths;
  for (std::size_t c = 0; c < columns.size(); ++c) {
    std::size_t widest = display_width(columns[c].title);
    for (const auto& row : rows) widest = std::max(widest, display_width(row[c].text));
    widths.push_back(widest);
  }
  std::vector<bool>& shown = layout.shown;
  shown.assign(columns.size(), true);
  const auto total = [&] {
    std::size_t sum = indent.size();
    for (std::size_t c = 0; c < columns.size(); ++c) sum += shown[c] ? widths[c] + layout.gap : 0;
    return sum - layout.gap;
  };
  // Gaps are narrowed first, then cells are cut, then columns are dropped; each only as far as needed.
  if (total() > width) layout.gap = 1;
  for (std::size_t c = 0; c < columns.size() && total() > width; ++c) {
    if (columns[c].shrink_to == 0 || widths[c] <= columns[c].shrink_to) continue;
    widths[c] = std::max(columns[c].shrink_to, widths[c] - std::min(widths[c], total() - width));
  }
  while (total() > width) {
    std::size_t victim = columns.size();
    for (std::size_t c = 0; c < columns.size(); ++c) {
      if (shown[c] && columns[c].drop > 0 && (victim == columns.size() || columns[c].drop > columns[victim].drop)) victim = c;
    }
    if (victim == columns.size()) break;
    shown[victim] = false;
  }
  return layout;
}

bool TextTable::shows(std::string_view title, std::size_t width, std::string_view indent) const {
  const Layout placed = layout(width, indent);
  for (std::size_t c = 0; c < columns.size(); ++c) {
    if (columns[c].title == title) return placed.shown[c];
  }
  return false;
}

std::string TextTable::render(std::size_t width, bool color, std::string_view indent) const {
  const Layout placed = layout(width, indent);
  const std::vector<std::size_t>& widths = placed.widths;
  const std::vector<bool>& shown = placed.shown;
  const std::size_t gap = placed.gap;
  std::string out;
  const auto line = [&](const auto& cell_of) {
    std::string text(indent);
    for (std::size_t c = 0; c < columns.size(); ++c) {
      if (!shown[c]) continue;
      if (text.size() > indent.size()) text.append(gap, ' ');
      text += cell_of(c);
    }
    text.erase(text.find_last_not_of(' ') + 1);
    out += text + "\n";
  };
  line([&](std::size_t c) { return tinted(padded(columns[c].title, widths[c], columns[c].align), Tint::bold, color); });
  for (const auto& row : rows) {
    line([&](std::size_t c) { return tinted(padded(cut(row[c].text, widths[c]), widths[c], columns[c].align), row[c].tint, color); });
  }
  return out;
}

std::string TextTable::render_markdown() const {
  const auto escaped = [](const std::string& text) {
    std::string out;
    for (const char c : text) {
      if (c == '|') out += '\\';
      out += c;
    }
    return out;
  };
  std::string out = "|";
  for (const Column& column : columns) out += " " + escaped(column.title) + " |";
  out += "\n|";
  for (const Column& column : columns) out += column.align == Align::left ? " --- |" : " ---: |";
  out += "\n";
  for (const auto& row : rows) {
    out += "|";
    for (const Cell& cell : row) out += " " + escaped(cell.text) + " |";
    out += "\n";
  }
  return out;
}

}  // namespace rooftile
