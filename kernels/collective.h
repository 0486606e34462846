// Collectives through NCCL, one process for each GPU, started by torchrun, Open MPI, Slurm or by hand with the same variables.
#pragma once

#include "kernels/device.h"

namespace rooftile::kernels {

struct Launch {
  int rank = 0, ranks = 1, local_rank = 0;
  std::string host = "127.0.0.1";  // of rank 0
  int port = 29517;                // on which rank 0 hands out NCCL's id
};

// RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT (torchrun; the port after next is used, since its own store holds the first), OMPI_COMM_WORLD_*, SLURM_*.
Launch launch_of_environment();

class Collectives {
 public:
  Collectives(Context& context, Launch launch) : context_(context), launch_(std::move(launch)) {}
  ~Collectives();
  int ranks() const { return launch_.ranks; }
  int rank() const { return launch_.rank; }
  // Every rank asks for the same problems in the same order.
  std::unique_ptr<Kernel> make(const Collective& problem, Reason& reason);

 private:
  Reason connect();

  Context& context_;
  Launch launch_;
  void* communicator_ = nullptr;
};

}  // namespace rooftile::kernels
