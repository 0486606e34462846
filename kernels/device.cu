#include "kernels/device.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <algorithm>
#include <cmath>

#include "kernels/libraries.h"
#include "kernels/vector.cuh"

namespace rooftile::kernels {

std::size_t size_of(Type type) {
  switch (type) {
    case Type::bf16:
    case Type::fp16:
      return 2;
    case Type::tf32:
    case Type::fp32:
      return 4;
    case Type::fp8_e4m3:
      return 1;
  }
  return 0;
}

std::string_view name_of(Type type) {
  switch (type) {
    case Type::bf16:
      return "bf16";
    case Type::fp16:
      return "fp16";
    case Type::tf32:
      return "tf32";
    case Type::fp32:
      return "fp32";
    case Type::fp8_e4m3:
      return "fp8_e4m3";
  }
  return "";
}

Reason describe(cudaError_t error, const char* call) { return std::string(call).substr(0, 60) + ": " + cudaGetErrorString(error); }

Arena::~Arena() {
  if (data_) (void)cudaFree(data_);
}

Reason Arena::reserve(std::size_t bytes, bool* grown) {
  if (grown) *grown = false;
  if (bytes <= size_) return {};
  if (data_) {
    ROOFTILE_CUDA(cudaDeviceSynchronize());
    ROOFTILE_CUDA(cudaFree(data_));
  }
  data_ = nullptr;
  size_ = 0;
  void* memory = nullptr;
  // A quarter more than asked for, so that slowly growing problems do not ask each time; exactly so much when memory is short.
  const std::size_t roomy = align_up(bytes + bytes / 4);
  if (cudaMalloc(&memory, roomy) == cudaSuccess) {
    size_ = roomy;
  } else {
    (void)cudaGetLastError();
    ROOFTILE_CUDA(cudaMalloc(&memory, bytes));
    size_ = bytes;
  }
  data_ = static_cast<std::byte*>(memory);
  if (grown) *grown = true;
  return {};
}

Context::Context() = default;
Context::~Context() {
  libraries.reset();
  if (stream) (void)cudaStreamDestroy(stream);
}

Reason Context::provide_inputs(std::size_t bytes, Type type) {
  bool grown = false;
  ROOFTILE_TRY(inputs.reserve(bytes, &grown));
  const Type stored = type == Type::tf32 ? Type::fp32 : type;
  if (!grown && input_type == stored) return {};
  ROOFTILE_TRY(fill_normal(*this, inputs.data(), inputs.size() / size_of(stored), stored, seed));
  input_type = stored;
  return {};
}

namespace {

// A counter-based generator (two rounds of a 64-bit finaliser): element i depends on i and the seed alone.
__device__ __forceinline__ std::uint64_t mix(std::uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ull;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

template <typename T>
__global__ void normal_kernel(T* data, std::size_t count, std::uint64_t seed, float scale) {
  const std::size_t step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t pair = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; 2 * pair < count; pair += step) {
    const std::uint64_t bits = mix(mix(pair + seed) + 0x9e3779b97f4a7c15ull);
    const float u = (static_cast<float>(static_cast<std::uint32_t>(bits)) + 1.0f) * 0x1p-32f;
    float sine, cosine;
    __sincosf(static_cast<float>(static_cast<std::uint32_t>(bits >> 32)) * (0x1p-31f * 3.14159265f), &sine, &cosine);
    const float radius = scale * sqrtf(fmaxf(-2.0f * __logf(u), 0.0f));  // the fast logarithm of a number just below 1 can come out above 0
    data[2 * pair] = from_float<T>(radius * cosine);
    if (2 * pair + 1 < count) data[2 * pair + 1] = from_float<T>(radius * sine);
  }
}

__global__ void constant_kernel(float* data, std::size_t count, float value) {
  const std::size_t step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) data[i] = value;
}

__global__ void index_kernel(std::int32_t* data, std::size_t count, std::uint32_t limit, std::uint64_t seed) {
  const std::size_t step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step)
    data[i] = static_cast<std::int32_t>((mix(mix(i + seed) + seed) >> 32) * limit >> 32);
}

template <typename T>
__global__ void fetch_kernel(const T* data, std::size_t count, std::size_t cols, std::size_t col_stride, std::size_t row_stride, double* out) {
  const std::size_t step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step)
    out[i] = static_cast<double>(to_float(data[i / cols * row_stride + i % cols * col_stride]));
}

template <typename T>
__global__ void nonfinite_kernel(const T* data, std::size_t count, unsigned long long* found) {
  const std::size_t step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  unsigned int mine = 0;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) mine += isfinite(to_float(data[i])) ? 0 : 1;
  for (int offset = 16; offset > 0; offset >>= 1) mine += __shfl_xor_sync(0xffffffffu, mine, offset);
  if ((threadIdx.x & 31) == 0 && mine) atomicAdd(found, mine);
}

int blocks_for(std::size_t count) { return static_cast<int>(std::clamp<std::size_t>((count + 255) / 256, 1, 132 * 32)); }

// Calls `body` with a null pointer of the element type that stores `type`.
template <typename Body>
void with_type(Type type, Body body) {
  switch (type) {
    case Type::bf16:
      return body(static_cast<__nv_bfloat16*>(nullptr));
    case Type::fp16:
      return body(static_cast<__half*>(nullptr));
    case Type::tf32:
    case Type::fp32:
      return body(static_cast<float*>(nullptr));
    case Type::fp8_e4m3:
      return body(static_cast<__nv_fp8_e4m3*>(nullptr));
  }
}

}  // namespace

Reason fill_normal(Context& context, void* data, std::size_t count, Type type, std::uint64_t seed, float scale) {
  if (count == 0) return {};
  with_type(type, [&]<typename T>(T*) { normal_kernel<T><<<blocks_for(count), 256, 0, context.stream>>>(static_cast<T*>(data), count, seed, scale); });
  ROOFTILE_CUDA(cudaGetLastError());
  return {};
}

Reason fill_constant(Context& context, float* data, std::size_t count, float value) {
  if (count == 0) return {};
  constant_kernel<<<blocks_for(count), 256, 0, context.stream>>>(data, count, value);
  ROOFTILE_CUDA(cudaGetLastError());
  return {};
}

Reason fill_indices(Context& context, std::int32_t* data, std::size_t count, std::int32_t limit, std::uint64_t seed) {
  if (count == 0) return {};
  index_kernel<<<blocks_for(count), 256, 0, context.stream>>>(data, count, static_cast<std::uint32_t>(limit), seed);
  ROOFTILE_CUDA(cudaGetLastError());
  return {};
}

Reason poison(Context& context, void* data, std::size_t bytes) {
  ROOFTILE_CUDA(cudaMemsetAsync(data, 0xff, bytes, context.stream));
  return {};
}

namespace {
Reason fetch_strided(Context& context, const void* data, Type type, std::size_t count, std::size_t cols, std::size_t col_stride, std::size_t row_stride, std::vector<double>& out) {
  out.resize(count);
  if (count == 0) return {};
  ROOFTILE_TRY(context.scratch.reserve(count * sizeof(double)));
  double* staged = reinterpret_cast<double*>(context.scratch.data());
  with_type(type,
            [&]<typename T>(T*) { fetch_kernel<T><<<blocks_for(count), 256, 0, context.stream>>>(static_cast<const T*>(data), count, cols, col_stride, row_stride, staged); });
  ROOFTILE_CUDA(cudaGetLastError());
  ROOFTILE_CUDA(cudaMemcpyAsync(out.data(), staged, count * sizeof(double), cudaMemcpyDeviceToHost, context.stream));
  ROOFTILE_CUDA(cudaStreamSynchronize(context.stream));
  return {};
}
}  // namespace

Reason fetch(Context& context, const void* data, Type type, std::size_t count, std::size_t stride, std::vector<double>& out) {
  return fetch_strided(context, data, type, count, count > 0 ? count : 1, stride, 0, out);
}

Reason fetch_matrix(Context& context, const void* data, Type type, std::size_t rows, std::size_t cols, std::size_t row_stride, std::vector<double>& out) {
  return fetch_strided(context, data, type, rows * cols, cols > 0 ? cols : 1, 1, row_stride, out);
}

Reason count_nonfinite(Context& context, const void* data, Type type, std::size_t count, std::uint64_t& found) {
  found = 0;
  if (count == 0) return {};
  ROOFTILE_TRY(context.scratch.reserve(sizeof(unsigned long long)));
  auto* counter = reinterpret_cast<unsigned long long*>(context.scratch.data());
  ROOFTILE_CUDA(cudaMemsetAsync(counter, 0, sizeof(*counter), context.stream));
  with_type(type, [&]<typename T>(T*) { nonfinite_kernel<T><<<blocks_for(count), 256, 0, context.stream>>>(static_cast<const T*>(data), count, counter); });
  ROOFTILE_CUDA(cudaGetLastError());
  unsigned long long host = 0;
  ROOFTILE_CUDA(cudaMemcpyAsync(&host, counter, sizeof(host), cudaMemcpyDeviceToHost, context.stream));
  ROOFTILE_CUDA(cudaStreamSynchronize(context.stream));
  found = host;
  return {};
}

double ErrorSum::relative() const {
  if (std::isnan(difference)) return difference;
  return reference > 0 ? std::sqrt(difference / reference) : std::sqrt(difference);
}

std::vector<std::int64_t> sample(std::int64_t size, int count, std::uint64_t seed) {
  std::vector<std::int64_t> picked;
  if (size <= count) {
    for (std::int64_t i = 0; i < size; ++i) picked.push_back(i);
    return picked;
  }
  picked = {0, size - 1};
  std::uint64_t state = seed * 2 + 1;
  while (static_cast<int>(picked.size()) < count) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    picked.push_back(static_cast<std::int64_t>((state >> 20) % static_cast<std::uint64_t>(size)));
  }
  std::sort(picked.begin(), picked.end());
  picked.erase(std::unique(picked.begin(), picked.end()), picked.end());
  return picked;
}

}  // namespace rooftile::kernels
