#include <algorithm>
#include <cmath>

#include "estimator/timing/combine.h"
#include "estimator/timing/memory_bound.h"

namespace rooftile {

// Time = latency + bytes over the links / bus bandwidth(message), with the factors of nccl-tests (doc/PERFORMANCE.md): all_reduce 2 (n - 1) / n, all_gather, reduce_scatter and
// all_to_all (n - 1) / n, broadcast and send_recv 1. Bandwidth ramps as 1 / (1 + sqrt(ramp / bytes)), half of it at `ramp` bytes: the protocol changes with the message size, so
// the ramp is wider than a fixed latency makes it. Over several nodes a ring enters and leaves each node once, over all of the node's network ports, so its bus bandwidth is that
// of one GPU's port times the GPUs per node, at most the intra-node one; all_to_all sends (nodes - 1) / nodes of its bytes through each GPU's own port. Latency grows with the
// logarithm of the nodes (trees). 8 ranks, 1 GiB, 480 GB/s, no latency: 2 x 7/8 x 2^30 / 480e9 = 3.91 ms.
KernelTime collective_time(const CollectiveShape& shape, const Cluster& cluster, const Device& device, const Constants& constants) {
  KernelTime time;
  time.bound = Bound::communication;
  time.family = name_of(shape.kind);
  const KernelWork work = work_of(KernelCall{.kernel = KernelClass::collective, .dtype = DType::bf16, .pass = Pass::fwd, .impl = Impl::vendor, .shape = shape});
  const double moved = to_double(work.bytes_written), bytes = static_cast<double>(shape.bytes);
  time.bytes_moved = work.bytes();
  if (shape.ranks <= 1) {
    // One rank: at most a copy of the buffer, which the library skips when it works in place.
    time.time_s = time.attainable_s = constants.launch_s;
    time.launch_s = constants.launch_s;
    LossAccount(time, 0).step(Loss::launch, time.time_s);
    return time;
  }
  const Link& inside = cluster.intra_node;
  const Link& between = cluster.inter_node;
  const double per_node = static_cast<double>(shape.ranks) / static_cast<double>(shape.nodes);
  const double nodes = static_cast<double>(shape.nodes);
  const auto or_link = [&](double value) {
    return value > 0 ? value : device.link_bandwidth > 0 ? device.link_bandwidth : device.pcie_bandwidth > 0 ? device.pcie_bandwidth : 1e9;
  };
  const double inside_rate = or_link(inside.bandwidth), between_rate = between.bandwidth > 0 ? between.bandwidth : inside_rate;

  double rate = inside_rate, ramp = inside.ramp_bytes, latency = inside.latency_s;
  double transfer = moved / rate;
  if (shape.nodes > 1) {
    latency = (per_node > 1 ? inside.latency_s : 0) + between.latency_s * std::max(1.0, std::log2(nodes));
    ramp = std::max(ramp, between.ramp_bytes);
    if (shape.kind == CollectiveKind::all_to_all) {
      transfer = std::max(moved / inside_rate, bytes * (nodes - 1) / nodes / between_rate);
    } else if (shape.kind == CollectiveKind::send_recv) {
      transfer = moved / between_rate;
    } else {
      transfer = moved / (per_node > 1 ? std::min(inside_rate, between_rate * per_node) : between_rate);
    }
  }
  const double ramped = transfer * (1 + std::sqrt(ramp / bytes));

  LossAccount account(time, moved / std::max(inside_rate, or_link(device.link_bandwidth)));
  account.step(Loss::memory, transfer);
  account.step(Loss::latency, ramped + latency);
  time.time_s = ramped + latency;
  time.latency_s = latency + ramped - transfer;
  time.attainable_s = std::min(time.time_s, transfer + latency);
  time.dram_s = transfer;
  return time;
}

}  // namespace rooftile
