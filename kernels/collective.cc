#include "kernels/collective.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "kernels/libraries.h"

namespace rooftile::kernels {

Reason Collectives::exchange(const std::string& mine, std::vector<std::string>& all) {
  all = {mine};
  if (together_.ranks < 2) return {};
  if (!together_.exchange) return "the ranks have no way to agree";
  Reason reason = together_.exchange(mine, all);
  if (reason.empty() && all.size() != static_cast<std::size_t>(together_.ranks)) reason = "not every rank answered";
  return reason;
}

Reason Collectives::agree(const Reason& mine) {
  std::vector<std::string> all;
  ROOFTILE_TRY(exchange(mine, all));
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    if (!all[rank].empty()) return all.size() > 1 ? all[rank] + " (rank " + std::to_string(rank) + ")" : all[rank];
  return {};
}

Reason Collectives::largest(double& value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.17g", value);
  std::vector<std::string> all;
  ROOFTILE_TRY(exchange(text, all));
  for (const std::string& other : all) value = std::max(value, std::strtod(other.c_str(), nullptr));
  return {};
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
  // A graph's buffers are not registered with the other GPUs: frameworks that launch call by call do not have theirs registered either.
  (void)setenv("NCCL_GRAPH_REGISTER", "0", 0);
  ncclUniqueId id{};
  Reason reason;
  if (together_.rank == 0)
    if (const ncclResult_t status = nccl.ncclGetUniqueId(&id); status != ncclSuccess) reason = std::string("NCCL: ") + nccl.ncclGetErrorString(status);
  std::vector<std::string> all;
  ROOFTILE_TRY(agree(reason));
  ROOFTILE_TRY(exchange(std::string(id.internal, sizeof id.internal), all));
  if (all[0].size() != sizeof id.internal) return "rank 0 did not name the communicator";
  std::memcpy(id.internal, all[0].data(), sizeof id.internal);
  ncclComm_t communicator = nullptr;
  if (const ncclResult_t status = nccl.ncclCommInitRank(&communicator, together_.ranks, id, together_.rank); status != ncclSuccess)
    reason = std::string("NCCL: ") + nccl.ncclGetErrorString(status);
  reason = agree(reason);
  if (reason.empty()) communicator_ = communicator;
  return reason;
}

std::unique_ptr<Kernel> Collectives::make(const Collective& problem, Reason& reason) {
  Nccl& nccl = context_.libraries->nccl;
  if (!nccl.missing.empty()) reason = nccl.missing;
  if (reason.empty() && ranks() < 2) reason = "a collective needs several processes: start one for each GPU with torchrun, mpirun or srun";
  if (reason.empty() && problem.ranks != ranks()) reason = "started with " + std::to_string(ranks()) + " ranks, asked for " + std::to_string(problem.ranks);
  if (reason.empty() && problem.type == Type::fp8_e4m3) reason = "collectives are measured in bf16, fp16 and fp32";
  if (reason.empty()) reason = refused_;
  reason = agree(reason);
  if (reason.empty() && !communicator_) reason = refused_ = connect();
  if (!reason.empty()) return nullptr;
  auto kernel = std::make_unique<CollectiveKernel>(problem, static_cast<ncclComm_t>(communicator_), rank(), ranks());
  kernel->library = "nccl " + nccl.version;
  return kernel;
}

#else

Collectives::~Collectives() = default;
Reason Collectives::connect() { return context_.libraries->nccl.missing; }
std::unique_ptr<Kernel> Collectives::make(const Collective&, Reason& reason) {
  reason = agree(context_.libraries->nccl.missing);
  return nullptr;
}

#endif

}  // namespace rooftile::kernels
