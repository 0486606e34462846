#include "validate/measurements.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace rooftile {
namespace {

constexpr std::string_view kRequired[] = {"op", "dtype", "shape", "measured_us"};

// One record of a CSV from `at` on, which is moved behind it; `line` counts lines. False when a quote stays open.
bool next_record(std::string_view text, std::size_t& at, std::size_t& line, std::vector<std::string>& fields) {
  fields.clear();
  std::string field;
  bool quoted = false;
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (quoted) {
      if (c == '"' && at + 1 < text.size() && text[at + 1] == '"') {
        field += '"';
        ++at;
      } else if (c == '"') {
        quoted = false;
      } else {
        line += c == '\n' ? 1 : 0;
        field += c;
      }
    } else if (c == '"' && field.empty()) {
      quoted = true;
    } else if (c == ',') {
      fields.push_back(std::move(field));
      field.clear();
    } else if (c == '\n') {
      ++at;
      break;
    } else {
      field += c;
    }
  }
  ++line;
  if (!field.empty() && field.back() == '\r') field.pop_back();
  fields.push_back(std::move(field));
  return !quoted;
}

std::optional<double> positive_number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value) || value <= 0) return std::nullopt;
  return value;
}

}  // namespace

std::optional<std::size_t> MeasurementTable::column(std::string_view name) const {
  const auto found = std::find(columns.begin(), columns.end(), name);
  return found == columns.end() ? std::nullopt : std::optional(static_cast<std::size_t>(found - columns.begin()));
}

std::string_view MeasurementTable::field(const MeasurementRow& row, std::string_view name) const {
  const auto index = column(name);
  return index ? std::string_view(row.fields[*index]) : std::string_view();
}

Result<MeasurementTable> parse_measurements(std::string_view text, const std::string& file) {
  MeasurementTable table;
  table.file = file;
  if (text.substr(0, 3) == "\xEF\xBB\xBF") text.remove_prefix(3);  // a byte order mark, as spreadsheets write it
  std::size_t at = 0, line = 0;
  std::vector<std::string> fields;
  while (at < text.size()) {
    const std::size_t first_line = line + 1;
    const std::string place = fmt::format("{}:{}", file, first_line);
    if (!next_record(text, at, line, fields)) return fail(ErrorCode::invalid, "a quote is opened and not closed", place);
    if (fields.size() == 1 && fields[0].empty()) continue;
    if (table.columns.empty()) {
      table.columns = fields;
      for (const std::string_view name : kRequired) {
        if (!table.column(name))
          return fail(ErrorCode::invalid, fmt::format("the header has no column '{}'", name), place, "a measurement CSV begins with op,dtype,shape,measured_us");
      }
      for (std::size_t i = 0; i < fields.size(); ++i) {
        if (table.column(fields[i]) != i) return fail(ErrorCode::invalid, fmt::format("the column '{}' is there twice", fields[i]), place);
      }
      continue;
    }
    if (fields.size() != table.columns.size()) return fail(ErrorCode::invalid, fmt::format("the row has {} fields, the header {}", fields.size(), table.columns.size()), place);
    table.rows.push_back({fields, first_line});
  }
  if (table.columns.empty()) return fail(ErrorCode::invalid, "the file is empty", file, "a measurement CSV begins with op,dtype,shape,measured_us");
  return table;
}

MeasuredCall measured_call(const MeasurementTable& table, const MeasurementRow& row) {
  MeasuredCall out;
  const auto call = parse_kernel(table.field(row, "op"), table.field(row, "dtype"), table.field(row, "shape"), table.field(row, "impl"));
  const std::string_view measured = table.field(row, "measured_us");
  const auto microseconds = positive_number(measured);
  if (microseconds) out.measured_s = *microseconds * 1e-6;
  if (table.field(row, "clocks") == "sustained") out.clocks = ClockState::sustained;
  if (!call) {
    out.status = call.error().message;
    if (!call.error().hint.empty()) out.status += "; " + call.error().hint;
    return out;
  }
  out.call = *call;
  // An empty cell asks for a prediction alone.
  if (!microseconds && !measured.empty()) out.status = fmt::format("measured_us '{}' is no positive number", measured);
  return out;
}

}  // namespace rooftile
