#include "kernels/pointwise.h"
#include "kernels/vector.cuh"

namespace rooftile::kernels {

namespace {

__device__ __forceinline__ float logistic(float x) { return __fdividef(1.0f, 1.0f + __expf(-x)); }
__device__ __forceinline__ float fast_tanh(float x) { return 1.0f - __fdividef(2.0f, 1.0f + __expf(2.0f * x)); }
// tanh form of gelu and its derivative
constexpr float kRootTwoOverPi = 0.7978845608f, kCubic = 0.044715f;
__device__ __forceinline__ float gelu_of(float x) { return 0.5f * x * (1.0f + fast_tanh(kRootTwoOverPi * (x + kCubic * x * x * x))); }
__device__ __forceinline__ float gelu_slope(float x) {
  const float t = fast_tanh(kRootTwoOverPi * (x + kCubic * x * x * x));
  return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * kRootTwoOverPi * (1.0f + 3.0f * kCubic * x * x);
}
__device__ __forceinline__ float silu_slope(float x) {
  const float s = logistic(x);
  return s * (1.0f + x * (1.0f - s));
}

#define BODY(name)     \
  struct name##_body { \
    __device__ __forceinline__ static void run([[maybe_unused]] const float* x, float* y)
// clang-format off
BODY(copy) { y[0] = x[0]; } };
BODY(fill) { y[0] = 0.5f; } };
BODY(add) { y[0] = x[0] + x[1]; } };
BODY(sub) { y[0] = x[0] - x[1]; } };
BODY(mul) { y[0] = x[0] * x[1]; } };
BODY(div) { y[0] = __fdividef(x[0], x[1]); } };
BODY(scale) { y[0] = 0.125f * x[0]; } };
BODY(relu) { y[0] = fmaxf(x[0], 0.0f); } };
BODY(relu_backward) { y[0] = x[0] > 0.0f ? x[1] : 0.0f; } };
BODY(gelu) { y[0] = gelu_of(x[0]); } };
BODY(gelu_backward) { y[0] = x[1] * gelu_slope(x[0]); } };
BODY(silu) { y[0] = x[0] * logistic(x[0]); } };
BODY(silu_backward) { y[0] = x[1] * silu_slope(x[0]); } };
BODY(silu_mul) { y[0] = x[0] * logistic(x[0]) * x[1]; } };
BODY(silu_mul_backward) { y[0] = x[2] * x[1] * silu_slope(x[0]); y[1] = x[2] * x[0] * logistic(x[0]); } };
BODY(gelu_mul) { y[0] = gelu_of(x[0]) * x[1]; } };
BODY(gelu_mul_backward) { y[0] = x[2] * x[1] * gelu_slope(x[0]); y[1] = x[2] * gelu_of(x[0]); } };
BODY(tanh) { y[0] = fast_tanh(x[0]); } };
BODY(tanh_backward) { y[0] = x[1] * (1.0f - x[0] * x[0]); } };
BODY(sigmoid) { y[0] = logistic(x[0]); } };
BODY(exp) { y[0] = __expf(x[0]); } };
BODY(sqrt) { y[0] = sqrtf(fabsf(x[0])); } };
BODY(unary) { y[0] = fabsf(x[0]); } };
BODY(special) { y[0] = __expf(-x[0] * x[0]); } };
// clang-format on
#undef BODY

constexpr int kThreads = 256, kUnroll = 2;

template <typename T, typename Body, int IN, int OUT>
__global__ void __launch_bounds__(kThreads) pointwise_kernel(const T* a, const T* b, const T* c, T* y, T* z, std::int64_t numel) {
  constexpr int VEC = 16 / static_cast<int>(sizeof(T));
  const T* from[3] = {a, b, c};
  T* to[2] = {y, z};
  const std::int64_t first = (static_cast<std::int64_t>(blockIdx.x) * kThreads * kUnroll + threadIdx.x) * VEC;
  float x[kUnroll][3][VEC];
#pragma unroll
  for (int j = 0; j < kUnroll; ++j) {
    const std::int64_t at = first + static_cast<std::int64_t>(j) * kThreads * VEC;
    if (at + VEC <= numel) {
#pragma unroll
      for (int i = 0; i < IN; ++i) load<T, VEC>(from[i] + at, x[j][i]);
    }
  }
#pragma unroll
  for (int j = 0; j < kUnroll; ++j) {
    const std::int64_t at = first + static_cast<std::int64_t>(j) * kThreads * VEC;
    if (at + VEC <= numel) {
      float r[2][VEC];
#pragma unroll
      for (int v = 0; v < VEC; ++v) {
        float in[3] = {}, out[2];
#pragma unroll
        for (int i = 0; i < IN; ++i) in[i] = x[j][i][v];
        Body::run(in, out);
#pragma unroll
        for (int o = 0; o < OUT; ++o) r[o][v] = out[o];
      }
#pragma unroll
      for (int o = 0; o < OUT; ++o) store<T, VEC>(to[o] + at, r[o]);
    } else if (at < numel) {  // the last, incomplete vector
      for (std::int64_t e = at; e < numel; ++e) {
        float in[3] = {}, out[2];
#pragma unroll
        for (int i = 0; i < IN; ++i) in[i] = to_float(from[i][e]);
        Body::run(in, out);
#pragma unroll
        for (int o = 0; o < OUT; ++o) to[o][e] = from_float<T>(out[o]);
      }
    }
  }
}

template <typename From, typename To>
__global__ void __launch_bounds__(kThreads) cast_kernel(const From* x, To* y, std::int64_t numel) {
  constexpr int kWide = sizeof(From) > sizeof(To) ? sizeof(From) : sizeof(To), VEC = kWide >= 4 ? 4 : 8;
  const std::int64_t first = (static_cast<std::int64_t>(blockIdx.x) * kThreads * 4 + threadIdx.x) * VEC;
  float v[4][VEC];
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const std::int64_t at = first + static_cast<std::int64_t>(j) * kThreads * VEC;
    if (at + VEC <= numel) load<From, VEC>(x + at, v[j]);
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const std::int64_t at = first + static_cast<std::int64_t>(j) * kThreads * VEC;
    if (at + VEC <= numel) {
      store<To, VEC>(y + at, v[j]);
    } else {
      for (std::int64_t e = at; e < numel; ++e) y[e] = from_float<To>(to_float(x[e]));
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads) bias_kernel(const T* x, const T* row, T* y, std::int64_t numel) {
  constexpr int VEC = 16 / static_cast<int>(sizeof(T));
  const std::int64_t first = (static_cast<std::int64_t>(blockIdx.x) * kThreads * kUnroll + threadIdx.x) * VEC;
#pragma unroll
  for (int j = 0; j < kUnroll; ++j) {
    const std::int64_t at = first + static_cast<std::int64_t>(j) * kThreads * VEC;
    if (at + VEC <= numel) {
      float v[VEC], b[VEC];
      load<T, VEC>(x + at, v);
      load_shared_row<T, VEC>(row + at % kBiasCols, b);
#pragma unroll
      for (int i = 0; i < VEC; ++i) v[i] += b[i];
      store<T, VEC>(y + at, v);
    } else {
      for (std::int64_t e = at; e < numel; ++e) y[e] = from_float<T>(to_float(x[e]) + to_float(row[e % kBiasCols]));
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads) rotary_kernel(const T* x, const T* cosines, const T* sines, T* y, std::int64_t numel) {
  constexpr int VEC = 16 / static_cast<int>(sizeof(T));
  constexpr std::int64_t kHalf = kRotaryDim / 2;
  const std::int64_t item = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * VEC;  // counts elements of lower halves
  if (item * 2 >= numel) return;
  const std::int64_t head = item / kHalf, d = item % kHalf, position = head / kRotaryHeads % kRotaryPositions;
  const std::int64_t at = head * kRotaryDim + d;
  float low[VEC], high[VEC], c[VEC], s[VEC];
  load<T, VEC>(x + at, low);
  load<T, VEC>(x + at + kHalf, high);
  load_shared_row<T, VEC>(cosines + position * kHalf + d, c);
  load_shared_row<T, VEC>(sines + position * kHalf + d, s);
#pragma unroll
  for (int i = 0; i < VEC; ++i) {
    const float l = low[i], h = high[i];
    low[i] = l * c[i] - h * s[i];
    high[i] = h * c[i] + l * s[i];
  }
  store<T, VEC>(y + at, low);
  store<T, VEC>(y + at + kHalf, high);
}

unsigned blocks_for(std::int64_t numel, std::int64_t per_block) { return static_cast<unsigned>((numel + per_block - 1) / per_block); }

template <typename T>
bool launch_typed(cudaStream_t stream, std::string_view op, const PointwiseOperands& o) {
  const unsigned grid = blocks_for(o.numel, static_cast<std::int64_t>(kThreads) * kUnroll * (16 / static_cast<std::int64_t>(sizeof(T))));
  const auto x = [&](int i) { return static_cast<const T*>(o.x[static_cast<std::size_t>(i)]); };
#define X(name, in, out)                                                                                                                                   \
  if (op == #name) {                                                                                                                                       \
    pointwise_kernel<T, name##_body, in, out><<<grid, kThreads, 0, stream>>>(x(0), x(1), x(2), static_cast<T*>(o.y[0]), static_cast<T*>(o.y[1]), o.numel); \
    return true;                                                                                                                                           \
  }
  ROOFTILE_POINTWISE(X)
#undef X
  return false;
}

}  // namespace

bool launch_pointwise(cudaStream_t stream, std::string_view op, Type type, const PointwiseOperands& operands) {
  switch (type) {
    case Type::bf16:
      return launch_typed<__nv_bfloat16>(stream, op, operands);
    case Type::fp16:
      return launch_typed<__half>(stream, op, operands);
    case Type::tf32:
    case Type::fp32:
      return launch_typed<float>(stream, op, operands);
    case Type::fp8_e4m3:
      return false;
  }
  return false;
}

bool launch_cast(cudaStream_t stream, Type from, Type to, const void* x, void* y, std::int64_t numel) {
  const auto run = [&]<typename From, typename To>(const From*, To*) {
    constexpr std::int64_t kVec = (sizeof(From) > sizeof(To) ? sizeof(From) : sizeof(To)) >= 4 ? 4 : 8;
    cast_kernel<From, To><<<blocks_for(numel, kThreads * 4 * kVec), kThreads, 0, stream>>>(static_cast<const From*>(x), static_cast<To*>(y), numel);
    return true;
  };
  constexpr const float* f32 = nullptr;
  constexpr const __nv_bfloat16* bf16 = nullptr;
  constexpr const __half* f16 = nullptr;
  constexpr const __nv_fp8_e4m3* f8 = nullptr;
  if (from == Type::tf32) from = Type::fp32;
  if (to == Type::tf32) to = Type::fp32;
  const auto target = [&](auto* source) {
    switch (to) {
      case Type::bf16:
        return run(source, const_cast<__nv_bfloat16*>(bf16));
      case Type::fp16:
        return run(source, const_cast<__half*>(f16));
      case Type::fp32:
        return run(source, const_cast<float*>(f32));
      case Type::fp8_e4m3:
        return run(source, const_cast<__nv_fp8_e4m3*>(f8));
      case Type::tf32:
        break;
    }
    return false;
  };
  switch (from) {
    case Type::bf16:
      return target(bf16);
    case Type::fp16:
      return target(f16);
    case Type::fp32:
      return target(f32);
    case Type::fp8_e4m3:
      return target(f8);
    case Type::tf32:
      break;
  }
  return false;
}

bool launch_bias(cudaStream_t stream, Type type, const void* x, const void* row, void* y, std::int64_t numel) {
  const auto run = [&]<typename T>(const T*) {
    bias_kernel<T><<<blocks_for(numel, static_cast<std::int64_t>(kThreads) * kUnroll * (16 / static_cast<std::int64_t>(sizeof(T)))), kThreads, 0, stream>>>(
        static_cast<const T*>(x), static_cast<const T*>(row), static_cast<T*>(y), numel);
    return true;
  };
  if (type == Type::bf16) return run(static_cast<const __nv_bfloat16*>(nullptr));
  if (type == Type::fp16) return run(static_cast<const __half*>(nullptr));
  if (type == Type::fp32 || type == Type::tf32) return run(static_cast<const float*>(nullptr));
  return false;
}

bool launch_rotary(cudaStream_t stream, Type type, const void* x, const void* cosines, const void* sines, void* y, std::int64_t numel) {
  const auto run = [&]<typename T>(const T*) {
    rotary_kernel<T><<<blocks_for(numel, static_cast<std::int64_t>(kThreads) * 2 * (16 / static_cast<std::int64_t>(sizeof(T)))), kThreads, 0, stream>>>(
        static_cast<const T*>(x), static_cast<const T*>(cosines), static_cast<const T*>(sines), static_cast<T*>(y), numel);
    return true;
  };
  if (type == Type::bf16) return run(static_cast<const __nv_bfloat16*>(nullptr));
  if (type == Type::fp16) return run(static_cast<const __half*>(nullptr));
  if (type == Type::fp32 || type == Type::tf32) return run(static_cast<const float*>(nullptr));
  return false;
}

}  // namespace rooftile::kernels
