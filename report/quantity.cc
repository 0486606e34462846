#include "report/quantity.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "report/utf8.h"

namespace rooftile {
namespace {

// Fixed notation with `decimals` digits, zeros at the end dropped.
std::string trimmed(double value, int decimals) {
  std::string text = fmt::format("{:.{}f}", value, decimals);
  if (text.find('.') != std::string::npos) {
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') text.pop_back();
  }
  return text == "-0" ? "0" : text;
}

// The power of 1000 at which three significant digits of the value lie in [1, 1000): -2 for microseconds, 3 for giga.
int thousands_of(double value) {
  if (value == 0 || !std::isfinite(value)) return 0;
  const double magnitude = std::abs(value);
  int power = static_cast<int>(std::floor(std::log10(magnitude) / 3));
  if (magnitude / std::pow(1000.0, power) >= 999.5) ++power;  // 999.6 rounds up to the next prefix
  return power;
}

}  // namespace

std::string significant(double value) {
  if (!std::isfinite(value)) return "-";
  const double magnitude = std::abs(value);
  if (magnitude >= 1e15) return fmt::format("{:.2e}", value);
  if (magnitude == 0) return "0";
  const int digits_before = static_cast<int>(std::floor(std::log10(magnitude))) + 1;
  return trimmed(value, std::min(std::max(3 - digits_before, 0), 12));
}

std::string human(double value, std::string_view unit) {
  static constexpr std::array<std::string_view, 12> kPrefixes = {"n", "µ", "m", "", "k", "M", "G", "T", "P", "E", "Z", "Y"};
  if (!std::isfinite(value)) return fmt::format("- {}", unit);
  const int power = std::min(std::max(thousands_of(value), -3), 8);
  if (unit == "s" && power > 0) return fmt::format("{} s", value < 1e6 ? significant(value) : fmt::format("{:.3g}", value));  // nobody says kiloseconds
  return fmt::format("{} {}{}", significant(value / std::pow(1000.0, power)), kPrefixes[static_cast<std::size_t>(power + 3)], unit);
}

std::string human_count(double value) {
  if (std::abs(value) >= 999.5e12) return fmt::format("{:.3g}", value);
  const int power = std::max(thousands_of(value), 0);
  static constexpr std::array<std::string_view, 5> kSuffixes = {"", " k", " M", " B", " T"};
  return significant(value / std::pow(1000.0, power)) + std::string(kSuffixes[static_cast<std::size_t>(power)]);
}

std::string grouped(std::int64_t value) {
  std::string text = fmt::format("{}", value);
  for (int place = static_cast<int>(text.size()) - 3; place > (value < 0 ? 1 : 0); place -= 3) text.insert(static_cast<std::size_t>(place), ",");
  return text;
}

std::string rounded(double value) { return std::isfinite(value) && std::abs(value) < 9e18 ? grouped(std::llround(value)) : significant(value); }

std::string percent(double ratio) {
  const double value = ratio * 100;
  if (!std::isfinite(value)) return "-";
  if (value == 0) return "0 %";
  if (value > 0 && value < 0.05) return "<0.1 %";
  return trimmed(value, value < 99.95 ? 1 : 0) + " %";
}

std::size_t display_width(std::string_view text) {
  std::size_t width = 0;
  for (std::size_t i = 0; i < text.size();) {
    if (text[i] == '\x1b') {
      const std::size_t end = text.find('m', i);
      i = end == std::string_view::npos ? text.size() : end + 1;
      continue;
    }
    const std::size_t length = utf8_length(text.substr(i));
    i += length == 0 ? 1 : length;
    ++width;
  }
  return width;
}

std::string printable(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const auto c = static_cast<unsigned char>(text[0]);
    // U+0080 to U+009F are control characters too: some terminals obey them.
    const bool control = c < 0x20 || c == 0x7F || (length == 2 && c == 0xC2 && static_cast<unsigned char>(text[1]) < 0xA0);
    if (length == 0 || control) {
      fmt::format_to(std::back_inserter(out), "\\x{:02x}", c);
      text.remove_prefix(1);
    } else {
      out.append(text.substr(0, length));
      text.remove_prefix(length);
    }
  }
  return out;
}

}  // namespace rooftile
