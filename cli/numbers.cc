#include "cli/numbers.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <optional>

#include "estimator/core/count.h"

namespace rooftile {
namespace {

constexpr std::size_t kMostValues = 1'000'000;

std::optional<std::int64_t> whole(std::string_view text) {
  std::int64_t value = 0;
  const char* end = text.data() + text.size();
  if (const auto [next, error] = std::from_chars(text.data(), end, value); error == std::errc() && next == end) return value >= 0 ? std::optional(value) : std::nullopt;
  double scale = 1;
  if (!text.empty()) {
    switch (text.back()) {
      case 'k':
        scale = 1e3;
        break;
      case 'M':
        scale = 1e6;
        break;
      case 'G':
      case 'B':
        scale = 1e9;
        break;
      case 'T':
        scale = 1e12;
        break;
      default:
        break;
    }
    if (scale > 1) text.remove_suffix(1);
  }
  // A digit first: from_chars would also take "inf", "nan" and a sign.
  if (text.empty() || text[0] < '0' || text[0] > '9') return std::nullopt;
  double number = 0;
  end = text.data() + text.size();
  const auto [next, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || next != end) return std::nullopt;
  number *= scale;
  if (number >= 9223372036854775808.0 || number != std::floor(number)) return std::nullopt;
  return static_cast<std::int64_t>(number);
}

// "first-last+step" or "first-last*factor" or "first-last" (step 1).
struct Range {
  std::int64_t first = 0, last = 0, step = 1;
  bool multiply = false;
};

std::optional<Range> range_of(std::string_view text) {
  const std::size_t dash = text.find('-', 1);
  if (dash == std::string_view::npos || (text[dash - 1] == 'e' || text[dash - 1] == 'E')) return std::nullopt;
  const std::string_view rest = text.substr(dash + 1);
  Range range;
  // An exponent may hold a plus: "1e3-1e+4" has no step. A step's plus follows a digit.
  std::size_t mark = rest.find('*');
  if (mark == std::string_view::npos) {
    mark = rest.find('+', 1);
    while (mark != std::string_view::npos && (rest[mark - 1] == 'e' || rest[mark - 1] == 'E')) mark = rest.find('+', mark + 1);
  }
  const auto first = whole(text.substr(0, dash)), last = whole(rest.substr(0, mark));
  if (!first || !last) return std::nullopt;
  range.first = *first;
  range.last = *last;
  if (mark != std::string_view::npos) {
    const auto step = whole(rest.substr(mark + 1));
    if (!step) return std::nullopt;
    range.step = *step;
    range.multiply = rest[mark] == '*';
  }
  return range;
}

}  // namespace

Result<std::int64_t> parse_whole(std::string_view text, std::string_view option) {
  if (const auto value = whole(text)) return *value;
  return fail(ErrorCode::usage, fmt::format("'{}' is not a whole number from 0 to 2^63 - 1", text), std::string(option),
              "write 4096, 300e9 or, for several runs, 1,2,4 or 1024-8192+1024 or 1-64*2");
}

Result<std::vector<std::string>> split_list(std::string_view text, std::string_view option) {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i <= text.size();) {
    const std::size_t end = std::min(text.find(',', i), text.size());
    parts.emplace_back(text.substr(i, end - i));
    i = end + 1;
    if (parts.back().empty()) return fail(ErrorCode::usage, fmt::format("'{}' has an empty value", text), std::string(option));
  }
  return parts;
}

Result<std::vector<std::string>> expand_range(std::string_view text, std::string_view option) {
  std::vector<std::string> values;
  const auto too_many = [&] { return fail(ErrorCode::usage, fmt::format("'{}' has more than {} values", text, kMostValues), std::string(option)); };
  const auto parts = split_list(text, option);
  if (!parts) return parts;
  for (const std::string& part : *parts) {
    const auto range = range_of(part);
    if (!range) {
      values.push_back(part);
      if (values.size() > kMostValues) return too_many();
      continue;
    }
    if (range->first > range->last) return fail(ErrorCode::usage, fmt::format("the range '{}' ends before it begins", part), std::string(option));
    if (range->multiply ? range->step < 2 || range->first == 0 : range->step == 0)
      return fail(ErrorCode::usage, fmt::format("the range '{}' never ends", part), std::string(option),
                  "steps are +1 or more, factors *2 or more, and a factor needs a first value above 0");
    for (Count value = range->first; value <= range->last; value = range->multiply ? value * range->step : value + range->step) {
      values.push_back(to_string(value));
      if (values.size() > kMostValues) return too_many();
    }
  }
  return values;
}

}  // namespace rooftile
