// How a validated model is printed: operators, families, the whole step.
#include <fmt/format.h>

#include <map>

#include "cli/validate_model.h"
#include "cli/version.h"
#include "report/json_writer.h"
#include "report/quantity.h"
#include "report/text_table.h"

namespace rooftile {
namespace {

std::string microseconds(double seconds) { return seconds > 0 ? significant(seconds * 1e6) : "-"; }
std::string ratio_text(double ratio) { return ratio > 0 ? fmt::format("{:.3f}", ratio) : "-"; }

Tint tint_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::match:
      return Tint::green;
    case Verdict::fast:
    case Verdict::slow:
      return Tint::red;
    case Verdict::ambiguous:
      return Tint::yellow;
    default:
      return Tint::dim;
  }
}

std::string call_text(const KernelCall& call) { return fmt::format("{} {} {}", name_of(call.kernel), name_of(call.dtype), print_shape(call)); }

std::string rows_table(const ModelValidation& v, std::size_t width, bool color) {
  TextTable table;
  table.columns = {{"operator", Align::left, 0, 16}, {"kernel", Align::left, 0, 24}, {"count"}, {"predicted us"}, {"measured us"}, {"+-", Align::right, 2}, {"ratio"},
                   {"verdict", Align::left}};
  for (std::size_t i = 0; i < v.comparison.rows.size(); ++i) {
    const ComparedRow& row = v.comparison.rows[i];
    std::string name = printable(v.names[i]);
    if (v.stands_in[i]) name += " *";
    table.rows.push_back({{std::move(name)},
                          {call_text(row.call)},
                          {fmt::format("{}", row.count)},
                          {microseconds(row.predicted_s)},
                          {microseconds(row.measured_s)},
                          {row.measured_s > 0 ? percent(v.measured[i].spread_s / row.measured_s) : ""},
                          {ratio_text(row.ratio)},
                          {std::string(name_of(row.verdict)), tint_of(row.verdict)}});
  }
  return table.render(width, color, "");
}

std::string families_table(const Comparison& comparison, std::size_t width, bool color) {
  TextTable table;
  table.columns = {{"family", Align::left}, {"rows"}, {"mean"}, {"median"}, {"p90"}, {"bias"}, {"match"}, {"fast"}, {"slow"}, {"ambiguous"}, {"predicted"}, {"measured"}};
  for (const FamilyErrors& family : comparison.families) {
    std::vector<Cell> row;
    for (std::string text : {family.family, fmt::format("{}", family.errors.rows), percent(family.errors.mean), percent(family.errors.median), percent(family.errors.p90),
                             fmt::format("{:+.1f} %", 100 * family.errors.bias), fmt::format("{}", family.match), fmt::format("{}", family.fast), fmt::format("{}", family.slow),
                             fmt::format("{}", family.ambiguous), human(family.predicted_s, "s"), human(family.measured_s, "s")})
      row.push_back({std::move(text)});
    table.rows.push_back(std::move(row));
  }
  return table.render(width, color, "");
}

std::string step_lines(const ModelValidation& v) {
  const Comparison& c = v.comparison;
  std::string out = fmt::format("step, sum of kernels:        predicted {:>9}  measured {:>9}  ratio {}\n", human(c.predicted_s, "s"), human(c.measured_s, "s"),
                                ratio_text(c.measured_s > 0 ? c.predicted_s / c.measured_s : 0));
  if (c.missing_s > 0) out += fmt::format("  not among them: kernels without a measured time, {} predicted\n", human(c.missing_s, "s"));
  const Measurement& executed = v.step.executed;
  if (executed.ok()) {
    out += fmt::format("step, executed in one graph: predicted {:>9}  measured {:>9}  ratio {}  (sum of kernels over executed {})\n", human(v.step.executed_predicted_s, "s"),
                       human(executed.measured_s, "s"), ratio_text(v.step.executed_predicted_s / executed.measured_s), ratio_text(c.measured_s / executed.measured_s));
  } else {
    out += fmt::format("step, executed: {}\n", printable(executed.reason));
  }
  for (const std::string& reason : v.step.left_out) out += fmt::format("  left out of the executed step: {}\n", printable(reason));
  return out + fmt::format("step as estimated:           {} (launch gaps and communication included)\n", human(v.step.predicted_step_s, "s"));
}

std::string render_text(const ModelValidation& v, std::size_t width, bool color) {
  const Prediction& p = *v.prediction;
  std::string out = fmt::format("{} on {}, {}, mbs {}, seq {}, {}, mode {}, {} clocks\nmeasured on {}\n\n", printable(p.model.name), printable(p.device_name),
                                name_of(p.options.phase), p.options.mbs, p.options.seq, name_of(p.options.dtype), name_of(p.options.mode), v.clocks, printable(v.measured_on));
  out += rows_table(v, width, color);
  bool ours = false;
  std::map<std::string, std::size_t> reasons;
  for (std::size_t i = 0; i < v.comparison.rows.size(); ++i) {
    ours = ours || v.stands_in[i];
    if (!v.comparison.rows[i].reason.empty()) ++reasons[v.comparison.rows[i].reason];
  }
  if (ours) out += "* measured with rooftile's kernel in the place of PyTorch's\n";
  for (const auto& [reason, count] : reasons) out += fmt::format("{} row{} without a time: {}\n", count, count == 1 ? "" : "s", printable(reason));
  out += "\n|predicted / measured - 1| by family, each kernel once\n" + families_table(v.comparison, width, color) + "\n" + step_lines(v);
  if (!v.whole) out += "not everything was measured; the same command with --resume and its --save file goes on\n";
  for (const Warning& warning : p.warnings) out += fmt::format("warning: {}: {}\n", warning.code, printable(warning.message));
  return out;
}

std::string render_csv(const ModelValidation& v) {
  std::string header = measurement_header();
  header.pop_back();
  std::string out = header + ",operator,count,predicted_us,ratio,status\n";
  for (std::size_t i = 0; i < v.comparison.rows.size(); ++i) {
    const ComparedRow& row = v.comparison.rows[i];
    Measurement m = v.measured[i];
    if (!m.ok()) m.call = row.call;
    std::string line = measurement_line(m);
    line.pop_back();
    out += fmt::format("{},{},{},", line, csv_field(v.names[i]), row.count);
    append_json_number(out, row.predicted_s * 1e6);
    out += ",";
    if (row.ratio > 0) append_json_number(out, row.ratio);
    out += fmt::format(",{}\n", name_of(row.verdict));
  }
  return out;
}

std::string render_json(const ModelValidation& v) {
  std::string out;
  JsonWriter json(out);
  const Prediction& p = *v.prediction;
  const Comparison& c = v.comparison;
  json.open();
  json.field("schema_version", 1);
  json.field("model", p.model.name);
  json.field("device", p.device_id);
  json.field("phase", name_of(p.options.phase));
  json.field("mode", name_of(p.options.mode));
  json.field("clocks", v.clocks);
  json.field("measured_on", v.measured_on);
  json.field("complete", v.whole);
  json.open_list("ops");
  for (std::size_t i = 0; i < c.rows.size(); ++i) {
    const ComparedRow& row = c.rows[i];
    json.new_line();
    json.open_item();
    json.field("name", v.names[i]);
    json.field("op", name_of(row.call.kernel));
    json.field("dtype", name_of(row.call.dtype));
    json.field("shape", print_shape(row.call));
    json.field("count", row.count);
    json.field("predicted_s", row.predicted_s);
    if (row.measured_s > 0) {
      json.field("measured_s", row.measured_s);
      json.field("spread_s", v.measured[i].spread_s);
      json.field("ratio", row.ratio);
    } else {
      json.null_field("measured_s");
      json.field("reason", row.reason);
    }
    json.field("verdict", name_of(row.verdict));
    json.field("impl", name_of(v.measured[i].call.impl));
    json.close();
  }
  json.close_list();
  json.open_list("families");
  for (const FamilyErrors& family : c.families) {
    json.new_line();
    json.open_item();
    json.field("family", family.family);
    json.field("rows", static_cast<std::int64_t>(family.errors.rows));
    json.field("mean", family.errors.mean);
    json.field("median", family.errors.median);
    json.field("p90", family.errors.p90);
    json.field("bias", family.errors.bias);
    json.field("match", static_cast<std::int64_t>(family.match));
    json.field("fast", static_cast<std::int64_t>(family.fast));
    json.field("slow", static_cast<std::int64_t>(family.slow));
    json.field("ambiguous", static_cast<std::int64_t>(family.ambiguous));
    json.field("unknown", static_cast<std::int64_t>(family.unknown));
    json.close();
  }
  json.close_list();
  json.new_line();
  json.open("step");
  json.field("predicted_sum_s", c.predicted_s);
  json.field("measured_sum_s", c.measured_s);
  json.field("predicted_without_measurement_s", c.missing_s);
  json.field("predicted_step_s", v.step.predicted_step_s);
  if (v.step.executed.ok())
    json.field("executed_s", v.step.executed.measured_s);
  else
    json.null_field("executed_s");
  json.field("executed_predicted_s", v.step.executed_predicted_s);
  json.field("executed_reason", v.step.executed.reason);
  json.open_list("left_out");
  for (const std::string& reason : v.step.left_out) json.item(reason);
  json.close_list();
  json.close();
  json.open_list("warnings");
  for (const Warning& warning : p.warnings) {
    json.open_item();
    json.field("code", warning.code);
    json.field("message", warning.message);
    json.close();
  }
  json.close_list();
  json.close();
  return out + "\n";
}

}  // namespace

std::string render_validation(const ModelValidation& validation, Format format, std::size_t width, bool color) {
  switch (format) {
    case Format::csv:
      return render_csv(validation);
    case Format::json:
      return render_json(validation);
    default:
      return render_text(validation, width, color);
  }
}

}  // namespace rooftile
