#include "report/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "report/quantity.h"

namespace rooftile {
namespace {

// Of an operator over all its rows, by the thresholds of a single row: excellent from 80 %, acceptable from 50 %.
Grade grade_for(double utilization) { return utilization >= 0.8 ? Grade::excellent : utilization >= 0.5 ? Grade::acceptable : Grade::danger; }

std::string_view short_name(StepPhase phase) {
  switch (phase) {
    case StepPhase::forward:
      return "fwd";
    case StepPhase::backward:
      return "bwd";
    case StepPhase::recompute:
      return "recomp";
    case StepPhase::optimizer:
      return "optim";
    case StepPhase::communication:
      return "comm";
  }
  return "?";
}

// The operator of a row over all segments, passes and parts: "qkv" for "layer.qkv.dgrad".
std::string_view operator_of(const OpRow& row) {
  std::string_view name = row.name;
  if (row.operator_size > 0 && row.operator_size < name.size()) name = name.substr(0, row.operator_size);
  if (name.size() > row.segment.size() + 1 && name.substr(0, row.segment.size()) == row.segment && name[row.segment.size()] == '.') name.remove_prefix(row.segment.size() + 1);
  return name;
}

struct Gathered {
  OpGroup group;
  std::array<double, 6> bound_s{};
  double bandwidth_graded_s = 0, utilization_s = 0, bandwidth_utilization_s = 0;
  const OpRow* typical = nullptr;
  bool shapes_differ = false;
  std::vector<StepPhase> phases;
};

void gather(Gathered& into, const OpRow& row) {
  OpGroup& group = into.group;
  group.count += row.count;
  group.flops += to_double(row.flops);
  group.bytes += to_double(row.bytes);
  group.time_s += row.time_s;
  // Communication has nothing attainable to compare with: all of its exposed time could be hidden.
  group.recoverable_s += row.phase == StepPhase::communication ? row.time_s : row.recoverable_s();
  into.bound_s[static_cast<std::size_t>(row.bound)] += row.time_s;
  into.utilization_s += row.utilization * row.time_s;
  into.bandwidth_utilization_s += row.bandwidth_utilization * row.time_s;
  if (row.graded_by_bandwidth) into.bandwidth_graded_s += row.time_s;
  if (row.phase == StepPhase::communication) group.graded = false;
  if (into.phases.empty()) group.confidence = row.confidence;
  group.confidence = std::max(group.confidence, row.confidence);
  if (std::find(into.phases.begin(), into.phases.end(), row.phase) == into.phases.end()) into.phases.push_back(row.phase);
  const auto better = [&] {
    if (into.typical == nullptr) return true;
    const bool forward = row.phase == StepPhase::forward, had_forward = into.typical->phase == StepPhase::forward;
    return forward != had_forward ? forward : row.time_s > into.typical->time_s;
  };
  if (into.typical != nullptr && row.phase == into.typical->phase && !(row.call.shape == into.typical->call.shape)) into.shapes_differ = true;
  if (better()) into.typical = &row;
}

OpGroup finish(Gathered& gathered, double step_s) {
  OpGroup group = std::move(gathered.group);
  const double time_s = group.time_s;
  group.share = step_s > 0 ? time_s / step_s : 0;
  group.intensity = group.bytes > 0 ? group.flops / group.bytes : 0;
  group.utilization = time_s > 0 ? gathered.utilization_s / time_s : 0;
  group.bandwidth_utilization = time_s > 0 ? gathered.bandwidth_utilization_s / time_s : 0;
  group.bound = static_cast<Bound>(std::max_element(gathered.bound_s.begin(), gathered.bound_s.end()) - gathered.bound_s.begin());
  group.graded_by_bandwidth = gathered.bandwidth_graded_s > time_s / 2;
  group.grade = grade_for(group.graded_by_bandwidth ? group.bandwidth_utilization : group.utilization);
  group.shape = short_shape(gathered.typical->call) + (gathered.shapes_differ ? " +" : "");
  group.kernel = gathered.typical->kernel;
  for (const StepPhase phase : gathered.phases) group.phases += (group.phases.empty() ? "" : "+") + std::string(short_name(phase));
  return group;
}

std::vector<OpGroup> group_rows(const Prediction& prediction, Grouping grouping) {
  std::set<std::string_view> names;
  for (const OpRow& row : prediction.rows) names.insert(operator_of(row));
  // An imported graph may have hundreds of names: then equal work is put together instead of equal names.
  const bool by_work = grouping == Grouping::op && names.size() > 60;
  std::map<std::string, Gathered> by_key;
  std::vector<Gathered*> order;
  for (const OpRow& row : prediction.rows) {
    std::string key;
    std::string name;
    switch (grouping) {
      case Grouping::none:
        name = row.name;
        key = fmt::format("{}", order.size());
        break;
      case Grouping::phase:
        name = operator_of(row);
        key = fmt::format("{}/{}", name, static_cast<int>(row.phase));
        break;
      case Grouping::op:
        name = by_work ? std::string(name_of(row.op)) : std::string(operator_of(row));
        key = by_work && row.phase == StepPhase::forward ? name + short_shape(row.call) : name;
        break;
    }
    const auto [place, fresh] = by_key.try_emplace(key);
    if (fresh) {
      place->second.group.name = printable(name);
      order.push_back(&place->second);
    }
    gather(place->second, row);
  }
  std::vector<OpGroup> groups;
  for (Gathered* gathered : order) groups.push_back(finish(*gathered, prediction.totals.step_time_s));
  const auto rank = [](const OpGroup& group) { return group.recoverable_s; };
  std::stable_sort(groups.begin(), groups.end(), [&](const OpGroup& a, const OpGroup& b) { return rank(a) != rank(b) ? rank(a) > rank(b) : a.time_s > b.time_s; });
  return groups;
}

std::string_view words_of(Loss loss) {
  switch (loss) {
    case Loss::tile_padding:
      return "tile padding";
    case Loss::wave_tail:
      return "wave tails";
    case Loss::alignment:
      return "alignment";
    case Loss::latency:
      return "latency";
    case Loss::cache:
      return "cache";
    case Loss::memory:
      return "memory traffic";
    case Loss::clock:
      return "clock below peak";
    case Loss::launch:
      return "launches";
  }
  return "?";
}

// The step from the ideal to what is predicted. Matmuls at the data-sheet peak are the model FLOPs, so their share is the MFU; the rest of the peak time is what a perfect GPU
// would still spend on everything else at full bandwidth.
std::vector<TimePart> time_parts(const Prediction& prediction) {
  using Place = TimePart::Place;
  const Totals& totals = prediction.totals;
  double peak_s = 0;
  std::array<double, kLosses> losses{};
  for (const OpRow& row : prediction.rows) {
    if (row.phase == StepPhase::communication) continue;
    double lost_s = 0;
    for (std::size_t i = 0; i < kLosses; ++i) {
      losses[i] += row.loss_s[i];
      lost_s += row.loss_s[i];
    }
    peak_s += row.time_s - lost_s;
  }
  const double model_s = std::min(totals.mfu * totals.step_time_s, peak_s);
  std::vector<TimePart> parts = {{"model FLOPs (the MFU)", model_s, Place::peak}, {"other work at full speed", peak_s - model_s, Place::peak}};
  for (std::size_t i = 0; i < kLosses; ++i) parts.push_back({words_of(static_cast<Loss>(i)), losses[i], Place::inside});
  parts.push_back({"exposed communication", totals.exposed_communication_time_s, Place::between});
  parts.push_back({"pipeline bubble", totals.bubble_time_s, Place::between});
  parts.push_back({"launch gaps", totals.launch_gap_time_s, Place::between});
  parts.push_back({"waiting for the host", totals.host_bound_time_s, Place::between});
  std::stable_sort(parts.begin() + 2, parts.end(), [](const TimePart& a, const TimePart& b) { return a.seconds > b.seconds; });
  return parts;
}

std::string bottleneck_of(const Prediction& prediction, const std::vector<OpGroup>& groups) {
  const Totals& totals = prediction.totals;
  const double step_s = totals.step_time_s;
  if (step_s <= 0) return "nothing to do: the step takes no time";
  std::array<double, 6> bound_s{};
  for (const OpRow& row : prediction.rows) bound_s[static_cast<std::size_t>(row.bound)] += row.time_s;
  const auto widest = std::max_element(bound_s.begin(), bound_s.end());
  const double share = *widest / step_s;
  if (totals.host_bound_time_s > *widest) return fmt::format("the host: {} of the step the GPU waits for kernels to be launched", percent(totals.host_bound_time_s / step_s));
  if (totals.bubble_time_s > *widest) return fmt::format("the pipeline bubble: {} of the step", percent(totals.bubble_time_s / step_s));
  const auto bound = static_cast<Bound>(widest - bound_s.begin());
  std::vector<const OpGroup*> most;
  for (const OpGroup& group : groups) {
    if (group.bound == bound) most.push_back(&group);
  }
  std::stable_sort(most.begin(), most.end(), [](const OpGroup* a, const OpGroup* b) { return a->time_s > b->time_s; });
  if (most.size() > 3) most.resize(3);
  std::string where;
  double reached_s = 0, most_s = 0;
  for (const OpGroup* group : most) {
    where += fmt::format("{} {} {}", where.empty() ? ", most in" : ",", group->name, percent(group->share));
    most_s += group->time_s;
    reached_s += group->time_s * (bound == Bound::compute ? group->utilization : group->bandwidth_utilization);
  }
  if (most_s > 0 && (bound == Bound::compute || bound == Bound::dram))
    where += fmt::format(" at {} of peak {}", percent(reached_s / most_s), bound == Bound::compute ? "FLOP/s" : "bandwidth");
  std::string_view what;
  switch (bound) {
    case Bound::compute:
      what = "compute: {} of the time is bound by the arithmetic units{}";
      break;
    case Bound::dram:
      what = "memory bandwidth: {} of the time waits for DRAM{}";
      break;
    case Bound::l2:
      what = "L2 cache bandwidth: {} of the time waits for it{}";
      break;
    case Bound::latency:
      what = "latency: {} of the time is in operators too small to fill the GPU{}";
      break;
    case Bound::launch:
      what = "kernel launches: {} of the time is in operators as short as their launch{}";
      break;
    case Bound::communication:
      what = "communication: {} of the time is exposed communication{}";
      break;
  }
  return fmt::format(fmt::runtime(what), percent(share), where);
}

std::vector<std::string> settings_of(const Prediction& prediction) {
  const Options& options = prediction.options;
  const Layout& layout = options.layout;
  std::vector<std::string> out;
  const auto add = [&](std::string_view name, auto value) { out.push_back(fmt::format("{} {}", name, value)); };
  out.emplace_back(name_of(options.phase));
  add("mbs", options.mbs);
  add("gbs", options.gbs > 0 ? options.gbs : options.mbs * layout.dp);
  add("seq", options.seq);
  if (options.context > 0 || options.phase == Phase::decode) add("context", options.context);
  add("gpus", layout.gpus);
  if (layout.gpus > 1) {
    const auto degree = [&](std::string_view name, std::int64_t value) {
      if (value > 1) add(name, value);
    };
    add("gpus-per-node", layout.gpus_per_node);
    degree("tp", layout.tp);
    if (layout.sp) out.emplace_back("sp");
    degree("pp", layout.pp);
    degree("vpp", layout.vpp);
    degree("cp", layout.cp);
    degree("ep", layout.ep);
    if (layout.ep > 1) degree("etp", layout.expert_tp());
    add("dp", layout.dp);
    if (layout.pp > 1) add("pp-schedule", name_of(layout.schedule));
    if (layout.dp_shard > 0 && layout.dp_shard != layout.dp * layout.cp) add("dp-shard", layout.dp_shard);
    add("zero", layout.zero);
    if (layout.overlap_grad_reduce) out.emplace_back("overlap-grad-reduce");
    if (layout.overlap_param_gather) out.emplace_back("overlap-param-gather");
    if (!prediction.cluster.empty()) add("cluster", printable(prediction.cluster));
  }
  add("dtype", name_of(options.dtype));
  add("precision", name_of(options.precision));
  add("runtime", printable(prediction.runtime));
  add("attention", options.attention == AttentionKernel::fastest ? std::string_view("auto") : name_of(options.attention));
  if (options.phase == Phase::train) {
    add("optimizer", name_of(options.optimizer));
    add("recompute", name_of(options.recompute));
  }
  if (options.cuda_graphs) out.emplace_back("cuda-graphs");
  add("clocks", name_of(options.clocks));
  add("mode", name_of(options.mode));
  return out;
}

}  // namespace

std::string short_shape(const KernelCall& call) {
  switch (call.kernel) {
    case KernelClass::gemm: {
      const GemmShape& gemm = call.gemm();
      return (gemm.batch > 1 ? fmt::format("{}*", gemm.batch) : "") + fmt::format("{}x{}x{}", gemm.m, gemm.n, gemm.k);
    }
    case KernelClass::attention: {
      const AttentionShape& a = call.attention();
      const std::string heads = a.kv_heads == a.heads ? fmt::format("{}", a.heads) : fmt::format("{}/{}", a.heads, a.kv_heads);
      const std::string seq = a.seq_q == a.seq_kv ? fmt::format("{}", a.seq_q) : fmt::format("{}/{}", a.seq_q, a.seq_kv);
      return fmt::format("b{} h{} s{} d{}", a.batch, heads, seq, a.head_dim);
    }
    case KernelClass::softmax:
    case KernelClass::layernorm:
    case KernelClass::rmsnorm:
    case KernelClass::column_sum:
    case KernelClass::row_sum:
      return fmt::format("{}x{}", call.row().rows, call.row().cols);
    case KernelClass::pointwise:
      return fmt::format("{}", call.pointwise().numel);
    case KernelClass::embedding:
      return fmt::format("{} of {}", call.embedding().tokens, call.embedding().vocab);
    case KernelClass::cross_entropy:
      return fmt::format("{}x{}", call.cross_entropy().tokens, call.cross_entropy().vocab);
    case KernelClass::optimizer:
      return fmt::format("{}", call.optimizer().numel);
    case KernelClass::collective:
      return fmt::format("{} x{}", human(static_cast<double>(call.collective().bytes), "B"), call.collective().ranks);
  }
  return "";
}

Summary summarize(const Prediction& prediction, Grouping grouping) {
  Summary summary;
  summary.groups = group_rows(prediction, grouping);
  summary.parts = time_parts(prediction);
  summary.bottleneck = bottleneck_of(prediction, summary.groups);
  summary.model_line = fmt::format("{}, {} parameters", printable(prediction.model.name), human_count(to_double(prediction.parameters)));
  if (prediction.parameters_active != prediction.parameters && prediction.parameters_active > 0)
    summary.model_line += fmt::format(" ({} active per token)", human_count(to_double(prediction.parameters_active)));
  summary.device_line = fmt::format("{} ({} {}, {})", printable(prediction.device_name), human(prediction.peak_flops, "FLOP/s"), name_of(prediction.options.dtype),
                                    human(prediction.peak_bandwidth, "B/s"));
  summary.settings = settings_of(prediction);
  return summary;
}

}  // namespace rooftile
