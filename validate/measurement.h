// One measured kernel as a value, and how it is written to a measurement CSV (validate/measurements.h reads it).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "estimator/timing/kernel_call.h"
#include "estimator/timing/kernel_time.h"

namespace rooftile {

struct Measurement {
  KernelCall call;
  double measured_s = 0;  // one call; 0: there is none, and `reason` says why
  double spread_s = 0;    // half the distance between the quartiles of the replays
  std::string reason;
  ClockState clocks = ClockState::burst;
  double clock_hz = 0, power_w = 0;  // 0: unknown
  std::string method, library, driver, gpu, date, source;
  std::string kernel, grid, algorithm;  // what ran
  double error = -1;                    // against the reference in double; negative: not compared
  int replays = 0;
  bool device_lost = false;  // the runner can measure nothing more; not written

  bool ok() const { return reason.empty() && measured_s > 0; }
};

// "op,dtype,shape,measured_us,source,method,clocks,impl,library,driver,gpu,clock_mhz,power_w,spread_us,date,replays,error,kernel,grid,algorithm,reason\n"
std::string measurement_header();

// One line with a newline at its end. A measurement without a time has an empty measured_us and its reason in the last column.
std::string measurement_line(const Measurement& measurement);

// What tells measurements of a campaign apart: op, dtype, shape, impl, clocks and whether operands were kept out of L2. The same call under the same protocol gives the same key.
std::string measurement_key(const KernelCall& call, ClockState clocks, std::string_view protocol);

}  // namespace rooftile
