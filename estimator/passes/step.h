// The values that travel between passes.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "estimator/graph/graph.h"
#include "estimator/hardware/runtime.h"
#include "estimator/ops/op_work.h"
#include "estimator/passes/options.h"
#include "estimator/passes/prediction.h"
#include "estimator/timing/timer.h"

namespace rooftile {

// One operator in one phase, in order of execution within its segment.
struct StepEntry {
  std::uint32_t op = 0;       // into StepGraph::graph.ops
  std::uint32_t segment = 0;  // into StepGraph::graph.segments
  StepPhase phase = StepPhase::forward;
  std::string_view suffix;    // "grad" for the backward collective of a forward operator
  bool per_step = false;      // once a step, not once a micro-batch (optimizer, gradient reduction)
  bool overlappable = false;  // communication that may hide behind the backward pass
};

// A forward graph with the entries of a whole step. After shard(), sizes are one rank's.
struct StepGraph {
  Graph graph;
  std::vector<StepEntry> entries;
};

// An entry lowered to what is really launched.
struct LoweredCall {
  std::uint32_t entry = 0;
  std::string_view part;
  KernelCall call;
  std::int64_t calls = 1;  // of one execution of the entry
  Count flops = 0;         // algorithmic, of all calls
  ModelFlops conventions;
  bool tensor_work = false;   // matmul-like: counts in flops_hardware
  std::int64_t launches = 1;  // of one call, where several kernels are timed as one
  bool waits = false;         // the host waits until it is done
  bool once = false;          // once a step although its entry is executed for every micro-batch
};

// What one rank of a pipeline stage executes: how often each segment runs there.
struct Stage {
  std::vector<std::int64_t> repeats;  // by segment
  std::int64_t layers = 0;
  std::int64_t count = 1;  // stages like this one
  std::int64_t index = 0;  // the first of them in the pipeline
};

// forward graph -> + backward, recomputation, optimizer.
StepGraph differentiate(const Graph& graph, const Options& options);

// -> the sizes of one rank of a pipeline stage, with the communication between ranks. Segment::repeat becomes the stage's. Collectives belong to the segment they serve.
StepGraph shard(const StepGraph& step, const Options& options, const Runtime& runtime, const Stage& stage);

// The pipeline stages that differ (first, middle, last), each with how many there are; one stage without pipeline parallelism.
std::vector<Stage> stages_of(const Graph& graph, const Layout& layout);

// operators -> kernels, by the runtime's rules and what the device's libraries have.
std::vector<LoweredCall> lower(const StepGraph& step, const Options& options, const Runtime& runtime, const Device& device);

WorkContext work_context(const Options& options, const Runtime& runtime, const Device* device = nullptr);

// How precision, runtime and optimizer store the state of one parameter.
struct StateBytes {
  double weight = 0, gradient = 0, optimizer = 0;
  double transient_weight = 0;     // low-precision copies that autocast keeps
  bool gradients_persist = false;  // buffers that live through the step (else freed before the forward pass)
  DType weight_dtype = DType::bf16, gradient_dtype = DType::bf16, state_dtype = DType::bf16;
  bool main_weights = false;
};
StateBytes state_bytes(const Options& options, const Runtime& runtime);

// Memory of one rank of the stage: a walk over the life of its tensors in the order in which the runtime executes the step. `explain` adds the moment of the peak's terms.
MemoryTotals memory_of(const StepGraph& rank, const Stage& stage, const Options& options, const Runtime& runtime, const Device& device, bool explain = false);

// Fills MemoryTotals::breaks and would_fit when it does not fit: the setting that changes least and fits with room to spare, every other option kept. The setting gives exactly
// would_fit_bytes when it is run (a test applies it).
void advise_memory(MemoryTotals& memory, const Graph& graph, const Options& options, const Runtime& runtime, const Device& device);

// Checks degrees against each other and the model and fills dp, gbs, seq. Errors: usage, when GPUs, batch or heads do not divide.
Result<Options> resolve_options(Options options, const Graph& graph, std::vector<Warning>& warnings);

}  // namespace rooftile
