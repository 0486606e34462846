// Every output format of a prediction. One struct in, text out; nothing is computed here that another format would not show.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "estimator/passes/prediction.h"
#include "estimator/passes/views.h"
#include "report/summary.h"
#include "report/text_table.h"

namespace rooftile {

enum class Format : std::uint8_t { table, json, jsonl, csv, md, html, trace };
std::optional<Format> parse_format(std::string_view name);
// "out.json" -> json, by what follows the last point; nothing when that says nothing.
std::optional<Format> format_of_file(std::string_view file);

// What made the report: it stands in the `context` of JSON.
struct ReportContext {
  std::string version, command;
};

// One prediction of a sweep or of a row of models: the options that differ from its neighbours, as they were given ("mbs", "4").
struct Variant {
  const Prediction* prediction = nullptr;
  std::vector<std::pair<std::string, std::string>> settings;
};

struct TableStyle {
  bool color = false;
  std::size_t width = 100;
  Grouping grouping = Grouping::op;
  std::size_t top = 20;  // operators listed; 0: all
  bool plot = false;
  std::optional<ViewKind> view;  // its lines take the place of the operators
  std::size_t screen = 0;        // fewer operators are listed where the report would have more lines than this; 0: as many as it takes
};

// JSON per the interface (schema/estimate.json), ending with a newline. `lines` puts it on one line.
struct JsonStyle {
  bool lines = false;
  bool ops = true;
};
void append_json(std::string& out, const Prediction& prediction, const ReportContext& context, JsonStyle style, std::span<const std::pair<std::string, std::string>> settings = {});

// A list of such objects, for several models.
std::string render_json(std::span<const Variant> variants, const ReportContext& context);

// The first screen: verdict, bottleneck, where the time goes, operators by recoverable seconds.
std::string render_table(const Prediction& prediction, const TableStyle& style);
std::string render_markdown(const Prediction& prediction, const TableStyle& style);

// A view as a table of at most 100 columns: time, share, the phases' times, FLOPs, bytes, MFU, launches; the last line sums up to the step.
TextTable view_table(const Prediction& prediction, ViewKind kind);

// Several predictions side by side: totals as rows, one column each when they are few, else one line each.
std::string render_side_by_side(std::span<const Variant> variants, const TableStyle& style, bool markdown);

// One line for each row of the prediction, the fields of JSON's ops[] as columns after the model's name; and one line for each prediction of a sweep with its totals.
std::string csv_ops_header();
void append_csv_ops(std::string& out, const Prediction& prediction);
// One line for each line of a view and each phase in it, after one for the whole line (phase "all").
std::string csv_view_header();
void append_csv_view(std::string& out, const Prediction& prediction, ViewKind kind);
std::string csv_totals_header(std::span<const std::pair<std::string, std::string>> settings);
void append_csv_totals(std::string& out, const Prediction& prediction, std::span<const std::pair<std::string, std::string>> settings);

// The predicted step as a Chrome trace that chrome://tracing and Perfetto open: track 7 has the kernels in order of execution (args: phase, shape, bound), track 8 phases, layers
// and waits. Layers are drawn one by one up to 20,000 kernels, beyond that each row as one event. The last event of track 8 ends at the step's time.
void append_trace(std::string& out, const Prediction& prediction, const ReportContext& context);

// A field of a CSV: quoted when it holds a comma, a quote or a line break; foreign bytes escaped.
std::string csv_field(std::string_view text);

// A log-log roofline, FLOP/byte against FLOP/s, with the operators as letters on it and a legend.
std::string render_roofline(const Prediction& prediction, const Summary& summary, const TableStyle& style);

}  // namespace rooftile
