#include "validate/session.h"

#include <algorithm>
#include <chrono>

namespace rooftile {

namespace {

// What one rank would do next, and what all of them do.
struct Next {
  EndOf end = EndOf::list;
  bool skip = false;
};

// Ranks say how the list ends for them (later in EndOf wins), whether they would skip the call (rank 0 knows) and which call it is (they must not differ).
Result<Next> agree(Runner& runner, const Next& mine, const std::string& key) {
  const std::string text = std::string(1, static_cast<char>('0' + static_cast<int>(mine.end))) + (mine.skip ? "s" : "m") + key;
  const auto all = runner.exchange(text);
  if (!all) return tl::unexpected<Error>(all.error());
  Next next;
  for (const std::string& other : *all) {
    if (other.size() < 2 || other.substr(2) != key) return fail(ErrorCode::usage, "ranks measure different lists", {}, "start every rank with the same command");
    next.end = std::max(next.end, static_cast<EndOf>(std::clamp(other[0] - '0', 0, static_cast<int>(EndOf::device))));
  }
  next.skip = all->front()[1] == 's';
  return next;
}

}  // namespace

MeasuringResult measure_all(Runner& runner, std::span<const KernelCall> calls, const MeasuringOptions& options, std::set<std::string> done) {
  const auto now = [&] {
    if (options.now_s) return options.now_s();
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  };
  const bool together = runner.ranks() > 1 && std::any_of(calls.begin(), calls.end(), [](const KernelCall& call) { return call.kernel == KernelClass::collective; });
  MeasuringResult result;
  const double start = now();
  int failures = 0;
  bool lost = false;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const std::string key = measurement_key(calls[i], options.run.clocks, options.run.protocol());
    Next next;
    if (lost)
      next.end = EndOf::device;
    else if (options.interrupted && options.interrupted())
      next.end = EndOf::interrupt;
    else if (options.budget_s > 0 && now() - start >= options.budget_s)
      next.end = EndOf::budget;
    else
      next.skip = !done.insert(key).second;
    if (together) {
      const auto agreed = agree(runner, next, key);
      if (!agreed) {
        result.end = EndOf::device;
        result.reason = agreed.error().message;
        return result;
      }
      next = *agreed;
    }
    if (next.end != EndOf::list) {
      result.end = next.end;
      return result;
    }
    if (next.skip) {
      ++result.skipped;
      continue;
    }
    if (options.begin) options.begin(calls[i]);
    Measurement m = runner.measure(calls[i], options.run);
    failures = m.ok() ? 0 : failures + 1;
    if (options.sink) options.sink(m);
    if (options.progress) options.progress(i + 1, calls.size(), m);
    lost = m.device_lost || (options.failures_in_a_row > 0 && failures >= options.failures_in_a_row);
    result.measurements.push_back(std::move(m));
    if (lost && !together) break;
  }
  if (lost) result.end = EndOf::device;
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
