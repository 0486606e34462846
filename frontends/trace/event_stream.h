// The events of a Chrome trace, one at a time, out of JSON that is never held as a whole.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "frontends/trace/byte_source.h"
#include "frontends/trace/trace.h"

namespace rooftile {

// What is kept of an event; the next event takes its place.
struct TraceEvent {
  std::string phase, category, name;
  double timestamp_us = 0, duration_us = -1;  // negative: none
  std::uint64_t external_id = 0, correlation = 0;
  std::int64_t stream = 0, device = 0;
  std::array<std::int32_t, 3> grid = {0, 0, 0}, block = {0, 0, 0};
  TraceOperator op;  // arguments; its name is left empty
};

// Calls `each` for every event of the file; where it returns an error, reading ends with it. `devices` gets the file's deviceProperties. Errors (invalid): see read_trace.
struct EventStream {
  const std::string& file;
  const TraceLimits& limits;
  std::vector<TraceDevice>* devices = nullptr;
  std::function<Result<void>(const TraceEvent&)> each;

  Result<void> read(ByteSource& source);
};

}  // namespace rooftile
