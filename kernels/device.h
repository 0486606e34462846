// Inside of kernels/: the stream, the operand arenas, what every kernel object can do. Needs CUDA headers; nothing outside kernels/ includes it.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/kernels.h"

namespace rooftile::kernels {

using Reason = std::string;  // empty: all is well

// The reason of a failed CUDA call, with the call's text: "cudaMalloc(...): out of memory".
Reason describe(cudaError_t error, const char* call);
#define ROOFTILE_CUDA(call)                                                         \
  do {                                                                              \
    if (const cudaError_t rooftile_error = (call); rooftile_error != cudaSuccess) { \
      (void)cudaGetLastError();                                                     \
      return ::rooftile::kernels::describe(rooftile_error, #call);                  \
    }                                                                               \
  } while (0)
#define ROOFTILE_TRY(call)                                                                                      \
  do {                                                                                                          \
    if (::rooftile::kernels::Reason rooftile_reason = (call); !rooftile_reason.empty()) return rooftile_reason; \
  } while (0)

constexpr std::size_t kAlignment = 512;  // of every operand; cuBLAS chooses by alignment, allocators of frameworks give 512 bytes
constexpr std::size_t align_up(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// A block of device memory that grows when asked and is kept between problems.
class Arena {
 public:
  ~Arena();
  Reason reserve(std::size_t bytes, bool* grown = nullptr);
  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

struct Libraries;  // cuBLASLt, cuDNN, NCCL as far as they were found (libraries.h)

struct Context {
  cudaStream_t stream = nullptr;
  Machine machine;
  std::unique_ptr<Libraries> libraries;
  Arena inputs;     // random normal data in `input_type`; never written by a kernel under test
  Arena outputs;    // results and operands that are updated in place
  Arena workspace;  // scratch of a library call
  Arena flush;      // written between replays to empty the L2 cache
  Arena scratch;    // of the reference checks
  std::optional<Type> input_type;
  std::uint64_t seed = 0x9e3779b97f4a7c15ull;

  Context();
  ~Context();
  // Makes `bytes` of inputs available, filled with N(0,1) in the type.
  Reason provide_inputs(std::size_t bytes, Type type);
};

// One problem made ready to run. Operand set s lies at s * input_bytes of the inputs and s * output_bytes of the outputs.
class Kernel {
 public:
  virtual ~Kernel() = default;
  std::size_t input_bytes = 0, output_bytes = 0;  // of one set, multiples of kAlignment
  std::size_t touched_bytes = 0;                  // read and written by one call: what has to exceed the L2 cache; 0: input_bytes + output_bytes
  Type input_type = Type::bf16;
  double tolerance = 1e-2;  // of the relative error against the reference
  int fixed_calls = 0;      // more than 0: every rank has to make exactly so many calls in a replay, and a fixed number of replays
  std::string algorithm, library;

  // Sets up what the operands need beyond random data, for `sets` sets. Called once, after the arenas are there.
  virtual Reason prepare(Context&, int /*sets*/) { return {}; }
  // Puts one call on the stream.
  virtual Reason launch(Context& context, int set) = 0;
  // Runs set 0 on poisoned outputs and compares with the reference: relative error, negative when it was not possible to check.
  virtual Reason check(Context& context, double& error) = 0;

  std::size_t input_base = 0, output_base = 0;  // where set 0 begins, when several kernels share the arenas

  std::byte* input(Context& context, int set, std::size_t offset = 0) const { return context.inputs.data() + input_base + static_cast<std::size_t>(set) * input_bytes + offset; }
  std::byte* output(Context& context, int set, std::size_t offset = 0) const {
    return context.outputs.data() + output_base + static_cast<std::size_t>(set) * output_bytes + offset;
  }
};

// One factory per kind of problem: a kernel, or null and the reason.
std::unique_ptr<Kernel> make_gemm(Context& context, const Gemm& problem, Reason& reason);
std::unique_ptr<Kernel> make_attention(Context& context, const Attention& problem, Reason& reason);
std::unique_ptr<Kernel> make_rows(Context& context, const Rows& problem, Reason& reason);
std::unique_ptr<Kernel> make_pointwise(Context& context, const Pointwise& problem, Reason& reason);
std::unique_ptr<Kernel> make_embedding(Context& context, const Embedding& problem, Reason& reason);
std::unique_ptr<Kernel> make_cross_entropy(Context& context, const CrossEntropy& problem, Reason& reason);
std::unique_ptr<Kernel> make_adamw(Context& context, const AdamW& problem, Reason& reason);

// Fills with N(0,1) (types of less than 32 bits rounded to nearest) or sets raw bytes. `count` elements.
Reason fill_normal(Context& context, void* data, std::size_t count, Type type, std::uint64_t seed, float scale = 1.0f);
Reason fill_constant(Context& context, float* data, std::size_t count, float value);
// Fills with whole numbers from [0, limit), uniformly.
Reason fill_indices(Context& context, std::int32_t* data, std::size_t count, std::int32_t limit, std::uint64_t seed);
// Sets every byte to 0xff, which is NaN in every type here.
Reason poison(Context& context, void* data, std::size_t bytes);

// Copies elements to the host as doubles: `count` elements from `data`, `stride` elements apart.
Reason fetch(Context& context, const void* data, Type type, std::size_t count, std::size_t stride, std::vector<double>& out);
// The same for a matrix: `rows` rows of `cols` neighbouring elements, `row_stride` elements apart; row-major in `out`.
Reason fetch_matrix(Context& context, const void* data, Type type, std::size_t rows, std::size_t cols, std::size_t row_stride, std::vector<double>& out);
// Number of NaN or infinite elements.
Reason count_nonfinite(Context& context, const void* data, Type type, std::size_t count, std::uint64_t& found);

// Accumulates ||x - r||^2 and ||r||^2 over what is compared.
struct ErrorSum {
  double difference = 0, reference = 0;
  void add(double value, double expected) {
    difference += (value - expected) * (value - expected);
    reference += expected * expected;
  }
  // Relative error; NaN when a value was NaN. A reference of zeros compares absolutely.
  double relative() const;
};

// Indices spread over [0, size): the first, the last and pseudo-random ones between, at most `count`, increasing and distinct.
std::vector<std::int64_t> sample(std::int64_t size, int count, std::uint64_t seed);

}  // namespace rooftile::kernels
