#include "estimator/timing/constants.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace rooftile {
namespace {

// Layers are searched highest first, as Calibration::find does, but only up to the level that the mode allows.
class Lookup {
 public:
  Lookup(const Calibration& calibration, Mode mode, std::vector<std::string>& missing) : missing_(missing) {
    for (auto layer = calibration.layers.rbegin(); layer != calibration.layers.rend(); ++layer) {
      if (mode != Mode::calibrated && layer->level != LayerLevel::architecture) continue;
      for (const Fact& fact : layer->facts) {
        const bool known = std::any_of(values_.begin(), values_.end(), [&](const auto& pair) { return pair.first == fact.key; });
        if (!known) values_.emplace_back(fact.key, fact.value);
      }
    }
    std::sort(values_.begin(), values_.end());
  }

  std::optional<double> find(std::string_view key) const {
    const auto at = std::lower_bound(values_.begin(), values_.end(), key, [](const auto& pair, std::string_view k) { return pair.first < k; });
    if (at == values_.end() || at->first != key) return std::nullopt;
    return at->second;
  }

  // The value under the special name, else under the general one.
  double get_either(const std::string& special, std::string_view general, double neutral) const {
    if (const auto value = find(special)) return *value;
    return get(general, neutral);
  }

  double get(std::string_view key, double neutral) const {
    if (const auto value = find(key)) return *value;
    if (std::find(missing_.begin(), missing_.end(), key) == missing_.end()) missing_.emplace_back(key);
    return neutral;
  }

 private:
  std::vector<std::pair<std::string_view, double>> values_;
  std::vector<std::string>& missing_;
};

// "fp8" covers both 8-bit formats: the libraries run them through the same kernels.
std::string_view group_of(DType dtype) { return dtype == DType::fp8_e4m3 || dtype == DType::fp8_e5m2 ? "fp8" : name_of(dtype); }

}  // namespace

double warm_bytes(const Constants& constants, double l2_panel_bytes, double reusable_bytes, double call_bytes) {
  if (constants.warm_operands <= 0 || l2_panel_bytes <= 0) return 0;
  return constants.warm_operands * reusable_bytes * std::clamp(2 - call_bytes / l2_panel_bytes, 0.0, 1.0);
}

Constants resolve_constants(const Machine& machine, Mode mode) {
  Constants constants;
  const Lookup lookup(machine.calibration, mode, constants.missing);

  struct Field {
    std::string_view name;
    double GemmConstants::*member;
    double neutral;
  };
  constexpr std::array kGemmFields = {Field{"eta", &GemmConstants::eta, 1}, Field{"epilogue_cycles", &GemmConstants::epilogue_cycles, 0},
                                      Field{"epilogue_overlap", &GemmConstants::epilogue_overlap, 0}, Field{"operand_efficiency", &GemmConstants::operand_efficiency, 1}};
  const double latency_scale = lookup.find("gemm.latency_scale").value_or(1);
  for (const Field& field : kGemmFields) {
    const double shared = lookup.get("gemm." + std::string(field.name), field.neutral);
    for (std::size_t i = 0; i < kDTypeCount; ++i) {
      const std::string key = "gemm." + std::string(group_of(static_cast<DType>(i))) + "." + std::string(field.name);
      constants.gemm[i].*field.member = lookup.find(key).value_or(shared);
    }
  }

  for (std::size_t i = 0; i < kDTypeCount; ++i) {
    const std::string group = "gemm." + std::string(group_of(static_cast<DType>(i)));
    constants.gemm[i].fragment_cost = lookup.find(group + ".fragment_cost").value_or(0);
    constants.gemm[i].sustained_fraction = lookup.find(group + ".sustained_fraction").value_or(lookup.find("clock.sustained_fraction").value_or(1));
    constants.gemm[i].transpose_cost = lookup.find("gemm." + std::string(group_of(static_cast<DType>(i))) + ".transpose_cost").value_or(0);
    constants.gemm[i].latency_scale = lookup.find("gemm." + std::string(group_of(static_cast<DType>(i))) + ".latency_scale").value_or(latency_scale);
  }
  const double copy_cycles = lookup.find("gemm.copy_cycles").value_or(0);
  constants.line_split = lookup.find("gemm.line_split").value_or(0);
  for (const KernelFamily& family : machine.catalogue.families) {
    constants.family_copy_cycles.push_back(lookup.find("gemm.family." + family.name + ".copy_cycles").value_or(copy_cycles));
    constants.family_rate.push_back(lookup.find("gemm.family." + family.name + ".rate").value_or(family.rate));
    constants.family_nt_slowdown.push_back(std::max(1.0, lookup.find("gemm.family." + family.name + ".nt_slowdown").value_or(1)));
    // Kernels of an older generation have pipelines of their own: what the current one's loop hides says nothing about theirs.
    constants.family_latency_scale.push_back(lookup.find("gemm.family." + family.name + ".latency_scale").value_or(family.rate < 1 ? 1 : 0));
  }

  constants.combine_p = std::max(1.0, lookup.get("combine.p", 3));
  constants.sector_split = lookup.get("gemm.sector_split", 0);
  constants.line_requests = lookup.find("gemm.line_requests").value_or(0);
  constants.step_pause_cycles = {lookup.find("gemm.step_pause").value_or(0), lookup.find("gemm.warp_step_pause").value_or(0), lookup.find("gemm.fp32.step_pause").value_or(0)};
  constants.store_split = lookup.find("gemm.store_split").value_or(0);
  constants.l2_bytes_per_clock_per_sm = lookup.get("l2.bytes_per_clock_per_sm", 0);
  constants.l2_panel_share = lookup.get("l2.panel_share", 0.5);
  constants.split_k_reduce_s = lookup.get("split_k.reduce_s", 0);
  const double launch_s = lookup.get("launch_s", 0);
  constants.launch_s = lookup.find("protocol.launch_s").value_or(launch_s);
  constants.stream_launch_s = lookup.find("protocol.stream_launch_s").value_or(lookup.find("stream.launch_s").value_or(constants.launch_s));
  constants.clock_factor = lookup.find("protocol.clock_factor").value_or(1);
  constants.warm_operands = lookup.find("protocol.warm_operands").value_or(0);
  constants.attention_call_s = lookup.find("protocol.attention_call_s").value_or(0);
  constants.kv_write = lookup.find("protocol.kv_write").value_or(0);
  constants.dram_latency_s = lookup.get("dram.latency_s", 0);
  constants.dram_write_cost = lookup.find("dram.write_cost").value_or(0);
  struct StreamConstant {
    std::string_view key;
    double Constants::*value;
  };
  constexpr StreamConstant kStream[] = {{"stream.convert_s", &Constants::stream_convert_s},
                                        {"stream.flop_s", &Constants::stream_flop_s},
                                        {"stream.warp_cycles", &Constants::stream_warp_cycles},
                                        {"stream.single_cycles", &Constants::stream_single_cycles},
                                        {"stream.convert_cycles", &Constants::stream_convert_cycles},
                                        {"stream.partial_s", &Constants::stream_partial_s},
                                        {"stream.vector_s", &Constants::stream_vector_s},
                                        {"stream.reduce_s", &Constants::stream_reduce_s},
                                        {"stream.load_s", &Constants::stream_load_s},
                                        {"stream.start_s", &Constants::stream_start_s}};
  for (const StreamConstant& c : kStream) constants.*c.value = lookup.find(c.key).value_or(0);
  constants.stream_flop_slots = lookup.find("stream.flop_slots").value_or(1);
  constants.stream_efficiency = lookup.get("dram.efficiency", 1);
  constants.sm_bytes_per_clock = lookup.get("sm.bytes_per_clock", 0);
  constants.sustained_fraction = lookup.get("clock.sustained_fraction", 1);
  constants.free_share = lookup.find("clock.free_share").value_or(1);
  constants.burst_s = lookup.get("clock.burst_s", 0);
  constants.sustained_s = lookup.get("clock.sustained_s", 0);

  for (std::size_t i = 0; i < kAttentionKernels; ++i) {
    const auto kernel = static_cast<AttentionKernel>(i);
    if (kernel == AttentionKernel::fastest || kernel == AttentionKernel::standard || machine.device.architecture < Architecture::ampere) continue;
    if (kernel == AttentionKernel::flash3 && machine.device.architecture != Architecture::hopper) continue;
    const std::string prefix = "attention." + std::string(name_of(kernel)) + ".";
    AttentionConstants& a = constants.attention[i];
    a.fwd_efficiency = lookup.get_either(prefix + "fwd.efficiency", "attention.fwd.efficiency", 1);
    a.bwd_efficiency = lookup.get_either(prefix + "bwd.efficiency", "attention.bwd.efficiency", 1);
    a.overlap_p = std::max(1.0, lookup.get_either(prefix + "overlap_p", "attention.overlap_p", 1));
    a.bwd_overlap_p = std::max(1.0, lookup.find(prefix + "bwd.overlap_p").value_or(a.overlap_p));
    a.bwd_wide_head = lookup.find(prefix + "bwd.wide_head").value_or(1);
    a.tile_s = lookup.get_either(prefix + "tile_s", "attention.tile_s", 0);
    a.bwd_tile_s = lookup.find(prefix + "bwd.tile_s").value_or(a.tile_s);
    a.fwd_wide_head = lookup.find(prefix + "fwd.wide_head").value_or(0);
    a.decode_wide_head = lookup.find(prefix + "decode.wide_head").value_or(0);
    a.prepare_s = lookup.find(prefix + "prepare_s").value_or(0);
    a.combine_s = lookup.get_either(prefix + "combine_s", "attention.combine_s", 0);
    a.decode_efficiency = lookup.get_either(prefix + "decode.efficiency", "attention.decode.efficiency", 1);
    a.tile_tail = lookup.get_either(prefix + "tile_tail", "attention.tile_tail", 0);
  }
  constants.attention_mask_cycles = lookup.get("attention.mask.fwd.cycles_per_score", 0);
  constants.attention_bwd_mask_cycles = lookup.get("attention.mask.bwd.cycles_per_score", 0);
  constants.attention_vector_ops = lookup.get("attention.vector_ops", 0);

  for (std::size_t i = 0; i < kKernelClasses; ++i) {
    const std::string name(name_of(static_cast<KernelClass>(i)));
    constants.efficiency[i] = lookup.find(name + ".efficiency").value_or(constants.stream_efficiency);
    constants.backward_efficiency[i] = lookup.find(name + ".bwd.efficiency").value_or(constants.efficiency[i]);
    for (int pass = 0; pass < 2; ++pass) {
      const std::string prefix = name + (pass == 1 ? ".bwd" : "");
      constants.fixed_s[i][static_cast<std::size_t>(pass)] = lookup.find(prefix + ".fixed_s").value_or(0);
      constants.floor_s[i][static_cast<std::size_t>(pass)] = lookup.find(prefix + ".floor_s").value_or(0);
    }
    constants.spec_p90[i] = lookup.get_either("interval." + name + ".spec_p90", "interval.spec_p90", 1);
  }
  return constants;
}

}  // namespace rooftile
