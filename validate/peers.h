// Processes that measure together, one for each GPU: who they are, and how they agree on what comes next. A collective hangs as soon as one rank makes a call that another does not
// make, so every decision that depends on a clock, a file, a signal or an error of one rank is taken by all of them together.
#pragma once

#include <string>
#include <vector>

#include "estimator/core/result.h"

namespace rooftile {

struct Launch {
  int rank = 0, ranks = 1, local_rank = 0;
  std::string host = "127.0.0.1";  // of rank 0
  int port = 29517;                // on which rank 0 listens
};

// RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT (torchrun; the port after next is used, since its own store holds the first), OMPI_COMM_WORLD_*, SLURM_*. A rank that is not
// below the number of ranks counts as launched alone.
Launch launch_of_environment();

class Peers {
 public:
  // Nothing is connected before the first exchange. `patience_s`: how long the others may take.
  explicit Peers(Launch launch, double patience_s = 60) : launch_(std::move(launch)), patience_s_(patience_s) {}
  ~Peers();
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

  const Launch& launch() const { return launch_; }

  // Every rank gives a text (at most 64 KiB) and gets those of all ranks, by rank; ranks call it equally often. Launched alone: the own text.
  // Error unavailable: a rank did not come within the patience, or went away. It is final: every later call gives it again at once.
  Result<std::vector<std::string>> exchange(const std::string& mine);

 private:
  std::string connect();
  std::string gather(const std::string& mine, std::vector<std::string>& all);

  Launch launch_;
  double patience_s_;
  std::vector<int> sockets_;  // rank 0: those of ranks 1, 2, ...; others: the one of rank 0
  std::string broken_;
};

}  // namespace rooftile
