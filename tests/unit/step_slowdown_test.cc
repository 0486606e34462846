// `--clocks auto`: how much a power limit slows a step, by its mean matmul rate.
#include <gtest/gtest.h>

#include <cmath>

#include "estimator/timing/timer.h"
#include "frontends/hardware_files.h"

namespace rooftile {
namespace {

// A device that sustains 672 TFLOP/s in bf16, at 0.85 of its burst rate, and may run at burst clocks below 0.57 of that.
Machine limited(double sustained_fraction = 0.85, double free_share = 0.57) {
  Machine machine = load_machine(DataPath{{ROOFTILE_SOURCE_DIR}}, "h200_sxm", "", "").value();
  CalibrationLayer layer;
  layer.id = "test";
  layer.level = LayerLevel::site;
  const auto add = [&](const char* key, double value) {
    Fact fact;
    fact.key = key;
    fact.value = value;
    layer.facts.push_back(fact);
  };
  add("gemm.bf16.eta", 672e12 / 0.85 / machine.device.rate(DType::bf16).peak_flops);
  add("clock.sustained_fraction", sustained_fraction);
  add("clock.free_share", free_share);
  machine.calibration.layers.push_back(layer);
  return machine;
}

class StepSlowdown : public testing::Test {
 protected:
  Machine machine_ = limited();
  KernelTimer timer_{machine_, Mode::calibrated, ClockState::burst};
  // Of a step of one second of kernels at burst clocks whose matmuls execute so many FLOPs.
  double of(double flops, double idle_s = 0) { return timer_.step_slowdown(DType::bf16, flops, 1, idle_s); }
};

TEST_F(StepSlowdown, ByHand) {
  // 525 TFLOP/s on average are 0.781 of 672: (0.781 - 0.57) / 0.43 of the way to 1 / 0.85, 1.0867. At burst clocks that step had 1.0867 x 525 TFLOP in its second.
  EXPECT_NEAR(of(525e12 * 1.0867), 1.0867, 0.001);
}

TEST_F(StepSlowdown, NothingDrawsPowerNothingSlows) {
  EXPECT_EQ(of(0), 1);
  EXPECT_EQ(of(0.5 * 672e12), 1);
  EXPECT_EQ(of(0.57 * 672e12), 1);
  EXPECT_EQ(timer_.step_slowdown(DType::bf16, 1e15, 0, 1), 1);  // no kernels at all
}

TEST_F(StepSlowdown, MonotoneInTheShareOfMatmuls) {
  double before = 1;
  for (double share = 0.5; share < 1.5; share += 0.01) {
    const double now = of(share * 672e12);
    EXPECT_GE(now, before - 1e-12) << share;
    before = now;
  }
  EXPECT_GT(before, 1.15);
}

TEST_F(StepSlowdown, AtMostBurstOverSustained) {
  EXPECT_LE(of(672e12 * 10), 1 / 0.85 + 1e-12);
  EXPECT_NEAR(of(672e12 * 10), 1 / 0.85, 0.002);
}

TEST_F(StepSlowdown, IdleTimeGivesPowerBack) {
  const double busy = of(700e12), pausing = of(700e12, 0.2), idle = of(700e12, 2);
  EXPECT_GT(busy, pausing);
  EXPECT_GT(pausing, 1);
  EXPECT_EQ(idle, 1);
}

TEST_F(StepSlowdown, OnlyWhereAPowerLimitIsKnown) {
  const Machine free = limited(1), unknown = limited(0.85, 1);
  EXPECT_EQ(KernelTimer(free, Mode::calibrated, ClockState::burst).step_slowdown(DType::bf16, 1e15, 1, 0), 1);
  EXPECT_EQ(KernelTimer(unknown, Mode::calibrated, ClockState::burst).step_slowdown(DType::bf16, 1e15, 1, 0), 1);
  EXPECT_EQ(KernelTimer(machine_, Mode::sol, ClockState::burst).step_slowdown(DType::bf16, 1e15, 1, 0), 1);
}

}  // namespace
}  // namespace rooftile
