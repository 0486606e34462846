#include "estimator/core/quantity.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace rooftile {
namespace {

Quantity read(const std::string& text) {
  const Result<Quantity> quantity = parse_quantity(text);
  EXPECT_TRUE(quantity.has_value()) << text << ": " << (quantity ? "" : describe(quantity.error()));
  return quantity.value_or(Quantity{});
}

TEST(Quantity, ReadsWhatDataSheetsWrite) {
  EXPECT_EQ(read("4.8 TB/s"), (Quantity{4.8e12, "B/s"}));
  EXPECT_EQ(read("989.4 TFLOP/s"), (Quantity{989.4e12, "FLOP/s"}));
  EXPECT_EQ(read("1830 MHz"), (Quantity{1830e6, "Hz"}));
  EXPECT_EQ(read("80 GB"), (Quantity{80e9, "B"}));
  EXPECT_EQ(read("50 MiB"), (Quantity{52428800, "B"}));
  EXPECT_EQ(read("64 KiB"), (Quantity{65536, "B"}));
  EXPECT_DOUBLE_EQ(read("2.8 us").value, 2.8e-6);
  EXPECT_EQ(read("2 \xC2\xB5s").unit, "s");
  EXPECT_EQ(read("4096 FLOP/clock/SM"), (Quantity{4096, "FLOP/clock/SM"}));
  EXPECT_EQ(read("16 1/clock/SM"), (Quantity{16, "1/clock/SM"}));
  EXPECT_EQ(read("700W"), (Quantity{700, "W"}));
  EXPECT_EQ(read("12"), (Quantity{12, "1"}));
  EXPECT_EQ(read("2 %"), (Quantity{0.02, "1"}));
  EXPECT_EQ(read("1,980 MHz"), (Quantity{1980e6, "Hz"}));
  EXPECT_EQ(read("65_536 B"), (Quantity{65536, "B"}));
  EXPECT_EQ(read("-3e2 B"), (Quantity{-300, "B"}));
  EXPECT_EQ(read("1e3B"), (Quantity{1000, "B"}));
  EXPECT_EQ(read("1 EB"), (Quantity{1e18, "B"}));
  EXPECT_DOUBLE_EQ(read("400 Gbit/s").value, 50e9);
  EXPECT_EQ(read("400 Gbit/s").unit, "B/s");
}

TEST(Quantity, DecimalAndBinaryPrefixesStayApart) {
  EXPECT_EQ(read("1 kB").value, 1000);
  EXPECT_EQ(read("1 KiB").value, 1024);
  EXPECT_EQ(read("1 MB").value, 1e6);
  EXPECT_EQ(read("1 MiB").value, 1048576);
}

TEST(Quantity, RefusesWithTheSpellingThatWasMeant) {
  const std::vector<std::pair<std::string, std::string>> cases = {{"64 KB", "KiB"},         {"50 Mb", "Gbit/s"},     {"989 TFLOPS", "TFLOP/s"},  {"1830 Mhz", "MHz"},
                                                                  {"2 seconds", "write s"}, {"3 clocks", "'clock'"}, {"5 parsec", "known units"}};
  for (const auto& [text, hint] : cases) {
    const Result<Quantity> quantity = parse_quantity(text);
    ASSERT_FALSE(quantity.has_value()) << text;
    EXPECT_EQ(quantity.error().code, ErrorCode::invalid) << text;
    EXPECT_NE(quantity.error().hint.find(hint), std::string::npos) << text << ": " << quantity.error().hint;
  }
  for (const std::string text :
       {"", " ", "GB", "nan B", "inf", "1e999 B", "1e300 EB", "4.8.1 TB", "4 8 TB", "1 MiHz", "1 us/", "1 /s", "1 mB", "0x10 B", "--3 B", "1e B", "5 KiW", "1 \xff"}) {
    EXPECT_FALSE(parse_quantity(text).has_value()) << text;
  }
  EXPECT_FALSE(parse_quantity(std::string(100000, '9') + "x").has_value());
  EXPECT_FALSE(parse_unit(std::string(100000, 'B')).has_value());
}

TEST(Quantity, UnitMustBeTheExpectedOne) {
  EXPECT_EQ(parse_quantity_as("80 GB", "B").value(), 80e9);
  const Result<double> wrong = parse_quantity_as("80 GB/s", "B");
  ASSERT_FALSE(wrong.has_value());
  EXPECT_NE(wrong.error().message.find("expected B"), std::string::npos);
}

TEST(Quantity, PrintsWithAPrefix) {
  EXPECT_EQ(print_quantity({4.8e12, "B/s"}), "4.8 TB/s");
  EXPECT_EQ(print_quantity({52428800, "B"}), "50 MiB");
  EXPECT_EQ(print_quantity({80e9, "B"}), "80 GB");
  EXPECT_EQ(print_quantity({1830e6, "Hz"}), "1.83 GHz");
  EXPECT_EQ(print_quantity({700, "W"}), "700 W");
  EXPECT_EQ(print_quantity({4096, "FLOP/clock/SM"}), "4096 FLOP/clock/SM");
  EXPECT_EQ(print_quantity({65536, "register"}), "65536 register");
  EXPECT_EQ(print_quantity({0, "s"}), "0 s");
  EXPECT_EQ(print_quantity({0.5, "1"}), "0.5");
}

TEST(Quantity, RoundTripIsExact) {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> exponent(-11, 20);
  const std::vector<std::string> units = {"B", "B/s", "FLOP", "FLOP/s", "Hz", "s", "W", "J", "FLOP/clock/SM", "1/clock/SM", "thread", "element/s", "1"};
  for (int i = 0; i < 20000; ++i) {
    Quantity quantity{std::pow(10.0, exponent(random)), units[static_cast<std::size_t>(i) % units.size()]};
    if (i % 3 == 0) quantity.value = std::round(quantity.value);
    if (i % 5 == 0) quantity.value = -quantity.value;
    const Result<Quantity> back = parse_quantity(print_quantity(quantity));
    ASSERT_TRUE(back.has_value()) << print_quantity(quantity);
    EXPECT_EQ(back->value, quantity.value) << print_quantity(quantity);
    EXPECT_EQ(back->unit, quantity.unit);
  }
}

}  // namespace
}  // namespace rooftile
