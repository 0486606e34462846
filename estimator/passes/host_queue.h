// The host issues a step's kernels in order while the GPU executes them: where kernels are shorter than the host needs for them, the GPU waits.
#pragma once

#include <vector>

#include "estimator/passes/step.h"

namespace rooftile {

// Seconds of one execution of an entry on the host, and on the GPU with the gaps between its kernels.
struct QueueItem {
  double host_s = 0, gpu_s = 0;
  double first_s = 0;  // of host_s, until its first kernel is launched
  double last_s = 0;   // of gpu_s, its last kernel
  bool waits = false;  // the host goes on once the GPU is done with it
};

// Time of both working through the items in order, the queue being empty at the start: the host issues item by item, the GPU starts an item once its first kernel is there and
// cannot end it before its last one is. Host 2 ms and GPU 1 ms an item, ten items, kernels at the end of each: 20 ms + the last kernel. Host 1 ms and GPU 2 ms: 21 ms; with a wait
// behind the fifth item the GPU stands still for the millisecond that the sixth needs: 22 ms.
class HostQueue {
 public:
  void run(const QueueItem& item) {
    const double start = gpu_s_ > host_s_ + item.first_s ? gpu_s_ : host_s_ + item.first_s;
    host_s_ += item.host_s;
    const double done = start + item.gpu_s, issued = host_s_ + item.last_s;
    if (item.gpu_s > 0) gpu_s_ = done > issued ? done : issued;
    if (item.waits && gpu_s_ > host_s_) host_s_ = gpu_s_;
  }
  double end_s() const { return gpu_s_ > host_s_ ? gpu_s_ : host_s_; }

 private:
  double host_s_ = 0, gpu_s_ = 0;
};

// Seconds that a rank's step takes beyond its kernels and the gaps between them because the host is late. `times` as in schedule(). `slower`: how much longer than the runtime's
// rates say the host takes for everything.
double host_bound_time(const StepGraph& rank, const std::vector<LoweredCall>& calls, const std::vector<const KernelTime*>& times, const Options& options, const Runtime& runtime,
                       double slower = 1);

// Kernels that a call launches: its own, and the reduction behind a matmul whose depth is split.
inline double launches_of(const LoweredCall& call, const KernelTime& time) {
  return static_cast<double>(call.calls) * static_cast<double>(call.launches + (call.call.kernel == KernelClass::gemm && time.split_k > 1 ? 1 : 0));
}

}  // namespace rooftile
