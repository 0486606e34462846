// The worked numbers of docs/model-kernels.md.
#include <gtest/gtest.h>

#include <cmath>

#include "estimator/timing/clock.h"
#include "estimator/timing/combine.h"
#include "estimator/timing/gemm.h"
#include "estimator/timing/timer.h"
#include "frontends/hardware_files.h"

namespace rooftile {
namespace {

KernelCall parse(const char* op, const char* dtype, const char* shape) { return parse_kernel(op, dtype, shape).value(); }

TEST(Timing, GemmWorkedExample) {
  Machine machine = load_machine(DataPath{{ROOFTILE_SOURCE_DIR}}, "h100_sxm", "", "").value();
  for (KernelFamily& family : machine.catalogue.families) family.tiles = {{128, 256, 0, 0}};
  KernelTimer timer(machine, Mode::model, ClockState::burst);
  const KernelTime& time = timer(parse("gemm", "bf16", "m=4096 n=4096 k=4096"));
  EXPECT_EQ(static_cast<std::int64_t>(time.tile_m) * time.tile_n, 128 * 256);
  EXPECT_NEAR(time.waves, 512 / 132.0, 1e-9);
  const double step = 2.0 * 128 * 256 * 64 / (4096 * 0.882) + 30;
  const double core = (4 * (64 * step + 2048) + 1830) / 1830e6;
  EXPECT_NEAR(time.compute_s + time.latency_s, core, 0.002 * core);
  EXPECT_NEAR(time.time_s, 2e-6 + p_norm(core, 3 * 2 * 4096.0 * 4096 / (3.35e12 * 0.87), 3), 0.002 * core);
  EXPECT_EQ(time.bound, Bound::compute);
}

// Both take 38 K steps of the same tile. A pitch of 4,816 bytes starts seven of eight rows of a tile inside a line and every second one inside a sector: 1 + 7/8 x 0.3 + 0.06.
TEST(Timing, RowsInsideALineAskL2Twice) {
  Machine machine = load_machine(DataPath{{ROOFTILE_SOURCE_DIR}}, "h100_sxm", "", "").value();
  for (KernelFamily& family : machine.catalogue.families) family.tiles = {{128, 128, 0, 0}};
  KernelTimer timer(machine, Mode::model, ClockState::burst);
  const double whole = timer(parse("gemm", "bf16", "m=4096 n=4096 k=2432")).l2_s;
  EXPECT_NEAR(timer(parse("gemm", "bf16", "m=4096 n=4096 k=2408")).l2_s / whole, 1.3225, 1e-9);
  EXPECT_NEAR(timer(parse("gemm", "bf16", "m=4096 n=4096 k=2400")).l2_s / whole, 1.15, 1e-9);  // 64 bytes: every second row
  // Rows of 64 bytes end where the line does.
  EXPECT_NEAR(timer(parse("gemm", "bf16", "m=4096 n=4096 k=32")).l2_s / whole, 1 / 38.0, 1e-9);
}

// 4 tiles of 64 steps on the busiest SM: 30 cycles each are 4.2 us at 1.83 GHz.
TEST(Timing, PauseBetweenSteps) {
  Machine machine = load_machine(DataPath{{ROOFTILE_SOURCE_DIR}}, "h100_sxm", "", "").value();
  for (KernelFamily& family : machine.catalogue.families) family.tiles = {{128, 256, 0, 0}};
  const KernelCall call = parse("gemm", "bf16", "m=4096 n=4096 k=4096");
  const auto core = [&](const KernelTime& time) { return time.compute_s + time.latency_s; };
  KernelTimer with(machine, Mode::model, ClockState::burst);
  const double paused = core(with(call));
  for (CalibrationLayer& layer : machine.calibration.layers) {
    for (Fact& fact : layer.facts) {
      if (fact.key == "gemm.step_pause") fact.value = 0;
    }
  }
  KernelTimer without(machine, Mode::model, ClockState::burst);
  EXPECT_NEAR(paused - core(without(call)), 4 * 64 * 30 / 1830e6, 1e-8);
}

TEST(Timing, ExpertsGetUnevenShares) {
  EXPECT_NEAR(tiles_of_group(512, 128), 4.5, 1e-3);
  EXPECT_NEAR(tiles_of_group(480, 128), 4.07, 0.005);
  EXPECT_NEAR(tiles_of_group(1, 128), 1, 1e-9);
  // The same mean by the sum that defines it, where the shares vary by less and by more than a tile.
  for (const double tile : {64.0, 128.0, 256.0}) {
    for (const double m : {7.0, 300.0, 1020.0, 1030.0, 4000.0, 4100.0, 16000.0, 17000.0, 70000.0, 1e6}) {
      double sum = 1;
      for (double whole = 1; whole * tile < m + 9 * std::sqrt(m); ++whole) sum += 0.5 * std::erfc((whole * tile - m) / std::sqrt(2 * m));
      EXPECT_NEAR(tiles_of_group(m, tile), sum, 2e-4) << m << " " << tile;
    }
  }
  EXPECT_DOUBLE_EQ(tiles_of_group(0x1p63, 128), 0x1p56 + 0.5);
  // 64 experts of 512 rows fill as many tiles as a plain batch of 576 rows, not 512.
  const Machine machine = load_machine(DataPath{{ROOFTILE_SOURCE_DIR}}, "h200_sxm", "", "").value();
  KernelTimer timer(machine, Mode::model, ClockState::burst);
  EXPECT_DOUBLE_EQ(timer(parse("gemm", "bf16", "m=512 n=2048 k=2048 batch=64 grouped=1")).waves, 4.5 * 8 * 64 / 132);
}

// 4 x 32 heads of 1,024 x 1,024 scores on 132 SMs: 0.124 cycles each forward and 0.225 backward are 69 us and 125 us at 1,830 MHz when nothing rounds.
TEST(Timing, AMaskTensorIsReadForEveryHead) {
  const Machine machine = load_machine(DataPath{{ROOFTILE_SOURCE_DIR}}, "h100_sxm", "", "").value();
  KernelTimer timer(machine, Mode::model, ClockState::burst);
  for (const auto& [pass, cycles] : {std::pair("fwd", 0.124), std::pair("bwd", 0.225)}) {
    const std::string shape = std::string("batch=4 heads=32 seq_q=1024 seq_kv=1024 head_dim=64 kernel=cudnn pass=") + pass;
    const double plain = timer(parse("attention", "bf16", shape.c_str())).time_s, masked = timer(parse("attention", "bf16", (shape + " mask=1").c_str())).time_s;
    const double scores = 4 * 32 * 1024.0 * 1024;
    EXPECT_NEAR(masked - plain, scores * cycles / (132 * 1.83e9), 0.1 * (masked - plain)) << pass;
  }
}

TEST(Timing, Alignment) {
  const auto of = [](const char* dtype, const char* shape) {
    const KernelCall call = parse("gemm", dtype, shape);
    return alignment_of(call.gemm(), call.dtype);
  };
  EXPECT_EQ(of("bf16", "m=4096 n=50257 k=4096"), 1);
  EXPECT_EQ(of("bf16", "m=4096 n=10922 k=4096"), 2);
  EXPECT_EQ(of("bf16", "m=4096 n=4100 k=4096"), 4);
  EXPECT_EQ(of("bf16", "m=3 n=4096 k=4096"), 8);            // m is no leading dimension of nt
  EXPECT_EQ(of("bf16", "m=3 n=4096 k=4096 layout=tn"), 1);  // of tn it is
  EXPECT_EQ(of("fp8", "m=3 n=4096 k=4096"), 16);
  EXPECT_EQ(of("tf32", "m=3 n=4096 k=4096"), 4);
  EXPECT_EQ(of("fp32", "m=3 n=4095 k=4096"), 1);
}

TEST(Timing, Collective) {
  Machine machine = load_machine(DataPath{{ROOFTILE_SOURCE_DIR}}, "h100_sxm", "", "").value();
  machine.cluster.intra_node = Link{480e9, 0, 0};
  machine.cluster.inter_node = Link{45e9, 20e-6, 0};
  KernelTimer timer(machine, Mode::model, ClockState::burst);
  EXPECT_NEAR(timer(parse("collective", "bf16", "kind=all_reduce bytes=1073741824 ranks=8")).time_s, 3.91e-3, 0.01e-3);
  // Two nodes of 8: the ring's bus bandwidth is 8 x 45 GB/s.
  EXPECT_NEAR(timer(parse("collective", "bf16", "kind=all_gather bytes=1073741824 ranks=16 nodes=2")).time_s, 20e-6 + 1073741824.0 * 15 / 16 / 360e9, 1e-6);
  EXPECT_NEAR(timer(parse("collective", "bf16", "kind=send_recv bytes=45000000 ranks=2 nodes=2")).time_s, 20e-6 + 1e-3, 1e-9);
}

TEST(Timing, PNorm) {
  EXPECT_DOUBLE_EQ(p_norm(3, 4, 2), 5);
  EXPECT_DOUBLE_EQ(p_norm(3, 4, 1), 7);
  EXPECT_DOUBLE_EQ(p_norm(7, 0, 3), 7);
  EXPECT_NEAR(p_norm(1, 1, 3), std::cbrt(2.0), 1e-15);
}

TEST(Timing, ClockSlidesFromBurstToSustained) {
  Constants constants;
  constants.sustained_fraction = 0.9;
  constants.burst_s = 1e-3;
  constants.sustained_s = 1e-1;
  EXPECT_EQ(clock_fraction(constants, ClockState::automatic, 1e-3), 1);
  EXPECT_NEAR(clock_fraction(constants, ClockState::automatic, 1e-2), 0.95, 1e-12);
  EXPECT_NEAR(clock_fraction(constants, ClockState::automatic, 1), 0.9, 1e-12);
  EXPECT_EQ(clock_fraction(constants, ClockState::sustained, 1e-6), 0.9);
  EXPECT_EQ(clock_fraction(constants, ClockState::burst, 1), 1);
}

TEST(Timing, UnsupportedReasons) {
  const auto reason = [](const char* device, const char* op, const char* dtype, const char* shape) {
    const Machine machine = load_machine(DataPath{{ROOFTILE_SOURCE_DIR}}, device, "", "").value();
    return unsupported_reason(parse(op, dtype, shape), machine.device);
  };
  EXPECT_NE(reason("v100_sxm_32gb", "gemm", "bf16", "m=8 n=8 k=8").find("Ampere"), std::string::npos);
  EXPECT_NE(reason("a100_sxm_80gb", "gemm", "fp8", "m=16 n=16 k=16").find("Hopper"), std::string::npos);
  EXPECT_NE(reason("a100_sxm_80gb", "attention", "bf16", "batch=1 heads=1 seq_q=8 head_dim=64 kernel=flash3").find("Hopper"), std::string::npos);
  EXPECT_NE(reason("t4", "attention", "fp16", "batch=1 heads=1 seq_q=8 head_dim=64 kernel=flash2").find("standard"), std::string::npos);
  EXPECT_EQ(reason("t4", "attention", "fp16", "batch=1 heads=1 seq_q=8 head_dim=64"), "");
  EXPECT_EQ(reason("l4", "gemm", "fp8", "m=16 n=16 k=16"), "");
  EXPECT_EQ(reason("t4", "pointwise", "bf16", "kind=add numel=8"), "");
  for (const char* op : {"log_softmax", "softmax_fp32", "nll", "row_mean", "argmax", "topk", "sort", "layernorm_input"}) {
    EXPECT_NE(reason("h200_sxm", op, "bf16", "rows=8 cols=8 impl=rooftile").find("impl=torch"), std::string::npos) << op;
    EXPECT_EQ(reason("h200_sxm", op, "bf16", "rows=8 cols=8"), "") << op;
  }
  EXPECT_EQ(reason("h200_sxm", "row_sum", "bf16", "rows=8 cols=8 impl=rooftile"), "");
}

TEST(Timing, LargestSizesDoNotWrap) {
  const Machine machine = load_machine(DataPath{{ROOFTILE_SOURCE_DIR}}, "h200_sxm", "", "").value();
  KernelTimer timer(machine, Mode::model, ClockState::burst);
  for (const char* rest : {"", " grouped=1"}) {
    for (const char* shape : {"m=9223372036854775807 n=1 k=1", "m=1 n=9223372036854775807 k=1", "m=1 n=1 k=9223372036854775807"}) {
      const KernelTime& time = timer(parse("gemm", "bf16", (std::string(shape) + rest).c_str()));
      EXPECT_GE(time.time_s, 2 * 0x1p63 / machine.device.memory_bandwidth) << shape << rest;
      for (const double loss : time.loss_s) EXPECT_GE(loss, -1e-9 * time.time_s) << shape << rest;
    }
  }
  EXPECT_GT(timer(parse("attention", "bf16", "batch=1 heads=1 seq_q=1 seq_kv=1 head_dim=9223372036854775807")).time_s, 0);
}

}  // namespace
}  // namespace rooftile
