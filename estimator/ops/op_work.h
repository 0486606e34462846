// What an operator does, collected by its work function: kernels forward and backward with their FLOPs by convention, learned parameters, and what it keeps for the backward
// pass. The kernels are the best known ones (fused where fused kernels exist); a runtime may replace them when it lowers the operator.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "estimator/core/count.h"
#include "estimator/graph/graph.h"
#include "estimator/timing/kernel_call.h"

namespace rooftile {

struct Device;

// The two FLOP conventions that differ from the kernel's own arithmetic.
//   dense: 2 x multiply-accumulates of matmul-like work, attention without causal or window discount
//   model: Megatron's convention (see interface): causal attention halved, router and lookups free
struct ModelFlops {
  Count dense = 0, model = 0;
};

struct KernelUse {
  std::string_view part;  // "" for the operator's only kernel, else "dgrad", "wgrad", "bias_grad", "qk", "softmax", "pv", ...
  KernelCall call;
  std::int64_t calls = 1;
  Count flops = 0;  // algorithmic, of all calls
  ModelFlops conventions;
};

// Kept from forward to backward: a tensor of the graph (counted once however many operators keep it), or bytes of this operator's own (statistics, masks).
struct SavedTensor {
  TensorId tensor = 0;
  double extra_bytes = 0;         // > 0: not a graph tensor
  bool attention_scores = false;  // dropped by selective recomputation
};

// How a step computes; decides dtypes and kernels inside work functions.
struct WorkContext {
  AttentionKernel attention = AttentionKernel::fastest;
  const Device* device = nullptr;     // decides what `fastest` is; without one it stays a fused kernel
  DType gradient_out = DType::bf16;   // dtype in which weight gradients are written
  bool kernels = true;                // false: only parameters and kept tensors are wanted, kernels are not collected
  bool accumulate_gradients = false;  // weight-gradient GEMMs add into that buffer
};

class OpWork {
 public:
  void begin(const Graph& graph, const WorkContext& context);
  void clear();  // between operators

  void forward(std::string_view part, const KernelCall& call, ModelFlops conventions = {}, std::int64_t calls = 1, Count flops = -1);
  void backward(std::string_view part, const KernelCall& call, ModelFlops conventions = {}, std::int64_t calls = 1, Count flops = -1);
  void save_input(const Operator& op, std::size_t index = 0);
  void save_output(const Operator& op, std::size_t index = 0);
  void save_bytes(double bytes, bool attention_scores = false);
  // `active_of`: only active of every `experts` parameters are used by a token.
  void learn(Count parameters, bool embedding = false, std::int64_t active = 1, std::int64_t experts = 1);

  const WorkContext& context() const { return context_; }
  const Graph& graph() const { return *graph_; }

  std::vector<KernelUse> forward_uses, backward_uses;
  std::vector<SavedTensor> saved;
  Count parameters = 0, active_parameters = 0, embedding_parameters = 0;
  bool expert_parameters = false;
  Count packed_parameters = 0, packed_bytes = 0;  // of the parameters: those that are stored packed, and what they take

 private:
  const Graph* graph_ = nullptr;
  WorkContext context_;
};

// Runs the operator's work function into a cleared `work`.
void work_of(const Operator& op, OpWork& work);

// Kernel calls by their usual parameters, in the operator's dtype.
KernelCall pointwise_call(PointwiseKind kind, std::int64_t numel, DType dtype);
KernelCall row_call(KernelClass kernel, std::int64_t rows, std::int64_t cols, DType dtype, Pass pass = Pass::fwd);
KernelCall gemm_call(const GemmShape& shape, DType dtype);

// The work functions named in operators.def.
void linear_work(const Operator& op, OpWork& work);
void matmul_work(const Operator& op, OpWork& work);
void attention_work(const Operator& op, OpWork& work);
void layernorm_work(const Operator& op, OpWork& work);
void rmsnorm_work(const Operator& op, OpWork& work);
void activation_work(const Operator& op, OpWork& work);
void rotary_work(const Operator& op, OpWork& work);
void pointwise_work(const Operator& op, OpWork& work);
void embedding_work(const Operator& op, OpWork& work);
void relative_bias_work(const Operator& op, OpWork& work);
void softmax_work(const Operator& op, OpWork& work);
void cross_entropy_work(const Operator& op, OpWork& work);
void router_work(const Operator& op, OpWork& work);
void moe_move_work(const Operator& op, OpWork& work);
void convolution_work(const Operator& op, OpWork& work);
void reduction_work(const Operator& op, OpWork& work);
void cache_write_work(const Operator& op, OpWork& work);
void optimizer_work(const Operator& op, OpWork& work);
void collective_work(const Operator& op, OpWork& work);
void free_work(const Operator& op, OpWork& work);

}  // namespace rooftile
