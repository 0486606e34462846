#include <algorithm>
#include <vector>

#include "kernels/clock.h"

namespace rooftile::kernels {

namespace {
__global__ void sample_kernel(ClockSample* samples) {
  unsigned sm;
  unsigned long long nanoseconds;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(nanoseconds));
  const long long cycles = clock64();
  if (sm < kClockSlots) samples[sm] = {cycles, nanoseconds};
}
}  // namespace

void sample_clocks(cudaStream_t stream, int sms, ClockSample* samples) { sample_kernel<<<static_cast<unsigned>(2 * sms), 1, 0, stream>>>(samples); }

double clock_between(const ClockSample* first, const ClockSample* second) {
  std::vector<double> rates;
  for (int sm = 0; sm < kClockSlots; ++sm) {
    if (first[sm].nanoseconds == 0 || second[sm].nanoseconds <= first[sm].nanoseconds || second[sm].cycles <= first[sm].cycles) continue;
    rates.push_back(static_cast<double>(second[sm].cycles - first[sm].cycles) / static_cast<double>(second[sm].nanoseconds - first[sm].nanoseconds) * 1e9);
  }
  if (rates.empty()) return 0;
  std::nth_element(rates.begin(), rates.begin() + static_cast<std::ptrdiff_t>(rates.size() / 2), rates.end());
  const double median = rates[rates.size() / 2];
  return median > 1e8 && median < 5e9 ? median : 0;  // a window shorter than the timer's tick gives nonsense
}

}  // namespace rooftile::kernels
