#include "validate/simplex.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "validate/torch_constants.h"

namespace rooftile {
namespace {

TEST(Simplex, FindsAKinkWhenStartedAgain) {
  const auto kinked = [](std::span<const double> x) { return std::abs(x[0] - 1) + std::abs(x[1] + 2); };
  std::vector<double> x = {0, 0};
  for (int again = 0; again < 4; ++again) x = minimise(kinked, x, {0.5, 0.5}, 300);
  EXPECT_NEAR(x[0], 1, 1e-3);
  EXPECT_NEAR(x[1], -2, 1e-3);
}

TEST(Simplex, OneDimensionAndValuesThatAreNoNumbers) {
  const auto hole = [](std::span<const double> x) { return x[0] < 0 ? std::numeric_limits<double>::quiet_NaN() : (x[0] - 3) * (x[0] - 3); };
  EXPECT_NEAR(minimise(hole, {0.1}, {-0.5}, 200)[0], 3, 1e-2);
}

TEST(Simplex, StopsAfterItsEvaluations) {
  std::size_t calls = 0;
  minimise([&](std::span<const double> x) { return ++calls, -x[0]; }, {0.0}, {1.0}, 50);
  EXPECT_LE(calls, 54u);
}

TEST(TorchConstants, WalksAndTheirKin) {
  EXPECT_EQ(torch_kin("gelu"), "sigmoid");
  EXPECT_EQ(torch_kin("vector"), "");
  EXPECT_EQ(torch_generation("gelu"), 2);
  EXPECT_EQ(torch_fields("copy_engine"), std::vector<std::string_view>{"efficiency"});
  for (const std::string_view walk : {"vector", "layernorm", "log_softmax", "topk", "sort", "few_rows"}) {
    for (const std::string_view field : torch_fields(walk)) {
      EXPECT_EQ(torch_bounds(field).field, field);
      EXPECT_LE(torch_bounds(field).lowest, torch_bounds(field).neutral) << field;
      EXPECT_LE(torch_bounds(field).neutral, torch_bounds(field).highest) << field;
    }
  }
}

}  // namespace
}  // namespace rooftile
