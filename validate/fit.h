// Fits constants of the kernel-time model to measured kernels: Levenberg-Marquardt on log(predicted / measured) with a soft-L1 loss. Constants that the rows cannot see stay
// where they are.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "estimator/core/result.h"
#include "estimator/timing/timer.h"

namespace rooftile {

// One measured kernel.
struct FitRow {
  KernelCall call;
  double measured_s = 0;
  ClockState clocks = ClockState::automatic;
  std::string protocol;       // how it was timed: protocol_of its source; rows of different protocols share physical constants only
  std::string family;         // "gemm.bf16", "gemm.bf16.misaligned", "attention.fwd.bf16", "softmax.fwd.fp32": what residuals are stored by
  bool kept_out = false;      // scored, never fitted
  bool kernel_known = false;  // the row names the kernels that ran: nothing else is in its time
};

// "gemm.bf16" (leading dimensions of 16 bytes), "gemm.bf16.misaligned", "attention.bwd.bf16", "pointwise.fp32".
std::string residual_family(const KernelCall& call);

// Half of all shapes, by a hash (FNV-1a, 64 bits) of the printed shape: the same shape is on the same side whatever the device, dtype or source. True: kept out of the fit.
bool kept_out_of_fit(const KernelCall& call);

// A constant to be fitted.
struct FitConstant {
  std::string key, unit;
  double start = 0, lowest = 0, highest = 0;  // lowest above 0: fitted in its logarithm
  std::string protocol;                       // empty: physical, of the device; else it is looked for in rows of this protocol only
  double other_start = 0;                     // a second place to start from, where the loss has more than one valley; 0: none. The better end is kept
};

struct FittedConstant {
  FitConstant constant;
  double value = 0;
  int rows_seen = 0;  // fitted rows whose time moves by at least FitOptions::least_effect of the constant's relative change
  bool fitted = false;
  std::string reason;  // why it stayed fixed
};

struct FitOptions {
  double loss_scale = 0.05;    // log error at which the loss turns from quadratic to linear
  double least_effect = 0.02;  // d log(time) / d log(constant) below which a row does not see the constant
  int least_rows = 8;          // that must see a constant
  double prior = 0.7;          // standard deviation of log(constant) around its start, as one row with the loss scale as error: keeps near-collinear constants in place
  int iterations = 40;
};

// Fits `constants` on the rows that are not kept out. The constants' values lie above every layer of the machine's calibration; the protocol layers of the machine do not apply.
// Errors (invalid): no row to fit, or a row that the model cannot time. The result has one entry per constant, in the same order.
// Synthetic rows that the model itself timed with gemm.bf16.eta 0.70 instead of 0.86 give 0.70 back (test).
Result<std::vector<FittedConstant>> fit_constants(const Machine& machine, std::span<const FitRow> rows, std::span<const FitConstant> constants, const FitOptions& options = {});

// Predicted times in the order of the rows, with values of constants laid over the machine.
std::vector<double> predict_rows(const Machine& machine, std::span<const FitRow> rows, std::span<const FittedConstant> constants);

// Errors and quantiles of measured against predicted. Two rows with ratios predicted / measured of 1.1 and 0.9: mean_abs 0.1, bias 0, q10..q90 from log(1/1.1) to log(1/0.9).
Residuals residuals_of(std::span<const double> predicted_s, std::span<const double> measured_s);

}  // namespace rooftile
