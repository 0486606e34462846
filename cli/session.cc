#include "cli/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "cli/install_path.h"
#include "estimator/passes/predict.h"
#include "frontends/expand.h"

namespace rooftile {
namespace {

// A sweep meets new kernel shapes at every step; what is remembered must not grow without end.
constexpr std::size_t kMostRememberedCalls = 100'000;

// What was asked for and has no effect here: said, never refused.
std::vector<Warning> idle_options(const Request& request, const Model& model) {
  std::vector<Warning> warnings;
  const auto idle = [&](std::string_view option, std::string_view why) { warnings.push_back({"option_without_effect", fmt::format("--{} has no effect: {}", option, why)}); };
  const Phase phase = request.options.phase;
  if (request.optimizer_given && phase != Phase::train) idle("optimizer", "only train has an optimizer step");
  if (request.recompute_given && phase != Phase::train) idle("recompute", "only train has a backward pass");
  if (request.context_given && (phase == Phase::train || phase == Phase::forward)) idle("context", "only prefill and decode have a KV cache");
  if (!request.dims.empty() && model.format != ModelFormat::onnx) idle("dim", "the model is no ONNX graph; its sizes are --mbs and --seq");
  if (request.layers > 0 && model.format == ModelFormat::onnx) idle("layers", "an ONNX graph has the layers that it has");
  if (request.seq_given && phase == Phase::decode && model.format != ModelFormat::onnx && model.spec.kind == ModelKind::decoder)
    idle("seq", "decode adds one token to each sequence; --context says how many it has");
  const Layout& layout = request.options.layout;
  if (request.schedule_given && layout.pp == 1) idle("pp-schedule", "there is no pipeline");
  if (request.schedule_given && layout.pp > 1 && layout.vpp > 1 && layout.schedule == PipelineSchedule::one_f_one_b) idle("pp-schedule", "--vpp interleaves 1f1b");
  if (request.options.mode == Mode::sol && request.options.clocks != ClockState::automatic) idle("clocks", "--mode sol is the data sheet's peak");
  if (request.seq_given && model.format != ModelFormat::onnx && model.spec.kind == ModelKind::vision) idle("seq", "an image has as many tokens as patches");
  return warnings;
}

// Told by the first bytes, so that a file of weights is not read to find out.
bool begins_like_onnx(const std::filesystem::path& file) {
  const std::string head = read_head(file);
  return !head.empty() && sniff_model(head) == ModelFormat::onnx;
}

// bf16 is the default where the device has it. A dtype that was asked for and that the device's units cannot do is refused.
Result<void> settle_dtype(Request& request, const Device& device, std::vector<Warning>& warnings) {
  Options& options = request.options;
  if (device.rate(options.dtype).peak_flops > 0) return {};
  const bool half = device.rate(DType::fp16).peak_flops > 0;
  if (request.dtype_given || options.dtype != DType::bf16 || !half) {
    return fail(ErrorCode::unsupported, fmt::format("{} has no {} arithmetic", device.name, name_of(options.dtype)), "--dtype", half ? "try --dtype fp16" : "try --dtype fp32");
  }
  options.dtype = DType::fp16;
  warnings.push_back({"dtype_default", fmt::format("{} has no bf16 arithmetic: fp16 is the default here", device.name)});
  return {};
}

}  // namespace

bool has_calibration(const Machine& machine) {
  return std::any_of(machine.calibration.layers.begin(), machine.calibration.layers.end(),
                     [](const CalibrationLayer& layer) { return layer.level == LayerLevel::device || layer.level == LayerLevel::site; });
}

Session::Session() : data_(DataPath::standard(installed_data())) {}

Result<const Model*> Session::model(const std::string& name_or_file) {
  if (const auto known = models_.find(name_or_file); known != models_.end()) return known->second.get();
  auto model = std::make_unique<Model>();
  model->name = name_or_file;
  auto file = data_.find(DataKind::model, name_or_file);
  if (!file) return tl::unexpected<Error>(file.error());
  model->file = *file;
  if (begins_like_onnx(*file)) {
    model->format = ModelFormat::onnx;
    auto onnx = read_onnx(*file);
    if (!onnx) return tl::unexpected<Error>(onnx.error());
    model->onnx = std::move(*onnx);
  } else {
    auto text = read_text(*file, kMaxModelText);
    if (!text) return tl::unexpected<Error>(text.error());
    model->format = sniff_model(*text) == ModelFormat::onnx ? ModelFormat::yaml : sniff_model(*text);
    auto spec = model->format == ModelFormat::yaml ? read_yaml_model(*text, file->string()) : read_hf_config(*text, file->string());
    if (!spec) return tl::unexpected<Error>(spec.error());
    model->spec = std::move(*spec);
  }
  return models_.emplace(name_or_file, std::move(model)).first->second.get();
}

Result<const Machine*> Session::machine(const std::string& device, const std::string& cluster, const std::string& calibration) {
  auto& machine = machines_[{device, cluster, calibration}];
  if (machine == nullptr) {
    auto loaded = load_machine(data_, device, cluster, calibration);
    if (!loaded) return tl::unexpected<Error>(loaded.error());
    machine = std::make_unique<Machine>(std::move(*loaded));
  }
  return machine.get();
}

Result<const Runtime*> Session::runtime(const std::string& name_or_file) {
  if (const auto known = runtimes_.find(name_or_file); known != runtimes_.end()) return known->second.get();
  const auto file = data_.find(DataKind::runtime, name_or_file);
  if (!file) return tl::unexpected<Error>(file.error());
  auto loaded = read_runtime(*file);
  if (!loaded) return tl::unexpected<Error>(loaded.error());
  return runtimes_.emplace(name_or_file, std::make_unique<Runtime>(std::move(*loaded))).first->second.get();
}

KernelTimer& Session::timer(const Machine& machine, Mode mode, ClockState clocks) {
  auto& timer = timers_[{&machine, mode, clocks}];
  if (timer == nullptr || timer->distinct_calls() > kMostRememberedCalls) timer = std::make_unique<KernelTimer>(machine, mode, clocks);
  return *timer;
}

Result<const Graph*> Session::graph_of(const Model& model, const Request& request) {
  const Options& options = request.options;
  GraphKey key = {&model, options.phase, options.dtype, options.mbs, options.seq, options.context, request.layers, options.attention, request.dims};
  if (graph_ && key == graph_key_) return &*graph_;
  graph_.reset();
  Result<Graph> graph = [&]() -> Result<Graph> {
    if (model.onnx) return model.onnx->bind({request.dims.begin(), request.dims.end()}, options);
    if (request.layers == 0) return expand(model.spec, options);
    ModelSpec spec = model.spec;
    spec.layers = request.layers;
    if (spec.encoder_layers > 0) spec.encoder_layers = request.layers;
    if (spec.decoder_layers > 0) spec.decoder_layers = request.layers;
    return expand(spec, options);
  }();
  if (!graph) return tl::unexpected<Error>(graph.error());
  graph_key_ = std::move(key);
  graph_ = std::move(*graph);
  return &*graph_;
}

Result<Prediction> Session::predict(const Model& model, Request request) {
  if (const auto settled = settle(request); !settled) return tl::unexpected<Error>(settled.error());
  const auto machine = this->machine(request.device, request.cluster, request.calibration);
  if (!machine) return tl::unexpected<Error>(machine.error());
  const auto runtime = this->runtime(request.runtime);
  if (!runtime) return tl::unexpected<Error>(runtime.error());
  Options& options = request.options;
  if (!request.gpus_per_node_given && (*machine)->cluster.gpus_per_node > 0) options.layout.gpus_per_node = (*machine)->cluster.gpus_per_node;
  std::vector<Warning> warnings = model.spec.warnings;
  for (Warning& warning : idle_options(request, model)) warnings.push_back(std::move(warning));
  if (options.mode == Mode::calibrated && !has_calibration(**machine)) {
    if (request.mode_given) warnings.push_back({"not_calibrated", fmt::format("{} has no calibration; --mode model is used", (*machine)->device.id)});
    options.mode = Mode::model;
  }
  if (const auto settled = settle_dtype(request, (*machine)->device, warnings); !settled) return tl::unexpected<Error>(settled.error());
  if (model.onnx && model.onnx->contains_gradients() && options.phase == Phase::train) {
    options.phase = Phase::forward;
    warnings.push_back({"graph_contains_gradients", "the graph holds its own backward pass: it is costed as it is"});
  }
  if (options.seq == 0 && !model.onnx) {
    const std::int64_t most = model.spec.max_positions;
    options.seq = most > 0 ? std::min<std::int64_t>(most, 4096) : 4096;
  }
  const auto graph = graph_of(model, request);
  if (!graph) return tl::unexpected<Error>(graph.error());
  if (model.onnx) {
    options.seq = (*graph)->seq;
    options.mbs = (*graph)->batch;
  }
  auto prediction = rooftile::predict(**graph, options, **machine, **runtime, timer(**machine, options.mode, step_clocks(options)));
  if (prediction) {
    prediction->runtime = (*runtime)->id;
    if (model.onnx) prediction->parameters = prediction->parameters_active = model.onnx->parameters().all;
    if (request.recompute_given && options.recompute == Recompute::selective && options.phase == Phase::train && prediction->totals.recompute_time_s == 0)
      warnings.push_back({"option_without_effect", "--recompute selective has no effect: this attention kernel stores no score matrix that could be computed again"});
    prediction->warnings.insert(prediction->warnings.begin(), warnings.begin(), warnings.end());
  }
  return prediction;
}

}  // namespace rooftile
