#include "kernels/nvml.h"

#include <dlfcn.h>

namespace rooftile::kernels {

namespace {
// Declared here because the header does not come with every toolkit; the binary interface of these calls is stable.
using Plain = int (*)();
using Text = int (*)(char*, unsigned);
using ByBus = int (*)(const char*, void**);
using Value = int (*)(void*, unsigned*);
using ByKind = int (*)(void*, unsigned, unsigned*);
constexpr unsigned kSmClock = 1;

template <typename Function>
Function find(void* library, const char* name) {
  return library ? reinterpret_cast<Function>(dlsym(library, name)) : nullptr;
}
}  // namespace

Nvml::Nvml(const std::string& pci_bus) {
  library_ = dlopen("libnvidia-ml.so.1", RTLD_NOW);
  const auto init = find<Plain>(library_, "nvmlInit_v2");
  if (!init || init() != 0) return;
  if (const auto version = find<Text>(library_, "nvmlSystemGetDriverVersion")) {
    char text[96] = {};
    if (version(text, sizeof text) == 0) driver_ = text;
  }
  if (const auto by_bus = find<ByBus>(library_, "nvmlDeviceGetHandleByPciBusId_v2"))
    if (by_bus(pci_bus.c_str(), &device_) != 0) device_ = nullptr;
}

Nvml::~Nvml() {
  if (const auto shutdown = find<Plain>(library_, "nvmlShutdown")) shutdown();
}

double Nvml::power_w() const {
  unsigned milliwatts = 0;
  const auto read = find<Value>(library_, "nvmlDeviceGetPowerUsage");
  return device_ && read && read(device_, &milliwatts) == 0 ? milliwatts / 1000.0 : 0;
}

double Nvml::power_limit_w() const {
  unsigned milliwatts = 0;
  const auto read = find<Value>(library_, "nvmlDeviceGetEnforcedPowerLimit");
  return device_ && read && read(device_, &milliwatts) == 0 ? milliwatts / 1000.0 : 0;
}

double Nvml::max_sm_clock_hz() const {
  unsigned megahertz = 0;
  const auto read = find<ByKind>(library_, "nvmlDeviceGetMaxClockInfo");
  return device_ && read && read(device_, kSmClock, &megahertz) == 0 ? megahertz * 1e6 : 0;
}

}  // namespace rooftile::kernels
