#include <gtest/gtest.h>

#include "cli/numbers.h"
#include "cli/request.h"
#include "cli/sweep.h"

namespace rooftile {
namespace {

using Values = std::vector<std::string>;

TEST(Numbers, Whole) {
  EXPECT_EQ(parse_whole("4096", "--seq").value(), 4096);
  EXPECT_EQ(parse_whole("300e9", "--seq").value(), 300'000'000'000);
  EXPECT_EQ(parse_whole("1.5e3", "--seq").value(), 1500);
  EXPECT_EQ(parse_whole("4k", "--seq").value(), 4000);
  EXPECT_EQ(parse_whole("9223372036854775807", "--seq").value(), INT64_MAX);
  for (const char* bad : {"", "-1", "1.5", "x", "4x", "nan", "inf", "1e30", "0x10", "9223372036854775808", "+5", " 5", "5 "}) {
    const auto parsed = parse_whole(bad, "--seq");
    ASSERT_FALSE(parsed) << bad;
    EXPECT_EQ(parsed.error().code, ErrorCode::usage);
    EXPECT_EQ(parsed.error().place, "--seq");
  }
}

TEST(Ranges, ListsStepsAndFactors) {
  EXPECT_EQ(expand_range("1,2,4", "--tp").value(), (Values{"1", "2", "4"}));
  EXPECT_EQ(expand_range("1024-4096+1024", "--seq").value(), (Values{"1024", "2048", "3072", "4096"}));
  EXPECT_EQ(expand_range("1-64*2", "--mbs").value(), (Values{"1", "2", "4", "8", "16", "32", "64"}));
  EXPECT_EQ(expand_range("1-4", "--mbs").value(), (Values{"1", "2", "3", "4"}));
  EXPECT_EQ(expand_range("1-5+3", "--mbs").value(), (Values{"1", "4"}));  // the end is not hit
  EXPECT_EQ(expand_range("1,8-32*2", "--mbs").value(), (Values{"1", "8", "16", "32"}));
  EXPECT_EQ(expand_range("1e3-2e3+5e2", "--mbs").value(), (Values{"1000", "1500", "2000"}));
  EXPECT_EQ(expand_range("300e9", "--mbs").value(), (Values{"300e9"}));
  EXPECT_EQ(expand_range("9223372036854775806-9223372036854775807", "--mbs").value().size(), 2u);
}

TEST(Ranges, WhatNeverEndsIsRefused) {
  for (const char* bad : {"1-4+0", "1-4*1", "0-4*2", "4-1", "1,,2", "1,", ",1", "1-1e18"}) EXPECT_FALSE(expand_range(bad, "--mbs")) << bad;
}

TEST(Options, EveryRowOfTheTableIsUnderstood) {
  for (const OptionRow& row : option_rows()) {
    Request request;
    const std::string_view value = row.form == OptionForm::number      ? "1"
                                   : row.form == OptionForm::flag      ? "true"
                                   : row.form == OptionForm::dimension ? "batch=4"
                                   : row.form == OptionForm::file      ? "name"
                                   : row.name == "phase"               ? "decode"
                                   : row.name == "dtype"               ? "fp8"
                                   : row.name == "precision"           ? "mixed"
                                   : row.name == "attention"           ? "flash3"
                                   : row.name == "optimizer"           ? "sgd"
                                   : row.name == "recompute"           ? "selective"
                                   : row.name == "clocks"              ? "burst"
                                   : row.name == "mode"                ? "sol"
                                                                       : "gpipe";
    const auto applied = apply(request, row.name, value);
    EXPECT_TRUE(applied) << row.name << ": " << (applied ? "" : applied.error().message);
    EXPECT_EQ(find_option(row.name), &row);
  }
}

TEST(Options, MegatronsLongNames) {
  Request request;
  for (const auto& [name, value] : std::vector<Setting>{{"tensor-model-parallel-size", "8"},
                                                        {"pipeline-model-parallel-size", "4"},
                                                        {"context-parallel-size", "2"},
                                                        {"expert-model-parallel-size", "2"},
                                                        {"expert-tensor-parallel-size", "1"},
                                                        {"num-virtual-stages-per-pipeline-rank", "3"},
                                                        {"sequence-parallel", "true"},
                                                        {"micro-batch-size", "2"},
                                                        {"global-batch-size", "64"},
                                                        {"seq-length", "8192"},
                                                        {"recompute-granularity", "full"},
                                                        {"use-distributed-optimizer", "true"}})
    ASSERT_TRUE(apply(request, name, value)) << name;
  EXPECT_EQ(request.options.layout.tp, 8);
  EXPECT_EQ(request.options.layout.pp, 4);
  EXPECT_EQ(request.options.layout.cp, 2);
  EXPECT_EQ(request.options.layout.ep, 2);
  EXPECT_EQ(request.options.layout.etp, 1);
  EXPECT_EQ(request.options.layout.vpp, 3);
  EXPECT_TRUE(request.options.layout.sp);
  EXPECT_EQ(request.options.mbs, 2);
  EXPECT_EQ(request.options.gbs, 64);
  EXPECT_EQ(request.options.seq, 8192);
  EXPECT_EQ(request.options.recompute, Recompute::full);
  EXPECT_EQ(request.options.layout.zero, 1);
  ASSERT_TRUE(settle(request));
  EXPECT_EQ(request.options.layout.gpus, 64);  // what the degrees multiply to
}

TEST(Options, WhatIsWrongNamesTheOptionAndTheKnownWords) {
  Request request;
  const auto phase = apply(request, "phase", "trian");
  ASSERT_FALSE(phase);
  EXPECT_EQ(phase.error().place, "--phase");
  EXPECT_EQ(phase.error().hint, "did you mean 'train'?");
  EXPECT_EQ(apply(request, "zero", "4").error().code, ErrorCode::usage);
  EXPECT_EQ(apply(request, "tp", "0").error().code, ErrorCode::usage);
  EXPECT_EQ(apply(request, "dim", "batch").error().code, ErrorCode::usage);
  EXPECT_EQ(apply(request, "dtype", "int8").error().code, ErrorCode::usage);
  EXPECT_EQ(apply(request, "sep", "1").error().hint, "did you mean 'seq'?");
}

TEST(Options, PrecisionFollowsThePhaseUnlessGiven) {
  Request train, decode, given;
  ASSERT_TRUE(apply(decode, "phase", "decode"));
  ASSERT_TRUE(apply(given, "precision", "pure"));
  for (Request* request : {&train, &decode, &given}) ASSERT_TRUE(settle(*request));
  EXPECT_EQ(train.options.precision, Precision::mixed);
  EXPECT_EQ(decode.options.precision, Precision::pure);
  EXPECT_EQ(given.options.precision, Precision::pure);
}

TEST(Sweeps, TheLastSettingChangesFastest) {
  const auto sweep = sweep_of({{"device", "a,b"}, {"mbs", "1-2"}, {"seq", "128"}, {"sp", "true"}});
  ASSERT_TRUE(sweep);
  EXPECT_EQ(sweep->size, 4u);
  std::string order;
  std::vector<Setting> varied;
  for (std::size_t i = 0; i < sweep->size; ++i) {
    const auto request = request_of(*sweep, i, varied);
    ASSERT_TRUE(request);
    EXPECT_EQ(varied.size(), 2u);
    order += request->device + std::to_string(request->options.mbs) + " ";
  }
  EXPECT_EQ(order, "a1 a2 b1 b2 ");
}

TEST(Sweeps, TooManyCombinationsAreRefused) { EXPECT_FALSE(sweep_of({{"mbs", "1-100000"}, {"seq", "1-100000"}})); }

}  // namespace
}  // namespace rooftile
