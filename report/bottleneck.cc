#include "report/bottleneck.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "estimator/core/checked.h"
#include "report/quantity.h"

namespace rooftile {
namespace {

// What a row waits for, in the words of a reader: L2 feeds matmuls, so a matmul that waits for it is a matmul problem.
enum class Limit : std::uint8_t { arithmetic, bandwidth, small, communication };
constexpr std::size_t kLimits = 4;

bool is_math(const OpRow& row) { return row.call.kernel == KernelClass::gemm || row.call.kernel == KernelClass::attention; }

Limit limit_of(const OpRow& row) {
  switch (row.bound) {
    case Bound::compute:
      return Limit::arithmetic;
    case Bound::l2:
      return is_math(row) ? Limit::arithmetic : Limit::bandwidth;
    case Bound::dram:
      return Limit::bandwidth;
    case Bound::latency:
    case Bound::launch:
      return Limit::small;
    case Bound::communication:
      return Limit::communication;
  }
  return Limit::arithmetic;
}

std::string_view words_of(Loss loss) {
  switch (loss) {
    case Loss::tile_padding:
      return "tile padding";
    case Loss::wave_tail:
      return "idle SMs in last waves";
    case Loss::alignment:
      return "unaligned sizes";
    case Loss::latency:
      return "kernel start and drain";
    case Loss::cache:
      return "L2 cache";
    case Loss::memory:
      return "extra memory traffic";
    case Loss::clock:
      return "clock below the data sheet";
    case Loss::launch:
      return "kernel launches";
  }
  return "?";
}

// "gate+up+down 49.2 %, attention 8.3 %": the groups with most time among the rows of one limit.
std::string most_of(const std::vector<OpGroup>& groups, Limit limit, double step_s) {
  std::vector<std::pair<double, std::string_view>> most;
  for (const OpGroup& group : groups) {
    double seconds = 0;
    for (const OpRow* row : group.rows) seconds += limit_of(*row) == limit ? row->time_s : 0;
    if (seconds > 0.01 * step_s) most.emplace_back(seconds, group.name);
  }
  std::stable_sort(most.begin(), most.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  if (most.size() > 3) most.resize(3);
  std::string text;
  for (const auto& [seconds, name] : most) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, percent(seconds / step_s));
  return text;
}

// Vector loads of tensor core operands are 16 bytes wide; rows whose size is no multiple of that are loaded in smaller pieces.
struct Misaligned {
  std::string name;
  double seconds = 0;
  std::int64_t size = 0;
  bool vocabulary = false;
  DType dtype = DType::bf16;
};

Misaligned worst_alignment(const Prediction& prediction, const std::vector<OpGroup>& groups) {
  Misaligned worst;
  for (const OpGroup& group : groups) {
    double seconds = 0;
    const OpRow* longest = nullptr;
    for (const OpRow* row : group.rows) {
      const double lost_s = row->loss_s[static_cast<std::size_t>(Loss::alignment)];
      seconds += lost_s;
      if (row->call.kernel == KernelClass::gemm && lost_s > 0 && (longest == nullptr || lost_s > longest->loss_s[static_cast<std::size_t>(Loss::alignment)])) longest = row;
    }
    if (longest == nullptr || seconds <= worst.seconds) continue;
    const GemmShape& gemm = longest->call.gemm();
    const auto power = [](std::int64_t size) { return size & -size; };  // the largest power of two in it
    const std::int64_t size = std::min({gemm.m, gemm.n, gemm.k}, [&](std::int64_t a, std::int64_t b) { return power(a) < power(b); });
    worst = {group.name, seconds, size, size == prediction.model.vocab, longest->call.dtype};
  }
  return worst;
}

std::string alignment_line(const Misaligned& worst, double step_s) {
  const std::int64_t padded = round_up(worst.size, 64);
  const std::string what = fmt::format("{} {}", worst.vocabulary ? "vocabulary" : "size", worst.size);
  const std::string why = worst.size % 2 != 0 ? fmt::format("{} is odd", what) : fmt::format("{} is no multiple of {}", what, static_cast<int>(16 / bytes_of(worst.dtype)));
  return fmt::format("{}, slowed by alignment: its {}, which costs {} ({} of the step); pad it to {}{}", worst.name, why, human(worst.seconds, "s"),
                     percent(worst.seconds / step_s), padded, worst.vocabulary ? fmt::format(" (vocab: {} in the model's YAML)", padded) : "");
}

}  // namespace

// Matmuls at the data-sheet peak are the model FLOPs, so their share is the MFU; the rest of the peak time is what a perfect GPU would still spend on everything else.
std::vector<TimePart> time_parts(const Prediction& prediction) {
  const Totals& totals = prediction.totals;
  double peak_s = 0, optimizer_s = 0, recompute_s = 0;
  std::array<double, kLosses> losses{};
  for (const OpRow& row : prediction.rows) {
    if (row.phase == StepPhase::communication) continue;
    double lost_s = 0;
    for (std::size_t i = 0; i < kLosses; ++i) {
      losses[i] += row.loss_s[i];
      lost_s += row.loss_s[i];
    }
    peak_s += row.time_s - lost_s;
    if (row.phase == StepPhase::optimizer) optimizer_s += row.time_s - lost_s;
    if (row.phase == StepPhase::recompute) recompute_s += row.time_s - lost_s;
  }
  const double model_s = std::min(totals.mfu * totals.step_time_s, peak_s - optimizer_s - recompute_s);
  std::vector<TimePart> parts = {{"model arithmetic at the data-sheet peak (= MFU)", model_s, true},
                                 {"optimizer at full memory bandwidth", optimizer_s, true},
                                 {"recomputation at the peak", recompute_s, true},
                                 {"memory traffic at full bandwidth, and other work at the peak", peak_s - model_s - optimizer_s - recompute_s, true}};
  for (std::size_t i = 0; i < kLosses; ++i) parts.push_back({words_of(static_cast<Loss>(i)), losses[i]});
  parts.push_back({"exposed communication", totals.exposed_communication_time_s});
  parts.push_back({"pipeline bubble", totals.bubble_time_s});
  parts.push_back({"gaps between kernels", totals.launch_gap_time_s});
  parts.push_back({"waiting for the host", totals.host_bound_time_s});
  std::stable_sort(parts.begin() + 4, parts.end(), [](const TimePart& a, const TimePart& b) { return a.seconds > b.seconds; });
  return parts;
}

Bottleneck bottleneck_of(const Prediction& prediction, const std::vector<OpGroup>& groups) {
  const Totals& totals = prediction.totals;
  const double step_s = totals.step_time_s;
  if (step_s <= 0) return {"nothing", {"nothing to do: the step takes no time"}};
  std::array<double, kLimits> limit_s{};
  for (const OpRow& row : prediction.rows) limit_s[static_cast<std::size_t>(limit_of(row))] += row.time_s;
  const auto widest = std::max_element(limit_s.begin(), limit_s.end());
  Bottleneck out;
  const Misaligned misaligned = worst_alignment(prediction, groups);
  if (misaligned.seconds > 0.1 * step_s) out = {"alignment", {alignment_line(misaligned, step_s)}};
  const auto add = [&](std::string_view word, std::string line) {
    if (out.word.empty()) out.word = word;
    out.lines.push_back(std::move(line));
  };
  const double idle_s = totals.host_bound_time_s + totals.launch_gap_time_s;
  if (idle_s > *widest) {
    add("the host", fmt::format("the host: {} of the step the GPU waits for kernels to be launched", percent(idle_s / step_s)));
  } else if (totals.bubble_time_s > *widest) {
    add("pipeline bubble", fmt::format("the pipeline bubble: {} of the step; it shrinks with more micro-batches (--gbs) or --vpp", percent(totals.bubble_time_s / step_s)));
  } else {
    const auto limit = static_cast<Limit>(widest - limit_s.begin());
    double reached = 0;
    for (const OpRow& row : prediction.rows) {
      if (limit_of(row) == limit) reached += (limit == Limit::arithmetic ? row.utilization : row.bandwidth_utilization) * row.time_s;
    }
    const std::string share = percent(*widest / step_s), most = most_of(groups, limit, step_s), of_which = most.empty() ? "" : " (" + most + ")";
    switch (limit) {
      case Limit::arithmetic:
        add("arithmetic", fmt::format("matmuls, limited by arithmetic: {} of the step{}; together they reach {} of the peak FLOP/s", share, of_which, percent(reached / *widest)));
        break;
      case Limit::bandwidth:
        add("memory bandwidth", fmt::format("memory bandwidth: {} of the step{} waits for it; together {} of the peak bandwidth", share, of_which, percent(reached / *widest)));
        break;
      case Limit::small:
        add("small kernels", fmt::format("small kernels: {} of the step{} is in kernels as short as their start; larger batches or CUDA graphs help", share, of_which));
        break;
      case Limit::communication:
        add("communication", fmt::format("communication: {} of the step{} is communication that nothing hides", share, of_which));
        break;
    }
  }
  if (out.word != "alignment" && misaligned.seconds > 0.02 * step_s) out.lines.push_back(alignment_line(misaligned, step_s));
  if (prediction.options.phase == Phase::train && prediction.options.micro_batches() == 1 && totals.optimizer_time_s > 0.1 * step_s)
    out.lines.push_back(
        fmt::format("the optimizer is {} of the step because the step is one micro-batch; its share shrinks with --gbs", percent(totals.optimizer_time_s / step_s)));
  return out;
}

}  // namespace rooftile
