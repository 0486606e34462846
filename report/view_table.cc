#include <fmt/format.h>

#include <algorithm>

#include "report/quantity.h"
#include "report/render.h"

namespace rooftile {
namespace {

// "46.2T", "8.03G": a cell with its own prefix.
std::string compact(double value, std::string_view unit = "") {
  std::string text = human(value, unit);
  text.erase(std::remove(text.begin(), text.end(), ' '), text.end());
  return text;
}

constexpr std::string_view kTitles[] = {"by phase", "by layer kind", "by operator family"};
constexpr std::string_view kPhaseTitles[] = {"forward", "backward", "recompute", "optimizer", "comm"};

}  // namespace

TextTable view_table(const Prediction& prediction, ViewKind kind) {
  const std::vector<ViewLine> lines = view_of(prediction, kind);
  TextTable table;
  table.columns = {{std::string(kTitles[static_cast<std::size_t>(kind)]), Align::left}, {"time"}, {"share"}};
  // A column for each phase that takes time; the view by phase has them as lines.
  std::vector<std::size_t> phases;
  for (std::size_t i = 0; i < kStepPhases && kind != ViewKind::phase; ++i) {
    if (std::any_of(lines.begin(), lines.end(), [&](const ViewLine& line) { return line.phases[i].time_s > 0; })) phases.push_back(i);
  }
  if (phases.size() < 2) phases.clear();
  for (const std::size_t i : phases) table.columns.push_back({std::string(kPhaseTitles[i])});
  for (const Column& column : {Column{"FLOP"}, Column{"bytes"}, Column{"MFU"}, Column{"launches", Align::right, 1}}) table.columns.push_back(column);
  ViewSum sum;
  std::array<double, kStepPhases> phase_s{};
  const auto add_line = [&](std::string_view name, const ViewSum& all, double share, const auto& phase_time) {
    std::vector<Cell> cells = {{std::string(name)}, {compact(all.time_s, "s")}, {fmt::format("{:.1f}%", 100 * share)}};
    for (const std::size_t i : phases) cells.push_back({phase_time(i) > 0 ? compact(phase_time(i), "s") : std::string()});
    const auto mfu = all.mfu(prediction.peak_flops);
    cells.push_back({all.flops > 0 ? compact(to_double(all.flops)) : std::string()});
    cells.push_back({all.bytes > 0 ? compact(to_double(all.bytes)) : std::string()});
    cells.push_back({mfu ? fmt::format("{:.1f}%", 100 * *mfu) : std::string()});
    cells.push_back({all.launches > 0 ? fmt::format("{}", static_cast<std::int64_t>(all.launches)) : std::string()});
    table.rows.push_back(std::move(cells));
  };
  for (const ViewLine& line : lines) {
    add_line(line.name, line.all, line.share, [&](std::size_t i) { return line.phases[i].time_s; });
    sum.time_s += line.all.time_s;
    sum.flops += line.all.flops;
    sum.matmul_flops += line.all.matmul_flops;
    sum.bytes += line.all.bytes;
    sum.launches += line.all.launches;
    for (std::size_t i = 0; i < kStepPhases; ++i) phase_s[i] += line.phases[i].time_s;
  }
  const double step_s = prediction.totals.step_time_s;
  add_line("step", sum, step_s > 0 ? sum.time_s / step_s : 0, [&](std::size_t i) { return phase_s[i]; });
  return table;
}

}  // namespace rooftile
