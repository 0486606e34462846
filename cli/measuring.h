// What the commands that measure share: the GPU or a file in its place, the device file of that GPU, the CSV that keeps what was measured, progress, and Ctrl-C.
#pragma once

#include <cstdio>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/session.h"
#include "estimator/core/result.h"
#include "validate/session.h"

namespace rooftile {

// Measurements of `replay` in the place of a GPU, or the GPU present when it is empty. Errors: unavailable (no GPU, or a build without CUDA), invalid (a broken file).
Result<std::unique_ptr<Runner>> open_runner(const std::string& replay);

// The id of the device file that describes this GPU: same compute capability and SMs and the nearest memory size, or, where only the name is known, the longest device name that
// begins with it. Errors: unavailable, with what to try.
Result<std::string> device_of_gpu(Session& session, const GpuFacts& gpu);

// From here on Ctrl-C and a termination signal only set a flag, so that what is measured is kept; a second one ends the program.
void catch_interrupts();
bool interrupted();

// A CSV that measurements are added to one by one; nothing when no file was asked for.
class MeasurementLog {
 public:
  // `resume`: go on behind what is there; else the file must not exist, so that no measurement is lost to a repeated command.
  static Result<MeasurementLog> open(const std::string& file, bool resume);
  MeasurementLog(MeasurementLog&& other) noexcept;
  MeasurementLog& operator=(MeasurementLog&&) = delete;
  ~MeasurementLog();

  void add(const Measurement& measurement);
  const MeasurementTable& before() const { return before_; }  // what was there

 private:
  MeasurementLog() = default;
  std::FILE* stream_ = nullptr;
  MeasurementTable before_;
};

// Measures the calls with a progress line on stderr: a bar on a terminal, else a line every tenth. `label` names the list. Ctrl-C ends it between two kernels.
MeasuringResult measure_with_progress(Runner& runner, std::span<const KernelCall> calls, const RunOptions& run, double budget_s, std::string_view label, MeasurementLog& log,
                                      std::set<std::string> done);

}  // namespace rooftile
