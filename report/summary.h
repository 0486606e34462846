// What a reader wants to know of a prediction, collected once for every text format: operators grouped over layers, where the step's time goes, what binds it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "estimator/passes/prediction.h"

namespace rooftile {

// How rows are put together before they are listed.
//   op     one line for each operator, over all layers and phases: a model of 126 layers fits a screen
//   phase  one line for each operator and phase
//   none   every row
enum class Grouping : std::uint8_t { op, phase, none };

struct OpGroup {
  std::string name;    // without the segment: "qkv"; operators of equal work together: "gate+up+down"
  std::string phases;  // "fwd+bwd"
  std::string shape;   // of its longest forward row, "+" when others differ
  std::string_view kernel;
  std::int64_t count = 0;
  double flops = 0, bytes = 0;
  double time_s = 0, share = 0;  // share of the step
  double duration_s = 0;         // of communication: with what is hidden
  double recoverable_s = 0;      // time above attainable; all of it for communication, which could be hidden
  double intensity = 0;          // FLOP/byte
  double utilization = 0;        // of data-sheet FLOP/s, weighted by time
  double bandwidth_utilization = 0;
  Bound bound = Bound::compute;  // that binds most of its time
  bool graded_by_bandwidth = false;
  bool graded = true;  // communication is not
  Grade grade = Grade::danger;
  Confidence confidence = Confidence::spec;  // the weakest of its rows
  std::vector<const OpRow*> rows;            // of the prediction, which must outlive the group
};

// One part of the step's time. The parts of a step sum to its time.
struct TimePart {
  std::string_view name;
  double seconds = 0;
  bool peak = false;  // work at the data sheet's peak; else time above it
};

struct Summary {
  std::vector<OpGroup> groups;                // by recoverable seconds, largest first
  std::vector<TimePart> parts;                // peak first, then the losses, largest first
  std::string bottleneck;                     // one or two words
  std::vector<std::string> bottleneck_lines;  // sentences, the most important one first
  std::string model_line;                     // "llama-3-8b (8.03 B parameters), training step"
  std::string device_line;                    // "1 x NVIDIA H100 SXM (989 TFLOP/s bf16, 3.35 TB/s)"
  std::vector<std::string> settings;          // resolved options, "mbs 1"
};

Summary summarize(const Prediction& prediction, Grouping grouping);

// Sizes only, as short as they can be said: gemm "4096x6144x4096" (m x n x k, "8*" before it for a batch), attention "1*32/8x4096x128"
// (batch * heads/kv heads x sequence x head size), rows "4096x4096", elements "58.7 M".
std::string short_shape(const KernelCall& call);

}  // namespace rooftile
