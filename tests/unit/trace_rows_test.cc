// From a trace's operators to kernel calls and rows, and what is learned from them.
#include "validate/trace_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "frontends/hardware_files.h"
#include "frontends/trace/operator_call.h"
#include "validate/fit_trace.h"

namespace rooftile {
namespace {

const std::filesystem::path kTraces = std::filesystem::path(ROOFTILE_SOURCE_DIR) / "tests/data/traces";

using Sizes = std::vector<std::int64_t>;

TraceArgument tensor(std::string type, Sizes dims, Sizes strides) { return {std::move(type), "", false, {{std::move(dims), std::move(strides)}}}; }
TraceArgument scalar(std::string value) { return {"Scalar", std::move(value), false, {{}}}; }

struct Mapped {
  std::string text;  // "op,dtype,shape", or why there is none
  std::int64_t cleared = 0;
};

Mapped mapped(std::string name, std::vector<TraceArgument> arguments, std::vector<std::string_view> kernels = {"k"}, std::int32_t blocks = 1) {
  LaunchedKernels launched;
  for (const std::string_view kernel : kernels) {
    launched.names.push_back(kernel);
    launched.grids.push_back({blocks, 1, 1});
    launched.activities.push_back(TraceActivity::kernel);
  }
  const OperatorCall call = operator_call({std::move(name), std::move(arguments)}, launched);
  if (!call.call) return {"none: " + call.reason, 0};
  const std::string text = std::string(name_of(call.call->kernel)) + "," + std::string(name_of(call.call->dtype)) + "," + print_shape(*call.call);
  return {text, call.cleared};
}

constexpr const char *kHalf = "c10::BFloat16", *kFull = "float";

TEST(OperatorCall, Matmuls) {
  const TraceArgument rows = tensor(kHalf, {16384, 768}, {768, 1});
  EXPECT_EQ(mapped("aten::mm", {rows, tensor(kHalf, {768, 3072}, {1, 768})}).text, "gemm,bf16,m=16384 n=3072 k=768 batch=1 layout=nt");
  EXPECT_EQ(mapped("aten::mm", {tensor(kHalf, {3072, 16384}, {1, 3072}), rows}).text, "gemm,bf16,m=3072 n=768 k=16384 batch=1 layout=tn");
  EXPECT_EQ(mapped("aten::addmm", {tensor(kHalf, {2304}, {1}), rows, tensor(kHalf, {768, 2304}, {2304, 1}), scalar("1"), scalar("1")}).text,
            "gemm,bf16,m=16384 n=2304 k=768 batch=1 layout=nn epilogue=bias");
  EXPECT_EQ(mapped("aten::bmm", {tensor(kFull, {12, 64, 32}, {2048, 32, 1}), tensor(kFull, {12, 32, 16}, {512, 16, 1})}).text, "gemm,fp32,m=64 n=16 k=32 batch=12 layout=nn");
  EXPECT_EQ(mapped("aten::mm", {tensor(kFull, {64, 32}, {32, 1}), tensor(kFull, {32, 16}, {16, 1})}, {"sm80_xmma_gemm_f32f32_tf32f32_f32"}).text,
            "gemm,tf32,m=64 n=16 k=32 batch=1 layout=nn");
  EXPECT_EQ(mapped("aten::mm", {rows, rows}).text, "none: operands whose sizes do not fit");
  EXPECT_EQ(mapped("aten::mm", {tensor(kHalf, {4, 6}, {60, 10}), tensor(kHalf, {6, 8}, {8, 1})}).text, "none: a matmul whose operands are neither rows nor columns");
  EXPECT_EQ(mapped("aten::mm", {}).text, "none: no sizes");
}

TEST(OperatorCall, Attention) {
  std::vector<TraceArgument> arguments = {tensor(kHalf, {8, 32, 2048, 64}, {4194304, 64, 2048, 1}), tensor(kHalf, {8, 8, 2048, 64}, {1048576, 64, 512, 1}),
                                          tensor(kHalf, {8, 8, 2048, 64}, {1048576, 64, 512, 1})};
  for (int i = 0; i < 7; ++i) arguments.push_back(scalar(""));
  arguments.push_back(scalar("True"));
  EXPECT_EQ(mapped("aten::_cudnn_attention_forward", arguments).text,
            "attention,bf16,batch=8 heads=32 kv_heads=8 seq_q=2048 seq_kv=2048 head_dim=64 causal=1 pass=fwd kernel=cudnn");
  arguments[3] = tensor(kHalf, {8, 1, 2048, 2048}, {4194304, 4194304, 2048, 1});
  EXPECT_EQ(mapped("aten::_cudnn_attention_forward", arguments).text, "none: an attention with a bias");
}

TEST(OperatorCall, HowOperandsAreWalkedDecides) {
  const TraceArgument rows = tensor(kFull, {8, 2048, 2048}, {4194304, 2048, 1});
  const TraceArgument heads = tensor(kHalf, {8, 32, 2048, 64}, {4194304, 64, 2048, 1}), ordered = tensor(kHalf, {8, 32, 2048, 64}, {4194304, 131072, 64, 1});
  EXPECT_EQ(mapped("aten::mul", {rows, rows}).text, "pointwise,fp32,kind=mul numel=33554432");
  EXPECT_EQ(mapped("aten::add_", {rows, rows, scalar("1")}).text, "pointwise,fp32,kind=add numel=33554432");
  EXPECT_EQ(mapped("aten::mul", {rows, {"double", "", false, {{}}}}).text, "pointwise,fp32,kind=scale numel=33554432");
  EXPECT_EQ(mapped("aten::mul", {rows, tensor(kFull, {8, 2048, 1}, {2048, 1, 1})}).text, "pointwise,fp32,kind=row_scale numel=33554432");
  EXPECT_EQ(mapped("aten::mul", {tensor(kFull, {2048}, {1}), rows}).text, "pointwise,fp32,kind=bias numel=33554432");
  EXPECT_EQ(mapped("aten::add", {rows, tensor(kFull, {1, 2048, 2048}, {4194304, 2048, 1}), scalar("1")}).text, "pointwise,fp32,kind=bias numel=33554432");
  EXPECT_EQ(mapped("aten::add", {tensor(kFull, {2, 4, 64, 64}, {16384, 4096, 64, 1}), tensor(kFull, {2, 1, 64, 64}, {4096, 4096, 64, 1})}).text,
            "pointwise,fp32,kind=masked numel=32768");
  EXPECT_EQ(mapped("aten::mul", {heads, tensor(kHalf, {1, 1, 2048, 64}, {131072, 131072, 64, 1})}).text, "pointwise,bf16,kind=strided numel=33554432");
  EXPECT_EQ(mapped("aten::add", {heads, ordered, scalar("1")}).text, "pointwise,bf16,kind=order_mix numel=33554432");
  EXPECT_EQ(mapped("aten::add", {heads, heads, scalar("1")}).text, "pointwise,bf16,kind=strided_add numel=33554432");
  EXPECT_EQ(mapped("aten::neg", {tensor(kHalf, {8, 32, 2048, 32}, {4194304, 64, 2048, 1})}).text, "pointwise,bf16,kind=neg_half numel=16777216");
  EXPECT_EQ(mapped("aten::div", {tensor(kFull, {8, 2048, 2048}, {2048, 1, 0}), {"long int", "", false, {{}}}}).text, "pointwise,fp32,kind=expand numel=33554432");
  EXPECT_EQ(mapped("aten::mul", {tensor(kHalf, {64, 32}, {32, 1}), tensor(kFull, {64, 32}, {32, 1})}).text, "pointwise,fp32,kind=mixed_mul numel=2048");
  EXPECT_EQ(mapped("aten::pow", {rows, scalar("2.")}).text, "pointwise,fp32,kind=square numel=33554432");
  EXPECT_EQ(mapped("aten::pow", {rows, scalar("1.7")}).text, "none: a power that has no kernel of its own");
  EXPECT_EQ(mapped("aten::mul", {tensor("long int", {64}, {1}), tensor("long int", {64}, {1})}).text, "none: integers and masks");
  EXPECT_EQ(mapped("aten::mul", {tensor(kHalf, {64, 1}, {1, 1}), tensor(kHalf, {1, 64}, {64, 1})}).text, "none: an outer product of operands");
  // The tanh form of gelu is the first branch of its kernel.
  EXPECT_EQ(mapped("aten::gelu", {rows}, {"GeluCUDAKernelImpl(at::TensorIteratorBase&, at::native::GeluType)::{lambda()#1}::operator()() const"}).text,
            "pointwise,fp32,kind=gelu_tanh numel=33554432");
  EXPECT_EQ(mapped("aten::gelu", {rows}, {"GeluCUDAKernelImpl(at::TensorIteratorBase&, at::native::GeluType)::{lambda()#2}::operator()() const"}).text,
            "pointwise,fp32,kind=gelu numel=33554432");
}

TEST(OperatorCall, CopiesAndLookUps) {
  const TraceArgument plain = tensor(kHalf, {8, 2048, 32, 64}, {4194304, 2048, 64, 1});
  EXPECT_EQ(mapped("aten::copy_", {plain, plain}).text, "pointwise,bf16,kind=copy numel=33554432");
  EXPECT_EQ(mapped("aten::copy_", {plain, tensor(kHalf, {8, 2048, 32, 64}, {4194304, 64, 131072, 1})}).text, "pointwise,bf16,kind=permute numel=33554432");
  EXPECT_EQ(mapped("aten::copy_", {plain, tensor(kHalf, {8, 2048, 32, 64}, {4194304, 1, 131072, 2048})}).text, "pointwise,bf16,kind=transpose numel=33554432");
  EXPECT_EQ(mapped("aten::copy_", {tensor(kHalf, {64, 32}, {32, 1}), tensor(kHalf, {64, 32}, {96, 1})}).text, "pointwise,bf16,kind=slice numel=2048");
  EXPECT_EQ(mapped("aten::copy_", {tensor(kHalf, {64, 32}, {64, 1}), tensor(kHalf, {64, 32}, {32, 1})}).text, "pointwise,bf16,kind=slice_half numel=2048");
  EXPECT_EQ(mapped("aten::copy_", {tensor(kFull, {64, 32}, {32, 1}), tensor(kHalf, {64, 32}, {32, 1})}).text, "pointwise,bf16,kind=cast numel=2048");
  EXPECT_EQ(mapped("aten::gather", {tensor(kHalf, {50257, 768}, {768, 1}), scalar("0"), tensor("long int", {16384, 768}, {1, 0})}).text,
            "embedding,bf16,tokens=16384 vocab=50257 hidden=768 pass=fwd");
  const Mapped backward = mapped("aten::embedding_dense_backward", {tensor(kHalf, {16, 1024, 768}, {786432, 768, 1}), tensor("long int", {16, 1024}, {1024, 1}), scalar("50257")});
  EXPECT_EQ(backward.text, "embedding,bf16,tokens=16384 vocab=50257 hidden=768 pass=bwd");
  EXPECT_EQ(backward.cleared, 50257 * 768);
  const TraceArgument list = {"TensorList", "", true, {{{8, 32, 2048, 32}, {}}, {{8, 32, 2048, 32}, {}}}};
  EXPECT_EQ(mapped("aten::cat", {list, scalar("-1")}, {"CatArrayBatchedCopy<OpaqueType<2u>, unsigned int, 4, 64, 64>"}).text, "pointwise,bf16,kind=concat numel=33554432");
  EXPECT_EQ(mapped("aten::cat", {list, scalar("-1")}, {"CatArrayBatchedCopy_vectorized<OpaqueType<4u>, unsigned int>"}).text, "pointwise,fp32,kind=concat_rows numel=33554432");
}

TEST(OperatorCall, RowsAndTheOptimizer) {
  const TraceArgument logits = tensor(kFull, {16384, 50257}, {50257, 1});
  EXPECT_EQ(mapped("aten::_log_softmax", {logits, scalar("1"), scalar("False")}).text, "log_softmax,fp32,rows=16384 cols=50257 pass=fwd");
  EXPECT_EQ(mapped("aten::_softmax", {tensor(kHalf, {2, 4, 64, 32}, {8192, 2048, 32, 1}), scalar("-1"), scalar("True")}).text, "softmax_fp32,bf16,rows=512 cols=32 pass=fwd");
  EXPECT_EQ(mapped("aten::_softmax", {logits, scalar("0"), scalar("False")}).text, "none: a softmax that is not over the last dimension");
  EXPECT_EQ(mapped("aten::sum", {logits, {"ScalarList", "[0]", false, {{}}}}).text.rfind("column_sum,fp32,rows=16384 cols=50257", 0), 0u);
  EXPECT_EQ(mapped("aten::sum", {tensor(kHalf, {8, 2048, 64}, {131072, 64, 1}), {"ScalarList", "[0, 1]", false, {{}}}}).text.rfind("column_sum,bf16,rows=16384 cols=64", 0), 0u);
  EXPECT_EQ(mapped("aten::mean", {logits, {"ScalarList", "[-1]", false, {{}}}}).text.rfind("row_mean,fp32,rows=16384 cols=50257", 0), 0u);
  EXPECT_EQ(mapped("aten::sum", {tensor(kHalf, {8, 2048, 64}, {131072, 64, 1}), {"ScalarList", "[1]", false, {{}}}}).text, "none: a reduction over dimensions in the middle");
  EXPECT_EQ(mapped("aten::sum", {logits, {"ScalarList", "[7]", false, {{}}}}).text, "none: a reduction over a dimension that is not there");
  const TraceArgument x = tensor(kHalf, {16, 1024, 768}, {786432, 768, 1}), shape = {"ScalarList", "[768]", false, {{}}};
  EXPECT_EQ(mapped("aten::native_layer_norm_backward", {x, x, shape}, {"layer_norm_grad_input_kernel", "GammaBetaBackward"}).text, "layernorm,bf16,rows=16384 cols=768 pass=bwd");
  EXPECT_EQ(mapped("aten::native_layer_norm_backward", {x, x, shape}, {"layer_norm_grad_input_kernel"}).text, "layernorm_input,bf16,rows=16384 cols=768 pass=bwd");
  EXPECT_EQ(mapped("aten::_fused_adamw_", {}, {"multi_tensor_apply_kernel<FusedAdamMathFunctor<c10::BFloat16, 4>"}, 320).text, "optimizer,bf16,kind=adamw numel=20971520");
  EXPECT_EQ(mapped("aten::_foreach_add_", {}).text, "none: no class of the model");
}

TEST(OperatorCall, SizesThatCannotBeAreRefused) {
  const std::int64_t huge = std::int64_t{1} << 40;
  EXPECT_EQ(mapped("aten::mul", {tensor(kHalf, {huge, huge}, {huge, 1}), tensor(kHalf, {huge, huge}, {huge, 1})}).text.rfind("none: ", 0), 0u);
  EXPECT_EQ(mapped("aten::neg", {tensor(kHalf, {-4, 8}, {8, 1})}).text.rfind("none: ", 0), 0u);
  EXPECT_EQ(mapped("aten::mm", {tensor(kHalf, {0, 8}, {8, 1}), tensor(kHalf, {8, 8}, {8, 1})}).text.rfind("none: ", 0), 0u);
}

Trace trace_of(const std::string& run) {
  auto trace = read_trace(kTraces / (run + ".json.gz"));
  EXPECT_TRUE(trace.has_value()) << describe(trace.error());
  return std::move(*trace);
}

TEST(TraceRows, NearlyAllKernelTimeBecomesRows) {
  for (const char* run : {"gpt2-train-b16-s1024", "llama-3.2-1b-train-b8-s2048", "bert-large-train-b32-s512"}) {
    const Trace trace = trace_of(run);
    const TraceRows rows = rows_of_trace(trace);
    EXPECT_GT(rows.mapped_share(), 0.999) << run;
    EXPECT_LT(rows.mapped_share(), 1.0) << run;
    double left_s = 0, all_s = 0;
    std::size_t kernels = 0;
    for (const UnmappedOperator& left : rows.unmapped) {
      EXPECT_FALSE(left.name.empty());
      EXPECT_FALSE(left.reason.empty()) << left.name;
      left_s += left.time_s, kernels += left.kernels;
    }
    for (const TraceKernel& kernel : trace.kernels) all_s += kernel.duration_s;
    EXPECT_NEAR(rows.kernel_time_s, all_s, 1e-9) << run;  // nothing is lost, nothing counted twice
    EXPECT_NEAR(rows.mapped_time_s + left_s, all_s, 1e-9) << run;
    EXPECT_GT(kernels, 0u);
    for (const Measurement& m : rows.rows) {
      EXPECT_TRUE(m.ok());
      EXPECT_EQ(m.source, kTraceSource);
      EXPECT_EQ(m.gpu, "NVIDIA H200");
    }
  }
}

TEST(TraceRows, CallsOfSeveralKernelsCountWhole) {
  const TraceRows rows = rows_of_trace(trace_of("gpt2-train-b16-s1024"));
  const auto find = [&](const std::string& op, const std::string& shape) {
    const auto at =
        std::find_if(rows.rows.begin(), rows.rows.end(), [&](const Measurement& m) { return name_of(m.call.kernel) == op && print_shape(m.call).rfind(shape, 0) == 0; });
    EXPECT_NE(at, rows.rows.end()) << op << " " << shape;
    return at == rows.rows.end() ? Measurement{} : *at;
  };
  EXPECT_NEAR(find("layernorm", "rows=16384 cols=768 pass=bwd").measured_s, 107.7e-6, 1e-6);  // 28.6 + 79.2
  EXPECT_NEAR(find("nll", "rows=16384 cols=50257 pass=bwd").measured_s, 719.7e-6, 1e-6);      // 2 x 350.4 of the fill before it + 18.9
  EXPECT_NEAR(find("optimizer", "kind=adamw numel=20971520").measured_s, 109.2e-6, 1e-6);
  const Measurement scale = find("pointwise", "kind=scale numel=50331648");
  EXPECT_GE(scale.replays, 10);
  EXPECT_NEAR(scale.measured_s, 47.6e-6, 1e-6);
}

Machine h200() { return load_machine(DataPath{{ROOFTILE_SOURCE_DIR}}, "h200_sxm", "", "").value(); }

// A device of which nobody has measured PyTorch's kernels.
Machine without_classes() {
  Machine machine = h200();
  for (CalibrationLayer& layer : machine.calibration.layers) std::erase_if(layer.facts, [](const Fact& fact) { return fact.key.rfind("torch.", 0) == 0; });
  return machine;
}

Machine with(Machine machine, const CalibrationLayer& layer) {
  machine.calibration.layers.push_back(layer);
  return machine;
}

TEST(FitTrace, ATraceOfOneModelLowersTheErrorOnOthers) {
  const std::vector<Measurement> learned = rows_of_trace(trace_of("gpt2-train-b16-s1024")).rows;
  for (const bool bare : {true, false}) {
    const Machine machine = bare ? without_classes() : h200();
    const auto fit = fit_trace(machine, learned, "2026-11-30");
    ASSERT_TRUE(fit.has_value()) << describe(fit.error());
    const Machine after = with(machine, fit->layer);
    for (const char* run : {"llama-3.2-1b-train-b8-s2048", "bert-large-train-b32-s512"}) {
      // Of the classes that GPT-2 has; the others cannot change.
      std::vector<Measurement> rows = rows_of_trace(trace_of(run)).rows, shared;
      std::copy_if(rows.begin(), rows.end(), std::back_inserter(shared), [&](const Measurement& m) {
        return learned_from_traces(m.call) && std::any_of(fit->classes.begin(), fit->classes.end(), [&](const TraceClassFit& c) { return c.name == trace_class(m.call); });
      });
      ASSERT_GT(shared.size(), 15u) << run;
      const TraceClassError before = trace_errors(machine, shared).at(""), then = trace_errors(after, shared).at("");
      EXPECT_EQ(before.rows, then.rows);
      EXPECT_LT(then.mean_abs, bare ? 0.75 * before.mean_abs : before.mean_abs) << run << (bare ? " without classes" : " from the shipped ones");
      if (bare) {
        EXPECT_GT(before.of_time_abs, 0.25) << run;
        EXPECT_LT(then.of_time_abs, 0.75 * before.of_time_abs) << run;
      }
    }
  }
}

TEST(FitTrace, FindsWhatWasChangedAndLeavesTheRest) {
  const Machine machine = h200();
  std::vector<Measurement> rows = rows_of_trace(trace_of("llama-3.2-1b-train-b8-s2048")).rows;
  CalibrationLayer changed;
  changed.level = LayerLevel::site;
  changed.facts.push_back(Fact{.key = "torch.vector.efficiency", .value = 0.7, .unit = "1"});
  const Machine truth = under_profiler(with(machine, changed));
  KernelTimer timer(truth, Mode::calibrated, ClockState::automatic);
  std::erase_if(rows, [](const Measurement& m) { return !learned_from_traces(m.call); });
  for (Measurement& m : rows) m.measured_s = timer(m.call).time_s;
  const auto fit = fit_trace(machine, rows, "2026-11-30");
  ASSERT_TRUE(fit.has_value());
  for (const TraceClassFit& c : fit->classes) {
    if (c.name == "vector") {
      EXPECT_GT(c.before, 0.1);
      EXPECT_LT(c.after, 0.01);
      EXPECT_NEAR(c.efficiency, 0.7 / machine.calibration.find("torch.vector.efficiency").value(), 0.05);
    } else {
      EXPECT_LT(c.before, 0.01) << c.name;
      EXPECT_LE(c.after, c.before + 1e-9) << c.name;
    }
  }
  for (const Fact& fact : fit->layer.facts) {
    EXPECT_EQ(fact.key.rfind("torch.vector.", 0), 0u) << fact.key;  // what did not move is not written
    EXPECT_FALSE(fact.note.empty());
  }
}

TEST(FitTrace, RowsFromL2TeachNothing) {
  const Machine machine = h200();
  Measurement m;
  m.call = parse_kernel("pointwise", "bf16", "kind=add numel=12582912", "torch").value();
  m.measured_s = 5e-6;  // 75 MB at 15 TB/s
  const auto fit = fit_trace(machine, std::vector<Measurement>{m}, "2026-11-30");
  ASSERT_TRUE(fit.has_value());
  EXPECT_EQ(fit->classes.at(0).warm, 1u);
  EXPECT_EQ(fit->classes.at(0).rows, 0u);
  EXPECT_TRUE(fit->layer.facts.empty());
}

TEST(FitTrace, NothingToLearnIsAnError) {
  Measurement m;
  m.call = parse_kernel("gemm", "bf16", "m=64 n=64 k=64 batch=1 layout=nt").value();
  m.measured_s = 5e-6;
  const auto fit = fit_trace(h200(), std::vector<Measurement>{m}, "2026-11-30");
  ASSERT_FALSE(fit.has_value());
  EXPECT_EQ(fit.error().code, ErrorCode::invalid);
}

}  // namespace
}  // namespace rooftile
