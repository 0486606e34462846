#include "estimator/timing/gemm.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>

#include "estimator/core/checked.h"
#include "estimator/timing/clock.h"
#include "estimator/timing/combine.h"

namespace rooftile {
namespace {

constexpr double kSectorBytes = 32;           // of a DRAM or L2 transaction; also what an SM stores per epilogue cycle unit
constexpr double kSharedBytesPerClock = 128;  // 32 banks of 4 bytes, every generation since Volta (CUDA C++ Programming Guide, shared memory)
constexpr int kAlignmentBytes = 16;           // widest copy instruction and TMA's stride rule
constexpr int kKStepBytes = 128;              // of a K step where the catalogue does not say: one swizzled row of shared memory
constexpr double kWarp = 32;
constexpr int kLineBytes = 128;  // of L1 and L2: what a warp's 4-byte copies fill
constexpr int kMaxStages = 16;
constexpr double kOperandRegisters = 8192;                       // of a CTA besides its accumulators: 128 threads with 64 registers for addresses and fragments
constexpr double kTwoGroupArea = 32768, kWholeGroupArea = 4096;  // tiles of CUDA cores from which CTAs have 256 and 128 threads; below 64 (tile and warp counts in kernel names)
constexpr double kLeastSplitK = 256;                             // a shorter K is never split
constexpr std::size_t kBounds = 256;                             // tiles that are bounded at once
constexpr double kBelow = 1 - 1e-12;                             // keeps rounding from lifting a bound over what it bounds
constexpr double kSplitBelowWaves = 4, kSplitUpToWaves = 8;      // of kernels that are not persistent
constexpr double kSplitBelowFill = 2.0 / 3;                      // K is split only when tiles fill less than this share of the CTAs that run at once

// Whole numbers of tiles. Sizes below 2^31, the usual ones, take the much faster 32-bit division.
inline std::int64_t tiles_of(std::int64_t size, std::int64_t tile) {
  if (size < (std::int64_t{1} << 31)) return (static_cast<std::uint32_t>(size) + static_cast<std::uint32_t>(tile) - 1) / static_cast<std::uint32_t>(tile);
  return ceil_div(size, tile);
}

std::int64_t leading_a(const GemmShape& s) { return s.layout == GemmLayout::nt || s.layout == GemmLayout::nn ? s.k : s.m; }
std::int64_t leading_b(const GemmShape& s) { return s.layout == GemmLayout::nn || s.layout == GemmLayout::tn ? s.n : s.k; }

// Bytes, at most 16, of the largest power of two that divides a row pitch.
int pitch_alignment(std::int64_t elements, double element_bytes, int cap) {
  const auto bits = static_cast<std::uint64_t>(elements) * static_cast<std::uint64_t>(element_bytes * 8);
  const int zeros = std::countr_zero(bits);
  return zeros < 3 ? 1 : std::min(cap, 1 << std::min(zeros - 3, 20));
}

// The unit that multiplies this dtype: its tensor cores; for fp32, and for what the device has no unit for, CUDA cores.
const MathRate& rate_of(const Device& device, DType dtype) {
  const MathRate& rate = device.rate(dtype);
  if (dtype != DType::fp32 && rate.flop_per_clock_per_sm > 0) return rate;
  return device.vector_fp32.flop_per_clock_per_sm > 0 ? device.vector_fp32 : rate;
}

}  // namespace

int alignment_of(const GemmShape& shape, DType dtype) {
  const double bytes = bytes_of(dtype);
  int alignment = std::min(pitch_alignment(leading_a(shape), bytes, kAlignmentBytes), pitch_alignment(leading_b(shape), bytes, kAlignmentBytes));
  alignment = std::min(alignment, pitch_alignment(shape.n, bytes_of(shape.out), kAlignmentBytes));
  return std::max(1, static_cast<int>(alignment / bytes));
}

// A call in the units of the model.
struct GemmModel::Shape {
  double m, n, k, batch;
  std::int64_t im, in, ik;
  double in_bytes, out_bytes;           // of an element
  double c_factor;                      // times that C is moved: 2 when it accumulates
  bool grouped;                         // experts of one launch: K is not split, and each has its own number of rows
  double l2_factor;                     // 1 + what operand rows cost that begin inside a line or a sector
  double store_factor;                  // 1 + sector split of C
  double a_copy_factor, b_copy_factor;  // 1 + what rows that begin inside a line cost narrow copies
  bool both_along_k;                    // layout nt
  bool a_turned, b_turned;              // operands that do not run along k
  double clock_hz;
  double a_bytes, b_bytes, c_bytes;
  double operand_bandwidth, l2_panel_bytes, warm_bytes;
  GemmConstants constants;
};

struct GemmModel::Cost {
  const Family* family = nullptr;
  const Tile* tile = nullptr;
  std::int64_t split = 1;
  double tiles = 0, busiest = 0;  // CTAs in all and of the busiest SM
  double core_s = 0, dram_s = 0, extra_s = 0, time_s = std::numeric_limits<double>::infinity();
};

double tiles_of_group(double m, double tile) {
  constexpr double kFar = 4;       // deviations beyond which nothing is left
  constexpr double kSmooth = 0.5;  // deviations of a tile from which the rows' remainder is spread over a tile all but evenly
  const double deviation = std::sqrt(m);
  if (deviation >= kSmooth * tile) {
    // The Fourier series of ceil(x / tile) under a normal law; the second of its terms is below 1e-9.
    const double turn = 2 * std::numbers::pi / tile;
    return m / tile + 0.5 + std::sin(turn * std::fmod(m, tile)) * std::exp(-0.5 * turn * turn * m) / std::numbers::pi;
  }
  double whole = std::max(1.0, std::floor((m - kFar * deviation) / tile)), tiles = whole;
  for (; whole * tile < m + kFar * deviation; ++whole) tiles += 0.5 * std::erfc((whole * tile - m) / (deviation * std::sqrt(2.0)));
  return tiles;
}

GemmModel::GemmModel(const Machine& machine, const Constants& constants) : device_(machine.device), constants_(constants) {
  for (std::size_t i = 0; i < kDTypeCount; ++i) math_[i] = make_math(machine, static_cast<DType>(i));
}

GemmModel::Math GemmModel::make_math(const Machine& machine, DType dtype) const {
  Math math;
  const MathRate& rate = rate_of(device_, dtype);
  if (rate.flop_per_clock_per_sm <= 0 || rate.peak_flops <= 0 || device_.sms <= 0) return math;
  math.peak_flops = rate.peak_flops;
  math.clock_hz = rate.peak_flops / (rate.flop_per_clock_per_sm * device_.sms);
  const bool vector = &rate == &device_.vector_fp32;
  const double element_bytes = bytes_of(dtype);
  math.constants = constants_.gemm[static_cast<std::size_t>(vector ? DType::fp32 : dtype)];
  const double eta = math.constants.eta;

  KernelFamily generic;  // stands in where the catalogue has nothing for this dtype
  generic.name = "generic";
  generic.tensor_cores = !vector;
  generic.tiles = {{128, 128, 0, 0}, {64, 64, 0, 0}};
  generic.split_k = {1, 2, 4, 8};
  std::vector<const KernelFamily*> sources;
  for (const KernelFamily& family : machine.catalogue.families) {
    const bool has = std::find(family.dtypes.begin(), family.dtypes.end(), dtype) != family.dtypes.end();
    const bool simt = vector && !family.tensor_cores;
    if (simt ? (has || dtype != DType::fp32) : (has && family.tensor_cores != vector)) sources.push_back(&family);
  }
  constexpr std::string_view kGenericName = "generic";
  if (sources.empty()) sources.push_back(&generic);

  for (const KernelFamily* source : sources) {
    Family family;
    family.name = source == &generic ? kGenericName : std::string_view(source->name);
    family.min_alignment = vector && dtype != DType::fp32 ? 1 : source->min_alignment;
    family.max_alignment = source->max_alignment;
    double latency_scale = math.constants.latency_scale;
    if (source != &generic) {
      const auto place = static_cast<std::size_t>(source - machine.catalogue.families.data());
      family.rate = constants_.family_rate[place];
      family.copy_cycles = constants_.family_copy_cycles[place];
      family.nt_slowdown = constants_.family_nt_slowdown[place];
      if (constants_.family_latency_scale[place] > 0) latency_scale = constants_.family_latency_scale[place];
    } else {
      family.rate = generic.rate;
      family.nt_slowdown = 1;
    }
    family.single = source->single, family.batched = source->batched, family.grouped = source->grouped;
    family.persistent = source->persistent;
    const double sharing = std::max(1, source->sms_per_tile);  // SMs that share a tile
    family.sharing = sharing;
    family.units = std::max<std::int64_t>(1, device_.sms / source->sms_per_tile);
    family.split_k = source->split_k;
    if (family.split_k.empty()) family.split_k = {1};
    std::sort(family.split_k.begin(), family.split_k.end());
    const double latency_cycles = source->iteration_latency_s * latency_scale * math.clock_hz;
    for (const KernelTile& entry : source->tiles) {
      Tile tile{};
      tile.m = entry.m;
      tile.n = entry.n;
      tile.k = entry.k > 0 ? entry.k : std::max(1, static_cast<int>(kKStepBytes / element_bytes));
      const double stage_bytes = (tile.m + tile.n) * static_cast<double>(tile.k) * element_bytes / sharing;  // of one SM
      int stages = entry.stages;
      if (stages <= 0) stages = std::clamp(static_cast<int>(device_.shared_memory_per_sm / stage_bytes), 2, kMaxStages);
      const int by_memory = static_cast<int>(device_.shared_memory_per_sm / (stages * stage_bytes));
      const int by_registers = static_cast<int>(device_.registers_per_sm / (static_cast<double>(tile.m) * tile.n / sharing + kOperandRegisters));
      tile.ctas = std::clamp(std::min(by_memory, by_registers), 1, std::max(1, source->max_ctas_per_sm));
      tile.mma_cycles = 2.0 * tile.m * tile.n * tile.k / sharing / (rate.flop_per_clock_per_sm * eta * family.rate);
      tile.pause_cycles = constants_.step_pause_cycles[source->persistent ? 0 : source->tensor_cores ? 1 : 2];
      // CUDA cores read both operands of a thread's square share of the tile from shared memory for every k: the smaller the share, the more reads a multiply-add needs.
      if (!source->tensor_cores) {
        const double area = static_cast<double>(tile.m) * tile.n, share = area / (area >= kTwoGroupArea ? 256 : area >= kWholeGroupArea ? 128 : 64);
        tile.mma_cycles *= 1 + math.constants.fragment_cost * 2 / std::sqrt(share);
      }
      // Warp-level MMA reads its fragments from shared memory once per warp (a tile of at most 64 x 64) and writes each stage once; tensor cores that read shared memory
      // themselves (Hopper on) are not held up by it.
      if (source->tensor_cores && !source->persistent) {
        const double high = std::max(2.0, tile.m / 64.0), wide = std::max(2.0, tile.n / 64.0);
        tile.shared_cycles = (wide * tile.m + high * tile.n + tile.m + tile.n) * tile.k * element_bytes / kSharedBytesPerClock;
      }
      // Copies narrower than 16 bytes: a warp's instruction moves 32 of them, and issuing them holds the tensor cores up.
      const double narrow_bytes = source->min_alignment * element_bytes;
      if (source->tensor_cores && narrow_bytes < kAlignmentBytes) {
        const double instructions_per_row = tile.k * element_bytes / (narrow_bytes * kWarp);
        tile.copy_a_cycles = tile.m * instructions_per_row * family.copy_cycles;
        tile.copy_b_cycles = tile.n * instructions_per_row * family.copy_cycles;
      }
      // Tensor cores that take operands along k only: what multiplies from registers (B) is turned on its one way there, what multiplies from shared memory (A) is read and written
      // once more.
      if (source->persistent) {
        tile.turn_a_cycles = math.constants.transpose_cost * 2 * tile.m * tile.k * element_bytes / kSharedBytesPerClock;
        tile.turn_b_cycles = math.constants.transpose_cost * tile.n * tile.k * element_bytes / kSharedBytesPerClock;
      }
      // Two CTAs of a cluster receive the operand that they share by one load: half of the tile's shorter side is saved. Pairs of SMs with one tile have this in stage_bytes.
      const double side = tile.m + tile.n, shared = source->persistent && source->sms_per_tile == 1 ? std::min(tile.m, tile.n) / 2.0 : 0;
      tile.l2_cycles = constants_.l2_bytes_per_clock_per_sm > 0 ? stage_bytes * (side - shared) / side / constants_.l2_bytes_per_clock_per_sm : 0;
      tile.latency_cycles = latency_cycles / std::max(1, stages - 1);
      tile.fill_cycles = latency_cycles;
      tile.epilogue_cycles_per_byte = static_cast<double>(tile.m) * tile.n / sharing / kSectorBytes * math.constants.epilogue_cycles * (1 - math.constants.epilogue_overlap);
      tile.patch_side = std::sqrt(static_cast<double>(family.units) * (family.persistent ? 1 : tile.ctas));
      family.tiles.push_back(tile);
    }
    // Large tiles first: they are the best for large problems, and a good time early lets the rest be skipped.
    std::stable_sort(family.tiles.begin(), family.tiles.end(), [](const Tile& a, const Tile& b) { return static_cast<double>(a.m) * a.n > static_cast<double>(b.m) * b.n; });
    Bounds& b = family.bounds;
    for (const Tile& tile : family.tiles) {
      b.m.push_back(tile.m), b.n.push_back(tile.n), b.k.push_back(tile.k);
      b.by_m.push_back(1.0 / tile.m), b.by_n.push_back(1.0 / tile.n), b.by_k.push_back(1.0 / tile.k);
      b.step.push_back(std::max({tile.mma_cycles + tile.pause_cycles, tile.shared_cycles, tile.l2_cycles, family.persistent ? tile.latency_cycles : 0}));
      b.epilogue.push_back(tile.epilogue_cycles_per_byte);
      // Persistent kernels are split to fill the GPU once; older ones also to even out their last wave.
      b.split_across.push_back(static_cast<double>(family.units) * (family.persistent ? kSplitBelowFill : tile.ctas * kSplitBelowWaves));
    }
    math.families.push_back(std::move(family));
  }
  return math;
}

// Operands come from DRAM once when one of them stays in L2; else the tiles that run at once share panels, and one operand is read again for each strip of tiles whose panels
// stay. The better of the two orders of walking over C is taken.
double GemmModel::dram_bytes(const Shape& s, const Tile& tile) const {
  double operands = s.a_bytes + s.b_bytes;
  if (s.a_bytes > s.l2_panel_bytes && s.b_bytes > s.l2_panel_bytes) {
    const double a_panel = tile.m * s.k * s.in_bytes, b_panel = tile.n * s.k * s.in_bytes;
    const double a_strip = std::max(tile.patch_side, s.l2_panel_bytes / a_panel) * tile.m;
    const double b_strip = std::max(tile.patch_side, s.l2_panel_bytes / b_panel) * tile.n;
    const double b_again = s.a_bytes + s.b_bytes * std::max(1.0, s.m / a_strip);
    const double a_again = s.b_bytes + s.a_bytes * std::max(1.0, s.n / b_strip);
    operands = std::max(operands, std::min(a_again, b_again));
  }
  return s.batch * (operands + s.c_bytes * s.c_factor * s.store_factor) - s.warm_bytes;
}

// Cycles of one K step's multiplications and of what cannot run beside them.
double GemmModel::step_cycles(const Shape& s, const Family& family, const Tile& tile) {
  return tile.mma_cycles * (s.both_along_k ? family.nt_slowdown : 1) + tile.pause_cycles + (s.a_turned ? tile.turn_a_cycles : 0) + (s.b_turned ? tile.turn_b_cycles : 0) +
         tile.copy_a_cycles * s.a_copy_factor + tile.copy_b_cycles * s.b_copy_factor;
}

GemmModel::Cost GemmModel::evaluate(const Shape& s, const Family& family, const Tile& tile, std::int64_t across, std::int64_t split) const {
  Cost cost;
  cost.family = &family;
  cost.tile = &tile;
  cost.split = split;
  const std::int64_t tiles = across * split, busiest = tiles_of(tiles, family.units);
  cost.tiles = static_cast<double>(tiles);
  cost.busiest = static_cast<double>(busiest);
  const double steps = static_cast<double>(tiles_of(s.ik, split * tile.k));

  // The busiest SM runs its tiles in groups of as many CTAs as fit; a group's K steps take the longest of tensor, L2 and latency time.
  const std::int64_t ctas = family.persistent ? 1 : std::min<std::int64_t>(tile.ctas, busiest);
  const std::int64_t groups = ctas == 1 ? busiest : busiest / ctas, rest = busiest - groups * ctas;
  const double per_cta = std::max({step_cycles(s, family, tile), tile.shared_cycles, tile.l2_cycles * s.l2_factor});
  const double out_bytes = split > 1 ? 4.0 : s.out_bytes * s.c_factor * s.store_factor;
  double cycles =
      static_cast<double>(groups) * steps * std::max(static_cast<double>(ctas) * per_cta, tile.latency_cycles) + cost.busiest * tile.epilogue_cycles_per_byte * out_bytes;
  if (rest > 0) cycles += steps * std::max(static_cast<double>(rest) * per_cta, tile.latency_cycles);
  // Persistent kernels and SMs with several CTAs hide all but the first load.
  cycles += tile.fill_cycles * (family.persistent || ctas > 1 ? 1 : cost.busiest);
  cost.core_s = cycles / s.clock_hz;
  cost.dram_s = dram_bytes(s, tile) / s.operand_bandwidth;
  if (split > 1) {
    // fp32 partial results are written and read once through L2, by a second kernel.
    const double partial = 8.0 * static_cast<double>(split) * s.m * s.n * s.batch;
    const double l2_rate = constants_.l2_bytes_per_clock_per_sm > 0 ? constants_.l2_bytes_per_clock_per_sm * device_.sms * s.clock_hz : s.operand_bandwidth;
    const double spill = std::max(0.0, partial / 2 - s.l2_panel_bytes) * 2;
    cost.extra_s = constants_.split_k_reduce_s + partial / l2_rate + spill / s.operand_bandwidth;
  }
  cost.time_s = constants_.launch_s + cost.extra_s + p_norm(cost.core_s, cost.dram_s, constants_.combine_p);
  return cost;
}

// How many tiles there are and a lower bound of the core's time for a run of a family's tiles; plain arithmetic on arrays, so that the compiler takes several tiles at once.
void GemmModel::bound_tiles(const Shape& s, const Family& family, std::size_t start, std::size_t count, double* __restrict across, double* __restrict least) {
  // Whole numbers of tiles without a division: (size + tile - 1/2) / tile lies at least 1/(2 tile) from a whole number, and adding 2^52 rounds.
  constexpr double kRound = 4503599627370496.0;
  const auto whole = [](double size, double tile, double inverse) { return ((size + tile - 0.5) * inverse - 0.5 + kRound) - kRound; };
  const Bounds& b = family.bounds;
  const double units = static_cast<double>(family.units), per_unit = 1 / units, per_cycle = kBelow / s.clock_hz, bytes = s.out_bytes * s.c_factor * s.store_factor;
  const double rows = s.m, columns = s.n, depth = s.k, batch = s.batch;
  const double* __restrict m = &b.m[start], * __restrict n = &b.n[start], * __restrict k = &b.k[start], * __restrict by_m = &b.by_m[start], * __restrict by_n = &b.by_n[start], * __restrict by_k = &b.by_k[start], * __restrict step = &b.step[start], * __restrict epilogue = &b.epilogue[start];
  if (s.grouped) {
    for (std::size_t i = 0; i < count; ++i) {
      across[i] = std::round(tiles_of_group(rows, m[i]) * whole(columns, n[i], by_n[i]) * batch);
      least[i] = whole(across[i], units, per_unit) * (whole(depth, k[i], by_k[i]) * step[i] + epilogue[i] * bytes) * per_cycle;
    }
    return;
  }
  for (std::size_t i = 0; i < count; ++i) {
    across[i] = whole(rows, m[i], by_m[i]) * whole(columns, n[i], by_n[i]) * batch;
    least[i] = whole(across[i], units, per_unit) * (whole(depth, k[i], by_k[i]) * step[i] + epilogue[i] * bytes) * per_cycle;
  }
}

// The cheapest candidate. A candidate whose tensor and L2 time alone cannot beat the best one so far is not evaluated.
GemmModel::Cost GemmModel::cheapest(const Shape& s, const Math& math, int alignment) const {
  Cost best;
  double budget = std::numeric_limits<double>::infinity();  // seconds that core and DRAM may take together
  const double dram_s = (s.batch * (s.a_bytes + s.b_bytes + s.c_bytes * s.c_factor) - s.warm_bytes) / s.operand_bandwidth;
  bool any = false;
  const bool batched = s.batch > 1;
  bool grouped = false;  // where no family is made for groups, they run as batches
  for (const Family& family : math.families) grouped = grouped || (s.grouped && family.grouped);
  const auto fits = [&](const Family& family) {
    return alignment >= family.min_alignment && alignment <= family.max_alignment && (grouped ? family.grouped : batched ? family.batched : family.single);
  };
  for (const Family& family : math.families) any = any || fits(family);
  // What the core may take in a candidate that beats the best one; with the longest hiding the other entirely where the exponent is not the usual one.
  const bool cubic = constants_.combine_p == 3;
  const double least_split_s = dram_s + constants_.split_k_reduce_s;
  double core_budget = budget;
  const auto consider = [&](const Family& family, const Tile& tile, double across, std::int64_t split) {
    const Cost cost = evaluate(s, family, tile, static_cast<std::int64_t>(std::min(across, 1e18)), split);
    if (cost.time_s >= best.time_s) return;
    best = cost;
    budget = best.time_s - constants_.launch_s;
    core_budget = dram_s >= budget ? 0 : cubic ? std::cbrt(budget * budget * budget - dram_s * dram_s * dram_s) : budget;
  };
  std::array<double, kBounds> across, least;  // of tiles: how many there are, and seconds that their main loops and epilogues take at the least
  for (const Family& family : math.families) {
    // Where no family is made for this alignment, the one that asks least of it is used.
    if (any && !fits(family)) continue;
    for (std::size_t start = 0; start < family.tiles.size(); start += kBounds) {
      const std::size_t count = std::min(kBounds, family.tiles.size() - start);
      bound_tiles(s, family, start, count, across.data(), least.data());
      const Tile* tiles = &family.tiles[start];
      const auto likely = static_cast<std::size_t>(std::min_element(least.begin(), least.begin() + static_cast<std::ptrdiff_t>(count)) - least.begin());
      if (least[likely] < core_budget) consider(family, tiles[likely], across[likely], 1);
      for (std::size_t i = 0; i < count; ++i) {
        if (least[i] < core_budget && i != likely) consider(family, tiles[i], across[i], 1);
      }
      if (s.grouped || family.split_k.back() <= 1 || s.k < 2 * kLeastSplitK || least_split_s >= budget) continue;
      const double most_parts = std::min(static_cast<double>(family.split_k.back()), s.k / kLeastSplitK);
      const double* most_across = &family.bounds.split_across[start];
      for (std::size_t i = 0; i < count; ++i) {
        if (across[i] > most_across[i] || least[i] >= (budget - constants_.split_k_reduce_s) * most_parts) continue;
        const double slots = static_cast<double>(family.units) * (family.persistent ? 1 : tiles[i].ctas * kSplitUpToWaves);
        for (const std::int64_t split : family.split_k) {
          const auto parts = static_cast<double>(split);
          if (across[i] * parts > slots || parts > most_parts) break;
          if (split > 1 && least[i] / parts + constants_.split_k_reduce_s < budget) consider(family, tiles[i], across[i], split);
        }
      }
    }
  }
  return best;
}

KernelTime GemmModel::time(const GemmShape& shape, DType dtype, ClockState clocks) const {
  const Math& math = math_[static_cast<std::size_t>(dtype)];
  KernelTime time;
  if (math.families.empty()) return time;

  Shape s{};
  s.im = shape.m, s.in = shape.n, s.ik = shape.k;
  s.m = static_cast<double>(shape.m), s.n = static_cast<double>(shape.n), s.k = static_cast<double>(shape.k), s.batch = static_cast<double>(shape.batch);
  s.in_bytes = bytes_of(dtype);
  s.out_bytes = bytes_of(shape.out);
  s.c_factor = shape.accumulate ? 2 : 1;
  s.grouped = shape.grouped;
  s.both_along_k = shape.layout == GemmLayout::nt;
  s.a_turned = shape.layout == GemmLayout::tn || shape.layout == GemmLayout::tt;
  s.b_turned = shape.layout == GemmLayout::nn || shape.layout == GemmLayout::tn;
  s.constants = math.constants;
  s.a_bytes = s.m * s.k * s.in_bytes;
  s.b_bytes = shape.b_bytes > 0 ? static_cast<double>(shape.b_bytes) : s.k * s.n * s.in_bytes;
  s.c_bytes = s.m * s.n * s.out_bytes;
  s.operand_bandwidth = device_.memory_bandwidth * s.constants.operand_efficiency;
  s.l2_panel_bytes = device_.l2_bytes * constants_.l2_panel_share;
  const double operand_bytes = s.batch * (s.a_bytes + s.b_bytes);
  s.warm_bytes = warm_bytes(constants_, s.l2_panel_bytes, operand_bytes, operand_bytes + s.batch * s.c_bytes * s.c_factor);
  const int alignment = alignment_of(shape, dtype);
  s.store_factor = pitch_alignment(shape.n, s.out_bytes, static_cast<int>(kSectorBytes)) < kSectorBytes ? 1 + constants_.store_split : 1;
  // L2 serves lines of 128 bytes. A tile's rows of 128 bytes all begin at one when the pitch is a multiple of it; else half (64), three quarters (32) or seven eighths (16) of them
  // touch two, and fewer where a row ends before.
  const auto l2_extra = [&](std::int64_t leading) {
    const int aligned = std::max(pitch_alignment(leading, s.in_bytes, kLineBytes), kAlignmentBytes);
    const int row = static_cast<int>(std::min<double>(kLineBytes, static_cast<double>(leading) * s.in_bytes));
    const double in_two = 1 - ((kLineBytes - row) / aligned + 1) * aligned / static_cast<double>(kLineBytes);
    return in_two * constants_.line_requests + (aligned < kSectorBytes ? constants_.sector_split : 0);
  };
  s.l2_factor = 1 + std::max(l2_extra(leading_a(shape)), l2_extra(leading_b(shape)));

  const auto copy_factor = [&](std::int64_t leading) { return pitch_alignment(leading, s.in_bytes, kLineBytes) < kLineBytes ? 1 + constants_.line_split : 1; };
  s.a_copy_factor = copy_factor(leading_a(shape)), s.b_copy_factor = copy_factor(leading_b(shape));

  const double burst_hz = math.clock_hz * constants_.clock_factor;
  s.clock_hz = burst_hz * clock_fraction(s.constants.sustained_fraction, constants_, clocks, 0);
  Cost best = cheapest(s, math, alignment);
  if (best.tile == nullptr) return time;
  const double fraction = clock_fraction(s.constants.sustained_fraction, constants_, clocks, best.time_s);
  if (clocks == ClockState::automatic && fraction < 1) {
    s.clock_hz = burst_hz * fraction;
    best = evaluate(s, *best.family, *best.tile, static_cast<std::int64_t>(best.tiles) / best.split, best.split);
  }

  const Tile& tile = *best.tile;
  const double flops = 2 * s.m * s.n * s.k * s.batch;
  const double least_bytes = s.batch * (s.a_bytes + s.b_bytes + s.c_bytes * s.c_factor);
  const double ideal_core = flops / math.peak_flops, ideal_dram = least_bytes / device_.memory_bandwidth;
  const double p = constants_.combine_p;
  const double clocked = ideal_core * math.clock_hz / (s.clock_hz * s.constants.eta);
  const double padded_mn = static_cast<double>(ceil_div(shape.m, tile.m)) * tile.m * static_cast<double>(ceil_div(shape.n, tile.n)) * tile.n;
  const double padded_k = static_cast<double>(ceil_div(shape.k, best.split * tile.k)) * static_cast<double>(best.split * tile.k);
  const double padded = clocked * (padded_mn / (s.m * s.n)) * (padded_k / s.k);
  const double waved =
      padded * best.busiest * static_cast<double>(best.family->units) / best.tiles * device_.sms / (static_cast<double>(best.family->units) * best.family->sharing);
  // Older instructions, narrow copies, operands that are turned: a K step relative to what the tile's multiplications and the pause between steps need.
  const double least_step = 2.0 * tile.m * tile.n * tile.k / best.family->sharing / (math.peak_flops / (math.clock_hz * device_.sms) * s.constants.eta) + tile.pause_cycles;
  const double aligned = waved * std::max(1.0, step_cycles(s, *best.family, tile) / least_step);
  const double core = std::max(aligned, best.core_s);
  const double once = (least_bytes - s.warm_bytes) / s.operand_bandwidth;

  LossAccount account(time, std::max(ideal_core, ideal_dram));
  account.step(Loss::memory, p_norm(ideal_core, ideal_dram, p));
  account.step(Loss::clock, p_norm(clocked, ideal_dram, p));
  account.step(Loss::tile_padding, p_norm(padded, ideal_dram, p));
  account.step(Loss::wave_tail, p_norm(waved, ideal_dram, p));
  account.step(Loss::alignment, p_norm(aligned, ideal_dram, p));
  account.step(Loss::latency, p_norm(core, ideal_dram, p));
  account.step(Loss::memory, p_norm(core, once, p));
  account.step(Loss::cache, p_norm(core, best.dram_s, p));
  account.step(Loss::launch, best.time_s);

  time.time_s = best.time_s;
  time.compute_s = aligned;
  time.dram_s = best.dram_s;
  const double steps = static_cast<double>(ceil_div(shape.k, best.split * tile.k));
  time.l2_s = best.busiest * steps * tile.l2_cycles * s.l2_factor / s.clock_hz;
  time.latency_s = std::max(0.0, best.core_s - std::max(aligned, time.l2_s));
  time.launch_s = constants_.launch_s + best.extra_s;
  time.attainable_s = std::min(best.time_s, std::max(clocked, once) + constants_.launch_s);
  if (time.launch_s > std::max(best.core_s, best.dram_s)) {
    time.bound = Bound::launch;
  } else if (best.dram_s > best.core_s) {
    time.bound = Bound::dram;
  } else if (time.latency_s > std::max(aligned, time.l2_s)) {
    time.bound = Bound::latency;
  } else {
    time.bound = time.l2_s > aligned ? Bound::l2 : Bound::compute;
  }
  time.flops_executed = static_cast<Count>(2 * padded_mn * padded_k * s.batch);
  time.bytes_moved = static_cast<Count>(best.dram_s * s.operand_bandwidth);
  time.tile_m = tile.m;
  time.tile_n = tile.n;
  time.split_k = static_cast<std::int32_t>(best.split);
  time.waves = best.tiles / (static_cast<double>(best.family->units) * (best.family->persistent ? 1 : tile.ctas));
  time.family = best.family->name;
  return time;
}

}  // namespace rooftile
