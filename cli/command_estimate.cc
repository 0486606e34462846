#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>

#include "cli/command_parser.h"
#include "cli/commands.h"
#include "cli/numbers.h"
#include "cli/output.h"
#include "cli/session.h"
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
  std::string format = "", output, color, group = "op", top = "24";
  bool plot = false, ops = false;
};

Result<std::optional<std::string>> parse(const Invocation& invocation, Arguments& arguments) {
  CommandParser parser(
      "estimate",
      "Costs a training step, forward, prefill or decode of a model on a GPU: per operator and in total. MODEL is a shipped name (see 'rooftile models'), a model YAML, a "
      "Hugging Face config.json or an ONNX file. Number options take ranges: 1,2,4 or 1024-8192+1024 or 1-64*2; every combination is estimated.",
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
  parser.option("--format", arguments.format, "table (default), json, jsonl, csv, md or html", kOutput, "WORD");
  parser.option("-o,--output", arguments.output, "write to FILE; its ending chooses the format when --format is absent", kOutput, "FILE");
  parser.option("--group", arguments.group, "table and md: rows put together by op (default), by phase, or none", kOutput, "WORD");
  parser.option("--top", arguments.top, "table and md: operators listed; 0 lists all (default 24)", kOutput, "N");
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
  for (const auto& [name, value] : model.spec.run) {
    const OptionRow* row = find_option(name);
    if (row == nullptr || !given(row->name)) settings.emplace_back(name, value);
  }
  for (const OptionRow& row : option_rows()) {
    if (const auto values = arguments.values.find(row.name); values != arguments.values.end()) {
      for (const std::string& value : values->second) settings.emplace_back(row.name, value);
    }
    if (const auto flag = arguments.flags.find(row.name); flag != arguments.flags.end() && flag->second) settings.emplace_back(row.name, "true");
  }
  return settings;
}

// Every combination of the values of the settings; the last setting changes fastest.
struct Sweep {
  std::vector<std::pair<std::string, std::vector<std::string>>> axes;
  std::size_t size = 1;
};

Result<Sweep> sweep_of(const std::vector<Setting>& settings) {
  constexpr std::size_t kMostVariants = 10'000'000;
  Sweep sweep;
  for (const auto& [name, value] : settings) {
    const OptionRow* row = find_option(name);
    std::vector<std::string> values = {value};
    // A file's name may hold a comma; lists of names hold nothing but names.
    const bool list =
        row != nullptr && (row->form == OptionForm::number || row->form == OptionForm::word || (row->form == OptionForm::file && value.find('/') == std::string::npos));
    if (list) {
      auto expanded = row->form == OptionForm::number ? expand_range(value, "--" + name) : split_list(value, "--" + name);
      if (!expanded) return tl::unexpected<Error>(expanded.error());
      values = std::move(*expanded);
    }
    if (sweep.size > kMostVariants / values.size()) return fail(ErrorCode::usage, fmt::format("more than {} combinations", kMostVariants), "--" + name);
    sweep.size *= values.size();
    sweep.axes.emplace_back(name, std::move(values));
  }
  return sweep;
}

// The request of one combination, and the settings that tell it from the others.
Result<Request> request_of(const Sweep& sweep, std::size_t index, std::vector<Setting>& varied) {
  Request request;
  varied.clear();
  std::size_t stride = sweep.size;
  for (const auto& [name, values] : sweep.axes) {
    stride /= values.size();
    const std::string& value = values[index / stride % values.size()];
    if (const auto applied = apply(request, name, value); !applied) return tl::unexpected<Error>(applied.error());
    if (values.size() > 1) varied.emplace_back(name, value);
  }
  return request;
}

class Reporter {
 public:
  Reporter(Output& output, Format format, const Arguments& arguments, const TableStyle& style, ReportContext context, bool many)
      : output_(output), format_(format), style_(style), context_(std::move(context)), many_(many), sweep_ops_(arguments.ops) {}

  // False when the output takes no more.
  bool add(Prediction prediction, std::vector<Setting> varied) {
    switch (format_) {
      case Format::jsonl:
        append_json(text_, prediction, context_, {true, sweep_ops_ || varied.empty()}, varied);
        break;
      case Format::csv:
        if (!many_) {
          text_ += csv_ops_header();
          append_csv_ops(text_, prediction);
        } else {
          if (!started_) text_ += csv_totals_header(varied);
          append_csv_totals(text_, prediction, varied);
        }
        break;
      default:
        kept_.push_back(std::make_unique<Prediction>(std::move(prediction)));
        // Only the totals of many are shown.
        if (many_ && format_ != Format::json && kept_.size() > 16) kept_.back()->rows.clear();
        settings_.push_back(std::move(varied));
    }
    started_ = true;
    if (text_.size() < kFlushBytes) return true;
    const bool taken = output_.write(text_);
    text_.clear();
    return taken;
  }

  void finish() {
    std::vector<Variant> variants;
    for (std::size_t i = 0; i < kept_.size(); ++i) variants.push_back({kept_[i].get(), settings_[i]});
    if (format_ == Format::json) {
      text_ += render_json(variants, context_);
    } else if (format_ == Format::table || format_ == Format::md) {
      const bool markdown = format_ == Format::md;
      if (variants.size() == 1)
        text_ += markdown ? render_markdown(*variants[0].prediction, style_) : render_table(*variants[0].prediction, style_);
      else
        text_ += render_side_by_side(variants, style_, markdown);
    }
    output_.write(text_);
  }

 private:
  Output& output_;
  Format format_;
  TableStyle style_;
  ReportContext context_;
  bool many_, sweep_ops_, started_ = false;
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

Result<Format> format_of(const Arguments& arguments) {
  if (arguments.format.empty()) return format_of_file(arguments.output).value_or(Format::table);
  if (const auto format = parse_format(arguments.format)) return *format;
  return fail(ErrorCode::usage, fmt::format("'{}' is not known", arguments.format), "--format", "known: table, json, jsonl, csv, md, html");
}

void note_skipped(const Model& model, const std::vector<Setting>& varied, const Error& error) {
  std::string what = model.name;
  for (const auto& [name, value] : varied) what += fmt::format(" --{} {}", name, value);
  fmt::print(stderr, "rooftile: skipped {}: {}{}\n", printable(what), error.place.empty() ? "" : printable(error.place) + ": ", printable(error.message));
}

struct Job {
  const Model* model;
  Sweep sweep;
};

Result<std::vector<Job>> jobs_of(Session& session, const Arguments& arguments) {
  if (arguments.models.empty()) return fail(ErrorCode::usage, "no model is given", {}, "for instance: rooftile estimate llama-3-8b --device h100_sxm");
  std::vector<Job> jobs;
  for (const std::string& name : arguments.models) {
    const auto model = session.model(name);
    if (!model) return tl::unexpected<Error>(model.error());
    auto sweep = sweep_of(settings_of(**model, arguments));
    if (!sweep) return tl::unexpected<Error>(sweep.error());
    const bool device = std::any_of(sweep->axes.begin(), sweep->axes.end(), [](const auto& axis) { return axis.first == "device"; });
    if (!device) {
      std::string known;
      for (const std::string& id : session.data().names(DataKind::device)) known += (known.empty() ? "" : ", ") + id;
      return fail(ErrorCode::usage, "no --device is given", {}, known.empty() ? "see 'rooftile devices'" : "known: " + known);
    }
    jobs.push_back({*model, std::move(*sweep)});
  }
  return jobs;
}

Result<bool> estimate(const Arguments& arguments, const std::string& command_line) {
  const auto format = format_of(arguments);
  if (!format) return tl::unexpected<Error>(format.error());
  if (*format == Format::html) return fail(ErrorCode::unsupported, "the HTML report is not in this version", "--format html", "use --format md, json or csv");
  const auto color = parse_color(arguments.color);
  if (!color) return tl::unexpected<Error>(color.error());
  const auto grouping = parse_grouping(arguments.group);
  if (!grouping) return tl::unexpected<Error>(grouping.error());
  const auto top = parse_whole(arguments.top, "--top");
  if (!top) return tl::unexpected<Error>(top.error());

  Session session;
  const auto jobs = jobs_of(session, arguments);
  if (!jobs) return tl::unexpected<Error>(jobs.error());
  std::size_t count = 0;
  for (const Job& job : *jobs) count += job.sweep.size;

  // The first prediction comes before the file is opened: what fails at once leaves nothing behind. What cannot be predicted among many is said and left out.
  std::optional<Output> output;
  std::optional<Reporter> reporter;
  std::optional<Error> refused;
  std::size_t skipped = 0;
  std::vector<Setting> varied;
  for (const Job& job : *jobs) {
    for (std::size_t i = 0; i < job.sweep.size; ++i) {
      const auto request = request_of(job.sweep, i, varied);
      if (!request) return tl::unexpected<Error>(request.error());
      auto prediction = session.predict(*job.model, *request);
      if (!prediction) {
        if (count == 1) return tl::unexpected<Error>(prediction.error());
        if (!refused || varied.empty()) refused = prediction.error();
        if (++skipped <= kMostSkipNotes) note_skipped(*job.model, varied, prediction.error());
        continue;
      }
      if (!reporter) {
        auto opened = Output::open(arguments.output);
        if (!opened) return tl::unexpected<Error>(opened.error());
        output.emplace(std::move(*opened));
        const TableStyle style = {output->color(*color), output->width(), *grouping, static_cast<std::size_t>(*top), arguments.plot};
        reporter.emplace(*output, *format, arguments, style, ReportContext{std::string(version()), command_line}, count > 1);
      }
      if (!reporter->add(std::move(*prediction), varied)) return output->finish();
    }
  }
  if (skipped > kMostSkipNotes) fmt::print(stderr, "rooftile: skipped {} more\n", skipped - kMostSkipNotes);
  if (!reporter) return tl::unexpected<Error>(*refused);
  reporter->finish();
  const auto finished = output->finish();
  // A combination of a sweep that does not divide is no failure of the sweep; a model that was asked for and cannot be estimated is one.
  if (finished && refused && varied.empty()) return tl::unexpected<Error>(*refused);
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
