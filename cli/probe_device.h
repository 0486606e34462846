// `rooftile devices new --probe`: a device file for the GPU present, from what its driver says, a short measurement, and a shipped device of the same architecture for what
// neither tells.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "estimator/core/result.h"
#include "estimator/hardware/device.h"
#include "validate/runner.h"

namespace rooftile {

// What a short measurement says; 0 or absent: not measured.
struct Ceilings {
  std::map<DType, double> flops;  // fastest large product of each dtype, FLOP/s
  double copy_bandwidth = 0;      // read and write together, B/s
  double sustained_clock_hz = 0;  // SM clock under load
};
Ceilings ceilings_of(std::span<const Measurement> measured);

// Which shipped device tells the rest: same compute capability and the nearest number of SMs, else the highest capability below. Null when there is none.
const Device* nearest_device(const GpuFacts& gpu, std::span<const Device> known);

// The text of the file. Every number says where it is from; rates per clock and SM are those of `like` where the capability is the same, else the measured rate rounded up to a
// power of two (a kernel reaches 60-95 % of it). 132 SMs x 4096 FLOP/clock x 1980 MHz gives a bf16 peak of 1070.5 TFLOP/s.
std::string device_yaml(const std::string& id, const GpuFacts& gpu, const Ceilings& ceilings, const Device& like, const std::string& date);

}  // namespace rooftile
