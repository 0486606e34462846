#include "estimator/timing/attention.h"

#include <algorithm>
#include <cmath>

#include "estimator/core/checked.h"
#include "estimator/timing/clock.h"
#include "estimator/timing/combine.h"

namespace rooftile {
namespace {

constexpr double kSectorBytes = 32;
constexpr std::int64_t kCudnnDecode = 16;         // rows of the tile of its decode kernels
constexpr double kWideHead = 128;                 // heads above it do not leave room for as many blocks in flight
constexpr std::int64_t kLargestHead = 256;        // of the fused kernels' forward with many queries
constexpr std::int64_t kLargestDecodeHead = 576;  // compressed keys of multi-head latent attention

struct Blocks {
  std::int64_t queries, keys;
};

// Query rows of a CTA and keys of a step. FlashAttention-2: arXiv 2307.08691 section 3.3 and its kernel traits; FlashAttention-3: arXiv 2407.08608 section 4; cuDNN's Blackwell
// kernel works on two tiles of 128 queries.
Blocks blocks_of(AttentionKernel kernel, std::int64_t head_dim) {
  if (kernel == AttentionKernel::flash2) return head_dim <= 64 ? Blocks{128, 128} : head_dim <= 128 ? Blocks{128, 64} : Blocks{64, 64};
  if (kernel == AttentionKernel::flash3) return head_dim <= 64 ? Blocks{192, 128} : head_dim <= 128 ? Blocks{128, 128} : Blocks{128, 80};
  return Blocks{128, 128};
}

// Head sizes are padded to a multiple of this: FlashAttention has kernels for every 32, cuDNN's for every 64.
std::int64_t head_step(AttentionKernel kernel) { return kernel == AttentionKernel::cudnn ? 64 : 32; }
double padded_head(std::int64_t dim, AttentionKernel kernel) { return static_cast<double>(ceil_div(dim, head_step(kernel))) * static_cast<double>(head_step(kernel)); }

std::string_view family_of(AttentionKernel kernel, bool decode, Pass pass) {
  switch (kernel) {
    case AttentionKernel::flash3:
      return pass == Pass::bwd ? "flash3_backward" : decode ? "flash3_decode" : "flash3";
    case AttentionKernel::cudnn:
      return pass == Pass::bwd ? "cudnn_flash_backward" : decode ? "cudnn_flash_decode" : "cudnn_flash";
    default:
      return pass == Pass::bwd ? "flash2_backward" : decode ? "flash2_decode" : "flash2";
  }
}

// Pairs that tiles of `rows` x `cols` compute for one head, the masked-out ones inside them included: the kept pairs and, along each masked edge, half of the tile's rows for each
// query, and half a block of keys more where blocks do not end where tiles do. 256 x 256 causal in tiles of 128 x 128: 3 of 4 tiles, 32,896 kept pairs + 16,256.
double computed_pairs(const AttentionShape& s, double rows, double cols, double queries) {
  const double keys = std::ceil(static_cast<double>(s.seq_kv) / cols) * cols;
  const double whole = std::ceil(queries / rows) * rows * keys;
  if (!s.causal) return s.window > 0 ? std::min(whole, std::ceil(queries / rows) * rows * (std::ceil(static_cast<double>(s.window) / cols) + 1) * cols) : whole;
  const double kept = to_double(s.kept_pairs()) / static_cast<double>(s.seq_q) * queries;
  const double edges = s.window > 0 && s.window < s.seq_kv ? 2 : 1;
  const bool ends_meet = std::fmod(static_cast<double>(s.seq_kv - s.seq_q), cols) == 0 && std::fmod(rows, cols) == 0;
  return std::min(whole, kept + std::ceil(queries / rows) * rows * edges * (rows - 1 + (ends_meet ? 0 : cols)) / 2);
}

}  // namespace

AttentionKernel attention_kernel_of(const AttentionShape& shape, DType dtype, const Device& device) {
  if (shape.kernel != AttentionKernel::fastest) return shape.kernel;
  const bool half = dtype == DType::bf16 || dtype == DType::fp16, fp8 = dtype == DType::fp8_e4m3 || dtype == DType::fp8_e5m2;
  const std::int64_t head = std::max(shape.head_dim, shape.v_head_dim);
  const bool decode = shape.seq_q * (shape.heads / std::max<std::int64_t>(1, shape.kv_heads)) <= 128;
  if (!(half || fp8) || head > (decode ? kLargestDecodeHead : kLargestHead)) return AttentionKernel::standard;
  switch (device.architecture) {
    case Architecture::hopper:
      return AttentionKernel::flash3;
    case Architecture::blackwell:
      return AttentionKernel::cudnn;
    case Architecture::ampere:
    case Architecture::ada:
      return fp8 ? AttentionKernel::standard : AttentionKernel::flash2;
    default:
      return AttentionKernel::standard;
  }
}

struct AttentionModel::Math {
  double peak_flops = 0, clock_hz = 0, flop_per_clock = 0;  // of one SM
  double softmax_cycles_per_score = 0;
  double backward_softmax_cycles_per_score = 0;
};

AttentionModel::Math AttentionModel::math_of(DType dtype) const {
  const MathRate& tensor = device_.rate(dtype);
  const MathRate& vector = device_.vector_fp32;
  const MathRate& rate = tensor.flop_per_clock_per_sm > 0 ? tensor : vector;
  Math math;
  math.peak_flops = rate.peak_flops;
  math.flop_per_clock = rate.flop_per_clock_per_sm;
  math.clock_hz = rate.peak_flops / (rate.flop_per_clock_per_sm * device_.sms);
  const double exponential = device_.special_per_clock_per_sm > 0 ? 1 / device_.special_per_clock_per_sm : 0;
  const double vector_ops = vector.flop_per_clock_per_sm > 0 ? constants_.attention_vector_ops * 2 / vector.flop_per_clock_per_sm : 0;
  math.softmax_cycles_per_score = exponential + vector_ops;
  // Backward: the exponential again, then P (dP - delta) and two conversions instead of a running maximum and sum.
  math.backward_softmax_cycles_per_score = exponential + vector_ops;
  return math;
}

KernelTime AttentionModel::time(const AttentionShape& shape, DType dtype, Pass pass, AttentionKernel kernel, ClockState clocks) const {
  return pass == Pass::fwd ? forward(shape, dtype, kernel, clocks) : backward(shape, dtype, kernel, clocks);
}

KernelTime AttentionModel::forward(const AttentionShape& s, DType dtype, AttentionKernel kernel, ClockState clocks) const {
  const Math math = math_of(dtype);
  const AttentionConstants& c = constants_.attention[static_cast<std::size_t>(kernel)];
  KernelCall call{.kernel = KernelClass::attention, .dtype = dtype, .pass = Pass::fwd, .impl = Impl::vendor, .shape = s};
  const KernelWork work = work_of(call);
  const double flops = to_double(work.flops), least_bytes = to_double(work.bytes());
  const double bytes = least_bytes - warm_bytes(constants_, device_.l2_bytes * constants_.l2_panel_share, to_double(work.bytes_read), least_bytes);
  const double sms = device_.sms;

  const Blocks blocks = blocks_of(kernel, std::max(s.head_dim, s.v_head_dim));
  const std::int64_t group = s.heads / s.kv_heads;
  // Few queries: the query heads that share a key head are rows of one tile, and the keys of a head may be split over CTAs (flash-decoding).
  // cuDNN has kernels of their own for that, which take only single queries.
  const bool decode = kernel == AttentionKernel::cudnn ? s.seq_q <= kCudnnDecode : s.seq_q * group <= blocks.queries;
  const double heads = static_cast<double>(s.batch) * static_cast<double>(decode ? s.kv_heads : s.heads);
  const double rows = static_cast<double>(decode ? s.seq_q * group : s.seq_q);
  // A tile is at least one MMA high (64 rows of a warp group; 16 for the older warp-level instruction).
  const double least_rows = kernel == AttentionKernel::flash2 ? 16 : 64;
  const double tile_rows = decode ? std::max(least_rows, std::ceil(rows / least_rows) * least_rows) : static_cast<double>(blocks.queries);
  const double tile_keys = static_cast<double>(blocks.keys);
  const double tiles_per_head = std::ceil(rows / tile_rows);
  const double pairs = decode ? tile_rows * std::ceil(computed_pairs(s, 1, tile_keys, 1) / tile_keys) * tile_keys : computed_pairs(s, tile_rows, tile_keys, rows);
  const double tiles = heads * tiles_per_head;

  const double padded_heads = padded_head(s.head_dim, kernel) + padded_head(s.v_head_dim, kernel);
  const double wide = std::max(0.0, static_cast<double>(std::max(s.head_dim, s.v_head_dim)) / kWideHead - 1);
  const double reached = c.fwd_efficiency * std::max(0.2, 1 - wide * c.fwd_wide_head);
  const double mma = 2 * padded_heads / (math.flop_per_clock * reached);  // cycles per score
  // A mask tensor's elements come one by one in the layout of the scores, between the first product and the softmax, and nothing hides them.
  const double step = p_norm(mma, math.softmax_cycles_per_score, c.overlap_p) + (s.mask ? constants_.attention_mask_cycles : 0);

  // Scores of the busiest SM. Without a mask all tiles are alike and go in whole waves; with one, long and short tiles balance but for the tail.
  const double mean_tile = pairs * heads / tiles;
  double longest = tile_rows *
                   std::min(std::ceil(static_cast<double>(s.seq_kv) / tile_keys), s.window > 0 ? std::ceil((static_cast<double>(s.window) + tile_rows) / tile_keys) + 1 : 1e30) *
                   tile_keys;
  longest = std::max(mean_tile, longest);
  double busiest = s.causal && tiles_per_head > 1 ? std::max(longest, tiles * mean_tile / sms + c.tile_tail * longest) : std::ceil(tiles / sms) * longest;
  if (tiles <= sms) busiest = longest;
  // One way of dividing the work: scores and CTAs of the busiest SM, SMs that have work, and the second kernel of a split.
  struct Division {
    double busiest, ctas, filled, combine_s;
  };
  const double p = constants_.combine_p, launch = constants_.launch_s + (decode ? 0 : c.prepare_s);
  const double store = tile_rows * static_cast<double>(s.v_head_dim) * std::max(2.0, bytes_of(dtype)) / kSectorBytes;
  const double efficiency = decode ? c.decode_efficiency * std::max(0.2, 1 - wide * c.decode_wide_head) : constants_.stream_efficiency;
  const auto core_of = [&](const Division& d, double clock_hz) { return (d.busiest * step + d.ctas * store) / clock_hz + d.ctas * c.tile_s; };
  // Each SM moves a bounded number of bytes per clock: few CTAs cannot fill the memory's bandwidth.
  const auto dram_of = [&](const Division& d) {
    const double most = constants_.sm_bytes_per_clock > 0 ? d.filled * constants_.sm_bytes_per_clock * math.clock_hz : device_.memory_bandwidth;
    return bytes / std::min(device_.memory_bandwidth * efficiency, most);
  };
  const auto time_of = [&](const Division& d, double clock_hz) { return launch + d.combine_s + p_norm(core_of(d, clock_hz), dram_of(d), p); };

  // The power limit lowers clocks in proportion to how busy the tensor cores are.
  const auto fraction_at = [&](double time_s) { return 1 - (1 - clock_fraction(constants_, clocks, time_s)) * mma * reached / step; };
  double fraction = fraction_at(0);
  Division division{busiest, std::ceil(tiles / sms), std::min(tiles, sms), 0};
  if (decode) {
    const double steps = std::max(1.0, longest / (tile_rows * tile_keys));
    const double splits = std::min(std::floor(2 * sms / tiles), steps);
    if (splits > 1) {
      const double ctas = std::ceil(tiles * splits / sms);
      const Division split{std::ceil(steps / splits) * ctas * tile_rows * tile_keys, ctas, std::min(sms, tiles * splits), c.combine_s};
      if (time_of(split, math.clock_hz * fraction) < time_of(division, math.clock_hz * fraction)) division = split;
    }
  }
  busiest = division.busiest;
  fraction = fraction_at(time_of(division, math.clock_hz));
  const double fixed = launch + constants_.attention_call_s + division.combine_s;
  const double core = core_of(division, math.clock_hz * fraction), dram = dram_of(division);

  KernelTime time;
  const double ideal_core = flops / math.peak_flops, ideal_dram = least_bytes / device_.memory_bandwidth;
  const double clocked = ideal_core / fraction;
  const double padded = std::max(clocked, 2 * pairs * heads * padded_heads / math.peak_flops / fraction);
  const double waved = padded * std::max(1.0, busiest * sms / (pairs * heads));
  const double once = bytes / (device_.memory_bandwidth * efficiency);
  const double full_core = std::max(core, waved);
  LossAccount account(time, std::max(ideal_core, ideal_dram));
  account.step(Loss::memory, p_norm(ideal_core, ideal_dram, p));
  account.step(Loss::clock, p_norm(clocked, ideal_dram, p));
  account.step(Loss::tile_padding, p_norm(padded, ideal_dram, p));
  account.step(Loss::wave_tail, p_norm(waved, ideal_dram, p));
  account.step(Loss::latency, p_norm(full_core, ideal_dram, p));
  account.step(Loss::memory, p_norm(full_core, dram, p));
  time.time_s = fixed + p_norm(full_core, dram, p);
  account.step(Loss::launch, time.time_s);

  time.compute_s = waved;
  time.dram_s = dram;
  time.latency_s = full_core - waved;
  time.launch_s = fixed;
  time.attainable_s = std::min(time.time_s, std::max(flops / math.peak_flops * step / mma / reached / fraction, once) + constants_.launch_s);
  time.bound = fixed > std::max(full_core, dram) ? Bound::launch : dram > full_core ? Bound::dram : time.latency_s > 2 * waved ? Bound::latency : Bound::compute;
  time.flops_executed = static_cast<Count>(2 * pairs * heads * padded_heads);
  time.bytes_moved = work.bytes();
  time.tile_m = static_cast<std::int32_t>(tile_rows);
  time.tile_n = static_cast<std::int32_t>(tile_keys);
  time.waves = tiles / sms;
  time.family = family_of(kernel, decode, Pass::fwd);
  return time;
}

KernelTime AttentionModel::backward(const AttentionShape& s, DType dtype, AttentionKernel kernel, ClockState clocks) const {
  const Math math = math_of(dtype);
  const AttentionConstants& c = constants_.attention[static_cast<std::size_t>(kernel)];
  KernelCall call{.kernel = KernelClass::attention, .dtype = dtype, .pass = Pass::bwd, .impl = Impl::vendor, .shape = s};
  const KernelWork work = work_of(call);
  const double flops = to_double(work.flops), sms = device_.sms;
  const double heads = static_cast<double>(s.batch) * static_cast<double>(s.heads);

  // A CTA keeps a tile of keys and walks over the queries.
  const double tile_keys = 128, tile_rows = std::max(s.head_dim, s.v_head_dim) > 128 ? 64 : 128;
  const double tiles = heads * std::ceil(static_cast<double>(s.seq_kv) / tile_keys);
  const double queries = static_cast<double>(s.seq_q);
  const double keys = std::ceil(static_cast<double>(s.seq_kv) / tile_keys) * tile_keys;
  const double whole = std::ceil(queries / tile_rows) * tile_rows * keys;
  double pairs = whole;
  if (s.causal) pairs = std::min(whole, to_double(s.kept_pairs()) + std::ceil(queries / tile_rows) * tile_rows * (tile_rows + tile_keys) / 2);
  const double d = padded_head(s.head_dim, kernel), dv = padded_head(s.v_head_dim, kernel);
  const double mma = 2 * (3 * d + 2 * dv) / (math.flop_per_clock * c.bwd_efficiency * (std::max(d, dv) > 128 ? c.bwd_wide_head : 1));
  const double step = p_norm(mma, math.backward_softmax_cycles_per_score, c.bwd_overlap_p) + (s.mask ? constants_.attention_bwd_mask_cycles : 0);
  const double mean_tile = pairs * heads / tiles;
  const double longest =
      std::max(mean_tile, std::min(tile_keys * std::ceil(queries / tile_rows) * tile_rows, s.window > 0 ? tile_keys * (static_cast<double>(s.window) + 2 * tile_rows) : 1e300));
  double busiest = s.causal ? std::max(longest, tiles * mean_tile / sms + c.tile_tail * longest) : std::ceil(tiles / sms) * longest;
  if (tiles <= sms) busiest = longest;

  // Beside the main kernel: row sums of o x do before it, and fp32 dq (added up atomically in L2) converted after it.
  const double q_elements = heads * queries * static_cast<double>(s.head_dim);
  const double o_elements = heads * queries * static_cast<double>(s.v_head_dim);
  const double element = std::max(2.0, bytes_of(dtype));
  // Query heads that share a key head leave dk and dv of their own behind, which two more kernels add up.
  const bool shared = s.kv_heads < s.heads;
  const double own_kv_bytes = shared ? heads * static_cast<double>(s.seq_kv) * static_cast<double>(s.head_dim + s.v_head_dim) * element : 0;
  const double side_bytes = o_elements * 2 * element + q_elements * (4 + 4 + 4) + own_kv_bytes;
  const double bytes = to_double(work.bytes()) + side_bytes;
  const double bandwidth = device_.memory_bandwidth * constants_.stream_efficiency;
  const double side = side_bytes / bandwidth;
  const double dram = to_double(work.bytes()) / bandwidth;
  const double fixed = (shared ? 5 : 3) * constants_.launch_s;
  const double p = constants_.combine_p;
  const auto core_at = [&](double clock_hz) { return busiest * step / clock_hz + std::ceil(tiles / sms) * c.bwd_tile_s; };
  const double burst_s = fixed + side + p_norm(core_at(math.clock_hz), dram, p);
  const double fraction = 1 - (1 - clock_fraction(constants_, clocks, burst_s)) * mma * c.bwd_efficiency / step;
  const double core = core_at(math.clock_hz * fraction);

  KernelTime time;
  const double least_bytes = to_double(work.bytes());
  const double ideal_core = flops / math.peak_flops, ideal_dram = least_bytes / device_.memory_bandwidth;
  const double clocked = ideal_core / fraction;
  const double padded = std::max(clocked, 2 * pairs * heads * (3 * d + 2 * dv) / math.peak_flops / fraction);
  const double waved = padded * std::max(1.0, busiest * sms / (pairs * heads));
  const double full_core = std::max(core, waved);
  LossAccount account(time, std::max(ideal_core, ideal_dram));
  account.step(Loss::memory, p_norm(ideal_core, ideal_dram, p));
  account.step(Loss::clock, p_norm(clocked, ideal_dram, p));
  account.step(Loss::tile_padding, p_norm(padded, ideal_dram, p));
  account.step(Loss::wave_tail, p_norm(waved, ideal_dram, p));
  account.step(Loss::latency, p_norm(full_core, ideal_dram, p));
  account.step(Loss::memory, p_norm(full_core, dram, p));
  account.add(Loss::memory, side);
  time.time_s = fixed + side + p_norm(full_core, dram, p);
  account.step(Loss::launch, time.time_s);

  time.compute_s = waved;
  time.dram_s = dram + side;
  time.latency_s = full_core - waved;
  time.launch_s = fixed;
  time.attainable_s = std::min(time.time_s, std::max(flops / math.peak_flops * step / mma / c.bwd_efficiency / fraction, least_bytes / bandwidth) + constants_.launch_s);
  time.bound = fixed > std::max(full_core, time.dram_s) ? Bound::launch : time.dram_s > full_core ? Bound::dram : time.latency_s > 2 * waved ? Bound::latency : Bound::compute;
  time.flops_executed = static_cast<Count>(2 * pairs * heads * (3 * d + 2 * dv));
  time.bytes_moved = static_cast<Count>(bytes);
  time.tile_m = static_cast<std::int32_t>(tile_rows);
  time.tile_n = static_cast<std::int32_t>(tile_keys);
  time.waves = tiles / sms;
  time.family = family_of(kernel, false, Pass::bwd);
  return time;
}

}  // namespace rooftile
