// The mean SM clock between two points of a stream, from the counters of the SMs themselves: cycles passed over nanoseconds passed.
#pragma once

#include "kernels/device.h"

namespace rooftile::kernels {

constexpr int kClockSlots = 1024;  // SM ids are below this
struct ClockSample {
  long long cycles;
  unsigned long long nanoseconds;
};

// Writes one sample for each SM that runs a block; `samples` has kClockSlots entries.
void sample_clocks(cudaStream_t stream, int sms, ClockSample* samples);

// Mean clock in Hz over the SMs that are in both samples; 0: none was.
double clock_between(const ClockSample* first, const ClockSample* second);

}  // namespace rooftile::kernels
