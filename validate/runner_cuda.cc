// The one place where the system's KernelCall meets the kernels.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ctime>

#include "kernels/kernels.h"
#include "validate/peers.h"
#include "validate/runner.h"

namespace rooftile {

namespace {

namespace k = kernels;

std::string today() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts{};
  gmtime_r(&now, &parts);
  return fmt::format("{:04}-{:02}-{:02}", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday);
}

std::optional<k::Type> type_of(DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return k::Type::bf16;
    case DType::fp16:
      return k::Type::fp16;
    case DType::tf32:
      return k::Type::tf32;
    case DType::fp32:
      return k::Type::fp32;
    case DType::fp8_e4m3:
      return k::Type::fp8_e4m3;
    default:
      return std::nullopt;
  }
}

std::string no_type(DType dtype) { return fmt::format("there is no kernel in {}", name_of(dtype)); }

// The problem of a call, or why there is no kernel for it.
std::optional<k::Problem> problem_of(const KernelCall& call, std::string& reason) {
  const auto type = type_of(call.dtype);
  if (!type) {
    reason = no_type(call.dtype);
    return std::nullopt;
  }
  const bool backward = call.pass == Pass::bwd;
  switch (call.kernel) {
    case KernelClass::gemm: {
      const GemmShape& s = call.gemm();
      const auto out = type_of(s.out);
      if (!out || s.grouped) {
        reason = s.grouped ? "grouped products are not measured" : no_type(s.out);
        return std::nullopt;
      }
      k::Gemm p{s.m, s.n, s.k, s.batch};
      p.a_transposed = s.layout == GemmLayout::tn || s.layout == GemmLayout::tt;
      p.b_transposed = s.layout == GemmLayout::nt || s.layout == GemmLayout::tt;
      p.type = *type;
      p.out = *out == k::Type::tf32 ? k::Type::fp32 : *out;
      p.accumulate = s.accumulate;
      p.epilogue = s.epilogue == Epilogue::gelu ? k::Epilogue::gelu : s.epilogue == Epilogue::bias ? k::Epilogue::bias : k::Epilogue::none;
      return p;
    }
    case KernelClass::attention: {
      const AttentionShape& s = call.attention();
      if (s.kernel == AttentionKernel::flash2 || s.kernel == AttentionKernel::flash3) {
        reason = fmt::format("{} kernels are not part of this program; cudnn and standard are", name_of(s.kernel));
        return std::nullopt;
      }
      k::Attention p{s.batch, s.heads, s.kv_heads, s.seq_q, s.seq_kv, s.head_dim, s.v_head_dim, s.causal, s.window, backward, *type};
      p.engine = s.kernel == AttentionKernel::standard ? k::AttentionEngine::standard : k::AttentionEngine::cudnn;
      return p;
    }
    case KernelClass::softmax:
      return k::Rows{k::RowOp::softmax, call.row().rows, call.row().cols, backward, *type};
    case KernelClass::layernorm:
      return k::Rows{k::RowOp::layernorm, call.row().rows, call.row().cols, backward, *type};
    case KernelClass::rmsnorm:
      return k::Rows{k::RowOp::rmsnorm, call.row().rows, call.row().cols, backward, *type};
    case KernelClass::column_sum:
      return k::Rows{k::RowOp::column_sum, call.row().rows, call.row().cols, false, *type};
    case KernelClass::row_sum:
      return k::Rows{k::RowOp::row_sum, call.row().rows, call.row().cols, false, *type};
    case KernelClass::log_softmax:
    case KernelClass::softmax_fp32:
    case KernelClass::nll:
    case KernelClass::row_mean:
    case KernelClass::argmax:
    case KernelClass::topk:
    case KernelClass::sort:
    case KernelClass::layernorm_input:
      reason = fmt::format("there is no {} kernel here; measure PyTorch's", name_of(call.kernel));
      return std::nullopt;
    case KernelClass::pointwise: {
      const PointwiseShape& s = call.pointwise();
      const auto to = type_of(s.kind == PointwiseKind::cast ? s.to : call.dtype);
      if (!to) {
        reason = no_type(s.to);
        return std::nullopt;
      }
      std::string name(name_of(s.kind));
      // Our gelu is the tanh form, which is gelu_new in one kernel.
      if (s.kind == PointwiseKind::gelu_new) name = name_of(PointwiseKind::gelu);
      if (s.kind == PointwiseKind::gelu_new_backward) name = name_of(PointwiseKind::gelu_backward);
      return k::Pointwise{std::move(name), s.numel, *type, *to};
    }
    case KernelClass::embedding:
      return k::Embedding{call.embedding().tokens, call.embedding().vocab, call.embedding().hidden, backward, *type};
    case KernelClass::cross_entropy:
      return k::CrossEntropy{call.cross_entropy().tokens, call.cross_entropy().vocab, backward, *type};
    case KernelClass::optimizer: {
      const OptimizerShape& s = call.optimizer();
      const auto state = type_of(s.state), gradient = type_of(s.gradient);
      if (s.kind != OptimizerKind::adamw || !state || !gradient) {
        reason = s.kind != OptimizerKind::adamw ? "only AdamW has a kernel here" : no_type(state ? s.gradient : s.state);
        return std::nullopt;
      }
      return k::AdamW{s.numel, *type, *state, *gradient, s.main_weights};
    }
    case KernelClass::collective: {
      const CollectiveShape& s = call.collective();
      static constexpr k::CollectiveOp kOps[] = {k::CollectiveOp::all_reduce, k::CollectiveOp::all_gather, k::CollectiveOp::reduce_scatter,
                                                 k::CollectiveOp::all_to_all, k::CollectiveOp::broadcast,  k::CollectiveOp::send_recv};
      return k::Collective{kOps[static_cast<std::size_t>(s.kind)], s.bytes, s.ranks, *type};
    }
  }
  reason = "there is no kernel of this class";
  return std::nullopt;
}

bool is_vendors(KernelClass kernel) { return kernel == KernelClass::gemm || kernel == KernelClass::attention || kernel == KernelClass::collective; }

class CudaRunner final : public Runner {
 public:
  CudaRunner(std::unique_ptr<Peers> peers, std::unique_ptr<k::Bench> bench) : peers_(std::move(peers)), bench_(std::move(bench)), date_(today()) {}

 private:
  Measurement do_measure(const KernelCall& call, const RunOptions& options) override {
    const k::Machine& machine = bench_->machine();
    Measurement m;
    m.call = call;
    m.clocks = options.clocks == ClockState::sustained ? ClockState::sustained : ClockState::burst;
    m.gpu = machine.name;
    m.driver = machine.driver;
    m.date = date_;
    m.source = "rooftile";
    const auto problem = problem_for(m.call, options, m.reason);
    if (!problem) return m;
    k::TimingOptions timing;
    timing.time_s = options.time_s;
    timing.spread_target = options.spread_target;
    timing.sustained = m.clocks == ClockState::sustained;
    timing.flush = options.cold;
    timing.check = options.check;
    timing.max_calls = options.most_calls;
    const k::Outcome outcome = bench_->measure(*problem, timing);
    m.reason = outcome.reason;
    m.device_lost = outcome.device_lost;
    m.measured_s = outcome.time_s;
    m.spread_s = outcome.spread_s;
    m.clock_hz = outcome.clock_hz;
    m.power_w = outcome.power_w;
    m.method = outcome.method.empty() ? "" : outcome.method + (options.cold ? "" : " warm");
    m.library = outcome.library;
    m.kernel = outcome.kernel;
    m.grid = outcome.grid;
    m.algorithm = outcome.algorithm;
    m.error = outcome.checked ? outcome.error : -1;
    m.replays = outcome.replays;
    return m;
  }

  Measurement do_measure_step(std::span<const StepBlock> blocks, const RunOptions& options, std::vector<std::string>& left_out) override {
    Measurement m;
    m.clocks = options.clocks == ClockState::sustained ? ClockState::sustained : ClockState::burst;
    m.gpu = bench_->machine().name;
    m.driver = bench_->machine().driver;
    m.date = date_;
    m.source = "rooftile";
    std::vector<k::Block> step;
    for (const StepBlock& block : blocks) {
      k::Block& made = step.emplace_back();
      made.repeat = block.repeat;
      for (const KernelCall& call : block.calls) {
        std::string reason;
        if (const auto problem = problem_of(call, reason))
          made.calls.push_back(*problem);
        else if (std::find(left_out.begin(), left_out.end(), reason) == left_out.end())
          left_out.push_back(reason);
      }
    }
    k::TimingOptions timing;
    timing.time_s = std::max(options.time_s, 0.2);
    timing.spread_target = options.spread_target;
    timing.sustained = m.clocks == ClockState::sustained;
    const k::Outcome outcome = bench_->measure_step(step, timing, left_out);
    m.reason = outcome.reason;
    m.measured_s = outcome.time_s;
    m.spread_s = outcome.spread_s;
    m.clock_hz = outcome.clock_hz;
    m.power_w = outcome.power_w;
    m.method = outcome.method;
    m.library = outcome.library;
    m.replays = outcome.replays;
    return m;
  }

  // Sets the call's `impl` to whose kernel runs.
  static std::optional<k::Problem> problem_for(KernelCall& call, const RunOptions& options, std::string& reason) {
    if (call.impl == Impl::torch && options.own_for_torch && !is_vendors(call.kernel)) call.impl = Impl::rooftile;
    const Impl runs = is_vendors(call.kernel) ? Impl::vendor : Impl::rooftile;
    if (call.impl != runs) {
      reason = fmt::format("{}'s kernel is not part of this program; {}'s is", name_of(call.impl), name_of(runs));
      return std::nullopt;
    }
    return problem_of(call, reason);
  }

  std::string do_refusal(const KernelCall& call, const RunOptions& options) const override {
    KernelCall wanted = call;
    std::string reason;
    const auto problem = problem_for(wanted, options, reason);
    if (!problem) return reason;
    const auto missing = [](const std::string& version) { return version.rfind("missing", 0) == 0 ? version : std::string(); };
    if (std::holds_alternative<k::Gemm>(*problem)) return missing(bench_->machine().cublaslt);
    if (const auto* attention = std::get_if<k::Attention>(&*problem))
      return missing(attention->engine == k::AttentionEngine::cudnn ? bench_->machine().cudnn : bench_->machine().cublaslt);
    return {};
  }

  int do_ranks() const override { return bench_->ranks(); }
  int do_rank() const override { return bench_->rank(); }
  Result<std::vector<std::string>> do_exchange(const std::string& mine) override { return peers_->exchange(mine); }

  std::string do_description() const override {
    const k::Machine& m = bench_->machine();
    return fmt::format("{} ({} SMs, {:.0f} MiB L2), driver {}, CUDA runtime {}, cuBLASLt {}, cuDNN {}, NCCL {}, rank {} of {}", m.name, m.sms, m.l2_bytes / 1048576,
                       m.driver.empty() ? "unknown" : m.driver, m.runtime, m.cublaslt, m.cudnn, m.nccl, bench_->rank(), bench_->ranks());
  }

  GpuFacts do_facts() const override {
    const k::Machine& m = bench_->machine();
    GpuFacts facts{m.name, m.driver, m.runtime, m.cublaslt, m.cudnn, m.nccl, m.compute_capability, m.sms};
    facts.boost_clock_hz = m.clock_hz;
    facts.memory_clock_hz = m.memory_clock_hz;
    facts.l2_bytes = m.l2_bytes;
    facts.memory_bytes = m.memory_bytes;
    facts.memory_bus_bits = m.memory_bus_bits;
    facts.power_limit_w = m.power_limit_w;
    facts.shared_memory_per_sm = m.shared_memory_per_sm;
    facts.registers_per_sm = m.registers_per_sm;
    facts.threads_per_sm = m.threads_per_sm;
    return facts;
  }

  std::unique_ptr<Peers> peers_;  // outlives the bench, which talks through it
  std::unique_ptr<k::Bench> bench_;
  std::string date_;
};

}  // namespace

Result<std::unique_ptr<Runner>> make_cuda_runner(int device) {
  std::string reason;
  auto peers = std::make_unique<Peers>(launch_of_environment());
  const Launch& launch = peers->launch();
  k::Together together{launch.rank, launch.ranks, launch.local_rank, [&talk = *peers](const std::string& mine, std::vector<std::string>& all) -> std::string {
                         auto texts = talk.exchange(mine);
                         if (!texts) return texts.error().message;
                         all = std::move(*texts);
                         return {};
                       }};
  auto bench = k::open_bench(device, std::move(together), reason);
  if (!bench) return fail(ErrorCode::unavailable, "no GPU to measure on: " + reason, {}, "nvidia-smi shows what the driver sees; recorded measurements need no GPU");
  return std::unique_ptr<Runner>(std::make_unique<CudaRunner>(std::move(peers), std::move(bench)));
}

}  // namespace rooftile
