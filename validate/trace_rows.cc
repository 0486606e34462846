#include "validate/trace_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <utility>

#include "frontends/trace/operator_call.h"

namespace rooftile {
namespace {

constexpr std::size_t kLookBack = 8;  // operator calls between clearing a tensor and the kernel that fills it

// The kernels of one operator call.
struct Launch {
  std::int32_t op = -1;
  std::vector<const TraceKernel*> kernels;
  double time_s = 0;
  bool taken = false;  // counted with another call
};

// In the order of their first kernels.
std::vector<Launch> launches_of(const Trace& trace) {
  std::vector<Launch> launches;
  std::unordered_map<std::uint64_t, std::size_t> open;
  for (const TraceKernel& kernel : trace.kernels) {
    std::size_t at = launches.size();
    if (kernel.op >= 0) at = open.try_emplace(kernel.call, at).first->second;
    if (at == launches.size()) launches.push_back({kernel.op, {}, 0, false});
    launches[at].kernels.push_back(&kernel);
    launches[at].time_s += kernel.duration_s;
  }
  return launches;
}

// What two calls must share to be the same: the operator with all arguments, and the kernels with their grids.
std::string key_of(const Launch& launch) {
  std::string key = fmt::format("{}", launch.op);
  for (const TraceKernel* kernel : launch.kernels) key += fmt::format(" {}:{}", kernel->name, kernel->grid[0]);
  return key;
}

double median_of(std::vector<double>& values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : 0.5 * (values[half - 1] + values[half]);
}

struct Gathered {
  KernelCall call;
  std::vector<double> times_s;
  std::string kernel;
  bool full_launch = false;
};

class RowBuilder {
 public:
  explicit RowBuilder(const Trace& trace) : trace_(trace), launches_(launches_of(trace)) {}

  TraceRows build() {
    std::vector<const OperatorCall*> calls;
    for (const Launch& launch : launches_) calls.push_back(&call_of(launch));
    for (std::size_t i = 0; i < launches_.size(); ++i) {
      if (calls[i]->cleared > 0) take_fill(calls, i);
    }
    for (std::size_t i = 0; i < launches_.size(); ++i) {
      result_.kernel_time_s += launches_[i].time_s - (borrowed_.contains(i) ? borrowed_[i] : 0);
      if (launches_[i].taken) continue;
      if (calls[i]->call)
        gather(launches_[i], *calls[i]);
      else
        leave_out(launches_[i], calls[i]->reason);
    }
    finish();
    return std::move(result_);
  }

 private:
  const OperatorCall& call_of(const Launch& launch) {
    const auto [at, added] = calls_.try_emplace(key_of(launch));
    if (!added) return at->second;
    if (launch.op < 0) {
      at->second.reason = "the trace does not name its operator";
      return at->second;
    }
    LaunchedKernels kernels;
    for (const TraceKernel* kernel : launch.kernels) {
      kernels.names.push_back(trace_.names[kernel->name]);
      kernels.grids.push_back(kernel->grid);
      kernels.activities.push_back(kernel->activity);
    }
    at->second = operator_call(trace_.operators[static_cast<std::size_t>(launch.op)], kernels);
    return at->second;
  }

  // The nearest fill of so many elements before the call.
  void take_fill(const std::vector<const OperatorCall*>& calls, std::size_t i) {
    for (std::size_t back = 1; back <= std::min(kLookBack, i); ++back) {
      const std::size_t at = i - back;
      if (launches_[at].taken || !calls[at]->call || calls[at]->call->kernel != KernelClass::pointwise) continue;
      const PointwiseShape& shape = calls[at]->call->pointwise();
      if (shape.kind != PointwiseKind::fill || shape.numel != calls[i]->cleared) continue;
      launches_[at].taken = true;
      launches_[i].time_s += launches_[at].time_s;
      borrowed_[i] = launches_[at].time_s;
      return;
    }
  }

  void gather(const Launch& launch, const OperatorCall& mapped) {
    result_.mapped_time_s += launch.time_s;
    Gathered& row = gathered_[*mapped.call];
    row.call = *mapped.call;
    const TraceKernel* longest =
        *std::max_element(launch.kernels.begin(), launch.kernels.end(), [](const TraceKernel* a, const TraceKernel* b) { return a->duration_s < b->duration_s; });
    row.full_launch = mapped.full_launch;
    if (!mapped.full_launch) {
      row.times_s.push_back(launch.time_s);
    } else {
      std::int32_t blocks = 0;
      for (const TraceKernel* kernel : launch.kernels) blocks = std::max(blocks, kernel->grid[0]);
      for (const TraceKernel* kernel : launch.kernels) {
        if (kernel->grid[0] == blocks) row.times_s.push_back(kernel->duration_s);
      }
    }
    if (row.kernel.empty()) row.kernel = short_kernel_name(trace_.names[longest->name]).substr(0, 120);
  }

  void leave_out(const Launch& launch, const std::string& reason) {
    const std::string name = launch.op >= 0 ? trace_.operators[static_cast<std::size_t>(launch.op)].name : short_kernel_name(trace_.names[launch.kernels.front()->name]);
    UnmappedOperator& left = unmapped_[{name, reason}];
    left.name = name, left.reason = reason;
    left.kernels += launch.kernels.size();
    left.time_s += launch.time_s;
  }

  void finish() {
    std::vector<std::pair<double, Measurement>> rows;
    for (auto& [call, row] : gathered_) {
      Measurement m;
      m.call = row.call;
      double sum = 0;
      for (const double t : row.times_s) sum += t;
      m.measured_s = median_of(row.times_s);
      const std::size_t last = row.times_s.size() - 1;
      if (row.full_launch) m.measured_s = row.times_s[last - last / 4];  // blocks that are not full only shorten a launch
      m.spread_s = 0.5 * (row.times_s[last - last / 4] - row.times_s[last / 4]);
      m.replays = static_cast<int>(row.times_s.size());
      m.clocks = ClockState::automatic;
      m.source = kTraceSource;
      m.method = "profiler";
      m.kernel = row.kernel;
      if (!trace_.devices.empty()) m.gpu = trace_.devices.front().name;
      if (!(m.measured_s > 0)) m.reason = "its duration is 0";
      rows.emplace_back(sum, std::move(m));
    }
    // Ties by their shape, so that the order does not hang on a hash.
    std::sort(rows.begin(), rows.end(),
              [](const auto& a, const auto& b) { return a.first != b.first ? a.first > b.first : print_shape(a.second.call) < print_shape(b.second.call); });
    for (auto& [sum, m] : rows) result_.rows.push_back(std::move(m));
    for (auto& [key, left] : unmapped_) result_.unmapped.push_back(std::move(left));
    std::stable_sort(result_.unmapped.begin(), result_.unmapped.end(), [](const auto& a, const auto& b) { return a.time_s > b.time_s; });
  }

  const Trace& trace_;
  std::vector<Launch> launches_;
  std::unordered_map<std::string, OperatorCall> calls_;
  std::unordered_map<std::size_t, double> borrowed_;
  std::unordered_map<KernelCall, Gathered, KernelCallHash> gathered_;
  std::map<std::pair<std::string, std::string>, UnmappedOperator> unmapped_;
  TraceRows result_;
};

}  // namespace

TraceRows rows_of_trace(const Trace& trace) { return RowBuilder(trace).build(); }

}  // namespace rooftile
