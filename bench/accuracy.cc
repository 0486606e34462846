// Predicted against measured kernel times, per device, op and dtype, beside two rooflines that need no model.
//
//   accuracy DATA_ROOT DEVICE FILE.csv [--mode model|calibrated] [--rows] [--min-us N] [--source TEXT] [--raw]
//
// DATA_ROOT is the folder that holds hardware/. A CSV has the columns op,dtype,shape,measured_us and optionally source. --rows prints every row instead of the table; --raw
// times the attention rows of serving engines as attention alone.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "estimator/timing/timer.h"
#include "frontends/hardware_files.h"

using namespace rooftile;

namespace {

std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (const char c : line) {
    if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      fields.emplace_back();
    } else if (c != '\r') {
      fields.back() += c;
    }
  }
  return fields;
}

struct Errors {
  std::vector<double> signed_errors;
  void add(double predicted_s, double measured_s) { signed_errors.push_back(predicted_s / measured_s - 1); }
  std::string text() const {
    std::vector<double> sizes;
    double bias = 0, mean = 0;
    for (const double e : signed_errors) bias += e, mean += std::abs(e), sizes.push_back(std::abs(e));
    std::sort(sizes.begin(), sizes.end());
    const double n = static_cast<double>(sizes.size());
    return fmt::format("{:6.1f} {:6.1f} {:6.1f} {:+6.1f}", 100 * mean / n, 100 * sizes[sizes.size() / 2], 100 * sizes[static_cast<std::size_t>(0.9 * (n - 1))], 100 * bias / n);
  }
};

struct Group {
  Errors model, roofline, derated;
};

std::string group_of(const KernelCall& call, const std::string& source, double measured_s) {
  std::string name = fmt::format("{} {} {}", name_of(call.kernel), name_of(call.dtype), source.substr(0, source.find('/')));
  if (call.kernel == KernelClass::attention) {
    const AttentionShape& s = call.attention();
    name += s.seq_q == 1 ? " decode" : s.causal ? " causal" : " full";
  }
  if (call.kernel == KernelClass::collective) name += fmt::format(" {}", name_of(call.collective().kind));
  if (call.kernel == KernelClass::pointwise) name += fmt::format(" {}", name_of(call.pointwise().kind));
  if (call.kernel == KernelClass::gemm) {
    const double us = measured_s * 1e6;
    name += us < 10 ? " a:<10us" : us < 50 ? " b:<50us" : us < 200 ? " c:<200us" : us < 1000 ? " d:<1ms" : " e:>1ms";
  }
  return name;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    fmt::print(stderr, "usage: accuracy DATA_ROOT DEVICE FILE.csv [--mode model|calibrated] [--rows] [--min-us N] [--source TEXT] [--raw]\n");
    return 2;
  }
  Mode mode = Mode::model;
  bool rows = false, raw = false;
  double least_us = 0;
  std::string wanted;
  for (int i = 4; i < argc; ++i) {
    const std::string_view option = argv[i];
    if (option == "--rows") rows = true;
    if (option == "--raw") raw = true;
    if (option == "--mode" && i + 1 < argc) mode = std::string_view(argv[++i]) == "calibrated" ? Mode::calibrated : Mode::model;
    if (option == "--min-us" && i + 1 < argc) least_us = std::atof(argv[++i]);
    if (option == "--source" && i + 1 < argc) wanted = argv[++i];
  }
  const DataPath data{{argv[1]}};
  const Result<Machine> machine = load_machine(data, argv[2], "", "");
  if (!machine) {
    fmt::print(stderr, "{}\n", describe(machine.error()));
    return static_cast<int>(machine.error().code);
  }
  KernelTimer timer(*machine, mode, ClockState::automatic), sol(*machine, Mode::sol, ClockState::burst);
  for (const std::string& name : timer.missing_constants()) fmt::print(stderr, "missing constant: {}\n", name);

  std::ifstream file(argv[3]);
  std::string line;
  std::getline(file, line);
  const std::vector<std::string> header = fields_of(line);
  const auto column = [&](std::string_view name) { return static_cast<std::size_t>(std::find(header.begin(), header.end(), name) - header.begin()); };
  const std::size_t op = column("op"), dtype = column("dtype"), shape = column("shape"), measured = column("measured_us"), source = column("source");
  std::map<std::string, Group> groups;
  while (std::getline(file, line)) {
    const std::vector<std::string> cells = fields_of(line);
    if (cells.size() <= measured) continue;
    const double measured_s = std::atof(cells[measured].c_str()) * 1e-6;
    const std::string from = source < cells.size() ? cells[source] : "";
    if (measured_s * 1e6 < least_us || measured_s <= 0 || from.find(wanted) == std::string::npos) continue;
    const auto call = parse_kernel(cells[op], cells[dtype], cells[shape]);
    if (!call) {
      fmt::print(stderr, "{}: {}\n", cells[shape], describe(call.error()));
      continue;
    }
    if (const std::string reason = unsupported_reason(*call, machine->device); !reason.empty()) {
      fmt::print(stderr, "{}: {}\n", cells[shape], reason);
      continue;
    }
    KernelTime time = timer(*call);
    double ideal = sol(*call).time_s;
    // What these serving rows time is the engine's attention call, which first writes the new keys and values into the cache.
    if (!raw && call->kernel == KernelClass::attention && call->attention().causal && from.find("/vllm") != std::string::npos) {
      const AttentionShape& s = call->attention();
      const PointwiseShape copy{.kind = PointwiseKind::copy, .numel = s.batch * s.seq_q * s.kv_heads * (s.head_dim + s.v_head_dim), .to = call->dtype};
      const KernelCall write{.kernel = KernelClass::pointwise, .dtype = call->dtype, .pass = Pass::fwd, .impl = Impl::torch, .shape = copy};
      time.time_s += timer(write).time_s;
      ideal += sol(write).time_s;
    }
    if (rows) {
      fmt::print("{},{},{},{:.3f},{:.3f},{:.3f},{},{}x{}x{},{:.2f},{},{:.2f},{:.2f},{:.2f},{:.2f}\n", cells[op], cells[dtype], cells[shape], measured_s * 1e6, time.time_s * 1e6,
                 time.time_s / measured_s - 1, time.family, time.tile_m, time.tile_n, time.split_k, time.waves, name_of(time.bound), time.compute_s * 1e6, time.dram_s * 1e6,
                 time.latency_s * 1e6, time.l2_s * 1e6);
      continue;
    }
    for (const std::string& name : {fmt::format("{} {}", name_of(call->kernel), name_of(call->dtype)), group_of(*call, from, measured_s)}) {
      Group& group = groups[name];
      group.model.add(time.time_s, measured_s);
      group.roofline.add(ideal, measured_s);
      group.derated.add(ideal / 0.8 + 3e-6, measured_s);
    }
  }
  if (rows) return 0;
  fmt::print("{:<44} {:>5} | {:^27} | {:^27} | {:^27}\n", argv[2], "n", "model: mean med p90 bias", "ideal roofline", "roofline/0.8 + 3 us");
  for (const auto& [name, group] : groups) {
    fmt::print("{:<44} {:>5} | {} | {} | {}\n", name, group.model.signed_errors.size(), group.model.text(), group.roofline.text(), group.derated.text());
  }
  return 0;
}
