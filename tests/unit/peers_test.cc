// Ranks that agree: threads in the place of processes.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "validate/campaign_builder.h"
#include "validate/peers.h"
#include "validate/session.h"

namespace rooftile {
namespace {

// A port of this process, so that test programs that run at once do not meet.
int next_port() {
  static std::atomic<int> port{20000 + static_cast<int>(getpid()) % 20000};
  return port += 1;
}

Launch launch(int rank, int ranks, int port) { return {rank, ranks, rank, "127.0.0.1", port}; }

template <typename Body>
void as_ranks(int ranks, Body body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back([rank, &body] { body(rank); });
  for (std::thread& thread : threads) thread.join();
}

TEST(Peers, EveryRankGetsAllTextsByRank) {
  const int port = next_port();
  as_ranks(3, [&](int rank) {
    Peers peers(launch(rank, 3, port), 20);
    for (int i = 0; i < 50; ++i) {
      const auto all = peers.exchange(std::string(static_cast<std::size_t>(rank * 1000), 'x') + std::to_string(rank + i));
      ASSERT_TRUE(all.has_value()) << all.error().message;
      ASSERT_EQ(all->size(), 3u);
      for (std::size_t other = 0; other < 3; ++other) EXPECT_EQ((*all)[other], std::string(other * 1000, 'x') + std::to_string(static_cast<int>(other) + i));
    }
  });
}

TEST(Peers, AloneThereIsNobodyToAsk) {
  Peers peers(launch(0, 1, next_port()));
  EXPECT_EQ(peers.exchange("mine").value(), std::vector<std::string>{"mine"});
}

TEST(Peers, ARankThatGoesAwayIsAnErrorAndNoHang) {
  const int port = next_port();
  const auto start = std::chrono::steady_clock::now();
  as_ranks(2, [&](int rank) {
    Peers peers(launch(rank, 2, port), 20);
    ASSERT_TRUE(peers.exchange("here").has_value());
    if (rank == 1) return;
    const auto alone = peers.exchange("still here");
    ASSERT_FALSE(alone.has_value());
    EXPECT_EQ(alone.error().code, ErrorCode::unavailable);
    EXPECT_FALSE(peers.exchange("again").has_value());
  });
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

TEST(Peers, ARankThatNeverComesIsAnError) {
  Peers first(launch(0, 2, next_port()), 0.2), second(launch(1, 2, next_port()), 0.2);
  EXPECT_FALSE(first.exchange("hello").has_value());
  EXPECT_FALSE(second.exchange("hello").has_value());
}

TEST(Peers, LaunchersAreUnderstood) {
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_PORT", "MASTER_ADDR", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS"})
    unsetenv(name);
  EXPECT_EQ(launch_of_environment().ranks, 1);
  setenv("OMPI_COMM_WORLD_RANK", "3", 1);
  setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
  setenv("MASTER_PORT", "4000", 1);
  EXPECT_EQ(launch_of_environment().rank, 3);
  EXPECT_EQ(launch_of_environment().ranks, 4);
  EXPECT_EQ(launch_of_environment().port, 4002);
  setenv("OMPI_COMM_WORLD_RANK", "4", 1);  // no such rank: launched alone
  EXPECT_EQ(launch_of_environment().ranks, 1);
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "MASTER_PORT"}) unsetenv(name);
}

// One rank of several; its kernels take no time, but it counts them.
class RankRunner final : public Runner {
 public:
  RankRunner(int rank, int ranks, int port) : peers_(launch(rank, ranks, port), 20) {}
  std::vector<KernelCall> asked;
  std::size_t lost_at = 1000;

 private:
  Measurement do_measure(const KernelCall& call, const RunOptions&) override {
    asked.push_back(call);
    Measurement m;
    m.call = call;
    m.measured_s = 1e-6;
    if (asked.size() >= lost_at) {
      m.measured_s = 0;
      m.reason = "NCCL: unhandled cuda error";
      m.device_lost = true;
    }
    return m;
  }
  std::string do_description() const override { return "a rank"; }
  int do_ranks() const override { return peers_.launch().ranks; }
  int do_rank() const override { return peers_.launch().rank; }
  Result<std::vector<std::string>> do_exchange(const std::string& mine) override { return peers_.exchange(mine); }

  Peers peers_;
};

std::vector<KernelCall> collectives(std::int64_t ranks) {
  std::vector<KernelCall> calls;
  for (std::int64_t bytes = 1024; bytes <= 1 << 20; bytes *= 2)
    calls.push_back(KernelCall{KernelClass::collective, DType::bf16, Pass::fwd, Impl::vendor, CollectiveShape{CollectiveKind::all_reduce, bytes, ranks, 1}});
  return calls;
}

// Whatever ends the list on one rank, at whatever kernel, ends it on all behind the same kernel.
TEST(Session, RanksEndTogether) {
  enum class Cause { budget_of_first, budget_of_second, interrupt_of_second, loss_of_second };
  for (const Cause cause : {Cause::budget_of_first, Cause::budget_of_second, Cause::interrupt_of_second, Cause::loss_of_second}) {
    const int port = next_port();
    std::array<MeasuringResult, 2> results;
    std::array<std::size_t, 2> asked{};
    as_ranks(2, [&](int rank) {
      RankRunner runner(rank, 2, port);
      const std::size_t me = static_cast<std::size_t>(rank);
      MeasuringOptions options;
      options.now_s = [&] { return static_cast<double>(runner.asked.size()); };
      options.budget_s = cause == Cause::budget_of_first && rank == 0 ? 3 : cause == Cause::budget_of_second && rank == 1 ? 5 : 1000;
      if (rank == 1 && cause == Cause::interrupt_of_second) options.interrupted = [&] { return runner.asked.size() >= 4; };
      if (rank == 1 && cause == Cause::loss_of_second) runner.lost_at = 2;
      results[me] = measure_all(runner, collectives(2), options);
      asked[me] = runner.asked.size();
    });
    EXPECT_EQ(asked[0], asked[1]) << static_cast<int>(cause);
    EXPECT_EQ(results[0].end, results[1].end) << static_cast<int>(cause);
    const std::size_t expected = cause == Cause::budget_of_first ? 3 : cause == Cause::budget_of_second ? 5 : cause == Cause::interrupt_of_second ? 4 : 2;
    EXPECT_EQ(asked[0], expected);
    EXPECT_EQ(results[0].end, cause == Cause::interrupt_of_second ? EndOf::interrupt : cause == Cause::loss_of_second ? EndOf::device : EndOf::budget);
  }
}

// Only the first rank has read the file that is gone on with.
TEST(Session, TheFirstRankSaysWhatIsSkipped) {
  const int port = next_port();
  std::array<std::vector<KernelCall>, 2> asked;
  as_ranks(2, [&](int rank) {
    RankRunner runner(rank, 2, port);
    const auto calls = collectives(2);
    std::set<std::string> done;
    if (rank == 0)
      for (std::size_t i = 0; i < calls.size(); i += 2) done.insert(measurement_key(calls[i], ClockState::burst, "cold"));
    const MeasuringResult result = measure_all(runner, calls, {}, done);
    EXPECT_EQ(result.end, EndOf::list);
    asked[static_cast<std::size_t>(rank)] = runner.asked;
  });
  EXPECT_EQ(asked[0].size(), 5u);  // of eleven sizes
  EXPECT_EQ(asked[0], asked[1]);
}

TEST(Session, DifferentListsAreNoticed) {
  const int port = next_port();
  as_ranks(2, [&](int rank) {
    RankRunner runner(rank, 2, port);
    const MeasuringResult result = measure_all(runner, collectives(2 + rank), {});
    EXPECT_EQ(result.end, EndOf::device);
    EXPECT_FALSE(result.reason.empty());
    EXPECT_TRUE(runner.asked.empty());
  });
}

}  // namespace
}  // namespace rooftile
