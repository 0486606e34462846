#include "estimator/timing/memory_bound.h"

#include <algorithm>
#include <cmath>

#include "estimator/timing/combine.h"

namespace rooftile {
namespace {

constexpr double kCtaElements = 2048;        // that one CTA of a streaming kernel handles
constexpr double kRegisterRowBytes = 65536;  // a row of fp32 values longer than this does not stay in one CTA's registers and is read again

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

// Reads of a row that does not fit in registers: softmax and cross entropy pass over it once for the maximum and sum and once for the result, norms likewise.
double extra_reads(const KernelCall& call, const Device& device) {
  double cols = 0, rows = 0, passes = 1;
  switch (call.kernel) {
    case KernelClass::softmax:
    case KernelClass::layernorm:
    case KernelClass::rmsnorm:
      cols = static_cast<double>(call.row().cols), rows = static_cast<double>(call.row().rows);
      break;
    default:
      return 0;
  }
  if (cols * 4 <= kRegisterRowBytes) return 0;
  const double row_bytes = cols * bytes_of(call.dtype);
  // Rows in work on all SMs stay in L2 between the passes when they fit.
  if (row_bytes * device.sms <= device.l2_bytes / 2) return 0;
  return passes * rows * row_bytes;
}

}  // namespace

KernelTime memory_bound_time(const KernelCall& call, const Device& device, const Constants& constants) {
  const KernelWork work = work_of(call);
  const double bytes = to_double(work.bytes()), flops = to_double(work.flops), special = to_double(work.special);
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
  const double ideal_core = vector_s, ideal_dram = bytes / device.memory_bandwidth;
  LossAccount account(time, std::max(ideal_core, ideal_dram));
  const double body = std::max(spread, compute);
  account.step(Loss::memory, std::max(stream, ideal_core));
  account.step(Loss::cache, std::max(dram, ideal_core));
  account.step(Loss::wave_tail, std::max(spread, ideal_core));
  account.step(Loss::latency, body);
  account.add(Loss::latency, constants.dram_latency_s);
  time.time_s = body + constants.dram_latency_s + constants.launch_s;
  account.step(Loss::launch, time.time_s);
  time.compute_s = compute;
  time.dram_s = dram;
  time.latency_s = constants.dram_latency_s + (spread - dram);
  time.launch_s = constants.launch_s;
  time.attainable_s = std::min(time.time_s, std::max(ideal_dram / constants.stream_efficiency, ideal_core) + constants.launch_s);
  if (time.launch_s + time.latency_s > std::max(dram, compute)) {
    time.bound = time.launch_s > time.latency_s ? Bound::launch : Bound::latency;
  } else {
    time.bound = compute > dram ? Bound::compute : Bound::dram;
  }
  time.flops_executed = work.flops;
  time.bytes_moved = work.bytes() + static_cast<Count>(again);
  time.family = name_of(call.kernel);
  return time;
}

}  // namespace rooftile
