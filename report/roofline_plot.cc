#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "report/quantity.h"
#include "report/render.h"
#include "report/text_table.h"

namespace rooftile {

// Columns are log10(FLOP/byte), lines log10(FLOP/s). '/' and '-' draw the roof; each operator that does arithmetic is a letter at its intensity and its achieved rate.
std::string render_roofline(const Prediction& prediction, const Summary& summary, const TableStyle& style) {
  if (!(prediction.peak_flops > 0) || !(prediction.peak_bandwidth > 0)) return "no roofline: the device has no peak for this dtype\n";
  struct Point {
    char letter;
    double x, y;
    const OpGroup* group;
  };
  std::vector<Point> points;
  for (const OpGroup& group : summary.groups) {
    if (group.flops <= 0 || group.bytes <= 0 || group.time_s <= 0 || points.size() == 26) continue;
    points.push_back({'?', std::log10(group.intensity), std::log10(group.flops / group.time_s), &group});
  }
  if (points.empty()) return "no roofline: no operator does arithmetic\n";
  // The letters go to what takes the most time.
  std::sort(points.begin(), points.end(), [](const Point& a, const Point& b) { return a.group->time_s > b.group->time_s; });
  for (std::size_t i = 0; i < points.size(); ++i) points[i].letter = static_cast<char>('A' + i);

  const double peak = std::log10(prediction.peak_flops), bandwidth = std::log10(prediction.peak_bandwidth), ridge = peak - bandwidth;
  double x_low = ridge - 1, x_high = ridge + 1, y_low = peak - 2;
  for (const Point& point : points) x_low = std::min(x_low, point.x), x_high = std::max(x_high, point.x), y_low = std::min(y_low, point.y);
  x_low = std::floor(x_low * 2) / 2, x_high = std::ceil(x_high * 2) / 2, y_low = std::floor(y_low * 2) / 2;
  const double y_high = peak + 0.2;
  constexpr std::size_t kAxis = 13;
  const std::size_t columns = std::max<std::size_t>(std::min<std::size_t>(style.width, 120), 40) - kAxis - 1;
  constexpr std::size_t kLines = 18;
  std::vector<std::string> canvas(kLines, std::string(columns, ' '));
  const auto column_of = [&](double x) { return std::lround((x - x_low) / (x_high - x_low) * static_cast<double>(columns - 1)); };
  const auto line_of = [&](double y) { return std::lround((y_high - y) / (y_high - y_low) * static_cast<double>(kLines - 1)); };
  const auto put = [&](long line, long column, char c) {
    if (line >= 0 && line < static_cast<long>(kLines) && column >= 0 && column < static_cast<long>(columns))
      canvas[static_cast<std::size_t>(line)][static_cast<std::size_t>(column)] = c;
  };
  for (std::size_t c = 0; c < columns; ++c) {
    const double x = x_low + (x_high - x_low) * static_cast<double>(c) / static_cast<double>(columns - 1);
    put(line_of(std::min(peak, x + bandwidth)), static_cast<long>(c), x + bandwidth < peak ? '/' : '-');
  }
  // Drawn backwards, so that the longest operator lies on top.
  for (auto point = points.rbegin(); point != points.rend(); ++point) put(line_of(point->y), column_of(point->x), point->letter);

  std::string out = fmt::format("roofline, log-log: {} {} peak, {}, ridge at {} FLOP/byte\n", human(prediction.peak_flops, "FLOP/s"), name_of(prediction.options.dtype),
                                human(prediction.peak_bandwidth, "B/s"), significant(std::pow(10, ridge)));
  std::vector<std::string> labels(kLines);
  for (double y = std::ceil(y_low); y <= y_high; ++y) labels[static_cast<std::size_t>(line_of(y))] = human(std::pow(10, y), "FLOP/s");
  for (std::size_t line = 0; line < kLines; ++line) {
    std::string text = canvas[line];
    text.erase(text.find_last_not_of(' ') + 1);
    out += std::string(kAxis - std::min(kAxis, display_width(labels[line])), ' ') + labels[line] + "|" + text + "\n";
  }
  out += std::string(kAxis, ' ') + "+" + std::string(columns, '-') + "\n";
  std::string axis(columns, ' ');
  for (double x = std::ceil(x_low); x <= x_high; ++x) {
    const std::string label = fmt::format("{}", std::pow(10, x) >= 1 ? fmt::format("{:.0f}", std::pow(10, x)) : significant(std::pow(10, x)));
    const auto at = static_cast<std::size_t>(std::max(column_of(x), 0L));
    if (at + label.size() <= columns) axis.replace(at, label.size(), label);
  }
  axis.erase(axis.find_last_not_of(' ') + 1);
  out += std::string(kAxis + 1, ' ') + axis + "\n" + std::string(kAxis + 1, ' ') + "FLOP/byte\n";
  std::string legend;
  std::size_t used = 0;
  for (const Point& point : points) {
    const std::string item = fmt::format("{} {}", point.letter, point.group->name);
    if (used > 0 && used + item.size() + 3 > style.width) legend += "\n", used = 0;
    if (used > 0) legend += "   ", used += 3;
    legend += item;
    used += item.size();
  }
  return out + legend + "\n";
}

}  // namespace rooftile
