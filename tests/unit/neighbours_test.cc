// Pairs of neighbouring sizes: which are judged, and which count as right.
#include "validate/neighbours.h"

#include <gtest/gtest.h>

namespace rooftile {
namespace {

FitRow row(std::int64_t m, std::int64_t n, std::int64_t k, double measured_s, GemmLayout layout = GemmLayout::nt) {
  FitRow r;
  r.call = {.kernel = KernelClass::gemm, .dtype = DType::bf16, .shape = GemmShape{.m = m, .n = n, .k = k, .layout = layout, .out = DType::bf16}};
  r.measured_s = measured_s, r.protocol = "rooftile";
  return r;
}

TEST(Neighbours, TimePerUsefulFlopNotTimeIsCompared) {
  const std::vector<FitRow> rows = {row(1024, 1024, 1024, 10e-6), row(1280, 1024, 1024, 14e-6)};
  const auto pairs = neighbour_pairs({{&rows[0], 10e-6}, {&rows[1], 12e-6}});
  ASSERT_EQ(pairs.size(), 1u);
  EXPECT_NEAR(pairs[0].measured, 1.12, 1e-9);
  EXPECT_NEAR(pairs[0].predicted, 0.96, 1e-9);
  EXPECT_FALSE(pairs[0].right());
  const OrderCount count = count_order(pairs);
  EXPECT_EQ(count.pairs, 1);
  EXPECT_EQ(count.right, 0);
  EXPECT_EQ(count.far_pairs, 1);
}

TEST(Neighbours, SeveralSizesMayDifferButEachByAQuarterAtMost) {
  const std::vector<FitRow> rows = {row(1000, 1000, 1000, 10e-6), row(1200, 800, 1000, 12e-6), row(1000, 1000, 1251, 20e-6)};
  const auto pairs = neighbour_pairs({{&rows[0], 10e-6}, {&rows[1], 12e-6}, {&rows[2], 20e-6}});
  ASSERT_EQ(pairs.size(), 1u);
  EXPECT_TRUE(pairs[0].right());
}

TEST(Neighbours, OtherLayoutsSmallDifferencesAndRepeatsAreNoPairs) {
  const std::vector<FitRow> rows = {row(1024, 1024, 1024, 10e-6), row(1024, 1024, 1024, 13e-6), row(1024, 1024, 1088, 14e-6, GemmLayout::nn), row(1024, 1032, 1024, 10.5e-6)};
  std::vector<JudgedRow> judged;
  for (const FitRow& r : rows) judged.push_back({&r, r.measured_s});
  EXPECT_TRUE(neighbour_pairs(judged).empty());
}

}  // namespace
}  // namespace rooftile
