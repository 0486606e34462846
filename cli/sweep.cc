#include "cli/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "cli/numbers.h"

namespace rooftile {
namespace {

constexpr std::size_t kBlock = 64;  // combinations that a thread takes at once

Outcome outcome_of(Session& session, const Job& job, std::size_t index, const std::function<void(Outcome&)>& render) {
  Outcome outcome;
  outcome.job = &job;
  const auto request = request_of(job.sweep, index, outcome.varied);
  if (!request) {
    outcome.bad_request = true;
    outcome.prediction = tl::unexpected<Error>(request.error());
    return outcome;
  }
  const auto model = session.model(job.model);
  outcome.prediction = model ? session.predict(**model, *request) : Result<Prediction>(tl::unexpected<Error>(model.error()));
  if (outcome.prediction) render(outcome);
  // Sizes that a file gives and that pass 2^63 together are found far from the file.
  if (!outcome.prediction && model && outcome.prediction.error().code == ErrorCode::invalid && outcome.prediction.error().message.find("2^63") != std::string::npos) {
    std::string& place = outcome.prediction.error().place;
    const std::string file = (*model)->file.string();
    if (place.rfind("--", 0) != 0 && place.find(file) == std::string::npos) place = place.empty() ? file : file + ": " + place;
  }
  return outcome;
}

// A run of combinations of one job.
struct Block {
  const Job* job;
  std::size_t first, count;
};

// Blocks are finished by any thread and taken in order. A thread waits before it starts a block that is far ahead of the one that is taken next, so memory stays bounded.
class Conveyor {
 public:
  Conveyor(std::vector<Block> blocks, std::size_t ahead) : blocks_(std::move(blocks)), ahead_(ahead) {}

  // `session` is the thread's own: timers and graphs are remembered per thread.
  void work(Session& session, const std::function<void(Outcome&)>& render) {
    while (true) {
      std::size_t mine = 0;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return stop_ || next_ == blocks_.size() || next_ < taken_ + ahead_; });
        if (stop_ || next_ == blocks_.size()) return;
        mine = next_++;
      }
      std::vector<Outcome> outcomes;
      outcomes.reserve(blocks_[mine].count);
      for (std::size_t i = 0; i < blocks_[mine].count; ++i) outcomes.push_back(outcome_of(session, *blocks_[mine].job, blocks_[mine].first + i, render));
      const std::lock_guard lock(mutex_);
      done_.emplace(mine, std::move(outcomes));
      changed_.notify_all();
    }
  }

  void take_all(const std::function<bool(Outcome&)>& take) {
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      std::vector<Outcome> outcomes;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return done_.contains(i); });
        outcomes = std::move(done_.extract(i).mapped());
        taken_ = i + 1;
        changed_.notify_all();
      }
      for (Outcome& outcome : outcomes) {
        if (take(outcome)) continue;
        const std::lock_guard lock(mutex_);
        stop_ = true;
        changed_.notify_all();
        return;
      }
    }
  }

 private:
  const std::vector<Block> blocks_;
  const std::size_t ahead_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::size_t, std::vector<Outcome>> done_;
  std::size_t next_ = 0, taken_ = 0;
  bool stop_ = false;
};

}  // namespace

Result<Sweep> sweep_of(const std::vector<Setting>& settings) {
  constexpr std::size_t kMostVariants = 10'000'000;
  Sweep sweep;
  for (const auto& [name, value] : settings) {
    const OptionRow* row = find_option(name);
    std::vector<std::string> values = {value};
    // A file's name may hold a comma; lists of names hold nothing but names.
    const bool list =
        row != nullptr && (row->form == OptionForm::number || row->form == OptionForm::word || (row->form == OptionForm::file && value.find('/') == std::string::npos));
    if (list) {
      auto expanded = row->form == OptionForm::number ? expand_range(value, "--" + name) : split_list(value, "--" + name);
      if (!expanded) return tl::unexpected<Error>(expanded.error());
      values = std::move(*expanded);
    }
    // "batch=1,8-64*2": the name stands before every value. What is no NAME=VALUE is refused where it is applied.
    if (const std::size_t equals = value.rfind('='); row != nullptr && row->form == OptionForm::dimension && equals != std::string::npos) {
      auto expanded = expand_range(std::string_view(value).substr(equals + 1), "--" + name);
      if (!expanded) return tl::unexpected<Error>(expanded.error());
      values = std::move(*expanded);
      for (std::string& one : values) one.insert(0, value, 0, equals + 1);
    }
    if (sweep.size > kMostVariants / values.size()) return fail(ErrorCode::usage, fmt::format("more than {} combinations", kMostVariants), "--" + name);
    sweep.size *= values.size();
    sweep.axes.emplace_back(name, std::move(values));
  }
  return sweep;
}

// The request of one combination, and the settings that tell it from the others.
Result<Request> request_of(const Sweep& sweep, std::size_t index, std::vector<Setting>& varied) {
  Request request;
  varied.clear();
  std::size_t stride = sweep.size;
  for (const auto& [name, values] : sweep.axes) {
    stride /= values.size();
    const std::string& value = values[index / stride % values.size()];
    if (const auto applied = apply(request, name, value); !applied) return tl::unexpected<Error>(applied.error());
    if (values.size() < 2) continue;
    const std::size_t equals = name == "dim" ? value.rfind('=') : std::string::npos;
    if (equals == std::string::npos)
      varied.emplace_back(name, value);
    else
      varied.emplace_back("dim." + value.substr(0, equals), value.substr(equals + 1));
  }
  return request;
}

void predict_all(std::vector<std::unique_ptr<Session>>& sessions, const std::vector<Job>& jobs, const std::function<void(Outcome&)>& render,
                 const std::function<bool(Outcome&)>& take) {
  std::vector<Block> blocks;
  std::size_t count = 0;
  for (const Job& job : jobs) {
    count += job.sweep.size;
    for (std::size_t first = 0; first < job.sweep.size; first += kBlock) blocks.push_back({&job, first, std::min(kBlock, job.sweep.size - first)});
  }
  const std::size_t cores = std::max(1U, std::thread::hardware_concurrency());
  const std::size_t threads = std::min({cores, std::size_t{16}, blocks.size()});
  if (count <= 2 * kBlock || threads < 2) {
    for (const Job& job : jobs) {
      for (std::size_t i = 0; i < job.sweep.size; ++i) {
        Outcome outcome = outcome_of(*sessions[0], job, i, render);
        if (!take(outcome)) return;
      }
    }
    return;
  }
  Conveyor conveyor(std::move(blocks), 4 * threads);
  std::vector<std::jthread> workers;
  for (std::size_t i = 0; i < threads; ++i) {
    if (i > 0) sessions.push_back(std::make_unique<Session>());
    workers.emplace_back([&conveyor, &render, session = sessions[i].get()] { conveyor.work(*session, render); });
  }
  conveyor.take_all(take);
}

}  // namespace rooftile
