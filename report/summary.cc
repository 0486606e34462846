#include "report/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "report/bottleneck.h"
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
  std::vector<const OpRow*> rows;
  std::vector<std::string> names;  // of the operators put together
};

// Kernels that do the same work: a matmul in any order of its sizes, equal rows, equal elements. Empty: like no other.
std::string work_key(const KernelCall& call) {
  switch (call.kernel) {
    case KernelClass::gemm: {
      const GemmShape& gemm = call.gemm();
      std::array<std::int64_t, 3> sizes = {gemm.m, gemm.n, gemm.k};
      std::sort(sizes.begin(), sizes.end());
      return fmt::format("gemm {} {} {} {} {}", gemm.batch, sizes[0], sizes[1], sizes[2], name_of(call.dtype));
    }
    case KernelClass::layernorm:
    case KernelClass::rmsnorm:
      return fmt::format("{} {} {}", name_of(call.kernel), call.row().rows, call.row().cols);
    case KernelClass::pointwise:
      return fmt::format("{} {}", name_of(call.pointwise().kind), call.pointwise().numel);
    default:
      return {};
  }
}

// "gate+up+down", "shared_gate+up", "norms", "residuals": short, and it still says who is in it.
std::string joined_name(const std::vector<std::string>& names) {
  if (names.size() == 1) return names[0];
  const auto all = [&](const auto& test) { return std::all_of(names.begin(), names.end(), test); };
  if (all([](const std::string& name) { return name.size() > 5 && name.substr(name.size() - 5) == "_norm"; })) return "norms";
  if (all([](const std::string& name) { return name.rfind("residual", 0) == 0; })) return "residuals";
  std::string out = names[0];
  const std::size_t underscore = names[0].find('_');
  const std::string prefix = underscore == std::string::npos ? "" : names[0].substr(0, underscore + 1);
  const bool shared = !prefix.empty() && all([&](const std::string& name) { return name.rfind(prefix, 0) == 0; });
  for (std::size_t i = 1; i < names.size(); ++i) out += "+" + names[i].substr(shared ? prefix.size() : 0);
  return out.size() <= 24 ? out : fmt::format("{}+{} alike", names[0], names.size() - 1);
}

void gather(Gathered& into, const OpRow& row) {
  OpGroup& group = into.group;
  into.rows.push_back(&row);
  group.count += row.count;
  group.flops += to_double(row.flops);
  group.bytes += to_double(row.bytes);
  group.time_s += row.time_s;
  group.duration_s += row.duration_s;
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
  if (into.typical != nullptr && row.phase == into.typical->phase && !(row.call.shape == into.typical->call.shape)) {
    const std::string work = work_key(row.call);
    into.shapes_differ |= work.empty() || work != work_key(into.typical->call);
  }
  if (better()) into.typical = &row;
}

OpGroup finish(Gathered& gathered, double step_s) {
  OpGroup group = std::move(gathered.group);
  group.name = joined_name(gathered.names);
  group.rows = std::move(gathered.rows);
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

// Operators of the same work in the same phases become one line under a joined name: gate, up and down; the norms; the residuals.
void merge_alike(std::vector<Gathered*>& order) {
  std::map<std::string, Gathered*> first;
  std::vector<Gathered*> kept;
  for (Gathered* gathered : order) {
    std::string key = gathered->shapes_differ ? std::string() : work_key(gathered->typical->call);
    // An addition in the embedding is no residual.
    if (gathered->typical->call.kernel == KernelClass::pointwise && !key.empty()) key += "/" + gathered->typical->segment;
    for (const StepPhase phase : gathered->phases) key += key.empty() ? "" : fmt::format("/{}", static_cast<int>(phase));
    Gathered*& same = first[key];
    if (key.empty() || same == nullptr) {
      same = gathered;
      kept.push_back(gathered);
      continue;
    }
    for (const OpRow* row : gathered->rows) gather(*same, *row);
    same->names.insert(same->names.end(), gathered->names.begin(), gathered->names.end());
  }
  order = std::move(kept);
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
      place->second.names.push_back(printable(name));
      order.push_back(&place->second);
    }
    gather(place->second, row);
  }
  if (grouping == Grouping::op && !by_work) merge_alike(order);
  std::vector<OpGroup> groups;
  for (Gathered* gathered : order) groups.push_back(finish(*gathered, prediction.totals.step_time_s));
  const auto rank = [](const OpGroup& group) { return group.recoverable_s; };
  std::stable_sort(groups.begin(), groups.end(), [&](const OpGroup& a, const OpGroup& b) { return rank(a) != rank(b) ? rank(a) > rank(b) : a.time_s > b.time_s; });
  return groups;
}

std::vector<std::string> settings_of(const Prediction& prediction) {
  const Options& options = prediction.options;
  const Layout& layout = options.layout;
  std::vector<std::string> out;
  const auto add = [&](std::string_view name, auto value) { out.push_back(fmt::format("{} {}", name, value)); };
  out.emplace_back(name_of(options.phase));
  add("mbs", options.mbs);
  add("gbs", options.gbs > 0 ? options.gbs : options.mbs * layout.dp);
  if (options.phase != Phase::decode) add("seq", options.seq);
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
  add("runtime", printable(prediction.runtime) + (prediction.runtime == "fused" ? " (best case)" : ""));
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

namespace {

// "58.7 M", "8.03 G": elements of a flat kernel.
std::string elements(std::int64_t count) { return human(static_cast<double>(count), ""); }

}  // namespace

std::string short_shape(const KernelCall& call) {
  switch (shape_of(call.kernel)) {
    case ShapeKind::gemm: {
      const GemmShape& gemm = call.gemm();
      return (gemm.batch > 1 ? fmt::format("{}*", gemm.batch) : "") + fmt::format("{}x{}x{}", gemm.m, gemm.n, gemm.k);
    }
    case ShapeKind::attention: {
      const AttentionShape& a = call.attention();
      const std::string heads = a.kv_heads == a.heads ? fmt::format("{}", a.heads) : fmt::format("{}/{}", a.heads, a.kv_heads);
      const std::string seq = a.seq_q == a.seq_kv ? fmt::format("{}", a.seq_q) : fmt::format("{}/{}", a.seq_q, a.seq_kv);
      return fmt::format("{}*{}x{}x{}", a.batch, heads, seq, a.head_dim);
    }
    case ShapeKind::row:
      return fmt::format("{}x{}", call.row().rows, call.row().cols);
    case ShapeKind::pointwise:
      return elements(call.pointwise().numel);
    case ShapeKind::embedding:
      return fmt::format("{} of {}", call.embedding().tokens, call.embedding().vocab);
    case ShapeKind::cross_entropy:
      return fmt::format("{}x{}", call.cross_entropy().tokens, call.cross_entropy().vocab);
    case ShapeKind::optimizer:
      return elements(call.optimizer().numel);
    case ShapeKind::collective:
      return fmt::format("{} x{}", human(static_cast<double>(call.collective().bytes), "B"), call.collective().ranks);
  }
  return "";
}

Summary summarize(const Prediction& prediction, Grouping grouping) {
  Summary summary;
  summary.groups = group_rows(prediction, grouping);
  summary.parts = time_parts(prediction);
  const Bottleneck bottleneck = bottleneck_of(prediction, summary.groups);
  summary.bottleneck = bottleneck.word;
  summary.bottleneck_lines = bottleneck.lines;
  summary.model_line = fmt::format("{} ({} parameters", printable(prediction.model.name), human_count(to_double(prediction.parameters)));
  if (prediction.parameters_active != prediction.parameters && prediction.parameters_active > 0)
    summary.model_line += fmt::format(", {} active per token", human_count(to_double(prediction.parameters_active)));
  summary.model_line += "), " + std::string(prediction.options.phase == Phase::train ? "training step" : name_of(prediction.options.phase));
  summary.device_line = fmt::format("{} x {} ({} {}, {})", prediction.options.layout.gpus, printable(prediction.device_name), human(prediction.peak_flops, "FLOP/s"),
                                    name_of(prediction.options.dtype), human(prediction.peak_bandwidth, "B/s"));
  summary.settings = settings_of(prediction);
  return summary;
}

}  // namespace rooftile
