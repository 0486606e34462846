#include "kernels/collective.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "kernels/libraries.h"

namespace rooftile::kernels {

namespace {

// The first of the variables that holds a whole number.
bool read_variable(std::initializer_list<const char*> names, int& value) {
  for (const char* name : names)
    if (const char* text = std::getenv(name)) {
      char* end = nullptr;
      const long number = std::strtol(text, &end, 10);
      if (end != text && number >= 0 && number < 1 << 20) {
        value = static_cast<int>(number);
        return true;
      }
    }
  return false;
}

constexpr double kPatience_s = 60;

// Rank 0 gives `data` to every other rank; the others receive it.
Reason share(const Launch& launch, void* data, std::size_t size) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  if (getaddrinfo(
          launch.rank == 0 ? nullptr : launch.host.c_str(), std::to_string(launch.port).c_str(),
          [&] {
            hints.ai_flags = launch.rank == 0 ? AI_PASSIVE : 0;
            return &hints;
          }(),
          &found) != 0 ||
      !found)
    return "cannot resolve the host of rank 0, " + launch.host;
  struct Free {
    addrinfo* list;
    ~Free() { freeaddrinfo(list); }
  } free_list{found};
  const timeval patience{static_cast<long>(kPatience_s), 0};
  if (launch.rank == 0) {
    const int server = socket(AF_INET, SOCK_STREAM, 0);
    const int yes = 1;
    setsockopt(server, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    setsockopt(server, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    Reason reason;
    if (bind(server, found->ai_addr, found->ai_addrlen) != 0 || listen(server, launch.ranks) != 0)
      reason = "cannot listen on port " + std::to_string(launch.port) + ": " + std::strerror(errno);
    for (int peer = 1; peer < launch.ranks && reason.empty(); ++peer) {
      const int connection = accept(server, nullptr, nullptr);
      if (connection < 0 || send(connection, data, size, MSG_NOSIGNAL) != static_cast<ssize_t>(size)) reason = "a rank did not come within a minute";
      if (connection >= 0) close(connection);
    }
    close(server);
    return reason;
  }
  const auto start = std::chrono::steady_clock::now();
  while (std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() < kPatience_s) {
    const int connection = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(connection, found->ai_addr, found->ai_addrlen) == 0) {
      std::size_t got = 0;
      while (got < size) {
        const ssize_t more = recv(connection, static_cast<char*>(data) + got, size - got, 0);
        if (more <= 0) break;
        got += static_cast<std::size_t>(more);
      }
      close(connection);
      if (got == size) return {};
    } else {
      close(connection);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return "rank 0 did not answer at " + launch.host + ":" + std::to_string(launch.port);
}

}  // namespace

Launch launch_of_environment() {
  Launch launch;
  read_variable({"RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID"}, launch.rank);
  read_variable({"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS"}, launch.ranks);
  if (!read_variable({"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"}, launch.local_rank)) launch.local_rank = launch.rank;
  int port = 0;
  if (read_variable({"MASTER_PORT"}, port)) launch.port = port + 2;
  for (const char* name : {"MASTER_ADDR", "SLURM_LAUNCH_NODE_IPADDR"})
    if (const char* host = std::getenv(name)) {
      launch.host = host;
      break;
    }
  if (launch.ranks < 1 || launch.rank >= launch.ranks) launch.rank = 0, launch.ranks = 1;
  return launch;
}

#ifdef ROOFTILE_HAS_NCCL

#define ROOFTILE_NCCL_CALL(call)                                                                                                   \
  do {                                                                                                                             \
    if (const ncclResult_t status = (call); status != ncclSuccess) return std::string("NCCL: ") + nccl.ncclGetErrorString(status); \
  } while (0)

namespace {

class CollectiveKernel final : public Kernel {
 public:
  CollectiveKernel(const Collective& problem, ncclComm_t communicator, int rank, int ranks) : p_(problem), communicator_(communicator), rank_(rank), ranks_(ranks) {
    element_ = size_of(p_.type);
    const std::size_t r = static_cast<std::size_t>(ranks);
    part_ = std::max<std::size_t>(1, static_cast<std::size_t>(p_.bytes) / element_ / r);  // elements of one rank's share
    const bool divided = p_.op == CollectiveOp::all_gather || p_.op == CollectiveOp::reduce_scatter || p_.op == CollectiveOp::all_to_all;
    const std::size_t whole = divided ? part_ * r : std::max<std::size_t>(1, static_cast<std::size_t>(p_.bytes) / element_);
    sent_ = p_.op == CollectiveOp::all_gather ? part_ : whole;
    received_ = p_.op == CollectiveOp::reduce_scatter ? part_ : whole;
    input_bytes = align_up(sent_ * element_);
    output_bytes = align_up(received_ * element_);
    input_type = p_.type;
    tolerance = p_.type == Type::bf16 ? 1e-2 : 1e-3;
    fixed_calls = p_.bytes >= (std::int64_t{64} << 20) ? 4 : 20;
  }

  Reason launch(Context& context, int set) override {
    Nccl& nccl = context.libraries->nccl;
    const ncclDataType_t type = p_.type == Type::bf16 ? ncclBfloat16 : p_.type == Type::fp16 ? ncclFloat16 : ncclFloat32;
    const std::byte* from = input(context, set);
    std::byte* to = output(context, set);
    cudaStream_t stream = context.stream;
    switch (p_.op) {
      case CollectiveOp::all_reduce:
        ROOFTILE_NCCL_CALL(nccl.ncclAllReduce(from, to, sent_, type, ncclSum, communicator_, stream));
        break;
      case CollectiveOp::all_gather:
        ROOFTILE_NCCL_CALL(nccl.ncclAllGather(from, to, part_, type, communicator_, stream));
        break;
      case CollectiveOp::reduce_scatter:
        ROOFTILE_NCCL_CALL(nccl.ncclReduceScatter(from, to, part_, type, ncclSum, communicator_, stream));
        break;
      case CollectiveOp::broadcast:
        ROOFTILE_NCCL_CALL(nccl.ncclBroadcast(from, to, sent_, type, 0, communicator_, stream));
        break;
      case CollectiveOp::all_to_all:
        ROOFTILE_NCCL_CALL(nccl.ncclGroupStart());
        for (int peer = 0; peer < ranks_; ++peer) {
          const std::size_t offset = static_cast<std::size_t>(peer) * part_ * element_;
          ROOFTILE_NCCL_CALL(nccl.ncclSend(from + offset, part_, type, peer, communicator_, stream));
          ROOFTILE_NCCL_CALL(nccl.ncclRecv(to + offset, part_, type, peer, communicator_, stream));
        }
        ROOFTILE_NCCL_CALL(nccl.ncclGroupEnd());
        break;
      case CollectiveOp::send_recv:  // round the ring
        ROOFTILE_NCCL_CALL(nccl.ncclGroupStart());
        ROOFTILE_NCCL_CALL(nccl.ncclSend(from, sent_, type, (rank_ + 1) % ranks_, communicator_, stream));
        ROOFTILE_NCCL_CALL(nccl.ncclRecv(to, received_, type, (rank_ + ranks_ - 1) % ranks_, communicator_, stream));
        ROOFTILE_NCCL_CALL(nccl.ncclGroupEnd());
        break;
    }
    return {};
  }

  // Rank r sends the same random numbers times r + 1, so that each knows what it must receive.
  Reason check(Context& context, double& error) override {
    ROOFTILE_TRY(fill_normal(context, input(context, 0), sent_, p_.type, 99, static_cast<float>(rank_ + 1)));
    context.input_type.reset();
    ROOFTILE_TRY(poison(context, output(context, 0), received_ * element_));
    ROOFTILE_TRY(launch(context, 0));
    std::vector<double> sent, received;
    const double all = 0.5 * ranks_ * (ranks_ + 1), mine = rank_ + 1, before = (rank_ + ranks_ - 1) % ranks_ + 1;
    ErrorSum sum;
    for (const std::int64_t at : sample(static_cast<std::int64_t>(received_), 32, 7)) {
      const std::size_t i = static_cast<std::size_t>(at), rank = static_cast<std::size_t>(rank_);
      std::size_t source = i;
      double factor = all / mine;
      if (p_.op == CollectiveOp::all_gather) source = i % part_, factor = static_cast<double>(i / part_ + 1) / mine;
      if (p_.op == CollectiveOp::all_to_all) source = rank * part_ + i % part_, factor = static_cast<double>(i / part_ + 1) / mine;
      if (p_.op == CollectiveOp::reduce_scatter) source = rank * part_ + i;
      if (p_.op == CollectiveOp::broadcast) factor = 1 / mine;
      if (p_.op == CollectiveOp::send_recv) factor = before / mine;
      ROOFTILE_TRY(fetch(context, input(context, 0) + source * element_, p_.type, 1, 1, sent));
      ROOFTILE_TRY(fetch(context, output(context, 0) + i * element_, p_.type, 1, 1, received));
      sum.add(received[0], sent[0] * factor);
    }
    error = sum.relative();
    return {};
  }

 private:
  Collective p_;
  ncclComm_t communicator_;
  int rank_, ranks_;
  std::size_t element_ = 2, part_ = 0, sent_ = 0, received_ = 0;
};

}  // namespace

Collectives::~Collectives() {
  if (communicator_) context_.libraries->nccl.ncclCommDestroy(static_cast<ncclComm_t>(communicator_));
}

Reason Collectives::connect() {
  Nccl& nccl = context_.libraries->nccl;
  ncclUniqueId id{};
  if (launch_.rank == 0) ROOFTILE_NCCL_CALL(nccl.ncclGetUniqueId(&id));
  ROOFTILE_TRY(share(launch_, &id, sizeof id));
  ncclComm_t communicator = nullptr;
  ROOFTILE_NCCL_CALL(nccl.ncclCommInitRank(&communicator, launch_.ranks, id, launch_.rank));
  communicator_ = communicator;
  return {};
}

std::unique_ptr<Kernel> Collectives::make(const Collective& problem, Reason& reason) {
  Nccl& nccl = context_.libraries->nccl;
  if (!nccl.missing.empty()) reason = nccl.missing;
  if (reason.empty() && launch_.ranks < 2) reason = "a collective needs several processes: start one for each GPU with torchrun, mpirun or srun";
  if (reason.empty() && problem.ranks != launch_.ranks) reason = "started with " + std::to_string(launch_.ranks) + " ranks, asked for " + std::to_string(problem.ranks);
  if (reason.empty() && problem.type == Type::fp8_e4m3) reason = "collectives are measured in bf16, fp16 and fp32";
  if (reason.empty() && !communicator_) reason = connect();
  if (!reason.empty()) return nullptr;
  auto kernel = std::make_unique<CollectiveKernel>(problem, static_cast<ncclComm_t>(communicator_), launch_.rank, launch_.ranks);
  kernel->library = "nccl " + nccl.version;
  return kernel;
}

#else

Collectives::~Collectives() = default;
Reason Collectives::connect() { return context_.libraries->nccl.missing; }
std::unique_ptr<Kernel> Collectives::make(const Collective&, Reason& reason) {
  reason = context_.libraries->nccl.missing;
  return nullptr;
}

#endif

}  // namespace rooftile::kernels
