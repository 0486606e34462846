#include <array>

#include "estimator/timing/kernel_call.h"
#include "estimator/timing/kernel_time.h"

namespace rooftile {
namespace {

using namespace std::string_view_literals;

constexpr std::array kKernelNames = {"gemm"sv,      "attention"sv, "softmax"sv,       "layernorm"sv, "rmsnorm"sv,    "column_sum"sv,     "row_sum"sv,
                                     "pointwise"sv, "embedding"sv, "cross_entropy"sv, "optimizer"sv, "collective"sv, "log_softmax"sv,    "softmax_fp32"sv,
                                     "nll"sv,       "row_mean"sv,  "argmax"sv,        "topk"sv,      "sort"sv,       "layernorm_input"sv};
static_assert(kKernelNames.size() == kKernelClasses);

constexpr std::array kPointwiseNames = {
#define POINTWISE_KIND(id, reads, writes, flops, special, doc) std::string_view(#id),
#include "estimator/timing/pointwise.def"
};

constexpr std::array kCollectiveNames = {"all_reduce"sv, "all_gather"sv, "reduce_scatter"sv, "all_to_all"sv, "broadcast"sv, "send_recv"sv};
constexpr std::array kLayoutNames = {"nt"sv, "nn"sv, "tn"sv, "tt"sv};
constexpr std::array kAttentionNames = {"fastest"sv, "standard"sv, "flash2"sv, "flash3"sv, "cudnn"sv};
constexpr std::array kImplNames = {"vendor"sv, "torch"sv, "rooftile"sv};
constexpr std::array kBoundNames = {"compute"sv, "dram"sv, "l2"sv, "latency"sv, "launch"sv, "communication"sv};
constexpr std::array kConfidenceNames = {"measured"sv, "calibrated"sv, "extrapolated"sv, "spec"sv};

}  // namespace

std::string_view name_of(KernelClass kernel) { return kKernelNames[static_cast<std::size_t>(kernel)]; }
std::string_view name_of(PointwiseKind kind) { return kPointwiseNames[static_cast<std::size_t>(kind)]; }
std::string_view name_of(CollectiveKind kind) { return kCollectiveNames[static_cast<std::size_t>(kind)]; }
std::string_view name_of(GemmLayout layout) { return kLayoutNames[static_cast<std::size_t>(layout)]; }
std::string_view name_of(AttentionKernel kernel) { return kAttentionNames[static_cast<std::size_t>(kernel)]; }
std::string_view name_of(Impl impl) { return kImplNames[static_cast<std::size_t>(impl)]; }
std::string_view name_of(Bound bound) { return kBoundNames[static_cast<std::size_t>(bound)]; }
std::string_view name_of(Confidence confidence) { return kConfidenceNames[static_cast<std::size_t>(confidence)]; }

std::optional<AttentionKernel> parse_attention_kernel(std::string_view name) {
  if (name == "auto") return AttentionKernel::fastest;
  for (std::size_t i = 0; i < kAttentionNames.size(); ++i) {
    if (kAttentionNames[i] == name) return static_cast<AttentionKernel>(i);
  }
  return std::nullopt;
}

}  // namespace rooftile
