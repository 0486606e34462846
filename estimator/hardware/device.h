// A GPU as plain values in SI base units. Where they come from (data sheet, derived, measured) is kept beside each in `facts`, for `rooftile devices show` and the lint.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "estimator/core/dtype.h"

namespace rooftile {

// One number of a device file with its provenance.
struct Fact {
  std::string key;  // dotted, "memory.bandwidth"
  double value = 0;
  std::string unit;
  std::string source;  // document and section, or a measurement id
  std::string kind;    // spec | derived | measured | fitted | guess
  std::string date;    // checked on, YYYY-MM-DD
  std::string note;
  std::string section = {};  // of its file: "data_sheet", "architecture", "measured", ...
};

enum class Architecture : std::uint8_t { volta, turing, ampere, ada, hopper, blackwell };
std::string_view name_of(Architecture architecture);

// Dense multiply-add rate of one SM for one dtype.
struct MathRate {
  double flop_per_clock_per_sm = 0;  // 0: this dtype has no such unit on this device
  double peak_flops = 0;             // the data sheet's dense peak, FLOP/s
  double clock_hz = 0;               // at which the data sheet states this peak (an H100's vector fp32: the boost clock); 0: the device's peak clock
};

struct Device {
  std::string id, name;
  Architecture architecture = Architecture::hopper;
  std::string file;            // where it was read from
  std::string variant;         // "ga100", "ad102": GPUs of one architecture that differ (ga100 and ga102)
  int compute_capability = 0;  // 90 for 9.0

  int sms = 0;
  double peak_clock_hz = 0;       // at which the data sheet states its peak
  double boost_clock_hz = 0;      // the highest the chip goes to
  double sustained_clock_hz = 0;  // under a long tensor load at the power limit; 0: unknown
  double power_limit_w = 0;

  std::array<MathRate, kDTypes.size()> math{};  // by DType; tensor cores where the device has them for the dtype
  MathRate vector_fp32;                         // CUDA-core fp32
  double special_per_clock_per_sm = 0;          // exp2, rsqrt, tanh evaluations

  double memory_bytes = 0;
  double memory_bandwidth = 0;  // B/s, data sheet
  double l2_bytes = 0;
  double l2_bandwidth = 0;  // B/s; 0: unknown, the architecture's rate is used
  double shared_memory_per_sm = 0;
  double registers_per_sm = 65536;
  double max_threads_per_sm = 0;

  std::string link;           // "nvlink4", "pcie4", ...
  double link_bandwidth = 0;  // B/s out of one GPU, one direction
  double pcie_bandwidth = 0;  // B/s, one direction
  std::string cluster;        // id of the cluster that is meant when none is named

  std::vector<Fact> facts;

  const MathRate& rate(DType dtype) const { return math[static_cast<std::size_t>(dtype)]; }
};

}  // namespace rooftile
