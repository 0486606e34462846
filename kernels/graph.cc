#include "kernels/graph.h"

#include <cxxabi.h>

#include <cstdlib>

namespace rooftile::kernels {

namespace {

// Entry points of the driver, found through the runtime so that nothing has to be linked against the driver.
template <typename Function>
Function driver(const char* name) {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult result{};
  if (cudaGetDriverEntryPointByVersion(name, &entry, 12030, cudaEnableDefault, &result) != cudaSuccess || result != cudaDriverEntryPointSuccess) {
    (void)cudaGetLastError();
    return nullptr;
  }
  return reinterpret_cast<Function>(entry);
}

// As profilers print it.
std::string readable(const char* name) {
  int status = -1;
  char* plain = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  std::string text = status == 0 && plain ? plain : name;
  std::free(plain);
  return text;
}

using NodeParams = CUresult (*)(CUgraphNode, CUDA_KERNEL_NODE_PARAMS*);
using FunctionName = CUresult (*)(const char**, CUfunction);
using KernelName = CUresult (*)(const char**, CUkernel);

}  // namespace

CallGraph::~CallGraph() {
  if (executable_) (void)cudaGraphExecDestroy(executable_);
  if (graph_) (void)cudaGraphDestroy(graph_);
}

Reason CallGraph::capture(Context& context, Kernel& kernel, int calls, int sets) {
  ROOFTILE_CUDA(cudaStreamBeginCapture(context.stream, cudaStreamCaptureModeThreadLocal));
  Reason failed;
  for (int call = 0; call < calls && failed.empty(); ++call) failed = kernel.launch(context, call % sets);
  const cudaError_t ended = cudaStreamEndCapture(context.stream, &graph_);
  if (!failed.empty()) {
    (void)cudaGetLastError();
    return "while capturing: " + failed;
  }
  ROOFTILE_CUDA(ended);
  ROOFTILE_TRY(describe_nodes(calls));
  ROOFTILE_CUDA(cudaGraphInstantiate(&executable_, graph_, 0));
  ROOFTILE_CUDA(cudaGraphUpload(executable_, context.stream));
  return {};
}

Reason CallGraph::launch(Context& context) const {
  ROOFTILE_CUDA(cudaGraphLaunch(executable_, context.stream));
  return {};
}

Reason CallGraph::describe_nodes(int calls) {
  static const auto params_of = driver<NodeParams>("cuGraphKernelNodeGetParams");
  static const auto function_name = driver<FunctionName>("cuFuncGetName");
  static const auto kernel_name = driver<KernelName>("cuKernelGetName");
  std::size_t count = 0;
  ROOFTILE_CUDA(cudaGraphGetNodes(graph_, nullptr, &count));
  std::vector<cudaGraphNode_t> nodes(count);
  ROOFTILE_CUDA(cudaGraphGetNodes(graph_, nodes.data(), &count));
  const std::size_t per_call = calls > 0 ? count / static_cast<std::size_t>(calls) : count;
  for (std::size_t i = 0; i < per_call && i < 64; ++i) {
    cudaGraphNodeType type{};
    ROOFTILE_CUDA(cudaGraphNodeGetType(nodes[i], &type));
    std::string name = "other", grid = "0";
    if (type == cudaGraphNodeTypeMemset) name = "memset";
    if (type == cudaGraphNodeTypeMemcpy) name = "memcpy";
    if (type == cudaGraphNodeTypeKernel) {
      name = "kernel";
      CUDA_KERNEL_NODE_PARAMS params{};
      if (params_of && params_of(reinterpret_cast<CUgraphNode>(nodes[i]), &params) == CUDA_SUCCESS) {
        const char* text = nullptr;
        if (params.func && function_name && function_name(&text, params.func) == CUDA_SUCCESS && text) name = readable(text);
        if (!text && params.kern && kernel_name && kernel_name(&text, params.kern) == CUDA_SUCCESS && text) name = readable(text);
        grid = std::to_string(static_cast<std::uint64_t>(params.gridDimX) * params.gridDimY * params.gridDimZ);
      }
    }
    names_ += (i > 0 ? "+" : "") + name;
    grids_ += (i > 0 ? "+" : "") + grid;
  }
  return {};
}

}  // namespace rooftile::kernels
