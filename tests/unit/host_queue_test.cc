// Host and GPU working through one list: who waits for whom.
#include "estimator/passes/host_queue.h"

#include <gtest/gtest.h>

namespace rooftile {
namespace {

double after(int items, const QueueItem& item, int waits_at = -1) {
  HostQueue queue;
  for (int i = 0; i < items; ++i) {
    QueueItem here = item;
    here.waits = i == waits_at;
    queue.run(here);
  }
  return queue.end_s();
}

TEST(HostQueue, TheSlowerOfBothSetsThePace) {
  EXPECT_DOUBLE_EQ(after(10, {2, 1, 2, 1, false}), 21);  // kernels at the end of each item: 20 and the last kernel
  EXPECT_DOUBLE_EQ(after(10, {1, 2, 0, 0, false}), 20);
}

TEST(HostQueue, AReadCostsTheHostItsLead) {
  const QueueItem item{1, 2, 1, 2, false};  // the GPU starts an item when the host has issued it
  EXPECT_DOUBLE_EQ(after(10, item), 21);
  EXPECT_DOUBLE_EQ(after(10, item, 4), 22);  // after the fifth the GPU stands still until the sixth is issued
  HostQueue queue;
  queue.run({0, 10, 0, 0, true});
  for (int i = 0; i < 4; ++i) queue.run({3, 1, 3, 1, false});
  EXPECT_DOUBLE_EQ(queue.end_s(), 10 + 4 * 3 + 1);  // without the read the host would have been ahead
}

}  // namespace
}  // namespace rooftile
