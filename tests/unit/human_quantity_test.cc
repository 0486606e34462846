#include "report/quantity.h"

#include <gtest/gtest.h>

namespace rooftile {
namespace {

TEST(HumanQuantity, HumanHasThreeDigitsAndAPrefix) {
  EXPECT_EQ(human(1.2345e-3, "s"), "1.23 ms");
  EXPECT_EQ(human(989.4e12, "FLOP/s"), "989 TFLOP/s");
  EXPECT_EQ(human(80e9, "B"), "80 GB");
  EXPECT_EQ(human(0, "s"), "0 s");
  EXPECT_EQ(human(999.6e-6, "s"), "1 ms");  // not 1000 µs
  EXPECT_EQ(human(4.1e-6, "s"), "4.1 µs");
  EXPECT_EQ(human(12345, "s"), "12345 s");
  EXPECT_EQ(human(4e19, "FLOP"), "40 EFLOP");
}

TEST(HumanQuantity, Counts) {
  EXPECT_EQ(human_count(8.03e9), "8.03 B");
  EXPECT_EQ(human_count(410e9), "410 B");
  EXPECT_EQ(human_count(1.2e12), "1.2 T");
  EXPECT_EQ(human_count(124.4e6), "124 M");
  EXPECT_EQ(human_count(0), "0");
  EXPECT_EQ(human_count(12), "12");
  EXPECT_EQ(human_count(3e18), "3e+18");
}

TEST(HumanQuantity, Significant) {
  EXPECT_EQ(significant(1234.6), "1235");
  EXPECT_EQ(significant(0.012345), "0.0123");
  EXPECT_EQ(significant(3.5), "3.5");
  EXPECT_EQ(significant(0), "0");
}

TEST(HumanQuantity, Grouped) {
  EXPECT_EQ(grouped(1234567), "1,234,567");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(-1000), "-1,000");
  EXPECT_EQ(grouped(-100), "-100");
  EXPECT_EQ(rounded(10674.7), "10,675");
  EXPECT_EQ(rounded(1e300), "1.00e+300");
}

TEST(HumanQuantity, Percent) {
  EXPECT_EQ(percent(0.5184), "51.8 %");
  EXPECT_EQ(percent(0.0004), "<0.1 %");
  EXPECT_EQ(percent(0), "0 %");
  EXPECT_EQ(percent(1), "100 %");
  EXPECT_EQ(percent(12), "1200 %");
}

TEST(HumanQuantity, WidthCountsCodePointsAndNoColours) {
  EXPECT_EQ(display_width("abc"), 3u);
  EXPECT_EQ(display_width("µs"), 2u);
  EXPECT_EQ(display_width("\x1b[1;31mred\x1b[0m"), 3u);
}

TEST(HumanQuantity, PrintableEscapesControlAndForeignBytes) {
  EXPECT_EQ(printable("a\x1b[2J\xff"), "a\\x1b[2J\\xff");
  EXPECT_EQ(printable("größe"), "größe");
}

}  // namespace
}  // namespace rooftile
