#include <fmt/format.h>

#include <chrono>
#include <filesystem>

#include "cli/command_parser.h"
#include "cli/commands.h"
#include "cli/listing.h"
#include "cli/measuring.h"
#include "cli/probe_device.h"
#include "report/quantity.h"
#include "validate/campaign.h"
#include "validate/campaign_builder.h"

namespace rooftile {
namespace {

constexpr double kProbe_s = 25;

struct Arguments {
  std::vector<std::string> words, ignored;
  std::string output, id, like;
  bool probe = false;
};

std::string today() {
  const std::chrono::year_month_day day{std::chrono::floor<std::chrono::days>(std::chrono::system_clock::now())};
  return fmt::format("{:04}-{:02}-{:02}", static_cast<int>(day.year()), static_cast<unsigned>(day.month()), static_cast<unsigned>(day.day()));
}

// "NVIDIA H200" as nvidia_h200: an id is a file's name.
std::string id_of(std::string_view name) {
  std::string id;
  for (const char c : name) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'), capital = c >= 'A' && c <= 'Z';
    if (letter || capital)
      id += capital ? static_cast<char>(c - 'A' + 'a') : c;
    else if (!id.empty() && id.back() != '_')
      id += '_';
  }
  while (!id.empty() && id.back() == '_') id.pop_back();
  return id.empty() ? "gpu" : id;
}

Result<std::vector<Device>> known_devices(Session& session, const Arguments& arguments) {
  std::vector<Device> devices;
  for (const std::string& id : session.data().names(DataKind::device)) {
    if (!arguments.like.empty() && id != arguments.like) continue;
    if (std::find(arguments.ignored.begin(), arguments.ignored.end(), id) != arguments.ignored.end()) continue;
    const auto file = session.data().find(DataKind::device, id);
    if (!file) continue;
    if (auto device = read_device(*file, session.data())) devices.push_back(std::move(*device));
  }
  if (devices.empty())
    return fail(ErrorCode::usage, arguments.like.empty() ? "no device file is left" : fmt::format("there is no device '{}'", printable(arguments.like)), "--like");
  return devices;
}

Result<int> make(const Arguments& arguments) {
  if (!arguments.probe)
    return fail(ErrorCode::usage, "'devices new' looks at the GPU present", {}, "rooftile devices new --probe -o mine.yaml; without a GPU, copy a device file and edit it");
  const std::filesystem::path file = arguments.output;
  if (!file.empty() && file.extension() != ".yaml") return fail(ErrorCode::usage, "a device is a .yaml file", "--output");
  Session session;
  const auto known = known_devices(session, arguments);
  if (!known) return tl::unexpected<Error>(known.error());
  auto runner = make_cuda_runner(-1);
  if (!runner) return tl::unexpected<Error>(runner.error());
  const GpuFacts gpu = (*runner)->facts();
  const Device* like = nearest_device(gpu, *known);
  if (like == nullptr)
    return fail(ErrorCode::unsupported, fmt::format("no device file has compute capability {}.{} or a lower one", gpu.compute_capability / 10, gpu.compute_capability % 10),
                "--like");
  catch_interrupts();
  auto log = MeasurementLog::open("", false);
  RunOptions run;
  std::vector<Measurement> measured = measure_with_progress(**runner, ceilings_campaign(), run, kProbe_s, "ceilings", *log, {}).measurements;
  if (!interrupted()) {
    run.clocks = ClockState::sustained;
    run.check = false;
    measured.push_back((*runner)->measure(make_gemm_call(8192, 8192, 8192, GemmLayout::nt), run));
  }
  if (interrupted()) return fail(ErrorCode::interrupted, "interrupted");
  const std::string id = !arguments.id.empty() ? arguments.id : !file.empty() ? file.stem().string() : id_of(gpu.name);
  auto output = Output::open(arguments.output);
  if (!output) return tl::unexpected<Error>(output.error());
  output->write(device_yaml(id, gpu, ceilings_of(measured), *like, today()));
  if (const auto finished = output->finish(); !finished) return tl::unexpected<Error>(finished.error());
  if (file.empty()) return 0;
  // What was written must be readable and sound.
  const auto written = read_device(file, session.data());
  if (!written) return tl::unexpected<Error>(written.error());
  for (const Warning& warning : lint(*written)) fmt::print(stderr, "{}: {}: {}\n", id, warning.code, printable(warning.message));
  fmt::print(stderr, "wrote {} ({}, like {}); next: rooftile calibrate --device {} -o {}-calibration.yaml\n", printable(file.string()), printable(gpu.name), like->id,
             printable(file.string()), printable(file.stem().string()));
  return 0;
}

}  // namespace

int run_devices_new(const Invocation& invocation) {
  Arguments arguments;
  CommandParser parser("devices new", "Writes a device file for the GPU present: what its driver says, a short measurement, and the rest from the nearest device file.",
                       {"rooftile devices new --probe -o mine.yaml", "rooftile devices new --probe --like h100_sxm"});
  parser.positional("WORDS", arguments.words, "new");
  parser.flag("--probe", arguments.probe, "look at the GPU present and measure it for half a minute");
  parser.option("-o,--output", arguments.output, "the device file (default: printed)", "Options", "FILE.yaml");
  parser.option("--id", arguments.id, "its id (default: the file's name)", "Options", "NAME");
  parser.option("--like", arguments.like, "the device that gives what neither driver nor measurement tell (default: the nearest)", "Options", "NAME");
  parser.option("--ignore", arguments.ignored, "as if there were no such device file; repeatable", "Options", true, "NAME");
  const auto help = parser.parse(invocation.arguments);
  if (!help) return report_error(help.error());
  if (*help) {
    std::fputs((*help)->c_str(), stdout);
    return 0;
  }
  if (arguments.words.size() != 1) return report_error({ErrorCode::usage, "unexpected words after 'devices new'", {}, "see 'rooftile devices new --help'"});
  const auto done = make(arguments);
  return done ? *done : report_error(done.error());
}

}  // namespace rooftile
