#include "estimator/timing/better_sizes.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "frontends/hardware_files.h"

namespace rooftile {
namespace {

TEST(BetterSizes, OddVocabulary) {
  const Machine machine = load_machine(DataPath{{ROOFTILE_SOURCE_DIR}}, "h200_sxm", "", "").value();
  KernelTimer timer(machine, Mode::calibrated, ClockState::automatic);
  const KernelCall call = parse_kernel("gemm", "bf16", "m=8192 n=50257 k=768 batch=1 layout=nt").value();
  const std::vector<BetterSize> found = better_sizes(call, timer);
  for (const std::int64_t size : {50264, 50304}) {
    const auto at = std::find_if(found.begin(), found.end(), [&](const BetterSize& b) { return b.dimension == "n" && b.size == size; });
    ASSERT_NE(at, found.end()) << size;
    EXPECT_LT(at->per_flop, 0.3) << size;  // 2-byte copies against TMA
    EXPECT_LT(at->time_s, timer(call).time_s);
    EXPECT_NEAR(at->per_flop, at->time_s / timer(call).time_s * 50257 / static_cast<double>(size), 1e-12);
  }
}

TEST(BetterSizes, NothingWhereNothingIsWrong) {
  const Machine machine = load_machine(DataPath{{ROOFTILE_SOURCE_DIR}}, "h200_sxm", "", "").value();
  KernelTimer timer(machine, Mode::calibrated, ClockState::automatic);
  EXPECT_TRUE(better_sizes(parse_kernel("gemm", "bf16", "m=8192 n=8192 k=8192 batch=1 layout=nt").value(), timer).empty());
  EXPECT_TRUE(better_sizes(parse_kernel("pointwise", "bf16", "kind=copy numel=4097").value(), timer).empty());
}

TEST(BetterSizes, SmallestAndLargest) {
  const Machine machine = load_machine(DataPath{{ROOFTILE_SOURCE_DIR}}, "h200_sxm", "", "").value();
  KernelTimer timer(machine, Mode::calibrated, ClockState::automatic);
  for (const BetterSize& b : better_sizes(parse_kernel("gemm", "bf16", "m=1 n=3 k=1 batch=1 layout=nt").value(), timer)) EXPECT_GT(b.size, 0);
  for (const BetterSize& b : better_sizes(parse_kernel("gemm", "bf16", "m=9223372036854775807 n=1 k=1 batch=1 layout=nt").value(), timer)) EXPECT_GT(b.size, 0);
}

}  // namespace
}  // namespace rooftile
