// What to change when a step does not fit.
#include <algorithm>
#include <optional>
#include <string>

#include "estimator/passes/step.h"

namespace rooftile {
namespace {

constexpr double kRoom = 0.95;             // a suggestion leaves a twentieth free for what is not modelled (CUDA context, fragmentation)
constexpr std::int64_t kMostGpus = 16384;  // more than the largest published training jobs

std::string gigabytes(Count bytes) {
  const auto tenths = static_cast<long long>(to_double(bytes) / 1e8 + 0.5);
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " GB";
}

class Search {
 public:
  Search(MemoryTotals& memory, const Graph& graph, const Options& options, const Runtime& runtime, const Device& device)
      : memory_(memory), graph_(graph), options_(options), runtime_(runtime), device_(device), default_batch_(options.gbs == options.mbs * options.layout.dp) {}

  void run() {
    if (options_.phase == Phase::train) {
      train();
    } else {
      inference();
    }
  }

 private:
  // Settings in order of what they cost: sharing states among the ranks there are, dividing more of the activations, computing again, then more GPUs.
  void train() {
    for (const bool recompute : {false, true}) {
      if (recompute && options_.recompute == Recompute::full) break;
      if (same_gpus(recompute)) return;
    }
    for (const bool recompute : {false, true}) {
      if (recompute && options_.recompute == Recompute::full) break;
      const std::int64_t most = recompute ? kMostGpus : std::max<std::int64_t>(64, 8 * options_.layout.gpus);  // beyond that computing again is the cheaper answer
      for (std::int64_t gpus = 2 * options_.layout.gpus; gpus <= most; gpus *= 2) {
        if (more_gpus(gpus, recompute)) return;
      }
    }
    // Where one layer or the activations of one sequence are too much for a GPU, only dividing the model helps.
    for (std::int64_t tp = 2 * options_.layout.tp; tp <= options_.layout.gpus_per_node; tp *= 2) {
      for (std::int64_t gpus = std::max(tp, options_.layout.gpus); gpus <= kMostGpus; gpus *= 4) {
        if (divided_model(tp, gpus)) return;
      }
    }
  }

  bool divided_model(std::int64_t tp, std::int64_t gpus) {
    Options tried = options_;
    Layout& layout = tried.layout;
    layout.tp = tp;
    layout.gpus = gpus;
    layout.sp = true;
    layout.zero = options_.layout.pp > 1 ? 1 : 3;
    const std::int64_t model_ranks = layout.tp * layout.pp * layout.cp;
    if (gpus % model_ranks != 0) return false;
    layout.dp = gpus / model_ranks;
    if (default_batch_) tried.gbs = tried.mbs * layout.dp;
    tried.recompute = Recompute::full;
    return fits(tried, " --gpus " + std::to_string(gpus) + " --tp " + std::to_string(tp) + " --sp --zero " + std::to_string(layout.zero) + " --recompute full");
  }

  bool same_gpus(bool recompute) {
    for (const bool sp : {false, true}) {
      if (sp && (options_.layout.sp || options_.layout.tp == 1)) continue;
      for (int zero = options_.layout.zero; zero <= 3; ++zero) {
        if (zero > options_.layout.zero && (options_.layout.dp * options_.layout.cp == 1 || (zero == 3 && options_.layout.pp > 1))) continue;
        Options tried = options_;
        tried.layout.zero = zero;
        tried.layout.sp = options_.layout.sp || sp;
        if (recompute) tried.recompute = Recompute::full;
        std::string text;
        if (zero != options_.layout.zero) text += " --zero " + std::to_string(zero);
        if (sp) text += " --sp";
        if (recompute) text += " --recompute full";
        if (!text.empty() && fits(tried, text)) return true;
      }
    }
    return false;
  }

  bool more_gpus(std::int64_t gpus, bool recompute) {
    Options tried = options_;
    tried.layout.gpus = gpus;
    const std::int64_t model_ranks = tried.layout.tp * tried.layout.pp * tried.layout.cp;
    if (gpus % model_ranks != 0) return false;
    tried.layout.dp = gpus / model_ranks;
    tried.layout.zero = options_.layout.pp > 1 ? std::max(1, options_.layout.zero) : 3;
    if (default_batch_) tried.gbs = tried.mbs * tried.layout.dp;
    if (recompute) tried.recompute = Recompute::full;
    std::string text = " --gpus " + std::to_string(gpus);
    if (tried.layout.zero != options_.layout.zero) text += " --zero " + std::to_string(tried.layout.zero);
    if (recompute) text += " --recompute full";
    return fits(tried, text);
  }

  // Weights and cache divide over tensor parallelism.
  void inference() {
    const std::int64_t heads = std::max<std::int64_t>(1, graph_.model.heads);
    for (std::int64_t factor = 2; factor <= 64; factor *= 2) {
      Options tried = options_;
      tried.layout.tp = options_.layout.tp * factor;
      tried.layout.gpus = options_.layout.gpus * factor;  // as many replicas as before
      if (heads % tried.layout.tp != 0) continue;
      if (fits(tried, " --gpus " + std::to_string(tried.layout.gpus) + " --tp " + std::to_string(tried.layout.tp))) return;
    }
  }

  bool fits(const Options& tried, const std::string& text) {
    // Cheap proof first: the state alone, divided over every rank that could share it, must fit.
    const double state = to_double(memory_.parameters_bytes + memory_.gradients_bytes + memory_.optimizer_bytes);
    const auto ranks = static_cast<double>(tried.layout.dp * tried.layout.cp * tried.layout.tp);
    if (state / ranks > kRoom * device_.memory_bytes) return false;
    std::vector<Warning> ignored;
    if (!resolve_options(tried, graph_, ignored)) return false;
    auto& step = steps_[tried.recompute == Recompute::full ? 1 : 0];
    if (!step) step = differentiate(graph_, tried);
    Count peak = 0;
    for (const Stage& stage : stages_of(step->graph, tried.layout))
      peak = std::max(peak, memory_of(shard(*step, tried, runtime_, stage), stage, tried, runtime_, device_).peak_bytes);
    if (to_double(peak) > kRoom * device_.memory_bytes) return false;
    memory_.would_fit = text.substr(1);
    memory_.would_fit_bytes = to_double(peak);
    memory_.would_fit_options = tried;
    return true;
  }

  MemoryTotals& memory_;
  const Graph& graph_;
  const Options& options_;
  const Runtime& runtime_;
  const Device& device_;
  const bool default_batch_;
  std::optional<StepGraph> steps_[2];  // without and with full recomputation
};

}  // namespace

void advise_memory(MemoryTotals& memory, const Graph& graph, const Options& options, const Runtime& runtime, const Device& device) {
  if (memory.fits) return;
  const struct {
    const char* name;
    Count bytes;
  } terms[] = {{"optimizer states", memory.optimizer_bytes},
               {"gradients", memory.gradients_bytes},
               {"weights", memory.parameters_bytes},
               {"activations", memory.activations_bytes},
               {"KV cache", memory.kv_cache_bytes}};
  const auto& largest = *std::max_element(std::begin(terms), std::end(terms), [](const auto& a, const auto& b) { return a.bytes < b.bytes; });
  memory.breaks = std::string(largest.name) + " (" + gigabytes(largest.bytes) + ")";
  Search(memory, graph, options, runtime, device).run();
}

}  // namespace rooftile
