#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "cli/command_parser.h"
#include "cli/commands.h"
#include "cli/install_path.h"
#include "cli/listing.h"
#include "cli/measuring.h"
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
  line("measuring on a GPU", kHaveCuda ? "built in" : "no: built without CUDA (estimates need none); configure with -DROOFTILE_CUDA=ON and a CUDA compiler");
  line("CUDA compiler",
       std::filesystem::exists("/usr/local/cuda/bin/nvcc") || std::getenv("CUDACXX") ? "found" : "not found: only building the kernels needs it (CUDA toolkit, or set CUDACXX)");
  line("NVIDIA driver", std::filesystem::exists("/proc/driver/nvidia/version") ? "present" : "not present");
  if (kHaveCuda) {
    if (const auto runner = make_cuda_runner(-1); !runner) {
      line("GPU", "none: " + printable(runner.error().message));
    } else {
      const GpuFacts gpu = (*runner)->facts();
      line("GPU", fmt::format("{}, {} SMs, {:.0f} MiB, driver {}", printable(gpu.name), gpu.sms, gpu.memory_bytes / 1048576, gpu.driver.empty() ? "unknown" : gpu.driver));
      const auto library = [&](std::string_view key, const std::string& version, std::string_view package) {
        const bool missing = version.rfind("missing", 0) == 0;
        line(key, printable(version) + (missing ? fmt::format("; it comes with {}; name its folder in ROOFTILE_LIBRARY_PATH", package) : ""));
      };
      library("cuBLASLt", gpu.cublaslt, "the CUDA toolkit or the Python package nvidia-cublas");
      library("cuDNN", gpu.cudnn, "the package libcudnn9-cuda-13 or the Python package nvidia-cudnn-cu13");
      library("NCCL", gpu.nccl, "the package libnccl2 or the Python package nvidia-nccl-cu13");
      // Which device file describes it is the first thing to know before measuring.
      Session session;
      const auto device = device_of_gpu(session, gpu);
      line("its device file", device ? *device : printable(device.error().message) + "; " + device.error().hint);
    }
  }
  return print_text(*output, text);
}

}  // namespace rooftile
