#include "frontends/trace/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>

#include "frontends/trace/byte_source.h"
#include "frontends/trace/event_stream.h"

namespace rooftile {
namespace {

constexpr std::size_t kMostSteps = 100'000;

std::optional<TraceActivity> activity_of(std::string_view category) {
  if (category == "kernel" || category == "Kernel") return TraceActivity::kernel;
  if (category == "gpu_memset" || category == "Memset") return TraceActivity::memset;
  if (category == "gpu_memcpy" || category == "Memcpy") return TraceActivity::memcpy;
  return std::nullopt;
}

bool is_operator(std::string_view category) { return category == "cpu_op" || category == "Operator"; }
bool is_launch(std::string_view category) { return category == "cuda_runtime" || category == "cuda_driver" || category == "Runtime"; }

// Numbers of texts that come again.
class Names {
 public:
  std::uint32_t of(std::string text) {
    const auto [at, added] = numbers_.try_emplace(std::move(text), static_cast<std::uint32_t>(numbers_.size()));
    if (added) bytes_ += at->first.size();
    return at->second;
  }
  std::size_t bytes() const { return bytes_; }
  std::vector<std::string> list() const {
    std::vector<std::string> names(numbers_.size());
    for (const auto& [text, number] : numbers_) names[number] = text;
    return names;
  }

 private:
  std::unordered_map<std::string, std::uint32_t> numbers_;
  std::size_t bytes_ = 0;
};

std::string signature_of(const TraceEvent& event) {
  std::string text = event.name;
  for (const TraceArgument& argument : event.op.arguments) {
    text += fmt::format("\x1f{}\x1f{}\x1f{}", argument.type, argument.value, argument.list);
    for (const TraceTensor& tensor : argument.tensors) text += fmt::format("\x1e{}\x1e{}", fmt::join(tensor.dims, ","), fmt::join(tensor.strides, ","));
  }
  return text;
}

class TraceReader {
 public:
  using Open = std::function<Result<std::unique_ptr<ByteSource>>()>;
  TraceReader(std::string file, const TraceLimits& limits, Open open) : limits_(limits), open_(std::move(open)) { trace_.file = std::move(file); }

  Result<Trace> read() {
    if (auto done = pass([this](const TraceEvent& event) { return keep_kernel(event); }, &trace_.devices); !done) return tl::unexpected<Error>(done.error());
    if (trace_.kernels.empty())
      return fail(ErrorCode::invalid, fmt::format("no GPU kernel among {} events", trace_.events), trace_.file,
                  "profile with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]");
    trace_.names = names_.list();
    if (auto done = link_by_correlation(); !done) return tl::unexpected<Error>(done.error());
    if (auto done = find_operators(); !done) return tl::unexpected<Error>(done.error());
    std::stable_sort(trace_.kernels.begin(), trace_.kernels.end(), [](const TraceKernel& a, const TraceKernel& b) { return a.start_s < b.start_s; });
    std::stable_sort(trace_.steps.begin(), trace_.steps.end(), [](const TraceStep& a, const TraceStep& b) { return a.start_s < b.start_s; });
    return std::move(trace_);
  }

 private:
  Result<void> pass(std::function<Result<void>(const TraceEvent&)> each, std::vector<TraceDevice>* devices = nullptr) {
    auto source = open_();
    if (!source) return tl::unexpected<Error>(source.error());
    return EventStream{trace_.file, limits_, devices, std::move(each)}.read(**source);
  }

  tl::unexpected<Error> too_much_text() const {
    return fail(ErrorCode::invalid, fmt::format("over {} bytes of different names and arguments, the most that are kept", limits_.text_bytes), trace_.file, "profile fewer steps");
  }

  // Profilers write microseconds since the machine was started or since 1970: only differences keep their digits.
  double seconds(double timestamp_us) {
    if (!first_us_) first_us_ = timestamp_us;
    return (timestamp_us - *first_us_) * 1e-6;
  }

  Result<void> keep_kernel(const TraceEvent& event) {
    ++trace_.events;
    if (event.phase != "X") return {};
    if (event.category == "gpu_user_annotation" || event.category == "user_annotation") {
      if (event.name.rfind("ProfilerStep", 0) == 0 && event.duration_us >= 0 && steps_us_.size() < 2 * kMostSteps)
        steps_us_.push_back({event.name, event.timestamp_us, event.duration_us, event.category == "gpu_user_annotation"});
      return {};
    }
    const auto activity = activity_of(event.category);
    if (!activity) return {};
    if (!(event.duration_us >= 0) || !std::isfinite(event.timestamp_us) || event.duration_us > 1e15)
      return fail(ErrorCode::invalid, fmt::format("GPU activity {} has no duration", trace_.kernels.size() + 1), trace_.file);
    if (trace_.kernels.size() >= limits_.kernels)
      return fail(ErrorCode::invalid, fmt::format("over {} GPU kernels, the most that are read", limits_.kernels), trace_.file, "profile fewer steps");
    TraceKernel kernel;
    kernel.name = names_.of(event.name);
    if (names_.bytes() > limits_.text_bytes) return too_much_text();
    kernel.call = event.external_id;
    kernel.correlation = event.correlation;
    kernel.start_s = seconds(event.timestamp_us);
    kernel.duration_s = event.duration_us * 1e-6;
    kernel.stream = event.stream;
    kernel.device = static_cast<std::int32_t>(std::clamp<std::int64_t>(event.device, -1, 1 << 20));
    kernel.activity = *activity;
    kernel.grid = event.grid, kernel.block = event.block;
    trace_.kernels.push_back(kernel);
    return {};
  }

  // Where a kernel does not say which operator's call it belongs to, the call that launched it does; the two share a correlation number.
  Result<void> link_by_correlation() {
    place_steps();
    std::unordered_map<std::uint64_t, std::uint64_t> calls;
    for (const TraceKernel& kernel : trace_.kernels) {
      if (kernel.call == 0 && kernel.correlation != 0) calls.emplace(kernel.correlation, 0);
    }
    if (calls.empty()) return {};
    const auto done = pass([&](const TraceEvent& event) -> Result<void> {
      if (event.external_id == 0 || !is_launch(event.category)) return {};
      if (const auto at = calls.find(event.correlation); at != calls.end()) at->second = event.external_id;
      return {};
    });
    if (!done) return done;
    for (TraceKernel& kernel : trace_.kernels) {
      if (const auto at = calls.find(kernel.correlation); kernel.call == 0 && at != calls.end()) kernel.call = at->second;
    }
    return {};
  }

  Result<void> find_operators() {
    std::unordered_map<std::uint64_t, std::int32_t> operators;
    for (const TraceKernel& kernel : trace_.kernels) {
      if (kernel.call != 0) operators.emplace(kernel.call, -1);
    }
    Names signatures;
    const auto done = pass([&](const TraceEvent& event) -> Result<void> {
      if (!is_operator(event.category)) return {};
      const auto at = operators.find(event.external_id);
      if (at == operators.end() || at->second >= 0) return {};
      at->second = static_cast<std::int32_t>(signatures.of(signature_of(event)));
      if (signatures.bytes() > limits_.text_bytes) return too_much_text();
      if (static_cast<std::size_t>(at->second) == trace_.operators.size()) {
        trace_.operators.push_back(event.op);
        trace_.operators.back().name = event.name;
      }
      return {};
    });
    if (!done) return done;
    for (TraceKernel& kernel : trace_.kernels) {
      if (const auto at = operators.find(kernel.call); at != operators.end()) kernel.op = at->second;
      if (kernel.op < 0) ++trace_.without_operator;
    }
    return {};
  }

  // The GPU's own annotation of a step where there is one, else the one of the script.
  void place_steps() {
    const bool on_gpu = std::any_of(steps_us_.begin(), steps_us_.end(), [](const RawStep& step) { return step.on_gpu; });
    for (const RawStep& step : steps_us_) {
      if (step.on_gpu == on_gpu && trace_.steps.size() < kMostSteps) trace_.steps.push_back({step.name, seconds(step.start_us), step.duration_us * 1e-6});
    }
    steps_us_.clear();
  }

  struct RawStep {
    std::string name;
    double start_us, duration_us;
    bool on_gpu;
  };

  const TraceLimits& limits_;
  Open open_;
  Trace trace_;
  Names names_;
  std::vector<RawStep> steps_us_;
  std::optional<double> first_us_;
};

}  // namespace

Result<Trace> read_trace(const std::filesystem::path& file, const TraceLimits& limits) {
  return TraceReader(file.string(), limits, [&] { return open_bytes(file); }).read();
}

Result<Trace> read_trace_bytes(std::string_view bytes, const std::string& name, const TraceLimits& limits) {
  return TraceReader(name, limits, [&]() -> Result<std::unique_ptr<ByteSource>> { return open_memory(bytes); }).read();
}

std::string short_kernel_name(std::string_view name) {
  constexpr std::string_view kVoid = "void ", kNoName = "(anonymous namespace)::";
  if (name.substr(0, kVoid.size()) == kVoid) name.remove_prefix(kVoid.size());
  std::string out;
  while (!name.empty()) {
    if (name.substr(0, kNoName.size()) == kNoName) {
      name.remove_prefix(kNoName.size());
      continue;
    }
    if (name.front() == '<' || name.front() == '(') break;
    out += name.front();
    name.remove_prefix(1);
  }
  return out;
}

}  // namespace rooftile
