#include "estimator/timing/torch_kernels.h"

#include <gtest/gtest.h>

#include "frontends/hardware_files.h"

namespace rooftile {
namespace {

const Machine& machine_of(const char* device) {
  static std::map<std::string, Machine> machines;
  auto found = machines.find(device);
  if (found == machines.end()) {
    auto machine = load_machine(DataPath{{ROOFTILE_SOURCE_DIR}}, device, "", "");
    EXPECT_TRUE(machine.has_value()) << device;
    found = machines.emplace(device, *machine).first;
  }
  return found->second;
}

double us(const char* device, std::string_view op, std::string_view dtype, std::string_view shape) {
  const auto call = parse_kernel(op, dtype, shape, "torch");
  EXPECT_TRUE(call.has_value()) << shape;
  KernelTimer timer(machine_of(device), Mode::calibrated, ClockState::burst);
  return 1e6 * timer(*call).time_s;
}

// Times that a profiler gave for kernels of whole steps (GPT-2, BERT and Llama, bf16, on an H200; without the gap between kernels): none was fitted on.
TEST(TorchKernels, AgreesWithKernelsOfWholeSteps) {
  struct Row {
    const char *op, *dtype, *shape;
    double measured_us, tolerance;
  };
  const Row rows[] = {
      {"pointwise", "bf16", "kind=mul numel=50331648", 70.3, 0.1},
      {"pointwise", "bf16", "kind=scale numel=50331648", 47.8, 0.1},
      {"pointwise", "bf16", "kind=row_scale numel=33554432", 90.8, 0.12},
      {"pointwise", "bf16", "kind=cast numel=33554432", 104.1, 0.12},
      {"pointwise", "bf16", "kind=gelu_backward numel=67108864", 123.3, 0.1},
      {"pointwise", "bf16", "kind=concat numel=33554432", 150.7, 0.15},
      {"layernorm", "bf16", "rows=16384 cols=768 pass=fwd", 36.3, 0.15},
      {"layernorm_input", "bf16", "rows=16384 cols=1024 pass=bwd", 36.5, 0.15},
      {"column_sum", "bf16", "rows=16384 cols=2304", 37.2, 0.15},
      {"log_softmax", "fp32", "rows=16384 cols=50257 pass=fwd", 2924.6, 0.1},
      {"log_softmax", "fp32", "rows=16384 cols=128256 pass=bwd", 8304.1, 0.1},
  };
  for (const Row& row : rows) EXPECT_NEAR(us("h200_sxm", row.op, row.dtype, row.shape) / row.measured_us, 1, row.tolerance) << row.op << " " << row.shape;
}

TEST(TorchKernels, WalksCostWhatTheirOperandsAsk) {
  const auto pointwise = [](std::string_view dtype, const std::string& kind) { return us("h200_sxm", "pointwise", dtype, "kind=" + kind + " numel=67108864"); };
  EXPECT_NEAR(pointwise("bf16", "copy"), 65.5, 5);                       // the header's worked number
  EXPECT_GT(pointwise("bf16", "bias"), 2 * pointwise("bf16", "scale"));  // the same bytes, not vectorised
  EXPECT_GT(pointwise("bf16", "cast"), 1.5 * pointwise("fp32", "cast"));
  EXPECT_GT(pointwise("bf16", "transpose"), 2 * pointwise("bf16", "permute"));
}

// What a profiler gave in steps of mixtures and of models whose query heads share keys: none was fitted on.
TEST(TorchKernels, KernelsOfTheirOwnStructure) {
  EXPECT_NEAR(us("h200_sxm", "row_sum", "bf16", "rows=8388608 cols=8") / 56.8, 1, 0.2);                            // short rows share a block
  EXPECT_NEAR(us("h200_sxm", "topk", "fp32", "rows=4096 cols=64") / 25.5, 1, 0.2);                                 // radix select and a sort
  EXPECT_NEAR(us("h200_sxm", "sort", "int64", "rows=1 cols=32768") / 50.3, 1, 0.2);                                // eight passes
  EXPECT_NEAR(us("h200_sxm", "embedding", "bf16", "tokens=16 vocab=128256 hidden=4096 pass=fwd") / 11.0, 1, 0.2);  // one row after the other
  EXPECT_NEAR(us("h200_sxm", "embedding", "bf16", "tokens=1 vocab=128256 hidden=4096 pass=fwd") / 2.05, 1, 0.3);
}

TEST(TorchKernels, LaunchesOfACall) {
  const auto launches = [](std::string_view op, std::string_view shape) { return torch_launches(*parse_kernel(op, "bf16", shape, "torch")); };
  EXPECT_EQ(launches("layernorm", "rows=8 cols=8 pass=bwd"), 2);
  EXPECT_EQ(launches("embedding", "tokens=16384 vocab=50257 hidden=768 pass=bwd"), 29);
  EXPECT_EQ(launches("optimizer", "kind=adamw numel=124439808"), 6);  // 20,971,520 parameters a launch
  EXPECT_EQ(launches("pointwise", "kind=add numel=8"), 1);
  EXPECT_EQ(launches("pointwise", "kind=masked_fill numel=8"), 2);  // a copy, then in place
  EXPECT_EQ(launches("topk", "rows=8 cols=8"), 2);
}

TEST(TorchKernels, OtherGpusByTheirDataSheets) {
  // A long stream goes with the bandwidth, a broadcast with SMs and clock as well.
  const double fast = us("h200_sxm", "pointwise", "fp32", "kind=add numel=268435456"), slow = us("a100_pcie_80gb", "pointwise", "fp32", "kind=add numel=268435456");
  EXPECT_NEAR(slow / fast, machine_of("h200_sxm").device.memory_bandwidth / machine_of("a100_pcie_80gb").device.memory_bandwidth, 0.4);
}

TEST(TorchKernels, OwnKernelsAreNotPyTorchs) {
  const KernelCall call = *parse_kernel("softmax", "bf16", "rows=1024 cols=1024 pass=fwd", "rooftile");
  const Machine& machine = machine_of("h200_sxm");
  const TorchKernels kernels(machine, resolve_constants(machine, Mode::calibrated));
  EXPECT_FALSE(kernels.covers(call));
  KernelCall torch = call;
  torch.impl = Impl::torch;
  EXPECT_TRUE(kernels.covers(torch));
}

}  // namespace
}  // namespace rooftile
