#include "validate/session.h"

#include <chrono>

namespace rooftile {

MeasuringResult measure_all(Runner& runner, std::span<const KernelCall> calls, const MeasuringOptions& options, std::set<std::string> done) {
  const auto now = [&] {
    if (options.now_s) return options.now_s();
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  };
  MeasuringResult result;
  const double start = now();
  int failures = 0;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    if (options.interrupted && options.interrupted()) {
      result.end = EndOf::interrupt;
      break;
    }
    if (options.budget_s > 0 && now() - start >= options.budget_s) {
      result.end = EndOf::budget;
      break;
    }
    if (!done.insert(measurement_key(calls[i], options.run.clocks, options.run.protocol())).second) {
      ++result.skipped;
      continue;
    }
    Measurement m = runner.measure(calls[i], options.run);
    failures = m.ok() ? 0 : failures + 1;
    if (options.sink) options.sink(m);
    if (options.progress) options.progress(i + 1, calls.size(), m);
    const bool lost = m.device_lost;
    result.measurements.push_back(std::move(m));
    if (lost || (options.failures_in_a_row > 0 && failures >= options.failures_in_a_row)) {
      result.end = EndOf::device;
      break;
    }
  }
  return result;
}

std::set<std::string> keys_of(const MeasurementTable& table) {
  std::set<std::string> keys;
  for (const MeasurementRow& row : table.rows) {
    const MeasuredCall read = measured_call(table, row);
    if (!read.call || (read.measured_s <= 0 && table.field(row, "reason").empty())) continue;
    const std::string_view method = table.field(row, "method");
    const bool warm = method.size() >= 4 && method.substr(method.size() - 4) == "warm";
    keys.insert(measurement_key(*read.call, read.clocks, warm ? "warm" : "cold"));
  }
  return keys;
}

}  // namespace rooftile
