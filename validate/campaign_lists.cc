// Attention, kernels over rows, element-wise kernels, collectives, ceilings and the sustained sample of a campaign.
#include <algorithm>

#include "validate/campaign_builder.h"

namespace rooftile {

namespace {

constexpr std::int64_t kMebi = std::int64_t{1} << 20;

struct Heads {
  std::int64_t heads, kv_heads, width, v_width;
};

bool affordable(const KernelCall& call) {
  const KernelWork work = work_of(call);
  if (to_double(work.bytes()) > 4e9) return false;
  if (call.kernel != KernelClass::attention) return true;
  const AttentionShape& s = call.attention();
  const double scores = static_cast<double>(s.batch) * static_cast<double>(s.heads) * static_cast<double>(s.seq_q) * static_cast<double>(s.seq_kv);
  if (s.kernel == AttentionKernel::standard) return scores <= 5e8;
  return to_double(work.flops) <= 4e12;
}

OptimizerShape adamw(std::int64_t numel, DType gradient, bool main_weights) {
  OptimizerShape shape;
  shape.numel = numel;
  shape.gradient = gradient;
  shape.main_weights = main_weights;
  return shape;
}

KernelCall optimizer_call(const OptimizerShape& shape, DType dtype) { return KernelCall{KernelClass::optimizer, dtype, Pass::fwd, Impl::rooftile, shape}; }

}  // namespace

std::vector<KernelCall> attention_campaign() {
  CampaignRandom random(20240602);
  CampaignList list;
  constexpr Heads kHeads[] = {{12, 12, 64, 64},  {16, 16, 64, 64},   {32, 8, 64, 64},  {32, 32, 80, 80},  {16, 16, 128, 128}, {32, 8, 128, 128},  {32, 32, 128, 128},
                              {64, 8, 128, 128}, {40, 40, 128, 128}, {8, 1, 128, 128}, {16, 8, 256, 256}, {32, 32, 96, 96},   {16, 16, 192, 128}, {28, 4, 128, 128}};
  constexpr std::int64_t kSeq[] = {128, 197, 256, 384, 512, 577, 1000, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 16384};
  constexpr std::int64_t kBatch[] = {1, 1, 2, 4, 8, 16, 32};
  const auto shape = [&](const Heads& h, std::int64_t batch, std::int64_t q, std::int64_t kv) {
    AttentionShape s;
    s.batch = batch;
    s.heads = h.heads;
    s.kv_heads = h.kv_heads;
    s.head_dim = h.width;
    s.v_head_dim = h.v_width;
    s.seq_q = q;
    s.seq_kv = kv;
    s.kernel = AttentionKernel::cudnn;
    return s;
  };
  const auto grow = [&](std::size_t count, auto make) {
    const std::size_t end = list.size() + count;
    for (int tries = 0; list.size() < end && tries < 20000; ++tries) {
      const KernelCall call = make();
      if (affordable(call)) list.add(call);
    }
  };
  grow(290, [&] {  // whole sequences, forward and backward
    AttentionShape s = shape(random.pick(kHeads), random.pick(kBatch), 0, 0);
    s.seq_q = s.seq_kv = random.pick(kSeq);
    s.causal = random.uniform() < 0.65;
    if (s.causal && s.seq_q >= 1024 && random.uniform() < 0.25) s.window = s.seq_q / 4;
    return make_attention_call(s, random.uniform() < 0.55 ? Pass::fwd : Pass::bwd, random.uniform() < 0.85 ? DType::bf16 : DType::fp16);
  });
  grow(90, [&] {  // one new token for each sequence
    constexpr std::int64_t kContext[] = {128, 512, 1024, 2048, 4096, 8192, 16384, 32768};
    constexpr std::int64_t kDecodeBatch[] = {1, 2, 4, 8, 16, 32, 64, 128};
    return make_attention_call(shape(random.pick(kHeads), random.pick(kDecodeBatch), 1, random.pick(kContext)), Pass::fwd);
  });
  grow(40, [&] {  // a chunk of a prompt behind a context, and cross attention
    AttentionShape s = shape(random.pick(kHeads), random.pick(kBatch), 0, 0);
    s.seq_kv = random.pick(kSeq);
    s.seq_q = std::max<std::int64_t>(16, s.seq_kv / (2 + random.below(6)));
    s.causal = random.uniform() < 0.6;
    return make_attention_call(s, Pass::fwd);
  });
  grow(90, [&] {
    AttentionShape s = shape(random.pick(kHeads), random.pick(kBatch), 0, 0);
    s.seq_q = s.seq_kv = random.pick(kSeq);
    s.causal = random.uniform() < 0.5;
    s.kernel = AttentionKernel::standard;
    return make_attention_call(s, random.uniform() < 0.6 ? Pass::fwd : Pass::bwd);
  });
  return list.shuffled(9, 64);
}

std::vector<KernelCall> rows_campaign() {
  CampaignRandom random(20240603);
  CampaignList list;
  constexpr std::int64_t kCols[] = {64, 128, 256, 384, 512, 768, 1000, 1024, 1280, 1600, 2048, 2560, 3072, 4096, 5120, 6144, 7168, 8192, 12288, 16384};
  constexpr std::int64_t kLong[] = {32768, 50257, 50304, 65536, 128256};
  constexpr KernelClass kKinds[] = {KernelClass::softmax, KernelClass::layernorm, KernelClass::rmsnorm, KernelClass::column_sum, KernelClass::row_sum};
  for (int tries = 0; list.size() < 480 && tries < 40000; ++tries) {
    const double x = random.uniform();
    const KernelClass kernel = x < 0.3 ? KernelClass::softmax : x < 0.55 ? KernelClass::layernorm : x < 0.8 ? KernelClass::rmsnorm : random.pick(kKinds);
    const bool passes = kernel == KernelClass::softmax || kernel == KernelClass::layernorm || kernel == KernelClass::rmsnorm;
    const Pass pass = passes && random.uniform() < 0.45 ? Pass::bwd : Pass::fwd;
    std::int64_t cols = random.pick(kCols);
    if (kernel == KernelClass::softmax && random.uniform() < 0.2) cols = random.pick(kLong);
    if (random.uniform() < 0.05) cols += 1 + random.below(7);
    const double y = random.uniform();
    const DType dtype = y < 0.7 ? DType::bf16 : y < 0.85 ? DType::fp32 : DType::fp16;
    const KernelCall call = make_row_call(kernel, random.size(64, 262144, 64), cols, pass, dtype);
    if (affordable(call)) list.add(call);
  }
  return list.shuffled(10, 64);
}

std::vector<KernelCall> pointwise_campaign() {
  CampaignRandom random(20240604);
  CampaignList list;
  constexpr PointwiseKind kKinds[] = {PointwiseKind::copy,
                                      PointwiseKind::fill,
                                      PointwiseKind::cast,
                                      PointwiseKind::add,
                                      PointwiseKind::mul,
                                      PointwiseKind::scale,
                                      PointwiseKind::bias,
                                      PointwiseKind::unary,
                                      PointwiseKind::special,
                                      PointwiseKind::relu,
                                      PointwiseKind::relu_backward,
                                      PointwiseKind::gelu,
                                      PointwiseKind::gelu_backward,
                                      PointwiseKind::silu,
                                      PointwiseKind::silu_backward,
                                      PointwiseKind::silu_mul,
                                      PointwiseKind::silu_mul_backward,
                                      PointwiseKind::gelu_mul,
                                      PointwiseKind::gelu_mul_backward,
                                      PointwiseKind::tanh,
                                      PointwiseKind::tanh_backward,
                                      PointwiseKind::sigmoid,
                                      PointwiseKind::exp,
                                      PointwiseKind::sqrt,
                                      PointwiseKind::rotary};
  // Powers of two for every kind, so that kinds can be compared at one size.
  for (const PointwiseKind kind : kKinds)
    for (const std::int64_t numel : {kMebi / 4, 4 * kMebi, 32 * kMebi, 256 * kMebi}) {
      KernelCall call = make_pointwise_call(kind, numel);
      if (kind == PointwiseKind::cast) std::get<PointwiseShape>(call.shape).to = DType::fp32;
      if (affordable(call)) list.add(call);
    }
  for (int tries = 0; list.size() < 340 && tries < 20000; ++tries) {
    const PointwiseKind kind = random.pick(kKinds);
    const double y = random.uniform();
    const DType dtype = y < 0.65 ? DType::bf16 : y < 0.85 ? DType::fp32 : DType::fp16;
    KernelCall call = make_pointwise_call(kind, random.size(8192, 3e8, 1024), dtype);
    if (kind == PointwiseKind::cast) std::get<PointwiseShape>(call.shape).to = dtype == DType::fp32 ? (random.uniform() < 0.5 ? DType::bf16 : DType::fp16) : DType::fp32;
    if (affordable(call)) list.add(call);
  }
  constexpr std::int64_t kHidden[] = {768, 1024, 2048, 4096, 5120, 8192};
  constexpr std::int64_t kVocab[] = {30522, 32000, 50257, 50304, 128256, 151936};
  for (std::size_t end = list.size() + 60, tries = 0; list.size() < end && tries < 4000; ++tries) {
    const KernelCall call{KernelClass::embedding, DType::bf16, random.uniform() < 0.5 ? Pass::fwd : Pass::bwd, Impl::rooftile,
                          EmbeddingShape{random.size(256, 65536, 256), random.pick(kVocab), random.pick(kHidden)}};
    if (affordable(call)) list.add(call);
  }
  for (std::size_t end = list.size() + 80, tries = 0; list.size() < end && tries < 4000; ++tries) {
    const KernelCall call{KernelClass::cross_entropy, random.uniform() < 0.75 ? DType::bf16 : DType::fp32, random.uniform() < 0.5 ? Pass::fwd : Pass::bwd, Impl::rooftile,
                          CrossEntropyShape{random.size(128, 32768, 128), random.pick(kVocab)}};
    if (affordable(call)) list.add(call);
  }
  for (std::size_t end = list.size() + 44, tries = 0; list.size() < end && tries < 4000; ++tries) {
    const bool mixed = random.uniform() < 0.5;
    const KernelCall call =
        optimizer_call(adamw(random.size(65536, 3e8, 1024), mixed && random.uniform() < 0.5 ? DType::bf16 : DType::fp32, mixed), mixed ? DType::bf16 : DType::fp32);
    if (to_double(work_of(call).bytes()) <= 9e9) list.add(call);
  }
  return list.shuffled(11, 64);
}

std::vector<KernelCall> collective_campaign(std::int64_t ranks) {
  CampaignList list;
  for (const CollectiveKind kind :
       {CollectiveKind::all_reduce, CollectiveKind::all_gather, CollectiveKind::reduce_scatter, CollectiveKind::all_to_all, CollectiveKind::broadcast, CollectiveKind::send_recv})
    for (std::int64_t bytes = 1024; bytes <= 1024 * kMebi; bytes *= 2)
      list.add(KernelCall{KernelClass::collective, DType::bf16, Pass::fwd, Impl::vendor, CollectiveShape{kind, bytes, ranks, 1}});
  // In one order on every rank, small and large mixed.
  return list.shuffled(12, 1);
}

std::vector<KernelCall> ceilings_campaign() {
  CampaignList list;
  for (const DType dtype : {DType::bf16, DType::fp16, DType::tf32, DType::fp32, DType::fp8_e4m3}) {
    const std::int64_t size = dtype == DType::fp32 ? 4096 : 8192;
    list.add(make_gemm_call(size, size, size, GemmLayout::nt, dtype));
    list.add(make_gemm_call(4096, 4096, 4096, GemmLayout::nt, dtype));
  }
  list.add(make_gemm_call(64, 64, 64, GemmLayout::nt));
  list.add(make_gemm_call(256, 256, 64, GemmLayout::nt));
  // Bandwidth from where it ramps up to where it is level.
  for (std::int64_t numel = 1024; numel <= 1024 * kMebi; numel *= 4) list.add(make_pointwise_call(PointwiseKind::copy, numel));
  list.add(make_pointwise_call(PointwiseKind::add, 256 * kMebi));
  list.add(make_pointwise_call(PointwiseKind::fill, 512 * kMebi));
  list.add(make_row_call(KernelClass::row_sum, 65536, 8192, Pass::fwd));  // reads alone
  list.add(make_pointwise_call(PointwiseKind::special, 256 * kMebi));
  AttentionShape s;
  s.batch = 4;
  s.heads = s.kv_heads = 32;
  s.seq_q = s.seq_kv = 4096;
  s.head_dim = s.v_head_dim = 128;
  s.kernel = AttentionKernel::cudnn;
  list.add(make_attention_call(s, Pass::fwd));
  list.add(make_attention_call(s, Pass::bwd));
  s.causal = true;
  list.add(make_attention_call(s, Pass::fwd));
  list.add(make_attention_call(s, Pass::bwd));
  return list.shuffled(13, 64);
}

std::vector<KernelCall> sustained_campaign() {
  CampaignList list;
  for (const DType dtype : {DType::bf16, DType::fp16, DType::fp8_e4m3})
    for (const std::int64_t size : {2048, 4096, 8192}) list.add(make_gemm_call(size, size, size, GemmLayout::nt, dtype));
  for (const std::int64_t tokens : {2048, 8192, 16384}) {
    list.add(make_gemm_call(tokens, 4096, 4096, GemmLayout::nt));
    list.add(make_gemm_call(tokens, 28672, 4096, GemmLayout::nt));
    list.add(make_gemm_call(tokens, 4096, 14336, GemmLayout::nn));
    list.add(make_gemm_call(4096, 14336, tokens, GemmLayout::tn));
    list.add(make_gemm_call(tokens, 3072, 768, GemmLayout::nt));
    list.add(make_gemm_call(tokens, 1024, 4096, GemmLayout::nt));
  }
  list.add(make_gemm_call(16, 28672, 8192, GemmLayout::nt));
  list.add(make_gemm_call(4096, 4096, 4096, GemmLayout::nt, DType::tf32));
  list.add(make_gemm_call(4096, 4096, 4096, GemmLayout::nt, DType::fp32));
  list.add(make_gemm_call(2048, 2048, 128, GemmLayout::nt, DType::bf16, 128));
  for (const std::int64_t width : {64, 128})
    for (const Pass pass : {Pass::fwd, Pass::bwd}) {
      AttentionShape s;
      s.batch = 8;
      s.heads = s.kv_heads = 16;
      s.seq_q = s.seq_kv = 2048;
      s.head_dim = s.v_head_dim = width;
      s.causal = true;
      s.kernel = AttentionKernel::cudnn;
      list.add(make_attention_call(s, pass));
      s.causal = false;
      list.add(make_attention_call(s, pass));
    }
  list.add(make_pointwise_call(PointwiseKind::copy, 512 * kMebi));
  list.add(make_pointwise_call(PointwiseKind::gelu, 256 * kMebi));
  list.add(make_row_call(KernelClass::rmsnorm, 65536, 4096, Pass::fwd));
  return list.shuffled(14, 1);
}

}  // namespace rooftile
