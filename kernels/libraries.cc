#include "kernels/libraries.h"

#include <dlfcn.h>

#include <cstdlib>
#include <sstream>

namespace rooftile::kernels {

void* open_library(std::initializer_list<const char*> names, std::string& path, std::string& error) {
  std::vector<std::string> candidates;
  if (const char* folders = std::getenv("ROOFTILE_LIBRARY_PATH")) {
    std::stringstream stream(folders);
    for (std::string folder; std::getline(stream, folder, ':');)
      if (!folder.empty())
        for (const char* name : names) candidates.push_back(folder + "/" + name);
  }
  for (const char* name : names) candidates.emplace_back(name);
  for (const std::string& candidate : candidates) {
    if (void* handle = dlopen(candidate.c_str(), RTLD_NOW | RTLD_GLOBAL)) {
      path = candidate;
      return handle;
    }
    if (const char* text = dlerror()) error = text;
  }
  return nullptr;
}

namespace {

std::string dotted(long version, long major, long minor) {
  return std::to_string(version / major) + "." + std::to_string(version % major / minor) + "." + std::to_string(version % minor);
}

template <typename Function>
void find(void* library, const char* name, Function& function, std::string& missing) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (!function && missing.empty()) missing = std::string("the library lacks ") + name;
}

void open_cublaslt([[maybe_unused]] CublasLt& api, [[maybe_unused]] bool create) {
#ifdef ROOFTILE_HAS_CUBLASLT
  api.missing.clear();
  std::string error;
  void* library = open_library({"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"}, api.path, error);
  if (!library) {
    api.missing = "cuBLASLt not found: " + error;
    return;
  }
#define X(name) find(library, #name, api.name, api.missing);
  ROOFTILE_CUBLASLT(X)
#undef X
  if (!api.missing.empty()) return;
  api.version = dotted(static_cast<long>(api.cublasLtGetVersion()), 10000, 100);
  if (!create) return;
  if (const cublasStatus_t status = api.cublasLtCreate(&api.handle); status != CUBLAS_STATUS_SUCCESS)
    api.missing = std::string("cublasLtCreate: ") + api.cublasLtGetStatusString(status);
#endif
}

void open_cudnn([[maybe_unused]] Cudnn& api, [[maybe_unused]] bool create) {
#ifdef ROOFTILE_HAS_CUDNN
  api.missing.clear();
  std::string error;
  void* library = open_library({"libcudnn.so.9", "libcudnn.so"}, api.path, error);
  if (!library) {
    api.missing = "cuDNN not found: " + error;
    return;
  }
#define X(name) find(library, #name, api.name, api.missing);
  ROOFTILE_CUDNN(X)
#undef X
  if (!api.missing.empty()) return;
  api.version = dotted(static_cast<long>(api.cudnnGetVersion()), 10000, 100);
  if (!create) return;
  if (const cudnnStatus_t status = api.cudnnCreate(&api.handle); status != CUDNN_STATUS_SUCCESS) api.missing = std::string("cudnnCreate: ") + api.cudnnGetErrorString(status);
#endif
}

void open_nccl([[maybe_unused]] Nccl& api) {
#ifdef ROOFTILE_HAS_NCCL
  api.missing.clear();
  std::string error;
  void* library = open_library({"libnccl.so.2", "libnccl.so"}, api.path, error);
  if (!library) {
    api.missing = "NCCL not found: " + error;
    return;
  }
#define X(name) find(library, #name, api.name, api.missing);
  ROOFTILE_NCCL(X)
#undef X
  if (!api.missing.empty()) return;
  int version = 0;
  if (api.ncclGetVersion(&version) == ncclSuccess) api.version = dotted(version, 10000, 100);
#endif
}

}  // namespace

Libraries::~Libraries() {
#ifdef ROOFTILE_HAS_CUBLASLT
  if (cublaslt.handle) cublaslt.cublasLtDestroy(cublaslt.handle);
#endif
#ifdef ROOFTILE_HAS_CUDNN
  if (cudnn.handle) cudnn.cudnnDestroy(cudnn.handle);
#endif
}

std::unique_ptr<Libraries> open_libraries(bool create_handles) {
  auto libraries = std::make_unique<Libraries>();
  open_cublaslt(libraries->cublaslt, create_handles);
  open_cudnn(libraries->cudnn, create_handles);
  open_nccl(libraries->nccl);
  return libraries;
}

}  // namespace rooftile::kernels
