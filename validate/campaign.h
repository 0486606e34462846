// The kernels that a measuring campaign runs: lists made by code, the same on every machine, so that any row can be asked for again. Nothing here knows a device; shapes that a
// device cannot hold or run come back with a reason.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "estimator/timing/kernel_call.h"

namespace rooftile {

enum class CampaignPart : std::uint8_t {
  ceilings,    // large and tiny kernels that fix one constant each: rates, bandwidth, launch
  gemm,        // sizes at random and as in transformers, layouts, formats, alignments, batches, thin ones
  attention,   // fused forward and backward, masks, grouped heads, decode; some unfused
  rows,        // softmax, norms and sums over rows
  pointwise,   // element-wise, embedding, cross entropy, optimizer
  collective,  // for the ranks that take part
  sustained,   // a small sample of heavy kernels for the settled clock
  warm,        // products small enough to stay in L2, for that protocol
};
std::string_view name_of(CampaignPart part);
std::optional<CampaignPart> parse_campaign_part(std::string_view name);
std::vector<std::string> campaign_part_names();

// The calls of a part, distinct, in an order such that any beginning of the list is a fair sample of it. `ranks` counts for collectives only.
// gemm: at least 3,000; attention 500; rows and pointwise together 1,000.
std::vector<KernelCall> campaign(CampaignPart part, std::int64_t ranks = 1);

// Every `of`-th call from `which` on (0-based), for a campaign that is spread over several runs.
std::vector<KernelCall> shard(std::span<const KernelCall> calls, std::size_t which, std::size_t of);

}  // namespace rooftile
