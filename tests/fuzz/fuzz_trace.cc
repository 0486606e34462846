// Any bytes as a profiler trace: read, mapped to kernel calls, and timed. Nothing but values and errors may come out.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "estimator/timing/torch_kernels.h"
#include "frontends/trace/trace.h"
#include "validate/fit_trace.h"
#include "validate/trace_rows.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  rooftile::TraceLimits limits;
  limits.bytes = 1 << 22;  // a packed input of some kilobytes may hold gigabytes
  const auto trace = rooftile::read_trace_bytes(std::string_view(reinterpret_cast<const char*>(data), size), "fuzz.json", limits);
  if (!trace) return 0;
  const rooftile::TraceRows rows = rooftile::rows_of_trace(*trace);
  for (const rooftile::Measurement& m : rows.rows) {
    // A call that comes out of a trace can be printed and read back, and has work that is finite.
    const std::string shape = rooftile::print_shape(m.call);
    if (!rooftile::parse_kernel(rooftile::name_of(m.call.kernel), rooftile::name_of(m.call.dtype), shape, rooftile::name_of(m.call.impl))) std::abort();
    if (!std::isfinite(rooftile::to_double(rooftile::work_of(m.call).bytes()))) std::abort();
    (void)rooftile::measurement_line(m);
    (void)rooftile::trace_class(m.call);
  }
  rooftile::Machine machine;
  machine.device.id = "fuzz";
  machine.device.sms = 100;
  machine.device.boost_clock_hz = 1e9;
  machine.device.memory_bandwidth = 1e12;
  machine.device.l2_bytes = 1e7;
  (void)rooftile::fit_trace(machine, rows.rows, "2026-01-01");
  return 0;
}
