#include "cli/probe_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "report/quantity.h"

namespace rooftile {
namespace {

struct Peak {
  std::string_view key;
  DType dtype;
};
constexpr Peak kPeaks[] = {{"bf16", DType::bf16}, {"fp16", DType::fp16},    {"tf32", DType::tf32}, {"fp32", DType::fp32},
                           {"fp64", DType::fp64}, {"fp8", DType::fp8_e4m3}, {"fp4", DType::fp4},   {"int8", DType::int8}};

double flops_of_product(const KernelCall& call) {
  const GemmShape& s = call.gemm();
  return 2.0 * static_cast<double>(s.batch) * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);
}

// What a YAML text in double quotes may hold.
std::string quoted(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') out += '\\';
    out += byte < 0x20 || byte > 0x7e ? '?' : c;
  }
  return out;
}

class DeviceText {
 public:
  explicit DeviceText(std::string date) : date_(std::move(date)) {}
  void line(std::string_view text) { text_ += fmt::format("{}\n", text); }
  void number(int indent, std::string_view key, double value, std::string_view unit, std::string_view source, std::string_view kind, std::string_view note = {}) {
    text_ += fmt::format("{:{}}{}: {{value: {:.7g}, unit: {}, source: {}, kind: {}, date: {}", "", indent, key, value, unit, source, kind, date_);
    text_ += note.empty() ? "}\n" : fmt::format(", note: \"{}\"}}\n", quoted(note));
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_, date_;
};

}  // namespace

Ceilings ceilings_of(std::span<const Measurement> measured) {
  Ceilings ceilings;
  for (const Measurement& m : measured) {
    if (!m.ok()) continue;
    if (m.call.kernel == KernelClass::gemm && m.clocks != ClockState::sustained) {
      double& best = ceilings.flops[m.call.dtype];
      best = std::max(best, flops_of_product(m.call) / m.measured_s);
    }
    if (m.call.kernel == KernelClass::gemm && m.clocks == ClockState::sustained) ceilings.sustained_clock_hz = m.clock_hz;
    if (m.call.kernel == KernelClass::pointwise && m.call.pointwise().kind == PointwiseKind::copy) {
      const double bytes = 2.0 * static_cast<double>(m.call.pointwise().numel) * bytes_of(m.call.dtype);
      ceilings.copy_bandwidth = std::max(ceilings.copy_bandwidth, bytes / m.measured_s);
    }
  }
  return ceilings;
}

const Device* nearest_device(const GpuFacts& gpu, std::span<const Device> known) {
  const Device* best = nullptr;
  for (const Device& device : known) {
    if (device.compute_capability > gpu.compute_capability) continue;
    const bool nearer = best == nullptr || device.compute_capability > best->compute_capability ||
                        (device.compute_capability == best->compute_capability && std::abs(device.sms - gpu.sms) < std::abs(best->sms - gpu.sms));
    if (nearer) best = &device;
  }
  return best;
}

std::string device_yaml(const std::string& id, const GpuFacts& gpu, const Ceilings& ceilings, const Device& like, const std::string& date) {
  const bool same = like.compute_capability == gpu.compute_capability;
  const double clock_hz = gpu.boost_clock_hz > 0 ? gpu.boost_clock_hz : like.boost_clock_hz;
  const double power_w = gpu.power_limit_w > 0 ? gpu.power_limit_w : like.power_limit_w;
  const double bus_bandwidth = gpu.memory_bus_bits / 8 * gpu.memory_clock_hz * 2;
  const std::string as_like = fmt::format("as {}", like.id);
  DeviceText out(date);
  out.line(fmt::format("# Written by 'rooftile devices new --probe'. Numbers of kind 'guess' and the peaks are worth a look at the data sheet."));
  out.line("kind: device");
  out.line("id: " + id);
  out.line(fmt::format("name: \"{}\"", quoted(gpu.name)));
  out.line(fmt::format("architecture: {}\nvariant: {}\ncompute_capability: \"{}.{}\"\ncluster: {}", name_of(like.architecture), like.variant, gpu.compute_capability / 10,
                       gpu.compute_capability % 10, like.cluster));
  out.line(fmt::format(
      "\nsources:\n  query: \"query of the GPU (driver {}, CUDA {})\"\n  probe: \"rooftile devices new --probe on this GPU (cuBLASLt {})\"\n  like: \"device file {} ({})\"\n",
      quoted(gpu.driver), quoted(gpu.runtime), quoted(gpu.cublaslt), like.id, quoted(like.name)));

  out.line("data_sheet:");
  out.number(2, "sms", gpu.sms, "SM", "query", "measured");
  out.number(2, "peak_clock", clock_hz / 1e6, "MHz", "query", "derived", "the highest clock; a data sheet may state its peaks at a lower one");
  out.number(2, "boost_clock", clock_hz / 1e6, "MHz", gpu.boost_clock_hz > 0 ? "query" : "like", gpu.boost_clock_hz > 0 ? "measured" : "guess",
             gpu.boost_clock_hz > 0 ? "" : as_like);
  out.number(2, "power_limit", power_w, "W", gpu.power_limit_w > 0 ? "query" : "like", gpu.power_limit_w > 0 ? "measured" : "guess", gpu.power_limit_w > 0 ? "" : as_like);
  struct Rate {
    std::string_view key;
    double flop;
    std::string note;
  };
  std::vector<Rate> rates;
  for (const Peak& peak : kPeaks) {
    const double of_like = like.rate(peak.dtype).flop_per_clock_per_sm;
    if (of_like <= 0) continue;
    const auto measured = ceilings.flops.find(peak.dtype);
    const bool known = measured != ceilings.flops.end() && measured->second > 0;
    if (same || !known) {
      rates.push_back({peak.key, of_like, fmt::format("{}{}", as_like, same ? ", the same compute capability" : ", not measured here")});
    } else {
      const double reached = measured->second / (gpu.sms * clock_hz);
      rates.push_back({peak.key, std::exp2(std::ceil(std::log2(reached))), fmt::format("{} were reached", significant(reached))});
    }
  }
  out.line("  peak:");
  for (const Rate& rate : rates) {
    std::string note = "SMs x rate x clock";
    for (const Peak& peak : kPeaks)
      if (peak.key == rate.key && ceilings.flops.contains(peak.dtype)) note += fmt::format("; {} TFLOP/s were measured", significant(ceilings.flops.at(peak.dtype) / 1e12));
    out.number(4, rate.key, gpu.sms * rate.flop * clock_hz / 1e12, "TFLOP/s", "query", "derived", note);
  }
  out.line("  memory:");
  out.number(4, "capacity", gpu.memory_bytes / 1048576, "MiB", "query", "measured");
  const std::string copied = ceilings.copy_bandwidth > 0 ? fmt::format("; a copy reached {} GB/s", significant(ceilings.copy_bandwidth / 1e9)) : "";
  if (bus_bandwidth > 0)
    out.number(4, "bandwidth", bus_bandwidth / 1e9, "GB/s", "query", "derived", "bus width x memory clock x 2" + copied);
  else
    out.number(4, "bandwidth", (ceilings.copy_bandwidth > 0 ? ceilings.copy_bandwidth : like.memory_bandwidth) / 1e9, "GB/s", ceilings.copy_bandwidth > 0 ? "probe" : "like",
               "guess", "the driver does not tell" + copied);
  out.line("  link:\n    type: " + like.link);
  out.number(4, "bandwidth", like.link_bandwidth / 1e9, "GB/s", "like", "guess", as_like + "; one GPU alone does not show it");
  out.line("  pcie:");
  out.number(4, "bandwidth", like.pcie_bandwidth / 1e9, "GB/s", "like", "guess", as_like);

  out.line("\nchip:\n  rate:");
  for (const Rate& rate : rates) out.number(4, rate.key, rate.flop, "FLOP/clock/SM", same ? "like" : "probe", "derived", rate.note);
  out.number(2, "special_rate", like.special_per_clock_per_sm, "1/clock/SM", "like", "derived", as_like);
  out.number(2, "l2", gpu.l2_bytes / 1048576, "MiB", "query", "measured");
  out.number(2, "shared_memory_per_sm", gpu.shared_memory_per_sm / 1024, "KiB", "query", "measured");
  out.number(2, "registers_per_sm", gpu.registers_per_sm, "register", "query", "measured");
  out.number(2, "threads_per_sm", gpu.threads_per_sm, "thread", "query", "measured");

  if (ceilings.sustained_clock_hz > 0 || ceilings.copy_bandwidth > 0) out.line("\nmeasured:");
  if (ceilings.sustained_clock_hz > 0)
    out.number(2, "sustained_clock", ceilings.sustained_clock_hz / 1e6, "MHz", "probe", "measured", "bf16 products of 8192 x 8192 x 8192 after a second of them");
  if (ceilings.copy_bandwidth > 0) out.number(2, "copy_bandwidth", ceilings.copy_bandwidth / 1e9, "GB/s", "probe", "measured", "read and write together");
  return out.take();
}

}  // namespace rooftile
