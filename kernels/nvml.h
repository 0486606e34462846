// The little of NVML that is read while measuring: driver version, power and its limit. Opened at run time; without it the values are unknown, never invented.
#pragma once

#include <string>

namespace rooftile::kernels {

class Nvml {
 public:
  explicit Nvml(const std::string& pci_bus);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  std::string driver() const { return driver_; }
  double power_w() const;        // now; 0: unknown
  double power_limit_w() const;  // 0: unknown
  double max_sm_clock_hz() const;

 private:
  void* library_ = nullptr;
  void* device_ = nullptr;
  std::string driver_;
};

}  // namespace rooftile::kernels
