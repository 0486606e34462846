#include "estimator/timing/stream_plan.h"

#include <algorithm>
#include <cmath>

#include "estimator/core/checked.h"
#include "estimator/core/dtype.h"

namespace rooftile {
namespace {

constexpr double kVectorBytes = 16, kWarp = 32;
constexpr double kThreadsPerSm = 2048, kCtasPerSm = 32;

constexpr double kSerial = 0.65;  // share of a round that the next one waits for, in loops whose loads are not all asked for before the first is used

double whole(double a, double b) { return std::ceil(a / b); }

double resident(const Device& device, double threads, double registers) {
  const double by_threads = std::floor(kThreadsPerSm / threads), by_registers = std::floor(device.registers_per_sm / (threads * registers));
  return std::clamp(std::min(by_threads, by_registers), 1.0, kCtasPerSm);
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

// One round for each set of rows that are resident at once.
void take_rows(StreamPlan& plan, const Device& device, const Rows& rows, double count, double ctas_per_sm) {
  const double ctas = whole(count, rows.groups);
  plan.busy_sms = std::min<double>(device.sms, ctas);
  plan.steps = whole(ctas, device.sms * ctas_per_sm);
  plan.row_warps = count * std::max(1.0, rows.width / kWarp);
  plan.chain_elements = rows.per * rows.vec;
}

StreamPlan plan_rows(const KernelCall& call, const Device& device) {
  const double count = static_cast<double>(call.row().rows), cols = static_cast<double>(call.row().cols), bytes = std::max(2.0, bytes_of(call.dtype));
  const bool softmax = call.kernel == KernelClass::softmax, backward = call.pass == Pass::bwd, layernorm = call.kernel == KernelClass::layernorm;
  const double row_bytes = cols * bytes, matrix = count * row_bytes;
  StreamPlan plan;
  const Rows stream = streamed(cols, bytes);
  const bool odd = std::fmod(cols, stream.vec) != 0;
  if (softmax && stream.per == 0) {  // a CTA of 512 threads for each row, kept in shared memory while it fits
    const double arrays = backward ? 2 : 1, kept = arrays * row_bytes, at_once = backward ? 2 : 4;
    const bool fits = kept + 1024 <= device.shared_memory_per_sm - 1024;
    const double ctas = fits ? std::clamp(std::floor(device.shared_memory_per_sm / kept), 1.0, 2.0) : 2;
    plan.busy_sms = std::min<double>(device.sms, count);
    plan.steps = whole(count, device.sms * ctas) * (whole(row_bytes / kVectorBytes, 512 * at_once) * (fits ? 1 : 2) + 1);
    plan.again_bytes = fits ? 0 : arrays * matrix;
    return plan;
  }
  Rows rows = grouped(cols, bytes, backward ? 16 : 32);
  if (softmax) {
    const Rows& taken = odd ? stream : rows;
    take_rows(plan, device, taken, count, resident(device, taken.width * taken.groups, 64));
    if (odd) plan.single_accesses = (backward ? 3 : 2) * count * cols / 2;  // vectors, but masked
    return plan;
  }
  if (!backward) {
    if (rows.per == 0) {  // two walks over the row
      plan.busy_sms = std::min<double>(device.sms, count);
      plan.steps = whole(count, device.sms * 2.0) * 2 * whole(cols / rows.vec, 1024);
      plan.again_bytes = matrix;
      if (rows.vec == 1) plan.single_accesses = 3 * count * cols;
      return plan;
    }
    take_rows(plan, device, rows, count, resident(device, rows.width * rows.groups, 64));
    if (rows.vec == 1) plan.single_accesses = 2 * count * cols;
    return plan;
  }
  // Norm backward: resident CTAs walk over their rows and leave sums of columns, which a second kernel adds up, 32 parts at a time.
  if (rows.per == 0) rows.per = 16 / rows.vec, rows.groups = 1;
  while (rows.groups > 1 && rows.groups * cols * 4 > 46 * 1024) rows.groups = std::floor(rows.groups / 2);
  const double ctas_per_sm = std::min(resident(device, rows.width * rows.groups, rows.per * rows.vec >= 16 ? 128 : 80), cols <= 2048 ? 6.0 : cols <= 4096 ? 4.0 : 2.0);
  const double ctas = std::min(whole(count, rows.groups), device.sms * ctas_per_sm);
  plan.busy_sms = std::min<double>(device.sms, ctas);
  plan.steps = whole(whole(count, rows.groups), ctas);
  plan.chain_elements = rows.per * rows.vec;
  const double add_ctas = whole(cols, 32) * (layernorm ? 2 : 1);
  plan.second_steps = whole(add_ctas, device.sms * 2.0);
  plan.partial_sums = (layernorm ? 2 : 1) * cols * std::sqrt(ctas) * rows.vec / 8;
  plan.row_warps = count * std::max(1.0, rows.width / kWarp);
  plan.one_after_other = rows.width * rows.groups > 512 || rows.vec == 1;
  if (rows.vec == 1) plan.single_accesses = 3 * count * cols;
  return plan;
}

StreamPlan plan_sums(const KernelCall& call, const Device& device) {
  const double rows = static_cast<double>(call.row().rows), cols = static_cast<double>(call.row().cols);
  const double full = kVectorBytes / std::max(2.0, bytes_of(call.dtype)), vec = std::fmod(cols, full) == 0 ? full : 1;
  StreamPlan plan;
  if (call.kernel == KernelClass::row_sum) {
    const double vectors = cols / vec, width = vectors <= 256 ? 32 : vectors <= 2048 ? 256 : 1024, groups = width >= 256 ? 1 : 8;
    const double ctas = whole(rows, groups);
    plan.busy_sms = std::min<double>(device.sms, ctas);
    plan.steps = 1 + (whole(ctas, device.sms * resident(device, width * groups, 32)) * whole(vectors, width) - 1) * kSerial;
    return plan;
  }
  // 32 vectors of columns by a share of the rows, 8 rows at a time, 4 in flight; the last CTA of a column adds the shares up.
  const double column_ctas = whole(cols, 32 * vec);
  const double splits = std::clamp(whole(device.sms * 8.0, column_ctas), 1.0, std::max(1.0, std::floor(rows / 32)));
  plan.busy_sms = std::min<double>(device.sms, column_ctas * splits);
  plan.steps = whole(rows, splits * 32) * whole(column_ctas * splits, device.sms * 8.0) + (splits > 1 ? 1 + whole(splits, 32) : 0);
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
    plan.busy_sms = std::min<double>(device.sms, tokens);
    plan.steps = whole(tokens, device.sms * 3.0) * (whole(vectors, 4 * 512) + 1);
  } else {
    const double ctas = tokens * std::max(1.0, whole(vectors, 1024));
    plan.busy_sms = std::min<double>(device.sms, ctas);
    plan.steps = 1 + whole(ctas, device.sms * 8.0);
  }
  return plan;
}

StreamPlan plan_elements(const KernelCall& call, const Device& device) {
  StreamPlan plan;
  if (call.kernel == KernelClass::optimizer) {
    constexpr double kChunk = 8192, kThreads = 512, kUnrolled = 2 * 4;  // elements of a CTA; its threads; elements that a thread has in flight
    const double ctas = whole(static_cast<double>(call.optimizer().numel), kChunk);
    plan.busy_sms = std::min<double>(device.sms, ctas);
    plan.steps = 1 + whole(ctas, device.sms * 2.0) * (kChunk / (kThreads * kUnrolled));
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
