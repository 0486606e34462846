#include "bench/parity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace rooftile {
std::string parity_plot(const std::string& title, const std::vector<JudgedRow>& rows, std::size_t most_dots) {
  constexpr double kSize = 360, kLeft = 56, kTop = 34;
  double low = 1e300, high = 0;
  for (const JudgedRow& r : rows) low = std::min({low, r.row->measured_s, r.predicted_s}), high = std::max({high, r.row->measured_s, r.predicted_s});
  const int first = static_cast<int>(std::floor(std::log10(low * 1e6))), last = std::max(first + 1, static_cast<int>(std::ceil(std::log10(high * 1e6))));
  const auto at = [&](double seconds) { return (std::log10(seconds * 1e6) - first) / (last - first) * kSize; };
  const auto x = [&](double seconds) { return kLeft + at(seconds); };
  const auto y = [&](double seconds) { return kTop + kSize - at(seconds); };
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {:.0f} {:.0f}\" font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
      "<text x=\"{:.0f}\" y=\"18\" font-size=\"13\">{}</text>\n",
      kLeft + kSize + 24, kTop + kSize + 44, kLeft, title);
  for (int decade = first; decade <= last; ++decade) {
    const double s = std::pow(10.0, decade) * 1e-6;
    out += fmt::format("<path d=\"M{:.1f} {:.1f}V{:.1f}M{:.1f} {:.1f}H{:.1f}\" stroke=\"#ddd\"/>\n", x(s), kTop, kTop + kSize, kLeft, y(s), kLeft + kSize);
    const std::string label = decade < 3 ? fmt::format("{:g} us", s * 1e6) : fmt::format("{:g} ms", s * 1e3);
    out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text><text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n", x(s), kTop + kSize + 16,
                       label, kLeft - 5, y(s) + 4, label);
  }
  out += fmt::format(
      "<text x=\"{:.0f}\" y=\"{:.0f}\" text-anchor=\"middle\">measured</text><text transform=\"translate(12 {:.0f}) rotate(-90)\" text-anchor=\"middle\">predicted</text>\n",
      kLeft + kSize / 2, kTop + kSize + 34, kTop + kSize / 2);
  const double shift = std::log10(1.2) / (last - first) * kSize;
  out += fmt::format(
      "<path d=\"M{0:.1f} {1:.1f}L{2:.1f} {3:.1f}\" stroke=\"#333\"/>\n<path d=\"M{0:.1f} {4:.1f}L{5:.1f} {3:.1f}M{6:.1f} {1:.1f}L{2:.1f} {7:.1f}\" stroke=\"#bbb\"/>\n", kLeft,
      kTop + kSize, kLeft + kSize, kTop, kTop + kSize - shift, kLeft + kSize - shift, kLeft + shift, kTop + shift);
  out += "<path stroke=\"#06c\" stroke-width=\"3\" stroke-linecap=\"round\" stroke-opacity=\"0.45\" d=\"";
  const std::size_t stride = std::max<std::size_t>(1, (rows.size() + most_dots - 1) / most_dots);
  for (std::size_t i = 0; i < rows.size(); i += stride) out += fmt::format("M{:.1f} {:.1f}h0", x(rows[i].row->measured_s), y(rows[i].predicted_s));
  return out + "\"/>\n</svg>\n";
}

}  // namespace rooftile
