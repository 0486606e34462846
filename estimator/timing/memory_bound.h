// Time of kernels that stream: pointwise, norms, softmax, reductions, embedding, loss, optimizer.
#pragma once

#include "estimator/timing/constants.h"
#include "estimator/timing/kernel_time.h"

namespace rooftile {

// All fields of KernelTime except confidence and error.
KernelTime memory_bound_time(const KernelCall& call, const Device& device, const Constants& constants);

// Communication between ranks over the cluster's links.
KernelTime collective_time(const CollectiveShape& shape, const Cluster& cluster, const Device& device, const Constants& constants);

}  // namespace rooftile
