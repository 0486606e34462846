#include "cli/calibrate_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <vector>

#include "cli/measuring.h"
#include "cli/output.h"
#include "cli/session.h"
#include "report/quantity.h"
#include "report/text_table.h"
#include "validate/fit_device.h"
#include "validate/fit_trace.h"
#include "validate/trace_rows.h"

namespace rooftile {
namespace {

constexpr std::size_t kShownOperators = 12;  // that became no row
constexpr double kLeastShare = 0.9;          // of kernel time in rows, below which a warning goes to stderr
constexpr int kLeastResiduals = 8;           // rows whose errors say something about a class
constexpr double kMuch = 1e-3;               // of kernel time

struct ReadTrace {
  Trace trace;
  TraceRows rows;
};

Result<ReadTrace> rows_from(const std::string& file) {
  ReadTrace read;
  auto trace = read_trace(file);
  if (!trace) return tl::unexpected<Error>(trace.error());
  read.trace = std::move(*trace);
  read.rows = rows_of_trace(read.trace);
  return read;
}

Result<std::string> device_of(Session& session, const TraceCalibration& arguments, const Trace& trace) {
  if (!arguments.device.empty()) return arguments.device;
  if (trace.devices.empty()) return fail(ErrorCode::usage, "the trace does not say on which GPU it was recorded", "--device", "rooftile devices lists the names");
  // Ranks of a job see the other GPUs of their machine; what ran says which one is meant.
  const TraceDevice* used = &trace.devices.front();
  for (const TraceDevice& device : trace.devices) {
    if (!trace.kernels.empty() && device.id == trace.kernels.front().device) used = &device;
  }
  GpuFacts gpu;
  gpu.name = used->name, gpu.sms = used->sms, gpu.compute_capability = used->compute_capability, gpu.memory_bytes = used->memory_bytes;
  if (gpu.memory_bytes <= 0 || gpu.compute_capability <= 0) gpu.sms = 0;  // then the name decides
  return device_of_gpu(session, gpu);
}

std::string seconds_text(double seconds) { return seconds < 1e-3 ? fmt::format("{:.1f} us", seconds * 1e6) : fmt::format("{:.2f} ms", seconds * 1e3); }

std::string unmapped_table(const TraceRows& rows, std::size_t width, bool color) {
  TextTable table;
  table.columns = {{"left out", Align::left}, {"kernels"}, {"time"}, {"of all"}, {"why", Align::left}};
  std::size_t shown = 0, kernels = 0;
  double time_s = 0;
  for (const UnmappedOperator& left : rows.unmapped) {
    if (shown < kShownOperators) {
      ++shown;
      table.rows.push_back({{printable(left.name)},
                            {fmt::format("{}", left.kernels)},
                            {seconds_text(left.time_s)},
                            {fmt::format("{:.3f} %", 100 * left.time_s / rows.kernel_time_s)},
                            {printable(left.reason)}});
    } else {
      kernels += left.kernels, time_s += left.time_s;
    }
  }
  if (kernels > 0)
    table.rows.push_back({{fmt::format("{} more", rows.unmapped.size() - shown)},
                          {fmt::format("{}", kernels)},
                          {seconds_text(time_s)},
                          {fmt::format("{:.3f} %", 100 * time_s / rows.kernel_time_s)},
                          {""}});
  return table.render(width, color, "");
}

std::string errors_table(const std::map<std::string, TraceClassError>& before, const std::map<std::string, TraceClassError>& after, const TraceFit& fit, std::size_t width,
                         bool color) {
  TextTable table;
  table.columns = {{"class", Align::left}, {"rows"}, {"calls"}, {"time"}, {"error before"}, {"after"}, {"by time before"}, {"after"}, {"", Align::left}};
  const auto add = [&](const std::string& title, const TraceClassError& b, const TraceClassError& a, std::string note) {
    table.rows.push_back({{title},
                          {fmt::format("{}", b.rows)},
                          {fmt::format("{}", b.calls)},
                          {seconds_text(b.time_s)},
                          {percent(b.mean_abs)},
                          {percent(a.mean_abs)},
                          {percent(b.of_time_abs)},
                          {percent(a.of_time_abs)},
                          {std::move(note)}});
  };
  std::vector<std::pair<std::string, TraceClassError>> order(before.begin(), before.end());
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.second.time_s > b.second.time_s; });
  for (const auto& [name, error] : order) {
    if (name.empty()) continue;
    const bool moved = std::any_of(fit.classes.begin(), fit.classes.end(), [&, &own = name](const TraceClassFit& c) { return c.name == own && c.rows > 0; });
    const auto at = after.find(name);
    add(name, error, at == after.end() ? error : at->second, moved ? "" : "stays");
  }
  if (const auto all = before.find(""); all != before.end()) add("all between matmuls", all->second, after.at(""), "");
  return table.render(width, color, "");
}

Result<void> write_text(const std::string& path, const std::string& text) {
  auto file = Output::open(path);
  if (!file) return tl::unexpected<Error>(file.error());
  file->write(text);
  const auto finished = file->finish();
  if (!finished) return tl::unexpected<Error>(finished.error());
  return {};
}

// Residuals of the checked trace's rows, which no fit has seen, by family: intervals come from them.
void add_residuals(const Machine& machine, const std::vector<Measurement>& rows, CalibrationLayer& layer) {
  const Machine profiled = under_profiler(machine);
  KernelTimer timer(profiled, Mode::calibrated, ClockState::automatic);
  std::map<std::string, std::pair<std::vector<double>, std::vector<double>>> families;
  for (const Measurement& m : rows) {
    if (!m.ok() || !learned_from_traces(m.call) || !unsupported_reason(m.call, machine.device).empty()) continue;
    for (const std::string& family : {"torch." + trace_class(m.call), std::string("torch")}) {
      auto& [predicted, measured] = families[family];
      predicted.push_back(timer(m.call).time_s);
      measured.push_back(m.measured_s);
    }
  }
  for (const auto& [family, pairs] : families) {
    if (static_cast<int>(pairs.first.size()) >= kLeastResiduals) layer.residuals[family] = residuals_of(pairs.first, pairs.second);
  }
}

}  // namespace

bool is_trace_file(const std::string& file) {
  if (file.ends_with(".json") || file.ends_with(".gz")) return true;
  std::error_code status;
  if (!std::filesystem::is_regular_file(file, status)) return false;
  std::ifstream stream(file, std::ios::binary);
  char c = 0;
  std::array<unsigned char, 2> first = {0, 0};
  std::size_t got = 0;
  while (got < 2 && stream.get(c)) {
    if (got > 0 || (c != ' ' && c != '\n' && c != '\r' && c != '\t')) first[got++] = static_cast<unsigned char>(c);
  }
  return first[0] == '{' || first[0] == '[' || (first[0] == 0x1f && first[1] == 0x8b);
}

Result<bool> calibrate_from_trace(const TraceCalibration& arguments) {
  const auto color = parse_color(arguments.color);
  if (!color) return tl::unexpected<Error>(color.error());
  Session session;
  const auto learned = rows_from(arguments.from);
  if (!learned) return tl::unexpected<Error>(learned.error());
  std::optional<ReadTrace> checked;
  if (!arguments.check.empty()) {
    auto read = rows_from(arguments.check);
    if (!read) return tl::unexpected<Error>(read.error());
    checked = std::move(*read);
  }
  const auto device = device_of(session, arguments, learned->trace);
  if (!device) return tl::unexpected<Error>(device.error());
  const auto loaded = session.machine(*device, "", arguments.base);
  if (!loaded) return tl::unexpected<Error>(loaded.error());
  const Machine& machine = **loaded;
  const TraceRows& rows = learned->rows;
  auto fit = fit_trace(machine, rows.rows, arguments.date);
  if (!fit) {
    Error error = fit.error();
    error.place = arguments.from;
    if (!rows.unmapped.empty())
      error.message += fmt::format("; {} operators were left out, the longest: {} ({})", rows.unmapped.size(), printable(rows.unmapped.front().name), rows.unmapped.front().reason);
    return tl::unexpected<Error>(std::move(error));
  }
  Machine after = machine;
  after.calibration.layers.push_back(fit->layer);

  auto output = Output::open("");
  if (!output) return tl::unexpected<Error>(output.error());
  const std::size_t width = output->width();
  const bool colored = output->color(*color);
  const auto summary = [&](const std::string& file, const ReadTrace& read) {
    std::string text = fmt::format("{}: {} GPU activities, {}; {:.2f} % of it in {} rows\n", printable(file), read.trace.kernels.size(), seconds_text(read.rows.kernel_time_s),
                                   100 * read.rows.mapped_share(), read.rows.rows.size());
    if (read.rows.mapped_share() < kLeastShare) {
      std::string names;
      for (const UnmappedOperator& left : read.rows.unmapped) {
        if (left.time_s < kMuch * read.rows.kernel_time_s || names.size() > 200) break;
        names += fmt::format("{}{} {:.1f} % ({})", names.empty() ? "" : ", ", printable(left.name), 100 * left.time_s / read.rows.kernel_time_s, left.reason);
      }
      fmt::print(stderr, "rooftile: warning: {}: {:.1f} % of the kernel time could not be used: {}\n", printable(file), 100 - 100 * read.rows.mapped_share(), names);
    }
    return text;
  };
  output->write(fmt::format("{}\n", printable(machine.device.name)));
  output->write(summary(arguments.from, *learned));
  if (!rows.unmapped.empty()) output->write(unmapped_table(rows, width, colored));
  output->write("\n|predicted / measured - 1| of the rows that were learned from\n");
  output->write(errors_table(trace_errors(machine, rows.rows), trace_errors(after, rows.rows), *fit, width, colored));
  for (const TraceClassFit& c : fit->classes) {
    if (c.warm > 0) output->write(fmt::format("{}: {} row{} not used: faster than the bandwidth allows, so its operands were in L2\n", c.name, c.warm, c.warm == 1 ? "" : "s"));
  }
  if (checked) {
    output->write("\n" + summary(arguments.check, *checked) + "|predicted / measured - 1| of its rows, none of which was learned from\n");
    output->write(errors_table(trace_errors(machine, checked->rows.rows), trace_errors(after, checked->rows.rows), *fit, width, colored));
    add_residuals(after, checked->rows.rows, fit->layer);
  }
  if (!arguments.save.empty()) {
    std::string text = measurement_header();
    for (const Measurement& m : rows.rows) text += measurement_line(m);
    if (const auto written = write_text(arguments.save, text); !written) return tl::unexpected<Error>(written.error());
    output->write(fmt::format("\nwrote {}\n", arguments.save));
  }
  if (!arguments.output.empty()) {
    const std::filesystem::path file = arguments.output;
    fit->layer.id = file.stem().string();
    fit->layer.library = arguments.library;
    const std::map<std::string, std::string> sources = {
        {"rows", "profiler trace " + (arguments.source.empty() ? std::filesystem::path(arguments.from).filename().string() : arguments.source)}};
    if (const auto written = write_text(file.string(), calibration_yaml(fit->layer, machine.device.name + ": PyTorch's kernel classes learned from a trace", sources)); !written)
      return tl::unexpected<Error>(written.error());
    output->write(fmt::format("\nwrote {}; rooftile estimate ... --device {} --calibration {} uses it\n", file.string(), *device, file.string()));
  }
  return output->finish();
}

}  // namespace rooftile
