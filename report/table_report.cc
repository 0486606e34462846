#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "report/quantity.h"
#include "report/render.h"
#include "report/text_table.h"

namespace rooftile {
namespace {

constexpr std::size_t kLabelWidth = 13;

Tint tint_of(Grade grade) { return grade == Grade::excellent ? Tint::green : grade == Grade::acceptable ? Tint::yellow : Tint::red; }

// Words joined into lines of at most `width` columns; lines after the first are indented.
std::string wrapped(std::string_view text, std::size_t width, std::size_t indent) {
  std::string out;
  std::size_t used = indent;
  bool first = true;
  for (std::size_t i = 0; i < text.size();) {
    std::size_t end = text.find(' ', i);
    if (end == std::string_view::npos) end = text.size();
    const std::string_view word = text.substr(i, end - i);
    const bool percent_follows = text.substr(end).rfind(" %", 0) == 0;  // a percent sign stays with its number
    const std::size_t columns = display_width(word) + (percent_follows ? 2 : 0);
    if (!first && used + 1 + columns > width && word != "%" && word != "%,") {
      out += "\n" + std::string(indent, ' ');
      used = indent;
    } else if (!first) {
      out += ' ';
      ++used;
    }
    out += word;
    used += display_width(word);
    first = false;
    i = end + 1;
  }
  return out;
}

// Text that no line break may divide: its blanks become a mark that with_blanks() turns back.
constexpr char kUnbreakable = '\x01';
std::string unbreakable(std::string text) {
  std::replace(text.begin(), text.end(), ' ', kUnbreakable);
  return text;
}
std::string with_blanks(std::string text) {
  std::replace(text.begin(), text.end(), kUnbreakable, ' ');
  return text;
}

std::string joined(const std::vector<std::string>& items, std::string_view separator) {
  std::string out;
  for (const std::string& item : items) out += (out.empty() ? std::string_view() : separator), out += item;
  return out;
}

struct Line {
  std::string label, text;
  Tint tint = Tint::none;
};

std::string memory_text(const MemoryTotals& memory) {
  const std::string needs = human(to_double(memory.peak_bytes), "B"), has = human(memory.capacity_bytes, "B");
  if (memory.fits) return fmt::format("fits: needs {} of {}", needs, has);
  std::string text = fmt::format("DOES NOT FIT: needs {} of {}", needs, has);
  if (!memory.breaks.empty()) text += fmt::format("; what breaks it: {}", memory.breaks);
  text += memory.would_fit.empty() ? "; no setting was found that fits" : fmt::format("; would fit with {} ({} per GPU)", memory.would_fit, human(memory.would_fit_bytes, "B"));
  return text;
}

std::string memory_terms(const MemoryTotals& memory) {
  std::vector<std::string> terms;
  const auto add = [&](std::string_view name, Count bytes) {
    if (bytes > 0) terms.push_back(unbreakable(fmt::format("{} {}", name, human(to_double(bytes), "B"))));
  };
  add("weights", memory.parameters_bytes);
  add("gradients", memory.gradients_bytes);
  add("optimizer", memory.optimizer_bytes);
  add("activations", memory.activations_bytes);
  add("KV cache", memory.kv_cache_bytes);
  add("workspace", memory.workspace_bytes);
  return joined(terms, ", ");
}

// "model FLOPs at peak (the MFU) 52 %, ...": the parts that are worth a word; the small ones are added up.
std::string parts_text(const Prediction& prediction, const Summary& summary, TimePart::Place place) {
  const double step_s = prediction.totals.step_time_s;
  std::vector<std::string> words;
  double rest_s = 0;
  for (const TimePart& part : summary.parts) {
    if (part.place != place || step_s <= 0) continue;
    if (std::abs(part.seconds) < 0.005 * step_s && place != TimePart::Place::peak)
      rest_s += part.seconds;
    else
      words.push_back(fmt::format("{} {}", part.name, percent(part.seconds / step_s)));
  }
  if (rest_s > 0.0005 * step_s) words.push_back(fmt::format("other {}", percent(rest_s / step_s)));
  return words.empty() ? "nothing" : joined(words, ", ");
}

double sum_of(const Summary& summary, TimePart::Place place) {
  double sum = 0;
  for (const TimePart& part : summary.parts) sum += part.place == place ? part.seconds : 0;
  return sum;
}

std::vector<Line> verdict_lines(const Prediction& prediction, const Summary& summary) {
  const Totals& totals = prediction.totals;
  const double step_s = totals.step_time_s;
  std::vector<Line> lines;
  lines.push_back({"Memory", memory_text(totals.memory), totals.memory.fits ? Tint::green : Tint::red});
  lines.push_back({"", memory_terms(totals.memory)});
  const std::vector<std::string> rates = {fmt::format("{} (80 % interval {} to {})", human(step_s, "s"), human(totals.step_time_low_s, "s"), human(totals.step_time_high_s, "s")),
                                          fmt::format("  {} tokens/s/GPU", rounded(totals.tokens_per_s_per_gpu)),
                                          fmt::format("  {} TFLOP/s/GPU", significant(totals.tflops_per_gpu)), fmt::format("  MFU {}", percent(totals.mfu)),
                                          fmt::format("  HFU {}", percent(totals.hfu))};
  std::vector<std::string> whole;
  for (const std::string& rate : rates) whole.push_back(unbreakable(rate));
  lines.push_back({prediction.options.phase == Phase::train ? "Step time" : "Time", joined(whole, " ")});
  std::vector<std::string> phases;
  const auto add = [&](std::string_view name, double seconds) {
    if (seconds > 0) phases.push_back(unbreakable(fmt::format("{} {}", name, human(seconds, "s"))));
  };
  add("forward", totals.forward_time_s);
  add("backward", totals.backward_time_s);
  add("recompute", totals.recompute_time_s);
  add("optimizer", totals.optimizer_time_s);
  add("exposed communication", totals.exposed_communication_time_s);
  add("bubble", totals.bubble_time_s);
  add("launch gaps", totals.launch_gap_time_s);
  add("host-bound", totals.host_bound_time_s);
  lines.push_back({"", joined(phases, ", ")});
  lines.push_back({"Bottleneck", summary.bottleneck, Tint::bold});
  lines.push_back({"From peak", fmt::format("at the data sheet's peak this takes {}: {}", human(sum_of(summary, TimePart::Place::peak), "s"),
                                            parts_text(prediction, summary, TimePart::Place::peak))});
  lines.push_back(
      {"", fmt::format("lost inside operators {}: {}", human(sum_of(summary, TimePart::Place::inside), "s"), parts_text(prediction, summary, TimePart::Place::inside))});
  const double between_s = sum_of(summary, TimePart::Place::between);
  lines.push_back({"", between_s > 0 ? fmt::format("lost between operators {}: {}", human(between_s, "s"), parts_text(prediction, summary, TimePart::Place::between))
                                     : "nothing is lost between operators"});
  return lines;
}

// GFLOP and GB as the lesson's table has them; a column of millions moves up to the next prefix.
struct Scale {
  double divisor;
  std::string title;
};
Scale scale_of(double largest, std::string_view unit) {
  static constexpr std::string_view kPrefixes[] = {"G", "T", "P", "E"};
  double divisor = 1e9;
  std::size_t i = 0;
  while (largest / divisor >= 99999.5 && i + 1 < std::size(kPrefixes)) divisor *= 1000, ++i;
  return {divisor, std::string(kPrefixes[i]) + std::string(unit)};
}

TextTable op_table(const Prediction& prediction, const Summary& summary, const TableStyle& style) {
  double most_flops = 0, most_bytes = 0;
  for (const OpGroup& group : summary.groups) most_flops = std::max(most_flops, group.flops), most_bytes = std::max(most_bytes, group.bytes);
  const Scale flop = scale_of(most_flops, "FLOP"), byte = scale_of(most_bytes, "B");
  TextTable table;
  table.columns = {{"operator", Align::left, 0, 14},
                   {"phase", Align::left, 6},
                   {"count", Align::right, 3},
                   {"shape", Align::left, 0, 15},
                   {"time"},
                   {"share"},
                   {"recover"},
                   {flop.title, Align::right, 1},
                   {byte.title, Align::right, 2},
                   {"FLOP/B", Align::right, 4},
                   {"util"},
                   {"bound", Align::left},
                   {"grade", Align::left}};
  const double step_s = prediction.totals.step_time_s;
  const auto number = [](double value) { return value > 0 && value < 0.001 ? std::string("<.001") : significant(value); };
  const auto short_percent = [](double ratio) { return ratio > 0 && ratio < 0.0005 ? std::string("<0.1%") : fmt::format("{:.1f}%", ratio * 100); };
  const auto whole_percent = [](double ratio) { return fmt::format("{:.0f}%", ratio * 100); };
  double rest_time_s = 0, rest_recover_s = 0, rest_flops = 0, rest_bytes = 0;
  std::size_t rest = 0;
  for (std::size_t i = 0; i < summary.groups.size(); ++i) {
    const OpGroup& group = summary.groups[i];
    if (style.top > 0 && i >= style.top && summary.groups.size() > style.top + 1) {
      ++rest;
      rest_time_s += group.time_s;
      rest_recover_s += group.recoverable_s;
      rest_flops += group.flops;
      rest_bytes += group.bytes;
      continue;
    }
    table.rows.push_back({{group.name},
                          {group.phases},
                          {fmt::format("{}", group.count)},
                          {group.shape},
                          {human(group.time_s, "s")},
                          {short_percent(group.share)},
                          {human(group.recoverable_s, "s")},
                          {number(group.flops / flop.divisor)},
                          {number(group.bytes / byte.divisor)},
                          {number(group.intensity)},
                          {!group.graded               ? "-"
                           : group.graded_by_bandwidth ? whole_percent(group.bandwidth_utilization) + "*"
                                                       : whole_percent(group.utilization)},
                          {std::string(group.bound == Bound::communication ? "comm" : name_of(group.bound))},
                          {group.graded ? std::string(name_of(group.grade)) : "-", group.graded ? tint_of(group.grade) : Tint::none}});
  }
  const auto sum_line = [&](const std::string& name, double time_s, double recover_s, double flops, double bytes) {
    std::vector<Cell> cells(table.columns.size());
    cells[0].text = name;
    cells[4].text = human(time_s, "s");
    cells[5].text = step_s > 0 ? short_percent(time_s / step_s) : "-";
    cells[6].text = recover_s > 0 ? human(recover_s, "s") : "";
    if (flops + bytes > 0) cells[7].text = number(flops / flop.divisor), cells[8].text = number(bytes / byte.divisor);
    table.rows.push_back(std::move(cells));
  };
  if (rest > 0) sum_line(fmt::format("{} more", rest), rest_time_s, rest_recover_s, rest_flops, rest_bytes);
  const Totals& totals = prediction.totals;
  const double idle_s = totals.bubble_time_s + totals.launch_gap_time_s + totals.host_bound_time_s;
  if (idle_s > 0) sum_line("(GPU idle)", idle_s, 0, 0, 0);
  return table;
}

std::string footnotes(const Summary& summary) {
  bool by_bandwidth = false, gemm = false;
  std::set<Confidence> confidences;
  for (const OpGroup& group : summary.groups) {
    by_bandwidth |= group.graded && group.graded_by_bandwidth;
    gemm |= std::count(group.shape.begin(), group.shape.end(), 'x') == 2;
    confidences.insert(group.confidence);
  }
  std::string text = "Ranked by recover: time above what a perfect kernel of this shape could reach.";
  if (gemm) text += " GEMM shapes are m x n x k.";
  text += " util: of peak FLOP/s";
  if (by_bandwidth) text += ", with * of peak DRAM bandwidth, by which operators that are not compute bound are graded";
  text += ".";
  const auto words = [](Confidence confidence) -> std::string_view {
    switch (confidence) {
      case Confidence::measured:
        return "measured (this kernel was)";
      case Confidence::calibrated:
        return "calibrated (fitted to measurements of this device)";
      case Confidence::extrapolated:
        return "extrapolated (beyond what was measured)";
      case Confidence::spec:
        return "spec (data sheet and architecture, nothing measured on this device)";
    }
    return "?";
  };
  std::string list;
  for (const Confidence confidence : confidences) list += fmt::format("{}{}", list.empty() ? "" : ", ", words(confidence));
  if (!list.empty()) text += fmt::format(" Confidence: {}.", list);
  return text;
}

}  // namespace

std::string render_table(const Prediction& prediction, const TableStyle& style) {
  const Summary summary = summarize(prediction, style.grouping);
  std::vector<std::string> items;
  for (const std::string& setting : summary.settings) items.push_back(unbreakable(setting));
  std::string out;
  out += tinted(summary.model_line, Tint::bold, style.color) + " on " + tinted(summary.device_line, Tint::bold, style.color) + "\n";
  out += "  " + with_blanks(wrapped(joined(items, ", "), style.width, 2)) + "\n\n";
  for (const Line& line : verdict_lines(prediction, summary)) {
    if (line.text.empty()) continue;
    const std::string text = with_blanks(wrapped(line.text, style.width, kLabelWidth));
    out += tinted(fmt::format("{:<{}}", line.label, kLabelWidth), Tint::bold, style.color && !line.label.empty()) + tinted(text, line.tint, style.color) + "\n";
  }
  if (!prediction.rows.empty()) {
    out += "\n" + op_table(prediction, summary, style).render(style.width, style.color, "");
    out += tinted(wrapped(footnotes(summary), style.width, 0), Tint::dim, style.color) + "\n";
  }
  if (style.plot) out += "\n" + render_roofline(prediction, summary, style);
  for (const Warning& warning : prediction.warnings) {
    if (warning.code == "does_not_fit") continue;  // the verdict says it
    out += tinted("warning: ", Tint::yellow, style.color) + wrapped(printable(warning.message), style.width, 9) + "\n";
  }
  return out;
}

std::string render_markdown(const Prediction& prediction, const TableStyle& style) {
  const Summary summary = summarize(prediction, style.grouping);
  std::string out = fmt::format("### {} on {}\n\n{}\n\n", summary.model_line, summary.device_line, joined(summary.settings, ", "));
  for (const Line& line : verdict_lines(prediction, summary)) {
    if (line.text.empty()) continue;
    const std::string text = with_blanks(line.text);
    out += line.label.empty() ? fmt::format("  - {}\n", text) : fmt::format("- **{}**: {}\n", line.label, text);
  }
  out += "\n" + op_table(prediction, summary, style).render_markdown() + "\n" + footnotes(summary) + "\n";
  for (const Warning& warning : prediction.warnings) out += fmt::format("\n> warning: {}\n", printable(warning.message));
  return out;
}

}  // namespace rooftile
