#include <fmt/format.h>

#include <algorithm>

#include "report/json_writer.h"
#include "report/quantity.h"
#include "report/render.h"
#include "report/utf8.h"

namespace rooftile {
namespace {

// Appends fields of one line, commas between them.
class CsvLine {
 public:
  explicit CsvLine(std::string& out) : out_(out) {}
  void field(std::string_view text) { separate(), out_ += csv_field(text); }
  void field(const char* text) { field(std::string_view(text)); }
  void field(double value) { separate(), append_json_number(out_, value); }
  void field(Count value) { separate(), append_json_count(out_, value); }
  void field(std::int64_t value) { field(Count{value}); }
  void field(int value) { field(Count{value}); }
  void field(bool value) { separate(), out_ += value ? "true" : "false"; }
  void end() { out_ += '\n'; }

 private:
  void separate() {
    if (!first_) out_ += ',';
    first_ = false;
  }
  std::string& out_;
  bool first_ = true;
};

}  // namespace

std::string csv_field(std::string_view text) {
  // Control characters are text of a CSV, so that a field which passes through comes out as it went in; only bytes that are no UTF-8 cannot.
  std::string clean;
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    if (length == 0)
      clean += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[0]));
    else
      clean.append(text.substr(0, length));
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  const bool control = std::any_of(clean.begin(), clean.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; });
  if (!control && clean.find_first_of(",\"") == std::string::npos) return clean;
  std::string out = "\"";
  for (const char c : clean) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + "\"";
}

std::string csv_ops_header() {
  std::string out =
      "model,device,name,op,phase,count,shape,dtype,flops,bytes,intensity,time_s,duration_s,utilization,bandwidth_utilization,bound,grade,kernel,tile,waves,attainable_s,"
      "recoverable_s";
  for (const std::string_view loss : kLossNames) out += fmt::format(",loss_{}_s", loss);
  return out + ",confidence,error_p90\n";
}

void append_csv_ops(std::string& out, const Prediction& prediction) {
  for (const OpRow& row : prediction.rows) {
    CsvLine line(out);
    line.field(prediction.model.name);
    line.field(prediction.device_id);
    line.field(row.name);
    line.field(name_of(row.op));
    line.field(name_of(row.phase));
    line.field(row.count);
    line.field(print_shape(row.call));
    line.field(name_of(row.call.dtype));
    line.field(row.flops);
    line.field(row.bytes);
    line.field(row.intensity());
    line.field(row.time_s);
    line.field(row.duration_s);
    line.field(row.utilization);
    line.field(row.bandwidth_utilization);
    line.field(name_of(row.bound));
    line.field(name_of(row.grade));
    line.field(row.kernel);
    line.field(row.tile_m > 0 ? fmt::format("{}x{}", row.tile_m, row.tile_n) : std::string());
    line.field(row.waves);
    line.field(row.attainable_s);
    line.field(row.recoverable_s());
    for (const double loss : row.loss_s) line.field(loss);
    line.field(name_of(row.confidence));
    line.field(row.error_p90);
    line.end();
  }
}

std::string csv_view_header() { return "model,device,view,name,phase,time_s,share,flops,bytes,mfu,launches\n"; }

void append_csv_view(std::string& out, const Prediction& prediction, ViewKind kind) {
  const double step_s = prediction.totals.step_time_s;
  const auto add = [&](const ViewLine& view, std::string_view phase, const ViewSum& sum) {
    CsvLine line(out);
    line.field(prediction.model.name);
    line.field(prediction.device_id);
    line.field(name_of(kind));
    line.field(view.name);
    line.field(phase);
    line.field(sum.time_s);
    line.field(step_s > 0 ? sum.time_s / step_s : 0.0);
    line.field(sum.flops);
    line.field(sum.bytes);
    if (const auto mfu = sum.mfu(prediction.peak_flops))
      line.field(*mfu);
    else
      line.field("");
    line.field(sum.launches);
    line.end();
  };
  for (const ViewLine& view : view_of(prediction, kind)) {
    add(view, "all", view.all);
    for (std::size_t i = 0; i < kStepPhases; ++i) {
      if (view.phases[i].launches > 0) add(view, name_of(static_cast<StepPhase>(i)), view.phases[i]);
    }
  }
}

std::string csv_totals_header(std::span<const std::pair<std::string, std::string>> settings) {
  std::string out = "model,device";
  for (const auto& [name, value] : settings) out += "," + csv_field(name);
  return out +
         ",parameters,step_time_s,step_time_low_s,step_time_high_s,forward_time_s,backward_time_s,recompute_time_s,optimizer_time_s,exposed_communication_time_s,bubble_time_s,"
         "launch_gap_time_s,host_bound_time_s,flops_matmul_dense,flops_model,flops_hardware,bytes,tokens,tokens_per_s_per_gpu,tflops_per_gpu,mfu,hfu,busy_fraction,peak_bytes,fits,"
         "warnings\n";
}

void append_csv_totals(std::string& out, const Prediction& prediction, std::span<const std::pair<std::string, std::string>> settings) {
  const Totals& totals = prediction.totals;
  CsvLine line(out);
  line.field(prediction.model.name);
  line.field(prediction.device_id);
  for (const auto& [name, value] : settings) line.field(value);
  line.field(prediction.parameters);
  for (const double seconds : {totals.step_time_s, totals.step_time_low_s, totals.step_time_high_s, totals.forward_time_s, totals.backward_time_s, totals.recompute_time_s,
                               totals.optimizer_time_s, totals.exposed_communication_time_s, totals.bubble_time_s, totals.launch_gap_time_s, totals.host_bound_time_s})
    line.field(seconds);
  for (const Count count : {totals.flops_matmul_dense, totals.flops_model, totals.flops_hardware, totals.bytes, totals.tokens}) line.field(count);
  for (const double value : {totals.tokens_per_s_per_gpu, totals.tflops_per_gpu, totals.mfu, totals.hfu, totals.busy_fraction}) line.field(value);
  line.field(totals.memory.peak_bytes);
  line.field(totals.memory.fits);
  std::string codes;
  for (const Warning& warning : prediction.warnings) codes += (codes.empty() ? "" : " ") + warning.code;
  line.field(codes);
  line.end();
}

}  // namespace rooftile
