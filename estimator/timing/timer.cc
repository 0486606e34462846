#include "estimator/timing/timer.h"

#include <algorithm>
#include <map>
#include <utility>

#include "estimator/timing/attention.h"
#include "estimator/timing/combine.h"
#include "estimator/timing/constants.h"
#include "estimator/timing/gemm.h"
#include "estimator/timing/memory_bound.h"
#include "estimator/timing/torch_kernels.h"

namespace rooftile {
namespace {

// The sum of kernels that run one after the other, under the name of the whole.
void add_stage(KernelTime& total, const KernelTime& stage) {
  total.time_s += stage.time_s;
  total.peak_s += stage.peak_s;
  total.attainable_s += stage.attainable_s;
  for (std::size_t i = 0; i < kLosses; ++i) total.loss_s[i] += stage.loss_s[i];
  total.compute_s += stage.compute_s;
  total.dram_s += stage.dram_s;
  total.l2_s += stage.l2_s;
  total.latency_s += stage.latency_s;
  total.launch_s += stage.launch_s;
  total.flops_executed += stage.flops_executed;
  total.bytes_moved += stage.bytes_moved;
}

constexpr double kAlignedBytes = 16;  // of leading dimensions that the current generation's kernels take

}  // namespace

struct KernelTimer::Model {
  Model(const Machine& machine_, Mode mode_, ClockState clocks_)
      : machine(machine_),
        mode(mode_),
        clocks(clocks_),
        constants(resolve_constants(machine_, mode_)),
        gemm(machine_, constants),
        attention(machine_, constants),
        torch(machine_, constants) {}

  KernelTime time(const KernelCall& call) const {
    KernelTime result = mode == Mode::sol ? ideal(call) : modelled(call);
    if (mode != Mode::sol) set_confidence(call, result);
    return result;
  }

  // max(FLOPs / data-sheet peak, bytes / data-sheet bandwidth), exactly; communication: bytes / link rate.
  KernelTime ideal(const KernelCall& call) const {
    const Device& device = machine.device;
    KernelCall resolved = call;  // what has no fused kernel does the work of the separate stages
    if (call.kernel == KernelClass::attention) std::get<AttentionShape>(resolved.shape).kernel = attention_kernel_of(call.attention(), call.dtype, device);
    const KernelWork work = work_of(resolved);
    KernelTime result;
    result.flops_executed = work.flops;
    result.bytes_moved = work.bytes();
    result.family = "roofline";
    if (call.kernel == KernelClass::collective) {
      result.peak_s = collective_time(call.collective(), machine.cluster, device, constants).peak_s;
      result.bound = Bound::communication;
    } else {
      const bool matmul = call.kernel == KernelClass::gemm || call.kernel == KernelClass::attention;
      const MathRate& tensor = device.rate(call.dtype);
      const double peak = matmul && call.dtype != DType::fp32 && tensor.peak_flops > 0 ? tensor.peak_flops : device.vector_fp32.peak_flops;
      result.compute_s = peak > 0 ? to_double(work.flops) / peak : 0;
      result.dram_s = to_double(work.bytes()) / device.memory_bandwidth;
      result.peak_s = std::max(result.compute_s, result.dram_s);
      result.bound = result.compute_s > result.dram_s ? Bound::compute : Bound::dram;
    }
    result.time_s = result.attainable_s = result.peak_s;
    return result;
  }

  KernelTime modelled(const KernelCall& call) const {
    switch (call.kernel) {
      case KernelClass::gemm:
        return gemm.time(call.gemm(), call.dtype, clocks);
      case KernelClass::attention: {
        const AttentionKernel kernel = attention_kernel_of(call.attention(), call.dtype, machine.device);
        if (kernel == AttentionKernel::standard) return standard_attention(call);
        KernelTime result = attention.time(call.attention(), call.dtype, call.pass, kernel, clocks);
        if (constants.kv_write > 0 && call.pass == Pass::fwd && call.attention().causal) add_cache_write(call, result);
        return result;
      }
      case KernelClass::collective:
        return collective_time(call.collective(), machine.cluster, machine.device, constants);
      default:
        return torch.covers(call) ? torch.time(call) : memory_bound_time(call, machine.device, constants);
    }
  }

  // Some engines' attention call first copies the new keys and values into the cache, as a kernel of its own.
  void add_cache_write(const KernelCall& call, KernelTime& total) const {
    const AttentionShape& s = call.attention();
    const PointwiseShape copy{.kind = PointwiseKind::copy, .numel = s.batch * s.seq_q * s.kv_heads * (s.head_dim + s.v_head_dim), .to = call.dtype};
    const KernelCall write{.kernel = KernelClass::pointwise, .dtype = call.dtype, .pass = Pass::fwd, .impl = Impl::torch, .shape = copy};
    KernelTime stage = memory_bound_time(write, machine.device, constants);
    for (double* term : {&stage.time_s, &stage.peak_s, &stage.attainable_s, &stage.compute_s, &stage.dram_s, &stage.latency_s, &stage.launch_s}) *term *= constants.kv_write;
    for (double& loss : stage.loss_s) loss *= constants.kv_write;
    add_stage(total, stage);
  }

  // Four stages forward (Q K^T, scale and mask, softmax, P V), six backward, each with scores in memory.
  KernelTime standard_attention(const KernelCall& call) const {
    const AttentionShape& s = call.attention();
    const DType out = bits_of(call.dtype) < 16 ? DType::bf16 : call.dtype;
    const Impl impl = call.impl == Impl::torch ? Impl::torch : Impl::rooftile;
    const std::int64_t heads = s.batch * s.heads;
    const auto matmul = [&](std::int64_t m, std::int64_t n, std::int64_t k, GemmLayout layout) {
      return gemm.time(GemmShape{.m = m, .n = n, .k = k, .batch = heads, .layout = layout, .out = out}, call.dtype, clocks);
    };
    const auto scale = [&] {
      const PointwiseShape shape{.kind = PointwiseKind::scale, .numel = heads * s.seq_q * s.seq_kv, .to = out};
      return modelled(KernelCall{.kernel = KernelClass::pointwise, .dtype = out, .pass = Pass::fwd, .impl = impl, .shape = shape});
    };
    const auto softmax = [&](Pass pass) {
      const RowShape shape{.rows = heads * s.seq_q, .cols = s.seq_kv};
      return modelled(KernelCall{.kernel = KernelClass::softmax, .dtype = out, .pass = pass, .impl = impl, .shape = shape});
    };
    KernelTime total = matmul(s.seq_q, s.seq_kv, s.head_dim, GemmLayout::nt);
    if (call.pass == Pass::fwd) {
      add_stage(total, scale());
      add_stage(total, softmax(Pass::fwd));
      add_stage(total, matmul(s.seq_q, s.v_head_dim, s.seq_kv, GemmLayout::nn));
    } else {
      total = matmul(s.seq_kv, s.v_head_dim, s.seq_q, GemmLayout::tn);            // dV = P^T dO
      add_stage(total, matmul(s.seq_q, s.seq_kv, s.v_head_dim, GemmLayout::nt));  // dP = dO V^T
      add_stage(total, softmax(Pass::bwd));
      add_stage(total, scale());
      add_stage(total, matmul(s.seq_q, s.head_dim, s.seq_kv, GemmLayout::nn));  // dQ = dS K
      add_stage(total, matmul(s.seq_kv, s.head_dim, s.seq_q, GemmLayout::tn));  // dK = dS^T Q
    }
    total.family = "standard_attention";
    total.bound = total.launch_s > std::max(total.compute_s, total.dram_s) ? Bound::launch : total.dram_s > total.compute_s ? Bound::dram : Bound::compute;
    return total;
  }

  // What the layers above the architecture know about a family of kernels.
  struct Known {
    const Residuals* residuals = nullptr;
    const std::vector<ValidRange>* validity = nullptr;
    bool general = false;  // of all dtypes
  };

  // Residuals of the family from the highest layer that has them; else the architecture's stated default. Outside the sizes that the layer's rows span the larger error of the
  // two holds.
  void set_confidence(const KernelCall& call, KernelTime& result) const {
    const double stated = constants.spec_p90[static_cast<std::size_t>(call.kernel)];
    result.confidence = Confidence::spec;
    result.error_p90 = stated;
    if (mode != Mode::calibrated) return;
    const std::size_t dtype = static_cast<std::size_t>(call.dtype);
    const Known* known = &known_[static_cast<std::size_t>(call.kernel)][dtype][call.pass == Pass::bwd ? 1 : 0];
    if (call.impl == Impl::torch && torch.covers(call)) {
      // PyTorch's kernels by their walk: on the device of the rows, else where the device's own rows do not tell.
      const TorchKnown* walk = torch_known(call);
      if (walk != nullptr && (walk->own || known->residuals == nullptr)) {
        set_confidence(call, result, *walk->residuals, walk->validity, walk->own ? 0 : stated);
        if (!walk->own) result.confidence = Confidence::extrapolated;
        return;
      }
    }
    if (call.kernel == KernelClass::gemm && misaligned_[dtype].residuals != nullptr) {
      if (alignment_of(call.gemm(), call.dtype) * bytes_of(call.dtype) < kAlignedBytes) known = &misaligned_[dtype];
    }
    if (known->residuals == nullptr) return;
    set_confidence(call, result, *known->residuals, known->validity, 0);
  }

  void set_confidence(const KernelCall& call, KernelTime& result, const Residuals& residuals, const std::vector<ValidRange>* validity, double at_least) const {
    result.confidence = Confidence::calibrated;
    result.error_p90 = std::max(residuals.p90_abs, at_least);
    if (validity == nullptr) return;
    for (const ValidRange& range : *validity) {
      const double size = size_of(call, range.key);
      if (size >= range.lowest && size <= range.highest) continue;
      result.confidence = Confidence::extrapolated;
      result.error_p90 = std::max(result.error_p90, constants.spec_p90[static_cast<std::size_t>(call.kernel)]);
      return;
    }
  }

  // Residuals of one of PyTorch's walks; of all of them where it has too few rows of its own.
  struct TorchKnown {
    const Residuals* residuals = nullptr;
    const std::vector<ValidRange>* validity = nullptr;
    bool own = false;  // found on this device
  };
  const TorchKnown* torch_known(const KernelCall& call) const {
    auto found = torch_known_.find("torch." + std::string(torch_walk(call)));
    if (found == torch_known_.end()) found = torch_known_.find("torch");
    return found == torch_known_.end() ? nullptr : &found->second;
  }

  // Families are named "gemm.bf16", "gemm.bf16.misaligned", "attention.fwd", "attention.bwd.bf16", "pointwise"; the most specific one that a layer has applies.
  void resolve_residuals() {
    for (auto layer = machine.calibration.layers.rbegin(); layer != machine.calibration.layers.rend(); ++layer) {
      for (const auto& [name, residuals] : layer->residuals) {
        if (name.compare(0, 5, "torch") != 0) continue;
        const auto valid = layer->validity.find(name);
        torch_known_.try_emplace(
            name, TorchKnown{&residuals, valid == layer->validity.end() ? nullptr : &valid->second, layer->rows_of == machine.device.id || layer->device == machine.device.id});
      }
      if (layer->level == LayerLevel::architecture) continue;
      for (const auto& [name, residuals] : layer->residuals) {
        const auto valid = layer->validity.find(name);
        const std::vector<ValidRange>* validity = valid == layer->validity.end() ? nullptr : &valid->second;
        for (std::size_t k = 0; k < kKernelClasses; ++k) {
          const std::string_view kernel = name_of(static_cast<KernelClass>(k));
          if (name.compare(0, kernel.size(), kernel) != 0 || (name.size() > kernel.size() && name[kernel.size()] != '.')) continue;
          const std::string rest = name.substr(kernel.size());
          for (std::size_t d = 0; d < kDTypeCount; ++d) {
            const std::string dtype = "." + std::string(name_of(static_cast<DType>(d)));
            if (rest == dtype + ".misaligned" && misaligned_[d].residuals == nullptr) misaligned_[d] = {&residuals, validity, false};
            for (int pass = 0; pass < 2; ++pass) {
              Known& slot = known_[k][d][pass];
              const std::string direction = pass == 1 ? ".bwd" : ".fwd";
              const bool exact = rest == dtype || rest == direction + dtype, general = rest.empty() || rest == direction;
              if (exact && (slot.residuals == nullptr || slot.general)) slot = {&residuals, validity, false};
              if (general && slot.residuals == nullptr) slot = {&residuals, validity, true};
            }
          }
        }
      }
    }
  }

  const Machine& machine;
  Mode mode;
  ClockState clocks;
  Constants constants;
  GemmModel gemm;
  AttentionModel attention;
  TorchKernels torch;
  Known known_[kKernelClasses][kDTypeCount][2];
  Known misaligned_[kDTypeCount];
  std::map<std::string, TorchKnown> torch_known_;
};

KernelTimer::KernelTimer(const Machine& machine, Mode mode, ClockState clocks) : model_(std::make_unique<Model>(machine, mode, clocks)) {
  if (mode == Mode::calibrated) model_->resolve_residuals();
  times_.reserve(64);
}
KernelTimer::~KernelTimer() = default;
KernelTimer::KernelTimer(KernelTimer&&) noexcept = default;

const KernelTime& KernelTimer::operator()(const KernelCall& call) {
  const auto [entry, added] = times_.try_emplace(call);
  if (added) entry->second = model_->time(call);
  return entry->second;
}

double KernelTimer::step_slowdown(DType dtype, double matmul_flops, double compute_s, double idle_s) const {
  const Constants& constants = model_->constants;
  const GemmConstants& gemm = constants.gemm[static_cast<std::size_t>(dtype)];
  const double limited = gemm.sustained_fraction, free = constants.free_share;
  const double sustained_flops = model_->machine.device.rate(dtype).peak_flops * gemm.eta * limited;
  if (model_->mode == Mode::sol || limited <= 0 || limited >= 1 || free >= 1 || sustained_flops <= 0 || compute_s <= 0) return 1;
  double slowdown = 1;
  for (int i = 0; i < 8; ++i) {  // a slower step draws less: a fixed point that a few rounds reach
    const double share = matmul_flops / (compute_s * slowdown + idle_s) / sustained_flops;
    slowdown = 0.5 * (slowdown + 1 + std::clamp((share - free) / (1 - free), 0.0, 1.0) * (1 / limited - 1));
  }
  return slowdown;
}

std::vector<std::string> KernelTimer::layers() const {
  std::vector<std::string> names;
  if (model_->mode == Mode::sol) return names;
  for (const CalibrationLayer& layer : model_->machine.calibration.layers) {
    if (model_->mode != Mode::calibrated && layer.level != LayerLevel::architecture) continue;
    names.push_back(layer.id);
  }
  return names;
}

std::vector<std::string> KernelTimer::missing_constants() const { return model_->constants.missing; }

}  // namespace rooftile
