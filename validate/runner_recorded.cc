#include <charconv>
#include <unordered_map>

#include "validate/runner.h"

namespace rooftile {

namespace {

double number_of(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : 0;
}

class RecordedRunner final : public Runner {
 public:
  explicit RecordedRunner(MeasurementTable table) : table_(std::move(table)) {
    for (const MeasurementRow& row : table_.rows) {
      const MeasuredCall read = measured_call(table_, row);
      if (!read.call) continue;
      Measurement m;
      m.call = *read.call;
      m.measured_s = read.measured_s;
      m.clocks = read.clocks;
      const auto text = [&](std::string_view name) { return std::string(table_.field(row, name)); };
      m.reason = text("reason");
      if (m.measured_s <= 0 && m.reason.empty()) m.reason = read.status != "ok" ? read.status : "recorded without a time";
      m.spread_s = number_of(table_.field(row, "spread_us")) * 1e-6;
      m.clock_hz = number_of(table_.field(row, "clock_mhz")) * 1e6;
      m.power_w = number_of(table_.field(row, "power_w"));
      m.method = text("method");
      m.library = text("library");
      m.driver = text("driver");
      m.gpu = text("gpu");
      m.date = text("date");
      m.source = text("source");
      m.kernel = text("kernel");
      m.grid = text("grid");
      m.algorithm = text("algorithm");
      places_[key(m.call, m.clocks)] = rows_.size();
      rows_.push_back(std::move(m));
    }
  }

 private:
  static std::string key(const KernelCall& call, ClockState clocks) { return measurement_key(call, clocks, {}); }

  const Measurement* find(const KernelCall& call, const RunOptions& options) const {
    KernelCall wanted = call;
    // The fastest attention is what a GPU runs as cuDNN's.
    if (call.kernel == KernelClass::attention && call.attention().kernel == AttentionKernel::fastest && !places_.contains(key(call, options.clocks))) {
      AttentionShape shape = call.attention();
      shape.kernel = AttentionKernel::cudnn;
      wanted.shape = shape;
    }
    for (const Impl impl : {call.impl, Impl::rooftile}) {
      if (impl != call.impl && !(options.own_for_torch && call.impl == Impl::torch)) continue;
      wanted.impl = impl;
      if (const auto found = places_.find(key(wanted, options.clocks)); found != places_.end()) return &rows_[found->second];
    }
    return nullptr;
  }

  std::string do_refusal(const KernelCall& call, const RunOptions& options) const override {
    const Measurement* found = find(call, options);
    return found == nullptr ? "not recorded in " + table_.file : found->ok() ? std::string() : found->reason;
  }

  Measurement do_measure(const KernelCall& call, const RunOptions& options) override {
    if (const Measurement* found = find(call, options)) return *found;
    Measurement missing;
    missing.call = call;
    missing.clocks = options.clocks;
    missing.reason = "not recorded in " + table_.file;
    return missing;
  }

  std::string do_description() const override { return std::to_string(rows_.size()) + " recorded measurements of " + table_.file; }

  GpuFacts do_facts() const override {
    GpuFacts facts;
    for (const Measurement& m : rows_) {
      if (m.gpu.empty()) continue;
      facts.name = m.gpu;
      facts.driver = m.driver;
      break;
    }
    return facts;
  }

  MeasurementTable table_;
  std::vector<Measurement> rows_;
  std::unordered_map<std::string, std::size_t> places_;
};

}  // namespace

std::unique_ptr<Runner> make_recorded_runner(MeasurementTable table) { return std::make_unique<RecordedRunner>(std::move(table)); }

}  // namespace rooftile
