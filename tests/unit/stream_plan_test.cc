#include "estimator/timing/stream_plan.h"

#include <gtest/gtest.h>

#include "estimator/timing/combine.h"
#include "estimator/timing/memory_bound.h"
#include "frontends/hardware_files.h"

namespace rooftile {
namespace {

StreamPlan plan(const char* op, const char* dtype, const char* shape) {
  static const Machine machine = load_machine(DataPath{{ROOFTILE_SOURCE_DIR}}, "h200_sxm", "", "").value();
  return plan_of(parse_kernel(op, dtype, shape, "rooftile").value(), machine.device);
}

TEST(StreamPlan, WorkedWaves) {
  // 512 threads a row at 32 registers: four such CTAs on an SM, 528 rows at once.
  const StreamPlan norm = plan("layernorm", "bf16", "rows=4096 cols=4096 pass=fwd");
  EXPECT_EQ(norm.resident, 4);
  EXPECT_NEAR(norm.waves, 4096.0 / 528, 1e-12);
  EXPECT_EQ(norm.trips, 1);
  EXPECT_EQ(norm.busy_sms, 132);
  EXPECT_EQ(norm.reductions, 2);
  EXPECT_EQ(norm.shared_loads, 2);  // weight and bias
  EXPECT_FALSE(norm.second_kernel);
  EXPECT_EQ(plan("softmax", "bf16", "rows=10 cols=4096 pass=fwd").busy_sms, 10);
  const StreamPlan warp = plan("softmax", "bf16", "rows=80 cols=192 pass=fwd");  // a warp a row, eight in a CTA, 24 of 32 lanes with a vector
  EXPECT_EQ(warp.busy_sms, 10);
  EXPECT_EQ(warp.reductions, 0);
  EXPECT_NEAR(warp.padding, 32.0 / 24, 1e-12);
  EXPECT_EQ(norm.single_accesses, 0);
  EXPECT_EQ(plan("rmsnorm", "bf16", "rows=16 cols=250 pass=fwd").single_accesses, 3 * 16 * 256);  // row, weight and result, on 32 lanes of 8
}

TEST(StreamPlan, RegistersDecideWhatIsResident) {
  // The same 16 KiB a row: 16 elements of a thread need 49 registers, 8 elements 32.
  EXPECT_EQ(plan("layernorm", "bf16", "rows=4096 cols=8192 pass=fwd").resident, 2);
  EXPECT_EQ(plan("layernorm", "fp32", "rows=4096 cols=4096 pass=fwd").resident, 4);
  // 768 threads of 58 registers: one CTA fills an SM.
  EXPECT_EQ(plan("softmax", "bf16", "rows=192 cols=12288 pass=bwd").resident, 1);
  // fp16 and bf16 differ where the compiler's counts straddle a multiple of eight: 42 and 38 registers.
  EXPECT_EQ(plan("rmsnorm", "fp16", "rows=576 cols=6144 pass=fwd").resident, 3);
  EXPECT_EQ(plan("rmsnorm", "bf16", "rows=576 cols=6144 pass=fwd").resident, 4);
}

TEST(StreamPlan, LongRowsTakeTrips) {
  // 50257 fp32 are 12,566 vectors with their ends, 2,048 asked for at a time; 201 kB of shared memory leave room for one CTA.
  const StreamPlan kept = plan("softmax", "fp32", "rows=448 cols=50257 pass=fwd");
  EXPECT_EQ(kept.trips, 7);
  EXPECT_EQ(kept.resident, 1);
  EXPECT_EQ(kept.again_bytes, 0);
  const StreamPlan again = plan("softmax", "bf16", "rows=256 cols=128256 pass=fwd");  // 256 kB do not fit
  EXPECT_EQ(again.trips, 16);
  EXPECT_EQ(again.again_bytes, 256.0 * 128256 * 2);
}

TEST(StreamPlan, NormBackwardLeavesSumsAndSpills) {
  const StreamPlan norm = plan("layernorm", "bf16", "rows=4096 cols=4096 pass=bwd");
  EXPECT_EQ(norm.trips, 0);  // CTAs walk: 264 of them through 4096 rows
  EXPECT_EQ(norm.steps, 16);
  EXPECT_TRUE(norm.second_kernel);
  EXPECT_GT(norm.tail_loads, 0);
  EXPECT_EQ(norm.spilled_bytes + norm.spilled_each, 0);
  EXPECT_GT(plan("layernorm", "bf16", "rows=64 cols=12288 pass=bwd").spilled_each, 0);     // stays in the SM's cache
  EXPECT_GT(plan("layernorm", "fp16", "rows=448 cols=8197 pass=bwd").spilled_bytes, 5e8);  // 1.2 kB of each of 544 threads: does not
  EXPECT_EQ(plan("column_sum", "bf16", "rows=2816 cols=1280").tail_loads, 22);             // 88 parts, 8 at a time, two trips each
}

// The example of docs/model-kernels.md: rmsnorm bf16, 4096 columns, four CTAs of 512 threads on each of 132 SMs, so 528 rows are one wave.
TEST(StreamPlan, WavesWorkedExample) {
  Machine machine = load_machine(DataPath{{ROOFTILE_SOURCE_DIR}}, "h200_sxm", "", "").value();
  Constants constants;
  constants.efficiency.fill(1), constants.backward_efficiency.fill(1), constants.spec_p90.fill(1);
  constants.stream_launch_s = 0.8e-6, constants.dram_latency_s = 0.5e-6, constants.stream_reduce_s = 0.3e-6, constants.stream_load_s = 0.1e-6, constants.stream_start_s = 0.3e-6;
  const auto time_us = [&](int rows) {
    const KernelCall call = parse_kernel("rmsnorm", "bf16", "rows=" + std::to_string(rows) + " cols=4096 pass=fwd", "rooftile").value();
    return memory_bound_time(call, machine.device, constants).time_s * 1e6;
  };
  // 0.8 launch + 0.5 memory + 0.3 sum + 0.1 weights + 528 x 8 kB read and written at 4.8 TB/s, 1.80.
  EXPECT_NEAR(time_us(528), 3.50, 0.01);
  // The second wave waits 0.5 + 0.3 + 0.1 and 0.3 for its start, 1.2, beside its own 1.80: (1.80^3 + 1.2^3)^(1/3) = 1.97.
  EXPECT_NEAR(time_us(2 * 528), 5.47, 0.01);
  // A row more than a wave waits the same, less 0.3 of the time over which the first wave's rows end.
  EXPECT_NEAR(time_us(529), 3.50 + 1.2 - 0.3 * 1.80, 0.03);
}

TEST(StreamPlan, FillsDoNotWaitForMemory) {
  EXPECT_FALSE(plan("pointwise", "bf16", "kind=fill numel=4096").reads);
  EXPECT_TRUE(plan("pointwise", "bf16", "kind=copy numel=4096").reads);
  EXPECT_EQ(plan("pointwise", "bf16", "kind=gelu numel=4096").chain_elements, 16);  // two vectors of 8
  EXPECT_EQ(plan("pointwise", "fp32", "kind=gelu numel=4096").chain_elements, 8);
}

TEST(StreamPlan, CubeRoot) {
  for (double c = 1; c <= 2; c += 0.01) EXPECT_NEAR(cube_root_1_to_2(c) / std::cbrt(c), 1, 1e-15);
  EXPECT_NEAR(cube_root_1_to_2(1.728), 1.2, 1e-15);
}

}  // namespace
}  // namespace rooftile
