// What a PyTorch profiler trace (Kineto's Chrome format) says about the GPU: every kernel with the operator that launched it. Read as a stream: memory follows the number of GPU
// kernels, not the size of the file. Knows nothing of what a trace is used for.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "estimator/core/result.h"

namespace rooftile {

// Sizes and strides in elements, outermost first. A scalar tensor has none of either.
struct TraceTensor {
  std::vector<std::int64_t> dims, strides;
};

// One argument of an operator. `type` as PyTorch writes it ("c10::BFloat16", "float", "long int", "Scalar", "TensorList", ""); `value` of scalars and lists ("0.125", "[0]").
struct TraceArgument {
  std::string type, value;
  bool list = false;                 // a list of tensors
  std::vector<TraceTensor> tensors;  // one, or those of the list
};

// An operator call's name and arguments; calls that agree in all of them share one.
struct TraceOperator {
  std::string name;  // "aten::mm"
  std::vector<TraceArgument> arguments;
};

enum class TraceActivity : std::uint8_t { kernel, memset, memcpy };

// Something that ran on a GPU.
struct TraceKernel {
  std::uint32_t name = 0;  // in Trace::names
  std::int32_t op = -1;    // in Trace::operators; -1: the trace does not say what launched it
  std::uint64_t call = 0;  // the operator's call: kernels of one call share it; 0: unknown
  std::uint64_t correlation = 0;
  double start_s = 0;  // after the first GPU activity that the file lists; may be negative
  double duration_s = 0;
  std::int64_t stream = 0;
  std::int32_t device = 0;
  TraceActivity activity = TraceActivity::kernel;
  std::array<std::int32_t, 3> grid = {0, 0, 0}, block = {0, 0, 0};
};

struct TraceDevice {
  std::int64_t id = 0;
  std::string name;            // "NVIDIA H200"
  int sms = 0;                 // 0: the trace does not say
  int compute_capability = 0;  // 90 for 9.0
  double memory_bytes = 0;
};

// A step that the profiled script marked ("ProfilerStep#5"), on the clock of the kernels.
struct TraceStep {
  std::string name;
  double start_s = 0, duration_s = 0;
};

struct Trace {
  std::string file;
  std::vector<TraceDevice> devices;
  std::vector<std::string> names;
  std::vector<TraceOperator> operators;
  std::vector<TraceKernel> kernels;  // in the order of their start
  std::vector<TraceStep> steps;
  std::size_t events = 0;            // of all kinds
  std::size_t without_operator = 0;  // kernels whose operator the trace does not name
};

// What is read at most. Beyond it a file is refused: no input exhausts memory or time.
struct TraceLimits {
  std::size_t kernels = 8'000'000;
  std::uint64_t bytes = std::uint64_t{8} << 30;   // of JSON, unpacked
  std::size_t text_bytes = std::size_t{1} << 29;  // of different kernel names, of different arguments
  std::size_t token_bytes = std::size_t{16} << 20;
  std::size_t depth = 64;
  std::size_t integers = 1 << 16;  // sizes and strides of one operator's arguments
};

// Reads FILE.json or FILE.json.gz (told apart by content), two or three times over: kernels first, then the operators that launched them. Errors (invalid): no such file, broken
// gzip or JSON with the byte where it breaks, not a trace, no GPU kernel in it, beyond a limit.
Result<Trace> read_trace(const std::filesystem::path& file, const TraceLimits& limits = {});

// The same from memory; `name` stands in messages.
Result<Trace> read_trace_bytes(std::string_view bytes, const std::string& name, const TraceLimits& limits = {});

// A plain name for a kernel: template arguments, parameters and "void" removed. "void at::native::vectorized_elementwise_kernel<4, ...>(int, ...)" gives
// "at::native::vectorized_elementwise_kernel".
std::string short_kernel_name(std::string_view name);

}  // namespace rooftile
