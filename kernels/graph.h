// CUDA graphs of repeated calls, and what is in them: names and grids of the kernels, which a library does not otherwise tell.
#pragma once

#include <string>
#include <vector>

#include "kernels/device.h"

namespace rooftile::kernels {

class CallGraph {
 public:
  CallGraph() = default;
  ~CallGraph();
  CallGraph(const CallGraph&) = delete;
  CallGraph& operator=(const CallGraph&) = delete;

  // Captures `calls` calls that go through the operand sets in turn.
  Reason capture(Context& context, Kernel& kernel, int calls, int sets);
  Reason launch(Context& context) const;

  // Kernels of one call in the order of launching, joined by '+'; memory operations appear as memset and memcpy. Empty names where the driver does not tell.
  std::string kernel_names() const { return names_; }
  std::string grids() const { return grids_; }

 private:
  Reason describe_nodes(int calls);

  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
  std::string names_, grids_;
};

}  // namespace rooftile::kernels
