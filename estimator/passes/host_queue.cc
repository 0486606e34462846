#include "estimator/passes/host_queue.h"

#include <algorithm>

namespace rooftile {
namespace {

constexpr std::int64_t kSimulatedRounds = 3;  // micro-batches that are simulated; the others take as long as the last of them

// Parameter tensors of the rank: what an optimizer's Python code walks over.
double parameter_tensors(const StepGraph& rank) {
  double tensors = 0;
  for (const Segment& segment : rank.graph.segments) {
    double own = 0;
    for (const Operator& op : rank.graph.ops_of(segment)) {
      if (const auto* linear = std::get_if<LinearAttrs>(&op.attrs)) own += (linear->tied ? 0 : 1) + (linear->bias ? 1 : 0);
      if (const auto* norm = std::get_if<NormAttrs>(&op.attrs)) own += (norm->weight ? 1 : 0) + (norm->bias ? 1 : 0);
      if (const auto* table = std::get_if<EmbeddingAttrs>(&op.attrs)) own += table->tied ? 0 : 1;
      if (const auto* pointwise = std::get_if<PointwiseAttrs>(&op.attrs)) own += pointwise->parameters > 0 ? 1 : 0;
      if (const auto* convolution = std::get_if<ConvolutionAttrs>(&op.attrs)) own += 1 + (convolution->bias ? 1 : 0);
    }
    tensors += own * static_cast<double>(segment.repeat);
  }
  return tensors;
}

// `records`: gradients follow, so that a forward operator leaves a node and saved tensors behind.
QueueItem item_of(const StepGraph& rank, const StepEntry& entry, const LoweredCall* first, const LoweredCall* last, const KernelTime* const* times, const Runtime& runtime,
                  double gap_s, bool records) {
  const HostRates& host = runtime.host;
  QueueItem item;
  double kernels = 0;
  for (const LoweredCall* call = first; call != last; ++call, ++times) {
    item.gpu_s += (*times)->time_s * static_cast<double>(call->calls) + launches_of(*call, **times) * gap_s;
    item.last_s = (*times)->time_s / static_cast<double>(call->launches);
    item.waits = item.waits || call->waits;
    const bool memset = call->call.kernel == KernelClass::pointwise && call->call.pointwise().kind == PointwiseKind::memset;
    // Memsets and the reductions of split depths are launched by the libraries in passing.
    if (!memset) kernels += static_cast<double>(call->calls) * static_cast<double>(call->launches);
  }
  if (entry.phase == StepPhase::optimizer) {
    item.host_s = item.first_s = host.optimizer_tensor_s * parameter_tensors(rank);
    return item;
  }
  const bool backward = entry.phase == StepPhase::backward;
  const double kernel_s = backward ? host.backward_kernel_s : host.kernel_s + (records ? host.recorded_kernel_s : 0);
  const double own_s = backward ? host.backward_operator_s : host.operator_s + (records ? host.recorded_operator_s : 0);
  item.host_s = own_s + kernel_s * kernels;
  item.first_s = own_s + kernel_s;
  return item;
}

}  // namespace

double host_bound_time(const StepGraph& rank, const std::vector<LoweredCall>& calls, const std::vector<const KernelTime*>& times, const Options& options, const Runtime& runtime,
                       double slower) {
  if (!runtime.host.any()) return 0;
  const double gap_s = std::max(0.0, runtime.launch_gap_s - runtime.graph_gap_s);
  struct Item {
    QueueItem item;
    std::uint32_t segment;
    StepPhase phase;
    bool per_step;
  };
  std::vector<Item> items;
  for (std::size_t i = 0; i < calls.size();) {
    std::size_t end = i;
    while (end < calls.size() && calls[end].entry == calls[i].entry) ++end;
    const StepEntry& entry = rank.entries[calls[i].entry];
    const bool serial = entry.phase != StepPhase::communication;
    if (serial)
      items.push_back({item_of(rank, entry, calls.data() + i, calls.data() + end, times.data() + i, runtime, gap_s, options.phase == Phase::train), entry.segment, entry.phase,
                       entry.per_step});
    i = end;
  }
  for (Item& item : items) item.item.host_s *= slower, item.item.first_s *= slower;
  HostQueue queue;
  queue.run({runtime.host.step_s * slower, 0, 0, 0, false});
  double busy_s = 0;
  const auto walk = [&](bool per_step) {
    for (std::size_t i = 0; i < items.size();) {
      std::size_t end = i;  // the items of one segment in one direction are repeated together
      const auto direction = [](StepPhase phase) { return phase == StepPhase::recompute ? StepPhase::backward : phase; };
      while (end < items.size() && items[end].segment == items[i].segment && direction(items[end].phase) == direction(items[i].phase)) ++end;
      const std::int64_t repeat = rank.graph.segments[items[i].segment].repeat;
      for (std::int64_t r = 0; r < repeat; ++r) {
        for (std::size_t j = i; j < end; ++j) {
          if (items[j].per_step != per_step) continue;
          queue.run(items[j].item);
          busy_s += items[j].item.gpu_s;
        }
      }
      i = end;
    }
  };
  double waits_s = 0, last_wait_s = 0;
  const std::int64_t rounds = std::max<std::int64_t>(1, options.micro_batches());
  for (std::int64_t round = 0; round < std::min(rounds, kSimulatedRounds); ++round) {
    walk(false);
    last_wait_s = queue.end_s() - busy_s - waits_s;
    waits_s += last_wait_s;
  }
  walk(true);
  const double simulated_s = std::max(0.0, queue.end_s() - busy_s);
  return simulated_s + (rounds > kSimulatedRounds ? static_cast<double>(rounds - kSimulatedRounds) * std::max(0.0, last_wait_s) : 0);
}

}  // namespace rooftile
