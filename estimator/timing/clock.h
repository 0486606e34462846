// The clock that a kernel of some length runs at.
#pragma once

#include <algorithm>
#include <cmath>

#include "estimator/timing/constants.h"

namespace rooftile {

// Compute throughput relative to burst. Power limiters act over milliseconds: a short kernel that runs alone sees burst clocks, a long one (or a step made of many) the sustained
// ones. automatic goes from one to the other with the logarithm of the kernel's own length; a caller that times a whole step passes sustained.
// With sustained_fraction 0.9, burst_s 1e-3, sustained_s 1e-1: 1 at 1 ms, 0.95 at 10 ms, 0.9 from 100 ms on.
inline double clock_fraction(double sustained_fraction, const Constants& constants, ClockState clocks, double burst_time_s) {
  switch (clocks) {
    case ClockState::burst:
      return 1;
    case ClockState::sustained:
      return sustained_fraction;
    case ClockState::automatic:
      break;
  }
  if (constants.sustained_s <= constants.burst_s || burst_time_s <= constants.burst_s) return 1;
  const double position = std::log(burst_time_s / constants.burst_s) / std::log(constants.sustained_s / constants.burst_s);
  return 1 - (1 - sustained_fraction) * std::min(1.0, position);
}
inline double clock_fraction(const Constants& constants, ClockState clocks, double burst_time_s) {
  return clock_fraction(constants.sustained_fraction, constants, clocks, burst_time_s);
}

}  // namespace rooftile
