// Writes docs/accuracy.md: errors of two rooflines, of the model and of the calibrated model, by device, family and size, on rows kept out of every fit.
//
//   accuracy DATA_ROOT MEASUREMENTS_FOLDER... [--stories FILE] [--rows FILE] [-o FILE]
//
// DATA_ROOT holds hardware/. A folder holds one measurement CSV per device ("h100_sxm.csv", "h200_sxm-burst.csv"). --stories is text appended as it is. --rows gets every
// gemm row with its prediction, tile and terms as CSV (microseconds), to look for causes of misses.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bench/parity.h"
#include "frontends/hardware_files.h"
#include "frontends/model_files.h"
#include "validate/errors.h"
#include "validate/fit_device.h"
#include "validate/fit_torch.h"

using namespace rooftile;

namespace {

constexpr double kRooflineFactor = 0.8, kRooflineFixed_s = 3e-6;  // of the fixed-factor roofline

// The four predictions of a set of rows as ratios to the measured time.
struct Ratios {
  std::vector<double> ideal, factor, model, calibrated;
  std::string line(const std::string& name) const {
    std::string out = "| " + name + fmt::format(" | {}", ideal.size());
    for (const auto* ratios : {&ideal, &factor, &model, &calibrated}) {
      const ErrorStatistics e = error_statistics(*ratios);
      out += fmt::format(" | {:.1f} / {:.1f} / {:.1f} / {:+.1f}", 100 * e.mean, 100 * e.median, 100 * e.p90, 100 * e.bias);
    }
    return out + " |\n";
  }
};

constexpr const char* kHead = "| rows | n | ideal roofline | roofline / 0.8 + 3 us | model | calibrated |\n|---|---:|---:|---:|---:|---:|\n";

const char* bucket_of(double seconds) {
  return seconds < 10e-6 ? "under 10 us" : seconds < 50e-6 ? "10 to 50 us" : seconds < 200e-6 ? "50 to 200 us" : seconds < 1e-3 ? "200 us to 1 ms" : "above 1 ms";
}

constexpr const char* kFresh = "-fresh";  // ends the name of a file of rows that are for judging alone

// Whole steps and what the host needs are in files of their own forms.
bool holds_no_kernels(const std::string& stem) { return stem.find("-steps") != std::string::npos || stem.find("-host") != std::string::npos; }

struct MeasuredDevice {
  bool fresh = false;
  Machine machine;
  std::vector<FitRow> rows;
};

// Predicts under the protocol of each row.
class Timers {
 public:
  explicit Timers(const Machine& machine) : machine_(machine) {}
  double time(const FitRow& row, Mode mode) { return full(row, mode).time_s; }
  KernelTime full(const FitRow& row, Mode mode) {
    auto& changed = machines_[row.protocol];
    if (changed == nullptr) {
      changed = std::make_unique<Machine>(machine_);
      changed->calibration = machine_.calibration.under(row.protocol);
    }
    auto& timer = timers_[{row.protocol, mode, row.clocks}];
    if (timer == nullptr) timer = std::make_unique<KernelTimer>(*changed, mode, row.clocks);
    return (*timer)(row.call);
  }

 private:
  const Machine& machine_;
  std::map<std::string, std::unique_ptr<Machine>> machines_;
  std::map<std::tuple<std::string, Mode, ClockState>, std::unique_ptr<KernelTimer>> timers_;
};

std::string order_line(const std::string& name, const OrderCount& count) {
  const auto share = [](int right, int pairs) { return pairs == 0 ? std::string("") : fmt::format("{:.1f} %", 100.0 * right / pairs); };
  return fmt::format("| {} | {} | {} | {} | {} |\n", name, count.pairs, share(count.right, count.pairs), count.far_pairs, share(count.far_right, count.far_pairs));
}

// Share of rows inside the 80 % interval whose ends are quantiles of other rows of the family: the kept-out half is parted once more, by its place in the list.
std::string coverage(const std::map<std::string, std::vector<double>>& logs) {
  std::size_t inside = 0, all = 0;
  for (const auto& [family, values] : logs) {
    if (values.size() < 20) continue;
    std::vector<double> one;
    for (std::size_t i = 0; i < values.size(); i += 2) one.push_back(values[i]);
    std::sort(one.begin(), one.end());
    const double low = one[static_cast<std::size_t>(0.1 * static_cast<double>(one.size() - 1))],
                 high = one[static_cast<std::size_t>(std::ceil(0.9 * static_cast<double>(one.size() - 1)))];
    for (std::size_t i = 1; i < values.size(); i += 2) inside += values[i] >= low && values[i] <= high, ++all;
  }
  return all == 0 ? "too few rows" : fmt::format("{:.0f} % of {} rows inside", 100.0 * static_cast<double>(inside) / static_cast<double>(all), all);
}

std::string transfer(const DataPath& data, const MeasuredDevice& device, const std::string& id) {
  Machine machine = device.machine;
  std::erase_if(machine.calibration.layers, [](const CalibrationLayer& layer) { return layer.level != LayerLevel::architecture; });
  auto layer = read_calibration(data.find(DataKind::calibration, "h200_sxm").value_or("hardware/calibrations/h200_sxm.yaml"));
  if (!layer) return describe(layer.error()) + "\n";
  machine.calibration.layers.push_back(*layer);
  std::vector<FitRow> rows;
  for (const FitRow& row : device.rows) {
    if (row.protocol == "aiconfigurator-trtllm" && row.family == "gemm.bf16") rows.push_back(row);
  }
  DeviceFitOptions options;
  options.physical = false, options.keep = true, options.most_rows = 50;
  const auto fit = fit_device(machine, rows, options);
  if (!fit) return describe(fit.error()) + "\n";
  const auto residuals = fit->device.residuals.find("gemm.bf16");
  const auto found = residuals != fit->device.residuals.end() ? residuals : fit->protocols.front().residuals.find("gemm.bf16");
  const Residuals& r = found->second;
  return fmt::format("| {} | {} | {:.1f} | {:.1f} | {:.1f} | {:+.1f} |\n", id, r.rows, 100 * r.mean_abs, 100 * r.median_abs, 100 * r.p90_abs, 100 * r.bias);
}

// The plots of docs/accuracy/, by device and a family of kernels.
struct Plot {
  const char *device, *family, *name;
  bool (*takes)(const FitRow& row);
};
constexpr std::size_t kMostDots = 1500;  // keeps a file below 60 kB
bool is_bf16_gemm(const FitRow& row) { return row.call.kernel == KernelClass::gemm && row.call.dtype == DType::bf16; }
bool is_fp32_gemm(const FitRow& row) { return row.call.kernel == KernelClass::gemm && row.call.dtype == DType::fp32; }
bool is_attention(const FitRow& row) { return row.call.kernel == KernelClass::attention; }
bool is_own_stream(const FitRow& row) { return row.call.impl == Impl::rooftile; }
bool is_torch(const FitRow& row) { return !torch_family(row.call).empty(); }
constexpr Plot kPlots[] = {{"h200_sxm", "bf16 GEMM", "gemm", is_bf16_gemm},           {"h200_sxm", "attention", "attention", is_attention},
                           {"h200_sxm", "own streams", "streams", is_own_stream},     {"h200_sxm", "kernels of eager PyTorch", "torch", is_torch},
                           {"h100_sxm", "bf16 GEMM", "gemm", is_bf16_gemm},           {"a100_sxm_80gb", "bf16 GEMM", "gemm", is_bf16_gemm},
                           {"b200_sxm", "bf16 GEMM", "gemm", is_bf16_gemm},           {"l40s", "bf16 GEMM", "gemm", is_bf16_gemm},
                           {"v100_pcie_32gb", "fp32 GEMM", "gemm-fp32", is_fp32_gemm}};

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> folders;
  std::string root, stories, output, listing;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--stories" && i + 1 < argc) {
      stories = argv[++i];
    } else if (word == "--rows" && i + 1 < argc) {
      listing = argv[++i];
    } else if (word == "-o" && i + 1 < argc) {
      output = argv[++i];
    } else {
      (root.empty() ? root : folders.emplace_back()) = word;
    }
  }
  if (folders.empty()) {
    fmt::print(stderr, "usage: accuracy DATA_ROOT MEASUREMENTS_FOLDER... [--stories FILE] [--rows FILE] [-o FILE]\n");
    return 2;
  }
  const DataPath data{{root}};
  std::map<std::string, MeasuredDevice> devices;
  for (const std::string& folder : folders) {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.path().extension() == ".csv" && !holds_no_kernels(entry.path().stem().string())) files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    for (const auto& file : files) {
      const std::string stem = file.stem().string(), id = stem.substr(0, stem.find('-'));
      const bool fresh = stem.ends_with(kFresh);
      MeasuredDevice& device = devices[fresh ? id + kFresh : id];
      device.fresh = fresh;
      if (device.machine.device.id.empty()) {
        auto machine = load_machine(data, id, "", "");
        if (!machine) {
          fmt::print(stderr, "{}\n", describe(machine.error()));
          return static_cast<int>(machine.error().code);
        }
        device.machine = std::move(*machine);
      }
      const auto text = read_text(file, std::size_t{1} << 30);
      const auto table = text ? parse_measurements(*text, file.string()) : tl::unexpected<Error>(text.error());
      if (!table) {
        fmt::print(stderr, "{}\n", describe(table.error()));
        return 3;
      }
      std::map<std::string, std::size_t> refused;
      for (FitRow& row : fit_rows(*table, device.machine.device, refused)) {
        row.kept_out = row.kept_out || fresh;  // no fit has ever read them
        device.rows.push_back(std::move(row));
      }
    }
  }

  std::string out =
      "# Accuracy\n\n"
      "Written by `bench/accuracy`; do not edit the tables. Errors are |predicted / measured - 1| in percent: mean / median / 90th percentile / signed mean.\n\n"
      "**Split.** A row is kept out of every fit when bit 33 of the FNV-1a hash of its printed shape is set: about half of all shapes, the same ones on every device, dtype and "
      "source. All tables are of kept-out "
      "rows only; no fit was made on fp8 rows of public data. What is out of sample are the constants: which terms the model has was decided while looking at residuals of both "
      "halves.\n\n"
      "**Columns.** *ideal roofline*: max(FLOPs / data-sheet peak, bytes / data-sheet bandwidth). *model*: data sheet and the constants of the architecture; it was developed with "
      "the public A100, B200, L40S, "
      "T4 and L4 rows and the attention rows in view, see docs/model-kernels.md. *calibrated*: with the device's layer, and the protocol layer of the row's source.\n\n";
  std::map<std::string, std::string> intervals;
  std::string order, plots, rows_text = "device,protocol,dtype,shape,clocks,kept,measured_us,predicted_us,family,tile_m,tile_n,split,compute,dram,l2,latency,launch\n";
  OrderCount all_pairs;
  for (auto& [id, device] : devices) {
    const std::string title = device.machine.device.name + (device.fresh ? ", fresh rows" : "");
    std::size_t stated = 0, within = 0;
    Timers timers(device.machine);
    std::map<std::string, std::map<std::string, Ratios>> families;  // family -> bucket
    std::map<std::string, Ratios> whole, classes;                   // classes: of PyTorch's kernels
    std::map<std::string, std::vector<double>> logs;
    std::vector<JudgedRow> judged;
    for (const FitRow& row : device.rows) {
      if (!listing.empty() && row.call.kernel == KernelClass::gemm) {
        const KernelTime t = timers.full(row, Mode::calibrated);
        rows_text += fmt::format("{},{},{},{},{},{},{:.5g},{:.5g},{},{},{},{},{:.4g},{:.4g},{:.4g},{:.4g},{:.4g}\n", id, row.protocol, name_of(row.call.dtype),
                                 print_shape(row.call), static_cast<int>(row.clocks), row.kept_out ? 1 : 0, row.measured_s * 1e6, t.time_s * 1e6, t.family, t.tile_m, t.tile_n,
                                 t.split_k, t.compute_s * 1e6, t.dram_s * 1e6, t.l2_s * 1e6, t.latency_s * 1e6, t.launch_s * 1e6);
      }
      if (!row.kept_out) continue;
      const double ideal = timers.time(row, Mode::sol), model = timers.time(row, Mode::model), calibrated = timers.time(row, Mode::calibrated), measured = row.measured_s;
      const std::string name = row.family + (row.protocol.empty() ? "" : ", " + row.protocol);
      const std::string walk = row.protocol.starts_with("rooftile") ? torch_family(row.call) : std::string();
      std::vector<Ratios*> places = {&families[name][bucket_of(measured)], &whole[name]};
      if (!walk.empty()) places.insert(places.end(), {&classes[walk], &classes["torch, all"]});
      for (Ratios* r : places) {
        r->ideal.push_back(ideal / measured);
        r->factor.push_back((ideal / kRooflineFactor + kRooflineFixed_s) / measured);
        r->model.push_back(model / measured);
        r->calibrated.push_back(calibrated / measured);
      }
      judged.push_back({&row, calibrated});
      if (device.fresh) {
        const double p90 = timers.full(row, Mode::calibrated).error_p90;
        stated += 1, within += std::abs(measured / calibrated - 1) <= p90 ? 1 : 0;
      }
      if (row.family.find("fp8") == std::string::npos || row.protocol == "rooftile") logs[name].push_back(std::log(measured / calibrated));
    }
    out += fmt::format("## {}\n\n", title);
    if (device.fresh) {
      out += fmt::format(
          "Calls of random sizes that were measured when the model was settled (tests/device/fresh_calls.py); no fit has read them and nothing was changed after them. {} of {} "
          "({:.0f} %) lie within the "
          "`error_p90` that is stated with each, where nine of ten should.\n\n",
          within, stated, 100.0 * static_cast<double>(within) / static_cast<double>(std::max<std::size_t>(1, stated)));
    }
    out += kHead;
    for (const auto& [name, ratios] : whole) out += ratios.line(name);
    out += "\nBy measured time, families of 100 rows and more:\n\n";
    out += kHead;
    for (const auto& [name, buckets] : families) {
      if (whole[name].ideal.size() < 100) continue;
      for (const char* bucket : {"under 10 us", "10 to 50 us", "50 to 200 us", "200 us to 1 ms", "above 1 ms"}) {
        if (const auto found = buckets.find(bucket); found != buckets.end()) out += found->second.line(name + ", " + bucket);
      }
    }
    out += "\n";
    if (!classes.empty()) {
      out += fmt::format("Kernels of eager PyTorch by the class that their constants are fitted for (docs/model-kernels.md):\n\n{}", kHead);
      for (const auto& [name, ratios] : classes) out += ratios.line(name);
      out += "\n";
    }
    intervals[title] = coverage(logs);
    std::map<std::string, std::vector<JudgedRow>> sources;
    for (const JudgedRow& j : judged) sources[j.row->protocol].push_back(j);
    for (const auto& [source, rows] : sources) {
      const OrderCount pairs = count_order(neighbour_pairs(rows));
      if (pairs.pairs == 0) continue;
      order += order_line(title + (source.empty() ? "" : ", " + source), pairs);
      all_pairs += pairs;
    }
    for (const Plot& plot : kPlots) {
      if (output.empty() || id != plot.device) continue;
      std::vector<JudgedRow> chosen;
      std::copy_if(judged.begin(), judged.end(), std::back_inserter(chosen), [&](const JudgedRow& j) { return plot.takes(*j.row); });
      if (chosen.empty()) continue;
      const std::string name = fmt::format("{}-{}.svg", id, plot.name);
      const std::filesystem::path folder = std::filesystem::path(output).parent_path() / "accuracy";
      std::filesystem::create_directories(folder);
      std::ofstream(folder / name) << parity_plot(fmt::format("{}: {}", device.machine.device.name, plot.family), chosen, kMostDots);
      plots += fmt::format("![{} {}](accuracy/{})\n", device.machine.device.name, plot.family, name);
    }
  }
  out +=
      "## Intervals\n\nThe 80 % interval of a family reaches from the 10th to the 90th percentile of log(measured / predicted). Taken from one half of the kept-out rows, tried on "
      "the other:\n\n| device | |\n|---|---|\n";
  for (const auto& [name, text] : intervals) out += fmt::format("| {} | {} |\n", name, text);
  out +=
      "\n## Physical constants of the H200 alone\n\nbf16 GEMM of other devices: constants that the H200's own rows gave stand in for theirs, and at most 50 of their rows give the "
      "protocol's (launch, warm operands, clock). "
      "What the H200 does not tell stays as the architecture's layer has it.\n\n| device | n | mean | median | p90 | bias |\n|---|---:|---:|---:|---:|---:|\n";
  for (const char* id : {"h100_sxm", "a100_sxm_80gb", "b200_sxm"}) {
    if (devices.contains(id)) out += transfer(data, devices[id], id);
  }
  if (all_pairs.pairs > 0) {
    out +=
        "\n## Order of neighbouring sizes\n\nPairs of kept-out products of one device, source, dtype, layout and batch whose m, n and k differ by at most a quarter each, and "
        "whose "
        "measured time for each useful FLOP (2 m n k) differs by over 5 %: how many are predicted in the measured order. Two runs of one GEMM of a public benchmark differ by 3 to "
        "5 % on "
        "average, 10 % and more on cards held by their power limit, so the pairs that differ by over 10 % are counted once more.\n\n| device, source | pairs | right | over 10 % "
        "apart | "
        "right |\n|---|---:|---:|---:|---:|\n";
    out += order + order_line("all", all_pairs);
  }
  if (!plots.empty()) out += "\n## Plots\n\nPredicted (calibrated) over measured time of kept-out rows; grey lines are 20 % away.\n\n" + plots;
  if (!stories.empty()) {
    const auto text = read_text(stories, 1u << 20);
    if (!text) {
      fmt::print(stderr, "{}\n", describe(text.error()));
      return 3;
    }
    out += "\n" + *text;
  }
  if (!listing.empty()) std::ofstream(listing) << rows_text;
  if (output.empty()) {
    fmt::print("{}", out);
  } else {
    std::ofstream(output) << out;
  }
  return 0;
}
