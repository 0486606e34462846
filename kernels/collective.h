// Collectives through NCCL, one process for each GPU.
#pragma once

#include "kernels/device.h"

namespace rooftile::kernels {

class Collectives {
 public:
  Collectives(Context& context, Together together) : context_(context), together_(std::move(together)) {}
  ~Collectives();
  int ranks() const { return together_.ranks; }
  int rank() const { return together_.rank; }
  // Every rank asks for the same problems in the same order, and gets a kernel or a reason as the others do.
  std::unique_ptr<Kernel> make(const Collective& problem, Reason& reason);
  // The first reason that any rank has, the same on all of them; empty when no rank has one.
  Reason agree(const Reason& mine);
  // The largest of the ranks' values.
  Reason largest(double& value);

 private:
  Reason exchange(const std::string& mine, std::vector<std::string>& all);
  Reason connect();

  Context& context_;
  Together together_;
  void* communicator_ = nullptr;
  Reason refused_;  // why there is no communicator, once that is known
};

}  // namespace rooftile::kernels
