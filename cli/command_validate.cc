#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <map>

#include "cli/command_parser.h"
#include "cli/commands.h"
#include "cli/listing.h"
#include "cli/session.h"
#include "frontends/model_files.h"
#include "report/json_writer.h"
#include "report/quantity.h"
#include "report/render.h"
#include "report/text_table.h"
#include "validate/errors.h"
#include "validate/measurements.h"

namespace rooftile {
namespace {

struct Arguments {
  std::vector<std::string> models;
  std::string measurements, device, mode, clocks, calibration, cluster, format, output, color;
};

Result<std::optional<std::string>> parse(const Invocation& invocation, Arguments& arguments) {
  CommandParser parser("validate", "Prints predicted beside measured kernel times. With --measurements it reads recorded ones and needs no GPU.",
                       {"rooftile validate --measurements h100.csv --device h100_sxm", "rooftile validate --measurements h100.csv --device h100_sxm --format csv -o judged.csv",
                        "rooftile validate --measurements h100.csv --device h100_sxm --mode model"});
  parser.positional("MODEL", arguments.models, "the model whose kernels are run on the GPU present");
  parser.option("--measurements", arguments.measurements, "recorded kernel times: op,dtype,shape,measured_us,...", "Options", "FILE");
  parser.option("--device", arguments.device, "device id or FILE", "Options", "NAME|FILE");
  parser.option("--mode", arguments.mode, "sol, model or calibrated (default where the device has a calibration)", "Options", "WORD");
  parser.option("--clocks", arguments.clocks, "auto, burst or sustained; what a row says wins (default burst)", "Options", "WORD");
  parser.option("--calibration", arguments.calibration, "a further layer of constants: a name or FILE", "Options", "NAME|FILE");
  parser.option("--cluster", arguments.cluster, "how GPUs are joined: a name or FILE", "Options", "NAME|FILE");
  parser.option("--format", arguments.format, "table (default): errors by family; csv: every row; json", "Output", "WORD");
  parser.option("-o,--output", arguments.output, "write to FILE; its ending chooses the format when --format is absent", "Output", "FILE");
  parser.option("--color", arguments.color, "auto (default), always or never", "Output", "WORD");
  return parser.parse(invocation.arguments);
}

struct Judged {
  std::optional<KernelTime> time;
  double measured_s = 0;
  std::string status, family;
};

struct Judgement {
  std::vector<Judged> rows;
  struct Ratios {
    std::vector<double> predicted, roofline;
  };
  std::map<std::string, Ratios> families;
  std::map<std::string, std::size_t> refused;  // why rows were not judged
};

// `clocks` is what the user wants; a row that says its own clocks has them.
Judgement judge(Session& session, const MeasurementTable& table, const Machine& machine, Mode mode, ClockState clocks) {
  Judgement judgement;
  for (const MeasurementRow& row : table.rows) {
    const MeasuredCall measured = measured_call(table, row);
    Judged judged;
    judged.measured_s = measured.measured_s;
    judged.status = measured.status;
    if (measured.call) {
      const std::string reason = unsupported_reason(*measured.call, machine.device);
      if (!reason.empty()) {
        judged.status = reason;
      } else {
        const ClockState state = table.field(row, "clocks").empty() ? clocks : measured.clocks;
        judged.time = session.timer(machine, mode, state)(*measured.call);
        judged.family = family_of(*measured.call);
        if (judged.status == "ok" && judged.measured_s > 0) {
          auto& ratios = judgement.families[judged.family];
          ratios.predicted.push_back(judged.time->time_s / judged.measured_s);
          ratios.roofline.push_back(judged.time->peak_s / judged.measured_s);
        }
      }
    }
    if (judged.status != "ok") ++judgement.refused[judged.status];
    judgement.rows.push_back(std::move(judged));
  }
  return judgement;
}

std::string render_csv(const MeasurementTable& table, const Judgement& judgement) {
  static constexpr std::string_view kAdded[] = {"predicted_us", "bound", "confidence", "status"};
  // A file that was written by this command before has these columns already; they are written anew.
  std::vector<bool> keep;
  std::string out;
  for (const std::string& column : table.columns) {
    keep.push_back(std::find(std::begin(kAdded), std::end(kAdded), column) == std::end(kAdded));
    if (keep.back()) out += csv_field(column) + ",";
  }
  out += "predicted_us,bound,confidence,status\n";
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    for (std::size_t c = 0; c < keep.size(); ++c) {
      if (keep[c]) out += csv_field(table.rows[i].fields[c]) + ",";
    }
    const Judged& judged = judgement.rows[i];
    if (judged.time) append_json_number(out, judged.time->time_s * 1e6);
    out += fmt::format(",{},{},{}\n", judged.time ? name_of(judged.time->bound) : "", judged.time ? name_of(judged.time->confidence) : "", csv_field(judged.status));
  }
  return out;
}

Judgement::Ratios all_ratios(const Judgement& judgement) {
  Judgement::Ratios all;
  for (const auto& [family, ratios] : judgement.families) {
    all.predicted.insert(all.predicted.end(), ratios.predicted.begin(), ratios.predicted.end());
    all.roofline.insert(all.roofline.end(), ratios.roofline.begin(), ratios.roofline.end());
  }
  return all;
}

std::string signed_percent(double ratio) { return fmt::format("{:+.1f} %", ratio * 100); }

std::string render_families(const Judgement& judgement, const Machine& machine, Mode mode, std::size_t width, bool color) {
  TextTable table;
  table.columns = {{"family", Align::left}, {"rows"}, {"error mean"}, {"median"}, {"p90"}, {"bias"}, {"ideal roofline mean"}, {"median"}, {"p90"}, {"bias"}};
  const auto add = [&](const std::string& name, const Judgement::Ratios& ratios) {
    const ErrorStatistics ours = error_statistics(ratios.predicted), ideal = error_statistics(ratios.roofline);
    std::vector<Cell> row;
    for (std::string text : {name, fmt::format("{}", ours.rows), percent(ours.mean), percent(ours.median), percent(ours.p90), signed_percent(ours.bias), percent(ideal.mean),
                             percent(ideal.median), percent(ideal.p90), signed_percent(ideal.bias)})
      row.push_back({std::move(text)});
    table.rows.push_back(std::move(row));
  };
  for (const auto& [family, ratios] : judgement.families) add(family, ratios);
  if (judgement.families.size() > 1) add("all", all_ratios(judgement));
  std::string out =
      fmt::format("{}, mode {}: error is |predicted / measured - 1|, bias its signed mean; the ideal roofline beside it\n", printable(machine.device.name), name_of(mode));
  out += judgement.families.empty() ? "no row could be judged\n" : table.render(width, color, "");
  for (const auto& [reason, rows] : judgement.refused) out += fmt::format("{} row{} not judged: {}\n", rows, rows == 1 ? "" : "s", printable(reason));
  return out;
}

std::string render_json(const Judgement& judgement, const Machine& machine, Mode mode) {
  std::string out;
  JsonWriter json(out);
  json.open();
  json.field("schema_version", 1);
  json.field("device", machine.device.id);
  json.field("mode", name_of(mode));
  json.open_list("families");
  const auto statistics = [&](std::string_view key, const std::vector<double>& ratios) {
    const ErrorStatistics errors = error_statistics(ratios);
    json.open(key);
    json.field("mean", errors.mean);
    json.field("median", errors.median);
    json.field("p90", errors.p90);
    json.field("bias", errors.bias);
    json.close();
  };
  for (const auto& [family, ratios] : judgement.families) {
    json.new_line();
    json.open_item();
    json.field("family", family);
    json.field("rows", static_cast<std::int64_t>(ratios.predicted.size()));
    statistics("error", ratios.predicted);
    statistics("roofline_error", ratios.roofline);
    json.close();
  }
  json.close_list();
  json.open_list("not_judged");
  for (const auto& [reason, rows] : judgement.refused) {
    json.open_item();
    json.field("status", reason);
    json.field("rows", static_cast<std::int64_t>(rows));
    json.close();
  }
  json.close_list();
  json.close();
  return out + "\n";
}

Result<bool> validate(const Arguments& arguments) {
  if (arguments.measurements.empty()) {
    if (!arguments.models.empty())
      return fail(ErrorCode::unsupported, "running a model's kernels on the GPU present is not in this version", {},
                  "recorded times: rooftile validate --measurements FILE.csv --device ID");
    return fail(ErrorCode::usage, "no --measurements FILE is given", {}, "for instance: rooftile validate --measurements h100.csv --device h100_sxm");
  }
  if (!arguments.models.empty()) return fail(ErrorCode::usage, fmt::format("unexpected argument '{}'", arguments.models[0]), {}, "--measurements takes no MODEL");
  if (arguments.device.empty()) return fail(ErrorCode::usage, "no --device is given", {}, "the device on which the times were measured; see 'rooftile devices'");
  Format format = format_of_file(arguments.output).value_or(Format::table);
  if (!arguments.format.empty()) {
    const auto parsed = parse_format(arguments.format);
    if (!parsed || (*parsed != Format::table && *parsed != Format::csv && *parsed != Format::json))
      return fail(ErrorCode::usage, fmt::format("'{}' is not table, csv or json", arguments.format), "--format");
    format = *parsed;
  }
  const auto color = parse_color(arguments.color);
  if (!color) return tl::unexpected<Error>(color.error());
  Request request;
  if (!arguments.mode.empty()) {
    if (const auto applied = apply(request, "mode", arguments.mode); !applied) return tl::unexpected<Error>(applied.error());
  }
  request.options.clocks = ClockState::burst;  // as measurements are unless they say otherwise
  if (!arguments.clocks.empty()) {
    if (const auto applied = apply(request, "clocks", arguments.clocks); !applied) return tl::unexpected<Error>(applied.error());
  }
  Session session;
  const auto machine = session.machine(arguments.device, arguments.cluster, arguments.calibration);
  if (!machine) return tl::unexpected<Error>(machine.error());
  Mode mode = request.options.mode;
  if (mode == Mode::calibrated && !has_calibration(**machine)) mode = Mode::model;
  const auto text = read_text(arguments.measurements, std::size_t{32} << 20);
  if (!text) return tl::unexpected<Error>(text.error());
  const auto table = parse_measurements(*text, arguments.measurements);
  if (!table) return tl::unexpected<Error>(table.error());
  const Judgement judgement = judge(session, *table, **machine, mode, request.options.clocks);
  std::error_code same;
  if (!arguments.output.empty() && std::filesystem::equivalent(arguments.output, arguments.measurements, same))
    return fail(ErrorCode::usage, fmt::format("'{}' is the file that is read", arguments.output), "--output", "write to another file");
  auto output = Output::open(arguments.output);
  if (!output) return tl::unexpected<Error>(output.error());
  switch (format) {
    case Format::csv:
      output->write(render_csv(*table, judgement));
      break;
    case Format::json:
      output->write(render_json(judgement, **machine, mode));
      break;
    default:
      output->write(render_families(judgement, **machine, mode, output->width(), output->color(*color)));
      break;
  }
  return output->finish();
}

}  // namespace

int run_validate(const Invocation& invocation) {
  Arguments arguments;
  const auto help = parse(invocation, arguments);
  if (!help) return report_error(help.error());
  if (*help) {
    std::fputs((*help)->c_str(), stdout);
    return 0;
  }
  const auto done = validate(arguments);
  return done ? 0 : report_error(done.error());
}

}  // namespace rooftile
