// An aligned table for terminals and for Markdown.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace rooftile {

enum class Align : std::uint8_t { left, right };
enum class Tint : std::uint8_t { none, bold, dim, red, yellow, green };

// Wraps text in the escape sequence of a colour, when colours are on.
std::string tinted(std::string_view text, Tint tint, bool color);

struct Column {
  std::string title;
  Align align = Align::right;
  int drop = 0;               // 0: always shown; else the columns with the highest number go first when the table is too wide
  std::size_t shrink_to = 0;  // 0: never; else the column may be cut to this width before any column is dropped
};

struct Cell {
  std::string text;
  Tint tint = Tint::none;
};

struct TextTable {
  std::vector<Column> columns;
  std::vector<std::vector<Cell>> rows;

  // Lines of at most `width` columns where the table can be made that narrow; titles first, then a rule.
  std::string render(std::size_t width, bool color, std::string_view indent = "  ") const;
  std::string render_markdown() const;
  bool shows(std::string_view title, std::size_t width, std::string_view indent) const;  // whether the column of that title is drawn at this width

 private:
  struct Layout {
    std::vector<std::size_t> widths;
    std::vector<bool> shown;
    std::size_t gap = 2;
  };
  Layout layout(std::size_t width, std::string_view indent) const;
};

}  // namespace rooftile
