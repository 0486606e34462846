// Measurement CSV (the format that `validate` and `calibrate` read and write): one kernel call and its measured time a row. Unknown columns pass through.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "estimator/core/result.h"
#include "estimator/timing/kernel_call.h"
#include "estimator/timing/kernel_time.h"

namespace rooftile {

struct MeasurementRow {
  std::vector<std::string> fields;  // as read, one for each column
  std::size_t line = 0;             // in the file, from 1
  std::string status;               // why the row cannot be used at all; else empty
};

struct MeasurementTable {
  std::string file;
  std::vector<std::string> columns;
  std::vector<MeasurementRow> rows;

  std::optional<std::size_t> column(std::string_view name) const;
  std::string_view field(const MeasurementRow& row, std::string_view name) const;  // empty when there is no such column
};

// Splits a CSV: commas, fields in double quotes with "" for a quote, LF or CRLF, blank lines skipped. Errors (invalid, with file:line): no header, one of op, dtype, shape,
// measured_us missing, a column twice, over 1000 columns, over 4 M fields, an open quote. A row with another number of fields is kept with a status that says so.
Result<MeasurementTable> parse_measurements(std::string_view text, const std::string& file);

// What a row says. `status` is "ok" or why the row cannot be used; then `call` is absent.
struct MeasuredCall {
  std::optional<KernelCall> call;
  double measured_s = 0;
  ClockState clocks = ClockState::burst;  // the column `clocks`: burst unless it says sustained
  std::string status = "ok";
};
MeasuredCall measured_call(const MeasurementTable& table, const MeasurementRow& row);

}  // namespace rooftile
