#include "estimator/passes/schedule.h"

#include <algorithm>

#include "estimator/passes/host_queue.h"

namespace rooftile {

double pipeline_bubble(const Layout& layout, double per_micro_batch_s) {
  return layout.pp > 1 ? per_micro_batch_s * static_cast<double>(layout.pp - 1) / static_cast<double>(std::max<std::int64_t>(1, layout.vpp)) : 0;
}

StageTime schedule(const StepGraph& rank, const std::vector<LoweredCall>& calls, const std::vector<const KernelTime*>& times, const Options& options, const Runtime& runtime) {
  StageTime stage;
  stage.exposed.assign(calls.size(), 1.0);
  const auto micro_batches = static_cast<double>(options.micro_batches());
  double overlappable_s = 0, backward_once_s = 0, repeated_s = 0, repeated_communication_s = 0;
  double launches = 0;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const StepEntry& entry = rank.entries[calls[i].entry];
    const double repeat = static_cast<double>(rank.graph.segments[entry.segment].repeat) * static_cast<double>(calls[i].calls);
    const double rounds = entry.per_step || calls[i].once ? 1 : micro_batches;
    const double count = repeat * rounds, time = times[i]->time_s * count;
    if (entry.phase == StepPhase::communication) {
      if (entry.overlappable) {
        overlappable_s += time;
      } else {
        stage.communication_s += time;
        if (!entry.per_step) repeated_communication_s += time;
      }
    } else {
      switch (entry.phase) {
        case StepPhase::forward:
          stage.forward_s += time;
          break;
        case StepPhase::backward:
          stage.backward_s += time;
          backward_once_s += time / rounds;
          break;
        case StepPhase::recompute:
          stage.recompute_s += time;
          backward_once_s += time / rounds;
          break;
        default:
          stage.optimizer_s += time;
      }
      if (!entry.per_step) repeated_s += time;
    }
    launches += launches_of(calls[i], *times[i]) * static_cast<double>(rank.graph.segments[entry.segment].repeat) * rounds;
    if (calls[i].tensor_work) stage.flops_hardware += to_double(times[i]->flops_executed) * count;
    stage.bytes += to_double(times[i]->bytes_moved) * count;
  }

  // Communication that may overlap hides behind the computation it runs beside: a fully sharded layer's gathers behind everything that repeats, gradient reduction behind
  // the backward pass of the last micro-batch.
  if (overlappable_s > 0) {
    const double cover = options.layout.zero == 3 ? repeated_s : backward_once_s;
    const double share = std::max(0.0, 1.0 - cover / overlappable_s);
    for (std::size_t i = 0; i < calls.size(); ++i) {
      if (rank.entries[calls[i].entry].overlappable) stage.exposed[i] = share;
    }
    stage.communication_s += overlappable_s * share;
    if (options.layout.zero >= 2) repeated_communication_s += overlappable_s * share;
  }

  // A kernel's time holds the launch of a graph-like stream; a stream fed launch by launch leaves wider gaps.
  stage.launches = launches;
  if (!options.cuda_graphs) {
    stage.launch_gap_s = launches * std::max(0.0, runtime.launch_gap_s - runtime.graph_gap_s);
    stage.host_bound_s = host_bound_time(rank, calls, times, options, runtime);
  }
  stage.per_micro_batch_s = (repeated_s + repeated_communication_s) / std::max(1.0, micro_batches);
  stage.once_s = stage.busy_s() - stage.per_micro_batch_s * micro_batches;
  return stage;
}

}  // namespace rooftile
