#include "validate/runner.h"

namespace rooftile {

namespace {

class NoneRunner final : public Runner {
 public:
  explicit NoneRunner(std::string reason) : reason_(std::move(reason)) {}

 private:
  Measurement do_measure(const KernelCall& call, const RunOptions& options) override {
    Measurement m;
    m.call = call;
    m.clocks = options.clocks;
    m.reason = reason_;
    return m;
  }
  std::string do_description() const override { return "no GPU to measure on: " + reason_; }

  std::string reason_;
};

}  // namespace

std::unique_ptr<Runner> make_none_runner(std::string reason) { return std::make_unique<NoneRunner>(std::move(reason)); }

#ifndef ROOFTILE_HAVE_CUDA
Result<std::unique_ptr<Runner>> make_cuda_runner(int) {
  return fail(ErrorCode::unavailable, "this build cannot measure on a GPU", {}, "install the CUDA toolkit and build again; estimates and recorded measurements need no GPU");
}
#endif

}  // namespace rooftile
