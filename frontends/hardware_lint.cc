// What is wrong with hardware data beyond its syntax.
#include <array>
#include <cmath>
#include <cstdio>

#include "estimator/core/quantity.h"
#include "frontends/hardware_files.h"

namespace rooftile {
namespace {

constexpr double kPeakTolerance = 0.02;

std::string percent(double share) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f %%", share * 100);
  return text.data();
}

std::string rounded(double value, const std::string& unit) {
  // Four digits are enough to compare with a data sheet.
  const double magnitude = value > 0 ? std::pow(10, std::floor(std::log10(value)) - 3) : 1;
  return print_quantity({std::round(value / magnitude) * magnitude, unit});
}

void check_peak(const Device& device, std::string_view name, const MathRate& rate, std::vector<Warning>& warnings) {
  if (rate.peak_flops == 0 && rate.flop_per_clock_per_sm == 0) return;
  const double clock_hz = rate.clock_hz > 0 ? rate.clock_hz : device.peak_clock_hz;
  const double derived = device.sms * rate.flop_per_clock_per_sm * clock_hz;
  const double difference = derived > 0 ? rate.peak_flops / derived - 1 : 1;
  if (std::fabs(difference) <= kPeakTolerance) return;
  warnings.push_back({"peak_disagrees", device.id + ": " + std::string(name) + " peak " + rounded(rate.peak_flops, "FLOP/s") + " is " + percent(std::fabs(difference)) +
                                            (difference > 0 ? " above " : " below ") + std::to_string(device.sms) + " SMs x " + print_quantity({rate.flop_per_clock_per_sm, "1"}) +
                                            " FLOP/clock/SM x " + rounded(clock_hz, "Hz") + " = " + rounded(derived, "FLOP/s")});
}

}  // namespace

std::vector<Warning> lint_provenance(std::string_view id, const std::vector<Fact>& facts) {
  std::vector<Warning> warnings;
  for (const Fact& fact : facts) {
    const std::string what = std::string(id) + ": " + (fact.section.empty() ? "" : fact.section + ".") + fact.key;
    if (fact.source.empty()) warnings.push_back({"source_missing", what + " has no source"});
    if (fact.date.empty()) warnings.push_back({"date_missing", what + " has no date"});
    if (fact.kind.empty()) warnings.push_back({"kind_missing", what + " does not say whether it is spec, derived, measured, fitted or guess"});
    if (fact.kind == "guess" && fact.note.empty()) warnings.push_back({"guess_without_note", what + " is a guess without a note that says why this value"});
  }
  return warnings;
}

std::vector<Warning> lint(const Device& device) {
  std::vector<Warning> warnings = lint_provenance(device.id, device.facts);
  for (const DTypeInfo& info : kDTypes) {
    if (info.dtype == DType::fp32 || info.dtype == DType::fp8_e5m2) continue;  // the vector rate and fp8 are checked once
    check_peak(device, info.dtype == DType::fp8_e4m3 ? "fp8" : info.name, device.rate(info.dtype), warnings);
  }
  check_peak(device, "fp32", device.vector_fp32, warnings);

  const auto expect = [&](bool holds, std::string_view code, const std::string& message) {
    if (!holds) warnings.push_back({std::string(code), device.id + ": " + message});
  };
  expect(device.boost_clock_hz >= device.peak_clock_hz, "clocks_disordered",
         "boost clock " + rounded(device.boost_clock_hz, "Hz") + " is below the peak clock " + rounded(device.peak_clock_hz, "Hz"));
  expect(device.sustained_clock_hz <= device.boost_clock_hz, "clocks_disordered", "sustained clock is above the boost clock");
  expect(device.boost_clock_hz >= 0.3e9 && device.boost_clock_hz <= 5e9, "implausible", "boost clock " + rounded(device.boost_clock_hz, "Hz") + " is not 0.3 to 5 GHz");
  expect(device.memory_bandwidth >= 50e9 && device.memory_bandwidth <= 100e12, "implausible",
         "memory bandwidth " + rounded(device.memory_bandwidth, "B/s") + " is not 0.05 to 100 TB/s");
  expect(device.l2_bytes < device.memory_bytes, "implausible", "the L2 cache is not smaller than the memory");
  expect(device.shared_memory_per_sm * device.sms < device.memory_bytes, "implausible", "shared memory is not smaller than the memory");
  expect(device.link_bandwidth <= device.memory_bandwidth, "implausible", "a link is faster than the memory");
  const double bf16 = device.rate(DType::bf16).peak_flops, tf32 = device.rate(DType::tf32).peak_flops, fp8 = device.rate(DType::fp8_e4m3).peak_flops;
  expect(bf16 == 0 || tf32 <= bf16, "peaks_disordered", "tf32 peak is above bf16");
  expect(fp8 == 0 || fp8 >= bf16, "peaks_disordered", "fp8 peak is below bf16");
  return warnings;
}

}  // namespace rooftile
