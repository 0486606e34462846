// Helpers of the campaign lists: a generator that gives the same numbers everywhere, and a list that keeps calls distinct.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <unordered_set>
#include <vector>

#include "estimator/timing/kernel_call.h"

namespace rooftile {

// SplitMix64 (Steele, Lea, Flood 2014): the standard library's distributions differ between implementations, this does not.
class CampaignRandom {
 public:
  explicit CampaignRandom(std::uint64_t seed) : state_(seed) {}
  std::uint64_t bits() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }
  std::int64_t below(std::int64_t n) { return static_cast<std::int64_t>(bits() % static_cast<std::uint64_t>(n)); }
  // Log-uniform in [low, high], rounded to a multiple (at least one).
  std::int64_t size(double low, double high, std::int64_t multiple) {
    const double x = low * std::exp(uniform() * std::log(high / low));
    const std::int64_t steps = static_cast<std::int64_t>(std::llround(x / static_cast<double>(multiple)));
    return (steps < 1 ? 1 : steps) * multiple;
  }
  template <typename T>
  const T& pick(std::span<const T> from) {
    return from[static_cast<std::size_t>(below(static_cast<std::int64_t>(from.size())))];
  }
  template <typename T, std::size_t N>
  const T& pick(const T (&from)[N]) {
    return pick(std::span<const T>(from));
  }

 private:
  std::uint64_t state_;
};

class CampaignList {
 public:
  // False when the call was there already.
  bool add(const KernelCall& call) {
    if (!seen_.insert(call).second) return false;
    calls_.push_back(call);
    return true;
  }
  std::size_t size() const { return calls_.size(); }
  // In an order without pattern, except that neighbours in runs of `run` share a dtype (operands need not be made anew).
  std::vector<KernelCall> shuffled(std::uint64_t seed, std::size_t run) const;

 private:
  std::vector<KernelCall> calls_;
  std::unordered_set<KernelCall, KernelCallHash> seen_;
};

std::vector<KernelCall> gemm_campaign();
std::vector<KernelCall> warm_campaign();
std::vector<KernelCall> attention_campaign();
std::vector<KernelCall> rows_campaign();
std::vector<KernelCall> pointwise_campaign();
std::vector<KernelCall> collective_campaign(std::int64_t ranks);
std::vector<KernelCall> ceilings_campaign();
std::vector<KernelCall> sustained_campaign();

KernelCall make_gemm_call(std::int64_t m, std::int64_t n, std::int64_t k, GemmLayout layout, DType dtype = DType::bf16, std::int64_t batch = 1);
KernelCall make_attention_call(const AttentionShape& shape, Pass pass, DType dtype = DType::bf16);
KernelCall make_row_call(KernelClass kernel, std::int64_t rows, std::int64_t cols, Pass pass, DType dtype = DType::bf16);
KernelCall make_pointwise_call(PointwiseKind kind, std::int64_t numel, DType dtype = DType::bf16);

}  // namespace rooftile
