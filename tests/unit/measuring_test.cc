// Plan, measurement lines, replay, sessions and comparison: everything of measuring that needs no GPU.
#include <gtest/gtest.h>

#include <set>

#include "validate/campaign.h"
#include "validate/campaign_builder.h"
#include "validate/compare.h"
#include "validate/plan.h"
#include "validate/session.h"

namespace rooftile {
namespace {

Measurement measured(const KernelCall& call, double time_s, double spread_s = 0) {
  Measurement m;
  m.call = call;
  m.measured_s = time_s;
  m.spread_s = spread_s;
  m.gpu = "Some GPU, \"the\" first";
  m.method = "graph calls=4 sets=2";
  return m;
}

MeasurementTable table_of(const std::vector<Measurement>& rows) {
  std::string text = measurement_header();
  for (const Measurement& m : rows) text += measurement_line(m);
  auto table = parse_measurements(text, "recorded.csv");
  EXPECT_TRUE(table.has_value());
  return *table;
}

// Counts what it is asked and answers with a time that grows with the count.
class CountingRunner final : public Runner {
 public:
  std::vector<KernelCall> asked;
  std::string reason;

 private:
  Measurement do_measure(const KernelCall& call, const RunOptions& options) override {
    asked.push_back(call);
    Measurement m = measured(call, 1e-6 * static_cast<double>(asked.size()));
    m.clocks = options.clocks;
    if (!reason.empty()) {
      m.measured_s = 0;
      m.reason = reason;
    }
    return m;
  }
  std::string do_description() const override { return "counting"; }
};

OpRow row_of(const KernelCall& call, std::int64_t count) {
  OpRow row;
  row.call = call;
  row.count = count;
  return row;
}

TEST(Plan, MergesEqualCallsAndKeepsTheOrder) {
  const KernelCall a = make_gemm_call(128, 256, 64, GemmLayout::nt), b = make_gemm_call(128, 256, 64, GemmLayout::nn);
  const std::vector<OpRow> rows = {row_of(a, 12), row_of(b, 3), row_of(a, 2), row_of(make_gemm_call(1, 1, 1, GemmLayout::nt), 0)};
  const auto plan = plan_of(rows);
  ASSERT_EQ(plan.size(), 2u);
  EXPECT_EQ(plan[0].call, a);
  EXPECT_EQ(plan[0].count, 14);
  EXPECT_EQ(plan[1].count, 3);
}

TEST(Plan, BlocksAreLayersInTheOrderOfTheStep) {
  const auto row = [](std::int64_t m, std::int64_t count, std::string_view segment, StepPhase phase) {
    OpRow r = row_of(make_gemm_call(m, 8, 8, GemmLayout::nt), count);
    r.segment = segment;
    r.phase = phase;
    return r;
  };
  const std::vector<OpRow> rows = {row(1, 1, "embedding", StepPhase::forward),    row(2, 12, "layer", StepPhase::forward),  row(3, 12, "layer", StepPhase::forward),
                                   row(4, 12, "layer", StepPhase::communication), row(5, 12, "layer", StepPhase::backward), row(6, 24, "layer", StepPhase::backward)};
  const auto blocks = blocks_of(rows);
  ASSERT_EQ(blocks.size(), 4u);
  EXPECT_EQ(blocks[1].repeat, 12);
  EXPECT_EQ(blocks[1].calls.size(), 2u);
  EXPECT_EQ(blocks[2].calls.size(), 1u);
  EXPECT_EQ(blocks[3].repeat, 24);
}

TEST(Compare, PredictedCallsAreOfOneInstance) {
  OpRow a = row_of(make_gemm_call(64, 64, 64, GemmLayout::nt), 10), again = a, sent = row_of(make_gemm_call(1, 1, 1, GemmLayout::nt), 4);
  a.time_s = 20e-6;
  again.count = 5;
  again.time_s = 10e-6;
  sent.phase = StepPhase::communication;
  sent.time_s = 0;  // hidden
  sent.duration_s = 8e-6;
  const std::vector<OpRow> rows = {a, again, sent};
  const auto calls = predicted_calls(rows);
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[0].count, 15);
  EXPECT_NEAR(calls[0].time_s, 2e-6, 1e-15);
  EXPECT_NEAR(calls[1].time_s, 2e-6, 1e-15);
}

TEST(MeasurementLine, IsReadBackAsTheSameCallAndTime) {
  const Measurement m = measured(make_gemm_call(4096, 1024, 512, GemmLayout::tn, DType::fp8_e4m3), 12.345678e-6, 0.05e-6);
  const MeasurementTable table = table_of({m});
  ASSERT_EQ(table.rows.size(), 1u);
  const MeasuredCall read = measured_call(table, table.rows[0]);
  ASSERT_TRUE(read.call.has_value());
  EXPECT_EQ(*read.call, m.call);
  EXPECT_NEAR(read.measured_s, m.measured_s, 1e-5 * m.measured_s);
  EXPECT_EQ(table.field(table.rows[0], "gpu"), m.gpu);  // commas and quotes survive
}

TEST(MeasurementLine, KeepsAReasonInPlaceOfATime) {
  Measurement m = measured(make_gemm_call(8, 8, 8, GemmLayout::tt), 0);
  m.reason = "cuBLASLt has no algorithm,\nfor this";
  const MeasurementTable table = table_of({m});
  EXPECT_EQ(table.field(table.rows[0], "measured_us"), "");
  EXPECT_EQ(table.field(table.rows[0], "reason"), "cuBLASLt has no algorithm, for this");
}

TEST(RecordedRunner, ReplaysByCallAndClocks) {
  const KernelCall call = make_gemm_call(512, 512, 512, GemmLayout::nt);
  Measurement burst = measured(call, 5e-6), sustained = measured(call, 6e-6);
  sustained.clocks = ClockState::sustained;
  const auto runner = make_recorded_runner(table_of({burst, sustained}));
  RunOptions options;
  EXPECT_NEAR(runner->measure(call, options).measured_s, 5e-6, 1e-10);
  options.clocks = ClockState::sustained;
  EXPECT_NEAR(runner->measure(call, options).measured_s, 6e-6, 1e-10);
  const Measurement missing = runner->measure(make_gemm_call(1, 2, 3, GemmLayout::nt), options);
  EXPECT_FALSE(missing.ok());
  EXPECT_EQ(missing.reason, "not recorded in recorded.csv");
}

TEST(RecordedRunner, GivesOwnKernelsForPyTorchsOnlyWhenAsked) {
  const KernelCall own = make_row_call(KernelClass::rmsnorm, 128, 512, Pass::fwd);
  KernelCall torch = own;
  torch.impl = Impl::torch;
  const auto runner = make_recorded_runner(table_of({measured(own, 3e-6)}));
  RunOptions options;
  EXPECT_FALSE(runner->measure(torch, options).ok());
  options.own_for_torch = true;
  const Measurement m = runner->measure(torch, options);
  EXPECT_TRUE(m.ok());
  EXPECT_EQ(m.call.impl, Impl::rooftile);
}

TEST(NoneRunner, RefusesWithItsReason) {
  const auto runner = make_none_runner("no driver");
  const Measurement m = runner->measure(make_gemm_call(1, 1, 1, GemmLayout::nt), {});
  EXPECT_FALSE(m.ok());
  EXPECT_EQ(m.reason, "no driver");
  EXPECT_NE(runner->description().find("no driver"), std::string::npos);
}

TEST(Session, MeasuresEachCallOnceAndResumes) {
  const std::vector<KernelCall> calls = {make_gemm_call(64, 64, 64, GemmLayout::nt), make_gemm_call(64, 64, 128, GemmLayout::nt), make_gemm_call(64, 64, 64, GemmLayout::nt)};
  CountingRunner first;
  std::vector<Measurement> written;
  MeasuringOptions options;
  options.sink = [&](const Measurement& m) { written.push_back(m); };
  options.interrupted = [&] { return written.size() == 1; };
  const MeasuringResult stopped = measure_all(first, calls, options);
  EXPECT_EQ(stopped.end, EndOf::interrupt);
  ASSERT_EQ(written.size(), 1u);  // what was measured before the interrupt is kept

  CountingRunner second;
  options.interrupted = nullptr;
  const MeasuringResult rest = measure_all(second, calls, options, keys_of(table_of(written)));
  EXPECT_EQ(rest.end, EndOf::list);
  EXPECT_EQ(rest.skipped, 2u);
  ASSERT_EQ(second.asked.size(), 1u);
  EXPECT_EQ(second.asked[0], calls[1]);
}

TEST(Session, ResumingTellsProtocolsApart) {
  const std::vector<KernelCall> calls = {make_gemm_call(64, 64, 64, GemmLayout::nt)};
  Measurement cold = measured(calls[0], 1e-6), warm = cold;
  warm.method += " warm";
  MeasuringOptions options;
  options.run.cold = false;
  CountingRunner runner;
  EXPECT_EQ(measure_all(runner, calls, options, keys_of(table_of({cold}))).skipped, 0u);
  EXPECT_EQ(measure_all(runner, calls, options, keys_of(table_of({warm}))).skipped, 1u);
}

TEST(Session, StopsAtTheBudget) {
  std::vector<KernelCall> calls;
  for (std::int64_t m = 1; m <= 100; ++m) calls.push_back(make_gemm_call(m, 8, 8, GemmLayout::nt));
  CountingRunner runner;
  MeasuringOptions options;
  options.budget_s = 10;
  options.now_s = [&] { return static_cast<double>(runner.asked.size()); };  // one second a kernel
  const MeasuringResult result = measure_all(runner, calls, options);
  EXPECT_EQ(result.end, EndOf::budget);
  EXPECT_EQ(result.measurements.size(), 10u);
}

TEST(Session, GivesUpWhenTheDeviceIsGone) {
  std::vector<KernelCall> calls;
  for (std::int64_t m = 1; m <= 100; ++m) calls.push_back(make_gemm_call(m, 8, 8, GemmLayout::nt));
  CountingRunner runner;
  runner.reason = "cudaMalloc: unspecified launch failure";
  MeasuringOptions options;
  options.failures_in_a_row = 7;
  const MeasuringResult result = measure_all(runner, calls, options);
  EXPECT_EQ(result.end, EndOf::device);
  EXPECT_EQ(result.measurements.size(), 7u);
}

TEST(Session, EndsAtOnceWhenTheRunnerLosesItsDevice) {
  class LostRunner final : public Runner {
    Measurement do_measure(const KernelCall& call, const RunOptions&) override {
      Measurement m;
      m.call = call;
      m.reason = "an illegal memory access was encountered";
      m.device_lost = true;
      return m;
    }
    std::string do_description() const override { return "lost"; }
  } runner;
  const std::vector<KernelCall> calls = {make_gemm_call(1, 8, 8, GemmLayout::nt), make_gemm_call(2, 8, 8, GemmLayout::nt)};
  const MeasuringResult result = measure_all(runner, calls, {});
  EXPECT_EQ(result.end, EndOf::device);
  EXPECT_EQ(result.measurements.size(), 1u);  // the row that did it is kept, so that the next start goes on behind it
}

TEST(Verdict, DecidesOnlyWhereIntervalsDo) {
  EXPECT_EQ(verdict_of({9, 11}, {9.9, 10.1}), Verdict::match);
  EXPECT_EQ(verdict_of({9, 11}, {10.9, 13}), Verdict::ambiguous);
  EXPECT_EQ(verdict_of({9, 11}, {12, 12.4}), Verdict::slow);
  EXPECT_EQ(verdict_of({9, 11}, {7, 8}), Verdict::fast);
  EXPECT_EQ(verdict_of({8, 12}, {7, 13.4}), Verdict::match);  // each centre lies in the other's interval
  EXPECT_EQ(verdict_of({9, 11}, {0, 0}), Verdict::unknown);
}

TEST(Verdict, IntervalsHaveAFloor) {
  const Interval m = measured_interval(100, 0.1);
  EXPECT_DOUBLE_EQ(m.low, 99);
  EXPECT_DOUBLE_EQ(m.high, 101);
  EXPECT_DOUBLE_EQ(measured_interval(100, 3).high, 106);
  EXPECT_DOUBLE_EQ(predicted_interval(100, 0.2).low, 80);
  EXPECT_GT(predicted_interval(100, 5).low, 0);  // an error above 100 % must not give a negative time
}

TEST(Compare, JoinsSumsAndJudges) {
  const KernelCall a = make_gemm_call(512, 512, 512, GemmLayout::nt), b = make_gemm_call(512, 512, 1024, GemmLayout::nt),
                   c = make_row_call(KernelClass::softmax, 64, 64, Pass::fwd);
  Measurement refused = measured(c, 0);
  refused.reason = "no kernel";
  const Comparison comparison = compare({{a, 10, 11e-6, 0.1}, {b, 2, 10e-6, 0.1}, {c, 5, 2e-6, 0.1}}, {measured(b, 20e-6), measured(a, 10e-6), refused});
  ASSERT_EQ(comparison.rows.size(), 3u);
  EXPECT_NEAR(comparison.rows[0].ratio, 1.1, 1e-12);
  EXPECT_EQ(comparison.rows[0].verdict, Verdict::ambiguous);  // predicted 9.9-12.1, measured 9.9-10.1: they touch, the centres are apart
  EXPECT_EQ(comparison.rows[1].verdict, Verdict::slow);
  EXPECT_EQ(comparison.rows[2].verdict, Verdict::unknown);
  EXPECT_EQ(comparison.rows[2].reason, "no kernel");
  EXPECT_NEAR(comparison.predicted_s, 130e-6, 1e-12);
  EXPECT_NEAR(comparison.measured_s, 140e-6, 1e-12);
  EXPECT_NEAR(comparison.missing_s, 10e-6, 1e-12);
  ASSERT_EQ(comparison.families.size(), 3u);  // gemm, softmax, all
  EXPECT_EQ(comparison.families[0].errors.rows, 2u);
  EXPECT_NEAR(comparison.families[0].errors.mean, 0.3, 1e-12);  // +10 % and -50 %
  EXPECT_NEAR(comparison.families[0].errors.bias, -0.2, 1e-12);
  EXPECT_EQ(comparison.families[1].unknown, 1u);
  EXPECT_EQ(comparison.families[2].slow, 1u);
}

TEST(Campaign, HasTheSizesAndTheKindsItPromises) {
  const auto gemm = campaign(CampaignPart::gemm);
  EXPECT_GE(gemm.size(), 3000u);
  std::set<DType> dtypes;
  std::set<GemmLayout> layouts;
  std::size_t batched = 0, thin = 0, misaligned = 0, accumulating = 0, with_epilogue = 0;
  for (const KernelCall& call : gemm) {
    const GemmShape& s = call.gemm();
    dtypes.insert(call.dtype);
    layouts.insert(s.layout);
    batched += s.batch > 1;
    thin += s.m <= 16;
    misaligned += s.n % 8 != 0 || s.k % 8 != 0 || s.m % 8 != 0;
    accumulating += s.accumulate;
    with_epilogue += s.epilogue != Epilogue::none;
  }
  EXPECT_EQ(dtypes, (std::set<DType>{DType::bf16, DType::fp16, DType::tf32, DType::fp32, DType::fp8_e4m3}));
  EXPECT_EQ(layouts.size(), 4u);
  EXPECT_GE(batched, 150u);
  EXPECT_GE(thin, 80u);
  EXPECT_GE(misaligned, 200u);
  EXPECT_GE(accumulating, 80u);
  EXPECT_GE(with_epilogue, 100u);
  const auto attention = campaign(CampaignPart::attention);
  EXPECT_GE(attention.size(), 500u);
  std::size_t backward = 0, windowed = 0, decode = 0, grouped = 0;
  for (const KernelCall& call : attention) {
    backward += call.pass == Pass::bwd;
    windowed += call.attention().window > 0;
    decode += call.attention().seq_q == 1;
    grouped += call.attention().heads != call.attention().kv_heads;
  }
  EXPECT_GE(backward, 120u);
  EXPECT_GE(windowed, 15u);
  EXPECT_GE(decode, 60u);
  EXPECT_GE(grouped, 100u);
  EXPECT_GE(campaign(CampaignPart::rows).size() + campaign(CampaignPart::pointwise).size(), 1000u);
}

TEST(Campaign, IsTheSameEachTimeDistinctAndParseable) {
  for (const std::string& name : campaign_part_names()) {
    const CampaignPart part = *parse_campaign_part(name);
    const auto calls = campaign(part, 2);
    EXPECT_EQ(calls, campaign(part, 2)) << name;
    EXPECT_GT(calls.size(), 20u) << name;
    std::set<std::string> keys;
    for (const KernelCall& call : calls) {
      EXPECT_TRUE(keys.insert(measurement_key(call, ClockState::burst, "cold")).second) << name << " " << print_shape(call);
      const auto parsed = parse_kernel(name_of(call.kernel), name_of(call.dtype), print_shape(call), name_of(call.impl));
      ASSERT_TRUE(parsed.has_value()) << name << " " << print_shape(call) << ": " << parsed.error().message;
      EXPECT_EQ(*parsed, call) << name << " " << print_shape(call);
    }
  }
}

// The numbers behind the lists are fixed: a change of the generator would orphan what was measured.
TEST(Campaign, GeneratorIsSplitMix64) {
  CampaignRandom random(1234567);
  EXPECT_EQ(random.bits(), 6457827717110365317ull);
  EXPECT_EQ(random.bits(), 3203168211198807973ull);
  EXPECT_EQ(random.bits(), 9817491932198370423ull);
}

TEST(Campaign, ShardsArePartsOfTheWhole) {
  const auto all = campaign(CampaignPart::attention);
  std::size_t sum = 0;
  for (std::size_t i = 0; i < 3; ++i) sum += shard(all, i, 3).size();
  EXPECT_EQ(sum, all.size());
  EXPECT_EQ(shard(all, 1, 3)[0], all[1]);
}

}  // namespace
}  // namespace rooftile
