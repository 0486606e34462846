#include <fmt/format.h>

#include <cstdio>
#include <filesystem>

#include "cli/command_parser.h"
#include "cli/commands.h"
#include "cli/install_path.h"
#include "cli/listing.h"
#include "cli/version.h"
#include "frontends/hardware_files.h"
#include "report/quantity.h"

namespace rooftile {
namespace {

#ifdef ROOFTILE_HAVE_CUDA
constexpr bool kHaveCuda = true;
#else
constexpr bool kHaveCuda = false;
#endif
#ifdef ROOFTILE_HAVE_ONNX
constexpr bool kHaveOnnx = true;
#else
constexpr bool kHaveOnnx = false;
#endif

std::string compiler() {
#if defined(__clang__)
  return fmt::format("clang {}.{}", __clang_major__, __clang_minor__);
#elif defined(__GNUC__)
  return fmt::format("gcc {}.{}", __GNUC__, __GNUC_MINOR__);
#else
  return "unknown";
#endif
}

}  // namespace

int run_doctor(const Invocation& invocation) {
  CommandParser parser("doctor", "What this build and this machine can do.", {"rooftile doctor"});
  const auto help = parser.parse(invocation.arguments);
  if (!help) return report_error(help.error());
  if (*help) {
    std::fputs((*help)->c_str(), stdout);
    return 0;
  }
  auto output = Output::open("");
  if (!output) return report_error(output.error());
  const std::filesystem::path installed = installed_data();
  const DataPath data = DataPath::standard(installed);
  std::string text;
  const auto line = [&](std::string_view key, const std::string& value) { text += fmt::format("{:<22} {}\n", key, value); };
  line("rooftile", fmt::format("{} ({})", version(), compiler()));
  line("installed data", installed.empty() ? (data.roots.empty() ? "not found: set ROOFTILE_DATA" : "not found; the data folders below are used") : printable(installed.string()));
  for (const auto& root : data.roots) line("data folder", printable(root.string()));
  const auto count = [&](std::string_view noun, DataKind kind) { line(noun, fmt::format("{}", data.names(kind).size())); };
  count("models", DataKind::model);
  count("devices", DataKind::device);
  count("calibrations", DataKind::calibration);
  count("runtimes", DataKind::runtime);
  count("clusters", DataKind::cluster);
  line("ONNX graphs", kHaveOnnx ? "yes" : "no: not in this build");
  line("measuring on a GPU", kHaveCuda ? "built in" : "no: built without CUDA (estimates need none); configure with -DROOFTILE_CUDA=ON and a CUDA compiler");
  line("NVIDIA driver", std::filesystem::exists("/proc/driver/nvidia/version") ? "present" : "not present");
  return print_text(*output, text);
}

}  // namespace rooftile
