// The vendor's libraries, opened at run time: a program built with their headers starts without them and says what is missing. They are looked for in the folders of
// ROOFTILE_LIBRARY_PATH (separated by ':'), then where the system's loader looks. Which file was taken, and its version, stands with every row that is measured.
#pragma once

#include <string>

#include "kernels/device.h"

#if __has_include(<cublasLt.h>)
#include <cublasLt.h>
#define ROOFTILE_HAS_CUBLASLT 1
#endif
#if __has_include(<cudnn.h>)
#include <cudnn.h>
#define ROOFTILE_HAS_CUDNN 1
#endif
#if __has_include(<nccl.h>)
#include <nccl.h>
#define ROOFTILE_HAS_NCCL 1
#endif

namespace rooftile::kernels {

struct CublasLt {
  std::string version, path, missing = "built without cublasLt.h";
#ifdef ROOFTILE_HAS_CUBLASLT
  cublasLtHandle_t handle = nullptr;
#define ROOFTILE_CUBLASLT(X)                                                                                                                                    \
  X(cublasLtCreate)                                                                                                                                             \
  X(cublasLtDestroy)                                                                                                                                            \
  X(cublasLtGetVersion)                                                                                                                                         \
  X(cublasLtMatmul)                                                                                                                                             \
  X(cublasLtMatmulAlgoGetHeuristic) X(cublasLtMatmulAlgoConfigGetAttribute) X(cublasLtMatmulDescInit_internal) X(cublasLtMatmulDescSetAttribute)                \
      X(cublasLtMatrixLayoutInit_internal) X(cublasLtMatrixLayoutSetAttribute) X(cublasLtMatmulPreferenceInit_internal) X(cublasLtMatmulPreferenceSetAttribute) \
          X(cublasLtGetStatusString)
#define X(name) decltype(&::name) name = nullptr;
  ROOFTILE_CUBLASLT(X)
#undef X
#endif
};

struct Cudnn {
  std::string version, path, missing = "built without cudnn.h";
#ifdef ROOFTILE_HAS_CUDNN
  cudnnHandle_t handle = nullptr;
#define ROOFTILE_CUDNN(X)                                                                                                                                                    \
  X(cudnnCreate)                                                                                                                                                             \
  X(cudnnDestroy)                                                                                                                                                            \
  X(cudnnSetStream)                                                                                                                                                          \
  X(cudnnGetVersion)                                                                                                                                                         \
  X(cudnnGetErrorString) X(cudnnGetLastErrorString) X(cudnnBackendCreateDescriptor) X(cudnnBackendDestroyDescriptor) X(cudnnBackendSetAttribute) X(cudnnBackendGetAttribute) \
      X(cudnnBackendFinalize) X(cudnnBackendExecute)
#define X(name) decltype(&::name) name = nullptr;
  ROOFTILE_CUDNN(X)
#undef X
#endif
};

struct Nccl {
  std::string version, path, missing = "built without nccl.h";
#ifdef ROOFTILE_HAS_NCCL
#define ROOFTILE_NCCL(X) \
  X(ncclGetVersion)      \
  X(ncclGetUniqueId)     \
  X(ncclCommInitRank)    \
  X(ncclCommDestroy) X(ncclGetErrorString) X(ncclAllReduce) X(ncclAllGather) X(ncclReduceScatter) X(ncclBroadcast) X(ncclSend) X(ncclRecv) X(ncclGroupStart) X(ncclGroupEnd)
#define X(name) decltype(&::name) name = nullptr;
  ROOFTILE_NCCL(X)
#undef X
#endif
};

struct Libraries {
  CublasLt cublaslt;
  Cudnn cudnn;
  Nccl nccl;
  ~Libraries();
};

// Opens what is there. Never fails: what is missing says why in its `missing`, which is empty for what works. Without a GPU (`create_handles` false) only the functions are found.
std::unique_ptr<Libraries> open_libraries(bool create_handles = true);

// The first of `names` that can be opened, as a dlopen handle; null when none.
void* open_library(std::initializer_list<const char*> names, std::string& path, std::string& error);

}  // namespace rooftile::kernels
