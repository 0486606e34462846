// Times of a step put in order: kernels after one another, gaps, a host that may be too slow, communication that hides, pipeline bubbles.
#pragma once

#include <vector>

#include "estimator/passes/step.h"

namespace rooftile {

// Seconds of one rank of a stage for a whole step, micro-batches included.
struct StageTime {
  double forward_s = 0, backward_s = 0, recompute_s = 0, optimizer_s = 0;
  double communication_s = 0;  // exposed
  double launch_gap_s = 0, host_bound_s = 0;
  double launches = 0;  // kernels and memsets that one rank launches
  double flops_hardware = 0, bytes = 0;
  double per_micro_batch_s = 0;  // what the pipeline repeats
  double once_s = 0;             // optimizer and what comes once a step
  std::vector<double> exposed;   // by lowered call: the share of its duration that is exposed (1 for compute)
  double busy_s() const { return forward_s + backward_s + recompute_s + optimizer_s + communication_s; }
};

// `times` holds one entry per lowered call: the time of one launch.
StageTime schedule(const StepGraph& rank, const std::vector<LoweredCall>& calls, const std::vector<const KernelTime*>& times, const Options& options, const Runtime& runtime);

// Idle time of the slowest stage for filling and draining the pipeline: (p - 1) / v micro-batches of it (Narayanan et al. 2021, arXiv 2104.04473, section 2.2). 4 stages, no
// interleaving, 10 ms a micro-batch: 30 ms.
double pipeline_bubble(const Layout& layout, double per_micro_batch_s);

}  // namespace rooftile
