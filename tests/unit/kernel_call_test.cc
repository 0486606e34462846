#include "estimator/timing/kernel_call.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace rooftile {
namespace {

KernelCall parse(std::string_view op, std::string_view dtype, std::string_view shape, std::string_view impl = {}) {
  const auto call = parse_kernel(op, dtype, shape, impl);
  EXPECT_TRUE(call.has_value()) << op << " " << shape << ": " << (call ? "" : describe(call.error()));
  return call.value_or(KernelCall{});
}

Error error_of(std::string_view op, std::string_view dtype, std::string_view shape, std::string_view impl = {}) {
  const auto call = parse_kernel(op, dtype, shape, impl);
  EXPECT_FALSE(call.has_value()) << op << " " << shape;
  return call ? Error{} : call.error();
}

struct Text {
  const char *op, *dtype, *shape;
};

// Each in the printer's own order, so that print(parse(text)) is the text.
const Text kTexts[] = {
    {"gemm", "bf16", "m=4096 n=4096 k=1024 batch=1 layout=nt"},
    {"gemm", "bf16", "m=4096 n=4096 k=1024 batch=3 layout=tn out=fp32 accumulate=1"},
    {"gemm", "fp8_e4m3", "m=16 n=32 k=64 batch=1 layout=nn epilogue=gelu"},
    {"gemm", "fp16", "m=7 n=9 k=11 batch=8 layout=tt epilogue=bias grouped=1"},
    {"gemm", "bf16", "m=1 n=4096 k=4096 batch=1 layout=nt b_bytes=9437184"},
    {"attention", "bf16", "batch=1 heads=32 kv_heads=8 seq_q=4096 seq_kv=4096 head_dim=128 causal=1 pass=fwd"},
    {"attention", "bf16", "batch=2 heads=128 kv_heads=128 seq_q=64 seq_kv=4096 head_dim=192 v_head_dim=128 causal=0 window=77 pass=bwd kernel=flash3"},
    {"softmax", "fp32", "rows=8192 cols=1280 pass=fwd"},
    {"layernorm", "fp16", "rows=1 cols=3 pass=bwd"},
    {"rmsnorm", "bf16", "rows=10 cols=4096 pass=bwd"},
    {"column_sum", "bf16", "rows=4096 cols=12288"},
    {"row_sum", "bf16", "rows=4096 cols=12288"},
    {"pointwise", "bf16", "kind=silu_mul numel=100"},
    {"pointwise", "fp32", "kind=cast numel=100"},
    {"pointwise", "bf16", "kind=cast numel=100 to=fp8_e4m3"},
    {"embedding", "bf16", "tokens=4096 vocab=128256 hidden=4096 pass=bwd"},
    {"cross_entropy", "fp32", "tokens=4096 vocab=50257 pass=fwd"},
    {"optimizer", "bf16", "kind=adamw numel=8030261248"},
    {"optimizer", "bf16", "kind=sgd numel=5 state=fp32 gradient=fp32 main_weights=1"},
    {"optimizer", "fp32", "kind=adamw_foreach numel=5"},
    {"log_softmax", "fp32", "rows=8192 cols=50257 pass=bwd"},
    {"softmax_fp32", "bf16", "rows=8192 cols=1024 pass=fwd"},
    {"nll", "fp32", "rows=8192 cols=50257 pass=bwd"},
    {"row_mean", "fp32", "rows=8192 cols=2048"},
    {"argmax", "bf16", "rows=8192 cols=2048"},
    {"topk", "bf16", "rows=8192 cols=64"},
    {"sort", "bf16", "rows=1 cols=65536"},
    {"layernorm_input", "bf16", "rows=8192 cols=2048 pass=bwd"},
    {"collective", "fp16", "kind=all_reduce bytes=65536 ranks=16 nodes=2"},
};

TEST(KernelCallText, PrintIsTheInverseOfParse) {
  for (const Text& text : kTexts) {
    const KernelCall call = parse(text.op, text.dtype, text.shape);
    EXPECT_EQ(print_shape(call), text.shape);
    EXPECT_EQ(name_of(call.kernel), text.op);
    EXPECT_EQ(parse(text.op, text.dtype, print_shape(call)), call);
  }
}

TEST(KernelCallText, EveryPointwiseKindComesBack) {
  for (const std::string_view kind : {
#define POINTWISE_KIND(id, reads, writes, flops, special, doc) std::string_view(#id),
#include "estimator/timing/pointwise.def"
       }) {
    const std::string text = "kind=" + std::string(kind) + " numel=96";
    const KernelCall call = parse("pointwise", "bf16", text, "torch");
    EXPECT_EQ(print_shape(call), text);
    EXPECT_GT(work_of(call).bytes(), 0) << kind;
  }
}

TEST(KernelCallText, OtherNamesOfMeasurementFilesMeanTheSame) {
  const auto canonical = [](std::string_view op, std::string_view shape) { return print_shape(parse(op, "bf16", shape)); };
  EXPECT_EQ(canonical("pointwise", "kind=add_inplace numel=8"), "kind=add numel=8");
  EXPECT_EQ(canonical("pointwise", "kind=expand_div numel=8"), "kind=expand numel=8");
  EXPECT_EQ(canonical("pointwise", "kind=index_add numel=8"), "kind=scatter_add numel=8");
  EXPECT_EQ(canonical("pointwise", "kind=sin numel=8"), "kind=cos numel=8");
  EXPECT_EQ(canonical("column_sum", "rows=4 cols=8 pass=fwd"), "rows=4 cols=8");
  EXPECT_EQ(parse("topk8", "bf16", "rows=4 cols=8 pass=fwd").kernel, KernelClass::topk);
  EXPECT_EQ(parse("layernorm_input", "bf16", "rows=4 cols=8").pass, Pass::bwd);
  EXPECT_NE(error_of("row_mean", "bf16", "rows=4 cols=8 pass=bwd").message.find("no backward"), std::string::npos);
}

TEST(KernelCallWork, KernelsOfEagerPyTorch) {
  const auto bytes = [](std::string_view op, std::string_view dtype, std::string_view shape) { return static_cast<double>(work_of(parse(op, dtype, shape)).bytes()); };
  EXPECT_EQ(bytes("pointwise", "bf16", "kind=mixed_mul numel=100"), 1000);
  EXPECT_EQ(bytes("pointwise", "fp32", "kind=mixed_mul numel=100"), 1000);
  EXPECT_EQ(bytes("pointwise", "bf16", "kind=expand numel=100"), 200);
  EXPECT_EQ(bytes("pointwise", "bf16", "kind=fused numel=100"), 200);
  EXPECT_EQ(bytes("softmax_fp32", "bf16", "rows=10 cols=10 pass=fwd"), 600);
  EXPECT_EQ(bytes("softmax_fp32", "bf16", "rows=10 cols=10 pass=bwd"), 1000);
  EXPECT_EQ(bytes("nll", "fp32", "rows=10 cols=10 pass=bwd"), 480);  // the gradient and ten indices
  EXPECT_EQ(bytes("nll", "fp32", "rows=10 cols=10 pass=fwd"), 124);
  EXPECT_EQ(bytes("layernorm_input", "bf16", "rows=10 cols=10 pass=bwd"), 620);
  EXPECT_EQ(bytes("optimizer", "fp32", "kind=adamw_foreach numel=10"), 10 * 4 * 20);
}

TEST(KernelCallText, DefaultsAreThoseOfTheContract) {
  const KernelCall gemm = parse("gemm", "bf16", "m=2 n=3 k=4");
  EXPECT_EQ(gemm.gemm().batch, 1);
  EXPECT_EQ(gemm.gemm().layout, GemmLayout::nt);
  EXPECT_EQ(gemm.gemm().out, DType::bf16);
  EXPECT_EQ(gemm.impl, Impl::vendor);
  EXPECT_EQ(parse("gemm", "fp16", "m=2 n=3 k=4").gemm().out, DType::fp16);
  EXPECT_EQ(parse("gemm", "fp8", "m=2 n=3 k=4").gemm().out, DType::bf16);
  EXPECT_EQ(parse("gemm", "fp32", "m=2 n=3 k=4").gemm().out, DType::fp32);
  const KernelCall attention = parse("attention", "bf16", "batch=1 heads=8 seq_q=5 head_dim=64");
  EXPECT_EQ(attention.attention().kv_heads, 8);
  EXPECT_EQ(attention.attention().seq_kv, 5);
  EXPECT_EQ(attention.attention().v_head_dim, 64);
  EXPECT_EQ(attention.attention().kernel, AttentionKernel::fastest);
  EXPECT_EQ(parse("softmax", "bf16", "rows=1 cols=1").impl, Impl::torch);
  EXPECT_EQ(parse("softmax", "bf16", "rows=1 cols=1", "rooftile").impl, Impl::rooftile);
  EXPECT_EQ(parse("softmax", "bf16", "rows=1 cols=1 impl=rooftile").impl, Impl::rooftile);
  EXPECT_EQ(parse("pointwise", "fp32", "kind=cast numel=1").pointwise().to, DType::bf16);
  EXPECT_EQ(parse("pointwise", "bf16", "kind=cast numel=1").pointwise().to, DType::fp32);
  EXPECT_EQ(parse("optimizer", "bf16", "kind=adamw numel=1").optimizer().state, DType::bf16);
}

TEST(KernelCallText, ErrorsSayWhatAndWhatToTry) {
  const auto has = [](const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; };
  const Error misspelt = error_of("attention", "bf16", "batch=1 haeds=8 seq_q=5 head_dim=64");
  EXPECT_EQ(misspelt.code, ErrorCode::invalid);
  EXPECT_TRUE(has(misspelt.message, "haeds"));
  EXPECT_TRUE(has(misspelt.hint, "did you mean 'heads'?"));
  EXPECT_TRUE(has(error_of("gem", "bf16", "m=1").hint, "did you mean 'gemm'?"));
  EXPECT_TRUE(has(error_of("gemm", "bf61", "m=1").hint, "bf16"));
  EXPECT_TRUE(has(error_of("gemm", "bf16", "m=1 n=2 k=3 m=4").message, "twice"));
  EXPECT_TRUE(has(error_of("gemm", "bf16", "m=1 n=2").message, "needs the key 'k'"));
  EXPECT_TRUE(has(error_of("pointwise", "bf16", "kind=silu_mull numel=4").hint, "silu_mul"));
  EXPECT_TRUE(has(error_of("gemm", "bf16", "m=1 n=2 k=3 layout=ntt").hint, "nt"));
  EXPECT_TRUE(has(error_of("gemm", "bf16", "m=1 n=2 k=3 impl=torch", "vendor").message, "impl"));
  for (const char* bad : {"0", "-1", "1.5", "1e3", "9223372036854775808", "99999999999999999999999999", "", "x", "0x10", "+1", "1 n=2 k=3 ="}) {
    error_of("gemm", "bf16", std::string("n=1 k=1 m=") + bad);
  }
  error_of("gemm", "bf16", "m=9223372036854775807 n=1 k=2");
  error_of("gemm", "bf16", "just text");
  error_of("gemm", "bf16", "");
  error_of("attention", "bf16", "batch=1 heads=8 kv_heads=3 seq_q=5 head_dim=64");
  error_of("attention", "bf16", "batch=1 heads=8 seq_q=4611686018427387904 seq_kv=1024 head_dim=1");
  error_of("collective", "bf16", "kind=all_reduce bytes=1 ranks=8 nodes=3");
  EXPECT_TRUE(has(error_of("gemm", "bf16", "\x01\xff=3").message,
                  "'?"
                  "?'"));
}

TEST(KernelCallHash, EqualCallsHashAlikeAndNearCallsApart) {
  std::set<std::size_t> seen;
  for (int m = 1; m <= 64; ++m) {
    for (int n = 1; n <= 64; ++n) {
      KernelCall call;
      call.shape = GemmShape{.m = m, .n = n, .k = 64};
      seen.insert(hash_of(call));
      EXPECT_EQ(hash_of(call), hash_of(KernelCall(call)));
    }
  }
  EXPECT_EQ(seen.size(), 64u * 64u);
  std::set<std::size_t> texts;
  for (const Text& text : kTexts) texts.insert(hash_of(parse(text.op, text.dtype, text.shape)));
  EXPECT_EQ(texts.size(), std::size(kTexts));
}

Count counted_pairs(const AttentionShape& s) {
  Count pairs = 0;
  for (std::int64_t i = 0; i < s.seq_q; ++i) {
    std::int64_t seen = 0;
    for (std::int64_t j = 0; j < s.seq_kv; ++j) {
      const std::int64_t diagonal = i + s.seq_kv - s.seq_q;  // bottom right: the last query sees the last key
      if (s.causal && j > diagonal) continue;
      if (s.causal && s.window > 0 && j <= diagonal - s.window) continue;
      ++seen;
    }
    if (!s.causal && s.window > 0) seen = std::min(seen, s.window);
    pairs += seen;
  }
  return pairs;
}

TEST(KeptPairs, WorkedNumbers) {
  AttentionShape s{.batch = 1, .heads = 1, .kv_heads = 1, .seq_q = 4, .seq_kv = 4, .head_dim = 1, .v_head_dim = 1};
  EXPECT_EQ(static_cast<long>(s.kept_pairs()), 16);
  s.causal = true;
  EXPECT_EQ(static_cast<long>(s.kept_pairs()), 10);
  s.window = 2;
  EXPECT_EQ(static_cast<long>(s.kept_pairs()), 7);
}

TEST(KeptPairs, EqualsCountingTheMask) {
  for (std::int64_t q = 1; q <= 9; ++q) {
    for (std::int64_t kv = 1; kv <= 9; ++kv) {
      for (std::int64_t window = 0; window <= 10; ++window) {
        for (const bool causal : {false, true}) {
          const AttentionShape s{.batch = 1, .heads = 1, .kv_heads = 1, .seq_q = q, .seq_kv = kv, .head_dim = 1, .v_head_dim = 1, .causal = causal, .window = window};
          EXPECT_EQ(static_cast<long>(s.kept_pairs()), static_cast<long>(counted_pairs(s))) << q << " " << kv << " " << window << " " << causal;
        }
      }
    }
  }
}

long long flops(const KernelCall& call) { return static_cast<long long>(work_of(call).flops); }
long long read(const KernelCall& call) { return static_cast<long long>(work_of(call).bytes_read); }
long long written(const KernelCall& call) { return static_cast<long long>(work_of(call).bytes_written); }
long long moved(const KernelCall& call) { return static_cast<long long>(work_of(call).bytes()); }

TEST(KernelWork, Gemm) {
  const KernelCall call = parse("gemm", "bf16", "m=1024 n=1024 k=1024");
  EXPECT_EQ(flops(call), 1LL << 31);
  EXPECT_EQ(read(call), 4 << 20);
  EXPECT_EQ(written(call), 2 << 20);
  const KernelCall gradient = parse("gemm", "bf16", "m=10 n=20 k=30 batch=2 layout=tn out=fp32 accumulate=1");
  EXPECT_EQ(flops(gradient), 2 * 10 * 20 * 30 * 2);
  EXPECT_EQ(read(gradient), 2 * 2 * (10 * 30 + 20 * 30) + 4 * 2 * 10 * 20);
  EXPECT_EQ(written(gradient), 4 * 2 * 10 * 20);
  EXPECT_EQ(moved(parse("gemm", "fp4", "m=2 n=2 k=2")), 4 + 8);
  // 4-bit weights of 4096 x 4096 in blocks of 32 with fp16 scales: 8 MiB + 1 MiB instead of 32 MiB.
  EXPECT_EQ(read(parse("gemm", "bf16", "m=1 n=4096 k=4096 b_bytes=9437184")), 2 * 4096 + 9437184);
}

TEST(KernelWork, Attention) {
  // 2 x 3 heads, 4 queries and keys, causal: 10 pairs each.
  const KernelCall fwd = parse("attention", "bf16", "batch=2 heads=3 kv_heads=1 seq_q=4 seq_kv=4 head_dim=16 causal=1");
  EXPECT_EQ(flops(fwd), 6LL * 10 * 2 * (16 + 16));
  EXPECT_EQ(read(fwd), 2 * (6 * 4 * 16) + 2 * 2 * (2 * 4 * 16));
  EXPECT_EQ(written(fwd), 2 * (6 * 4 * 16) + 4 * 6 * 4);
  KernelCall bwd = fwd;
  bwd.pass = Pass::bwd;
  EXPECT_EQ(flops(bwd) * 2, flops(fwd) * 5);
  EXPECT_EQ(read(bwd), 3 * 2 * (6 * 4 * 16) + 2 * 2 * (2 * 4 * 16) + 4 * 6 * 4);
  EXPECT_EQ(written(bwd), 2 * (6 * 4 * 16) + 2 * 2 * (2 * 4 * 16));
  const KernelCall mla = parse("attention", "bf16", "batch=1 heads=1 seq_q=2 seq_kv=2 head_dim=192 v_head_dim=128 causal=0 pass=bwd");
  EXPECT_EQ(flops(mla), 4 * 2 * (3 * 192 + 2 * 128));
  // One query of a decode sees all keys; with a window only the last ones are read.
  const KernelCall decode = parse("attention", "bf16", "batch=1 heads=1 seq_q=1 seq_kv=1000 head_dim=8 causal=1 window=10");
  EXPECT_EQ(flops(decode), 10 * 2 * 16);
  EXPECT_EQ(read(decode), 2 * 8 + 2 * 2 * 10 * 8);
  // Standard attention moves the 4 x 4 scores of each head six times more.
  KernelCall standard = fwd;
  std::get<AttentionShape>(standard.shape).kernel = AttentionKernel::standard;
  EXPECT_EQ(flops(standard), flops(fwd));
  EXPECT_EQ(moved(standard), moved(fwd) - 4 * 6 * 4 + 6 * 2 * 6 * 16);
}

TEST(KernelWork, RowKernels) {
  EXPECT_EQ(moved(parse("softmax", "bf16", "rows=10 cols=20 pass=fwd")), 2 * 2 * 200);
  EXPECT_EQ(moved(parse("softmax", "bf16", "rows=10 cols=20 pass=bwd")), 3 * 2 * 200);
  EXPECT_EQ(moved(parse("layernorm", "bf16", "rows=10 cols=20 pass=fwd")), 2 * (2 * 200 + 2 * 20));
  EXPECT_EQ(moved(parse("layernorm", "bf16", "rows=10 cols=20 pass=bwd")), 2 * (3 * 200 + 20 + 2 * 20));
  EXPECT_EQ(moved(parse("rmsnorm", "fp32", "rows=10 cols=20 pass=bwd")), 4 * (3 * 200 + 20 + 20));
  EXPECT_EQ(moved(parse("column_sum", "bf16", "rows=10 cols=20")), 2 * (200 + 20));
  EXPECT_EQ(moved(parse("row_sum", "bf16", "rows=10 cols=20")), 2 * (200 + 10));
}

TEST(KernelWork, PointwiseCountsMasksAsBytes) {
  EXPECT_EQ(moved(parse("pointwise", "bf16", "kind=silu_mul numel=100")), 2 * 300);
  EXPECT_EQ(moved(parse("pointwise", "bf16", "kind=dropout numel=100")), 2 * 200 + 100);
  EXPECT_EQ(moved(parse("pointwise", "fp32", "kind=dropout numel=100")), 4 * 200 + 100);
  EXPECT_EQ(moved(parse("pointwise", "fp32", "kind=cast numel=100 to=bf16")), 600);
}

TEST(KernelWork, EmbeddingLossOptimizerCollective) {
  EXPECT_EQ(moved(parse("embedding", "bf16", "tokens=10 vocab=1000 hidden=4 pass=fwd")), 2 * 2 * 40 + 80);
  EXPECT_EQ(moved(parse("embedding", "bf16", "tokens=10 vocab=1000 hidden=4 pass=bwd")), 3 * 2 * 40 + 80);
  EXPECT_EQ(moved(parse("embedding", "bf16", "tokens=10 vocab=5 hidden=4 pass=bwd")), 2 * 40 + 2 * 2 * 20 + 80);
  EXPECT_EQ(read(parse("cross_entropy", "fp32", "tokens=10 vocab=100 pass=fwd")), 4000 + 80);
  EXPECT_EQ(moved(parse("cross_entropy", "fp32", "tokens=10 vocab=100 pass=bwd")), 8000 + 80 + 40);
  EXPECT_EQ(moved(parse("optimizer", "bf16", "kind=adamw numel=1000")), 14000);
  EXPECT_EQ(moved(parse("optimizer", "fp32", "kind=adamw numel=1000")), 28000);
  EXPECT_EQ(moved(parse("optimizer", "bf16", "kind=adamw numel=1000 state=fp32 gradient=fp32 main_weights=1")), 30000);
  EXPECT_EQ(moved(parse("optimizer", "bf16", "kind=sgd numel=1000")), 6000);
  EXPECT_EQ(read(parse("collective", "bf16", "kind=all_reduce bytes=800 ranks=8")), 1400);
  EXPECT_EQ(read(parse("collective", "bf16", "kind=all_gather bytes=800 ranks=8")), 700);
  EXPECT_EQ(read(parse("collective", "bf16", "kind=send_recv bytes=800 ranks=2")), 800);
  EXPECT_EQ(read(parse("collective", "bf16", "kind=all_reduce bytes=800 ranks=1")), 0);
}

}  // namespace
}  // namespace rooftile
