#include "bench/parity.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <tuple>

namespace rooftile {
namespace {

constexpr double kNear = 1.125, kApart = 1.05;

double useful_flops(const GemmShape& s) { return static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k); }

}  // namespace

OrderCount order_of_neighbours(const std::vector<JudgedRow>& rows) {
  OrderCount count;
  for (int changed = 0; changed < 3; ++changed) {
    // Rows that agree in everything but one dimension, in its order.
    std::map<std::string, std::map<std::int64_t, const JudgedRow*>> groups;
    for (const JudgedRow& judged : rows) {
      if (judged.row->call.kernel != KernelClass::gemm) continue;
      KernelCall rest = judged.row->call;
      GemmShape& s = std::get<GemmShape>(rest.shape);
      std::int64_t& dimension = changed == 0 ? s.m : changed == 1 ? s.n : s.k;
      const std::int64_t size = dimension;
      dimension = 1;
      groups[fmt::format("{} {} {} {}", judged.row->protocol, name_of(rest.dtype), print_shape(rest), static_cast<int>(judged.row->clocks))].try_emplace(size, &judged);
    }
    for (const auto& [key, sizes] : groups) {
      for (auto small = sizes.begin(); small != sizes.end(); ++small) {
        for (auto large = std::next(small); large != sizes.end() && static_cast<double>(large->first) <= static_cast<double>(small->first) * kNear; ++large) {
          const double flops = useful_flops(large->second->row->call.gemm()) / useful_flops(small->second->row->call.gemm());
          const double measured = large->second->row->measured_s / small->second->row->measured_s / flops;
          if (std::max(measured, 1 / measured) <= kApart) continue;
          ++count.pairs;
          count.right += (large->second->predicted_s / small->second->predicted_s / flops > 1) == (measured > 1);
        }
      }
    }
  }
  return count;
}

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
      kLeft + kSize + 16, kTop + kSize + 44, kLeft, title);
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
