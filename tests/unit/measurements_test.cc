#include "validate/measurements.h"

#include <gtest/gtest.h>

#include "validate/errors.h"

namespace rooftile {
namespace {

TEST(Measurements, ReadsRowsAndPassesColumnsThrough) {
  const auto table = parse_measurements(
      "op,dtype,shape,measured_us,note\r\ngemm,bf16,m=1 n=2 k=3 batch=1 layout=nt,10.5,\"a, \"\"b\"\"\"\r\n\r\nsoftmax,fp32,rows=4 cols=8 pass=fwd,2,\r\n", "x.csv");
  ASSERT_TRUE(table);
  ASSERT_EQ(table->rows.size(), 2u);
  EXPECT_EQ(table->field(table->rows[0], "note"), "a, \"b\"");
  EXPECT_EQ(table->rows[1].line, 4u);
  const MeasuredCall call = measured_call(*table, table->rows[0]);
  ASSERT_TRUE(call.call) << call.status;
  EXPECT_EQ(call.call->gemm().n, 2);
  EXPECT_DOUBLE_EQ(call.measured_s, 10.5e-6);
  EXPECT_EQ(call.status, "ok");
}

TEST(Measurements, BrokenFilesNameTheLine) {
  const auto place = [](std::string_view text) {
    const auto table = parse_measurements(text, "x.csv");
    return table ? std::string("no error") : table.error().place;
  };
  EXPECT_EQ(place(""), "x.csv");
  EXPECT_EQ(place("op,dtype,shape\n"), "x.csv:1");
  EXPECT_EQ(place("op,dtype,shape,measured_us,op\n"), "x.csv:1");
  EXPECT_EQ(place("op,dtype,shape,measured_us\na,b,\"c,1\n"), "x.csv:2");
}

TEST(Measurements, OneShortRowDoesNotSpoilTheFile) {
  const auto table = parse_measurements("op,dtype,shape,measured_us\na,b\nsoftmax,fp32,rows=4 cols=8 pass=fwd,2\na,b,c,1,extra\n", "x.csv");
  ASSERT_TRUE(table);
  ASSERT_EQ(table->rows.size(), 3u);
  EXPECT_EQ(measured_call(*table, table->rows[0]).status, "the row has 2 fields, the header 4");
  EXPECT_EQ(table->rows[0].fields.size(), 4u);
  EXPECT_EQ(measured_call(*table, table->rows[1]).status, "ok");
  EXPECT_EQ(measured_call(*table, table->rows[2]).status, "the row has 5 fields, the header 4");
}

TEST(Measurements, AHeaderOfManyColumnsIsRefusedAtOnce) {
  std::string header = "op,dtype,shape,measured_us";
  for (int i = 0; i < 100'000; ++i) header += ",c" + std::to_string(i);
  const auto table = parse_measurements(header + "\n", "x.csv");
  ASSERT_FALSE(table);
  EXPECT_NE(table.error().message.find("at most 1000"), std::string::npos) << table.error().message;
}

TEST(Measurements, ARowThatCannotBeUsedSaysWhy) {
  const auto table = parse_measurements(
      "op,dtype,shape,measured_us\nnothing,bf16,m=1,1\ngemm,bf16,m=1 n=1 k=1 batch=1 layout=nt,-3\ngemm,bf16,m=1 m=2 n=1 k=1 batch=1 layout=nt,1\ngemm,bf16,m=1 n=1 k=1 batch=1 "
      "layout=nt,\n",
      "x.csv");
  ASSERT_TRUE(table);
  EXPECT_FALSE(measured_call(*table, table->rows[0]).call);
  EXPECT_NE(measured_call(*table, table->rows[1]).status.find("-3"), std::string::npos);
  EXPECT_FALSE(measured_call(*table, table->rows[2]).call);  // a repeated key
  const MeasuredCall unmeasured = measured_call(*table, table->rows[3]);
  EXPECT_TRUE(unmeasured.call);
  EXPECT_EQ(unmeasured.status, "ok");
}

TEST(Measurements, ClocksOfARow) {
  const auto table = parse_measurements("op,dtype,shape,measured_us,clocks\nsoftmax,fp32,rows=4 cols=8 pass=fwd,2,sustained\nsoftmax,fp32,rows=4 cols=8 pass=fwd,2,\n", "x.csv");
  ASSERT_TRUE(table);
  EXPECT_EQ(measured_call(*table, table->rows[0]).clocks, ClockState::sustained);
  EXPECT_EQ(measured_call(*table, table->rows[1]).clocks, ClockState::burst);
}

TEST(ErrorStatistics, OfThreeRatios) {
  const std::vector<double> ratios = {1.1, 0.9, 1.2};
  const ErrorStatistics statistics = error_statistics(ratios);
  EXPECT_EQ(statistics.rows, 3u);
  EXPECT_NEAR(statistics.mean, 0.4 / 3, 1e-12);
  EXPECT_NEAR(statistics.median, 0.1, 1e-12);
  EXPECT_NEAR(statistics.p90, 0.2, 1e-12);
  EXPECT_NEAR(statistics.bias, 0.2 / 3, 1e-12);
  EXPECT_EQ(error_statistics({}).rows, 0u);
}

}  // namespace
}  // namespace rooftile
