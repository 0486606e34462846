// Measuring: make the operands, check the result, capture a graph, replay it until the median is known well enough.
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <thread>

#include "kernels/clock.h"
#include "kernels/collective.h"
#include "kernels/graph.h"
#include "kernels/libraries.h"
#include "kernels/nvml.h"

namespace rooftile::kernels {

namespace {

constexpr std::size_t kMostArenaBytes = std::size_t{16} << 30;
constexpr std::size_t kMostStepCalls = 50000;
constexpr double kReplayTarget_s = 6e-4;  // a replay is at least this long, so that the events' half microsecond does not count

double quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  const double at = q * static_cast<double>(values.size() - 1);
  const std::size_t low = static_cast<std::size_t>(at);
  const std::size_t high = std::min(low + 1, values.size() - 1);
  return values[low] + (at - static_cast<double>(low)) * (values[high] - values[low]);
}

class CudaBench final : public Bench {
 public:
  ~CudaBench() override {
    for (cudaEvent_t event : events_) (void)cudaEventDestroy(event);
    if (clocks_) (void)cudaFreeHost(clocks_);
  }

  Reason open(int device, Together together) {
    int count = 0;
    ROOFTILE_CUDA(cudaGetDeviceCount(&count));
    if (count == 0) return "no CUDA device";
    if (device < 0) device = together.local_rank % count;
    if (device >= count) return "there is no CUDA device " + std::to_string(device);
    ROOFTILE_CUDA(cudaSetDevice(device));
    cudaDeviceProp properties{};
    ROOFTILE_CUDA(cudaGetDeviceProperties(&properties, device));
    Machine& m = context_.machine;
    m.name = properties.name;
    m.compute_capability = properties.major * 10 + properties.minor;
    m.sms = properties.multiProcessorCount;
    m.l2_bytes = properties.l2CacheSize;
    m.memory_bytes = static_cast<double>(properties.totalGlobalMem);
    m.memory_bus_bits = properties.memoryBusWidth;
    m.shared_memory_per_sm = static_cast<double>(properties.sharedMemPerMultiprocessor);
    m.shared_memory_per_block = static_cast<double>(properties.sharedMemPerBlockOptin);
    m.registers_per_sm = properties.regsPerMultiprocessor;
    m.threads_per_sm = properties.maxThreadsPerMultiProcessor;
    int kilohertz = 0;
    if (cudaDeviceGetAttribute(&kilohertz, cudaDevAttrClockRate, device) == cudaSuccess) m.clock_hz = kilohertz * 1e3;
    if (cudaDeviceGetAttribute(&kilohertz, cudaDevAttrMemoryClockRate, device) == cudaSuccess) m.memory_clock_hz = kilohertz * 1e3;
    char bus[32] = {};
    if (cudaDeviceGetPCIBusId(bus, sizeof bus, device) == cudaSuccess) m.pci_bus = bus;
    int version = 0;
    if (cudaRuntimeGetVersion(&version) == cudaSuccess) m.runtime = std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
    nvml_ = std::make_unique<Nvml>(m.pci_bus);
    m.driver = nvml_->driver();
    m.power_limit_w = nvml_->power_limit_w();
    (void)cudaGetLastError();

    ROOFTILE_CUDA(cudaStreamCreateWithFlags(&context_.stream, cudaStreamNonBlocking));
    context_.libraries = open_libraries();
    const auto say = [](const auto& library) { return library.missing.empty() ? library.version : "missing: " + library.missing; };
    m.cublaslt = say(context_.libraries->cublaslt);
    m.cudnn = say(context_.libraries->cudnn);
    m.nccl = say(context_.libraries->nccl);
    for (cudaEvent_t& event : events_) ROOFTILE_CUDA(cudaEventCreate(&event));
    ROOFTILE_CUDA(cudaHostAlloc(reinterpret_cast<void**>(&clocks_), 2 * kClockSlots * sizeof(ClockSample), cudaHostAllocMapped));
    collectives_ = std::make_unique<Collectives>(context_, std::move(together));
    return {};
  }

  const Machine& machine() const override { return context_.machine; }
  int ranks() const override { return collectives_->ranks(); }
  int rank() const override { return collectives_->rank(); }

  Outcome measure(const Problem& problem, const TimingOptions& options) override {
    Outcome outcome;
    outcome.reason = run(problem, options, outcome);
    return finish(std::move(outcome));
  }

  Outcome measure_step(const std::vector<Block>& blocks, const TimingOptions& options, std::vector<std::string>& left_out) override {
    Outcome outcome;
    outcome.reason = run_step(blocks, options, left_out, outcome);
    return finish(std::move(outcome));
  }

 private:
  Outcome finish(Outcome outcome) {
    if (!outcome.reason.empty()) {
      outcome.time_s = 0;
      outcome.device_lost = cudaStreamSynchronize(context_.stream) != cudaSuccess;
      (void)cudaGetLastError();
      if (outcome.device_lost) outcome.device_lost = cudaDeviceSynchronize() != cudaSuccess;
    }
    return outcome;
  }

  std::unique_ptr<Kernel> make(const Problem& problem, Reason& reason) {
    std::unique_ptr<Kernel> kernel;
    if (const auto* p = std::get_if<Gemm>(&problem)) kernel = make_gemm(context_, *p, reason);
    if (const auto* p = std::get_if<Attention>(&problem)) kernel = make_attention(context_, *p, reason);
    if (const auto* p = std::get_if<Rows>(&problem)) kernel = make_rows(context_, *p, reason);
    if (const auto* p = std::get_if<Pointwise>(&problem)) kernel = make_pointwise(context_, *p, reason);
    if (const auto* p = std::get_if<Embedding>(&problem)) kernel = make_embedding(context_, *p, reason);
    if (const auto* p = std::get_if<CrossEntropy>(&problem)) kernel = make_cross_entropy(context_, *p, reason);
    if (const auto* p = std::get_if<AdamW>(&problem)) kernel = make_adamw(context_, *p, reason);
    if (const auto* p = std::get_if<Collective>(&problem)) kernel = collectives_->make(*p, reason);
    if (!kernel && reason.empty()) reason = "no kernel";
    return kernel;
  }

  // Several kernels of a step behind one face, so that the graph, the clock and the stopping rule are those of a single kernel.
  class StepKernel final : public Kernel {
   public:
    std::vector<std::unique_ptr<Kernel>> kernels;
    std::vector<std::size_t> order;  // of one step, into kernels
    Reason launch(Context& context, int) override {
      for (const std::size_t i : order) ROOFTILE_TRY(kernels[i]->launch(context, 0));
      return {};
    }
    Reason check(Context&, double& error) override {
      error = -1;
      return {};
    }
  };

  Reason run_step(const std::vector<Block>& blocks, const TimingOptions& options, std::vector<std::string>& left_out, Outcome& outcome) {
    StepKernel step;
    std::size_t inputs = 0, outputs = 0;
    for (const Block& block : blocks) {
      std::vector<std::size_t> once;
      for (const Problem& problem : block.calls) {
        Reason reason;
        std::unique_ptr<Kernel> kernel = make(problem, reason);
        if (!kernel) {
          if (std::find(left_out.begin(), left_out.end(), reason) == left_out.end()) left_out.push_back(reason);
          continue;
        }
        kernel->input_base = inputs;
        kernel->output_base = outputs;
        inputs += kernel->input_bytes;
        outputs += kernel->output_bytes;
        once.push_back(step.kernels.size());
        step.kernels.push_back(std::move(kernel));
      }
      for (std::int64_t i = 0; i < block.repeat; ++i) step.order.insert(step.order.end(), once.begin(), once.end());
      if (step.order.size() > kMostStepCalls) return "the step has more than " + std::to_string(kMostStepCalls) + " calls";
    }
    if (step.order.empty()) return "nothing of this step can run";
    if (static_cast<double>(inputs + outputs) > 0.75 * context_.machine.memory_bytes) return "the operands of the whole step do not fit into the GPU's memory";
    ROOFTILE_TRY(context_.provide_inputs(std::max<std::size_t>(kAlignment, inputs), Type::bf16));
    ROOFTILE_TRY(context_.outputs.reserve(std::max<std::size_t>(kAlignment, outputs)));
    for (const auto& kernel : step.kernels) ROOFTILE_TRY(kernel->prepare(context_, 1));
    context_.input_type.reset();  // a kernel may have put its own operands among the inputs
    ROOFTILE_CUDA(cudaStreamSynchronize(context_.stream));
    outcome.sets = 1;
    outcome.library = "step of " + std::to_string(step.order.size()) + " calls";
    TimingOptions timing = options;
    timing.max_calls = 1;
    CallGraph graph;
    double guess_s = 0;
    ROOFTILE_TRY(capture(step, timing, false, graph, guess_s, outcome));
    ROOFTILE_TRY(replay(step, graph, timing, false, guess_s, outcome));
    outcome.kernel.clear();
    outcome.grid.clear();
    outcome.method = "graph of a whole step";
    return {};
  }

  // What fails on one rank of a collective fails on all: between the stages the ranks tell each other how it went, and none goes on alone.
  Reason run(const Problem& problem, const TimingOptions& options, Outcome& outcome) {
    const bool together = std::holds_alternative<Collective>(problem) && collectives_->ranks() > 1;
    const auto agree = [&](const Reason& mine) { return together ? collectives_->agree(mine) : mine; };
    Reason reason;
    const std::unique_ptr<Kernel> kernel = make(problem, reason);
    if (!kernel) return reason;
    outcome.algorithm = kernel->algorithm;
    outcome.library = kernel->library;
    bool flush = false;
    ROOFTILE_TRY(agree(provide(*kernel, options, flush, outcome)));
    if (options.check) {
      reason = agree(check(*kernel, outcome));
      outcome.wrong = reason.rfind("wrong result", 0) == 0;
      if (!reason.empty()) return reason;
    }
    CallGraph graph;
    double guess_s = 0;
    ROOFTILE_TRY(agree(capture(*kernel, options, flush, graph, guess_s, outcome)));
    ROOFTILE_TRY(agree(replay(*kernel, graph, options, flush, guess_s, outcome)));
    if (together) {
      ROOFTILE_TRY(collectives_->largest(outcome.time_s));
      outcome.method += " ranks=" + std::to_string(collectives_->ranks()) + " slowest";
    }
    return {};
  }

  // Operands in memory.
  Reason provide(Kernel& operands, const TimingOptions& options, bool& flush, Outcome& outcome) {
    Kernel* const kernel = &operands;
    // Sets to go round: together at least twice the L2 cache, at most as many as one graph has calls.
    const std::size_t touched = std::max<std::size_t>(1, kernel->touched_bytes ? kernel->touched_bytes : kernel->input_bytes + kernel->output_bytes);
    const std::size_t wanted = static_cast<std::size_t>(2 * context_.machine.l2_bytes);
    std::size_t sets = std::clamp<std::size_t>((wanted + touched - 1) / touched + 1, 2, static_cast<std::size_t>(std::max(2, options.max_calls)));
    const std::size_t arena = std::min(kMostArenaBytes, static_cast<std::size_t>(0.25 * context_.machine.memory_bytes));
    const std::size_t largest = std::max<std::size_t>(1, std::max(kernel->input_bytes, kernel->output_bytes));
    sets = std::max<std::size_t>(1, std::min(sets, arena / largest));
    if (static_cast<double>(kernel->input_bytes) + static_cast<double>(kernel->output_bytes) > 0.8 * context_.machine.memory_bytes)
      return "operands do not fit into the GPU's memory";
    if (kernel->fixed_calls > 0) sets = std::min<std::size_t>(sets, static_cast<std::size_t>(kernel->fixed_calls));
    if (sets == 1 && touched < wanted) return "operands do not fit twice in the memory that is used for them";
    outcome.sets = static_cast<int>(sets);
    flush = options.flush && kernel->fixed_calls == 0 && sets * touched < wanted;
    ROOFTILE_TRY(context_.provide_inputs(std::max<std::size_t>(kAlignment, sets * kernel->input_bytes), kernel->input_type));
    ROOFTILE_TRY(context_.outputs.reserve(std::max<std::size_t>(kAlignment, sets * kernel->output_bytes)));
    if (flush) ROOFTILE_TRY(context_.flush.reserve(wanted));
    ROOFTILE_TRY(kernel->prepare(context_, outcome.sets));
    ROOFTILE_CUDA(cudaStreamSynchronize(context_.stream));
    return {};
  }

  Reason check(Kernel& kernel, Outcome& outcome) {
    double error = 0;
    ROOFTILE_TRY(kernel.check(context_, error));
    ROOFTILE_CUDA(cudaStreamSynchronize(context_.stream));
    outcome.checked = error >= 0 || std::isnan(error);
    outcome.error = error;
    if (outcome.checked && !(error <= kernel.tolerance))
      return "wrong result: relative error " + std::to_string(error) + " against the reference in double, allowed " + std::to_string(kernel.tolerance);
    return {};
  }

  // Warms up, takes a first look at the time of a call and makes the graph.
  Reason capture(Kernel& kernel, const TimingOptions& options, bool flush, CallGraph& graph, double& guess_s, Outcome& outcome) {
    ROOFTILE_TRY(kernel.launch(context_, 0));
    ROOFTILE_CUDA(cudaEventRecord(events_[0], context_.stream));
    for (int i = 0; i < 3; ++i) ROOFTILE_TRY(kernel.launch(context_, i % outcome.sets));
    ROOFTILE_CUDA(cudaEventRecord(events_[1], context_.stream));
    ROOFTILE_CUDA(cudaStreamSynchronize(context_.stream));
    float milliseconds = 0;
    ROOFTILE_CUDA(cudaEventElapsedTime(&milliseconds, events_[0], events_[1]));
    guess_s = std::max(1e-6, static_cast<double>(milliseconds) * 1e-3 / 3);

    int calls = outcome.sets;
    const int enough = static_cast<int>(std::min(static_cast<double>(options.max_calls), std::ceil(kReplayTarget_s / guess_s)));
    while (calls < enough) calls += outcome.sets;
    calls = std::min(calls, std::max(options.max_calls, outcome.sets));
    if (kernel.fixed_calls > 0) calls = kernel.fixed_calls;
    outcome.calls = calls;
    ROOFTILE_TRY(graph.capture(context_, kernel, calls, outcome.sets));
    outcome.kernel = graph.kernel_names();
    outcome.grid = graph.grids();
    outcome.method = "graph calls=" + std::to_string(calls) + " sets=" + std::to_string(outcome.sets) + (flush ? " flush" : "");
    return {};
  }

  Reason replay(Kernel& kernel, CallGraph& graph, const TimingOptions& options, bool flush, double guess_s, Outcome& outcome) {
    const bool fixed = kernel.fixed_calls > 0;
    const int calls = outcome.calls;
    // Ranks guess differently: what they launch together must not hang on a guess.
    for (int i = 0; i < (fixed || guess_s * calls < 1e-3 ? 2 : 1); ++i) ROOFTILE_TRY(graph.launch(context_));
    if (options.sustained && !fixed) ROOFTILE_TRY(heat(graph, options.sustain_s));
    ROOFTILE_CUDA(cudaStreamSynchronize(context_.stream));

    std::vector<double> times;
    std::vector<double> clock_rates;
    double spent_s = 0;
    float milliseconds = 0;
    const double replay_guess_s = guess_s * calls;
    while (true) {
      const int left = static_cast<int>((options.time_s - spent_s) / std::max(1e-5, replay_guess_s));
      const int batch = fixed ? kBatch : std::clamp(left, 3, kBatch);
      std::fill_n(clocks_, 2 * kClockSlots, ClockSample{});
      sample_clocks(context_.stream, context_.machine.sms, clocks_);
      for (int i = 0; i < batch; ++i) {
        if (flush) ROOFTILE_CUDA(cudaMemsetAsync(context_.flush.data(), i, context_.flush.size(), context_.stream));
        ROOFTILE_CUDA(cudaEventRecord(events_[static_cast<std::size_t>(2 * i)], context_.stream));
        ROOFTILE_TRY(graph.launch(context_));
        ROOFTILE_CUDA(cudaEventRecord(events_[static_cast<std::size_t>(2 * i + 1)], context_.stream));
      }
      sample_clocks(context_.stream, context_.machine.sms, clocks_ + kClockSlots);
      const double power = replay_guess_s * batch > 2e-2 ? nvml_->power_w() : 0;  // a shorter window says nothing of power
      ROOFTILE_CUDA(cudaStreamSynchronize(context_.stream));
      if (power > 0) outcome.power_w = power;
      double batch_s = 0;
      for (int i = 0; i < batch; ++i) {
        ROOFTILE_CUDA(cudaEventElapsedTime(&milliseconds, events_[static_cast<std::size_t>(2 * i)], events_[static_cast<std::size_t>(2 * i + 1)]));
        times.push_back(static_cast<double>(milliseconds) * 1e-3 / calls);
        batch_s += static_cast<double>(milliseconds) * 1e-3;
      }
      if (const double clock = clock_between(clocks_, clocks_ + kClockSlots); clock > 0) clock_rates.push_back(clock);
      spent_s += batch_s;
      outcome.time_s = quantile(times, 0.5);
      outcome.spread_s = 0.5 * (quantile(times, 0.75) - quantile(times, 0.25));
      // The spread of a median falls with the root of the number of replays.
      const bool steady = times.size() >= 7 && outcome.spread_s * 1.25 / std::sqrt(static_cast<double>(times.size())) < options.spread_target * outcome.time_s;
      if (steady || fixed || spent_s >= options.time_s) break;
      if (!options.sustained && batch_s > 1e-3) std::this_thread::sleep_for(std::chrono::duration<double>(batch_s));
    }
    outcome.replays = static_cast<int>(times.size());
    if (!clock_rates.empty()) outcome.clock_hz = quantile(clock_rates, 0.5);
    // Burst: rest as long as was worked, so that the power limiter does not see a long load.
    if (!options.sustained && spent_s > 1e-3) std::this_thread::sleep_for(std::chrono::duration<double>(std::min(spent_s, 0.1)));
    return {};
  }

  Reason heat(CallGraph& graph, double seconds) {
    const auto start = std::chrono::steady_clock::now();
    while (std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() < seconds) {
      for (int i = 0; i < 4; ++i) ROOFTILE_TRY(graph.launch(context_));
      ROOFTILE_CUDA(cudaStreamSynchronize(context_.stream));
    }
    return {};
  }

  static constexpr int kBatch = 16;
  Context context_;
  std::unique_ptr<Nvml> nvml_;
  std::unique_ptr<Collectives> collectives_;
  std::array<cudaEvent_t, 2 * kBatch> events_{};
  ClockSample* clocks_ = nullptr;  // host memory that the GPU writes
};

}  // namespace

std::unique_ptr<Bench> open_bench(int device, Together together, std::string& reason) {
  auto bench = std::make_unique<CudaBench>();
  reason = bench->open(device, std::move(together));
  if (!reason.empty()) return nullptr;
  return bench;
}

}  // namespace rooftile::kernels
