// Numbers as people read them: three significant digits with an SI prefix. Exact values are the JSON's business.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace rooftile {

// The value with an SI prefix before the unit: human(1.2345e-3, "s") == "1.23 ms", human(989.4e12, "FLOP/s") == "989 TFLOP/s", human(80e9, "B") == "80 GB",
// human(0, "s") == "0 s". Trailing zeros after the point are dropped.
std::string human(double value, std::string_view unit);

// The same without a unit, prefix attached as people write counts: human_count(8.03e9) == "8.03 B" (billions), 1.5e6 "1.5 M", 4.1e11 "410 B", 1.2e12 "1.2 T".
std::string human_count(double value);

// Three significant digits, never an exponent below 1e15: significant(1234.6) == "1235", significant(0.012345) == "0.0123", significant(3.5) == "3.5".
std::string significant(double value);

// A whole number with commas: grouped(1234567) == "1,234,567".
std::string grouped(std::int64_t value);

// The nearest whole number with commas, of anything up to 9e18: rounded(10674.7) == "10,675".
std::string rounded(double value);

// percent(0.5184) == "51.8 %", percent(0.0004) == "<0.1 %", percent(0) == "0 %", percent(12) == "1200 %".
std::string percent(double ratio);

// Columns a UTF-8 text takes on a terminal (escape sequences of colours take none; every other code point one).
std::size_t display_width(std::string_view text);

// Text safe to print: bytes that are not valid UTF-8, and control characters, as \xNN.
std::string printable(std::string_view text);

}  // namespace rooftile
