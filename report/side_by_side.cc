#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "report/quantity.h"
#include "report/render.h"
#include "report/text_table.h"

namespace rooftile {
namespace {

struct Measure {
  std::string_view title;
  std::function<std::string(const Prediction&)> text;
};

const std::vector<Measure>& measures() {
  static const std::vector<Measure> kMeasures = {
      {"parameters", [](const Prediction& p) { return human_count(to_double(p.parameters)); }},
      {"device", [](const Prediction& p) { return printable(p.device_id); }},
      {"step time", [](const Prediction& p) { return human(p.totals.step_time_s, "s"); }},
      {"80 % low", [](const Prediction& p) { return human(p.totals.step_time_low_s, "s"); }},
      {"80 % high", [](const Prediction& p) { return human(p.totals.step_time_high_s, "s"); }},
      {"tokens/s/GPU", [](const Prediction& p) { return rounded(p.totals.tokens_per_s_per_gpu); }},
      {"TFLOP/s/GPU", [](const Prediction& p) { return significant(p.totals.tflops_per_gpu); }},
      {"MFU", [](const Prediction& p) { return percent(p.totals.mfu); }},
      {"busy", [](const Prediction& p) { return percent(p.totals.busy_fraction); }},
      {"memory", [](const Prediction& p) { return human(to_double(p.totals.memory.peak_bytes), "B"); }},
      {"fits", [](const Prediction& p) { return std::string(p.totals.memory.fits ? "yes" : "NO"); }},
  };
  return kMeasures;
}

Tint tint_of(std::string_view text) { return text == "NO" ? Tint::red : Tint::none; }

std::string label_of(const Variant& variant) {
  std::string label = printable(variant.prediction->model.name);
  for (const auto& [name, value] : variant.settings) label += fmt::format(" {} {}", name, printable(value));
  return label;
}

}  // namespace

std::string render_side_by_side(std::span<const Variant> variants, const TableStyle& style, bool markdown) {
  TextTable table;
  // A sweep has a line each, however many options vary; models without options stand side by side.
  bool columns = variants.size() <= 6 && variants[0].settings.empty();
  std::size_t width = 16;
  for (const Variant& variant : variants) width += std::max<std::size_t>(display_width(label_of(variant)), 10) + 2;
  columns = columns && (markdown || width <= style.width);
  if (columns) {
    table.columns.push_back({"", Align::left});
    for (const Variant& variant : variants) table.columns.push_back({label_of(variant)});
    for (const Measure& measure : measures()) {
      std::vector<Cell> row = {{std::string(measure.title)}};
      for (const Variant& variant : variants) {
        const std::string text = measure.text(*variant.prediction);
        row.push_back({text, tint_of(text)});
      }
      table.rows.push_back(std::move(row));
    }
    std::vector<Cell> bound = {{"bottleneck"}};
    for (const Variant& variant : variants) {
      const std::string sentence = summarize(*variant.prediction, Grouping::op).bottleneck;
      bound.push_back({sentence.substr(0, sentence.find(':'))});
    }
    table.rows.push_back(std::move(bound));
  } else {
    table.columns.push_back({"model", Align::left, 0, 14});
    for (const auto& [name, value] : variants[0].settings) table.columns.push_back({name});
    // The line form keeps what tells variants apart; the rest goes first when the screen is narrow.
    const bool device_varies = std::any_of(variants[0].settings.begin(), variants[0].settings.end(), [](const auto& setting) { return setting.first == "device"; });
    std::vector<const Measure*> shown;
    for (const Measure& measure : measures()) {
      if (measure.title == "device" && device_varies) continue;
      shown.push_back(&measure);
      table.columns.push_back({std::string(measure.title), Align::right, measure.title == "step time" || measure.title == "fits" ? 0 : 1});
    }
    const Variant* best = nullptr;  // most tokens a second among those that fit, for each GPU
    for (const Variant& variant : variants) {
      if (variant.prediction->totals.memory.fits && (best == nullptr || variant.prediction->totals.tokens_per_s_per_gpu > best->prediction->totals.tokens_per_s_per_gpu))
        best = &variant;
    }
    table.columns.push_back({"", Align::left});
    for (const Variant& variant : variants) {
      std::vector<Cell> row = {{printable(variant.prediction->model.name)}};
      for (const auto& [name, value] : variant.settings) row.push_back({printable(value)});
      for (const Measure* measure : shown) {
        const std::string text = measure->text(*variant.prediction);
        row.push_back({text, tint_of(text)});
      }
      row.push_back({&variant == best ? "<- best" : "", Tint::green});
      table.rows.push_back(std::move(row));
    }
  }
  const bool marked = !columns && std::any_of(variants.begin(), variants.end(), [](const Variant& variant) { return variant.prediction->totals.memory.fits; });
  const std::string_view legend = marked ? "<- best: most tokens/s/GPU among those that fit\n" : "";
  return (markdown ? table.render_markdown() : table.render(style.width, style.color, "")).append(legend);
}

}  // namespace rooftile
