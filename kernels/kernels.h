// What a transformer step runs on a GPU, behind plain values: describe a problem, get back how long one call takes, or why it cannot run. No CUDA type appears here, so a
// program without CUDA can include this header; the kernels know shapes and number formats and nothing of any prediction.
//
// Matrices are row-major. Protocol of every time: one call in a stream kept busy by a CUDA graph, on random normal data, with operands that are not in the L2 cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace rooftile::kernels {

// tf32 is stored as fp32 and multiplied on tensor cores.
enum class Type : std::uint8_t { bf16, fp16, tf32, fp32, fp8_e4m3 };
std::size_t size_of(Type type);
std::string_view name_of(Type type);

// C[m,n] = A[m,k] B[k,n], `batch` times. A transposed operand is stored with its dimensions exchanged: a_transposed stores [k,m].
enum class Epilogue : std::uint8_t { none, bias, gelu };  // bias: + a row of n; gelu: tanh-gelu of (product + bias)
struct Gemm {
  std::int64_t m = 0, n = 0, k = 0, batch = 1;
  bool a_transposed = false, b_transposed = true;
  Type type = Type::bf16, out = Type::bf16;
  bool accumulate = false;  // C += A B
  Epilogue epilogue = Epilogue::none;
};

// Q [batch, heads, seq_q, head_dim], K and V with kv_heads and seq_kv; stored [batch, seq, heads, head_dim], as a projection writes them.
enum class AttentionEngine : std::uint8_t { cudnn, standard };  // fused by cuDNN; or product, mask, softmax, product with the score matrix in memory
struct Attention {
  std::int64_t batch = 0, heads = 0, kv_heads = 0, seq_q = 0, seq_kv = 0, head_dim = 0, v_head_dim = 0;
  bool causal = false;      // the last query sees the last key
  std::int64_t window = 0;  // 0: none; else a query sees this many keys at most, itself included
  bool backward = false;    // gradients of Q, K and V from the gradient of O
  Type type = Type::bf16;
  AttentionEngine engine = AttentionEngine::cudnn;
};

// Kernels over the rows of [rows, cols]. column_sum gives the sums of the columns (a bias gradient), row_sum those of the rows.
enum class RowOp : std::uint8_t { softmax, layernorm, rmsnorm, column_sum, row_sum };
struct Rows {
  RowOp op = RowOp::softmax;
  std::int64_t rows = 0, cols = 0;
  bool backward = false;
  Type type = Type::bf16;
};

// Kernels that work element by element; `numel` counts the elements of one output. Names as in `pointwise_names`; what has no kernel here is refused with a reason.
struct Pointwise {
  std::string op;  // "add", "gelu_backward", ...
  std::int64_t numel = 0;
  Type type = Type::bf16, to = Type::bf16;  // `to`: what a cast writes
};
std::vector<std::string> pointwise_names();

struct Embedding {
  std::int64_t tokens = 0, vocab = 0, hidden = 0;
  bool backward = false;  // scatter-add into an fp32 gradient of the table
  Type type = Type::bf16;
};

struct CrossEntropy {
  std::int64_t tokens = 0, vocab = 0;
  bool backward = false;  // gradient of the logits from the saved log-sum-exp
  Type type = Type::bf16;
};

// AdamW over tensors of at most 16 Mi elements that together have `numel`, in one launch.
struct AdamW {
  std::int64_t numel = 0;
  Type type = Type::bf16, state = Type::fp32, gradient = Type::fp32;
  bool main_weights = false;  // fp32 weights are updated and a copy in `type` is written
};

enum class CollectiveOp : std::uint8_t { all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, send_recv };
struct Collective {
  CollectiveOp op = CollectiveOp::all_reduce;
  std::int64_t bytes = 0;  // as nccl-tests counts them: the larger of what a rank sends and receives
  std::int64_t ranks = 0;
  Type type = Type::bf16;
};

using Problem = std::variant<Gemm, Attention, Rows, Pointwise, Embedding, CrossEntropy, AdamW, Collective>;

struct TimingOptions {
  double time_s = 0.012;         // GPU time spent on one problem at most (three replays are always made)
  double spread_target = 0.005;  // stop when the spread of the median, relative to it, falls below this
  bool sustained = false;        // keep the GPU loaded for `sustain_s` first, so that the power limiter has settled
  double sustain_s = 0.8;
  bool flush = true;    // false: operands of small problems may stay in L2 between replays
  bool check = true;    // compare with the double-precision reference first; a wrong kernel is not timed
  int max_calls = 256;  // in one graph
};

struct Outcome {
  std::string reason;                    // why there is no time; empty when there is one
  bool wrong = false;                    // the reason is a wrong result
  bool device_lost = false;              // after this error nothing runs any more in this process
  double time_s = 0;                     // median over replays of one call
  double spread_s = 0;                   // half the distance between the quartiles of the replays
  int replays = 0, calls = 0, sets = 0;  // replays timed, calls in one replay, operand sets rotated through
  double clock_hz = 0;                   // mean SM clock while timing, from the SMs' own counters; 0: unknown
  double power_w = 0;                    // 0: unknown or the window was too short
  double error = 0;                      // relative error against the reference, ||x - r|| / ||r||
  bool checked = false;
  std::string kernel;     // names of the kernels of one call, joined by '+'
  std::string grid;       // CTAs of each, joined by '+'
  std::string algorithm;  // what the library reports of its choice: tile, stages, cluster, split-K
  std::string library;    // whose kernel, with version
  std::string method;
};

// Kernels one after another, the whole `repeat` times: a layer of a step.
struct Block {
  std::vector<Problem> calls;
  std::int64_t repeat = 1;
};

// The GPU as CUDA describes it.
struct Machine {
  std::string name, driver, runtime, pci_bus;
  int compute_capability = 0;  // 90 for 9.0
  int sms = 0;
  double clock_hz = 0, memory_clock_hz = 0, l2_bytes = 0, memory_bytes = 0, memory_bus_bits = 0, power_limit_w = 0;
  double shared_memory_per_sm = 0, shared_memory_per_block = 0, registers_per_sm = 0, threads_per_sm = 0;
  std::string cublaslt, cudnn, nccl;  // version, or why it is missing
};

// One GPU opened for measuring. Not thread-safe. Problems are independent: each gets fresh operands.
class Bench {
 public:
  virtual ~Bench() = default;
  virtual const Machine& machine() const = 0;
  virtual Outcome measure(const Problem& problem, const TimingOptions& options) = 0;
  // Runs the blocks in their order as one CUDA graph: the time of a whole step as it is executed, gaps and warm operands included. Problems that cannot run are left out; their
  // reasons stand in `left_out`, once each. Every distinct problem has one set of operands, so what a layer reads it may have read in the layer before, as weights never would:
  // the time is a lower bound for models whose weights exceed the L2 cache by little.
  virtual Outcome measure_step(const std::vector<Block>& blocks, const TimingOptions& options, std::vector<std::string>& left_out) = 0;
  // Ranks this process works with in collectives: 1 when it was not launched as one of several.
  virtual int ranks() const = 0;
  virtual int rank() const = 0;
};

// The processes that measure together, one for each GPU. `exchange` gives every rank the texts of all, by rank; the result is the reason why it failed, empty when it did not. Each
// measurement of a collective makes the same exchanges on every rank, whatever happens on one of them.
struct Together {
  int rank = 0, ranks = 1, local_rank = 0;
  std::function<std::string(const std::string& mine, std::vector<std::string>& all)> exchange;
};

// Opens CUDA device `device`, or the local rank's one when `device` is negative. Null, with the reason, when there is none.
std::unique_ptr<Bench> open_bench(int device, Together together, std::string& reason);

}  // namespace rooftile::kernels
