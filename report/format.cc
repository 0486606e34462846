#include "report/render.h"

namespace rooftile {
namespace {

constexpr std::pair<std::string_view, Format> kFormats[] = {{"table", Format::table}, {"json", Format::json}, {"jsonl", Format::jsonl}, {"csv", Format::csv},
                                                            {"md", Format::md},       {"html", Format::html}, {"trace", Format::trace}};

}  // namespace

std::optional<Format> parse_format(std::string_view name) {
  for (const auto& [known, format] : kFormats) {
    if (known == name) return format;
  }
  return std::nullopt;
}

std::optional<Format> format_of_file(std::string_view file) {
  const std::size_t point = file.rfind('.');
  if (point == std::string_view::npos) return std::nullopt;
  std::string ending(file.substr(point + 1));
  for (char& letter : ending) letter = letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
  if (ending == "txt") return Format::table;
  return ending == "table" ? std::nullopt : parse_format(ending);
}

}  // namespace rooftile
