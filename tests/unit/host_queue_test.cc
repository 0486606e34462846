// Host and GPU working through a list by hand, and what of it a whole step shows.
#include "estimator/passes/host_queue.h"

#include <gtest/gtest.h>

#include <memory>

#include "estimator/passes/predict.h"
#include "frontends/expand.h"
#include "frontends/hardware_files.h"
#include "frontends/model_files.h"

namespace rooftile {
namespace {

TEST(HostQueue, EmptyTakesNoTime) { EXPECT_EQ(HostQueue().end_s(), 0); }

TEST(HostQueue, HostBound) {
  // The GPU is done with an item 1 ms after its last launch and waits 1 ms for the next.
  HostQueue queue;
  for (int i = 0; i < 10; ++i) queue.run({2e-3, 1e-3, 2e-3, 1e-3});
  EXPECT_NEAR(queue.end_s(), 21e-3, 1e-12);
}

TEST(HostQueue, GpuBound) {
  // The host is ahead after the first launch: 0.5 ms until it, then the GPU never waits.
  HostQueue queue;
  for (int i = 0; i < 4; ++i) queue.run({1e-3, 3e-3, 0.5e-3, 1e-3});
  EXPECT_NEAR(queue.end_s(), 0.5e-3 + 4 * 3e-3, 1e-12);
}

TEST(HostQueue, AlternatingItemsLendTimeToEachOther) {
  // A costs the host 4 ms and the GPU 1, B the host 1 and the GPU 6; first launches after 1 and 0.5 ms, last kernels of 0.5 and 1 ms.
  //   A: host until 4, GPU until 4.5 (its last kernel is launched at 4)     B: host until 5, GPU 4.5 to 10.5
  //   A: host until 9, GPU 10.5 to 11.5                                     B: host until 10, GPU 11.5 to 17.5
  HostQueue queue;
  const QueueItem a{4e-3, 1e-3, 1e-3, 0.5e-3}, b{1e-3, 6e-3, 0.5e-3, 1e-3};
  queue.run(a);
  EXPECT_NEAR(queue.end_s(), 4.5e-3, 1e-12);
  queue.run(b);
  EXPECT_NEAR(queue.end_s(), 10.5e-3, 1e-12);
  queue.run(a);
  EXPECT_NEAR(queue.end_s(), 11.5e-3, 1e-12);
  queue.run(b);
  EXPECT_NEAR(queue.end_s(), 17.5e-3, 1e-12);
}

TEST(HostQueue, ThreeRoundsSettle) {
  // One round: host 5 ms in two items, GPU 2 ms. From the second round on each takes the host's 5 ms.
  HostQueue queue;
  double ends[3];
  for (double& end : ends) {
    queue.run({3e-3, 1e-3, 1e-3, 1e-3});
    queue.run({2e-3, 1e-3, 1e-3, 1e-3});
    end = queue.end_s();
  }
  EXPECT_NEAR(ends[0], 6e-3, 1e-12);
  EXPECT_NEAR(ends[1], 11e-3, 1e-12);
  EXPECT_NEAR(ends[2], 16e-3, 1e-12);
}

TEST(HostQueue, WorkWithoutKernelsCostsTheHostAlone) {
  HostQueue queue;
  queue.run({1e-3, 0, 1e-3, 0});
  EXPECT_NEAR(queue.end_s(), 1e-3, 1e-15);
  queue.run({1e-3, 5e-3, 1e-3, 5e-3});
  EXPECT_NEAR(queue.end_s(), 7e-3, 1e-15);
  queue.run({3e-3, 0, 3e-3, 0});  // hidden behind the GPU
  EXPECT_NEAR(queue.end_s(), 7e-3, 1e-15);
}

TEST(HostQueue, AReadCostsTheHostItsLead) {
  // The GPU, at 2 ms an item, starts one when the host has issued it; a read behind the fifth lets it stand still until the sixth is issued.
  for (const bool reads : {false, true}) {
    HostQueue queue;
    for (int i = 0; i < 10; ++i) queue.run({1e-3, 2e-3, 1e-3, 2e-3, reads && i == 4});
    EXPECT_NEAR(queue.end_s(), reads ? 22e-3 : 21e-3, 1e-12);
  }
  // Long work, a read, then items that the host is slower at: without the read it would have been ahead.
  HostQueue queue;
  queue.run({0, 10e-3, 0, 0, true});
  for (int i = 0; i < 4; ++i) queue.run({3e-3, 1e-3, 3e-3, 1e-3});
  EXPECT_NEAR(queue.end_s(), 10e-3 + 4 * 3e-3 + 1e-3, 1e-12);
}

// Whole steps of a small model in eager mode on an H200.
class HostBoundSteps : public testing::Test {
 protected:
  Totals totals(std::int64_t mbs, std::int64_t seq, std::int64_t micro_batches = 1, const char* runtime = "torch-eager", bool graphs = false, double host_error = 0) {
    Options options;
    options.precision = Precision::pure;
    options.mbs = mbs;
    options.seq = seq;
    options.gbs = mbs * micro_batches;
    options.cuda_graphs = graphs;
    Runtime with = *read_runtime(*data_.find(DataKind::runtime, runtime));
    with.errors = {0.01, 0, host_error};
    return predict(*expand(spec_, options), options, machine_, with, timer_)->totals;
  }

  DataPath data_{{ROOFTILE_SOURCE_DIR}};
  ModelSpec spec_ = *read_yaml_model(*read_text(*data_.find(DataKind::model, "gpt2")), "gpt2");
  Machine machine_ = *load_machine(data_, "h200_sxm", "", "");
  KernelTimer timer_{machine_, Mode::calibrated, ClockState::burst};
};

TEST_F(HostBoundSteps, SmallStepsWaitForTheHostLargeOnesDoNot) {
  const Totals small = totals(1, 16), large = totals(32, 1024);
  EXPECT_GT(small.host_bound_time_s, 0.7 * small.step_time_s);
  EXPECT_LT(large.host_bound_time_s, 0.02 * large.step_time_s);
}

TEST_F(HostBoundSteps, GraphsAndRuntimesWithoutAHostDoNotWait) {
  EXPECT_EQ(totals(1, 16, 1, "torch-eager", true).host_bound_time_s, 0);
  EXPECT_EQ(totals(1, 16, 1, "fused").host_bound_time_s, 0);
}

TEST_F(HostBoundSteps, ASlowerHostTakesLonger) {
  // The upper end of the interval is the step with a slower host: a fifth of error, 1.28 of which it is slower, on a step that nearly all is the host's.
  const double step = totals(1, 16).step_time_s;
  EXPECT_NEAR(totals(1, 16, 1, "torch-eager", false, 0.2).step_time_high_s, (1 + 1.28 * 0.2) * step, 0.03 * step);
  double before = step;
  for (const double error : {0.1, 0.2, 0.5, 1.0, 3.0}) {
    const double now = totals(1, 16, 1, "torch-eager", false, error).step_time_high_s;
    EXPECT_GT(now, before) << error;
    before = now;
  }
}

TEST_F(HostBoundSteps, MicroBatchesBeyondTheThirdWaitAsLongAsIt) {
  const double three = totals(1, 16, 3).host_bound_time_s, four = totals(1, 16, 4).host_bound_time_s, five = totals(1, 16, 5).host_bound_time_s;
  EXPECT_GT(four, three);
  EXPECT_NEAR(five - four, four - three, 1e-9 * five);
  // and each of them takes longer than a third of what three take with the step's own cost
  EXPECT_GT(3 * (four - three), 0.5 * three);
}

TEST_F(HostBoundSteps, TheIntervalIsWiderWhereTheHostIsTheLimit) {
  const Totals small = totals(1, 16, 1, "torch-eager", false, 0.2), large = totals(32, 1024, 1, "torch-eager", false, 0.2);
  const auto width = [](const Totals& t) { return (t.step_time_high_s - t.step_time_low_s) / t.step_time_s; };
  EXPECT_GT(width(small), 2 * width(large));
}

}  // namespace
}  // namespace rooftile
