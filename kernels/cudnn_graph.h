// A graph of cuDNN's backend interface, built operation by operation, and the plan that the library's heuristic ranks first for it.
#pragma once

#include "kernels/libraries.h"

#ifdef ROOFTILE_HAS_CUDNN

#include <cstdint>
#include <unordered_map>

namespace rooftile::kernels {

class CudnnGraph {
 public:
  using Sizes = std::vector<std::int64_t>;  // four numbers
  struct Tensor {
    std::int64_t uid = 0;
    Sizes dims, strides;  // in elements
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    cudnnBackendDescriptor_t descriptor = nullptr;
  };

  explicit CudnnGraph(Cudnn& api) : api_(api) {}
  ~CudnnGraph();
  CudnnGraph(const CudnnGraph&) = delete;
  CudnnGraph& operator=(const CudnnGraph&) = delete;

  // A tensor in memory, a value inside the graph (dense, or with the strides given), or a number that is passed along.
  Tensor memory(Sizes dims, Sizes strides, cudnnDataType_t type);
  Tensor inner(const Sizes& dims, cudnnDataType_t type = CUDNN_DATA_FLOAT, Sizes strides = {});
  Tensor number(float value);
  Tensor number(std::int32_t value);

  // y = op(x, b, t); b and t may be absent. `compute` also tells of what type a comparison is.
  void pointwise(cudnnPointwiseMode_t mode, const Tensor& x, const Tensor* b, const Tensor* t, const Tensor& y, cudnnDataType_t compute = CUDNN_DATA_FLOAT, int axis = -1);
  void product(const Tensor& a, const Tensor& b, const Tensor& c);
  void reduce(cudnnReduceTensorOp_t op, const Tensor& x, const Tensor& y);
  void reshape(const Tensor& x, const Tensor& y);

  // Makes the plan. `device` is a finalised device-property descriptor for planning without a GPU, else null: then the library's handle is used.
  Reason plan(cudnnBackendDescriptor_t device = nullptr);
  std::size_t workspace_bytes() const { return workspace_bytes_; }
  std::string engine() const { return engine_; }

  // Binds tensors in memory to addresses; the numbers are added by itself. Made once for each operand set, then executed often.
  Reason bind(const std::vector<std::pair<std::int64_t, void*>>& addresses, void* workspace, cudnnBackendDescriptor_t& pack);
  Reason execute(cudnnBackendDescriptor_t pack);

 private:
  cudnnBackendDescriptor_t make(cudnnBackendDescriptorType_t type);
  void set(cudnnBackendDescriptor_t to, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count, const void* data);
  void finish(cudnnBackendDescriptor_t descriptor, const char* what);
  Tensor tensor(Sizes dims, Sizes strides, cudnnDataType_t type, bool is_virtual, bool by_value);

  Cudnn& api_;
  Reason failed_;  // the first failure; later steps do nothing
  std::vector<cudnnBackendDescriptor_t> owned_, operations_;
  std::unordered_map<std::int64_t, std::int64_t> numbers_;  // uid -> bits
  cudnnBackendDescriptor_t plan_ = nullptr;
  std::size_t workspace_bytes_ = 0;
  std::int64_t next_uid_ = 1;
  std::string engine_;
};

}  // namespace rooftile::kernels

#endif
