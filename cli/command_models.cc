#include <fmt/format.h>

#include "cli/listing.h"
#include "cli/session.h"
#include "estimator/passes/predict.h"
#include "frontends/expand.h"
#include "report/quantity.h"

namespace rooftile {
namespace {

std::string_view name_of_kind(ModelKind kind) {
  switch (kind) {
    case ModelKind::decoder:
      return "decoder";
    case ModelKind::encoder:
      return "encoder";
    case ModelKind::encoder_decoder:
      return "encoder-decoder";
    case ModelKind::vision:
      return "vision";
    case ModelKind::speech:
      return "speech";
  }
  return "?";
}

// Counted by the operator table, so the same number that `estimate` reports.
Result<ParameterCounts> parameters_of(const ModelSpec& spec) {
  Options options;
  options.phase = Phase::forward;
  options.seq = spec.max_positions > 0 ? std::min<std::int64_t>(spec.max_positions, 4096) : 4096;
  const auto graph = expand(spec, options);
  if (!graph) return tl::unexpected<Error>(graph.error());
  return count_parameters(*graph);
}

// A graph: what goes in and out, which sizes are free, what it consists of, how much of it is understood.
int show_graph(const Model& model, const ListingArguments& arguments, Output& output) {
  const OnnxModel& onnx = *model.onnx;
  const auto described = onnx.description();
  if (!described) return report_error(described.error());
  Listing listing;
  listing.table.columns = {{"what", Align::left}, {"name", Align::left}, {"value", Align::left}, {"note", Align::left, 0, 30}};
  const auto row = [&](std::string what, std::string name, std::string value, std::string note = {}) {
    listing.row({std::move(what), printable(name), printable(value), printable(note)});
  };
  const OnnxParameters parameters = onnx.parameters();
  row("total", "parameters", to_string(parameters.all), human_count(to_double(parameters.all)));
  row("total", "stored bytes", to_string(parameters.bytes), "of the weights");
  row("total", "nodes", fmt::format("{}", onnx.nodes()), onnx.contains_gradients() ? "with gradients: costed as it is" : "");
  row("total", "multiply-accumulates", described->macs.empty() ? "past 2^63" : described->macs, "FLOPs are twice that");
  const OnnxCoverage& coverage = described->coverage;
  row("total", "coverage", fmt::format("{:.4g} %", 100 * coverage.fraction()),
      coverage.unresolved_nodes > 0 ? "without sizes; more is known with them" : "nodes that are understood");
  for (const OnnxPort& port : described->inputs) row("input", port.name, port.dtype + " " + port.shape);
  for (const OnnxPort& port : described->outputs) row("output", port.name, port.dtype + " " + port.shape);
  for (const OnnxSymbol& symbol : described->symbols) {
    std::string places;
    for (const std::string& place : symbol.places) places += (places.empty() ? "" : "; ") + place;
    row("size", symbol.name, symbol.required ? fmt::format("--dim {}={}", symbol.name, symbol.suggestion) : fmt::format("{} unless --dim {}=N", symbol.suggestion, symbol.name),
        places);
  }
  for (const OnnxEquality& equality : described->equalities) row("equal", equality.left, equality.right, "needed by " + equality.node);
  for (const auto& [domain, version] : onnx.opsets()) row("operator set", domain, fmt::format("{}", version));
  for (const auto& op : described->operators) row("operator", op.name, fmt::format("{}", op.nodes), op.known ? "" : "no rule: costs nothing");
  for (const Warning& warning : described->warnings) row("warning", warning.code, warning.message);
  if (arguments.json) return print_text(output, render(listing, arguments, output));
  const std::string producer = onnx.producer();
  std::string text = fmt::format("{}: an ONNX graph{}\n", printable(model.file.string()), producer.empty() ? "" : printable(" made by " + producer));
  return print_text(output, text + render(listing, arguments, output));
}

int show(const Model& model, const ListingArguments& arguments, Output& output) {
  if (model.onnx) return show_graph(model, arguments, output);
  const ModelSpec& spec = model.spec;
  Listing filled;
  filled.table.columns = {{"key", Align::left}, {"value", Align::left}, {"why", Align::left, 0, 30}};
  for (const FilledDefault& value : spec.filled) filled.row({printable(value.key), printable(value.value), printable(value.reason)});
  if (arguments.json) return print_text(output, render(filled, arguments, output));
  const auto counts = parameters_of(spec);
  if (!counts) return report_error(counts.error());
  std::string text = fmt::format("{}: {} parameters ({})", printable(spec.name), to_string(counts->all), human_count(to_double(counts->all)));
  if (counts->active != counts->all) text += fmt::format(", {} active per token", to_string(counts->active));
  text += fmt::format(", {} of them embeddings\nsource: {}\nread from {}\n", to_string(counts->embedding), printable(spec.source), printable(model.file.string()));
  if (spec.published_parameters > 0 && spec.published_parameters != counts->all)
    text += fmt::format("the source states {} parameters: {:+}\n", to_string(spec.published_parameters), static_cast<std::int64_t>(counts->all - spec.published_parameters));
  // A name may hold anything; the lines of the YAML itself stay lines.
  text += "\n";
  const std::string yaml = write_yaml_model(spec);
  for (std::size_t i = 0; i < yaml.size();) {
    const std::size_t end = std::min(yaml.find('\n', i), yaml.size());
    text += printable(std::string_view(yaml).substr(i, end - i)) + "\n";
    i = end + 1;
  }
  if (!spec.filled.empty()) text += "\nfilled in, because the description does not say:\n" + render(filled, arguments, output);
  for (const Warning& warning : spec.warnings) text += "warning: " + printable(warning.message) + "\n";
  return print_text(output, text);
}

}  // namespace

int run_models(const Invocation& invocation) {
  bool help = false;
  const auto arguments =
      parse_listing(invocation, "models",
                    "Lists the models that are there. 'show' takes a name, a model YAML or a Hugging Face config.json and prints it with every default filled in; of an ONNX file "
                    "it prints inputs, outputs, free sizes, operators and work.",
                    false, help);
  if (!arguments) return report_error(arguments.error());
  if (help) return 0;
  auto output = Output::open("");
  if (!output) return report_error(output.error());
  Session session;
  if (!arguments->show.empty()) {
    const auto model = session.model(arguments->show);
    return model ? show(**model, *arguments, *output) : report_error(model.error());
  }
  Listing listing;
  listing.table.columns = {{"name", Align::left}, {"kind", Align::left}, {"parameters"}, {"layers"}, {"hidden"}, {"heads"}, {"kv heads"}, {"ffn"}, {"vocab"}, {"positions"}};
  const auto names = session.data().names(DataKind::model);
  if (names.empty()) return report_no_data("models");
  for (const std::string& name : names) {
    const auto model = session.model(name);
    if (!model) {
      report_error(model.error());
      continue;
    }
    const ModelSpec& spec = (*model)->spec;
    const auto counts = parameters_of(spec);
    const auto number = [](std::int64_t value) { return value > 0 ? fmt::format("{}", value) : std::string("-"); };
    const std::string layers = spec.encoder_layers > 0 ? fmt::format("{}+{}", spec.encoder_layers, spec.decoder_layers) : number(spec.layers);
    listing.row({name, std::string(name_of_kind(spec.kind)), counts ? human_count(to_double(counts->all)) : "-", layers, number(spec.hidden), number(spec.heads),
                 number(spec.kv_heads), spec.moe.experts > 0 ? fmt::format("{}x{}", spec.moe.experts, spec.moe.expert_hidden) : number(spec.ffn_hidden), number(spec.vocab),
                 number(spec.max_positions)});
  }
  return print_text(*output, render(listing, *arguments, *output));
}

}  // namespace rooftile
