#include "estimator/core/quantity.h"

#include <array>
#include <charconv>
#include <cmath>
#include <optional>

namespace rooftile {
namespace {

struct Symbol {
  std::string_view name;
  double scale;
  std::string_view base;
  bool prefixed;  // takes decimal prefixes
};

constexpr std::array kSymbols = {
    Symbol{"B", 1, "B", true},
    Symbol{"bit", 0.125, "B", true},
    Symbol{"FLOP", 1, "FLOP", true},
    Symbol{"Hz", 1, "Hz", true},
    Symbol{"s", 1, "s", true},
    Symbol{"W", 1, "W", true},
    Symbol{"J", 1, "J", true},
    Symbol{"element", 1, "element", true},
    Symbol{"clock", 1, "clock", false},
    Symbol{"SM", 1, "SM", false},
    Symbol{"CTA", 1, "CTA", false},
    Symbol{"thread", 1, "thread", false},
    Symbol{"warp", 1, "warp", false},
    Symbol{"register", 1, "register", false},
    Symbol{"row", 1, "row", false},
    Symbol{"tile", 1, "tile", false},
    Symbol{"token", 1, "token", false},
    Symbol{"kernel", 1, "kernel", false},
    Symbol{"rank", 1, "rank", false},
    Symbol{"count", 1, "count", false},
    Symbol{"iteration", 1, "iteration", false},
    Symbol{"%", 0.01, "1", false},
    Symbol{"1", 1, "1", false},
};

struct Prefix {
  std::string_view name;
  double scale;
};

constexpr std::array kDecimal = {Prefix{"k", 1e3}, Prefix{"M", 1e6}, Prefix{"G", 1e9}, Prefix{"T", 1e12}, Prefix{"P", 1e15}, Prefix{"E", 1e18}};
constexpr std::array kSmall = {Prefix{"m", 1e-3}, Prefix{"u", 1e-6}, Prefix{"n", 1e-9}};
constexpr std::array kBinary = {Prefix{"Ki", 1024.0}, Prefix{"Mi", 1048576.0}, Prefix{"Gi", 1073741824.0}, Prefix{"Ti", 1099511627776.0}};

bool ends_with(std::string_view text, std::string_view end) { return text.size() >= end.size() && text.substr(text.size() - end.size()) == end; }

std::optional<UnitScale> parse_symbol(std::string_view text) {
  for (const Symbol& symbol : kSymbols) {
    if (!ends_with(text, symbol.name)) continue;
    const std::string_view prefix = text.substr(0, text.size() - symbol.name.size());
    const UnitScale plain{symbol.scale, std::string(symbol.base)};
    if (prefix.empty()) return plain;
    if (!symbol.prefixed) continue;
    for (const Prefix& decimal : kDecimal) {
      if (decimal.name == prefix) return UnitScale{symbol.scale * decimal.scale, plain.base};
    }
    if (symbol.name == "s") {
      for (const Prefix& small : kSmall) {
        if (small.name == prefix) return UnitScale{small.scale, plain.base};
      }
      if (prefix == "\xC2\xB5" || prefix == "\xCE\xBC") return UnitScale{1e-6, plain.base};  // the micro sign and the Greek letter
    }
    if (symbol.name == "B") {
      for (const Prefix& binary : kBinary) {
        if (binary.name == prefix) return UnitScale{binary.scale, plain.base};
      }
    }
  }
  return std::nullopt;
}

// What a refused symbol was probably meant to be.
std::string hint_for(std::string_view text) {
  if (ends_with(text, "KB")) return "write kB for 1000 bytes or KiB for 1024";
  if (text.size() >= 2 && text.size() <= 3 && text.back() == 'b') return "write B for bytes, or bit: Gbit/s is an eighth of GB/s";
  if (ends_with(text, "FLOPS") || ends_with(text, "FLOPs") || ends_with(text, "flops") || ends_with(text, "Flops"))
    return "write FLOP for a count and FLOP/s for a rate, e.g. TFLOP/s";
  if (ends_with(text, "hz") || ends_with(text, "HZ")) return "write Hz, e.g. MHz";
  std::string singular(text);
  if (singular.size() > 2 && singular.back() == 's') {
    singular.pop_back();
    if (parse_symbol(singular)) return "write '" + singular + "', units have no plural";
  }
  if (text == "sec" || text == "seconds" || text == "S") return "write s";
  return "known units: B bit FLOP Hz s W J element clock SM CTA thread warp register row tile token kernel rank count iteration % 1, with k M G T P E, Ki Mi Gi Ti for B, n u m "
         "for s";
}

}  // namespace

Result<UnitScale> parse_unit(std::string_view unit) {
  if (unit.empty()) return UnitScale{1, "1"};
  if (unit.size() > 64) return fail(ErrorCode::invalid, "a unit of over 64 letters");
  UnitScale total{1, ""};
  bool denominator = false;
  for (std::size_t begin = 0; begin <= unit.size();) {
    const std::size_t slash = std::min(unit.find('/', begin), unit.size());
    const std::string_view part = unit.substr(begin, slash - begin);
    const std::optional<UnitScale> symbol = parse_symbol(part);
    if (!symbol) return fail(ErrorCode::invalid, "unknown unit '" + std::string(part) + "'" + (part == unit ? "" : " in '" + std::string(unit) + "'"), {}, hint_for(part));
    total.scale = denominator ? total.scale / symbol->scale : total.scale * symbol->scale;
    if (denominator) {
      total.base += "/" + symbol->base;
    } else {
      total.base = symbol->base;
    }
    denominator = true;
    begin = slash + 1;
  }
  return total;
}

Result<Quantity> parse_quantity(std::string_view text) {
  const auto is_blank = [](char c) { return c == ' ' || c == '\t'; };
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  std::string number;
  std::size_t end = 0;
  for (; end < text.size() && end < 64; ++end) {
    const char c = text[end];
    const bool digit = c >= '0' && c <= '9';
    const bool exponent = (c == 'e' || c == 'E') && !number.empty() && end + 1 < text.size() &&
                          ((text[end + 1] >= '0' && text[end + 1] <= '9') ||
                           ((text[end + 1] == '-' || text[end + 1] == '+') && end + 2 < text.size() && text[end + 2] >= '0' && text[end + 2] <= '9'));
    const bool sign = (c == '-' || c == '+') && (number.empty() || number.back() == 'e' || number.back() == 'E');
    const bool group = (c == '_' || c == ',') && !number.empty() && end + 1 < text.size() && text[end + 1] >= '0' && text[end + 1] <= '9';
    if (group) continue;
    if (!digit && !exponent && !sign && c != '.') break;
    if (!(c == '+' && number.empty())) number.push_back(c);
  }
  double value = 0;
  const auto parsed = std::from_chars(number.data(), number.data() + number.size(), value);
  const std::string quoted = "'" + std::string(text.substr(0, 80)) + "'";
  if (number.empty() || parsed.ec == std::errc::invalid_argument || parsed.ptr != number.data() + number.size()) {
    return fail(ErrorCode::invalid, quoted + " does not begin with a number", {}, "write a number and a unit, e.g. 4.8 TB/s");
  }
  if (parsed.ec == std::errc::result_out_of_range || !std::isfinite(value)) return fail(ErrorCode::invalid, quoted + " is out of range");
  std::string_view unit = text.substr(end);
  while (!unit.empty() && is_blank(unit.front())) unit.remove_prefix(1);
  Result<UnitScale> scale = parse_unit(unit);
  if (!scale) return tl::unexpected<Error>(scale.error());
  if (!std::isfinite(value * scale->scale)) return fail(ErrorCode::invalid, quoted + " is out of range");
  return Quantity{value * scale->scale, scale->base};
}

Result<double> parse_quantity_as(std::string_view text, std::string_view base) {
  Result<Quantity> quantity = parse_quantity(text);
  if (!quantity) return tl::unexpected<Error>(quantity.error());
  if (quantity->unit != base) return fail(ErrorCode::invalid, "'" + std::string(text) + "' is in " + quantity->unit + ", expected " + std::string(base));
  return quantity->value;
}

std::string print_quantity(const Quantity& quantity) {
  const auto spell = [&](double scale, const std::string& unit) {
    std::array<char, 64> digits{};
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), quantity.value / scale);
    std::string text(digits.data(), end.ptr);
    if (!unit.empty() && unit != "1") text += " " + unit;
    return text;
  };
  const auto reads_back = [&](const std::string& text) {
    const Result<Quantity> back = parse_quantity(text);
    return back && back->value == quantity.value && back->unit == quantity.unit;
  };
  const std::string base = spell(1, quantity.unit);
  if (quantity.value == 0 || !std::isfinite(quantity.value)) return base;
  const double magnitude = std::fabs(quantity.value);
  if (quantity.unit == "B" && magnitude >= 1024 && std::fmod(magnitude, 1024) == 0 && std::fmod(magnitude, 1e6) != 0) {
    for (auto binary = kBinary.rbegin(); binary != kBinary.rend(); ++binary) {
      if (std::fmod(magnitude, binary->scale) == 0) return spell(binary->scale, std::string(binary->name) + "B");
    }
  }
  const std::size_t slash = std::min(quantity.unit.find('/'), quantity.unit.size());
  const std::string_view head = std::string_view(quantity.unit).substr(0, slash);
  bool prefixed = false;
  for (const Symbol& symbol : kSymbols) prefixed = prefixed || (symbol.name == head && symbol.prefixed);
  if (!prefixed) return base;
  // Sizes per clock ("4096 FLOP/clock/SM") are known by their plain number.
  if (quantity.unit.find("/clock") != std::string::npos) return base;
  const auto try_prefix = [&](const Prefix& prefix) { return spell(prefix.scale, std::string(prefix.name) + quantity.unit); };
  if (magnitude < 1 && head == "s") {
    for (const Prefix& small : kSmall) {
      if (magnitude >= small.scale * (1 - 1e-12)) {
        const std::string text = try_prefix(small);
        return reads_back(text) ? text : base;
      }
    }
    return base;
  }
  for (auto decimal = kDecimal.rbegin(); decimal != kDecimal.rend(); ++decimal) {
    if (magnitude < decimal->scale) continue;
    const std::string text = try_prefix(*decimal);
    return reads_back(text) ? text : base;
  }
  return base;
}

}  // namespace rooftile
