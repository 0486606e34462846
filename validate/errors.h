// Errors of predictions against measurements, by family of kernels.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "estimator/timing/kernel_call.h"

namespace rooftile {

// Statistics of predicted / measured - 1: mean, median and 90th percentile of its size, and its signed mean.
struct ErrorStatistics {
  std::size_t rows = 0;
  double mean = 0, median = 0, p90 = 0, bias = 0;
};

// Of the ratios predicted / measured. {1.1, 0.9, 1.2} gives mean 0.1333, median 0.1, p90 0.2 (nearest rank), bias 0.0667.
ErrorStatistics error_statistics(std::span<const double> ratios);

// "gemm bf16", "attention fwd bf16", "pointwise bf16": what is judged together.
std::string family_of(const KernelCall& call);

}  // namespace rooftile
