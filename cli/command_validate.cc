#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>

#include "cli/command_parser.h"
#include "cli/commands.h"
#include "cli/listing.h"
#include "cli/numbers.h"
#include "cli/session.h"
#include "cli/validate_model.h"
#include "frontends/model_files.h"
#include "report/json_writer.h"
#include "report/quantity.h"
#include "report/render.h"
#include "report/text_table.h"
#include "validate/errors.h"
#include "validate/fit_trace.h"
#include "validate/measurements.h"
#include "validate/trace_rows.h"

namespace rooftile {
namespace {

struct Arguments {
  std::vector<std::string> models;
  std::string measurements, device, mode, clocks, calibration, cluster, format, output, color, replay, save, budget;
  bool resume = false;
  std::map<std::string_view, std::vector<std::string>> values;  // other options of `estimate`, for MODEL
  std::map<std::string_view, bool> flags;
};

// Said under Options for both forms of the command.
constexpr std::string_view kShared[] = {"device", "mode", "clocks", "calibration", "cluster"};

Result<std::optional<std::string>> parse(const Invocation& invocation, Arguments& arguments) {
  CommandParser parser(
      "validate",
      "Prints predicted beside measured kernel times. With MODEL it runs the model's kernels on the GPU present, then the whole step. With --measurements it reads recorded "
      "times and needs no GPU.",
      {"rooftile validate gpt2 --phase train --mbs 16 --seq 1024", "rooftile validate llama-3-8b --phase forward --seq 2048 --save llama.csv",
       "rooftile validate --measurements h100.csv --device h100_sxm", "rooftile validate --measurements h100.csv --device h100_sxm --format csv -o judged.csv",
       "rooftile validate --measurements h100.csv --device h100_sxm --mode model"});
  parser.positional("MODEL", arguments.models, "the model whose kernels are run on the GPU present");
  parser.option("--measurements", arguments.measurements, "recorded kernel times: op,dtype,shape,measured_us,...", "Options", "FILE");
  parser.option("--device", arguments.device, "device id or FILE", "Options", "NAME|FILE");
  parser.option("--mode", arguments.mode, "sol, model or calibrated (default where the device has a calibration)", "Options", "WORD");
  parser.option("--clocks", arguments.clocks, "auto (default), burst or sustained; what a row says wins", "Options", "WORD");
  parser.option("--calibration", arguments.calibration, "a further layer of constants: a name or FILE", "Options", "NAME|FILE");
  parser.option("--cluster", arguments.cluster, "how GPUs are joined: a name or FILE", "Options", "NAME|FILE");
  parser.option("--replay", arguments.replay, "with MODEL: recorded kernel times take the place of the GPU", "Options", "FILE");
  parser.option("--save", arguments.save, "with MODEL: each kernel's time is written here as it is measured", "Options", "FILE.csv");
  parser.flag("--resume", arguments.resume, "with --save: what is in the file is not measured again");
  parser.option("--budget", arguments.budget, "with MODEL: seconds to measure kernels for (default no limit)", "Options", "N");
  for (const OptionRow& row : option_rows()) {
    if (std::find(std::begin(kShared), std::end(kShared), row.name) != std::end(kShared)) continue;
    std::string names = "--" + std::string(row.name);
    if (!row.aliases.empty()) names += ",--" + std::string(row.aliases);
    if (row.form == OptionForm::flag)
      parser.flag(names, arguments.flags[row.name], row.help, row.group);
    else
      parser.option(names, arguments.values[row.name], row.help, row.group, row.form == OptionForm::dimension, row.form == OptionForm::number ? "N" : "WORD");
  }
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

// `clocks` is what the user wants; a row that says its own clocks has them. `protocols`: a row whose source names a protocol of the device is judged under it, the others under
// the machine's own. Rows of a profiler trace hold no launch.
Judgement judge(Session& session, const MeasurementTable& table, const Machine& machine, Mode mode, ClockState clocks, bool protocols) {
  Judgement judgement;
  std::map<std::string, std::unique_ptr<Machine>> under;
  const auto machine_of = [&](std::string_view source) -> const Machine& {
    const std::string protocol = protocol_of(source);
    const auto& known = machine.calibration.protocols;
    if (protocols && protocol == kTraceSource) {
      auto& profiled = under[protocol];
      if (profiled == nullptr) profiled = std::make_unique<Machine>(under_profiler(machine));
      return *profiled;
    }
    if (!protocols || std::none_of(known.begin(), known.end(), [&](const CalibrationLayer& layer) { return layer.protocol == protocol; })) return machine;
    auto& changed = under[protocol];
    if (changed == nullptr) {
      changed = std::make_unique<Machine>(machine);
      changed->calibration = machine.calibration.under(protocol);
    }
    return *changed;
  };
  std::map<std::pair<const Machine*, ClockState>, std::unique_ptr<KernelTimer>> timers;
  const auto timer_of = [&](const Machine& timed, ClockState state) -> KernelTimer& {
    if (&timed == &machine) return session.timer(machine, mode, state);
    auto& timer = timers[{&timed, state}];
    if (timer == nullptr) timer = std::make_unique<KernelTimer>(timed, mode, state);
    return *timer;
  };
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
        judged.time = timer_of(machine_of(table.field(row, "source")), state)(*measured.call);
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

Result<int> validate_on_gpu(const Arguments& arguments, Format format, ColorChoice color) {
  if (arguments.models.size() > 1) return fail(ErrorCode::usage, "one model at a time", printable(arguments.models[1]));
  ValidateModelArguments model;
  model.model = arguments.models[0];
  model.replay = arguments.replay;
  model.save = arguments.save;
  model.output = arguments.output;
  model.resume = arguments.resume;
  model.format = format;
  model.color = color;
  if (!arguments.budget.empty()) {
    const auto budget = parse_whole(arguments.budget, "--budget");
    if (!budget) return tl::unexpected<Error>(budget.error());
    model.budget_s = static_cast<double>(*budget);
  }
  const std::string* const shared[] = {&arguments.device, &arguments.mode, &arguments.clocks, &arguments.calibration, &arguments.cluster};
  for (std::size_t i = 0; i < std::size(kShared); ++i)
    if (!shared[i]->empty()) model.settings.emplace_back(kShared[i], *shared[i]);
  for (const auto& [name, values] : arguments.values)
    for (const std::string& value : values) model.settings.emplace_back(name, value);
  for (const auto& [name, given] : arguments.flags)
    if (given) model.settings.emplace_back(name, "true");
  return validate_model(model);
}

Result<int> validate(const Arguments& arguments) {
  Format format = format_of_file(arguments.output).value_or(Format::table);
  if (!arguments.format.empty()) {
    const auto parsed = parse_format(arguments.format);
    if (!parsed || (*parsed != Format::table && *parsed != Format::csv && *parsed != Format::json))
      return fail(ErrorCode::usage, fmt::format("'{}' is not table, csv or json", arguments.format), "--format");
    format = *parsed;
  }
  const auto color = parse_color(arguments.color);
  if (!color) return tl::unexpected<Error>(color.error());
  if (arguments.measurements.empty()) {
    if (!arguments.models.empty()) return validate_on_gpu(arguments, format, *color);
    return fail(ErrorCode::usage, "neither a MODEL nor --measurements FILE is given", {},
                "for instance: rooftile validate gpt2 --phase train, or rooftile validate --measurements h100.csv --device h100_sxm");
  }
  if (!arguments.models.empty()) return fail(ErrorCode::usage, fmt::format("unexpected argument '{}'", arguments.models[0]), {}, "--measurements takes no MODEL");
  if (arguments.device.empty()) return fail(ErrorCode::usage, "no --device is given", {}, "the device on which the times were measured; see 'rooftile devices'");
  Request request;
  if (!arguments.mode.empty()) {
    if (const auto applied = apply(request, "mode", arguments.mode); !applied) return tl::unexpected<Error>(applied.error());
  }
  request.options.clocks = ClockState::automatic;  // a kernel timed alone: burst, sliding to sustained with its own length
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
  const Judgement judgement = judge(session, *table, **machine, mode, request.options.clocks, arguments.calibration.empty());
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
  if (const auto finished = output->finish(); !finished) return tl::unexpected<Error>(finished.error());
  return 0;
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
  return done ? *done : report_error(done.error());
}

}  // namespace rooftile
