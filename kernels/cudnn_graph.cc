#include "kernels/cudnn_graph.h"

#ifdef ROOFTILE_HAS_CUDNN

#include <cstring>

namespace rooftile::kernels {

namespace {
CudnnGraph::Sizes dense(const CudnnGraph::Sizes& dims) {
  CudnnGraph::Sizes strides(dims.size(), 1);
  for (std::size_t i = dims.size(); i-- > 1;) strides[i - 1] = strides[i] * dims[i];
  return strides;
}
}  // namespace

CudnnGraph::~CudnnGraph() {
  for (std::size_t i = owned_.size(); i-- > 0;) api_.cudnnBackendDestroyDescriptor(owned_[i]);
}

cudnnBackendDescriptor_t CudnnGraph::make(cudnnBackendDescriptorType_t type) {
  cudnnBackendDescriptor_t descriptor = nullptr;
  const cudnnStatus_t status = api_.cudnnBackendCreateDescriptor(type, &descriptor);
  if (status != CUDNN_STATUS_SUCCESS) {
    if (failed_.empty()) failed_ = std::string("cuDNN: cannot make a descriptor: ") + api_.cudnnGetErrorString(status);
    return nullptr;
  }
  owned_.push_back(descriptor);
  return descriptor;
}

void CudnnGraph::set(cudnnBackendDescriptor_t to, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count, const void* data) {
  if (!failed_.empty()) return;
  const cudnnStatus_t status = api_.cudnnBackendSetAttribute(to, name, type, count, data);
  if (status != CUDNN_STATUS_SUCCESS) failed_ = "cuDNN: attribute " + std::to_string(static_cast<int>(name)) + ": " + api_.cudnnGetErrorString(status);
}

void CudnnGraph::finish(cudnnBackendDescriptor_t descriptor, const char* what) {
  if (!failed_.empty()) return;
  const cudnnStatus_t status = api_.cudnnBackendFinalize(descriptor);
  if (status == CUDNN_STATUS_SUCCESS) return;
  char text[512] = {};
  api_.cudnnGetLastErrorString(text, sizeof text);
  failed_ = std::string("cuDNN: ") + what + ": " + api_.cudnnGetErrorString(status) + (text[0] ? std::string(": ") + text : "");
  for (char& c : failed_)
    if (c == '\n') c = ' ';
}

CudnnGraph::Tensor CudnnGraph::tensor(Sizes dims, Sizes strides, cudnnDataType_t type, bool is_virtual, bool by_value) {
  Tensor t;
  t.uid = next_uid_++;
  t.dims = std::move(dims);
  t.strides = strides.empty() ? dense(t.dims) : std::move(strides);
  t.type = type;
  t.descriptor = make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  const std::int64_t alignment = 16, rank = static_cast<std::int64_t>(t.dims.size());
  set(t.descriptor, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &t.uid);
  set(t.descriptor, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
  set(t.descriptor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
  set(t.descriptor, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, rank, t.dims.data());
  set(t.descriptor, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, rank, t.strides.data());
  if (is_virtual) set(t.descriptor, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
  if (by_value) set(t.descriptor, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value);
  finish(t.descriptor, "tensor");
  return t;
}

CudnnGraph::Tensor CudnnGraph::memory(Sizes dims, Sizes strides, cudnnDataType_t type) { return tensor(std::move(dims), std::move(strides), type, false, false); }
CudnnGraph::Tensor CudnnGraph::inner(const Sizes& dims, cudnnDataType_t type, Sizes strides) { return tensor(dims, std::move(strides), type, true, false); }

CudnnGraph::Tensor CudnnGraph::number(float value) {
  Tensor t = tensor({1, 1, 1, 1}, {}, CUDNN_DATA_FLOAT, false, true);
  std::memcpy(&numbers_[t.uid], &value, sizeof value);
  return t;
}
CudnnGraph::Tensor CudnnGraph::number(std::int32_t value) {
  Tensor t = tensor({1, 1, 1, 1}, {}, CUDNN_DATA_INT32, false, true);
  std::memcpy(&numbers_[t.uid], &value, sizeof value);
  return t;
}

void CudnnGraph::pointwise(cudnnPointwiseMode_t mode, const Tensor& x, const Tensor* b, const Tensor* t, const Tensor& y, cudnnDataType_t compute, int axis) {
  const cudnnBackendDescriptor_t kind = make(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  set(kind, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
  set(kind, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute);
  const std::int64_t wide_axis = axis;
  if (axis >= 0) set(kind, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &wide_axis);
  finish(kind, "pointwise kind");
  const cudnnBackendDescriptor_t operation = make(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  set(operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &kind);
  set(operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &x.descriptor);
  if (b) set(operation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &b->descriptor);
  if (t) set(operation, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &t->descriptor);
  set(operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &y.descriptor);
  finish(operation, "pointwise operation");
  operations_.push_back(operation);
}

void CudnnGraph::product(const Tensor& a, const Tensor& b, const Tensor& c) {
  const cudnnBackendDescriptor_t kind = make(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  set(kind, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
  finish(kind, "product kind");
  const cudnnBackendDescriptor_t operation = make(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  set(operation, CUDNN_ATTR_OPERATION_MATMUL_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &kind);
  set(operation, CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &a.descriptor);
  set(operation, CUDNN_ATTR_OPERATION_MATMUL_BDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &b.descriptor);
  set(operation, CUDNN_ATTR_OPERATION_MATMUL_CDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &c.descriptor);
  finish(operation, "product operation");
  operations_.push_back(operation);
}

void CudnnGraph::reduce(cudnnReduceTensorOp_t op, const Tensor& x, const Tensor& y) {
  const cudnnBackendDescriptor_t kind = make(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  set(kind, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
  set(kind, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &op);
  finish(kind, "reduction kind");
  const cudnnBackendDescriptor_t operation = make(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  set(operation, CUDNN_ATTR_OPERATION_REDUCTION_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &kind);
  set(operation, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &x.descriptor);
  set(operation, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &y.descriptor);
  finish(operation, "reduction operation");
  operations_.push_back(operation);
}

void CudnnGraph::reshape(const Tensor& x, const Tensor& y) {
  const cudnnBackendDescriptor_t operation = make(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  set(operation, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &x.descriptor);
  set(operation, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &y.descriptor);
  finish(operation, "reshape operation");
  operations_.push_back(operation);
}

Reason CudnnGraph::plan(cudnnBackendDescriptor_t device) {
  const cudnnBackendDescriptor_t graph = make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  set(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<std::int64_t>(operations_.size()), operations_.data());
  if (!device) set(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &api_.handle);
  finish(graph, "graph");
  const cudnnBackendDescriptor_t heuristic = make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  set(heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph);
  const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
  set(heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  if (device) set(heuristic, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &device);
  finish(heuristic, "no engine for this graph");
  if (!failed_.empty()) return failed_;

  std::int64_t count = 0;
  api_.cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr);
  std::vector<cudnnBackendDescriptor_t> configurations;
  for (std::int64_t i = 0; i < count; ++i) configurations.push_back(make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
  std::int64_t got = 0;
  api_.cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &got, configurations.data());
  Reason last = "cuDNN has no engine for this attention";
  for (std::int64_t i = 0; i < got; ++i) {
    failed_.clear();
    const cudnnBackendDescriptor_t candidate = make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    set(candidate, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &configurations[static_cast<std::size_t>(i)]);
    if (device)
      set(candidate, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &device);
    else
      set(candidate, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &api_.handle);
    finish(candidate, "plan");
    if (!failed_.empty()) {
      last = failed_;
      continue;
    }
    plan_ = candidate;
    std::int64_t bytes = 0, written = 0, id = -1;
    api_.cudnnBackendGetAttribute(plan_, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &written, &bytes);
    workspace_bytes_ = static_cast<std::size_t>(bytes);
    if (cudnnBackendDescriptor_t engine = make(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
        engine && api_.cudnnBackendGetAttribute(configurations[static_cast<std::size_t>(i)], CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &written, &engine) ==
                      CUDNN_STATUS_SUCCESS)
      api_.cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &written, &id);
    engine_ = "engine=" + std::to_string(id) + " rank=" + std::to_string(i) + " workspace=" + std::to_string(bytes);
    return {};
  }
  return failed_ = last;
}

Reason CudnnGraph::bind(const std::vector<std::pair<std::int64_t, void*>>& addresses, void* workspace, cudnnBackendDescriptor_t& pack) {
  pack = make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  std::vector<std::int64_t> uids;
  std::vector<void*> pointers;
  for (const auto& [uid, pointer] : addresses) uids.push_back(uid), pointers.push_back(pointer);
  for (auto& [uid, bits] : numbers_) uids.push_back(uid), pointers.push_back(&bits);
  set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, static_cast<std::int64_t>(pointers.size()), pointers.data());
  set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, static_cast<std::int64_t>(uids.size()), uids.data());
  set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
  finish(pack, "binding of operands");
  return failed_;
}

Reason CudnnGraph::execute(cudnnBackendDescriptor_t pack) {
  const cudnnStatus_t status = api_.cudnnBackendExecute(api_.handle, plan_, pack);
  return status == CUDNN_STATUS_SUCCESS ? Reason{} : std::string("cuDNN: ") + api_.cudnnGetErrorString(status);
}

}  // namespace rooftile::kernels

#endif
