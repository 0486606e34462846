#include "cli/measuring.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <utility>

#include "report/quantity.h"

namespace rooftile {
namespace {

constexpr std::size_t kMostFileBytes = std::size_t{1} << 30;
constexpr double kMemoryTolerance = 0.12;  // a data sheet's gigabytes and what the driver reports of them

volatile std::sig_atomic_t interrupts = 0;

void note_interrupt(int) {
  interrupts = 1;
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}

Result<MeasurementTable> read_table(const std::string& file) {
  const auto text = read_text(file, kMostFileBytes);
  if (!text) return tl::unexpected<Error>(text.error());
  return parse_measurements(*text, file);
}

// One line that is written over on a terminal, else a line for each tenth of the way.
class ProgressLine {
 public:
  explicit ProgressLine(std::string_view label) : label_(label), terminal_(isatty(STDERR_FILENO) == 1), start_(std::chrono::steady_clock::now()) {}

  void show(std::size_t at, std::size_t of, const Measurement& m) {
    if (!m.ok()) ++without_;
    const double elapsed_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    const std::string state = fmt::format("{} {}/{}, {:.0f} s{}", label_, at, of, elapsed_s, without_ > 0 ? fmt::format(", {} without a time", without_) : "");
    if (terminal_) {
      constexpr std::size_t kBar = 24;
      const std::size_t full = of > 0 ? kBar * at / of : kBar;
      fmt::print(stderr, "\r\x1b[K[{:#<{}}{:.<{}}] {}", "", full, "", kBar - full, state);
      drawn_ = true;
    } else if (at * 10 / std::max<std::size_t>(1, of) != tenth_) {
      tenth_ = at * 10 / std::max<std::size_t>(1, of);
      fmt::print(stderr, "{}\n", state);
    }
    std::fflush(stderr);
  }
  void finish() {
    if (drawn_) fmt::print(stderr, "\r\x1b[K");
  }

 private:
  std::string label_;
  bool terminal_, drawn_ = false;
  std::chrono::steady_clock::time_point start_;
  std::size_t tenth_ = 0, without_ = 0;
};

}  // namespace

Result<std::unique_ptr<Runner>> open_runner(const std::string& replay) {
  if (replay.empty()) return make_cuda_runner(-1);
  auto table = read_table(replay);
  if (!table) return tl::unexpected<Error>(table.error());
  return make_recorded_runner(std::move(*table));
}

Result<std::string> device_of_gpu(Session& session, const GpuFacts& gpu) {
  std::string best;
  double least = kMemoryTolerance;
  std::size_t longest = 0;
  for (const std::string& id : session.data().names(DataKind::device)) {
    const auto file = session.data().find(DataKind::device, id);
    if (!file) continue;
    const auto device = read_device(*file, session.data());
    if (!device) continue;
    if (gpu.sms > 0) {
      if (device->compute_capability != gpu.compute_capability || device->sms != gpu.sms) continue;
      if (const double distance = std::abs(std::log(device->memory_bytes / gpu.memory_bytes)); distance < least) {
        least = distance;
        best = id;
      }
    } else if (!gpu.name.empty() && device->name.rfind(gpu.name, 0) == 0 && (best.empty() || gpu.name.size() > longest)) {
      best = id;
      longest = gpu.name.size();
    }
  }
  if (!best.empty()) return best;
  return fail(ErrorCode::unavailable, gpu.name.empty() ? std::string("nothing says which device this is") : fmt::format("no device file describes {}", printable(gpu.name)),
              "--device", "give --device, or write a file for it: rooftile devices new --probe -o mine.yaml");
}

void catch_interrupts() {
  std::signal(SIGINT, note_interrupt);
  std::signal(SIGTERM, note_interrupt);
}

bool interrupted() { return interrupts != 0; }

Result<MeasurementLog> MeasurementLog::open(const std::string& file, bool resume) {
  MeasurementLog log;
  if (file.empty()) {
    if (resume) return fail(ErrorCode::usage, "--resume needs the file to go on with", "--resume", "--save FILE.csv");
    return log;
  }
  std::error_code status;
  const bool there = std::filesystem::exists(file, status) && std::filesystem::file_size(file, status) > 0;
  if (there && !resume) return fail(ErrorCode::usage, "the file exists", file, "--resume goes on with it; or name another file");
  if (there) {
    auto table = read_table(file);
    if (!table) return tl::unexpected<Error>(table.error());
    log.before_ = std::move(*table);
  }
  log.stream_ = std::fopen(file.c_str(), there ? "ab" : "wb");
  if (log.stream_ == nullptr) return fail(ErrorCode::unavailable, fmt::format("cannot be written: {}", std::strerror(errno)), file);
  if (!there) std::fputs(measurement_header().c_str(), log.stream_);
  return log;
}

MeasurementLog::MeasurementLog(MeasurementLog&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)), before_(std::move(other.before_)) {}

MeasurementLog::~MeasurementLog() {
  if (stream_ != nullptr) std::fclose(stream_);
}

void MeasurementLog::add(const Measurement& measurement) {
  if (stream_ == nullptr) return;
  std::fputs(measurement_line(measurement).c_str(), stream_);
  std::fflush(stream_);
}

MeasuringResult measure_with_progress(Runner& runner, std::span<const KernelCall> calls, const RunOptions& run, double budget_s, std::string_view label, MeasurementLog& log,
                                      std::set<std::string> done) {
  ProgressLine line(label);
  MeasuringOptions options;
  options.run = run;
  options.budget_s = budget_s;
  options.interrupted = interrupted;
  options.sink = [&](const Measurement& m) { log.add(m); };
  options.progress = [&](std::size_t at, std::size_t of, const Measurement& m) { line.show(at, of, m); };
  MeasuringResult result = measure_all(runner, calls, options, std::move(done));
  line.finish();
  return result;
}

}  // namespace rooftile
