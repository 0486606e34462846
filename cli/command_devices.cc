#include <fmt/format.h>

#include "cli/install_path.h"
#include "cli/listing.h"
#include "frontends/hardware_files.h"
#include "report/quantity.h"

namespace rooftile {
namespace {

Result<Device> load(const DataPath& data, const std::string& name) {
  const auto file = data.find(DataKind::device, name);
  if (!file) return tl::unexpected<Error>(file.error());
  return read_device(*file, data);
}

std::string rate_text(const MathRate& rate) { return rate.peak_flops > 0 ? significant(rate.peak_flops / 1e12) : "-"; }

int run_lint(const DataPath& data, Output& output) {
  std::string text;
  std::size_t findings = 0;
  const auto names = data.names(DataKind::device);
  for (const std::string& name : names) {
    const auto device = load(data, name);
    if (!device) {
      text += describe(device.error()) + "\n";
      ++findings;
      continue;
    }
    for (const Warning& warning : lint(*device)) {
      text += fmt::format("{}: {}: {}\n", name, warning.code, printable(warning.message));
      ++findings;
    }
  }
  text += fmt::format("{} devices, {} findings\n", names.size(), findings);
  const int printed = print_text(output, text);
  return printed != 0 ? printed : findings > 0 ? static_cast<int>(ErrorCode::gate_failed) : 0;
}

int show(const Device& device, const ListingArguments& arguments, Output& output) {
  if (arguments.json) return print_text(output, render_facts(device.facts, arguments, output));
  std::string text = fmt::format("{}: {}\n{} ({}), compute capability {}.{}, {} SMs\nread from {}\n\n", device.id, printable(device.name), name_of(device.architecture),
                                 printable(device.variant), device.compute_capability / 10, device.compute_capability % 10, device.sms, printable(device.file));
  text += fmt::format("peak, dense, at {}:\n", human(device.peak_clock_hz, "Hz"));
  for (const DTypeInfo& info : kDTypes) {
    if (device.rate(info.dtype).peak_flops > 0) text += fmt::format("  {:<9} {}\n", info.name, human(device.rate(info.dtype).peak_flops, "FLOP/s"));
  }
  return print_text(output, text + "\n" + render_facts(device.facts, arguments, output));
}

}  // namespace

int run_devices(const Invocation& invocation) {
  if (!invocation.arguments.empty() && invocation.arguments[0] == "new") return run_devices_new(invocation);
  bool help = false;
  const auto arguments =
      parse_listing(invocation, "devices",
                    "Lists the GPUs that are there. Each is one YAML file; 'show' prints the source of every number; 'new --probe' writes one for the GPU present.", true, help);
  if (!arguments) return report_error(arguments.error());
  if (help) return 0;
  auto output = Output::open("");
  if (!output) return report_error(output.error());
  const DataPath data = DataPath::standard(installed_data());
  if (arguments->lint) return run_lint(data, *output);
  if (!arguments->show.empty()) {
    const auto device = load(data, arguments->show);
    return device ? show(*device, *arguments, *output) : report_error(device.error());
  }
  Listing listing;
  listing.table.columns = {{"id", Align::left},
                           {"name", Align::left},
                           {"architecture", Align::left, 3},
                           {"SMs", Align::right, 1},
                           {"bf16 TFLOP/s"},
                           {"fp16 TFLOP/s", Align::right, 5},
                           {"fp8 TFLOP/s", Align::right, 2},
                           {"memory"},
                           {"bandwidth"},
                           {"L2", Align::right, 4}};
  const auto names = data.names(DataKind::device);
  if (names.empty()) return report_no_data("devices");
  for (const std::string& name : names) {
    const auto device = load(data, name);
    if (!device) {
      report_error(device.error());
      continue;
    }
    listing.row({name, printable(device->name), std::string(name_of(device->architecture)), fmt::format("{}", device->sms), rate_text(device->rate(DType::bf16)),
                 rate_text(device->rate(DType::fp16)), rate_text(device->rate(DType::fp8_e4m3)), human(device->memory_bytes, "B"), human(device->memory_bandwidth, "B/s"),
                 human(device->l2_bytes, "B")});
  }
  return print_text(*output, render(listing, *arguments, *output));
}

}  // namespace rooftile
