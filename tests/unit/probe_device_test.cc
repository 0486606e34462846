// A device file written from what a driver says reads back, lints clean and keeps its numbers.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "cli/probe_device.h"
#include "frontends/hardware_files.h"
#include "validate/campaign_builder.h"

namespace rooftile {
namespace {

GpuFacts some_gpu() {
  GpuFacts gpu;
  gpu.name = "NVIDIA \"Something\" H";
  gpu.driver = "580.1";
  gpu.runtime = "13.0";
  gpu.compute_capability = 90;
  gpu.sms = 100;
  gpu.boost_clock_hz = 1.98e9;
  gpu.memory_clock_hz = 3.2e9;
  gpu.memory_bus_bits = 5120;
  gpu.memory_bytes = 96.0 * 1024 * 1048576;
  gpu.l2_bytes = 50.0 * 1048576;
  gpu.shared_memory_per_sm = 228 * 1024;
  gpu.registers_per_sm = 65536;
  gpu.threads_per_sm = 2048;
  gpu.power_limit_w = 600;
  return gpu;
}

DataPath shipped() {
  DataPath data;
  data.roots.push_back(ROOFTILE_SOURCE_DIR);
  return data;
}

Device device_of(const std::string& id) {
  const DataPath data = shipped();
  auto device = read_device(*data.find(DataKind::device, id), data);
  EXPECT_TRUE(device.has_value());
  return *device;
}

Device read_back(const std::string& text) {
  const auto file = std::filesystem::temp_directory_path() / "rooftile_probe_test.yaml";
  std::ofstream(file) << text;
  auto device = read_device(file, shipped());
  EXPECT_TRUE(device.has_value()) << (device ? "" : describe(device.error())) << text;
  std::filesystem::remove(file);
  return device ? *device : Device{};
}

TEST(ProbeDevice, ReadsBackWithItsNumbersAndLintsClean) {
  Ceilings ceilings;
  ceilings.flops[DType::bf16] = 600e12;
  ceilings.copy_bandwidth = 3.6e12;
  ceilings.sustained_clock_hz = 1.5e9;
  const Device made = read_back(device_yaml("mine", some_gpu(), ceilings, device_of("h100_sxm"), "2026-11-30"));
  EXPECT_EQ(made.id, "mine");
  EXPECT_EQ(made.sms, 100);
  EXPECT_EQ(made.architecture, Architecture::hopper);
  // 100 SMs x 4096 FLOP/clock x 1.98 GHz; 5120 bits x 3.2 GHz x 2.
  EXPECT_NEAR(made.rate(DType::bf16).peak_flops, 811.008e12, 1e8);
  EXPECT_NEAR(made.memory_bandwidth, 4.096e12, 1e6);
  EXPECT_DOUBLE_EQ(made.sustained_clock_hz, 1.5e9);
  EXPECT_DOUBLE_EQ(made.power_limit_w, 600);
  const auto findings = lint(made);
  for (const Warning& finding : findings) ADD_FAILURE() << finding.code << ": " << finding.message;
}

TEST(ProbeDevice, MeasuredRateIsRoundedUpWhereNoDeviceHasTheCapability) {
  GpuFacts gpu = some_gpu();
  gpu.compute_capability = 91;
  Ceilings ceilings;
  ceilings.flops[DType::bf16] = 0.7 * 100 * 8192 * 1.98e9;
  const Device made = read_back(device_yaml("mine", gpu, ceilings, device_of("h100_sxm"), "2026-11-30"));
  EXPECT_DOUBLE_EQ(made.rate(DType::bf16).flop_per_clock_per_sm, 8192);
  EXPECT_DOUBLE_EQ(made.rate(DType::tf32).flop_per_clock_per_sm, 2048);  // not measured: the Hopper value
}

TEST(ProbeDevice, NearestIsTheSameCapabilityThenTheOneBelow) {
  const std::vector<Device> known = {device_of("a100_sxm_80gb"), device_of("h100_pcie"), device_of("h100_sxm"), device_of("l40s")};
  GpuFacts gpu = some_gpu();
  gpu.sms = 130;
  EXPECT_EQ(nearest_device(gpu, known)->id, "h100_sxm");
  gpu.sms = 115;
  EXPECT_EQ(nearest_device(gpu, known)->id, "h100_pcie");
  gpu.compute_capability = 87;
  EXPECT_EQ(nearest_device(gpu, known)->id, "a100_sxm_80gb");
  gpu.compute_capability = 70;
  EXPECT_EQ(nearest_device(gpu, known), nullptr);
}

TEST(ProbeDevice, CeilingsAreTheFastestRows) {
  const auto measured = [](const KernelCall& call, double time_s) {
    Measurement m;
    m.call = call;
    m.measured_s = time_s;
    return m;
  };
  std::vector<Measurement> rows = {measured(make_gemm_call(4096, 4096, 4096, GemmLayout::nt), 2e-4), measured(make_gemm_call(64, 64, 64, GemmLayout::nt), 2e-6),
                                   measured(make_pointwise_call(PointwiseKind::copy, 1 << 28), 2.5e-4)};
  rows.push_back(measured(make_gemm_call(8192, 8192, 8192, GemmLayout::nt), 1.6e-3));
  rows.back().clocks = ClockState::sustained;
  rows.back().clock_hz = 1.4e9;
  const Ceilings ceilings = ceilings_of(rows);
  EXPECT_NEAR(ceilings.flops.at(DType::bf16), 687.19e12, 1e10);  // 2 x 4096^3 / 0.2 ms
  EXPECT_NEAR(ceilings.copy_bandwidth, 4.295e12, 1e9);           // 2 x 512 MiB / 0.25 ms
  EXPECT_DOUBLE_EQ(ceilings.sustained_clock_hz, 1.4e9);
}

}  // namespace
}  // namespace rooftile
