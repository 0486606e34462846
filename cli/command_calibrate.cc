#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <filesystem>

#include "cli/calibrate_trace.h"
#include "cli/command_parser.h"
#include "cli/commands.h"
#include "cli/measuring_campaign.h"
#include "cli/numbers.h"
#include "cli/output.h"
#include "cli/session.h"
#include "report/quantity.h"
#include "report/text_table.h"
#include "validate/fit_device.h"
#include "validate/fit_torch.h"

namespace rooftile {
namespace {

struct Arguments {
  std::string check;
  std::string from, device, output, source, library, standard, base, most_rows, date, color, save, replay;
  bool protocol_only = false, torch_classes = false, quick = false, resume = false;
};

Result<std::optional<std::string>> parse(const Invocation& invocation, Arguments& arguments) {
  CommandParser parser(
      "calibrate",
      "Fits the constants of the kernel-time model to measured kernels and writes them as calibration layers: the device's own constants to the file of -o, and beside it "
      "'<file>@<protocol>.yaml' for each way of timing that the rows' column 'source' names. Half of the shapes are kept out of the fit; the errors printed are theirs. From a "
      "profiler trace of PyTorch the kernel classes between matmuls are learned.",
      {"rooftile calibrate -o rooftile/calibrations/mine.yaml --device ./mine.yaml", "rooftile calibrate --quick --save quick.csv",
       "rooftile calibrate --from h100.csv --device h100_sxm -o rooftile/calibrations/h100_sxm.yaml",
       "rooftile calibrate --from a100.csv --device a100_sxm_80gb --protocol-only --rows 50 -o a100_sxm_80gb.yaml",
       "rooftile calibrate --from step.json.gz --check another.json.gz -o rooftile/calibrations/mine.yaml"});
  parser.option("--from", arguments.from,
                "recorded kernel times: a CSV op,dtype,shape,measured_us,..., or a trace of torch.profiler (.json, .json.gz; record_shapes=True); without it the GPU "
                "present is measured, for at most five minutes",
                "Options", "FILE");
  parser.option("--check", arguments.check, "with a trace: another one, which is scored but not learned from", "Options", "TRACE");
  parser.option("--device", arguments.device, "device id or FILE", "Options", "NAME|FILE");
  parser.option("-o,--output", arguments.output, "the device layer; without it only the tables are printed", "Options", "FILE.yaml");
  parser.option("--source", arguments.source, "where the rows are from, for the file (default: the name of --from)", "Options", "TEXT");
  parser.option("--library", arguments.library, "library version that ran the kernels, for the file", "Options", "TEXT");
  parser.option("--default-protocol", arguments.standard, "the protocol that applies when none is named: one call in a stream kept busy", "Options", "NAME");
  parser.flag("--protocol-only", arguments.protocol_only, "fit what belongs to the way of timing, keep the physical constants");
  parser.flag("--torch-classes", arguments.torch_classes, "fit the kernels that PyTorch launches between matmuls, for all devices: torch.*, one file");
  parser.option("--calibration", arguments.base, "a layer whose constants hold: only what it lacks is fitted; with --protocol-only it may be another device's", "Options",
                "NAME|FILE");
  parser.option("--rows", arguments.most_rows, "fit on at most N rows", "Options", "N");
  parser.option("--date", arguments.date, "of the fit, YYYY-MM-DD (default today)", "Options", "DATE");
  parser.flag("--quick", arguments.quick, "measure on the GPU present for less than a minute");
  parser.option("--save", arguments.save, "what is measured on the GPU (default DEVICE-measured.csv), or the rows of a trace, are written here", "Options", "FILE.csv");
  parser.flag("--resume", arguments.resume, "what is in the file of --save is not measured again");
  parser.option("--replay", arguments.replay, "recorded kernel times take the place of the GPU in the campaign", "Options", "FILE");
  parser.option("--color", arguments.color, "auto (default), always or never", "Options", "WORD");
  return parser.parse(invocation.arguments);
}

std::string today() {
  const std::chrono::year_month_day day{std::chrono::floor<std::chrono::days>(std::chrono::system_clock::now())};
  return fmt::format("{:04}-{:02}-{:02}", static_cast<int>(day.year()), static_cast<unsigned>(day.month()), static_cast<unsigned>(day.day()));
}

Result<void> write_file(const std::filesystem::path& path, const std::string& text) {
  auto file = Output::open(path.string());
  if (!file) return tl::unexpected<Error>(file.error());
  file->write(text);
  const auto finished = file->finish();
  if (!finished) return tl::unexpected<Error>(finished.error());
  return {};
}

// Errors of the classes of PyTorch on rows that no fit has seen: by the new constants, by those that were there, by a roofline.
std::string torch_table(const TorchFit& fit, std::size_t width, bool color) {
  TextTable table;
  table.columns = {{"class", Align::left}, {"rows"}, {"mean"}, {"median"}, {"p90"}, {"bias"}, {"before: mean"}, {"bias"}, {"roofline: mean"}, {"bias"}};
  const auto add = [&](const std::string& name, const Residuals& r, const Residuals* before, const Residuals& fixed) {
    const auto signed_text = [](double bias) { return fmt::format("{:+.1f} %", 100 * bias); };
    std::vector<Cell> row;
    for (std::string text :
         {name, fmt::format("{}", r.rows), percent(r.mean_abs), percent(r.median_abs), percent(r.p90_abs), signed_text(r.bias), before == nullptr ? "" : percent(before->mean_abs),
          before == nullptr ? "" : signed_text(before->bias), percent(fixed.mean_abs), signed_text(fixed.bias)})
      row.push_back({std::move(text)});
    table.rows.push_back(std::move(row));
  };
  for (const auto& [family, r] : fit.residuals) {
    const auto before = fit.before.find(family);
    add(family, r, before == fit.before.end() ? nullptr : &before->second, fit.fixed.at(family));
  }
  add("all", fit.all, &fit.all_before, fit.all_fixed);
  TextTable fitted;
  fitted.columns = {{"fitted together", Align::left}, {"rows"}, {"fitted"}, {"mean on these"}};
  for (const TorchClassFit& c : fit.classes) {
    std::vector<Cell> row;
    for (std::string text : {c.walk, fmt::format("{}", c.rows), fmt::format("{}", c.fitted), percent(c.after)}) row.push_back({std::move(text)});
    fitted.rows.push_back(std::move(row));
  }
  return table.render(width, color, "") + "\n" + fitted.render(width, color, "");
}

std::string constants_table(const DeviceFit& fit, std::size_t width, bool color) {
  TextTable table;
  table.columns = {{"fitted on", Align::left}, {"constant", Align::left}, {"protocol", Align::left}, {"start"}, {"value"}, {"rows see it"}, {"", Align::left}};
  for (const FitReport& report : fit.constants) {
    const FittedConstant& c = report.constant;
    std::vector<Cell> row;
    for (std::string text : {report.block, c.constant.key, c.constant.protocol, fmt::format("{:.4g}", c.constant.start), fmt::format("{:.4g}", c.value),
                             fmt::format("{}", c.rows_seen), std::string(c.fitted ? "" : "stays")})
      row.push_back({std::move(text)});
    table.rows.push_back(std::move(row));
  }
  return table.render(width, color, "");
}

// The calibrated model beside itself without calibration and beside a roofline of one factor and one launch time, on rows that no fit has seen.
std::string residuals_table(const DeviceFit& fit, std::size_t width, bool color) {
  TextTable table;
  table.columns = {{"family", Align::left}, {"rows"},   {"mean"}, {"median"},         {"p90"},    {"bias"},
                   {"mode model: mean"},    {"median"}, {"bias"}, {"roofline: mean"}, {"median"}, {"bias"}};
  const auto add = [&](const std::string& family, const Residuals& r, const Residuals* before, const Residuals* fixed) {
    std::vector<Cell> row;
    const auto signed_text = [](double bias) { return fmt::format("{:+.1f} %", 100 * bias); };
    for (std::string text : {family, fmt::format("{}", r.rows), percent(r.mean_abs), percent(r.median_abs), percent(r.p90_abs), signed_text(r.bias)})
      row.push_back({std::move(text)});
    for (const Residuals* other : {before, fixed})
      for (std::string text :
           other == nullptr ? std::vector<std::string>(3) : std::vector<std::string>{percent(other->mean_abs), percent(other->median_abs), signed_text(other->bias)})
        row.push_back({std::move(text)});
    table.rows.push_back(std::move(row));
  };
  const auto find = [](const std::map<std::string, Residuals>& map, const std::string& family) {
    const auto found = map.find(family);
    return found == map.end() ? nullptr : &found->second;
  };
  for (const auto& [family, r] : fit.device.residuals) add(family, r, find(fit.before, family), find(fit.fixed, family));
  if (fit.device.residuals.size() > 1) add("all", fit.all, &fit.all_before, &fit.all_fixed);
  return table.render(width, color, "");
}

// The constants of a layer, perhaps another device's, laid over this device's architecture; they hold while the others are fitted.
Result<void> lay_over(Session& session, const std::string& name, Machine& machine) {
  const auto path = session.data().find(DataKind::calibration, name);
  if (!path) return tl::unexpected<Error>(path.error());
  auto layer = read_calibration(*path);
  if (!layer) return tl::unexpected<Error>(layer.error());
  if (layer->level == LayerLevel::protocol) return fail(ErrorCode::usage, layer->id + " is a protocol layer; the physical constants are in the device's", "--calibration");
  std::erase_if(machine.calibration.layers, [](const CalibrationLayer& other) { return other.level != LayerLevel::architecture; });
  machine.calibration.layers.push_back(std::move(*layer));
  return {};
}

Result<bool> from_trace(const Arguments& arguments) {
  const auto without = [&](bool given, const char* option) -> std::optional<Error> {
    if (!given) return std::nullopt;
    return Error{ErrorCode::usage, fmt::format("{} has no meaning with a profiler trace", option), option, ""};
  };
  for (const auto& refused : {without(arguments.protocol_only, "--protocol-only"), without(!arguments.standard.empty(), "--default-protocol"),
                              without(!arguments.most_rows.empty(), "--rows"), without(!arguments.replay.empty(), "--replay"), without(arguments.resume, "--resume")}) {
    if (refused) return tl::unexpected<Error>(*refused);
  }
  if (!arguments.output.empty() && std::filesystem::path(arguments.output).extension() != ".yaml") return fail(ErrorCode::usage, "the calibration is a .yaml file", "--output");
  if (!arguments.save.empty() && std::filesystem::exists(arguments.save)) return fail(ErrorCode::usage, "the file exists", arguments.save, "name another file");
  return calibrate_from_trace({.from = arguments.from,
                               .check = arguments.check,
                               .device = arguments.device,
                               .base = arguments.base,
                               .output = arguments.output,
                               .save = arguments.save,
                               .source = arguments.source,
                               .library = arguments.library,
                               .date = arguments.date.empty() ? today() : arguments.date,
                               .color = arguments.color});
}

// Runs the campaign and sets `from`, `device` and `library` to what was measured.
Result<void> measure(Session& session, Arguments& arguments) {
  auto runner = open_runner(arguments.replay);
  if (!runner) {
    Error error = runner.error();
    if (error.code == ErrorCode::unavailable) error.hint += "; recorded kernel times are fitted by: rooftile calibrate --from FILE.csv --device NAME";
    return tl::unexpected<Error>(std::move(error));
  }
  const GpuFacts gpu = (*runner)->facts();
  if (arguments.device.empty()) {
    auto device = device_of_gpu(session, gpu);
    if (!device) return tl::unexpected<Error>(device.error());
    arguments.device = std::move(*device);
  }
  // Read before measuring, so that a broken device file does not cost five minutes.
  const auto machine = session.machine(arguments.device, "", "");
  if (!machine) return tl::unexpected<Error>(machine.error());
  if (arguments.save.empty()) arguments.save = (*machine)->device.id + "-measured.csv";
  auto log = MeasurementLog::open(arguments.save, arguments.resume);
  if (!log) return tl::unexpected<Error>(log.error());
  fmt::print(stderr, "measuring {} for at most {:.0f} s into {}\n", printable((*runner)->description()), arguments.quick ? kQuickCampaign_s : kCampaign_s,
             printable(arguments.save));
  catch_interrupts();
  const CampaignSummary summary = run_campaign(**runner, arguments.quick ? kQuickCampaign_s : kCampaign_s, *log);
  fmt::print(stderr, "{} kernels measured, {} without a time, {} there before, in {:.0f} s\n", summary.measured, summary.without, summary.there_before, summary.wall_s);
  if (summary.interrupted) return fail(ErrorCode::interrupted, "interrupted; what was measured is kept", arguments.save, "--resume goes on with it");
  if (summary.device_lost) return fail(ErrorCode::unavailable, "the GPU stopped working", arguments.save, "--resume goes on behind the kernel that did it");
  arguments.from = arguments.save;
  if (arguments.library.empty() && !gpu.cublaslt.empty()) arguments.library = fmt::format("cuBLASLt {}, cuDNN {}", gpu.cublaslt, gpu.cudnn);
  if (arguments.source.empty()) arguments.source = fmt::format("{}, measured by rooftile{}", gpu.name, gpu.driver.empty() ? "" : ", driver " + gpu.driver);
  return {};
}

// One file with the constants of PyTorch's kernels.
Result<bool> calibrate_torch(const Machine& machine, const std::vector<FitRow>& rows, const Arguments& arguments, ColorChoice color, const std::string& date) {
  TorchFitOptions options;
  options.date = date;
  options.library = arguments.library.empty() ? "PyTorch" : arguments.library;
  auto fit = fit_torch_classes(machine, rows, options);
  if (!fit) return tl::unexpected<Error>(fit.error());
  auto output = Output::open("");
  if (!output) return tl::unexpected<Error>(output.error());
  output->write(fmt::format("{}: {} rows of PyTorch's kernels, {} fitted, the others kept out\n", printable(machine.device.name), fit->rows, fit->fitted_rows));
  if (fit->ignored > 0) output->write(fmt::format("{} row{} not used: not a class of PyTorch's kernels\n", fit->ignored, fit->ignored == 1 ? "" : "s"));
  output->write("\n|predicted / measured - 1| of the rows kept out of the fit: new constants, those that were there, a fixed-factor roofline (ideal / 0.8 + 3 us)\n");
  output->write(torch_table(*fit, output->width(), output->color(color)));
  if (!arguments.output.empty()) {
    const std::filesystem::path file = arguments.output;
    fit->layer.id = file.stem().string();
    const std::map<std::string, std::string> sources = {{"rows", arguments.source.empty() ? std::filesystem::path(arguments.from).filename().string() : arguments.source}};
    const std::string text = calibration_yaml(fit->layer, options.library + ": kernels between matmuls, all devices", sources);
    if (const auto written = write_file(file, text); !written) return tl::unexpected<Error>(written.error());
    output->write(fmt::format("\nwrote {}\n", file.string()));
  }
  return output->finish();
}

Result<bool> calibrate(Arguments arguments) {
  Session session;
  if (arguments.from.empty()) {
    if (const auto bad = std::filesystem::path(arguments.output).extension(); !arguments.output.empty() && bad != ".yaml")
      return fail(ErrorCode::usage, "the calibration is a .yaml file", "--output");
    if (const auto measured = measure(session, arguments); !measured) return tl::unexpected<Error>(measured.error());
  } else if (arguments.quick)
    return fail(ErrorCode::usage, "--quick measures on a GPU; it has no meaning with --from", "--quick");
  if (is_trace_file(arguments.from)) return from_trace(arguments);
  if (!arguments.check.empty()) return fail(ErrorCode::usage, "--check scores a trace against what another trace gave; rows of a CSV are kept out by themselves", "--check");
  if (arguments.device.empty()) return fail(ErrorCode::usage, "--from needs to know whose times these are", "--device", "rooftile devices lists the names");
  if (std::string_view(arguments.from).ends_with(".sqlite"))
    return fail(ErrorCode::unsupported, "exports of Nsight Systems are not read here; give a measurement CSV or a trace of torch.profiler", arguments.from);
  const std::filesystem::path file = arguments.output;
  if (!file.empty() && file.extension() != ".yaml") return fail(ErrorCode::usage, "the calibration is a .yaml file", "--output");
  const auto color = parse_color(arguments.color);
  if (!color) return tl::unexpected<Error>(color.error());

  DeviceFitOptions options;
  options.physical = !arguments.protocol_only;
  options.keep = !arguments.base.empty();
  options.date = arguments.date.empty() ? today() : arguments.date;
  options.source_file = arguments.from;
  options.library = arguments.library;
  if (!arguments.most_rows.empty()) {
    const auto most = parse_whole(arguments.most_rows, "--rows");
    if (!most) return tl::unexpected<Error>(most.error());
    if (*most == 0) return fail(ErrorCode::usage, "a fit needs at least one row", "--rows");
    options.most_rows = static_cast<std::size_t>(*most);
  }
  const auto loaded = session.machine(arguments.device, "", "");
  if (!loaded) return tl::unexpected<Error>(loaded.error());
  Machine machine = **loaded;
  if (!arguments.base.empty()) {
    if (const auto laid = lay_over(session, arguments.base, machine); !laid) return tl::unexpected<Error>(laid.error());
  }
  const auto text = read_text(arguments.from, std::size_t{1} << 30);
  if (!text) return tl::unexpected<Error>(text.error());
  const auto table = parse_measurements(*text, arguments.from);
  if (!table) return tl::unexpected<Error>(table.error());
  std::map<std::string, std::size_t> refused;
  std::vector<FitRow> rows = fit_rows(*table, machine.device, refused);
  if (arguments.torch_classes) return calibrate_torch(machine, rows, arguments, *color, options.date);
  auto fit = fit_device(machine, std::move(rows), options);
  if (!fit) return tl::unexpected<Error>(fit.error());
  if (!arguments.standard.empty()) {
    const auto layer = std::find_if(fit->protocols.begin(), fit->protocols.end(), [&](const CalibrationLayer& l) { return l.protocol == arguments.standard; });
    if (layer == fit->protocols.end()) {
      std::string known;
      for (const CalibrationLayer& l : fit->protocols) known += (known.empty() ? "the rows have " : ", ") + l.protocol;
      return fail(ErrorCode::usage, fmt::format("no row was timed by the protocol '{}'", printable(arguments.standard)), "--default-protocol", known);
    }
    layer->standard = true;
  }

  auto output = Output::open("");
  if (!output) return tl::unexpected<Error>(output.error());
  output->write(fmt::format("{}: {} rows, {} fitted, the others kept out\n\n", printable(machine.device.name), fit->rows, fit->fitted_rows));
  output->write(constants_table(*fit, output->width(), output->color(*color)));
  output->write(
      "\n|predicted / measured - 1| of the rows kept out of the fit: calibrated, then without calibration (--mode model), then a fixed-factor roofline (ideal / 0.8 + 3 us)\n");
  output->write(residuals_table(*fit, output->width(), output->color(*color)));
  for (const auto& [reason, count] : refused) output->write(fmt::format("{} row{} not used: {}\n", count, count == 1 ? "" : "s", printable(reason)));
  if (!file.empty()) {
    const std::map<std::string, std::string> sources = {{"rows", arguments.source.empty() ? std::filesystem::path(arguments.from).filename().string() : arguments.source}};
    if (options.physical) {
      fit->device.id = file.stem().string();
      if (const auto written = write_file(file, calibration_yaml(fit->device, machine.device.name + ": constants fitted to measured kernels", sources)); !written)
        return tl::unexpected<Error>(written.error());
      output->write(fmt::format("\nwrote {}\n", file.string()));
    }
    for (const CalibrationLayer& layer : fit->protocols) {
      const std::filesystem::path beside = file.parent_path() / (file.stem().string() + "@" + layer.protocol + ".yaml");
      if (const auto written = write_file(beside, calibration_yaml(layer, machine.device.name + " as timed by " + layer.protocol, sources)); !written)
        return tl::unexpected<Error>(written.error());
      output->write(fmt::format("wrote {}\n", beside.string()));
    }
  }
  return output->finish();
}

}  // namespace

int run_calibrate(const Invocation& invocation) {
  Arguments arguments;
  const auto help = parse(invocation, arguments);
  if (!help) return report_error(help.error());
  if (*help) {
    std::fputs((*help)->c_str(), stdout);
    return 0;
  }
  const auto done = calibrate(std::move(arguments));
  return done ? 0 : report_error(done.error());
}

}  // namespace rooftile
