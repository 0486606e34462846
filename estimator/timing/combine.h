// Joining times that overlap in part, and splitting a predicted time into what each cause added.
#pragma once

#include <algorithm>
#include <cmath>

#include "estimator/timing/kernel_time.h"

namespace rooftile {

// Cube root of a number from 1 to 2: two steps of Halley's method from a straight line, exact to the last digits and several times as fast as std::cbrt. 1.728 gives 1.2.
inline double cube_root_1_to_2(double c) {
  double y = 1 + 0.26 * (c - 1);
  for (int i = 0; i < 2; ++i) {
    const double cube = y * y * y;
    y *= (cube + 2 * c) / (2 * cube + c);
  }
  return y;
}

// (a^p + b^p)^(1/p): never below the larger of the two, never above their sum. p_norm(3, 4, 2) == 5; p_norm(a, 0, p) == a.
inline double p_norm(double a, double b, double p) {
  const double large = std::max(a, b);
  if (large <= 0) return 0;
  const double ratio = std::min(a, b) / large;
  if (p == 3) return large * cube_root_1_to_2(1 + ratio * ratio * ratio);
  if (p == 1) return a + b;
  return large * std::pow(1 + std::pow(ratio, p), 1 / p);
}

// Telescoping account: starts at the ideal time; each step() names the cause of the change to a new running time. The entries sum to the last time minus the first one.
class LossAccount {
 public:
  LossAccount(KernelTime& time, double ideal_s) : time_(time), running_s_(ideal_s) { time_.peak_s = ideal_s; }

  void step(Loss loss, double time_s) {
    time_.loss_s[static_cast<std::size_t>(loss)] += time_s - running_s_;
    running_s_ = time_s;
  }
  void add(Loss loss, double extra_s) { step(loss, running_s_ + extra_s); }

 private:
  KernelTime& time_;
  double running_s_;
};

}  // namespace rooftile
