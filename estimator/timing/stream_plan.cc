#include "estimator/timing/stream_plan.h"

#include <algorithm>
#include <cmath>

#include "estimator/core/checked.h"
#include "estimator/core/dtype.h"
#include "estimator/timing/stream_registers.h"

namespace rooftile {
namespace {

constexpr double kVectorBytes = 16, kWarp = 32;
constexpr double kCtasPerSm = 32, kReservedShared = 1024;  // shared memory that each CTA takes besides its own
constexpr double kOwnShared = 1536;                        // of the long kernels: reserved, and for the meeting of warps

constexpr double kPartsPower = 0.6;  // how the time for partial sums grows with the CTAs that leave them: an SM stores its own alone, all meet in L2

constexpr double kSerial = 0.65;  // share of a round that the next one waits for, in loops whose loads are not all asked for before the first is used

double whole(double a, double b) { return std::ceil(a / b); }

// CTAs that an SM holds. Registers are handed out to warps in units of 256, eight a thread.
double resident(const Device& device, double threads, double registers, double shared_bytes = 0) {
  const double by_threads = std::floor((device.max_threads_per_sm > 0 ? device.max_threads_per_sm : 2048) / threads);
  const double by_registers = std::floor(device.registers_per_sm / (threads * whole(registers, 8) * 8));
  const double by_shared = shared_bytes > 0 && device.shared_memory_per_sm > 0 ? std::floor(device.shared_memory_per_sm / (shared_bytes + kReservedShared)) : kCtasPerSm;
  return std::clamp(std::min({by_threads, by_registers, by_shared}), 1.0, kCtasPerSm);
}

// How threads share rows: `width` threads a row, `groups` rows in a CTA, `per` vectors of `vec` elements a thread; per 0: the row is too long for the registers.
struct Rows {
  double vec = 1, per = 0, width = 32, groups = 1;
};

// Rows that stream (kernels/row_stream.cuh): one, two or four vectors a thread, at most 512 threads.
Rows streamed(double cols, double element_bytes) {
  const double full = kVectorBytes / element_bytes;
  const bool odd = std::fmod(cols, full) != 0;
  const double vectors = odd ? std::floor((cols + 2 * full - 2) / full) : cols / full;
  Rows rows{full, 1, kWarp, 1};
  if (vectors <= 32) {
    for (rows.width = 4; rows.width < vectors;) rows.width *= 2;
  } else if (vectors <= 128) {
    rows.per = vectors <= 64 ? 2 : 4;
  } else {
    const auto width_of = [&](double per) { return whole(vectors, per * kWarp) * kWarp; };
    rows.per = width_of(4) * 16 > vectors * 5 && width_of(2) <= 512 ? 2 : 4;
    rows.width = width_of(rows.per);
    if (rows.width > 512) rows.per = 0;
  }
  rows.groups = rows.width >= 256 ? 1 : std::floor(256 / rows.width);
  return rows;
}

// Rows that are read once by a CTA of their own (kernels/row_group.cuh).
Rows grouped(double cols, double element_bytes, double most_elements) {
  Rows rows;
  const double full = kVectorBytes / element_bytes;
  rows.vec = std::fmod(cols, full) == 0 ? full : 1;
  const double vectors = cols / rows.vec;
  if (rows.vec == 1) most_elements = 16;
  for (double per = rows.vec == 1 ? 8 : 1; per * rows.vec <= most_elements; per *= 2) {
    const bool last = 2 * per * rows.vec > most_elements;
    const double width = whole(vectors, per * kWarp) * kWarp;
    if (!(width <= kWarp || (vectors > 128 && width <= 512) || (last && width <= 1024))) continue;
    rows.per = per, rows.width = width, rows.groups = width >= 256 ? 1 : std::floor(256 / width);
    return rows;
  }
  rows.width = 1024;
  return rows;
}

double converted(const KernelCall& call, double elements) { return bits_of(call.dtype) <= 16 ? elements : 0; }

void take_ctas(StreamPlan& plan, const Device& device, double ctas, double ctas_per_sm) {
  plan.busy_sms = std::min<double>(device.sms, ctas);
  plan.resident = ctas_per_sm;
  plan.waves = ctas / (device.sms * ctas_per_sm);
  plan.steps = whole(ctas, device.sms * ctas_per_sm);
}

// A softmax row too long for registers: a CTA of 512 threads that walks over it, kept in shared memory while it fits, else read again.
StreamPlan plan_long_softmax(const KernelCall& call, const Device& device, double vec, bool odd) {
  constexpr double kThreads = 512;
  const double count = static_cast<double>(call.row().rows), cols = static_cast<double>(call.row().cols), matrix = count * cols * std::max(2.0, bytes_of(call.dtype));
  const bool backward = call.pass == Pass::bwd;
  const double vectors = odd ? std::floor((cols + 2 * vec - 2) / vec) : cols / vec, arrays = backward ? 2 : 1, at_once = backward ? 2 : 4;
  const double kept = arrays * vectors * kVectorBytes;
  const bool fits = kept + 2 * kReservedShared <= device.shared_memory_per_sm;
  StreamPlan plan;
  take_ctas(plan, device, count, fits ? std::clamp(std::floor(device.shared_memory_per_sm / (kept + kOwnShared)), 1.0, 2.0) : 2);
  plan.trips = whole(vectors, kThreads * at_once) * (fits ? 1 : 2);
  plan.trip_elements = at_once * vec, plan.trip_vectors = at_once * arrays;
  plan.reductions = 1;
  if (fits) plan.once_vectors = whole(vectors, kThreads), plan.once_elements = plan.once_vectors * vec;
  plan.again_bytes = fits ? 0 : arrays * matrix;
  plan.row_warps = count * kThreads / kWarp;
  plan.conversions = converted(call, count * cols * (2 * arrays + 1));
  plan.evaluations = 2;
  return plan;
}

// Rows that begin anywhere: resident CTAs go through their rows, and elements of the neighbours are masked at each look.
StreamPlan plan_odd_softmax(const KernelCall& call, const Device& device, const Rows& rows) {
  const double count = static_cast<double>(call.row().rows);
  const bool backward = call.pass == Pass::bwd;
  StreamPlan plan;
  const RowKernel kernel = backward ? RowKernel::softmax_odd_bwd : RowKernel::softmax_odd_fwd;
  take_ctas(plan, device, whole(count, rows.groups), resident(device, rows.width * rows.groups, registers_of(kernel, call.dtype, false, rows.per, false).registers));
  const double slots = count * rows.width * rows.per * rows.vec;
  plan.once_elements = rows.per * rows.vec, plan.once_vectors = rows.per * (backward ? 2 : 1);
  plan.reductions = rows.width > kWarp ? 1 : 0;
  plan.row_warps = count * std::max(1.0, rows.width / kWarp);
  plan.single_accesses = slots * (backward ? 2 : 3);  // looks at masked elements: maximum, sum and result; product and result
  plan.evaluations = 2;
  return plan;
}

StreamPlan plan_norm_backward(const KernelCall& call, const Device& device, Rows rows) {
  // Resident CTAs walk over their rows and leave sums of columns, which a second kernel adds up, 32 parts at a time.
  const double count = static_cast<double>(call.row().rows), cols = static_cast<double>(call.row().cols);
  const bool layernorm = call.kernel == KernelClass::layernorm, single = rows.vec == 1;
  if (rows.per == 0) rows.per = 16 / rows.vec, rows.groups = 1;
  while (rows.groups > 1 && rows.groups * cols * 4 > 46 * 1024) rows.groups = std::floor(rows.groups / 2);
  const double threads = rows.width * rows.groups;
  const bool wide = threads > 512 && rows.per * rows.vec == 16;
  const RowRegisters held = registers_of(layernorm ? RowKernel::layernorm_bwd : RowKernel::rmsnorm_bwd, call.dtype, single, rows.per, wide);
  const double most = cols <= 2048 ? 6 : cols <= 4096 ? 4 : 2;
  const double ctas_per_sm = std::min(resident(device, threads, held.registers, rows.groups > 1 ? rows.groups * cols * 4 : 0), most);
  const double ctas = std::min(whole(count, rows.groups), device.sms * ctas_per_sm);
  StreamPlan plan;
  plan.busy_sms = std::min<double>(device.sms, ctas);
  plan.resident = ctas_per_sm;
  plan.steps = whole(whole(count, rows.groups), ctas);
  const double used = whole(cols / rows.vec, rows.width);
  plan.once_elements = used * rows.vec, plan.once_vectors = 2 * used;
  if (single) plan.last_vectors = 2 * used;  // weights and results: of rows before they overlap with the next one's loads

  plan.padding = rows.width * used * rows.vec / cols;
  plan.reductions = rows.width > kWarp ? 1 : 0, plan.shared_loads = 1;
  plan.conversions = converted(call, 3 * count * cols);
  plan.row_warps = count * std::max(1.0, rows.width / kWarp) * (layernorm ? 2 : 1);
  plan.one_after_other = wide || single;
  if (single) plan.single_accesses = 4 * count * rows.width * rows.per;
  const bool leaves = held.spilled_bytes * threads * ctas_per_sm > device.shared_memory_per_sm;
  (leaves ? plan.spilled_bytes : plan.spilled_each) = 2 * held.spilled_bytes * (leaves ? count * rows.width : threads * ctas_per_sm);
  plan.second_kernel = true;
  plan.tail_loads = 2 * whole(ctas, 128) * whole(whole(cols, 32) * (layernorm ? 2 : 1), device.sms * 2.0);
  // A warp's store of single words `vec` apart touches vec times as many sectors, and each of them vec times.
  plan.partial_sums = (layernorm ? 2 : 1) * cols * std::pow(ctas, kPartsPower) * (rows.vec / 8) * (rows.vec / 8);
  return plan;
}

StreamPlan plan_rows(const KernelCall& call, const Device& device) {
  const double count = static_cast<double>(call.row().rows), cols = static_cast<double>(call.row().cols), bytes = std::max(2.0, bytes_of(call.dtype));
  const bool softmax = call.kernel == KernelClass::softmax, backward = call.pass == Pass::bwd, layernorm = call.kernel == KernelClass::layernorm;
  const Rows stream = streamed(cols, bytes), rows = grouped(cols, bytes, backward ? 16 : 32);
  const bool odd = std::fmod(cols, stream.vec) != 0;
  if (softmax && stream.per == 0) return plan_long_softmax(call, device, stream.vec, odd);
  if (softmax && odd) return plan_odd_softmax(call, device, stream);
  if (!softmax && backward) return plan_norm_backward(call, device, rows);
  // One row for each group of a CTA, read once.
  StreamPlan plan;
  const bool single = rows.vec == 1;
  const double weights = softmax ? 0 : layernorm ? 2 : 1, arrays = backward ? 3 : 2;
  plan.shared_bytes = weights * count * cols * bytes;
  plan.conversions = converted(call, arrays * count * cols);
  if (rows.per == 0) {  // two walks over the row, 1024 threads
    take_ctas(plan, device, count, 2);
    plan.trips = 2 * whole(cols / rows.vec, 1024);
    plan.trip_elements = rows.vec / 2, plan.trip_vectors = 1;
    plan.reductions = 2;
    plan.again_bytes = count * cols * bytes;
    if (single) plan.single_accesses = (3 + weights) * count * cols;
    return plan;
  }
  const RowKernel kernel = softmax ? (backward ? RowKernel::softmax_bwd : RowKernel::softmax_fwd) : layernorm ? RowKernel::layernorm_fwd : RowKernel::rmsnorm_fwd;
  const double threads = rows.width * rows.groups, ctas = whole(count, rows.groups), reductions = (softmax && !backward) || layernorm ? 2 : 1;
  take_ctas(plan, device, ctas, resident(device, threads, registers_of(kernel, call.dtype, single, rows.per, false).registers));
  plan.trips = 1;
  const double used = whole(cols / rows.vec, rows.width);
  plan.once_elements = used * rows.vec, plan.once_vectors = used * (single ? 1 + weights : 1);
  plan.padding = rows.width * used * rows.vec / cols;
  plan.reductions = rows.width > kWarp ? reductions : 0;
  plan.shared_loads = weights;
  if (single) plan.single_accesses = (2 + weights) * ctas * threads * rows.per;
  plan.row_warps = ctas * threads / kWarp * reductions;
  return plan;
}

StreamPlan plan_sums(const KernelCall& call, const Device& device) {
  const double rows = static_cast<double>(call.row().rows), cols = static_cast<double>(call.row().cols);
  const double full = kVectorBytes / std::max(2.0, bytes_of(call.dtype)), vec = std::fmod(cols, full) == 0 ? full : 1;
  StreamPlan plan;
  plan.conversions = converted(call, rows * cols);
  if (call.kernel == KernelClass::row_sum) {
    const double vectors = cols / vec, width = vectors <= 256 ? 32 : vectors <= 2048 ? 256 : 1024, groups = width >= 256 ? 1 : 8;
    take_ctas(plan, device, whole(rows, groups), resident(device, width * groups, 20));
    plan.trips = 1 + (whole(vectors, width) - 1) * kSerial;  // the compiler asks for some of a thread's vectors ahead
    plan.trip_elements = vec;
    plan.reductions = width > kWarp ? 1 : 0;
    plan.row_warps = rows * std::max(1.0, width / kWarp);
    return plan;
  }
  // 32 vectors of columns by a share of the rows, 8 rows at a time, 4 in flight; the last CTA of a column adds the shares up, 8 at a time.
  const double column_ctas = whole(cols, 32 * vec), registers = vec == 1 ? 32 : call.dtype == DType::bf16 ? 43 : 40;
  const double splits = std::clamp(whole(device.sms * 8.0, column_ctas), 1.0, std::max(1.0, std::floor(rows / 32)));
  take_ctas(plan, device, column_ctas * splits, resident(device, 256, registers, 8 * 32 * vec * 4));
  plan.trips = whole(rows, splits * 32);
  plan.trip_elements = 4 * vec, plan.trip_vectors = 4;
  plan.reductions = 2;
  plan.tail_loads = splits > 1 ? 2 * whole(splits, 8) : 0;
  return plan;
}

StreamPlan plan_tables(const KernelCall& call, const Device& device) {
  StreamPlan plan;
  const double element = std::max(2.0, bytes_of(call.dtype)), full = kVectorBytes / element;
  if (call.kernel == KernelClass::embedding) {
    const EmbeddingShape& s = call.embedding();
    const double tokens = static_cast<double>(s.tokens), hidden = static_cast<double>(s.hidden);
    const bool forward = call.pass == Pass::fwd;
    const double vec = forward ? (std::fmod(hidden, full) == 0 ? full : 1) : std::fmod(hidden, 4) == 0 ? 4 : 1, vectors = hidden / vec;
    const double width = !forward ? 128 : vectors <= 64 ? 32 : vectors <= 256 ? 64 : 128, ctas = whole(tokens, 256 / width);
    plan.busy_sms = std::min<double>(device.sms, ctas);
    plan.steps = 1 + whole(ctas, device.sms * 8.0) * whole(vectors, width) * kSerial;  // the id is read before the row
    return plan;
  }
  const CrossEntropyShape& s = call.cross_entropy();
  const double tokens = static_cast<double>(s.tokens), vectors = static_cast<double>(s.vocab) / full;
  if (call.pass == Pass::fwd) {
    const double threads = s.vocab >= 4096 ? 512 : s.vocab >= 1024 ? 128 : 64;
    take_ctas(plan, device, tokens, resident(device, threads, 40));
    plan.trips = whole(vectors, 4 * threads);
    plan.trip_elements = 4 * full, plan.trip_vectors = 4;
    plan.reductions = 2;
    plan.conversions = converted(call, 2 * tokens * static_cast<double>(s.vocab));  // a packed element is unpacked for the maximum and for the sum
  } else {
    plan.conversions = converted(call, 2 * tokens * static_cast<double>(s.vocab));
    take_ctas(plan, device, tokens * std::max(1.0, whole(vectors, 1024)), resident(device, 256, 32));
    plan.trips = 1;
    plan.once_vectors = 4, plan.once_elements = 4 * full;
    plan.shared_loads = 1;
  }
  return plan;
}

StreamPlan plan_elements(const KernelCall& call, const Device& device) {
  StreamPlan plan;
  if (call.kernel == KernelClass::optimizer) {
    constexpr double kChunk = 8192, kThreads = 512, kUnrolled = 2 * 4;  // elements of a CTA; its threads; elements that a thread has in flight
    take_ctas(plan, device, whole(static_cast<double>(call.optimizer().numel), kChunk), resident(device, kThreads, 40));
    plan.trips = kChunk / (kThreads * kUnrolled);
    plan.trip_vectors = 8;
    plan.shared_loads = 2;  // the piece, then its tensor
    return plan;
  }
  const PointwiseShape& s = call.pointwise();
  const double element = std::max(2.0, s.kind == PointwiseKind::cast ? std::max(bytes_of(call.dtype), bytes_of(s.to)) : bytes_of(call.dtype));
  const double elements = 2 * kVectorBytes / element;  // of a thread
  const bool plain = s.kind == PointwiseKind::fill || s.kind == PointwiseKind::cast || s.kind == PointwiseKind::rotary;
  plan.chain_elements = plain ? 0 : elements;
  const double ctas = whole(static_cast<double>(s.numel), 256 * elements);
  plan.busy_sms = std::min<double>(device.sms, ctas);
  plan.steps = whole(ctas, device.sms * 6.0);
  plan.reads = s.kind != PointwiseKind::fill;
  return plan;
}

}  // namespace

StreamPlan plan_of(const KernelCall& call, const Device& device) {
  switch (call.kernel) {
    case KernelClass::softmax:
    case KernelClass::layernorm:
    case KernelClass::rmsnorm:
      return plan_rows(call, device);
    case KernelClass::column_sum:
    case KernelClass::row_sum:
      return plan_sums(call, device);
    case KernelClass::embedding:
    case KernelClass::cross_entropy:
      return plan_tables(call, device);
    default:
      return plan_elements(call, device);
  }
}

}  // namespace rooftile
