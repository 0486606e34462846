#include "validate/measurement.h"

#include <fmt/format.h>

namespace rooftile {

namespace {

// Quoted when it has to be; line breaks become blanks, so that one measurement is one line.
std::string field(std::string text) {
  for (char& c : text)
    if (c == '\n' || c == '\r') c = ' ';
  if (text.find_first_of(",\"") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

std::string number(double value, int digits) { return value > 0 ? fmt::format("{:.{}f}", value, digits) : std::string(); }

// Enough digits for three parts in a million of any time from a microsecond on.
std::string microseconds(double seconds) { return seconds > 0 ? fmt::format("{:.6g}", seconds * 1e6) : std::string(); }

}  // namespace

std::string measurement_header() {
  return "op,dtype,shape,measured_us,source,method,clocks,impl,library,driver,gpu,clock_mhz,power_w,spread_us,date,replays,error,kernel,grid,algorithm,reason\n";
}

std::string measurement_line(const Measurement& m) {
  return fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}\n", name_of(m.call.kernel), name_of(m.call.dtype), field(print_shape(m.call)),
                     m.ok() ? microseconds(m.measured_s) : "", field(m.source), field(m.method), m.clocks == ClockState::sustained ? "sustained" : "burst", name_of(m.call.impl),
                     field(m.library), field(m.driver), field(m.gpu), number(m.clock_hz * 1e-6, 0), number(m.power_w, 0), m.ok() ? microseconds(m.spread_s) : "", m.date,
                     m.replays > 0 ? fmt::format("{}", m.replays) : "", m.error >= 0 ? fmt::format("{:.2e}", m.error) : "", field(m.kernel), field(m.grid), field(m.algorithm),
                     field(m.reason));
}

std::string measurement_key(const KernelCall& call, ClockState clocks, std::string_view protocol) {
  return fmt::format("{}|{}|{}|{}|{}|{}", name_of(call.kernel), name_of(call.dtype), print_shape(call), name_of(call.impl), clocks == ClockState::sustained ? "sustained" : "burst",
                     protocol);
}

}  // namespace rooftile
