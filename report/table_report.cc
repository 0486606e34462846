#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "report/quantity.h"
#include "report/render.h"
#include "report/text_table.h"

namespace rooftile {
namespace {

constexpr std::size_t kLabelWidth = 12;
constexpr std::string_view kBesideSpeed = "overlap_assumed";  // a warning about the step time stands with it

Tint tint_of(Grade grade) { return grade == Grade::excellent ? Tint::green : grade == Grade::acceptable ? Tint::yellow : Tint::red; }

// A blank between a number and its unit is no place for a line break.
constexpr char kUnbreakable = '\x01';
std::string unbreakable(std::string text) {
  std::replace(text.begin(), text.end(), ' ', kUnbreakable);
  return text;
}
std::string with_blanks(std::string text) {
  std::replace(text.begin(), text.end(), kUnbreakable, ' ');
  return text;
}

std::string units_kept(std::string text) {
  static constexpr std::string_view kUnits[] = {"%",       "s",       "ms",      "µs",   "ns",   "B",        "kB",       "MB", "GB", "TB", "PB", "FLOP/s",
                                                "GFLOP/s", "TFLOP/s", "PFLOP/s", "GB/s", "TB/s", "tokens/s", "images/s", "k",  "M",  "G",  "T",  "parameters"};
  for (std::size_t i = text.find(' '); i != std::string::npos; i = text.find(' ', i + 1)) {
    if (i == 0 || text[i - 1] < '0' || text[i - 1] > '9') continue;
    std::string_view word = std::string_view(text).substr(i + 1);
    word = word.substr(0, word.find_first_of(" ,;:()"));
    if (std::find(std::begin(kUnits), std::end(kUnits), word) != std::end(kUnits)) text[i] = kUnbreakable;
  }
  return text;
}

// Words joined into lines of at most `width` columns; lines after the first are indented.
std::string wrapped(const std::string& words, std::size_t width, std::size_t indent) {
  const std::string text = units_kept(words);
  std::string out;
  std::size_t used = indent;
  bool first = true;
  for (std::size_t i = 0; i < text.size();) {
    std::size_t end = text.find(' ', i);
    if (end == std::string::npos) end = text.size();
    std::string word = text.substr(i, end - i);
    const std::size_t columns = display_width(word);
    if (!first && used + 1 + columns > width) {
      out += "\n" + std::string(indent, ' ');
      used = indent;
      word.erase(0, word.find_first_not_of(kUnbreakable));
    } else if (!first) {
      out += ' ';
      ++used;
    }
    out += word;
    used += display_width(word);
    first = false;
    i = end + 1;
  }
  return with_blanks(std::move(out));
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

// "optimizer 96.4 + gradients 32.1 GB": the largest first, all in the unit of the sum.
std::string memory_terms(const MemoryTotals& memory) {
  std::vector<std::pair<std::string_view, double>> terms = {{"weights", to_double(memory.parameters_bytes)},  {"gradients", to_double(memory.gradients_bytes)},
                                                            {"optimizer", to_double(memory.optimizer_bytes)}, {"activations", to_double(memory.activations_bytes)},
                                                            {"KV cache", to_double(memory.kv_cache_bytes)},   {"workspace", to_double(memory.workspace_bytes)}};
  std::stable_sort(terms.begin(), terms.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  const std::string whole = human(to_double(memory.peak_bytes), "B");
  const std::string unit = whole.substr(whole.find(' ') + 1);
  double scale = 1;
  for (const auto& [name, factor] : {std::pair<std::string_view, double>("kB", 1e3), {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"PB", 1e15}}) {
    if (unit == name) scale = factor;
  }
  std::string text;
  for (const auto& [name, bytes] : terms) {
    if (bytes > 0)
      text += fmt::format("{}{}", text.empty() ? "" : " + ",
                          unbreakable(fmt::format("{} {}", name,
                                                  bytes < 0.005 * scale ? "<0.01"
                                                  : bytes < scale       ? fmt::format("{:.2f}", bytes / scale)
                                                                        : significant(bytes / scale))));
  }
  return text.empty() ? text : text + kUnbreakable + unit;
}

// "peak in the backward pass at head.loss; largest then: head.loss.grad 6.59 GB, layer.act 4.83 GB"
std::string peak_moment(const MemoryTotals& memory) {
  std::string text;
  int named = 0;
  for (const MemoryTerm& term : memory.top) {
    const bool state = term.name == "weights" || term.name == "optimizer states" || term.name == "gradients" || term.name == "workspace" || term.name == "KV cache";
    if (state || to_double(term.bytes) < 0.01 * to_double(memory.peak_bytes) || named == 3) continue;
    text += fmt::format("{}{}", named++ == 0 ? "; largest then: " : ", ", unbreakable(term.name + " " + human(to_double(term.bytes), "B")));
  }
  const std::string at =
      memory.peak_operator.empty() ? std::string(name_of(memory.peak_phase)) : fmt::format("{}, {}.{}", name_of(memory.peak_phase), memory.peak_segment, memory.peak_operator);
  return memory.top.empty() ? std::string() : "peak in " + at + text;
}

void add_fit(const Prediction& prediction, std::vector<Line>& lines) {
  const MemoryTotals& memory = prediction.totals.memory;
  const std::string needs = human(to_double(memory.peak_bytes), "B"), has = human(memory.capacity_bytes, "B");
  const std::string_view each = prediction.options.layout.gpus > 1 ? "each GPU has" : "the GPU has";
  if (memory.fits) {
    lines.push_back({"FIT", fmt::format("yes: needs {}, {} {}", needs, each, has), Tint::green});
  } else {
    lines.push_back({"FIT", fmt::format("NO: needs {}, {} {}{}", needs, each, has, memory.breaks.empty() ? "" : "; what breaks it: " + memory.breaks), Tint::red});
  }
  lines.push_back({"", memory_terms(memory)});
  const std::string moment = peak_moment(memory);
  if (!moment.empty()) lines.push_back({"", moment});
  if (memory.fits) return;
  lines.push_back({"", memory.would_fit.empty()
                           ? "no setting was found that fits"
                           : fmt::format("fits with {} ({} per GPU), the other options as they are", unbreakable(memory.would_fit), human(memory.would_fit_bytes, "B"))});
}

// "320 to 548 ms", or with both units where they differ.
std::string interval(double low_s, double high_s) {
  const std::string low = human(low_s, "s"), high = human(high_s, "s");
  const std::size_t blank = low.find(' ');
  const bool same = high.find(' ') != std::string::npos && low.substr(blank) == high.substr(high.find(' '));
  return unbreakable(fmt::format("{} to {}", same ? low.substr(0, blank) : low, high));
}

std::string whole_number(double value) { return value < 100 ? significant(value) : rounded(value); }

void add_speed(const Prediction& prediction, std::vector<Line>& lines) {
  const Totals& totals = prediction.totals;
  const Options& options = prediction.options;
  const auto gpus = static_cast<double>(options.layout.gpus);
  const std::string_view what = options.phase == Phase::train ? " per step" : "";
  std::vector<std::string> rates = {fmt::format("{}{}{} ({}, 8 in 10)", human(totals.step_time_s, "s"), what, totals.memory.fits ? "" : " if it did fit",
                                                interval(totals.step_time_low_s, totals.step_time_high_s))};
  const double sequences = static_cast<double>(options.gbs > 0 ? options.gbs : options.mbs * options.layout.dp);
  if (options.phase == Phase::decode && totals.step_time_s > 0) {
    rates.push_back(fmt::format("  {} tokens/s per sequence", whole_number(1 / totals.step_time_s)));
    if (sequences > 1) rates.push_back(fmt::format("  {} in all", whole_number(totals.tokens_per_s_per_gpu * gpus)));
  } else {
    rates.push_back(fmt::format("  {} tokens/s{}", whole_number(totals.tokens_per_s_per_gpu), gpus > 1 ? " per GPU" : ""));
    if (gpus > 1) rates.push_back(fmt::format("  {} in all", whole_number(totals.tokens_per_s_per_gpu * gpus)));
  }
  const bool images = std::any_of(prediction.rows.begin(), prediction.rows.end(), [](const OpRow& row) { return row.name.find("patch_embed") != std::string::npos; });
  if (images && totals.step_time_s > 0) rates.push_back(fmt::format("  {} images/s", whole_number(sequences / totals.step_time_s)));
  rates.push_back(fmt::format("  {} TFLOP/s{}", significant(totals.tflops_per_gpu), gpus > 1 ? " per GPU" : ""));
  rates.push_back(fmt::format("  MFU {}, HFU {}", percent(totals.mfu), percent(totals.hfu)));
  for (std::string& rate : rates) rate = unbreakable(rate);
  lines.push_back({"SPEED", joined(rates, " ")});
  std::vector<std::string> phases;
  const auto add = [&](std::string_view name, double seconds) {
    if (seconds > 0) phases.push_back(unbreakable(fmt::format("{} {}", name, human(seconds, "s"))));
  };
  add("forward", totals.forward_time_s);
  add("backward", totals.backward_time_s);
  add("recompute", totals.recompute_time_s);
  add("optimizer", totals.optimizer_time_s);
  add("exposed communication", totals.exposed_communication_time_s);
  add("pipeline bubble", totals.bubble_time_s);
  add("gaps between kernels", totals.launch_gap_time_s);
  add("waiting for the host", totals.host_bound_time_s);
  if (phases.size() > 1) lines.push_back({"", joined(phases, " | ")});
  for (const Warning& warning : prediction.warnings) {
    if (warning.code == kBesideSpeed) lines.push_back({"", printable(warning.message)});
  }
}

// "47.7 %  model arithmetic at the data-sheet peak (= MFU)": shares in tenths of a percent that add up to 100; what is too small for a word is one of them.
std::vector<std::string> part_lines(const Prediction& prediction, const Summary& summary) {
  const double step_s = prediction.totals.step_time_s;
  std::vector<std::pair<std::int64_t, std::string_view>> peak, lost;
  std::int64_t left = 1000;
  for (const TimePart& part : summary.parts) {
    const auto tenths = static_cast<std::int64_t>(std::llround(1000 * part.seconds / step_s));
    if (tenths < 5) continue;
    (part.peak ? peak : lost).emplace_back(tenths, part.name);
    left -= tenths;
  }
  if (left > 0 || (peak.empty() && lost.empty())) {
    lost.emplace_back(left, "other");
  } else if (left < 0) {  // rounding, or a loss below zero: the last share that can takes it
    auto& shares = lost.empty() ? peak : lost;
    std::max_element(shares.begin(), shares.end(), [](const auto& a, const auto& b) { return a.first < b.first; })->first += left;
  }
  const auto said = [](const auto& part) { return fmt::format("{:>5.1f} %  {}", static_cast<double>(part.first) / 10, part.second); };
  std::vector<std::string> lines;
  for (const auto& part : peak) lines.push_back(said(part));
  for (const auto& part : lost) lines.push_back(said(part));
  return lines;
}

std::vector<Line> verdict_lines(const Prediction& prediction, const Summary& summary) {
  std::vector<Line> lines;
  add_fit(prediction, lines);
  add_speed(prediction, lines);
  for (const std::string& sentence : summary.bottleneck_lines)
    lines.push_back({&sentence == &summary.bottleneck_lines.front() ? "BOTTLENECK" : "", sentence, &sentence == &summary.bottleneck_lines.front() ? Tint::bold : Tint::none});
  return lines;
}

// Two short lines share one line of the screen.
std::string in_columns(const std::vector<std::string>& lines, std::size_t width) {
  std::string out;
  constexpr std::size_t kHalf = 44;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    out += "  " + lines[i];
    const bool pair = i + 1 < lines.size() && display_width(lines[i]) < kHalf && kHalf + 4 + display_width(lines[i + 1]) <= width;
    if (pair) {
      out.append(kHalf - display_width(lines[i]), ' ');
      out += "  " + lines[++i];
    }
    out += "\n";
  }
  return out;
}

constexpr std::string_view kParts = "WHERE THE STEP TIME GOES (100 %)";

// "46.2T", "8.03G": a cell with its own prefix.
std::string compact(double value, std::string_view unit = "") {
  std::string text = human(value, unit);
  text.erase(std::remove(text.begin(), text.end(), ' '), text.end());
  return text;
}

constexpr double kGradedShare = 0.005;  // what is less of the step is no reason for an alarm

TextTable op_table(const Prediction& prediction, const Summary& summary, const TableStyle& style) {
  TextTable table;
  table.columns = {{"operator", Align::left, 0, 15},
                   {"phase", Align::left, 6},
                   {"count", Align::right, 3},
                   {"shape", Align::left, 0, 15},
                   {"time"},
                   {"share"},
                   {"save"},
                   {"FLOP", Align::right, 1},
                   {"bytes", Align::right, 2},
                   {"FLOP/B", Align::right, 4},
                   {"util"},
                   {"bound", Align::left},
                   {"grade", Align::left}};
  const double step_s = prediction.totals.step_time_s;
  const auto short_percent = [](double ratio) { return ratio > 0 && ratio < 0.0005 ? std::string("<0.1%") : fmt::format("{:.1f}%", ratio * 100); };
  const auto whole_percent = [](double ratio) { return ratio > 0 && ratio < 0.005 ? std::string("<1%") : fmt::format("{:.0f}%", ratio * 100); };
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
    const bool hidden = !group.graded && group.time_s <= 0 && group.duration_s > 0;
    const bool graded = group.graded && group.share >= kGradedShare;
    table.rows.push_back({{group.name},
                          {group.phases},
                          {fmt::format("{}", group.count)},
                          {group.shape},
                          {hidden ? "hidden" : compact(group.time_s, "s")},
                          {hidden ? "" : short_percent(group.share)},
                          {hidden ? "" : compact(group.recoverable_s, "s")},
                          {compact(group.flops)},
                          {compact(group.bytes)},
                          {significant(group.intensity)},
                          {!group.graded               ? ""
                           : group.graded_by_bandwidth ? whole_percent(group.bandwidth_utilization) + "*"
                                                       : whole_percent(group.utilization)},
                          {std::string(!group.graded ? "comm" : name_of(group.bound))},
                          {graded ? std::string(name_of(group.grade)) : "", graded ? tint_of(group.grade) : Tint::none}});
  }
  const auto sum_line = [&](const std::string& name, double time_s, double recover_s, double flops, double bytes) {
    std::vector<Cell> cells(table.columns.size());
    cells[0].text = name;
    cells[4].text = compact(time_s, "s");
    cells[5].text = step_s > 0 ? short_percent(time_s / step_s) : "-";
    cells[6].text = recover_s > 0 ? compact(recover_s, "s") : "";
    if (flops + bytes > 0) cells[7].text = compact(flops), cells[8].text = compact(bytes);
    table.rows.push_back(std::move(cells));
  };
  if (rest > 0) sum_line(fmt::format("{} more", rest), rest_time_s, rest_recover_s, rest_flops, rest_bytes);
  const Totals& totals = prediction.totals;
  for (const auto& [name, seconds] :
       {std::pair<const char*, double>("bubble", totals.bubble_time_s), {"kernel gaps", totals.launch_gap_time_s}, {"host", totals.host_bound_time_s}}) {
    if (seconds > 0) sum_line(name, seconds, 0, 0, 0);
  }
  return table;
}

// What the columns mean; only those that are shown.
std::string footnotes(const Summary& summary, const TextTable& table, std::size_t width) {
  bool by_bandwidth = false, gemm = false, attention = false;
  std::set<Confidence> confidences;
  for (const OpGroup& group : summary.groups) {
    by_bandwidth |= group.graded && group.graded_by_bandwidth;
    for (const OpRow* row : group.rows) gemm |= row->call.kernel == KernelClass::gemm, attention |= row->call.kernel == KernelClass::attention;
    confidences.insert(group.confidence);
  }
  const auto shown = [&](std::string_view title) { return width == 0 || table.shows(title, width, ""); };
  std::string text = "Ranked by save: what a perfect kernel of the same shape would save.";
  if (shown("shape") && (gemm || attention)) {
    text += gemm ? " Shapes: matmul m x n x k" : " Shapes:";
    if (attention) text += gemm ? ", attention" : " attention";
    if (attention) text += " batch*heads/KV heads x sequence x head size";
    text += ".";
  }
  if (shown("FLOP") || shown("bytes")) text += " FLOP and bytes: 1T is 1000 GFLOP or GB.";
  text += " util: of the peak FLOP/s";
  if (by_bandwidth) text += ", with * of the peak memory bandwidth";
  text += ".";
  if (shown("grade")) text += fmt::format(" Rows below {} of the step have no grade.", percent(kGradedShare));
  if (confidences.empty()) return text;
  if (*confidences.begin() == Confidence::spec) return text + " Constants: data sheet and architecture, not calibrated on this GPU.";
  return text + fmt::format(" Confidence: {}{}.", name_of(*confidences.begin()), confidences.size() > 1 ? fmt::format(" to {}", name_of(*confidences.rbegin())) : "");
}

constexpr const char* kViewNote = "MFU: FLOPs of matmuls and attention over time and peak. Of this GPU's part of the step; waits (bubble, gaps, host) have no kernels.";

}  // namespace

std::string render_table(const Prediction& prediction, const TableStyle& style) {
  const Summary summary = summarize(prediction, style.grouping);
  std::vector<std::string> items;
  for (const std::string& setting : summary.settings) items.push_back(unbreakable(setting));
  const std::string title = wrapped(summary.model_line + " on " + summary.device_line, style.width, 2);
  std::string out = tinted(title, Tint::bold, style.color) + "\n  " + wrapped(joined(items, ", "), style.width, 2) + "\n\n";
  for (const Line& line : verdict_lines(prediction, summary)) {
    if (line.text.empty()) continue;
    const std::string text = wrapped(line.text, style.width, kLabelWidth);
    out += tinted(fmt::format("{:<{}}", line.label, kLabelWidth), Tint::bold, style.color && !line.label.empty()) + tinted(text, line.tint, style.color) + "\n";
  }
  if (prediction.totals.step_time_s > 0) out += tinted(kParts, Tint::bold, style.color) + "\n" + in_columns(part_lines(prediction, summary), style.width);
  std::string warnings;
  for (const Warning& warning : prediction.warnings) {
    if (warning.code == "does_not_fit" || warning.code == kBesideSpeed) continue;  // said above
    warnings += tinted("warning: ", Tint::yellow, style.color) + wrapped(printable(warning.message), style.width, 9) + "\n";
  }
  if (style.view) {
    out += "\n" + view_table(prediction, *style.view).render(style.width, style.color, "");
    out += tinted(wrapped(kViewNote, style.width, 0), Tint::dim, style.color) + "\n";
  } else if (!prediction.rows.empty()) {
    TableStyle fitting = style;
    if (style.screen > 0) {
      constexpr std::ptrdiff_t kAround = 11, kFewest = 8;  // titles, blank line, what the rest sums to, idle times, footnotes
      const std::ptrdiff_t used = std::count(out.begin(), out.end(), '\n') + std::count(warnings.begin(), warnings.end(), '\n') + kAround;
      fitting.top = std::min(style.top, static_cast<std::size_t>(std::max(static_cast<std::ptrdiff_t>(style.screen) - used, kFewest)));
    }
    const TextTable table = op_table(prediction, summary, fitting);
    out += "\n" + table.render(style.width, style.color, "");
    out += tinted(wrapped(footnotes(summary, table, style.width), style.width, 0), Tint::dim, style.color) + "\n";
  }
  if (style.plot) out += "\n" + render_roofline(prediction, summary, style);
  out += warnings;
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
  if (prediction.totals.step_time_s > 0) {
    out += fmt::format("- **{}**\n", kParts);
    for (const std::string& part : part_lines(prediction, summary)) out += fmt::format("  - {}\n", part.substr(part.find_first_not_of(' ')));
  }
  if (style.view) {
    out += "\n" + view_table(prediction, *style.view).render_markdown() + "\n" + std::string(kViewNote) + "\n";
  } else {
    const TextTable table = op_table(prediction, summary, style);
    out += "\n" + table.render_markdown() + "\n" + footnotes(summary, table, 0) + "\n";
  }
  for (const Warning& warning : prediction.warnings) out += fmt::format("\n> warning: {}\n", printable(warning.message));
  return out;
}

}  // namespace rooftile
