// The predicted step as a Chrome trace (JSON object format of the Trace Event Format), for chrome://tracing and Perfetto: kernels on one track in order of execution, gaps between
// them, phases and segments on a second one.
#include <algorithm>
#include <cmath>

#include "report/json_writer.h"
#include "report/render.h"

namespace rooftile {
namespace {

constexpr std::int64_t kMostEvents = 20'000;  // kernels drawn one by one; beyond, the instances of a row are drawn as one event
constexpr int kKernelTrack = 7, kPhaseTrack = 8;

class TraceWriter {
 public:
  explicit TraceWriter(std::string& out) : out_(out), json_(out) {}

  void begin(const Prediction& prediction, const ReportContext& context) {
    json_.open();
    json_.field("displayTimeUnit", "ms");
    json_.open("otherData");
    json_.field("version", context.version), json_.field("model", prediction.model.name), json_.field("device", prediction.device_id);
    json_.field("runtime", prediction.runtime), json_.field("step_time_s", prediction.totals.step_time_s);
    json_.close();
    json_.open_list("traceEvents");
    name("process_name", 0, prediction.device_name + " (predicted)");
    name("thread_name", kKernelTrack, "kernels");
    name("thread_name", kPhaseTrack, "phases");
  }

  void event(std::string_view name, std::string_view category, int track, double start_s, double duration_s) {
    json_.new_line(), json_.open_item();
    json_.field("ph", "X"), json_.field("name", name), json_.field("cat", category), json_.field("pid", 0), json_.field("tid", track);
    json_.field("ts", start_s * 1e6), json_.field("dur", duration_s * 1e6);
  }
  void end_event() { json_.close(); }
  JsonWriter& json() { return json_; }

  void end() {
    json_.close_list(), json_.close();
    out_ += '\n';
  }

 private:
  void name(std::string_view what, int track, std::string_view value) {
    json_.new_line(), json_.open_item();
    json_.field("ph", "M"), json_.field("name", what), json_.field("pid", 0), json_.field("tid", track);
    json_.open("args"), json_.field("name", value), json_.close(), json_.close();
  }
  std::string& out_;
  JsonWriter json_;
};

void kernel_event(TraceWriter& trace, const OpRow& row, double start_s, double duration_s, std::int64_t instance, std::int64_t instances) {
  trace.event(row.name, "kernel", kKernelTrack, start_s, duration_s);
  JsonWriter& json = trace.json();
  json.open("args");
  json.field("phase", name_of(row.phase)), json.field("op", name_of(row.call.kernel)), json.field("dtype", name_of(row.call.dtype)), json.field("shape", print_shape(row.call));
  json.field("kernel", row.kernel), json.field("bound", name_of(row.bound));
  if (instances > 1)
    json.field("instances", instances);
  else
    json.field("instance", instance);
  json.close();
  trace.end_event();
}

}  // namespace

void append_trace(std::string& out, const Prediction& prediction, const ReportContext& context) {
  const std::vector<OpRow>& rows = prediction.rows;
  double kernels_s = 0, events = 0;
  for (const OpRow& row : rows) kernels_s += row.time_s, events += static_cast<double>(std::max<std::int64_t>(row.count, 1));
  // What the step takes beyond its kernels: gaps between them, alike; waits for the host and for other pipeline stages at the front.
  const double beyond_s = std::max(0.0, prediction.totals.step_time_s - kernels_s);
  const double gaps_s = std::min(beyond_s, std::max(0.0, prediction.totals.launch_gap_time_s));
  const double gap_s = events > 0 ? gaps_s / events : 0, wait_s = beyond_s - (events > 0 ? gaps_s : 0);
  const bool expanded = events <= static_cast<double>(kMostEvents);

  TraceWriter trace(out);
  trace.begin(prediction, context);
  double at_s = 0;
  if (wait_s > 1e-9) {
    trace.event("host and pipeline waits", "wait", kPhaseTrack, 0, wait_s);
    trace.end_event();
    at_s = wait_s;
  }
  for (std::size_t first = 0; first < rows.size();) {
    // Rows of one segment and phase that run equally often are a layer: its instances follow each other.
    std::size_t last = first + 1;
    while (last < rows.size() && rows[last].segment == rows[first].segment && rows[last].phase == rows[first].phase && rows[last].count == rows[first].count) ++last;
    const std::int64_t count = std::max<std::int64_t>(rows[first].count, 1), rounds = expanded ? count : 1;
    for (std::int64_t round = 0; round < rounds; ++round) {
      const double begin_s = at_s;
      for (std::size_t i = first; i < last; ++i) {
        const double instances = static_cast<double>(count) / static_cast<double>(rounds);
        const double duration_s = rows[i].time_s / static_cast<double>(rounds);
        kernel_event(trace, rows[i], at_s, duration_s, round, count / rounds);
        at_s += duration_s + gap_s * instances;
      }
      trace.event(std::string(name_of(rows[first].phase)) + " " + rows[first].segment + (rounds > 1 ? " " + std::to_string(round) : ""), "phase", kPhaseTrack, begin_s,
                  at_s - begin_s);
      trace.end_event();
    }
    first = last;
  }
  trace.end();
}

}  // namespace rooftile
