#include "estimator/timing/stream_plan.h"

#include <gtest/gtest.h>

#include "estimator/timing/combine.h"
#include "frontends/hardware_files.h"

namespace rooftile {
namespace {

StreamPlan plan(const char* op, const char* dtype, const char* shape) {
  static const Machine machine = load_machine(DataPath{{ROOFTILE_SOURCE_DIR}}, "h200_sxm", "", "").value();
  return plan_of(parse_kernel(op, dtype, shape, "rooftile").value(), machine.device);
}

TEST(StreamPlan, WorkedRounds) {
  // 512 threads a row, two such CTAs by 64 registers a thread: 264 rows at once.
  const StreamPlan norm = plan("layernorm", "bf16", "rows=4096 cols=4096 pass=fwd");
  EXPECT_EQ(norm.steps, 16);
  EXPECT_EQ(norm.busy_sms, 132);
  EXPECT_EQ(norm.second_steps, 0);
  EXPECT_GT(plan("layernorm", "bf16", "rows=4096 cols=4096 pass=bwd").second_steps, 0);  // column sums in a second kernel
  EXPECT_EQ(plan("softmax", "bf16", "rows=10 cols=4096 pass=fwd").busy_sms, 10);
  EXPECT_EQ(plan("softmax", "bf16", "rows=80 cols=256 pass=fwd").busy_sms, 10);  // a warp a row, eight in a CTA
  EXPECT_EQ(norm.single_accesses, 0);
  EXPECT_EQ(plan("layernorm", "bf16", "rows=10 cols=4097 pass=fwd").single_accesses, 2 * 10 * 4097);
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
