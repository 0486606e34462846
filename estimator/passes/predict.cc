#include "estimator/passes/predict.h"

#include <algorithm>
#include <cmath>

#include "estimator/passes/host_queue.h"
#include "estimator/passes/interval.h"
#include "estimator/passes/schedule.h"
#include "estimator/passes/step.h"

namespace rooftile {
namespace {

constexpr double kExcellent = 0.8, kAcceptable = 0.5;  // the grades' thresholds

struct StageResult {
  Stage stage;
  StepGraph rank;
  std::vector<LoweredCall> calls;
  std::vector<const KernelTime*> times;
  std::vector<KernelTime> slowed;  // times of kernels that a power limit slows, where it acts
  StageTime time;
  MemoryTotals memory;
};

// A step under the power limit: what computes runs slower, by how much the step's own mix says; optimizer and communication wait for memory and links.
void slow_down(StageResult& stage, const Options& options, const Runtime& runtime, KernelTimer& timer) {
  const StageTime& time = stage.time;
  const double computing = time.forward_s + time.backward_s + time.recompute_s;
  const double others = time.optimizer_s + time.communication_s + time.launch_gap_s + time.host_bound_s + pipeline_bubble(options.layout, time.per_micro_batch_s);
  const double slowdown = timer.step_slowdown(options.dtype, time.flops_hardware, computing, others);
  if (slowdown < 1.0005) return;
  stage.slowed.reserve(stage.calls.size());
  for (std::size_t i = 0; i < stage.calls.size(); ++i) {
    const StepPhase phase = stage.rank.entries[stage.calls[i].entry].phase;
    if (phase == StepPhase::communication || phase == StepPhase::optimizer) continue;
    KernelTime& slowed = stage.slowed.emplace_back(*stage.times[i]);
    slowed.loss_s[static_cast<std::size_t>(Loss::clock)] += slowed.time_s * (slowdown - 1);
    slowed.time_s *= slowdown;
    stage.times[i] = &slowed;
  }
  stage.time = schedule(stage.rank, stage.calls, stage.times, options, runtime);
}

StageResult run_stage(const StepGraph& step, const Options& options, const Runtime& runtime, const Machine& machine, const Stage& stage, KernelTimer& timer) {
  StageResult result;
  result.stage = stage;
  result.rank = shard(step, options, runtime, stage);
  result.calls = lower(result.rank, options, runtime, machine.device);
  result.times.reserve(result.calls.size());
  for (const LoweredCall& call : result.calls) result.times.push_back(&timer(call.call));
  result.time = schedule(result.rank, result.calls, result.times, options, runtime);
  if (options.clocks == ClockState::automatic) slow_down(result, options, runtime, timer);
  result.memory = memory_of(result.rank, stage, options, runtime, machine.device);
  return result;
}

Grade grade_of(double share) { return share >= kExcellent ? Grade::excellent : share >= kAcceptable ? Grade::acceptable : Grade::danger; }

// Seconds of one launch at the data-sheet peak of the unit that binds it: its FLOPs for a compute-bound kernel, its compulsory bytes for one that waits for DRAM, else the ideal
// roofline's larger. The kernel model counts its losses from the ideal roofline; where the binding unit's time is the smaller one, the difference went to memory traffic.
double binding_peak_s(const KernelTime& time, const KernelWork& work, double peak_flops, const Device& device, LossSeconds& loss) {
  double peak = time.peak_s;
  if (time.bound == Bound::compute && peak_flops > 0) peak = std::min(peak, to_double(work.flops) / peak_flops);
  if (time.bound == Bound::dram) peak = std::min(peak, to_double(work.bytes()) / device.memory_bandwidth);
  double rest = time.time_s - peak;
  for (double& seconds : loss) {
    seconds = std::max(0.0, seconds);
    rest -= seconds;
  }
  loss[static_cast<std::size_t>(Loss::memory)] = std::max(0.0, loss[static_cast<std::size_t>(Loss::memory)] + rest);
  return peak;
}

OpRow make_row(const StageResult& stage, std::size_t i, const Options& options, const Device& device) {
  const LoweredCall& lowered = stage.calls[i];
  const StepEntry& entry = stage.rank.entries[lowered.entry];
  const Operator& op = stage.rank.graph.ops[entry.op];
  const Segment& segment = stage.rank.graph.segments[entry.segment];
  const KernelTime& time = *stage.times[i];
  OpRow row;
  row.segment = segment.name;
  row.name.reserve(40);
  row.name.append(segment.name).append(".").append(op.name);
  row.operator_size = static_cast<std::uint32_t>(row.name.size());
  if (!entry.suffix.empty()) row.name.append(".").append(entry.suffix);
  if (!lowered.part.empty()) row.name.append(".").append(lowered.part);
  row.op = op.kind;
  row.phase = entry.phase;
  row.count = segment.repeat * lowered.calls * (entry.per_step || lowered.once ? 1 : options.micro_batches());
  row.launches = static_cast<Count>(launches_of(lowered, time) / static_cast<double>(lowered.calls)) * row.count;
  row.call = lowered.call;
  const auto count = static_cast<double>(row.count);
  row.flops = lowered.flops / lowered.calls * row.count;
  row.flops_executed = time.flops_executed * row.count;
  const KernelWork work = work_of(lowered.call);
  row.bytes = time.bytes_moved * row.count;
  row.bytes_written = work.bytes_written * row.count;
  row.bytes_read = row.bytes - row.bytes_written;
  row.duration_s = time.time_s * count;
  row.time_s = row.duration_s * stage.time.exposed[i];
  row.attainable_s = time.attainable_s * count * stage.time.exposed[i];
  const double peak = device.rate(lowered.call.dtype).peak_flops > 0 ? device.rate(lowered.call.dtype).peak_flops : device.vector_fp32.peak_flops;
  if (row.duration_s > 0) {
    row.utilization = to_double(row.flops) / (row.duration_s * peak);
    row.bandwidth_utilization = to_double(work.bytes()) * count / (row.duration_s * device.memory_bandwidth);
  }
  row.bound = time.bound;
  row.graded_by_bandwidth = !lowered.tensor_work || time.bound == Bound::dram;
  row.grade = grade_of(row.graded_by_bandwidth ? row.bandwidth_utilization : row.utilization);
  row.kernel = time.family;
  row.tile_m = time.tile_m;
  row.tile_n = time.tile_n;
  row.split_k = time.split_k;
  row.waves = time.waves;
  LossSeconds loss = time.loss_s;
  row.peak_s = binding_peak_s(time, work, peak, device, loss) * count * stage.time.exposed[i];
  for (std::size_t l = 0; l < kLosses; ++l) row.loss_s[l] = loss[l] * count * stage.time.exposed[i];
  row.confidence = time.confidence;
  row.error_p90 = time.error_p90;
  return row;
}

struct GraphFlops {
  Count dense = 0, model = 0;
};

// FLOPs of one micro-batch of the whole model by the two conventions; no rank is involved.
GraphFlops graph_flops(const StepGraph& step, const Options& options, const Runtime& runtime) {
  GraphFlops total;
  OpWork work;
  work.begin(step.graph, work_context(options, runtime));
  for (const StepEntry& entry : step.entries) {
    if (entry.phase == StepPhase::recompute || entry.phase == StepPhase::optimizer) continue;
    work_of(step.graph.ops[entry.op], work);
    const Count repeat = step.graph.segments[entry.segment].repeat;
    for (const KernelUse& use : entry.phase == StepPhase::backward ? work.backward_uses : work.forward_uses) {
      total.dense += use.conventions.dense * repeat;
      total.model += use.conventions.model * repeat;
    }
  }
  return total;
}

void warn_unsupported(const StageResult& stage, const Machine& machine, std::vector<Warning>& warnings) {
  for (const LoweredCall& call : stage.calls) {
    std::string reason = unsupported_reason(call.call, machine.device);
    if (reason.empty()) continue;
    const bool dtype = reason.find(" in ") != std::string::npos;
    Warning warning = {dtype ? "dtype_not_supported" : "kernel_not_supported", std::move(reason)};
    if (std::find(warnings.begin(), warnings.end(), warning) == warnings.end()) warnings.push_back(std::move(warning));
  }
}

// The step with a host that is faster and slower by its error: a step whose GPU just keeps the host waiting may turn into one that waits for the host.
HostRange host_range(const StageResult& stage, const Options& options, const Runtime& runtime, double step_s) {
  HostRange range{step_s, step_s};
  if (options.cuda_graphs || !runtime.host.any() || runtime.errors.host <= 0) return range;
  const double slower = 1 + kTenthQuantile * runtime.errors.host, others_s = step_s - stage.time.host_bound_s;
  range.slow_s = others_s + host_bound_time(stage.rank, stage.calls, stage.times, options, runtime, slower);
  range.fast_s = others_s + host_bound_time(stage.rank, stage.calls, stage.times, options, runtime, 1 / slower);
  return range;
}

void account(const StageResult& slowest, double bytes_all, double flops_hardware, const GraphFlops& flops, const Graph& graph, const Runtime& runtime, Prediction& prediction) {
  const Options& options = prediction.options;
  const StageTime& time = slowest.time;
  Totals& totals = prediction.totals;
  totals.forward_time_s = time.forward_s;
  totals.backward_time_s = time.backward_s;
  totals.recompute_time_s = time.recompute_s;
  totals.optimizer_time_s = time.optimizer_s;
  totals.exposed_communication_time_s = time.communication_s;
  totals.launch_gap_time_s = time.launch_gap_s;
  totals.host_bound_time_s = time.host_bound_s;
  totals.launches = static_cast<Count>(time.launches);
  totals.bubble_time_s = pipeline_bubble(options.layout, time.per_micro_batch_s);
  totals.step_time_s = time.busy_s() + totals.bubble_time_s + time.launch_gap_s + time.host_bound_s;
  const StepInterval interval = step_interval(prediction, runtime.errors, host_range(slowest, options, runtime, totals.step_time_s));
  totals.step_time_low_s = interval.low_s;
  totals.step_time_high_s = interval.high_s;

  const Count rounds = Count{options.micro_batches()} * options.layout.dp;
  totals.flops_matmul_dense = flops.dense * rounds;
  totals.flops_model = flops.model * rounds;
  totals.flops_hardware = static_cast<Count>(flops_hardware);
  totals.bytes = static_cast<Count>(bytes_all);
  totals.tokens = Count{graph.tokens} * rounds;
  const auto gpus = static_cast<double>(options.layout.gpus);
  if (totals.step_time_s > 0) {
    totals.tokens_per_s_per_gpu = to_double(totals.tokens) / totals.step_time_s / gpus;
    totals.tflops_per_gpu = to_double(totals.flops_model) / totals.step_time_s / gpus / 1e12;
    if (prediction.peak_flops > 0) {
      totals.mfu = totals.tflops_per_gpu * 1e12 / prediction.peak_flops;
      totals.hfu = to_double(totals.flops_hardware) / totals.step_time_s / gpus / prediction.peak_flops;
    }
    totals.busy_fraction = time.busy_s() / totals.step_time_s;
  }
  for (const OpRow& row : prediction.rows) {
    totals.attainable_s += row.attainable_s;
    totals.peak_s += row.peak_s;
  }
  if (totals.mfu > 1) {
    prediction.warnings.push_back({"implausible_utilization", "MFU above 100 %: the FLOPs (backward, causal halving, recomputation), the peak or the time must be wrong"});
  }
}

}  // namespace

ParameterCounts count_parameters(const Graph& graph) {
  ParameterCounts counts;
  OpWork work;
  WorkContext context;
  context.kernels = false;
  work.begin(graph, context);
  for (const Segment& segment : graph.segments) {
    for (const Operator& op : graph.ops_of(segment)) {
      work_of(op, work);
      counts.all += work.parameters * segment.repeat;
      counts.active += work.active_parameters * segment.repeat;
      counts.embedding += work.embedding_parameters * segment.repeat;
    }
  }
  return counts;
}

Result<Prediction> predict(const Graph& graph, const Options& requested, const Machine& machine, const Runtime& runtime, KernelTimer& timer) {
  Prediction prediction;
  prediction.warnings = graph.warnings;
  Result<Options> resolved = resolve_options(requested, graph, prediction.warnings);
  if (!resolved) return tl::unexpected<Error>(resolved.error());
  const Options& options = *resolved;
  prediction.options = options;
  if (prediction.options.seq == 0) prediction.options.seq = graph.seq;
  prediction.model = graph.model;
  const ParameterCounts parameters = count_parameters(graph);
  prediction.parameters = parameters.all;
  prediction.parameters_active = parameters.active;
  prediction.parameters_embedding = parameters.embedding;
  prediction.device_id = machine.device.id;
  prediction.device_name = machine.device.name;
  prediction.runtime = runtime.version.empty() ? runtime.name : runtime.name + "@" + runtime.version;
  prediction.cluster = machine.cluster.id;
  prediction.peak_flops = machine.device.rate(options.dtype).peak_flops;
  prediction.peak_bandwidth = machine.device.memory_bandwidth;
  prediction.calibration_layers = timer.layers();

  const StepGraph step = differentiate(graph, options);
  std::vector<StageResult> stages;
  double bytes_all = 0, flops_hardware = 0;
  const auto ranks = static_cast<double>(options.layout.gpus / options.layout.pp);
  for (const Stage& stage : stages_of(step.graph, options.layout)) {
    stages.push_back(run_stage(step, options, runtime, machine, stage, timer));
  }
  std::size_t slowest = 0, fullest = 0;
  for (std::size_t i = 0; i < stages.size(); ++i) {
    if (stages[i].time.busy_s() > stages[slowest].time.busy_s()) slowest = i;
    if (stages[i].memory.peak_bytes > stages[fullest].memory.peak_bytes) fullest = i;
  }
  for (const StageResult& stage : stages) {
    bytes_all += stage.time.bytes * ranks * static_cast<double>(stage.stage.count);
    flops_hardware += stage.time.flops_hardware * ranks * static_cast<double>(stage.stage.count);
  }
  const StageResult& chosen = stages[slowest];
  prediction.rows.reserve(chosen.calls.size());
  for (std::size_t i = 0; i < chosen.calls.size(); ++i) prediction.rows.push_back(make_row(chosen, i, options, machine.device));
  warn_unsupported(chosen, machine, prediction.warnings);
  account(chosen, bytes_all, flops_hardware, graph_flops(step, options, runtime), graph, runtime, prediction);
  prediction.totals.memory = memory_of(stages[fullest].rank, stages[fullest].stage, options, runtime, machine.device, true);
  advise_memory(prediction.totals.memory, graph, options, runtime, machine.device);
  if (!prediction.totals.memory.fits) {
    prediction.warnings.push_back({"does_not_fit", "does not fit; the largest term is " + prediction.totals.memory.breaks +
                                                       (prediction.totals.memory.would_fit.empty() ? std::string() : "; fits with " + prediction.totals.memory.would_fit)});
  }
  const MemoryTotals& memory = prediction.totals.memory;
  if (memory.fits && to_double(memory.peak_bytes) > 0.93 * memory.capacity_bytes) {
    prediction.warnings.push_back({"memory_tight", "fits with less than 7 % to spare; the CUDA context and fragmentation take 1 to 3 GB that are not modelled"});
  }
  if (options.layout.overlap_grad_reduce || options.layout.overlap_param_gather || (options.layout.zero == 3 && options.layout.dp > 1)) {
    prediction.warnings.push_back({"overlap_assumed", "overlapped communication is taken to hide fully behind computation; measured steps hide less"});
  }
  return prediction;
}

}  // namespace rooftile
