#include "estimator/timing/memory_bound.h"

#include <algorithm>
#include <cmath>

#include "estimator/timing/combine.h"
#include "estimator/timing/stream_plan.h"

namespace rooftile {
namespace {

// What follows from a kernel's time and its parts.
void finish(KernelTime& time, const KernelCall& call, const KernelWork& work, const Constants& constants, double ideal_dram_s, double ideal_core_s) {
  time.attainable_s = std::min(time.time_s, std::max(ideal_dram_s / constants.stream_efficiency, ideal_core_s) + constants.stream_launch_s);
  if (time.launch_s + time.latency_s > std::max(time.dram_s, time.compute_s)) {
    time.bound = time.launch_s > time.latency_s ? Bound::launch : Bound::latency;
  } else {
    time.bound = time.compute_s > time.dram_s ? Bound::compute : Bound::dram;
  }
  time.flops_executed = work.flops;
  time.family = name_of(call.kernel);
}

constexpr double kCtaElements = 2048;  // that one CTA of a streaming kernel handles
constexpr double kWarpRow = 1024;      // longest row that a softmax keeps in one warp's registers
constexpr double kRowsInWork = 8;      // CTAs of 256 threads on one SM, a row each

// CTAs that a kernel can spread over: a row kernel gives each CTA at least one row (short rows share one).
double parallel_ctas(const KernelCall& call, const KernelWork& work) {
  const double elements = to_double(work.bytes_written + work.bytes_read) / bytes_of(call.dtype);
  switch (call.kernel) {
    case KernelClass::softmax:
    case KernelClass::layernorm:
    case KernelClass::rmsnorm: {
      const double rows = static_cast<double>(call.row().rows), cols = static_cast<double>(call.row().cols);
      return std::max(1.0, rows * std::min(1.0, cols / (kCtaElements / 4)));
    }
    case KernelClass::cross_entropy:
      return static_cast<double>(call.cross_entropy().tokens);
    default:
      return std::max(1.0, elements / kCtaElements);
  }
}

// Bytes that are read twice. Norms pass over a row for its statistics and again for the result, softmax likewise once a row is too long for one warp's registers; the second pass
// finds the row in L2 when the rows in work on all SMs fit there (half of it, the rest holds what is written).
double extra_reads(const KernelCall& call, const Device& device) {
  const bool norm = call.kernel == KernelClass::layernorm || call.kernel == KernelClass::rmsnorm;
  if (!norm && call.kernel != KernelClass::softmax) return 0;
  const double rows = static_cast<double>(call.row().rows), cols = static_cast<double>(call.row().cols);
  if (!norm && cols <= kWarpRow) return 0;
  const double row_bytes = cols * bytes_of(call.dtype);
  const double working_set = row_bytes * std::min(rows, static_cast<double>(device.sms) * kRowsInWork);
  return working_set <= device.l2_bytes / 2 ? 0 : rows * row_bytes;
}

constexpr double kStagger = 0.3;         // share of a wave's time over which its CTAs end: the first of the next wave start that much earlier
constexpr double kAloneExponent = 2;     // of the norm that joins work and rounds where a CTA asks for its next row only after this one
constexpr double kSpillsPerClock = 128;  // bytes between registers and L1, an SM

// Kernels that lose no bandwidth by their own structure: what keeps them below it is in their plan.
bool whole_bandwidth(const KernelCall& call) {
  switch (call.kernel) {
    case KernelClass::softmax:
    case KernelClass::column_sum:
    case KernelClass::row_sum:
      return true;
    case KernelClass::layernorm:
    case KernelClass::rmsnorm:
    case KernelClass::cross_entropy:
      return call.pass == Pass::fwd;
    default:
      return false;
  }
}

// Elements that a call turns into results.
double elements_of(const KernelCall& call, double written) {
  if (call.kernel == KernelClass::cross_entropy) return static_cast<double>(call.cross_entropy().tokens) * static_cast<double>(call.cross_entropy().vocab);
  if (call.kernel == KernelClass::column_sum || call.kernel == KernelClass::row_sum) return static_cast<double>(call.row().rows) * static_cast<double>(call.row().cols);
  return std::max(1.0, written / std::max(2.0, bytes_of(call.dtype)));
}

// This project's own kernels: their plan is known (stream_plan.h). CTAs that end after their share come in waves: those of the first all wait for memory at once, later ones work
// while others wait, so that waits and work join as a norm. CTAs that go through many rows have rounds, hidden by memory while there is enough to move.
KernelTime own_time(const KernelCall& call, const Device& device, const Constants& constants) {
  const KernelWork work = work_of(call);
  const StreamPlan plan = plan_of(call, device);
  const std::size_t index = static_cast<std::size_t>(call.kernel), pass = call.pass == Pass::bwd ? 1 : 0;
  const double all_bytes = to_double(work.bytes()), read = to_double(work.bytes_read), written = to_double(work.bytes_written), p = constants.combine_p;
  const double efficiency = whole_bandwidth(call) ? constants.efficiency[static_cast<std::size_t>(KernelClass::pointwise)]
                            : pass == 1           ? constants.backward_efficiency[index]
                                                  : constants.efficiency[index];
  const double bandwidth = device.memory_bandwidth * efficiency, clock_hz = device.peak_clock_hz > 0 ? device.peak_clock_hz : 1e9, per_sm = 1 / (device.sms * clock_hz);
  const double warm = warm_bytes(constants, device.l2_bytes * constants.l2_panel_share, read, all_bytes);
  // Memory that is read and written in turns loses time at each turn; it is booked to what is written.
  const double stream = (read - warm + written * (plan.reads ? 1 + constants.dram_write_cost : 1)) / bandwidth;
  const double again_bytes = (plan.again_bytes > device.l2_bytes / 2 ? plan.again_bytes : 0) + plan.spilled_bytes;
  const double busiest = constants.sm_bytes_per_clock > 0 ? (all_bytes + plan.again_bytes + plan.shared_bytes) / (plan.busy_sms * constants.sm_bytes_per_clock * clock_hz) : 0;
  const double dram = stream + again_bytes / bandwidth, spread = plan.trips > 0 ? p_norm(dram, busiest, p) : std::max(dram, busiest);
  const double flops = to_double(work.flops), special = to_double(work.special), flops_each = flops / elements_of(call, written);
  const double ideal_core = device.vector_fp32.peak_flops > 0 ? flops / device.vector_fp32.peak_flops : 0;
  const double special_s = device.special_per_clock_per_sm > 0 ? special * plan.evaluations * plan.padding / device.special_per_clock_per_sm * per_sm : 0;
  // Issue slots: arithmetic, conversions of 16-bit elements, warps that have few elements, elements that are moved one by one.
  const double slots_s =
      (plan.row_warps * constants.stream_warp_cycles + plan.single_accesses * constants.stream_single_cycles + plan.conversions * plan.padding * constants.stream_convert_cycles) *
      per_sm;
  const double arithmetic = call.kernel != KernelClass::pointwise && call.kernel != KernelClass::optimizer ? std::max(ideal_core * plan.padding, special_s)
                                                                                                           : std::max(ideal_core * constants.stream_flop_slots, special_s);
  const double compute = (arithmetic + slots_s) * device.sms / plan.busy_sms, joined = p_norm(spread, compute, p);
  const bool half = call.kernel == KernelClass::pointwise && bits_of(call.dtype) <= 16;
  const double element_s = flops_each * constants.stream_flop_s, latency = plan.reads ? constants.dram_latency_s : 0;
  const double trip_s = latency + plan.trip_elements * element_s + plan.trip_vectors * constants.stream_vector_s;
  const double chain = plan.chain_elements * (half ? constants.stream_convert_s + element_s : element_s) + plan.once_elements * element_s +
                       plan.once_vectors * constants.stream_vector_s + plan.reductions * constants.stream_reduce_s + plan.shared_loads * constants.stream_load_s +
                       plan.spilled_each / (kSpillsPerClock * clock_hz);
  double body;
  if (plan.trips > 0) {
    const double whole_waves = std::ceil(plan.waves - 1e-9), first = std::min(1.0, 1 / plan.waves) / plan.trips, head = joined * first;
    const double early = whole_waves > 1 ? kStagger * (whole_waves - plan.waves) * head : 0;
    const double waits = std::max(0.0, (plan.trips - 1) * trip_s + (whole_waves - 1) * (plan.trips * trip_s + chain + constants.stream_start_s) - early);
    // Where one CTA fills an SM and waits once, nothing runs meanwhile; with several trips each the SMs fall out of step.
    body = head + p_norm(joined - head, waits, plan.resident > 1 || plan.trips > 1 ? p : 1);
  } else {
    // A trip to memory and one to a cache where the next row is asked for ahead; else the next row waits for all of this one.
    const double round_s = plan.one_after_other ? trip_s + chain : constants.dram_latency_s + constants.stream_load_s;
    const double head = plan.one_after_other ? joined / plan.steps : 0;
    body = head + p_norm(joined - head, (plan.steps - 1) * round_s, plan.one_after_other ? kAloneExponent : p);
  }
  const double tail = plan.last_vectors * constants.stream_vector_s + plan.tail_loads * constants.stream_load_s + plan.partial_sums * constants.stream_partial_s +
                      (plan.second_kernel ? constants.stream_launch_s : 0);
  const double fixed = constants.stream_launch_s + constants.fixed_s[index][pass] + tail;

  KernelTime time;
  const double ideal_dram = all_bytes / device.memory_bandwidth;
  LossAccount account(time, std::max(ideal_core, ideal_dram));
  account.step(Loss::memory, std::max(stream, ideal_core));
  account.step(Loss::cache, std::max(dram, ideal_core));
  account.step(Loss::wave_tail, std::max(spread, ideal_core));
  account.step(Loss::latency, body + chain + trip_s);
  time.time_s = body + chain + trip_s + fixed;
  account.step(Loss::launch, time.time_s);
  time.compute_s = compute;
  time.dram_s = dram;
  time.latency_s = trip_s + chain + (body - std::max(dram, compute));
  time.launch_s = fixed;
  finish(time, call, work, constants, ideal_dram, ideal_core);
  time.bytes_moved = work.bytes() + static_cast<Count>(plan.again_bytes);
  time.waves = plan.trips > 0 ? plan.waves : 0;
  return time;
}

}  // namespace

KernelTime memory_bound_time(const KernelCall& call, const Device& device, const Constants& constants) {
  if (call.impl == Impl::rooftile) return own_time(call, device, constants);
  const KernelWork work = work_of(call);
  const double all_bytes = to_double(work.bytes());
  const double bytes = all_bytes - warm_bytes(constants, device.l2_bytes * constants.l2_panel_share, to_double(work.bytes_read), all_bytes);
  const double flops = to_double(work.flops), special = to_double(work.special);
  const std::size_t index = static_cast<std::size_t>(call.kernel);
  const double efficiency = call.pass == Pass::bwd ? constants.backward_efficiency[index] : constants.efficiency[index];
  const double clock_hz = device.peak_clock_hz > 0 ? device.peak_clock_hz : 1e9;
  const double peak = device.vector_fp32.peak_flops;

  const double bandwidth = device.memory_bandwidth * efficiency;
  const double busy = std::min<double>(device.sms, parallel_ctas(call, work));
  const double limited = constants.sm_bytes_per_clock > 0 ? std::min(bandwidth, busy * constants.sm_bytes_per_clock * clock_hz) : bandwidth;
  const double again = extra_reads(call, device);
  const double stream = bytes / bandwidth, dram = (bytes + again) / bandwidth, spread = (bytes + again) / limited;
  const double vector_s = peak > 0 ? flops / peak : 0;
  const double special_s = device.special_per_clock_per_sm > 0 ? special / (device.special_per_clock_per_sm * device.sms * clock_hz) : 0;
  const double compute = std::max(vector_s, special_s) * device.sms / busy;

  KernelTime time;
  const double ideal_core = vector_s, ideal_dram = all_bytes / device.memory_bandwidth;
  LossAccount account(time, std::max(ideal_core, ideal_dram));
  const std::size_t pass = call.pass == Pass::bwd ? 1 : 0;
  const double body = std::max({spread, compute, constants.floor_s[index][pass]});
  account.step(Loss::memory, std::max(stream, ideal_core));
  account.step(Loss::cache, std::max(dram, ideal_core));
  account.step(Loss::wave_tail, std::max(spread, ideal_core));
  account.step(Loss::latency, body);
  account.add(Loss::latency, constants.dram_latency_s);
  const double fixed = constants.stream_launch_s + constants.fixed_s[index][pass];
  time.time_s = body + constants.dram_latency_s + fixed;
  account.step(Loss::launch, time.time_s);
  time.compute_s = compute;
  time.dram_s = dram;
  time.latency_s = constants.dram_latency_s + (spread - dram);
  time.launch_s = fixed;
  finish(time, call, work, constants, ideal_dram, ideal_core);
  time.bytes_moved = work.bytes() + static_cast<Count>(again);
  return time;
}

}  // namespace rooftile
