#include "report/json_writer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace rooftile {
namespace {

std::string json_text(std::string_view text) {
  std::string out;
  append_json_string(out, text);
  return out;
}

std::string number(double value) {
  std::string out;
  append_json_number(out, value);
  return out;
}

TEST(JsonString, PlainAndEscaped) {
  EXPECT_EQ(json_text("llama"), "\"llama\"");
  EXPECT_EQ(json_text("a\"b\\c\n\x01"), "\"a\\\"b\\\\c\\n\\u0001\"");
  EXPECT_EQ(json_text("größe 模"), "\"größe 模\"");
}

TEST(JsonString, ForeignBytesAreEscapedAndTheResultIsValidUtf8) {
  EXPECT_EQ(json_text("\xff"), "\"\\u00ff\"");
  EXPECT_EQ(json_text("\xc0\x80"), "\"\\u00c0\\u0080\"");             // overlong
  EXPECT_EQ(json_text("\xed\xa0\x80"), "\"\\u00ed\\u00a0\\u0080\"");  // surrogate
  EXPECT_EQ(json_text("\xf5\x80\x80\x80").find("\\u00f5"), 1u);       // above U+10FFFF
  EXPECT_EQ(json_text("\xe6\xa8"), "\"\\u00e6\\u00a8\"");             // cut off
  for (int a = 0; a < 256; ++a) {
    for (int b = 0; b < 256; ++b) {
      const std::string text = {static_cast<char>(a), static_cast<char>(b), 'x'};
      EXPECT_TRUE(nlohmann::json::accept(json_text(text))) << a << " " << b;  // the parser checks UTF-8
    }
  }
}

TEST(JsonNumber, RoundTripsAndHasNoInfinity) {
  for (const double value : {0.0, 1.0, 0.1, 1e-300, 1.0 / 3, 989.4e12, 4e19, -2.5}) EXPECT_EQ(nlohmann::json::parse(number(value)).get<double>(), value);
  EXPECT_EQ(number(INFINITY), "null");
  EXPECT_EQ(number(NAN), "null");
}

TEST(JsonCount, IntegerWhereItFitsElseDouble) {
  std::string out;
  append_json_count(out, Count{INT64_MAX});
  EXPECT_EQ(out, "9223372036854775807");
  out.clear();
  append_json_count(out, Count{INT64_MAX} + 1);
  EXPECT_TRUE(nlohmann::json::parse(out).is_number_float());
  EXPECT_DOUBLE_EQ(nlohmann::json::parse(out).get<double>(), 9223372036854775808.0);
}

TEST(JsonWriter, NestsWithCommas) {
  std::string out;
  JsonWriter json(out);
  json.open();
  json.field("a", 1);
  json.open("b");
  json.close();
  json.open_list("c");
  json.item("x");
  json.item("y");
  json.close_list();
  json.field("d", true);
  json.close();
  EXPECT_EQ(out, R"({"a": 1, "b": {}, "c": ["x", "y"], "d": true})");
}

}  // namespace
}  // namespace rooftile
