#include "estimator/timing/torch_kernels.h"

#include <algorithm>
#include <cmath>

#include "estimator/timing/combine.h"

namespace rooftile {
namespace {

constexpr double kWarpRow = 1024;          // longest row that PyTorch's softmax keeps in one warp
constexpr double kBlockRow = 8192;         // longest row of its softmax that a block keeps in registers
constexpr double kTypicalBlockRow = 4096;  // whose rate is the walk's; registers of longer rows leave fewer blocks to an SM
constexpr double kBlockRowPower = 0.4;
// A column sum (reduce_kernel<128, 4>): a block of 4 x 32 threads takes 128 columns; from 256 values a thread on several blocks share them, each thread keeping 16 at the least, as
// long as the GPU has room for more; the last block of a column then steps through the sums of the others, 4 at a time (Reduce.cuh, setReduceConfig).
constexpr double kReduceRows = 4, kReduceColumns = 128, kSplitValues = 256, kLeastValues = 16, kReduceBlocksPerSm = 16;
constexpr double kSortedTokens = 3072;   // gradients of an embedding from more tokens are sorted first (embedding_dense_backward_cuda)
constexpr double kReduceBlock = 512;     // elements that a block of a reduction takes at once (128 threads, 4 each): shorter rows share one
constexpr double kNormThreads = 128;     // of the block that takes a row of a norm
constexpr double kMostScale = 1.1;       // by which pointwise kernels of another device may reach more of its bandwidth
constexpr double kFewRows = 16;          // index_select and index_add walk so many rows one after the other in each thread (indexSelectSmallIndex)
constexpr double kIndexedRow = 2048;     // elements of a row where only their sum is known
constexpr double kCopyEngine = 1 << 30;  // bytes from which the driver copies with its copy engine and not with a kernel
constexpr double kBlockSort = 4096;      // keys that one block sorts alone; more take a radix sort of the whole GPU
constexpr double kWarp = 32;
constexpr double kChunk = 65536;  // elements of a chunk of a multi-tensor kernel
constexpr double kChunksPerLaunch = 320;
constexpr double kChunksPerSm = 2;  // that run at once

bool few_rows(const PointwiseShape& s) { return static_cast<double>(s.numel) <= kFewRows * kIndexedRow; }
bool by_copy_engine(double numel, DType dtype) { return numel * bytes_of(dtype) >= kCopyEngine; }

std::string_view pointwise_walk(const PointwiseShape& s, DType dtype) {
  switch (s.kind) {
    case PointwiseKind::cast:
      return bytes_of(s.to) > bytes_of(dtype) ? "cast_up" : "cast_down";
    case PointwiseKind::memset:
    case PointwiseKind::fill:
      return "fill";
    case PointwiseKind::bias:
    case PointwiseKind::row_scale:
      return "broadcast";
    case PointwiseKind::permute:
    case PointwiseKind::strided:
      return "strided";
    case PointwiseKind::slice:
    case PointwiseKind::slice_half:
    case PointwiseKind::neg_half:
      return "slice";
    case PointwiseKind::concat_rows:
    case PointwiseKind::concat_seq:
      return "concat_rows";
    case PointwiseKind::index_rows:
    case PointwiseKind::gather:
      return s.kind == PointwiseKind::gather && few_rows(s) ? "few_rows" : "index_rows";
    case PointwiseKind::scatter_add:
      return few_rows(s) ? "few_rows" : "scatter_add";
    case PointwiseKind::sigmoid:
    case PointwiseKind::silu:
    case PointwiseKind::silu_backward:
    case PointwiseKind::cos:
      return "sigmoid";
    case PointwiseKind::gelu:
    case PointwiseKind::gelu_backward:
    case PointwiseKind::gelu_tanh:
    case PointwiseKind::gelu_tanh_backward:
    case PointwiseKind::expand:
    case PointwiseKind::mixed_mul:
    case PointwiseKind::compare:
    case PointwiseKind::where:
    case PointwiseKind::masked_fill:
    case PointwiseKind::masked:
    case PointwiseKind::order_mix:
    case PointwiseKind::transpose:
    case PointwiseKind::concat:
    case PointwiseKind::div:
      return name_of(s.kind);
    case PointwiseKind::copy:
      return by_copy_engine(static_cast<double>(s.numel), dtype) ? "copy_engine" : "vector";
    case PointwiseKind::add:
    case PointwiseKind::sub:
    case PointwiseKind::mul:
    case PointwiseKind::scale:
    case PointwiseKind::unary:
    case PointwiseKind::square:
    case PointwiseKind::cube:
    case PointwiseKind::tanh:
    case PointwiseKind::tanh_backward:
    case PointwiseKind::relu:
    case PointwiseKind::relu_backward:
    case PointwiseKind::exp:
    case PointwiseKind::rsqrt:
    case PointwiseKind::neg:
    case PointwiseKind::strided_add:
      return "vector";
    case PointwiseKind::fused:
    case PointwiseKind::fused_rows:
      return "fused";
    default:  // kernels that eager PyTorch does not have
      return {};
  }
}

std::string_view by_length(double cols, std::string_view warp, std::string_view block, std::string_view wide) { return cols <= kWarpRow ? warp : cols <= kBlockRow ? block : wide; }

}  // namespace

std::string_view torch_walk(const KernelCall& call) {
  const bool backward = call.pass == Pass::bwd;
  switch (call.kernel) {
    case KernelClass::pointwise:
      return pointwise_walk(call.pointwise(), call.dtype);
    case KernelClass::softmax: {
      const double cols = static_cast<double>(call.row().cols);
      return backward ? by_length(cols, "softmax.bwd.warp", "softmax.bwd.block", "softmax.bwd.wide") : by_length(cols, "softmax.warp", "softmax.block", "softmax.wide");
    }
    case KernelClass::softmax_fp32: {
      const double cols = static_cast<double>(call.row().cols);
      return backward ? by_length(cols, "softmax.bwd.warp", "softmax.bwd.block", "softmax.bwd.wide")
                      : by_length(cols, "softmax_fp32.warp", "softmax_fp32.block", "softmax_fp32.wide");
    }
    case KernelClass::layernorm:
      return backward ? "layernorm_input" : "layernorm";
    case KernelClass::layernorm_input:
      return "layernorm_input";
    case KernelClass::rmsnorm:
      return backward ? "rmsnorm.bwd" : "rmsnorm";
    case KernelClass::log_softmax:
      return backward ? "log_softmax.bwd" : "log_softmax";
    case KernelClass::nll:
      return backward ? "nll.bwd" : "nll";
    case KernelClass::column_sum:
      return "column_sum";
    case KernelClass::row_sum:
    case KernelClass::argmax:
      return "row_sum";
    case KernelClass::topk:
      return "topk";
    case KernelClass::sort:
      return "sort";
    case KernelClass::row_mean:
      return "row_mean";
    case KernelClass::embedding:
      if (!backward) return static_cast<double>(call.embedding().tokens) <= kFewRows ? "few_rows" : "embedding";
      return static_cast<double>(call.embedding().tokens) <= kSortedTokens ? "embedding.bwd.small" : "embedding.bwd";
    case KernelClass::optimizer:
      return call.optimizer().kind == OptimizerKind::adamw && !call.optimizer().main_weights ? "optimizer" : "";
    default:
      return {};
  }
}

std::vector<std::string_view> torch_walks(const KernelCall& call) {
  const std::string_view own = torch_walk(call);
  if (own.empty()) return {};
  if (call.pass == Pass::bwd) {
    switch (call.kernel) {
      case KernelClass::layernorm:
        return {own, "layernorm.gamma"};
      case KernelClass::rmsnorm:
        return {own, "rmsnorm.gamma"};
      case KernelClass::nll:
      case KernelClass::embedding:
        return {own, "fill"};
      default:
        break;
    }
  }
  if (own == "masked_fill") return {own, by_copy_engine(static_cast<double>(call.pointwise().numel), call.dtype) ? "copy_engine" : "vector"};
  return {own};
}

int torch_launches(const KernelCall& call) {
  const bool backward = call.pass == Pass::bwd;
  switch (call.kernel) {
    case KernelClass::layernorm:
    case KernelClass::rmsnorm:
    case KernelClass::nll:
      return backward ? 2 : 1;
    case KernelClass::embedding:
      return !backward ? 1 : static_cast<double>(call.embedding().tokens) <= kSortedTokens ? 2 : 29;
    case KernelClass::topk:
      return 2;
    case KernelClass::pointwise:
      return call.pointwise().kind == PointwiseKind::masked_fill ? 2 : 1;
    case KernelClass::sort:
      return static_cast<double>(call.row().cols) <= kBlockSort ? 1 : 3 + static_cast<int>(bytes_of(call.dtype));
    case KernelClass::optimizer:
      return static_cast<int>(std::min(1e6, std::ceil(static_cast<double>(call.optimizer().numel) / (kChunk * kChunksPerLaunch))));
    default:
      return 1;
  }
}

TorchKernels::TorchKernels(const Machine& machine, const Constants& constants)
    : sms_(std::max(1, static_cast<int>(machine.device.sms))),
      clock_hz_(machine.device.boost_clock_hz > 0  ? machine.device.boost_clock_hz
                : machine.device.peak_clock_hz > 0 ? machine.device.peak_clock_hz
                                                   : 1e9),
      bandwidth_(machine.device.memory_bandwidth),
      l2_bytes_(machine.device.l2_bytes),
      l1_bytes_(machine.device.shared_memory_per_sm),
      blocks_per_sm_(machine.device.max_threads_per_sm / kNormThreads),
      launch_s_(constants.stream_launch_s),
      stream_efficiency_(constants.stream_efficiency > 0 ? constants.stream_efficiency : 1) {
  constexpr std::string_view kPrefix = "torch.";
  // Lowest layer first, so that a later one overrides.
  for (const CalibrationLayer& layer : machine.calibration.layers) {
    for (const Fact& fact : layer.facts) {
      const std::string_view key = fact.key;
      if (key.substr(0, kPrefix.size()) != kPrefix) continue;
      if (key == "torch.pointwise_reference") {
        const double reach = constants.efficiency[static_cast<std::size_t>(KernelClass::pointwise)] / fact.value;
        efficiency_scale_ = layer.rows_of == machine.device.id ? 1 : std::min(kMostScale, reach);
        continue;
      }
      const std::size_t dot = key.rfind('.');
      for (const TorchField& field : kTorchFields) {
        if (dot > kPrefix.size() && key.substr(dot + 1) == field.name) set(key.substr(kPrefix.size(), dot - kPrefix.size()), field, fact.value);
      }
    }
  }
}

void TorchKernels::set(std::string_view walk, const TorchField& field, double value) {
  auto found = walks_.find(walk);
  if (found == walks_.end()) found = walks_.try_emplace(std::string(walk)).first;
  found->second.known = true;
  found->second.*field.member = value;
}

const TorchWalk& TorchKernels::walk(std::string_view name) const {
  static const TorchWalk kUnknown;
  const auto found = walks_.find(name);
  return found == walks_.end() ? kUnknown : found->second;
}

bool TorchKernels::covers(const KernelCall& call) const {
  if (call.impl != Impl::torch) return false;
  const std::string_view own = torch_walk(call);
  if (own.empty() || !walk(own).known) return false;
  const std::vector<std::string_view> walks = torch_walks(call);
  return std::all_of(walks.begin(), walks.end(), [&](std::string_view name) { return walk(name).known; });
}

// Stepping through elements and moving bytes overlap in part: a norm of exponent 2 joins them. Either hides what one thread waits for but for a little.
double TorchKernels::flat(const TorchWalk& w, double elements, double bytes, bool half) const {
  const double step_s = w.elements > 0 ? elements * (half ? w.half_factor : 1) / (w.elements * sms_ * clock_hz_) : 0;
  return w.fixed_s + p_norm(p_norm(step_s, dram_seconds(w, bytes), 2), w.latency_s + (half ? w.half_s : 0), 3);
}

// Share of a second reading of the rows in work that no cache holds. 0 while they fit its share of the cache, 1 from twice that on.
double TorchKernels::missed(const TorchWalk& w, double rows, double row_bytes) const {
  const auto over = [](double held, double cache) { return cache > 0 ? std::clamp(held / cache - 1, 0.0, 1.0) : 0; };
  const bool near = w.l1_share > 0 && l1_bytes_ > 0 && blocks_per_sm_ > 0;
  const double in_flight = near ? blocks_per_sm_ : w.in_flight, beyond_l2 = over(std::min(rows, sms_ * in_flight) * row_bytes, w.l2_share * l2_bytes_);
  return near ? std::min(beyond_l2, over(std::min(in_flight, rows / sms_) * row_bytes, w.l1_share * l1_bytes_)) : beyond_l2;
}

// A block (or warp) for each row. Passes over the input repeat from DRAM as far as the rows in work outgrow L2.
double TorchKernels::rows(const TorchWalk& w, double rows, double cols, double element_bytes, double passes) const {
  const double at_once = std::min(rows, sms_ * w.in_flight), busy = rows > sms_ * w.in_flight ? rows + w.tail * at_once : rows;
  const double step_s = busy * (w.row_cycles + cols * element_bytes * w.load_cycles + (w.elements > 0 ? cols / w.elements : 0)) / (sms_ * clock_hz_);
  const double again = w.again > 0 ? w.again * missed(w, rows, cols * element_bytes) : 0;
  const double dram_s = dram_seconds(w, (passes + again) * busy * cols * element_bytes);
  const double alone_s = cols * (w.column_cycles + element_bytes * w.byte_cycles) / clock_hz_;
  return w.fixed_s + p_norm(p_norm(step_s, dram_s, 2), alone_s, 2);
}

// Gradients of norm weights: a block takes some columns and walks down all rows; few columns leave most SMs idle. What the kernel before read and L2 still holds comes sooner.
double TorchKernels::column_blocks(const TorchWalk& w, double rows, double cols, double bytes) const {
  const double waves = w.block_columns > 0 ? std::max(1.0, cols / (w.block_columns * sms_)) : 1;
  const double missed = l2_bytes_ > 0 ? std::clamp(bytes / (w.l2_share * l2_bytes_) - 1, 0.0, 1.0) : 1;
  return w.fixed_s + p_norm(rows * w.serial_cycles * (1 + w.again * missed) / clock_hz_ * waves, dram_seconds(w, bytes), 2);
}

double TorchKernels::column_sum_seconds(double rows, double cols, double element_bytes) const {
  const TorchWalk& w = walk("column_sum");
  double values = rows / kReduceRows, blocks = 1;
  if (values >= kSplitValues) {
    const double across = std::ceil(cols / kReduceColumns), room = std::ceil(sms_ * kReduceBlocksPerSm / across);
    blocks = std::max(std::min(room, std::ceil(values / kLeastValues)), std::ceil(values / kSplitValues));
    values /= blocks;
  }
  const double combine_s = blocks > 1 ? w.split_s + blocks / kReduceRows * w.stage_s : 0;
  return w.fixed_s + combine_s + p_norm(values * w.serial_cycles / clock_hz_, dram_seconds(w, rows * cols * element_bytes), 1.5);
}

double TorchKernels::row_seconds(const KernelCall& call) const {
  const double r = static_cast<double>(call.row().rows), c = static_cast<double>(call.row().cols), z = bytes_of(call.dtype);
  const bool backward = call.pass == Pass::bwd;
  const TorchWalk& w = walk(torch_walk(call));
  switch (call.kernel) {
    case KernelClass::topk:  // a radix select with a block for each row, threads as columns, then a sort of what it found
      return w.fixed_s + r * std::ceil(c / kWarp) * w.row_cycles / (sms_ * clock_hz_);
    case KernelClass::sort: {  // a pass for each byte of the keys; below a million keys its tiles run side by side
      const double passes = std::max(1.0, z);
      return (c > kBlockSort ? w.fixed_s : 0) + r * passes * w.stage_s;
    }
    case KernelClass::argmax:
    case KernelClass::row_sum:
    case KernelClass::row_mean: {
      TorchWalk shared = w;
      shared.row_cycles *= std::min(1.0, c / kReduceBlock);
      return rows(shared, r, c, z, 1);
    }
    case KernelClass::column_sum:
      return column_sum_seconds(r, c, z);
    case KernelClass::nll:
      if (!backward) return w.fixed_s + r * w.serial_cycles / clock_hz_;
      return launch_s_ + w.fixed_s + r * w.serial_cycles / clock_hz_ + flat(walk("fill"), r * c, r * c * z, false);
    case KernelClass::log_softmax:
      return rows(w, r, c, z, backward ? 4 : 2);  // backward reads the gradient twice: once for the sum
    case KernelClass::softmax:
    case KernelClass::softmax_fp32: {
      const double passes = call.kernel == KernelClass::softmax_fp32 && !backward ? 3 : backward && call.kernel == KernelClass::softmax_fp32 ? 5 : backward ? 3 : 2;
      if (backward || c <= kWarpRow || c > kBlockRow) return rows(w, r, c, z, passes);
      TorchWalk block = w;
      block.elements *= std::pow(kTypicalBlockRow / c, kBlockRowPower);
      return rows(block, r, c, z, passes);
    }
    case KernelClass::layernorm:
      if (!backward) return rows(w, r, c, z, 2);
      return rows(w, r, c, z, 3) + launch_s_ + column_blocks(walk("layernorm.gamma"), r, c, 2 * r * c * z);
    case KernelClass::layernorm_input:
      return rows(w, r, c, z, 3);
    case KernelClass::rmsnorm:
      if (!backward) return rows(w, r, c, z, 2);
      return rows(w, r, c, z, 3) + launch_s_ + column_blocks(walk("rmsnorm.gamma"), r, c, 2 * r * c * z);
    default:
      return 0;
  }
}

// Each thread takes its columns of one row after the other, and waits for each.
double TorchKernels::few_rows_seconds(double rows) const {
  const TorchWalk& w = walk("few_rows");
  return w.fixed_s + rows * w.stage_s;
}

// Out of place: a copy, then the mask is read and values change in place.
double TorchKernels::masked_fill_seconds(const KernelCall& call) const {
  const double n = static_cast<double>(call.pointwise().numel), z = bytes_of(call.dtype);
  const bool half = bits_of(call.dtype) <= 16;
  const TorchWalk& copy = walk(by_copy_engine(n, call.dtype) ? "copy_engine" : "vector");
  return flat(copy, n, 2 * n * z, half) + launch_s_ + flat(walk("masked_fill"), n, n * (2 * z + 1), half);
}

// Backward: the table's gradient is set to zero; few tokens are added by one kernel, more are sorted, counted and added in two steps.
double TorchKernels::embedding_seconds(const KernelCall& call) const {
  const EmbeddingShape& s = call.embedding();
  const double t = static_cast<double>(s.tokens), h = static_cast<double>(s.hidden), z = bytes_of(call.dtype);
  const TorchWalk& w = walk(torch_walk(call));
  if (call.pass == Pass::fwd) return t <= kFewRows ? few_rows_seconds(t) : rows(w, t, h, z, 2);
  const TorchWalk& fill = walk("fill");
  const double table = static_cast<double>(s.vocab) * h;
  const double zero_s = flat(fill, table, table * z, false);
  const double add_s = w.elements > 0 ? t * h / (w.elements * sms_ * clock_hz_) : 0;
  const double dram_s = t > kSortedTokens ? dram_seconds(w, 3 * t * h * z) : 0;
  return zero_s + w.fixed_s + t * w.serial_cycles / clock_hz_ + add_s + dram_s;
}

// A launch takes 320 chunks; those that the SMs do not hold at once wait for a second wave, and no wave is shorter than one chunk takes alone.
double TorchKernels::optimizer_seconds(const KernelCall& call) const {
  const TorchWalk& w = walk("optimizer");
  const KernelWork work = work_of(call);
  const double n = static_cast<double>(call.optimizer().numel), bytes_each = to_double(work.bytes()) / n;
  const auto wave_s = [&](double elements) {
    return elements <= 0 ? 0 : p_norm(w.serial_cycles * kChunk * std::min(1.0, elements / kChunk) / clock_hz_, dram_seconds(w, elements * bytes_each), 2);
  };
  const double at_once = kChunksPerSm * sms_ * kChunk;
  const auto launch_s = [&](double elements) {
    const double full = std::floor(elements / at_once);
    return launch_s_ + full * wave_s(at_once) + wave_s(elements - full * at_once);
  };
  const double most = kChunk * kChunksPerLaunch, launches = std::floor(n / most), rest = n - launches * most;
  return w.fixed_s + launches * launch_s(most) + (rest > 0 ? launch_s(rest) : 0) - launch_s_;
}

double TorchKernels::seconds(const KernelCall& call) const {
  switch (call.kernel) {
    case KernelClass::pointwise: {
      const PointwiseShape& s = call.pointwise();
      const KernelWork work = work_of(call);
      const std::string_view name = torch_walk(call);
      if (name == "few_rows") return few_rows_seconds(std::max(1.0, static_cast<double>(s.numel) / kIndexedRow));
      if (s.kind == PointwiseKind::masked_fill) return masked_fill_seconds(call);
      return flat(walk(name), static_cast<double>(s.numel), to_double(work.bytes()), bits_of(call.dtype) <= 16);
    }
    case KernelClass::embedding:
      return embedding_seconds(call);
    case KernelClass::optimizer:
      return optimizer_seconds(call);
    default:
      return row_seconds(call);
  }
}

KernelTime TorchKernels::time(const KernelCall& call) const {
  const KernelWork work = work_of(call);
  KernelTime time;
  const double dram_s = to_double(work.bytes()) / bandwidth_;
  LossAccount account(time, dram_s);
  const double body_s = std::max(seconds(call), dram_s);
  account.step(Loss::memory, body_s);
  account.add(Loss::launch, launch_s_);
  time.time_s = body_s + launch_s_;
  time.dram_s = dram_s;
  time.latency_s = body_s - dram_s;
  time.launch_s = launch_s_ * torch_launches(call);
  time.attainable_s = std::min(time.time_s, dram_s / stream_efficiency_ + launch_s_);
  time.bound = launch_s_ > body_s ? Bound::launch : body_s > 2 * dram_s ? Bound::latency : Bound::dram;
  time.flops_executed = work.flops;
  time.bytes_moved = work.bytes();
  time.family = "pytorch";
  return time;
}

}  // namespace rooftile
