// Laws of the queue between host and GPU, over random lists: more work never takes less time.
#include "estimator/passes/host_queue.h"

#include <gtest/gtest.h>

#include <random>

namespace rooftile {
namespace {

constexpr int kLists = 300;

std::vector<QueueItem> random_list(std::mt19937& random) {
  std::uniform_real_distribution<double> share(0, 1);
  std::vector<QueueItem> items(1 + random() % 40);
  for (QueueItem& item : items) {
    item.host_s = share(random) < 0.1 ? 0 : share(random) * 5e-3;
    item.gpu_s = share(random) < 0.1 ? 0 : share(random) * 5e-3;
    item.first_s = share(random) * item.host_s;
    item.last_s = share(random) * item.gpu_s;
  }
  return items;
}

double end_of(const std::vector<QueueItem>& items) {
  HostQueue queue;
  for (const QueueItem& item : items) queue.run(item);
  return queue.end_s();
}

template <typename Check>
void over_random_lists(const Check& check) {
  std::mt19937 random(20261130);
  for (int i = 0; i < kLists; ++i) {
    const std::vector<QueueItem> items = random_list(random);
    check(items, random);
    if (testing::Test::HasFailure()) return;
  }
}

constexpr double kRounding = 1e-12;

TEST(HostQueueLaws, BetweenTheLongerSideAndTheSumOfBoth) {
  over_random_lists([](const std::vector<QueueItem>& items, std::mt19937&) {
    double host = 0, gpu = 0;
    for (const QueueItem& item : items) host += item.host_s, gpu += item.gpu_s;
    EXPECT_GE(end_of(items), std::max(host, gpu) - kRounding);
    EXPECT_LE(end_of(items), host + gpu + kRounding);
  });
}

TEST(HostQueueLaws, AnotherItemNeverMakesItFaster) {
  over_random_lists([](std::vector<QueueItem> items, std::mt19937& random) {
    const double before = end_of(items);
    const QueueItem more = random_list(random)[0];
    items.insert(items.begin() + static_cast<std::ptrdiff_t>(random() % (items.size() + 1)), more);
    EXPECT_GE(end_of(items), before - kRounding);
  });
}

TEST(HostQueueLaws, LongerItemsNeverMakeItFaster) {
  over_random_lists([](std::vector<QueueItem> items, std::mt19937& random) {
    const double before = end_of(items);
    QueueItem& item = items[random() % items.size()];
    double* parts[] = {&item.host_s, &item.gpu_s, &item.first_s};
    *parts[random() % 3] += 1e-3;
    EXPECT_GE(end_of(items), before - kRounding);
  });
}

TEST(HostQueueLaws, ScalesWithTime) {
  over_random_lists([](std::vector<QueueItem> items, std::mt19937&) {
    const double before = end_of(items);
    for (QueueItem& item : items)
      for (double* part : {&item.host_s, &item.gpu_s, &item.first_s, &item.last_s}) *part *= 2;
    EXPECT_NEAR(end_of(items), 2 * before, kRounding);
  });
}

TEST(HostQueueLaws, AnInfinitelyFastSideVanishes) {
  over_random_lists([](std::vector<QueueItem> items, std::mt19937&) {
    std::vector<QueueItem> host = items, gpu = items;
    double host_s = 0, gpu_s = 0;
    for (QueueItem& item : host) item.gpu_s = item.last_s = 0, host_s += item.host_s;
    for (QueueItem& item : gpu) item.host_s = item.first_s = 0, gpu_s += item.gpu_s;
    EXPECT_NEAR(end_of(host), host_s, kRounding);
    EXPECT_NEAR(end_of(gpu), gpu_s, kRounding);
  });
}

}  // namespace
}  // namespace rooftile
