// How GPUs are joined: one node's links and the network between nodes.
#pragma once

#include <string>
#include <vector>

#include "estimator/hardware/device.h"

namespace rooftile {

struct Link {
  double bandwidth = 0;   // B/s per GPU and direction that a large collective reaches (bus bandwidth as nccl-tests counts it)
  double latency_s = 0;   // fixed cost of a collective
  double ramp_bytes = 0;  // message size at which half of the bandwidth is reached
};

struct Cluster {
  std::string id, name, file;
  int gpus_per_node = 8;
  Link intra_node, inter_node;
  std::vector<Fact> facts;
};

}  // namespace rooftile
