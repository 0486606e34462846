// The reader of profiler traces: what it keeps, what it refuses and how it says so.
#include "frontends/trace/trace.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <cstring>
#include <filesystem>
#include <fstream>

namespace rooftile {
namespace {

const std::filesystem::path kTraces = std::filesystem::path(ROOFTILE_SOURCE_DIR) / "tests/data/traces";

// One product of two kernels, launched by the operator 7; a memset that nobody claims.
const std::string kSmall = R"json({"schemaVersion": 1,
  "deviceProperties": [{"id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150109880320, "computeMajor": 9, "computeMinor": 0, "numSms": 132}],
  "other": {"nested": [1, [2, {"ph": "X", "cat": "kernel"}]]},
  "traceEvents": [
    {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 5154537852810.876, "dur": 20, "args": {"External id": 7,
      "Concrete Inputs": ["", ""], "Input type": ["c10::BFloat16", "c10::BFloat16"], "Input Strides": [[64, 1], [1, 64]], "Input Dims": [[32, 64], [64, 16]]}},
    {"ph": "X", "cat": "cpu_op", "name": "aten::cat", "pid": 1, "tid": 1, "ts": 1, "dur": 20, "args": {"External id": 8, "Input Dims": [[[2, 3], [4, 3]], []],
      "Input type": ["TensorList", "Scalar"], "Input Strides": [[[3, 1], [3, 1]], []], "Concrete Inputs": ["", "0"]}},
    {"ph": "X", "cat": "kernel", "name": "void reduce<4>(int)",
                  "pid" : 0, "tid" : 7, "ts" : 5154537852830.5, "dur" : 2.5, "args" : {
  "External id" : 7, "device" : 0, "stream" : 7, "correlation" : 11, "grid" : [ 3, 2, 1 ], "block" : [ 128, 1, 1 ]
}
},
    {"ph": "X", "cat": "kernel", "name": "void gemm<8>(int)", "pid": 0, "tid": 7, "ts": 5154537852820.25, "dur": 10, "args": {"External id": 7, "correlation": 10, "stream": 7}},
    {"ph": "X", "cat": "kernel", "name": "void join<2>(int)", "pid": 0, "tid": 7, "ts": 5154537852840.0, "dur": 3, "args": {"correlation": 12, "stream": 7}},
    {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 2, "dur": 3, "args": {"External id": 8, "correlation": 12}},
    {"ph": "X", "cat": "gpu_memset", "name": "Memset (Device)", "pid": 0, "tid": 7, "ts": 5154537852850.0, "dur": 1, "args": {"correlation": 13, "stream": 7, "bytes": 4}},
    {"ph": "X", "cat": "gpu_user_annotation", "name": "ProfilerStep#5", "pid": 0, "tid": 7, "ts": 5154537852820.25, "dur": 40, "args": {"External id": 99}},
    {"ph": "s", "id": 1, "pid": 1, "tid": 1, "ts": 5, "cat": "ac2g", "name": "ac2g"}
  ]})json";

std::string gzipped(const std::string& text) {
  z_stream stream = {};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(out.size() - stream.avail_out);
  deflateEnd(&stream);
  return out;
}

void expect_refused(const std::string& bytes, const std::string& part, const TraceLimits& limits = {}) {
  const auto trace = read_trace_bytes(bytes, "step.json", limits);
  ASSERT_FALSE(trace.has_value()) << part;
  EXPECT_EQ(trace.error().code, ErrorCode::invalid);
  EXPECT_EQ(trace.error().place.rfind("step.json", 0), 0u) << trace.error().place;
  EXPECT_NE(trace.error().message.find(part), std::string::npos) << trace.error().message;
}

TEST(Trace, KernelsWithTheirOperators) {
  const auto trace = read_trace_bytes(kSmall, "step.json");
  ASSERT_TRUE(trace.has_value()) << describe(trace.error());
  ASSERT_EQ(trace->devices.size(), 1u);
  EXPECT_EQ(trace->devices[0].name, "NVIDIA H200");
  EXPECT_EQ(trace->devices[0].sms, 132);
  EXPECT_EQ(trace->devices[0].compute_capability, 90);
  EXPECT_EQ(trace->devices[0].memory_bytes, 150109880320.0);
  EXPECT_EQ(trace->events, 9u);
  ASSERT_EQ(trace->kernels.size(), 4u);  // by their start
  const TraceKernel &gemm = trace->kernels[0], &reduce = trace->kernels[1], &join = trace->kernels[2], &memset = trace->kernels[3];
  EXPECT_EQ(trace->names[gemm.name], "void gemm<8>(int)");
  EXPECT_EQ(gemm.op, reduce.op);
  EXPECT_EQ(gemm.call, 7u);
  EXPECT_NEAR(gemm.duration_s, 10e-6, 1e-12);
  EXPECT_NEAR(reduce.start_s - gemm.start_s, 10.25e-6, 1e-9);
  EXPECT_EQ(reduce.grid[1], 2);
  EXPECT_EQ(reduce.block[0], 128);
  EXPECT_EQ(memset.activity, TraceActivity::memset);
  EXPECT_EQ(memset.op, -1);
  EXPECT_EQ(trace->without_operator, 1u);
  const TraceOperator& mm = trace->operators.at(static_cast<std::size_t>(gemm.op));
  EXPECT_EQ(mm.name, "aten::mm");
  ASSERT_EQ(mm.arguments.size(), 2u);
  EXPECT_EQ(mm.arguments[1].type, "c10::BFloat16");
  EXPECT_EQ(mm.arguments[1].tensors.at(0).dims, (std::vector<std::int64_t>{64, 16}));
  EXPECT_EQ(mm.arguments[1].tensors.at(0).strides, (std::vector<std::int64_t>{1, 64}));
  // Linked through the launch: its own event names no operator.
  const TraceOperator& cat = trace->operators.at(static_cast<std::size_t>(join.op));
  EXPECT_EQ(cat.name, "aten::cat");
  ASSERT_EQ(cat.arguments.size(), 2u);
  EXPECT_TRUE(cat.arguments[0].list);
  ASSERT_EQ(cat.arguments[0].tensors.size(), 2u);
  EXPECT_EQ(cat.arguments[0].tensors[1].dims, (std::vector<std::int64_t>{4, 3}));
  EXPECT_EQ(cat.arguments[1].value, "0");
  ASSERT_EQ(trace->steps.size(), 1u);
  EXPECT_NEAR(trace->steps[0].start_s, gemm.start_s, 1e-9);
}

TEST(Trace, PackedAndPlainAreTheSame) {
  const auto plain = read_trace_bytes(kSmall, "step.json");
  const std::string half = kSmall.substr(0, 900), rest = kSmall.substr(900);
  for (const std::string& packed : {gzipped(kSmall), gzipped(half) + gzipped(rest), gzipped(kSmall) + std::string(512, '\0')}) {
    const auto trace = read_trace_bytes(packed, "step.json.gz");
    ASSERT_TRUE(trace.has_value()) << describe(trace.error());
    EXPECT_EQ(trace->names, plain->names);
    EXPECT_EQ(trace->kernels.size(), plain->kernels.size());
    EXPECT_EQ(trace->operators.size(), plain->operators.size());
  }
}

TEST(Trace, EventsAloneWithoutADocument) {
  const auto trace = read_trace_bytes(R"([{"ph": "X", "cat": "Kernel", "name": "k", "ts": 1, "dur": 2, "args": {"external id": 3}},
                                          {"ph": "X", "cat": "Operator", "name": "aten::add", "ts": 0, "dur": 2, "args": {"external id": 3, "Input dims": [[4]]}}])",
                                      "old.json");
  ASSERT_TRUE(trace.has_value()) << describe(trace.error());
  ASSERT_EQ(trace->operators.size(), 1u);
  EXPECT_EQ(trace->operators[0].arguments.at(0).tensors.at(0).dims.at(0), 4);
}

TEST(Trace, BrokenInputIsRefusedWithItsPlace) {
  expect_refused("", "not valid JSON");
  expect_refused(kSmall.substr(0, kSmall.size() / 2), "not valid JSON");
  expect_refused(kSmall.substr(0, kSmall.size() - 1), "not valid JSON");
  expect_refused(kSmall + "x", "not valid JSON");
  const auto cut = read_trace_bytes("{\"traceEvents\": [{]}", "step.json");
  EXPECT_EQ(cut.error().place, "step.json: byte 19");
  const std::string packed = gzipped(kSmall);
  expect_refused(packed.substr(0, packed.size() / 2), "gzip file ends early");
  expect_refused(packed.substr(0, packed.size() - 4), "gzip file ends early");
  std::string damaged = packed;
  damaged[packed.size() / 2] = static_cast<char>(damaged[packed.size() / 2] ^ 0x55);
  const auto trace = read_trace_bytes(damaged, "step.json");
  EXPECT_FALSE(trace.has_value());
  expect_refused("\x1f\x8b garbage", "broken gzip");
  expect_refused("PK\x03\x04", "not valid JSON");
  expect_refused("{\"a\": \"\xff\xfe\"}", "not valid JSON");
}

TEST(Trace, WhatIsNoTraceIsSaidSo) {
  expect_refused("{\"layers\": 3}", "no list 'traceEvents'");
  expect_refused("{\"traceEvents\": {}}", "no list 'traceEvents'");
  expect_refused("7", "no list 'traceEvents'");
  expect_refused("{\"traceEvents\": []}", "no GPU kernel among 0 events");
  expect_refused(R"({"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1, "dur": 1}]})", "no GPU kernel among 1 events");
  expect_refused(R"({"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "ts": 1}]})", "no duration");
  expect_refused(R"({"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": -5}]})", "no duration");
  expect_refused(R"({"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 1e999}]})", "not valid JSON");
  EXPECT_NE(read_trace_bytes("{\"traceEvents\": []}", "x").error().hint.find("ProfilerActivity.CUDA"), std::string::npos);
}

TEST(Trace, LimitsHoldWhateverTheInput) {
  expect_refused(std::string(100000, '['), "nested deeper than 64");
  TraceLimits limits;
  limits.kernels = 2;
  expect_refused(kSmall, "over 2 GPU kernels", limits);
  limits = {};
  limits.bytes = 1000;
  expect_refused(kSmall, "more than the bytes", limits);
  limits = {};
  limits.text_bytes = 10;
  expect_refused(kSmall, "different names", limits);
  limits = {};
  limits.token_bytes = 1000;
  expect_refused("{\"traceEvents\"" + std::string(2000, ' ') + ": []}", "without a quotation mark", limits);
  std::string escaped = "{\"traceEvents\": [], \"x\": \"";
  for (int i = 0; i < 1000; ++i) escaped += "\\\"";
  expect_refused(escaped + "\"}", "without a quotation mark", limits);
  // Sizes beyond the limit are dropped, not kept.
  limits = {};
  limits.integers = 3;
  const auto trace = read_trace_bytes(kSmall, "step.json", limits);
  ASSERT_TRUE(trace.has_value());
  std::size_t integers = 0;
  for (const TraceArgument& argument : trace->operators[0].arguments) {
    for (const TraceTensor& tensor : argument.tensors) integers += tensor.dims.size() + tensor.strides.size();
  }
  EXPECT_LE(integers, 3u);
}

TEST(Trace, FilesThatAreNone) {
  EXPECT_EQ(read_trace("/nonexistent/step.json").error().message, "no such file");
  EXPECT_EQ(read_trace(kTraces).error().message, "is a folder, not a file");
  EXPECT_NE(read_trace("/dev/null").error().message.find("not a plain file"), std::string::npos);
}

TEST(Trace, ARecordedStep) {
  const auto trace = read_trace(kTraces / "gpt2-train-b16-s1024.json.gz");
  ASSERT_TRUE(trace.has_value()) << describe(trace.error());
  EXPECT_EQ(trace->kernels.size(), 325u);
  EXPECT_EQ(trace->without_operator, 0u);
  for (std::size_t i = 1; i < trace->kernels.size(); ++i) EXPECT_LE(trace->kernels[i - 1].start_s, trace->kernels[i].start_s);
}

TEST(Trace, ShortNamesOfKernels) {
  EXPECT_EQ(short_kernel_name("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float> >(int)"), "at::native::vectorized_elementwise_kernel");
  EXPECT_EQ(short_kernel_name("void at::native::(anonymous namespace)::cunn_SoftMaxForward<4>(float*)"), "at::native::cunn_SoftMaxForward");
  EXPECT_EQ(short_kernel_name("nvjet_sm90_tst_256x128"), "nvjet_sm90_tst_256x128");
  EXPECT_EQ(short_kernel_name(""), "");
}

}  // namespace
}  // namespace rooftile
