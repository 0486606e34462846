#include <gtest/gtest.h>

#include "frontends/onnx/dims/dim.h"

namespace rooftile::onnx {
namespace {

std::optional<std::int64_t> at(const DimContext& context, Dim dim, std::int64_t s, std::int64_t t = 1) {
  return context.evaluate(dim, [&](std::string_view name) -> std::optional<std::int64_t> {
    if (name == "s") return s;
    if (name == "t") return t;
    return std::nullopt;
  });
}

TEST(OnnxDims, SumsAndProductsAreCanonical) {
  DimContext dims;
  const Dim s = dims.symbol("s"), t = dims.symbol("t");
  EXPECT_EQ(dims.add(s, t), dims.add(t, s));
  EXPECT_EQ(dims.mul(dims.add(s, 1), dims.add(t, 2)), dims.add(dims.add(dims.mul(t, s), dims.mul(2, s)), dims.add(t, 2)));
  EXPECT_EQ(dims.sub(dims.add(s, t), s), t);
  EXPECT_EQ(dims.mul(s, 0), Dim(0));
  EXPECT_EQ(dims.text(dims.add(dims.mul(s, 2), 1)), "2*s + 1");
  EXPECT_EQ(dims.text(dims.sub(t, dims.mul(s, 3))), "-3*s + t");
}

TEST(OnnxDims, DivisionIsExactWhereItCanBe) {
  DimContext dims;
  const Dim b = dims.symbol("b"), s = dims.symbol("s"), p = dims.symbol("p");
  // (b s 768 + b p 768) / (b 12) == 64 s + 64 p
  const Dim product = dims.mul(dims.mul(b, dims.add(s, p)), 768);
  EXPECT_EQ(dims.divide_exactly(product, dims.mul(b, 12)), dims.mul(dims.add(s, p), 64));
  EXPECT_EQ(dims.divide_exactly(product, dims.add(s, p)), dims.mul(b, 768));
  EXPECT_FALSE(dims.divide_exactly(dims.add(s, 1), 2).has_value());
  EXPECT_EQ(dims.floordiv(dims.mul(s, 6), 3), dims.mul(s, 2));
  EXPECT_EQ(dims.floordiv(dims.add(dims.mul(s, 4), 5), 4), dims.add(s, 1));
  EXPECT_EQ(dims.floordiv(-7, 2), Dim(-4));
  EXPECT_EQ(dims.ceildiv(7, 2), Dim(4));
  EXPECT_EQ(dims.mod(-7, 3), Dim(2));
}

TEST(OnnxDims, OpaqueTermsEvaluate) {
  DimContext dims;
  const Dim s = dims.symbol("s"), t = dims.symbol("t");
  for (const std::int64_t value : {1, 5, 6, 1024}) {
    EXPECT_EQ(at(dims, dims.floordiv(dims.add(s, 1), 2), value), (value + 1) / 2);
    EXPECT_EQ(at(dims, dims.ceildiv(s, 3), value), (value + 2) / 3);
    EXPECT_EQ(at(dims, dims.mod(s, 4), value), value % 4);
    EXPECT_EQ(at(dims, dims.max(s, dims.mul(t, 6)), value, 2), std::max<std::int64_t>(value, 12));
    EXPECT_EQ(at(dims, dims.min(s, t), value, 5), std::min<std::int64_t>(value, 5));
  }
  EXPECT_FALSE(at(dims, dims.symbol("unbound"), 1).has_value());
  EXPECT_FALSE(at(dims, dims.floordiv(s, t), 1, 0).has_value());
}

TEST(OnnxDims, OrdersThatHoldForEverySize) {
  DimContext dims;
  const Dim s = dims.symbol("s"), t = dims.symbol("t");
  EXPECT_EQ(dims.less(s, 1), std::optional(false));
  EXPECT_EQ(dims.less(s, dims.add(s, 1)), std::optional(true));
  EXPECT_EQ(dims.equal(dims.add(s, 1), s), std::optional(false));
  EXPECT_EQ(dims.equal(s, -1), std::optional(false));
  EXPECT_FALSE(dims.equal(s, 4).has_value());
  EXPECT_FALSE(dims.less(s, t).has_value());
  EXPECT_EQ(dims.max(s, 1), s);
  EXPECT_EQ(dims.min(dims.add(s, t), s), s);
}

TEST(OnnxDims, OverflowIsSeen) {
  DimContext dims;
  dims.mul(std::int64_t{1} << 40, std::int64_t{1} << 40);
  EXPECT_TRUE(dims.overflow());
  dims.clear_overflow();
  const Dim big = dims.mul(dims.symbol("s"), std::int64_t{1} << 40);
  EXPECT_FALSE(at(dims, big, std::int64_t{1} << 40).has_value());
  EXPECT_FALSE(dims.overflow());
}

TEST(OnnxDims, LongExpressionsStayBounded) {
  DimContext dims;
  Dim sum = 1;
  for (int i = 0; i < 400; ++i) sum = dims.mul(dims.add(sum, dims.symbol("x" + std::to_string(i))), dims.symbol("y" + std::to_string(i)));
  EXPECT_LT(dims.text(sum).size(), 100000u);
  Dim nested = dims.symbol("s");
  for (int i = 0; i < 2000; ++i) nested = dims.add(dims.floordiv(nested, 2), dims.mod(nested, 3));
  EXPECT_LT(dims.text(nested).size(), 100000u);
}

TEST(OnnxDims, ParsesWhatExportersWrite) {
  DimContext dims;
  const Dim s = dims.symbol("s"), t = dims.symbol("t");
  EXPECT_EQ(parse_dim(dims, "s + t"), dims.add(t, s));
  EXPECT_EQ(parse_dim(dims, "2*s - (t+1)"), dims.sub(dims.mul(2, s), dims.add(t, 1)));
  EXPECT_EQ(parse_dim(dims, "s//2"), dims.floordiv(s, 2));
  EXPECT_EQ(parse_dim(dims, "floor(s / 2) + 1"), dims.add(dims.floordiv(s, 2), 1));
  EXPECT_EQ(parse_dim(dims, "ceil(s/4)"), dims.ceildiv(s, 4));
  EXPECT_EQ(parse_dim(dims, "Max(s, t)"), dims.max(s, t));
  EXPECT_EQ(parse_dim(dims, "past_sequence_length + sequence_length"), dims.add(dims.symbol("sequence_length"), dims.symbol("past_sequence_length")));
  EXPECT_EQ(parse_dim(dims, "17"), Dim(17));
  // One name each, whatever they hold.
  EXPECT_EQ(parse_dim(dims, "p2o.DynamicDimension.0"), dims.symbol("p2o.DynamicDimension.0"));
  EXPECT_EQ(parse_dim(dims, "seq-len"), dims.symbol("seq-len"));
  EXPECT_EQ(parse_dim(dims, "what is (this"), dims.symbol("what is (this"));
  EXPECT_EQ(parse_dim(dims, "99999999999999999999"), dims.symbol("99999999999999999999"));
  EXPECT_EQ(parse_dim(dims, std::string(300, '(')), dims.symbol(std::string(256, '(')));
}

}  // namespace
}  // namespace rooftile::onnx
