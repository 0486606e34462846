// The products of a campaign. Sizes are bounded by work and memory, not by a device: at most 4e12 FLOPs and 3 GB a call.
#include <algorithm>

#include "validate/campaign_builder.h"

namespace rooftile {

namespace {

constexpr GemmLayout kNt = GemmLayout::nt, kNn = GemmLayout::nn, kTn = GemmLayout::tn, kTt = GemmLayout::tt;
constexpr std::int64_t kHidden[] = {768, 1024, 1280, 1536, 1600, 2048, 2560, 3072, 3584, 4096, 5120, 6144, 7168, 8192, 12288};
constexpr std::int64_t kVocab[] = {30522, 30528, 32000, 32768, 50257, 50304, 51200, 65024, 128256, 151936};
constexpr std::int64_t kTokens[] = {256, 512, 1024, 2048, 3072, 4096, 8192, 16384, 32768};

bool affordable(const KernelCall& call) {
  const KernelWork work = work_of(call);
  return to_double(work.flops) <= 4e12 && to_double(work.bytes()) <= 3e9;
}

bool add(CampaignList& list, const KernelCall& call) { return affordable(call) && list.add(call); }

// Nine in ten log-uniform; layouts as often as a training step has them.
GemmLayout any_layout(CampaignRandom& random) {
  const double x = random.uniform();
  return x < 0.5 ? kNt : x < 0.75 ? kNn : kTn;
}

// Adds until the list has grown by `count`, or until nothing new comes.
template <typename Make>
void grow(CampaignList& list, std::size_t count, Make make) {
  const std::size_t end = list.size() + count;
  for (std::size_t tries = 0; list.size() < end && tries < 40 * count + 1000; ++tries) add(list, make());
}

void random_sizes(CampaignList& list, CampaignRandom& random, std::size_t count, DType dtype, std::int64_t multiple) {
  grow(list, count, [&] {
    const std::int64_t step = random.uniform() < 0.5 ? multiple : std::max<std::int64_t>(multiple, 64);
    const std::int64_t m = random.size(16, 16384, step), n = random.size(16, 16384, step), k = random.size(32, 16384, step);
    return make_gemm_call(m, n, k, dtype == DType::fp8_e4m3 ? kNt : any_layout(random), dtype);
  });
}

// The three products of a linear layer: forward nt [tokens, out, in], input gradient nn [tokens, in, out], weight gradient tn [out, in, tokens].
KernelCall linear(CampaignRandom& random, std::int64_t tokens, std::int64_t in, std::int64_t out, DType dtype) {
  const double x = random.uniform();
  if (dtype == DType::fp8_e4m3 || x < 0.5) return make_gemm_call(tokens, out, in, kNt, dtype);
  if (x < 0.75) return make_gemm_call(tokens, in, out, kNn, dtype);
  return make_gemm_call(out, in, tokens, kTn, dtype);
}

KernelCall transformer_linear(CampaignRandom& random, DType dtype) {
  const std::int64_t hidden = random.pick(kHidden), tokens = random.pick(kTokens);
  constexpr std::int64_t kTensorParallel[] = {1, 1, 1, 2, 4, 8};
  const std::int64_t tp = random.pick(kTensorParallel);
  switch (random.below(6)) {
    case 0:
      return linear(random, tokens, hidden, 3 * hidden / tp, dtype);
    case 1:
      return linear(random, tokens, hidden / tp, hidden, dtype);
    case 2:
      return linear(random, tokens, hidden, 4 * hidden / tp, dtype);
    case 3:
      return linear(random, tokens, 4 * hidden / tp, hidden, dtype);
    case 4: {  // gated feed-forward: 8/3 of hidden, rounded up to 256, gate and up side by side
      const std::int64_t ffn = (8 * hidden / 3 + 255) / 256 * 256;
      return linear(random, tokens, hidden, 2 * ffn / tp, dtype);
    }
    default: {  // grouped query heads: a quarter or an eighth of the heads for keys and values
      const std::int64_t kv = hidden / (random.uniform() < 0.5 ? 4 : 8);
      return linear(random, tokens, hidden, (hidden + 2 * kv) / tp, dtype);
    }
  }
}

void heads(CampaignList& list, CampaignRandom& random) {
  grow(list, 140, [&] {
    constexpr std::int64_t kHeadTokens[] = {512, 1024, 2048, 4096, 8192};
    constexpr std::int64_t kHeadHidden[] = {768, 1024, 1600, 2048, 4096};
    return linear(random, random.pick(kHeadTokens), random.pick(kHeadHidden), random.pick(kVocab), DType::bf16);
  });
}

// Widths around one tile boundary, heights from part of a wave to many: padding, tail and alignment side by side.
void staircases(CampaignList& list) {
  for (const std::int64_t m : {1024, 2048, 4096, 8192})
    for (const std::int64_t n : {1000, 1016, 1024, 1032, 1040, 1088, 1152})
      for (const std::int64_t k : {1024, 4096}) add(list, make_gemm_call(m, n, k, kNt));
  for (std::int64_t m = 128; m <= 4224; m += 128) add(list, make_gemm_call(m, 4096, 4096, kNt));
  for (const std::int64_t n : {1536, 1920, 2048, 2304, 2560, 3072, 10922, 10944, 11008, 11264}) add(list, make_gemm_call(4096, n, 4096, kNt));
}

void thin(CampaignList& list, CampaignRandom& random) {
  grow(list, 260, [&] {
    constexpr std::int64_t kRows[] = {1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256};
    const std::int64_t hidden = random.pick(kHidden), rows = random.pick(kRows);
    const DType dtype = rows % 16 == 0 && random.uniform() < 0.2 ? DType::fp8_e4m3 : DType::bf16;
    switch (random.below(4)) {
      case 0:
        return make_gemm_call(rows, 3 * hidden, hidden, kNt, dtype);
      case 1:
        return make_gemm_call(rows, hidden, hidden, kNt, dtype);
      case 2:
        return make_gemm_call(rows, 4 * hidden, hidden, kNt, dtype);
      default:
        return make_gemm_call(rows, hidden, 4 * hidden, kNt, dtype);
    }
  });
}

// The largest power of two that divides every leading dimension is 4, 2 or 1.
void misaligned(CampaignList& list, CampaignRandom& random) {
  constexpr std::int64_t kUnit[] = {4, 2, 1};
  grow(list, 260, [&] {
    const std::int64_t unit = random.pick(kUnit);
    const auto odd = [&](double high) { return random.size(64, high, 8) + unit; };  // 8 i + unit: that power of two and no more
    std::int64_t m = random.size(64, 8192, 8), n = random.size(64, 8192, 8), k = random.size(64, 8192, 8);
    switch (random.below(4)) {
      case 0:
        n = odd(8192);
        break;
      case 1:
        k = odd(8192);
        break;
      case 2:
        m = odd(8192);
        break;
      default:
        n = odd(8192), k = odd(8192);
    }
    return make_gemm_call(m, n, k, any_layout(random), random.uniform() < 0.85 ? DType::bf16 : DType::fp16);
  });
}

// Products of unfused attention and of small batches.
void batched(CampaignList& list, CampaignRandom& random) {
  grow(list, 220, [&] {
    constexpr std::int64_t kWidth[] = {64, 80, 96, 128, 256};
    constexpr std::int64_t kSeq[] = {128, 197, 256, 512, 1000, 1024, 2048, 4096};
    constexpr std::int64_t kBatch[] = {2, 4, 8, 12, 16, 32, 64, 96, 128, 256};
    const std::int64_t width = random.pick(kWidth), seq = random.pick(kSeq), batch = random.pick(kBatch);
    switch (random.below(4)) {
      case 0:
        return make_gemm_call(seq, seq, width, kNt, DType::bf16, batch);
      case 1:
        return make_gemm_call(seq, width, seq, kNn, DType::bf16, batch);
      case 2:
        return make_gemm_call(seq, width, seq, kTn, DType::bf16, batch);
      default:
        return make_gemm_call(random.size(16, 2048, 8), random.size(16, 2048, 8), random.size(32, 2048, 8), any_layout(random), DType::bf16, batch);
    }
  });
}

void variants(CampaignList& list, CampaignRandom& random) {
  grow(list, 140, [&] {  // weight gradients added up in fp32
    const std::int64_t hidden = random.pick(kHidden), out = random.uniform() < 0.5 ? hidden : 4 * hidden;
    KernelCall call = make_gemm_call(out, hidden, random.pick(kTokens), kTn);
    auto& shape = std::get<GemmShape>(call.shape);
    shape.out = DType::fp32;
    shape.accumulate = random.uniform() < 0.8;
    return call;
  });
  grow(list, 140, [&] {
    KernelCall call = transformer_linear(random, DType::bf16);
    std::get<GemmShape>(call.shape).epilogue = random.uniform() < 0.5 ? Epilogue::bias : Epilogue::gelu;
    return call;
  });
  grow(list, 40, [&] { return make_gemm_call(random.size(64, 8192, 64), random.size(64, 8192, 64), random.size(64, 8192, 64), kTt); });
}

// One shape for one constant: launch, tile height, depth, waves, the split of a deep product.
void probes(CampaignList& list) {
  for (const std::int64_t k : {64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384}) {
    add(list, make_gemm_call(64, 64, k, kNt));
    add(list, make_gemm_call(256, 256, k, kNt));
    add(list, make_gemm_call(1024, 1024, k, kNt));
    add(list, make_gemm_call(4096, 4096, k, kNt));
  }
  for (const std::int64_t n : {1408, 2816, 4224, 8448, 16896})  // whole waves of 128 x 256 and 128 x 128 tiles on 132 SMs, partial ones elsewhere
    for (const std::int64_t k : {64, 256, 1024, 4096}) add(list, make_gemm_call(3072, n, k, kNt));
  for (const std::int64_t m : {16, 64})
    for (const std::int64_t n : {8192, 28672}) add(list, make_gemm_call(m, n, 8192, kNt));
}

}  // namespace

std::vector<KernelCall> gemm_campaign() {
  CampaignRandom random(20240601);
  CampaignList list;
  probes(list);
  staircases(list);
  heads(list, random);
  thin(list, random);
  misaligned(list, random);
  batched(list, random);
  variants(list, random);
  random_sizes(list, random, 900, DType::bf16, 8);
  grow(list, 800, [&] { return transformer_linear(random, DType::bf16); });
  random_sizes(list, random, 120, DType::fp16, 8);
  grow(list, 80, [&] { return transformer_linear(random, DType::fp16); });
  random_sizes(list, random, 160, DType::fp8_e4m3, 16);
  grow(list, 120, [&] { return transformer_linear(random, DType::fp8_e4m3); });
  random_sizes(list, random, 100, DType::tf32, 4);
  grow(list, 60, [&] { return transformer_linear(random, DType::tf32); });
  random_sizes(list, random, 80, DType::fp32, 4);
  grow(list, 40, [&] {
    KernelCall call = transformer_linear(random, DType::fp32);
    while (to_double(work_of(call).flops) > 4e11) call = transformer_linear(random, DType::fp32);  // CUDA cores are slow
    return call;
  });
  return list.shuffled(7, 64);
}

std::vector<KernelCall> warm_campaign() {
  CampaignList list;
  for (const KernelCall& call : gemm_campaign())
    if (to_double(work_of(call).bytes()) < 4e6 && list.size() < 160) list.add(call);
  return list.shuffled(8, 64);
}

}  // namespace rooftile
