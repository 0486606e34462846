// What must hold for every kernel time on every device, whatever the constants: finite, positive, monotone, losses that add up, the ideal below the model.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <random>

#include "estimator/timing/timer.h"
#include "frontends/hardware_files.h"

namespace rooftile {
namespace {

DataPath data() { return DataPath{{ROOFTILE_SOURCE_DIR}}; }

Machine machine_of(const std::string& name) {
  auto machine = load_machine(data(), name, "", "");
  EXPECT_TRUE(machine.has_value()) << name << ": " << (machine ? "" : describe(machine.error()));
  return machine ? std::move(*machine) : Machine{};
}

std::vector<std::string> devices() { return data().names(DataKind::device); }

KernelCall parse(const std::string& op, const std::string& dtype, const std::string& shape) {
  const auto call = parse_kernel(op, dtype, shape);
  EXPECT_TRUE(call.has_value()) << op << " " << shape << (call ? "" : describe(call.error()));
  return call.value_or(KernelCall{});
}

KernelCall gemm(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t batch = 1, GemmLayout layout = GemmLayout::nt, DType dtype = DType::bf16) {
  return KernelCall{.kernel = KernelClass::gemm,
                    .dtype = dtype,
                    .pass = Pass::fwd,
                    .impl = Impl::vendor,
                    .shape = GemmShape{.m = m, .n = n, .k = k, .batch = batch, .layout = layout, .out = dtype}};
}

// Calls of every kernel class, small to absurd.
std::vector<KernelCall> sample_calls() {
  std::vector<KernelCall> calls;
  for (const std::int64_t m : {1, 7, 128, 4096, 100000}) {
    for (const std::int64_t n : {1, 64, 50257, 1000000}) {
      for (const std::int64_t k : {1, 33, 1024, 1000000}) {
        for (const DType dtype : {DType::bf16, DType::fp16, DType::fp32, DType::tf32, DType::fp8_e4m3, DType::fp64, DType::int8})
          calls.push_back(gemm(m, n, k, 1, GemmLayout::nt, dtype));
      }
    }
  }
  calls.push_back(gemm(1LL << 31, 1LL << 31, 1LL << 31));
  calls.push_back(gemm(1, 1, 1LL << 62));
  calls.push_back(gemm(64, 64, 64, 1LL << 40));
  for (const char* pass : {"fwd", "bwd"}) {
    for (const char* causal : {"0", "1"}) {
      for (const char* rest : {"batch=1 heads=1 seq_q=1 seq_kv=1 head_dim=1", "batch=2 heads=32 kv_heads=8 seq_q=4096 seq_kv=4096 head_dim=128",
                               "batch=64 heads=32 kv_heads=8 seq_q=1 seq_kv=8192 head_dim=128", "batch=1 heads=8 seq_q=1000000 seq_kv=1000000 head_dim=64 window=4096",
                               "batch=1 heads=16 seq_q=300 seq_kv=77 head_dim=72", "batch=1 heads=8 seq_q=512 seq_kv=512 head_dim=512",
                               "batch=1 heads=128 seq_q=4096 seq_kv=4096 head_dim=192 v_head_dim=128", "batch=1 heads=1 seq_q=1073741824 seq_kv=1073741824 head_dim=128",
                               "batch=4 heads=12 seq_q=1024 seq_kv=1024 head_dim=64 kernel=standard"}) {
        calls.push_back(parse("attention", "bf16", std::string(rest) + " causal=" + causal + " pass=" + pass));
      }
    }
    for (const char* op : {"softmax", "layernorm", "rmsnorm"}) {
      for (const char* size : {"rows=1 cols=1", "rows=4096 cols=4096", "rows=1 cols=1000000000", "rows=1000000000 cols=1"})
        calls.push_back(parse(op, "bf16", std::string(size) + " pass=" + pass));
    }
    calls.push_back(parse("embedding", "bf16", std::string("tokens=4096 vocab=128256 hidden=4096 pass=") + pass));
    calls.push_back(parse("cross_entropy", "fp32", std::string("tokens=4096 vocab=128256 pass=") + pass));
  }
  for (const char* kind : {"add", "silu_mul", "gelu_backward", "fill", "cast", "dropout"}) {
    for (const char* size : {"1", "1000000", "1000000000000"}) calls.push_back(parse("pointwise", "bf16", std::string("kind=") + kind + " numel=" + size));
  }
  calls.push_back(parse("column_sum", "bf16", "rows=4096 cols=12288"));
  calls.push_back(parse("row_sum", "bf16", "rows=4096 cols=12288"));
  calls.push_back(parse("optimizer", "bf16", "kind=adamw numel=8000000000"));
  for (const char* kind : {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send_recv"}) {
    for (const char* size : {"bytes=8 ranks=8", "bytes=1073741824 ranks=2", "bytes=1073741824 ranks=64 nodes=8", "bytes=4096 ranks=1"}) {
      calls.push_back(parse("collective", "bf16", std::string("kind=") + kind + " " + size));
    }
  }
  return calls;
}

double loss_sum(const KernelTime& time) {
  double sum = 0;
  for (const double loss : time.loss_s) sum += loss;
  return sum;
}

TEST(TimerProperties, EveryCallOnEveryDevice) {
  const std::vector<KernelCall> calls = sample_calls();
  ASSERT_FALSE(devices().empty());
  for (const std::string& name : devices()) {
    const Machine machine = machine_of(name);
    for (const ClockState clocks : {ClockState::automatic, ClockState::sustained}) {
      KernelTimer timer(machine, Mode::model, clocks), ideal(machine, Mode::sol, clocks);
      EXPECT_TRUE(timer.missing_constants().empty()) << name << " " << (timer.missing_constants().empty() ? "" : timer.missing_constants().front());
      for (const KernelCall& call : calls) {
        const std::string what = name + " " + std::string(name_of(call.kernel)) + " " + std::string(name_of(call.dtype)) + " " + print_shape(call);
        const KernelTime& time = timer(call);
        ASSERT_TRUE(std::isfinite(time.time_s)) << what;
        EXPECT_GT(time.time_s, 0) << what;
        EXPECT_NEAR(loss_sum(time), time.time_s - time.peak_s, 1e-9 * time.time_s) << what;
        EXPECT_LE(time.attainable_s, time.time_s * (1 + 1e-12)) << what;
        EXPECT_GT(time.attainable_s, 0) << what;
        EXPECT_GT(time.error_p90, 0) << what;
        EXPECT_FALSE(time.family.empty()) << what;
        for (std::size_t i = 0; i < kLosses; ++i) EXPECT_GE(time.loss_s[i], -1e-9 * time.time_s) << what << " " << kLossNames[i];
        if (!unsupported_reason(call, machine.device).empty()) continue;
        EXPECT_LE(ideal(call).time_s, time.time_s * (1 + 1e-12)) << what;
        if (time.family == "standard_attention" && call.pass == Pass::bwd) continue;  // does not compute the scores again
        EXPECT_GE(static_cast<double>(time.flops_executed), static_cast<double>(work_of(call).flops) * (1 - 1e-9)) << what;
      }
    }
  }
}

TEST(TimerProperties, IdealIsTheRooflineExactly) {
  const Machine machine = machine_of("h100_sxm");
  KernelTimer ideal(machine, Mode::sol, ClockState::automatic);
  // 2 x 4096^3 FLOPs at 989.4 TFLOP/s against 3 x 32 MiB at 3.35 TB/s.
  EXPECT_NEAR(ideal(gemm(4096, 4096, 4096)).time_s, 2.0 * 4096 * 4096 * 4096 / 989.4e12, 1e-12);
  EXPECT_NEAR(ideal(gemm(1, 4096, 4096)).time_s, 2.0 * (4096 + 4096.0 * 4096 + 4096) / 3.35e12, 1e-15);
  EXPECT_NEAR(ideal(parse("pointwise", "bf16", "kind=add numel=1000000")).time_s, 6e6 / 3.35e12, 1e-15);
  EXPECT_EQ(ideal(gemm(4096, 4096, 4096)).bound, Bound::compute);
}

// Multiples of 16: both sizes of a pair then have the same alignment.
std::int64_t random_size(std::mt19937& random, double largest) {
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(std::exp(std::uniform_real_distribution<>(0, std::log(largest))(random)))) * 16;
}

TEST(TimerProperties, DoublingASizeNeverSavesTime) {
  std::mt19937 random(7);
  for (const char* name : {"a100_sxm_80gb", "h100_sxm", "b200_sxm", "l4", "v100_sxm_32gb"}) {
    const Machine machine = machine_of(name);
    KernelTimer timer(machine, Mode::model, ClockState::automatic), burst(machine, Mode::model, ClockState::burst);
    for (int i = 0; i < 300; ++i) {
      const std::int64_t m = random_size(random, 4096), n = random_size(random, 4096), k = random_size(random, 4096);
      const DType dtype = std::string_view(name) == "v100_sxm_32gb" ? DType::fp16 : DType::bf16;
      const double time = timer(gemm(m, n, k, 1, GemmLayout::nt, dtype)).time_s;
      const std::string what = std::string(name) + " " + std::to_string(m) + " " + std::to_string(n) + " " + std::to_string(k);
      EXPECT_GE(timer(gemm(2 * m, n, k, 1, GemmLayout::nt, dtype)).time_s, 0.995 * time) << what;
      EXPECT_GE(timer(gemm(m, 2 * n, k, 1, GemmLayout::nt, dtype)).time_s, 0.995 * time) << what;
      EXPECT_GE(timer(gemm(m, n, 2 * k, 1, GemmLayout::nt, dtype)).time_s, 0.995 * time) << what;
      EXPECT_GE(timer(gemm(m, n, k, 2, GemmLayout::nt, dtype)).time_s, 0.995 * time) << what;
      // At one clock two products in one launch are no slower than two launches, but where one alone splits K and two are too many tiles for that.
      const KernelTime& alone = burst(gemm(m, n, k, 1, GemmLayout::nt, dtype));
      EXPECT_LE(burst(gemm(m, n, k, 2, GemmLayout::nt, dtype)).time_s, 2 * alone.time_s * (alone.split_k > 1 ? 1.25 : 1.01)) << what;
    }
    for (int i = 0; i < 200 && machine.device.architecture >= Architecture::ampere; ++i) {
      AttentionShape s{.batch = 1 + i % 5,
                       .heads = 8,
                       .kv_heads = i % 2 ? 8 : 2,
                       .seq_q = random_size(random, 1000),
                       .seq_kv = 0,
                       .head_dim = i % 3 ? 128 : 64,
                       .v_head_dim = 0,
                       .causal = i % 4 < 2};
      s.seq_kv = s.seq_q;
      s.v_head_dim = s.head_dim;
      KernelCall call{.kernel = KernelClass::attention, .dtype = DType::bf16, .pass = i % 7 ? Pass::fwd : Pass::bwd, .impl = Impl::vendor, .shape = s};
      KernelCall longer = call, more = call;
      std::get<AttentionShape>(longer.shape).seq_q *= 2;
      std::get<AttentionShape>(longer.shape).seq_kv *= 2;
      std::get<AttentionShape>(more.shape).batch *= 2;
      EXPECT_GE(timer(longer).time_s, 0.995 * timer(call).time_s) << name << " " << print_shape(call);
      EXPECT_GE(timer(more).time_s, 0.995 * timer(call).time_s) << name << " " << print_shape(call);
    }
  }
}

TEST(TimerProperties, AFasterDeviceIsNeverSlower) {
  const std::vector<KernelCall> calls = sample_calls();
  for (const char* name : {"a100_sxm_80gb", "h100_sxm", "b200_sxm"}) {
    const Machine machine = machine_of(name);
    Machine wide = machine, fast = machine;
    wide.device.memory_bandwidth *= 2;
    for (MathRate& rate : fast.device.math) rate.peak_flops *= 2, rate.flop_per_clock_per_sm *= 2;
    fast.device.vector_fp32.peak_flops *= 2;
    fast.device.vector_fp32.flop_per_clock_per_sm *= 2;
    KernelTimer timer(machine, Mode::model, ClockState::burst), wider(wide, Mode::model, ClockState::burst), faster(fast, Mode::model, ClockState::burst);
    for (const KernelCall& call : calls) {
      EXPECT_LE(wider(call).time_s, timer(call).time_s * (1 + 1e-9)) << name << " " << print_shape(call);
      EXPECT_LE(faster(call).time_s, timer(call).time_s * (1 + 1e-9)) << name << " " << print_shape(call);
    }
  }
}

TEST(TimerProperties, TransposingTheProductChangesNothing) {
  // C^T = B^T A^T: m and n change places, nt stays nt and nn becomes tt.
  const Machine machine = machine_of("h200_sxm");
  KernelTimer timer(machine, Mode::model, ClockState::automatic);
  for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{4096, 1024, 512}, {8, 8192, 4096}, {640, 1920, 72}}) {
    EXPECT_NEAR(timer(gemm(m, n, k)).time_s, timer(gemm(n, m, k)).time_s, 1e-3 * timer(gemm(m, n, k)).time_s);
    EXPECT_NEAR(timer(gemm(m, n, k, 1, GemmLayout::nn)).time_s, timer(gemm(n, m, k, 1, GemmLayout::tt)).time_s, 1e-3 * timer(gemm(m, n, k)).time_s);
  }
}

TEST(TimerProperties, AlignmentAndQuantizationAreSeen) {
  const Machine machine = machine_of("h100_sxm");
  KernelTimer timer(machine, Mode::model, ClockState::automatic);
  // An odd vocabulary is the cliff; rounding it up to a multiple of 64 pays.
  EXPECT_GT(timer(gemm(4096, 50257, 1024)).time_s, 2 * timer(gemm(4096, 50304, 1024)).time_s);
  EXPECT_GT(timer(gemm(4096, 50257, 1024)).loss_s[static_cast<std::size_t>(Loss::alignment)], 0);
  EXPECT_GT(timer(gemm(4096, 10922, 4096)).time_s, 1.2 * timer(gemm(4096, 10944, 4096)).time_s);
  // 1024 is aligned: 1088 brings more work and no gain.
  EXPECT_GE(timer(gemm(4096, 1088, 1088)).time_s, timer(gemm(4096, 1024, 1024)).time_s);
  EXPECT_EQ(timer(gemm(4096, 1024, 1024)).loss_s[static_cast<std::size_t>(Loss::alignment)], 0);
}

TEST(TimerProperties, StandardAttentionIsTheSumOfItsStages) {
  const Machine machine = machine_of("a100_sxm_80gb");
  KernelTimer timer(machine, Mode::model, ClockState::burst);
  const KernelCall standard = parse("attention", "bf16", "batch=2 heads=16 seq_q=1024 seq_kv=1024 head_dim=64 causal=1 kernel=standard");
  const double stages =
      timer(parse("gemm", "bf16", "m=1024 n=1024 k=64 batch=32 layout=nt")).time_s + timer(parse("pointwise", "bf16", "kind=scale numel=33554432 impl=rooftile")).time_s +
      timer(parse("softmax", "bf16", "rows=32768 cols=1024 pass=fwd impl=rooftile")).time_s + timer(parse("gemm", "bf16", "m=1024 n=64 k=1024 batch=32 layout=nn")).time_s;
  EXPECT_NEAR(timer(standard).time_s, stages, 1e-12);
  EXPECT_LT(timer(parse("attention", "bf16", "batch=2 heads=16 seq_q=1024 seq_kv=1024 head_dim=64 causal=1")).time_s, stages);
}

TEST(TimerProperties, TimesAreRemembered) {
  const Machine machine = machine_of("h100_sxm");
  KernelTimer timer(machine, Mode::model, ClockState::automatic);
  const KernelTime* first = &timer(gemm(4096, 4096, 4096));
  for (int i = 1; i < 1000; ++i) timer(gemm(i * 8, 64, 64));
  EXPECT_EQ(first, &timer(gemm(4096, 4096, 4096)));
  EXPECT_EQ(timer.distinct_calls(), 1000u);
}

}  // namespace
}  // namespace rooftile
