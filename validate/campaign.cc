#include "validate/campaign.h"

#include <algorithm>
#include <array>

#include "validate/campaign_builder.h"

namespace rooftile {

namespace {
constexpr std::array<std::string_view, 8> kParts = {"ceilings", "gemm", "attention", "rows", "pointwise", "collective", "sustained", "warm"};
}

std::string_view name_of(CampaignPart part) { return kParts[static_cast<std::size_t>(part)]; }

std::optional<CampaignPart> parse_campaign_part(std::string_view name) {
  for (std::size_t i = 0; i < kParts.size(); ++i)
    if (kParts[i] == name) return static_cast<CampaignPart>(i);
  return std::nullopt;
}

std::vector<std::string> campaign_part_names() { return {kParts.begin(), kParts.end()}; }

std::vector<KernelCall> CampaignList::shuffled(std::uint64_t seed, std::size_t run) const {
  std::vector<KernelCall> calls = calls_;
  CampaignRandom random(seed);
  for (std::size_t i = calls.size(); i > 1; --i) std::swap(calls[i - 1], calls[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(i)))]);
  for (std::size_t first = 0; first < calls.size(); first += run)
    std::stable_sort(calls.begin() + static_cast<std::ptrdiff_t>(first), calls.begin() + static_cast<std::ptrdiff_t>(std::min(first + run, calls.size())),
                     [](const KernelCall& a, const KernelCall& b) { return a.dtype < b.dtype; });
  return calls;
}

std::vector<KernelCall> campaign(CampaignPart part, std::int64_t ranks) {
  switch (part) {
    case CampaignPart::ceilings:
      return ceilings_campaign();
    case CampaignPart::gemm:
      return gemm_campaign();
    case CampaignPart::attention:
      return attention_campaign();
    case CampaignPart::rows:
      return rows_campaign();
    case CampaignPart::pointwise:
      return pointwise_campaign();
    case CampaignPart::collective:
      return collective_campaign(ranks);
    case CampaignPart::sustained:
      return sustained_campaign();
    case CampaignPart::warm:
      return warm_campaign();
  }
  return {};
}

std::vector<KernelCall> shard(std::span<const KernelCall> calls, std::size_t which, std::size_t of) {
  std::vector<KernelCall> out;
  for (std::size_t i = which; of > 0 && i < calls.size(); i += of) out.push_back(calls[i]);
  return out;
}

KernelCall make_gemm_call(std::int64_t m, std::int64_t n, std::int64_t k, GemmLayout layout, DType dtype, std::int64_t batch) {
  GemmShape shape;
  shape.m = m;
  shape.n = n;
  shape.k = k;
  shape.batch = batch;
  shape.layout = layout;
  shape.out = dtype == DType::fp8_e4m3 ? DType::bf16 : dtype == DType::tf32 ? DType::fp32 : dtype;
  return KernelCall{KernelClass::gemm, dtype, Pass::fwd, Impl::vendor, shape};
}

KernelCall make_attention_call(const AttentionShape& shape, Pass pass, DType dtype) { return KernelCall{KernelClass::attention, dtype, pass, Impl::vendor, shape}; }

KernelCall make_row_call(KernelClass kernel, std::int64_t rows, std::int64_t cols, Pass pass, DType dtype) {
  return KernelCall{kernel, dtype, pass, Impl::rooftile, RowShape{rows, cols}};
}

KernelCall make_pointwise_call(PointwiseKind kind, std::int64_t numel, DType dtype) {
  return KernelCall{KernelClass::pointwise, dtype, Pass::fwd, Impl::rooftile, PointwiseShape{kind, numel, dtype}};
}

}  // namespace rooftile
