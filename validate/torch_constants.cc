#include "validate/torch_constants.h"

#include <algorithm>
#include <iterator>

namespace rooftile {
namespace {

constexpr TorchBounds kBounds[] = {{"elements_per_clock_per_sm", "1", 0.02, 200, 6, 1},
                                   {"efficiency", "1", 0.2, 0.95, 0.88, 0.4},
                                   {"fixed_s", "s", 0, 8e-6, 1e-6, 1e-6},
                                   {"latency_s", "s", 0, 8e-6, 0, 1e-6},
                                   {"half_s", "s", 0, 4e-6, 0, 5e-7},
                                   {"half_factor", "1", 0.5, 4, 1, 0.5},
                                   {"row_cycles", "1", 1, 1e5, 60, 1},
                                   {"load_cycles", "1", 1e-3, 2, 0.02, 1},
                                   {"column_cycles", "1", 0.05, 50, 1.5, 1},
                                   {"byte_cycles", "1", 0.05, 20, 1, 1},
                                   {"again", "1", 0.05, 4, 1, 0.5},
                                   {"l2_share", "1", 0.05, 2, 0.4, 0.5},
                                   {"l1_share", "1", 0.05, 4, 1, 0.5},
                                   {"in_flight", "1", 1, 32, 8, 0.5},
                                   {"serial_cycles", "1", 0.01, 2000, 5, 2},
                                   {"tail", "1", 0, 1, 0.3, 0.3},
                                   {"split_s", "s", 0, 1e-5, 2e-6, 2e-6},
                                   {"stage_s", "s", 1e-9, 1e-5, 2e-7, 1},
                                   {"block_columns", "1", 4, 256, 32, 0.5}};

struct WalkFields {
  std::string_view walk;
  std::vector<std::string_view> fields;
};

// Vectorised kernels reach the bandwidth that all of them do; what is slower is arithmetic.
constexpr TorchStart kStartsElsewhere[] = {{"sigmoid", "efficiency", 0.88, 0.06},
                                           {"gelu", "efficiency", 0.88, 0.06},
                                           {"gelu_backward", "efficiency", 0.88, 0.06},
                                           {"gelu_tanh", "efficiency", 0.88, 0.06},
                                           {"gelu_tanh_backward", "efficiency", 0.88, 0.06},
                                           {"div", "efficiency", 0.88, 0.06},
                                           {"compare", "efficiency", 0.88, 0.06},
                                           {"where", "efficiency", 0.88, 0.06},
                                           {"cast_down", "efficiency", 0.88, 0.06},
                                           {"embedding.bwd", "fixed_s", 1e-4, 5e-5},  // some thirty kernels of a sort and of sums
                                           {"topk", "fixed_s", 9e-6, 2e-6},           // two kernels of seven dependent rounds each
                                           {"topk", "row_cycles", 400, 1},
                                           {"few_rows", "stage_s", 6e-7, 0.5},      // one round to DRAM
                                           {"log_softmax", "in_flight", 2, 0.2},    // blocks of 1024 threads
                                           {"log_softmax", "row_cycles", 5000, 1},  // three sums over such a block, each of a pass through a long row
                                           {"log_softmax.bwd", "row_cycles", 2000, 1},
                                           {"log_softmax.bwd", "in_flight", 2, 0.2},
                                           {"column_sum", "serial_cycles", 250, 1},  // a quarter of a round to DRAM for a value
                                           {"layernorm.gamma", "block_columns", 32, 0.2},
                                           {"rmsnorm.gamma", "block_columns", 32, 0.2},
                                           {"sort", "stage_s", 5e-6, 1},
                                           {"sort", "fixed_s", 4e-6, 2e-6}};

constexpr std::string_view kLong = "held at that of long streams";
constexpr std::string_view kGenerated =
    "kernels that a compiler generates, numel counts what they read and write; not among the rows, held at what kept whole compiled steps right";
constexpr TorchHeld kHeld[] = {{"layernorm", "efficiency", 0.88, "1", kLong},
                               {"embedding.bwd", "efficiency", 0.88, "1", kLong},
                               {"fused", "elements_per_clock_per_sm", 13.45, "1", kGenerated},
                               {"fused", "efficiency", 0.8978, "1", kGenerated},
                               {"fused", "fixed_s", 8.139e-7, "s", kGenerated}};

struct Kin {
  std::string_view walk, like;
};
constexpr Kin kKin[] = {{"sigmoid", "vector"},
                        {"gelu", "sigmoid"},
                        {"gelu_backward", "gelu"},
                        {"gelu_tanh", "gelu"},
                        {"gelu_tanh_backward", "gelu_tanh"},
                        {"div", "vector"},
                        {"compare", "vector"},
                        {"where", "vector"},
                        {"masked_fill", "vector"},
                        {"fill", "vector"},
                        {"cast_down", "vector"},
                        {"concat_rows", "vector"},
                        {"index_rows", "vector"},
                        {"masked", "broadcast"},
                        {"strided", "broadcast"},
                        {"slice", "broadcast"},
                        {"order_mix", "strided"},
                        {"expand", "vector"},
                        {"transpose", "strided"},
                        {"concat", "strided"},
                        {"cast_up", "broadcast"},
                        {"mixed_mul", "cast_up"},
                        {"softmax.block", "softmax.warp"},
                        {"softmax.wide", "softmax.block"},
                        {"softmax.bwd.block", "softmax.bwd.warp"},
                        {"softmax.bwd.wide", "softmax.bwd.block"},
                        {"softmax_fp32.block", "softmax_fp32.warp"},
                        {"softmax_fp32.wide", "softmax_fp32.block"},
                        {"row_mean", "row_sum"},
                        {"layernorm", "rmsnorm"},
                        {"rmsnorm.bwd", "layernorm_input"},
                        {"rmsnorm.gamma", "layernorm.gamma"}};

}  // namespace

const TorchBounds& torch_bounds(std::string_view field) {
  return *std::find_if(std::begin(kBounds), std::end(kBounds), [&](const TorchBounds& bounds) { return bounds.field == field; });
}

const std::vector<std::string_view>& torch_fields(std::string_view walk) {
  static const std::vector<std::string_view> kFlat = {"elements_per_clock_per_sm", "efficiency", "fixed_s", "half_s"};
  static const std::vector<WalkFields> kWalks = {
      {"layernorm", {"elements_per_clock_per_sm", "fixed_s", "row_cycles", "load_cycles", "column_cycles", "again", "l1_share", "l2_share"}},
      {"layernorm_input", {"elements_per_clock_per_sm", "efficiency", "fixed_s", "row_cycles", "column_cycles", "again", "l1_share", "l2_share"}},
      {"rmsnorm", {"elements_per_clock_per_sm", "efficiency", "fixed_s", "row_cycles", "column_cycles", "again", "l1_share", "l2_share"}},
      {"rmsnorm.bwd", {"elements_per_clock_per_sm", "efficiency", "fixed_s", "row_cycles", "column_cycles", "again", "l1_share", "l2_share"}},
      {"layernorm.gamma", {"efficiency", "fixed_s", "serial_cycles", "block_columns", "again", "l2_share"}},
      {"rmsnorm.gamma", {"efficiency", "serial_cycles", "block_columns", "again", "l2_share"}},
      {"row_sum", {"elements_per_clock_per_sm", "efficiency", "fixed_s", "row_cycles", "byte_cycles"}},
      {"row_mean", {"elements_per_clock_per_sm", "efficiency", "fixed_s", "row_cycles", "byte_cycles"}},
      {"column_sum", {"efficiency", "fixed_s", "serial_cycles", "split_s", "stage_s"}},
      {"log_softmax", {"elements_per_clock_per_sm", "efficiency", "fixed_s", "row_cycles", "again", "l2_share", "in_flight", "tail"}},
      {"log_softmax.bwd", {"elements_per_clock_per_sm", "efficiency", "fixed_s", "row_cycles", "in_flight", "tail"}},
      {"nll", {"fixed_s", "serial_cycles"}},
      {"nll.bwd", {"fixed_s", "serial_cycles"}},
      {"embedding", {"elements_per_clock_per_sm", "efficiency", "fixed_s", "row_cycles"}},
      {"embedding.bwd.small", {"elements_per_clock_per_sm", "fixed_s", "serial_cycles"}},
      {"embedding.bwd", {"elements_per_clock_per_sm", "fixed_s"}},
      {"optimizer", {"efficiency", "fixed_s", "serial_cycles"}},
      {"scatter_add", {"elements_per_clock_per_sm", "half_factor", "efficiency", "fixed_s"}},
      {"cast_up", {"elements_per_clock_per_sm", "efficiency", "fixed_s", "latency_s"}},  // one dtype beside the other in the same call
      {"cast_down", {"elements_per_clock_per_sm", "efficiency", "fixed_s"}},
      {"mixed_mul", {"elements_per_clock_per_sm", "efficiency", "fixed_s", "latency_s"}},
      {"concat", {"elements_per_clock_per_sm", "efficiency", "fixed_s"}},  // one element a thread
      {"few_rows", {"fixed_s", "stage_s"}},
      {"copy_engine", {"efficiency"}},
      {"topk", {"fixed_s", "row_cycles"}},
      {"sort", {"fixed_s", "stage_s"}}};
  if (walk.starts_with("softmax")) {
    static const std::vector<std::string_view> kSoftmax = {"elements_per_clock_per_sm", "efficiency", "fixed_s"};
    return kSoftmax;
  }
  for (const WalkFields& w : kWalks) {
    if (w.walk == walk) return w.fields;
  }
  return kFlat;
}

const TorchStart* torch_start(std::string_view walk, std::string_view field) {
  const auto* found = std::find_if(std::begin(kStartsElsewhere), std::end(kStartsElsewhere), [&](const TorchStart& start) { return start.walk == walk && start.field == field; });
  return found == std::end(kStartsElsewhere) ? nullptr : found;
}

std::span<const TorchHeld> torch_held() { return kHeld; }

std::string_view torch_kin(std::string_view walk) {
  const auto* found = std::find_if(std::begin(kKin), std::end(kKin), [&](const Kin& kin) { return kin.walk == walk; });
  return found == std::end(kKin) ? std::string_view{} : found->like;
}

int torch_generation(std::string_view walk) {
  int steps = 0;
  for (std::string_view w = torch_kin(walk); !w.empty(); w = torch_kin(w)) ++steps;
  return steps;
}

}  // namespace rooftile
