#include "validate/measurements.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <unordered_set>

namespace rooftile {
namespace {

constexpr std::string_view kRequired[] = {"op", "dtype", "shape", "measured_us"};
constexpr std::size_t kMostColumns = 1000, kMostCells = 4'000'000;

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
  std::size_t at = 0, line = 0, cells = 0;
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
      if (fields.size() > kMostColumns) return fail(ErrorCode::invalid, fmt::format("{} columns; at most {} are read", fields.size(), kMostColumns), place);
      std::unordered_set<std::string_view> seen;
      for (const std::string& name : table.columns) {
        if (!seen.insert(name).second) return fail(ErrorCode::invalid, fmt::format("the column '{}' is there twice", name), place);
      }
      continue;
    }
    MeasurementRow row = {std::move(fields), first_line, {}};
    if (row.fields.size() != table.columns.size()) {
      row.status = fmt::format("the row has {} fields, the header {}", row.fields.size(), table.columns.size());
      row.fields.resize(table.columns.size());
    }
    cells += row.fields.size();
    if (cells > kMostCells) return fail(ErrorCode::invalid, fmt::format("over {} fields, the most that are read", kMostCells), place);
    table.rows.push_back(std::move(row));
    fields = {};
  }
  if (table.columns.empty()) return fail(ErrorCode::invalid, "the file is empty", file, "a measurement CSV begins with op,dtype,shape,measured_us");
  return table;
}

MeasuredCall measured_call(const MeasurementTable& table, const MeasurementRow& row) {
  MeasuredCall out;
  if (!row.status.empty()) {
    out.status = row.status;
    return out;
  }
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
