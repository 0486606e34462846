// What one run of `estimate` is asked for: the model-independent options as text, one table of them, and their meaning.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "estimator/core/result.h"
#include "estimator/passes/options.h"

namespace rooftile {

// An option with its values as given: {"mbs", "1-64*2"}.
using Setting = std::pair<std::string, std::string>;

enum class OptionForm : std::uint8_t { number, word, file, flag, dimension };

struct OptionRow {
  std::string_view name;     // without dashes: the key of a model's run: section, of a variant in JSON, of a suggestion
  std::string_view aliases;  // further long names, separated by commas
  OptionForm form;
  std::string_view group;
  std::string_view help;
};

// Every option of `estimate` that describes the run (not its output), in the order of --help.
std::span<const OptionRow> option_rows();
const OptionRow* find_option(std::string_view name);

struct Request {
  Options options;
  std::string device, runtime = "fused", cluster, calibration;
  std::int64_t layers = 0;  // 0: the model's
  std::vector<std::pair<std::string, std::int64_t>> dims;
  bool precision_given = false, mode_given = false, gpus_given = false, seq_given = false, context_given = false, optimizer_given = false, recompute_given = false;
  bool attention_given = false, schedule_given = false, gpus_per_node_given = false, dtype_given = false;
};

// Sets one option from its text. Errors: usage with the option as place and the known words.
Result<bool> apply(Request& request, std::string_view name, std::string_view value);

// Fills what follows from the rest: precision by phase, GPUs from the degrees, and checks that sizes are at least 1.
Result<bool> settle(Request& request);

}  // namespace rooftile
