#include "cli/request.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "cli/numbers.h"
#include "estimator/core/suggest.h"
#include "frontends/model_words.h"

namespace rooftile {
namespace {

constexpr std::string_view kWork = "What is run";
constexpr std::string_view kMachine = "Machine";
constexpr std::string_view kParallel = "Parallel layout";

using enum OptionForm;
constexpr auto kOptionRows = std::to_array<OptionRow>({
    {"device", "", file, kMachine, "device id or FILE; see 'rooftile devices'"},
    {"runtime", "", file, kMachine, "fused, torch-eager, torch-compile, megatron[@version] or FILE (default fused)"},
    {"cluster", "", file, kMachine, "how GPUs are joined: a name or FILE"},
    {"calibration", "", file, kMachine, "a further layer of constants: a name or FILE"},
    {"mode", "", word, kMachine, "sol: ideal roofline; model: tiles, waves, traffic from the data sheet; calibrated (default where the device has a calibration)"},
    {"clocks", "", word, kMachine, "auto, burst or sustained"},
    {"cuda-graphs", "", flag, kMachine, "kernels are launched as CUDA graphs"},
    {"phase", "", word, kWork, "train (default), forward, prefill or decode"},
    {"dtype", "", word, kWork, "bf16 (default), fp16, tf32, fp32 or fp8"},
    {"precision", "", word, kWork, "pure or mixed (default mixed for train, else pure)"},
    {"mbs", "micro-batch-size", number, kWork, "sequences of a micro-batch (default 1)"},
    {"gbs", "global-batch-size", number, kWork, "sequences of a step over all GPUs (default mbs x dp)"},
    {"seq", "seq-length", number, kWork, "tokens of a sequence (default min(max_positions, 4096))"},
    {"context", "", number, kWork, "tokens already in the KV cache (decode, prefill)"},
    {"attention", "", word, kWork, "auto, standard, flash2, flash3 or cudnn"},
    {"optimizer", "", word, kWork, "adamw (default), sgd or none"},
    {"recompute", "recompute-granularity", word, kWork, "none (default), selective or full"},
    {"layers", "num-layers", number, kWork, "layers instead of the model's own"},
    {"dim", "", dimension, kWork, "NAME=VALUE of a symbolic ONNX dimension, or NAME=1,8-64*2; repeatable"},
    {"gpus", "", number, kParallel, "GPUs (default: what the degrees multiply to)"},
    {"gpus-per-node", "", number, kParallel, "GPUs of a node (default 8, or the cluster's)"},
    {"tp", "tensor-model-parallel-size", number, kParallel, "tensor parallelism"},
    {"sp", "sequence-parallel", flag, kParallel, "sequence parallelism with tensor parallelism"},
    {"pp", "pipeline-model-parallel-size", number, kParallel, "pipeline stages"},
    {"vpp", "num-virtual-stages-per-pipeline-rank", number, kParallel, "model chunks of a pipeline rank"},
    {"pp-schedule", "pipeline-parallel-schedule", word, kParallel, "1f1b (default), gpipe or interleaved"},
    {"cp", "context-parallel-size", number, kParallel, "context parallelism"},
    {"ep", "expert-model-parallel-size", number, kParallel, "expert parallelism"},
    {"etp", "expert-tensor-parallel-size", number, kParallel, "tensor parallelism inside experts (default tp)"},
    {"dp", "data-parallel-size", number, kParallel, "data parallelism (derived when absent)"},
    {"dp-shard", "", number, kParallel, "ranks that share one copy of the sharded state (default all)"},
    {"zero", "", number, kParallel, "0 to 3: optimizer states, gradients, weights sharded over data parallelism (3 = FSDP full shard)"},
    {"use-distributed-optimizer", "", flag, kParallel, "the same as --zero 1"},
    {"overlap-grad-reduce", "", flag, kParallel, "gradients are reduced during the backward pass"},
    {"overlap-param-gather", "", flag, kParallel, "weights are gathered during the forward pass"},
});

tl::unexpected<Error> unknown_word(std::string_view name, std::string_view value, const std::vector<std::string>& known) {
  return fail(ErrorCode::usage, fmt::format("'{}' is not known", value), fmt::format("--{}", name), did_you_mean(value, known));
}

// The enumerator whose name is `value`, of an enum without gaps that ends at `last`.
template <typename Enum>
Result<Enum> parse_enum(std::string_view name, std::string_view value, Enum last) {
  std::vector<std::string> known;
  for (int i = 0; i <= static_cast<int>(last); ++i) {
    const std::string_view word = name_of(static_cast<Enum>(i));
    if (word == value) return static_cast<Enum>(i);
    known.emplace_back(word);
  }
  return unknown_word(name, value, known);
}

template <typename Enum>
Result<bool> set_enum(Enum& into, std::string_view name, std::string_view value, Enum last) {
  const Result<Enum> parsed = parse_enum(name, value, last);
  if (!parsed) return tl::unexpected<Error>(parsed.error());
  into = *parsed;
  return true;
}

Result<bool> set_flag(bool& into, std::string_view name, std::string_view value) {
  for (const std::string_view yes : {"true", "1", "yes", "on"}) {
    if (value == yes) return into = true;
  }
  for (const std::string_view no : {"false", "0", "no", "off"}) {
    if (value == no) return into = false, true;
  }
  return fail(ErrorCode::usage, fmt::format("'{}' is neither true nor false", value), fmt::format("--{}", name));
}

Result<bool> set_dtype(Request& request, std::string_view value) {
  static const std::vector<std::string> kKnown = {"bf16", "fp16", "tf32", "fp32", "fp8"};
  const std::optional<DType> dtype = parse_dtype(value);
  const bool known = std::find(kKnown.begin(), kKnown.end(), value) != kKnown.end() || value == "fp8_e4m3" || value == "fp8_e5m2";
  if (!dtype || !known) return unknown_word("dtype", value, kKnown);
  request.options.dtype = *dtype;
  return true;
}

Result<bool> set_attention(Request& request, std::string_view value) {
  if (value == "auto") {
    request.options.attention = AttentionKernel::fastest;
    return true;
  }
  const auto kernel = parse_attention_kernel(value);
  if (!kernel) return unknown_word("attention", value, {"auto", "standard", "flash2", "flash3", "cudnn"});
  request.options.attention = *kernel;
  request.attention_given = true;
  return true;
}

Result<bool> set_dim(Request& request, std::string_view value) {
  const std::size_t equals = value.rfind('=');
  if (equals == std::string_view::npos || equals == 0) return fail(ErrorCode::usage, fmt::format("'{}' is not NAME=VALUE", value), "--dim", "for instance --dim batch=8");
  const auto size = parse_whole(value.substr(equals + 1), "--dim");
  if (!size) return tl::unexpected<Error>(size.error());
  request.dims.emplace_back(value.substr(0, equals), *size);
  return true;
}

Result<bool> set_number(Request& request, std::string_view name, std::string_view value) {
  Options& options = request.options;
  Layout& layout = options.layout;
  const std::string place = fmt::format("--{}", name);
  const auto parsed = parse_whole(value, place);
  if (!parsed) return tl::unexpected<Error>(parsed.error());
  const std::int64_t number = *parsed;
  const auto at_least_one = [&](std::int64_t& into) -> Result<bool> {
    if (number < 1) return fail(ErrorCode::usage, "must be at least 1, not 0", place);
    into = number;
    return true;
  };
  // The same bound as on GPUs, so that an absurd degree is blamed and not the GPUs that it would need.
  constexpr std::int64_t kMostRanks = 1 << 24;
  const bool degree = find_option(name)->group == kParallel;
  if (degree && number > kMostRanks) return fail(ErrorCode::usage, fmt::format("at most {}, not {}", kMostRanks, number), place);
  if (name == "layers" && number > kMaxLayers) return fail(ErrorCode::invalid, fmt::format("{} layers; at most {} are computed", number, kMaxLayers), place);
  if (name == "mbs") return at_least_one(options.mbs);
  if (name == "gbs") return at_least_one(options.gbs);
  if (name == "seq") return request.seq_given = true, at_least_one(options.seq);
  if (name == "context") return options.context = number, request.context_given = true;
  if (name == "layers") return at_least_one(request.layers);
  if (name == "gpus") return request.gpus_given = true, at_least_one(layout.gpus);
  if (name == "gpus-per-node") return request.gpus_per_node_given = true, at_least_one(layout.gpus_per_node);
  if (name == "tp") return at_least_one(layout.tp);
  if (name == "pp") return at_least_one(layout.pp);
  if (name == "vpp") return at_least_one(layout.vpp);
  if (name == "cp") return at_least_one(layout.cp);
  if (name == "ep") return at_least_one(layout.ep);
  if (name == "etp") return at_least_one(layout.etp);
  if (name == "dp") return at_least_one(layout.dp);
  if (name == "dp-shard") return at_least_one(layout.dp_shard);
  if (name == "zero") {
    if (number > 3) return fail(ErrorCode::usage, fmt::format("must be 0, 1, 2 or 3, not {}", number), place);
    layout.zero = static_cast<int>(number);
    return true;
  }
  return fail(ErrorCode::internal, "an option in the table without a meaning", place);
}

}  // namespace

std::span<const OptionRow> option_rows() { return kOptionRows; }

const OptionRow* find_option(std::string_view given) {
  std::string name(given);  // keys of files may have underscores
  std::replace(name.begin(), name.end(), '_', '-');
  for (const OptionRow& row : kOptionRows) {
    if (row.name == name) return &row;
    for (std::string_view rest = row.aliases; !rest.empty();) {
      const std::size_t end = std::min(rest.find(','), rest.size());
      if (rest.substr(0, end) == name) return &row;
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
  }
  return nullptr;
}

Result<bool> apply(Request& request, std::string_view name, std::string_view value) {
  Options& options = request.options;
  const OptionRow* row = find_option(name);
  if (row == nullptr) {
    std::vector<std::string> known;
    for (const OptionRow& other : kOptionRows) known.emplace_back(other.name);
    return fail(ErrorCode::usage, fmt::format("unknown option '{}'", name), {}, did_you_mean(name, known));
  }
  name = row->name;
  if (row->form == number) return set_number(request, name, value);
  if (name == "device") return request.device = value, true;
  if (name == "runtime") return request.runtime = value, true;
  if (name == "cluster") return request.cluster = value, true;
  if (name == "calibration") return request.calibration = value, true;
  if (name == "dim") return set_dim(request, value);
  if (name == "dtype") return request.dtype_given = true, set_dtype(request, value);
  if (name == "attention") return set_attention(request, value);
  if (name == "mode") return request.mode_given = true, set_enum(options.mode, name, value, Mode::calibrated);
  if (name == "clocks") return set_enum(options.clocks, name, value, ClockState::sustained);
  if (name == "phase") return set_enum(options.phase, name, value, Phase::decode);
  if (name == "precision") return request.precision_given = true, set_enum(options.precision, name, value, Precision::mixed);
  if (name == "optimizer") return request.optimizer_given = true, set_enum(options.optimizer, name, value, OptimizerChoice::none);
  if (name == "recompute") return request.recompute_given = true, set_enum(options.recompute, name, value, Recompute::full);
  if (name == "pp-schedule") return request.schedule_given = true, set_enum(options.layout.schedule, name, value, PipelineSchedule::interleaved);
  if (name == "cuda-graphs") return set_flag(options.cuda_graphs, name, value);
  if (name == "sp") return set_flag(options.layout.sp, name, value);
  if (name == "overlap-grad-reduce") return set_flag(options.layout.overlap_grad_reduce, name, value);
  if (name == "overlap-param-gather") return set_flag(options.layout.overlap_param_gather, name, value);
  if (name == "use-distributed-optimizer") {
    bool on = false;
    const Result<bool> set = set_flag(on, name, value);
    if (set && on) options.layout.zero = std::max(options.layout.zero, 1);
    return set;
  }
  return fail(ErrorCode::internal, "an option in the table without a meaning", std::string(name));
}

Result<bool> settle(Request& request) {
  Options& options = request.options;
  Layout& layout = options.layout;
  if (!request.precision_given) options.precision = options.phase == Phase::train ? Precision::mixed : Precision::pure;
  if (!request.gpus_given) {
    // The degrees say how many GPUs there are; a product that overflows is refused with the same words as an absurd --gpus.
    Count gpus = 1;
    for (const std::int64_t degree : {layout.tp, layout.pp, layout.cp, std::max<std::int64_t>(1, layout.dp)}) gpus = std::min(gpus * degree, Count{1} << 62);
    layout.gpus = static_cast<std::int64_t>(gpus);
  }
  return true;
}

}  // namespace rooftile
