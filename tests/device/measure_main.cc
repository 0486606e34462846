// rooftile_measure: runs a campaign on the GPU present and writes a measurement CSV. Needs no more than the kernels, the runner and the shapes, so it builds where the command
// line's libraries are missing.
//
//   rooftile_measure --parts ceilings,gemm --output h200.csv --budget 400
//   torchrun --nproc-per-node 2 --no-python ./rooftile_measure --parts collective --output links.csv
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iostream>
#include <mutex>
#include <sstream>
#include <thread>

#include "validate/campaign.h"
#include "validate/peers.h"
#include "validate/session.h"

namespace {

using namespace rooftile;

volatile std::sig_atomic_t interrupted = 0;

struct Arguments {
  std::vector<std::string> parts = {"ceilings"};
  std::string output = "measurements.csv", input;
  double budget_s = 0, time_s = 0.012;
  std::size_t shard = 0, shards = 1, limit = 0;
  int most_calls = 256;
  int device = -1;
  bool resume = false, sustained = false, warm = false, check = true, list = false, serve = false;
};

constexpr const char* kHelp =
    "rooftile_measure [--parts ceilings,gemm,attention,rows,pointwise,collective,sustained,warm] [--calls FILE.csv] [--output FILE.csv] [--resume] [--budget SECONDS]\n"
    "                 [--time SECONDS] [--shard I/N] [--limit N] [--sustained] [--warm] [--no-check] [--most-calls N] [--device N] [--list] [--serve]\n"
    "Parts sustained and warm use their own protocol. --calls measures the op, dtype and shape columns of a file instead of a part. --budget is wall time over all parts.\n"
    "--serve answers each line 'op,dtype,shape' of standard input with a measurement line, so that another program can measure in turn with this one.\n";

std::vector<std::string> split(const std::string& text, char by) {
  std::vector<std::string> parts;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, by);)
    if (!part.empty()) parts.push_back(part);
  return parts;
}

bool parse(int argc, char** argv, Arguments& a) {
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const auto value = [&]() -> std::string { return i + 1 < argc ? argv[++i] : ""; };
    if (name == "--parts")
      a.parts = split(value(), ',');
    else if (name == "--calls")
      a.input = value();
    else if (name == "--output")
      a.output = value();
    else if (name == "--budget")
      a.budget_s = std::atof(value().c_str());
    else if (name == "--time")
      a.time_s = std::atof(value().c_str());
    else if (name == "--most-calls")
      a.most_calls = std::clamp(std::atoi(value().c_str()), 1, 256);
    else if (name == "--limit")
      a.limit = static_cast<std::size_t>(std::atoll(value().c_str()));
    else if (name == "--device")
      a.device = std::atoi(value().c_str());
    else if (name == "--resume")
      a.resume = true;
    else if (name == "--sustained")
      a.sustained = true;
    else if (name == "--warm")
      a.warm = true;
    else if (name == "--no-check")
      a.check = false;
    else if (name == "--list")
      a.list = true;
    else if (name == "--serve")
      a.serve = true;
    else if (name == "--shard") {
      const auto parts = split(value(), '/');
      if (parts.size() != 2) return false;
      a.shard = static_cast<std::size_t>(std::atoll(parts[0].c_str()));
      a.shards = static_cast<std::size_t>(std::atoll(parts[1].c_str()));
    } else
      return false;
  }
  return a.shards > 0 && a.shard < a.shards;
}

std::string read_file(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

int fail_with(const Error& error) {
  fmt::print(stderr, "rooftile_measure: {}\n", describe(error));
  return static_cast<int>(error.code);
}

// One call a line in, one measurement a line out, until the input ends.
int serve(Runner& runner, const RunOptions& run) {
  for (std::string line; !interrupted && std::getline(std::cin, line);) {
    const auto table = parse_measurements("op,dtype,shape,measured_us\n" + line + ",1\n", "standard input");
    Measurement m;
    if (!table || table->rows.size() != 1) {
      m.reason = "not a line of op,dtype,shape";
    } else if (const MeasuredCall read = measured_call(*table, table->rows[0]); read.call) {
      m = runner.measure(*read.call, run);
    } else {
      m.reason = read.status;
    }
    std::fputs(measurement_line(m).c_str(), stdout);
    std::fflush(stdout);
    if (m.device_lost) return 5;
  }
  return 0;
}

// Ends the program when a kernel does not: a GPU or a library that hangs cannot be called back. Each rank has its own, so none waits for one that is gone.
class Watch {
 public:
  using Action = std::function<void()>;
  Watch() : thread_([this] { run(); }) {}
  ~Watch() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  // `late` runs after `seconds` unless the watch is armed again or disarmed; then the program ends with exit code `code`.
  void arm(double seconds, int code, Action late) {
    const std::lock_guard lock(mutex_);
    end_ = std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds));
    late_ = std::move(late);
    code_ = code;
    armed_ = true;
    changed_.notify_all();
  }
  void disarm() {
    const std::lock_guard lock(mutex_);
    armed_ = false;
    changed_.notify_all();
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (!over_) {
      if (!armed_) {
        changed_.wait(lock);
      } else if (std::chrono::steady_clock::now() >= end_) {
        late_();
        std::fflush(nullptr);
        std::_Exit(code_);
      } else {
        changed_.wait_until(lock, end_);
      }
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::chrono::steady_clock::time_point end_;
  Action late_;
  int code_ = 0;
  bool armed_ = false, over_ = false;
  std::thread thread_;  // last: it uses the others
};

constexpr double kKernelPatience_s = 120, kCollectivePatience_s = 40, kEndPatience_s = 20;

struct Job {
  std::string name;
  std::vector<KernelCall> calls;
  RunOptions run;
};

}  // namespace

int main(int argc, char** argv) {
  Arguments a;
  if (!parse(argc, argv, a)) {
    std::fputs(kHelp, stderr);
    return 2;
  }
  const std::int64_t ranks = launch_of_environment().ranks;
  std::vector<Job> jobs;
  RunOptions run;
  run.time_s = a.time_s;
  run.check = a.check;
  run.most_calls = a.most_calls;
  if (a.sustained) run.clocks = ClockState::sustained;
  run.cold = !a.warm;
  if (!a.input.empty()) {
    const auto table = parse_measurements(read_file(a.input), a.input);
    if (!table) return fail_with(table.error());
    Job job{a.input, {}, run};
    job.run.own_for_torch = true;
    for (const MeasurementRow& row : table->rows)
      if (const MeasuredCall read = measured_call(*table, row); read.call) job.calls.push_back(*read.call);
    jobs.push_back(std::move(job));
  } else {
    for (const std::string& name : a.parts) {
      const auto part = parse_campaign_part(name);
      if (!part) {
        fmt::print(stderr, "rooftile_measure: there is no part '{}'\n{}", name, kHelp);
        return 2;
      }
      Job job{name, campaign(*part, ranks), run};
      if (*part == CampaignPart::sustained) job.run.clocks = ClockState::sustained;
      if (*part == CampaignPart::warm) job.run.cold = false;
      jobs.push_back(std::move(job));
    }
  }
  for (Job& job : jobs) {
    job.calls = shard(job.calls, a.shard, a.shards);
    if (a.limit > 0 && job.calls.size() > a.limit) job.calls.resize(a.limit);
  }
  if (a.list) {
    for (const Job& job : jobs)
      for (const KernelCall& call : job.calls) fmt::print("{},{},{},{}\n", job.name, name_of(call.kernel), name_of(call.dtype), print_shape(call));
    return 0;
  }

  auto runner = make_cuda_runner(a.device);
  if (!runner) return fail_with(runner.error());
  if (a.serve) {
    run.own_for_torch = true;
    return serve(**runner, run);
  }
  const bool first = (*runner)->rank() == 0;  // it alone reads and writes the file, and speaks
  if (first) fmt::print("{}\n", (*runner)->description());

  std::set<std::string> done;
  bool fresh = true;
  if (a.resume && first) {
    if (const std::string text = read_file(a.output); !text.empty()) {
      const auto table = parse_measurements(text, a.output);
      if (!table) return fail_with(table.error());
      done = keys_of(*table);
      fresh = false;
      fmt::print("resuming: {} kernels are in {}\n", done.size(), a.output);
    }
  }
  std::FILE* file = first ? std::fopen(a.output.c_str(), fresh ? "w" : "a") : nullptr;
  if (first && !file) {
    fmt::print(stderr, "rooftile_measure: cannot write {}\n", a.output);
    return 3;
  }
  if (file && fresh) std::fputs(measurement_header().c_str(), file);
  std::signal(SIGINT, [](int) { interrupted = 1; });
  std::signal(SIGTERM, [](int) { interrupted = 1; });

  const auto start = std::chrono::steady_clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  int code = 0;
  const GpuFacts gpu = (*runner)->facts();
  Watch watch;
  for (const Job& job : jobs) {
    MeasuringOptions options;
    options.run = job.run;
    if (a.budget_s > 0) options.budget_s = std::max(1e-3, a.budget_s - elapsed());
    options.interrupted = [] { return interrupted != 0; };
    options.begin = [&](const KernelCall& call) {
      const double patience_s = call.kernel == KernelClass::collective ? kCollectivePatience_s : kKernelPatience_s;
      watch.arm(patience_s, 5, [&, call, patience_s] {
        Measurement m;
        m.call = call;
        m.clocks = job.run.clocks;
        m.gpu = gpu.name;
        m.driver = gpu.driver;
        m.source = "rooftile";
        m.method = job.run.cold ? "" : "warm";
        m.reason = fmt::format("did not end within {:.0f} s", patience_s);
        if (file) std::fputs(measurement_line(m).c_str(), file);
        fmt::print(stderr, "rooftile_measure: rank {}: {} {} {}\n", (*runner)->rank(), name_of(call.kernel), print_shape(call), m.reason);
      });
    };
    options.sink = [&](const Measurement& m) {
      watch.disarm();
      if (!file) return;
      std::fputs(measurement_line(m).c_str(), file);
      std::fflush(file);
    };
    std::size_t wrong = 0, refused = 0;
    std::set<std::string> told;
    options.progress = [&](std::size_t at, std::size_t of, const Measurement& m) {
      if (!m.ok()) {
        ++(m.reason.rfind("wrong", 0) == 0 ? wrong : refused);
        if (first && told.size() < 25 && told.insert(m.reason).second) fmt::print("  {} {} {}: {}\n", name_of(m.call.kernel), name_of(m.call.dtype), print_shape(m.call), m.reason);
      }
      if (first && at % 200 == 0) {
        fmt::print("{} {}/{} {:.0f} s\n", job.name, at, of, elapsed());
        std::fflush(stdout);
      }
    };
    const double before = elapsed();
    const MeasuringResult result = measure_all(**runner, job.calls, options, done);
    if (first)
      fmt::print("{}: {} measured, {} refused, {} wrong, {} there before, of {} in {:.1f} s{}\n", job.name, result.measurements.size() - refused - wrong, refused, wrong,
                 result.skipped, job.calls.size(), elapsed() - before,
                 result.end == EndOf::budget      ? "; the budget is spent"
                 : result.end == EndOf::interrupt ? "; interrupted"
                 : result.end == EndOf::device    ? "; the device or a rank is lost, or too many failures in a row"
                                                  : "");
    if (!result.reason.empty()) fmt::print(stderr, "rooftile_measure: rank {}: {}\n", (*runner)->rank(), result.reason);
    std::fflush(stdout);
    if (wrong > 0) code = 1;
    if (result.end == EndOf::interrupt) code = 130;
    if (result.end == EndOf::device) code = 5;
    if (result.end == EndOf::interrupt || result.end == EndOf::device) break;
  }
  if (file) std::fclose(file);
  // What was lost may not be closed any more, and a communicator waits for its other ranks.
  watch.arm(kEndPatience_s, code, [] {});
  runner->reset();
  watch.disarm();
  return code;
}
