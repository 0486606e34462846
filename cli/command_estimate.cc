#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>

#include "cli/command_parser.h"
#include "cli/commands.h"
#include "cli/numbers.h"
#include "cli/output.h"
#include "cli/session.h"
#include "cli/sweep.h"
#include "cli/version.h"
#include "report/quantity.h"
#include "report/render.h"

namespace rooftile {
namespace {

constexpr std::string_view kOutput = "Output";
constexpr std::size_t kFlushBytes = 1 << 18;
constexpr std::size_t kMostSkipNotes = 10;

struct Arguments {
  std::vector<std::string> models;
  std::map<std::string_view, std::vector<std::string>> values;  // by option, as given
  std::map<std::string_view, bool> flags;
  std::string format = "", output, color, group = "op", view, top;
  bool plot = false, ops = false;
};

Result<std::optional<std::string>> parse(const Invocation& invocation, Arguments& arguments) {
  CommandParser parser(
      "estimate",
      "Costs a training step, forward, prefill or decode of a model on a GPU: per operator and in total. MODEL is a shipped name (see 'rooftile models'), a model YAML, a "
      "Hugging Face config.json or an ONNX file. Number options and sizes of --dim take ranges: 1,2,4 or 1024-8192+1024 or 1-64*2; every combination is estimated.",
      {"rooftile estimate llama-3-8b --device h100_sxm", "rooftile estimate llama-3.1-405b --device h100_sxm --tp 8 --pp 16 --gpus 1024 --gbs 512 --recompute selective",
       "rooftile estimate mistral-7b qwen3-8b --device a100_sxm_80gb --phase decode --context 4096", "rooftile estimate gpt2 --device a40 --mbs 1-64*2 --format csv -o sweep.csv"});
  parser.positional("MODEL", arguments.models, "shipped names or files");
  for (const OptionRow& row : option_rows()) {
    std::string names = "--" + std::string(row.name);
    if (!row.aliases.empty()) names += ",--" + std::string(row.aliases);
    if (row.form == OptionForm::flag) {
      parser.flag(names, arguments.flags[row.name], row.help, row.group);
    } else {
      const std::string_view value = row.form == OptionForm::number ? "N" : row.form == OptionForm::word ? "WORD" : row.form == OptionForm::file ? "NAME|FILE" : "NAME=N";
      parser.option(names, arguments.values[row.name], row.help, row.group, row.form == OptionForm::dimension, value);
    }
  }
  parser.option("--format", arguments.format, "table (default), json, jsonl, csv, md, html or trace (of one prediction, for chrome://tracing and Perfetto)", kOutput, "WORD");
  parser.option("-o,--output", arguments.output, "write to FILE; its ending chooses the format when --format is absent", kOutput, "FILE");
  parser.option("--group", arguments.group, "table and md: rows put together by op (default), by phase, or none", kOutput, "WORD");
  parser.option("--view", arguments.view,
                "table, md and csv of one prediction: by phase, layer (attention, mlp, norm ...) or family (matmul, pointwise, copy ...) instead of operators", kOutput, "WORD");
  parser.option("--top", arguments.top, "table and md: operators listed; 0 lists all (default: what fits 50 lines, at most 20)", kOutput, "N");
  parser.flag("--plot", arguments.plot, "table: draw the roofline with the operators on it", kOutput);
  parser.flag("--ops", arguments.ops, "jsonl of a sweep: with the operators of each prediction", kOutput);
  parser.option("--color", arguments.color, "auto (default), always or never", kOutput, "WORD");
  return parser.parse(invocation.arguments);
}

// The settings of one model: its own run: section beneath what the command line says.
std::vector<Setting> settings_of(const Model& model, const Arguments& arguments) {
  std::vector<Setting> settings;
  const auto given = [&](std::string_view name) {
    const auto values = arguments.values.find(name);
    const auto flag = arguments.flags.find(name);
    return (values != arguments.values.end() && !values->second.empty()) || (flag != arguments.flags.end() && flag->second);
  };
  for (const auto& [key, value] : model.spec.run) {
    std::string name = key;
    std::replace(name.begin(), name.end(), '_', '-');
    if (name == "format") continue;  // an option of the output
    const OptionRow* row = find_option(name);
    if (row == nullptr || !given(row->name)) settings.emplace_back(std::move(name), value);
  }
  for (const OptionRow& row : option_rows()) {
    if (const auto values = arguments.values.find(row.name); values != arguments.values.end()) {
      for (const std::string& value : values->second) settings.emplace_back(row.name, value);
    }
    if (const auto flag = arguments.flags.find(row.name); flag != arguments.flags.end() && flag->second) settings.emplace_back(row.name, "true");
  }
  return settings;
}

// A value of a run: section is input: what is wrong with it is said with its line.
Result<bool> check_run(const ModelSpec& spec) {
  for (const auto& option : spec.run) {
    const std::string &key = option.first, &value = option.second;
    std::string name = key;
    std::replace(name.begin(), name.end(), '_', '-');
    const auto refused = [&](const Error& error) {
      const auto place = spec.run_place.find(key);
      return fail(ErrorCode::invalid, fmt::format("run.{}: {}", key, error.message), place == spec.run_place.end() ? spec.file : place->second, error.hint);
    };
    if (name == "format") {
      if (!parse_format(value)) return refused({ErrorCode::invalid, fmt::format("'{}' is not known", value), {}, {}});
      continue;
    }
    const auto sweep = sweep_of({{name, value}});
    if (!sweep) return refused(sweep.error());
    std::vector<Setting> varied;
    for (std::size_t i = 0; i < sweep->size; ++i) {
      if (const auto request = request_of(*sweep, i, varied); !request) return refused(request.error());
    }
  }
  return true;
}

// Writing the report over a file that it is made from would destroy that file.
Result<bool> check_output(const std::string& output, const std::vector<std::filesystem::path>& inputs) {
  std::error_code error;
  for (const auto& input : inputs) {
    if (!output.empty() && std::filesystem::equivalent(output, input, error))
      return fail(ErrorCode::usage, fmt::format("'{}' is an input of this run", output), "--output", "write to another file");
  }
  return true;
}

// Formats whose lines are written as they come; the others need all predictions at once.
bool streams(Format format, bool many) { return format == Format::jsonl || (format == Format::csv && many); }

// The report in the making. render() may run on several threads at once.
class Reporter {
 public:
  Reporter(Format format, bool sweep_ops, bool many, std::optional<ViewKind> view, ReportContext context)
      : format_(format), many_(many), sweep_ops_(sweep_ops), view_(view), context_(std::move(context)) {}

  void render(Outcome& outcome) const {
    if (format_ == Format::jsonl) append_json(outcome.text, *outcome.prediction, context_, {true, sweep_ops_ || outcome.varied.empty()}, outcome.varied);
    if (format_ == Format::csv && many_) append_csv_totals(outcome.text, *outcome.prediction, outcome.varied);
    // Only the totals of many are shown: their rows are not kept.
    if (many_ && format_ != Format::json && format_ != Format::jsonl && outcome.job->sweep.size > 16) outcome.prediction->rows.clear();
  }

  // False when the output takes no more.
  bool add(Output& output, Outcome& outcome) {
    if (format_ == Format::csv || (many_ && (format_ == Format::table || format_ == Format::md))) note_warnings(*outcome.prediction);
    if (!streams(format_, many_)) {
      kept_.push_back(std::make_unique<Prediction>(std::move(*outcome.prediction)));
      settings_.push_back(std::move(outcome.varied));
      return true;
    }
    if (!started_ && format_ == Format::csv) text_ += csv_totals_header(outcome.varied);
    started_ = true;
    text_ += outcome.text;
    if (text_.size() < kFlushBytes) return true;
    const bool taken = output.write(text_);
    text_.clear();
    return taken;
  }

  void finish(Output& output, const TableStyle& style) {
    for (const auto& [key, note] : warnings_)
      fmt::print(stderr, "rooftile: warning: {}: {}{}\n", printable(key.first), printable(note.message), note.more > 0 ? fmt::format(" (and {} more like it)", note.more) : "");
    std::vector<Variant> variants;
    for (std::size_t i = 0; i < kept_.size(); ++i) variants.push_back({kept_[i].get(), settings_[i]});
    const bool markdown = format_ == Format::md;
    if (format_ == Format::json) {
      text_ += render_json(variants, context_);
    } else if (format_ == Format::trace && !kept_.empty()) {
      append_trace(text_, *kept_[0], context_);
    } else if (format_ == Format::csv && !many_ && view_) {
      text_ += csv_view_header();
      append_csv_view(text_, *kept_[0], *view_);
    } else if (format_ == Format::csv && !many_) {
      text_ += csv_ops_header();
      append_csv_ops(text_, *kept_[0]);
    } else if (!variants.empty()) {
      if (variants.size() > 1)
        text_ += render_side_by_side(variants, style, markdown);
      else
        text_ += markdown ? render_markdown(*kept_[0], style) : render_table(*kept_[0], style);
    }
    output.write(text_);
  }

 private:
  // Formats without room for warnings have them on stderr, each kind once.
  void note_warnings(const Prediction& prediction) {
    for (const Warning& warning : prediction.warnings) {
      if (warning.code == "does_not_fit") continue;  // a column says it
      const auto [place, fresh] =
          warnings_.try_emplace({prediction.model.name, warning.code + (warning.code == "option_without_effect" ? warning.message : "")}, Note{warning.message});
      if (!fresh) ++place->second.more;
    }
  }
  struct Note {
    std::string message;
    std::size_t more = 0;
  };
  std::map<std::pair<std::string, std::string>, Note> warnings_;  // by model and kind
  Format format_;
  bool many_, sweep_ops_, started_ = false;
  std::optional<ViewKind> view_;
  ReportContext context_;
  std::string text_;
  std::vector<std::unique_ptr<Prediction>> kept_;
  std::vector<std::vector<Setting>> settings_;
};

Result<Grouping> parse_grouping(std::string_view text) {
  if (text == "op") return Grouping::op;
  if (text == "phase") return Grouping::phase;
  if (text == "none") return Grouping::none;
  return fail(ErrorCode::usage, fmt::format("'{}' is not op, phase or none", text), "--group");
}

Result<std::optional<ViewKind>> parse_view(const std::string& text) {
  if (text.empty()) return std::optional<ViewKind>();
  if (const auto view = parse_view_kind(text)) return view;
  return fail(ErrorCode::usage, fmt::format("'{}' is not phase, layer or family", text), "--view");
}

Result<Format> format_of(const Arguments& arguments) {
  if (arguments.format.empty()) return format_of_file(arguments.output).value_or(Format::table);
  if (const auto format = parse_format(arguments.format)) return *format;
  return fail(ErrorCode::usage, fmt::format("'{}' is not known", arguments.format), "--format", "known: table, json, jsonl, csv, md, html, trace");
}

void note_skipped(const Outcome& outcome) {
  const Error& error = outcome.prediction.error();
  std::string what = outcome.job->model;
  for (const auto& [name, value] : outcome.varied) what += name.starts_with("dim.") ? fmt::format(" --dim {}={}", name.substr(4), value) : fmt::format(" --{} {}", name, value);
  fmt::print(stderr, "rooftile: skipped {}: {}{}\n", printable(what), error.place.empty() ? "" : printable(error.place) + ": ", printable(error.message));
}

Result<std::vector<Job>> jobs_of(Session& session, const Arguments& arguments) {
  if (arguments.models.empty()) return fail(ErrorCode::usage, "no model is given", {}, "for instance: rooftile estimate llama-3-8b --device h100_sxm");
  std::vector<Job> jobs;
  for (const std::string& name : arguments.models) {
    const auto model = session.model(name);
    if (!model) return tl::unexpected<Error>(model.error());
    if (const auto checked = check_run((*model)->spec); !checked) return tl::unexpected<Error>(checked.error());
    auto sweep = sweep_of(settings_of(**model, arguments));
    if (!sweep) return tl::unexpected<Error>(sweep.error());
    const bool device = std::any_of(sweep->axes.begin(), sweep->axes.end(), [](const auto& axis) { return axis.first == "device"; });
    if (!device) {
      std::string known;
      for (const std::string& id : session.data().names(DataKind::device)) known += (known.empty() ? "" : ", ") + id;
      return fail(ErrorCode::usage, "no --device is given", {}, known.empty() ? "see 'rooftile devices'" : "known: " + known);
    }
    std::vector<std::filesystem::path> inputs = {(*model)->file};
    for (const auto& [option, values] : sweep->axes) {
      if (find_option(option)->form == OptionForm::file) inputs.insert(inputs.end(), values.begin(), values.end());
    }
    if (const auto checked = check_output(arguments.output, inputs); !checked) return tl::unexpected<Error>(checked.error());
    jobs.push_back({name, std::move(*sweep)});
  }
  return jobs;
}

Result<bool> estimate(const Arguments& arguments, const std::string& command_line) {
  auto format = format_of(arguments);
  if (!format) return tl::unexpected<Error>(format.error());
  const auto color = parse_color(arguments.color);
  if (!color) return tl::unexpected<Error>(color.error());
  const auto grouping = parse_grouping(arguments.group);
  if (!grouping) return tl::unexpected<Error>(grouping.error());
  const auto view = parse_view(arguments.view);
  if (!view) return tl::unexpected<Error>(view.error());
  const auto top = parse_whole(arguments.top.empty() ? "20" : arguments.top, "--top");
  if (!top) return tl::unexpected<Error>(top.error());

  std::vector<std::unique_ptr<Session>> sessions;
  sessions.push_back(std::make_unique<Session>());
  const auto jobs = jobs_of(*sessions[0], arguments);
  if (!jobs) return tl::unexpected<Error>(jobs.error());
  if (arguments.format.empty() && arguments.output.empty()) {
    const auto model = sessions[0]->model(arguments.models[0]);
    if (const auto suggested = (*model)->spec.run.find("format"); suggested != (*model)->spec.run.end()) format = *parse_format(suggested->second);
  }
  if (*format == Format::html) return fail(ErrorCode::unsupported, "the HTML report is not in this version", "--format html", "use --format md, json or csv");
  std::size_t count = 0;
  for (const Job& job : *jobs) count += job.sweep.size;

  if (*format == Format::trace && count > 1)
    return fail(ErrorCode::usage, fmt::format("a trace is of one prediction; these are {}", count), "--format trace", "give one model and no ranges");

  // The first prediction comes before the file is opened: what fails at once leaves nothing behind. What cannot be predicted among many is said and left out.
  Reporter reporter(*format, arguments.ops, count > 1, *view, {std::string(version()), command_line});
  std::optional<Output> output;
  std::optional<Error> failed, refused;
  std::size_t skipped = 0;
  const auto take = [&](Outcome& outcome) {
    if (!outcome.prediction) {
      if (count == 1 || outcome.bad_request) {
        failed = outcome.prediction.error();
        return false;
      }
      // A combination of a sweep that does not divide is no failure of the sweep; a model that was asked for and cannot be estimated is one.
      if (!refused || outcome.varied.empty()) refused = outcome.prediction.error();
      if (outcome.varied.empty()) failed = refused;
      if (++skipped <= kMostSkipNotes) note_skipped(outcome);
      return true;
    }
    if (!output) {
      auto opened = Output::open(arguments.output);
      if (!opened) {
        failed = opened.error();
        return false;
      }
      output.emplace(std::move(*opened));
    }
    return reporter.add(*output, outcome);
  };
  predict_all(
      sessions, *jobs, [&](Outcome& outcome) { reporter.render(outcome); }, take);
  if (skipped > kMostSkipNotes) fmt::print(stderr, "rooftile: skipped {} more\n", skipped - kMostSkipNotes);
  if (!output) return tl::unexpected<Error>(failed ? *failed : *refused);
  const TableStyle style = {output->color(*color), output->width(), *grouping, static_cast<std::size_t>(*top), arguments.plot, *view, arguments.top.empty() ? std::size_t{50} : 0};
  reporter.finish(*output, style);
  const auto finished = output->finish();
  if (finished && failed) return tl::unexpected<Error>(*failed);
  return finished;
}

}  // namespace

int run_estimate(const Invocation& invocation) {
  Arguments arguments;
  const auto help = parse(invocation, arguments);
  if (!help) return report_error(help.error());
  if (*help) {
    std::fputs((*help)->c_str(), stdout);
    return 0;
  }
  const auto done = estimate(arguments, invocation.command_line);
  return done ? 0 : report_error(done.error());
}

}  // namespace rooftile
