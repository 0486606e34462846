// Interface section 3. Written straight into the output: a sweep prints thousands of these a second.
#include "estimator/passes/views.h"
#include "report/json_writer.h"
#include "report/quantity.h"
#include "report/render.h"

namespace rooftile {
namespace {

void write_context(JsonWriter& json, const Prediction& prediction, const ReportContext& context, std::span<const std::pair<std::string, std::string>> settings) {
  const Options& options = prediction.options;
  const Layout& layout = options.layout;
  json.open("context");
  json.field("tool", "rooftile");
  json.field("version", context.version);
  if (!context.command.empty()) json.field("command", context.command);
  if (!settings.empty()) {
    json.open("variant");
    for (const auto& [name, value] : settings) json.field(name, value);
    json.close();
  }
  json.field("phase", name_of(options.phase));
  json.field("dtype", name_of(options.dtype));
  json.field("precision", name_of(options.precision));
  json.field("mbs", options.mbs);
  json.field("gbs", options.gbs > 0 ? options.gbs : options.mbs * layout.dp);
  json.field("seq", options.seq);
  json.field("context", options.context);
  json.field("runtime", prediction.runtime);
  json.field("attention", options.attention == AttentionKernel::fastest ? std::string_view("auto") : name_of(options.attention));
  json.field("optimizer", name_of(options.optimizer));
  json.field("recompute", name_of(options.recompute));
  json.field("clocks", name_of(options.clocks));
  json.field("mode", name_of(options.mode));
  json.field("cuda_graphs", options.cuda_graphs);
  json.field("cluster", prediction.cluster);
  json.field("gpus", layout.gpus);
  json.field("gpus_per_node", layout.gpus_per_node);
  json.field("tp", layout.tp);
  json.field("sp", layout.sp);
  json.field("pp", layout.pp);
  json.field("vpp", layout.vpp);
  json.field("pp_schedule", name_of(layout.schedule));
  json.field("cp", layout.cp);
  json.field("ep", layout.ep);
  json.field("etp", layout.expert_tp());
  json.field("dp", layout.dp);
  json.field("dp_shard", layout.dp_shard);
  json.field("zero", layout.zero);
  json.field("overlap_grad_reduce", layout.overlap_grad_reduce);
  json.field("overlap_param_gather", layout.overlap_param_gather);
  json.close();
}

void write_model(JsonWriter& json, const Prediction& prediction) {
  json.open("model");
  json.field("name", prediction.model.name);
  json.field("source", prediction.model.source);
  json.field("parameters", prediction.parameters);
  json.field("parameters_active", prediction.parameters_active);
  json.field("parameters_embedding", prediction.parameters_embedding);
  json.open_list("outputs");
  for (const NamedShape& output : prediction.model.outputs) {
    json.open_item();
    json.field("name", output.name);
    json.field("dtype", name_of(output.dtype));
    json.open_list("shape");
    for (const std::int64_t size : output.shape) json.item(size);
    json.close_list();
    json.close();
  }
  json.close_list();
  json.close();
}

void write_device(JsonWriter& json, const Prediction& prediction) {
  json.open("device");
  json.field("id", prediction.device_id);
  json.field("name", prediction.device_name);
  json.open("peak_flops");
  json.field("value", prediction.peak_flops);
  json.field("dtype", name_of(prediction.options.dtype));
  json.close();
  json.field("memory_bandwidth_bytes_per_s", prediction.peak_bandwidth);
  json.open_list("calibration");
  for (const std::string& layer : prediction.calibration_layers) json.item(layer);
  json.close_list();
  json.close();
}

void write_totals(JsonWriter& json, const Totals& totals, bool lines) {
  json.open("totals");
  json.field("step_time_s", totals.step_time_s);
  json.field("step_time_low_s", totals.step_time_low_s);
  json.field("step_time_high_s", totals.step_time_high_s);
  json.field("forward_time_s", totals.forward_time_s);
  json.field("backward_time_s", totals.backward_time_s);
  json.field("recompute_time_s", totals.recompute_time_s);
  json.field("optimizer_time_s", totals.optimizer_time_s);
  json.field("exposed_communication_time_s", totals.exposed_communication_time_s);
  json.field("bubble_time_s", totals.bubble_time_s);
  json.field("launch_gap_time_s", totals.launch_gap_time_s);
  json.field("host_bound_time_s", totals.host_bound_time_s);
  json.field("launches", totals.launches);
  json.field("attainable_time_s", totals.attainable_s);
  json.field("peak_time_s", totals.peak_s);
  if (!lines) json.new_line();
  json.field("flops_matmul_dense", totals.flops_matmul_dense);
  json.field("flops_model", totals.flops_model);
  json.field("flops_hardware", totals.flops_hardware);
  json.field("bytes", totals.bytes);
  json.field("tokens", totals.tokens);
  json.field("tokens_per_s_per_gpu", totals.tokens_per_s_per_gpu);
  json.field("tflops_per_gpu", totals.tflops_per_gpu);
  json.field("mfu", totals.mfu);
  json.field("hfu", totals.hfu);
  json.field("busy_fraction", totals.busy_fraction);
  const MemoryTotals& memory = totals.memory;
  if (!lines) json.new_line();
  json.open("memory");
  json.field("peak_bytes", memory.peak_bytes);
  json.field("parameters_bytes", memory.parameters_bytes);
  json.field("gradients_bytes", memory.gradients_bytes);
  json.field("optimizer_bytes", memory.optimizer_bytes);
  json.field("activations_bytes", memory.activations_bytes);
  json.field("kv_cache_bytes", memory.kv_cache_bytes);
  json.field("workspace_bytes", memory.workspace_bytes);
  json.field("reserved_bytes", memory.reserved_bytes);
  json.open("peak_moment");
  json.field("phase", name_of(memory.peak_phase));
  json.field("segment", memory.peak_segment);
  json.field("operator", memory.peak_operator);
  json.close();
  if (!lines) {
    json.open_list("top");
    for (const MemoryTerm& term : memory.top) {
      json.open_item();
      json.field("name", term.name);
      json.field("bytes", term.bytes);
      json.close();
    }
    json.close_list();
  }
  json.field("fits", memory.fits);
  json.field("capacity_bytes", static_cast<Count>(memory.capacity_bytes));
  if (!memory.fits) {
    json.field("breaks", memory.breaks);
    json.field("would_fit", memory.would_fit);
    json.field("would_fit_bytes", static_cast<Count>(memory.would_fit_bytes));
  }
  json.close();
  json.close();
}

void write_row(JsonWriter& json, const OpRow& row) {
  json.open_item();
  json.field("name", row.name);
  json.field("op", name_of(row.op));
  json.field("phase", name_of(row.phase));
  json.field("count", row.count);
  json.field("launches", row.launches);
  json.field("layer_kind", name_of(layer_role_of(row)));
  json.field("family", name_of(family_of(row)));
  json.field("shape", print_shape(row.call));
  json.field("dtype", name_of(row.call.dtype));
  json.field("flops", row.flops);
  json.field("bytes", row.bytes);
  json.field("intensity", row.intensity());
  json.field("time_s", row.time_s);
  json.field("duration_s", row.duration_s);
  json.field("utilization", row.utilization);
  json.field("bandwidth_utilization", row.bandwidth_utilization);
  json.field("bound", name_of(row.bound));
  json.field("grade", name_of(row.grade));
  json.field("graded_by", row.graded_by_bandwidth ? "bandwidth" : "flops");
  json.field("kernel", row.kernel);
  if (row.tile_m > 0)
    json.tile_field("tile", row.tile_m, row.tile_n);
  else
    json.null_field("tile");
  json.field("split_k", row.split_k);
  json.field("waves", row.waves);
  json.field("attainable_s", row.attainable_s);
  json.field("peak_s", row.peak_s);
  json.open("loss_s");
  for (std::size_t i = 0; i < kLosses; ++i) json.field(kLossNames[i], row.loss_s[i]);
  json.close();
  json.field("flops_executed", row.flops_executed);
  json.field("recoverable_s", row.recoverable_s());
  json.field("confidence", name_of(row.confidence));
  json.field("error_p90", row.error_p90);
  json.close();
}

void write_view_sum(JsonWriter& json, const ViewSum& sum, double peak_flops) {
  json.field("time_s", sum.time_s);
  json.field("flops", sum.flops);
  json.field("bytes", sum.bytes);
  json.field("launches", sum.launches);
  if (const auto mfu = sum.mfu(peak_flops))
    json.field("mfu", *mfu);
  else
    json.null_field("mfu");
}

void write_views(JsonWriter& json, const Prediction& prediction, bool lines) {
  json.open("views");
  for (const ViewKind kind : {ViewKind::phase, ViewKind::layer, ViewKind::family}) {
    json.open_list(name_of(kind));
    for (const ViewLine& line : view_of(prediction, kind)) {
      if (!lines) json.new_line();
      json.open_item();
      json.field("name", line.name);
      json.field("waits", line.waits);
      json.field("share", line.share);
      write_view_sum(json, line.all, prediction.peak_flops);
      json.open("phases");
      for (std::size_t i = 0; i < kStepPhases; ++i) {
        if (line.phases[i].launches == 0) continue;
        json.open(name_of(static_cast<StepPhase>(i)));
        write_view_sum(json, line.phases[i], prediction.peak_flops);
        json.close();
      }
      json.close();
      json.close();
    }
    json.close_list();
  }
  json.close();
}

}  // namespace

void append_json(std::string& out, const Prediction& prediction, const ReportContext& context, JsonStyle style, std::span<const std::pair<std::string, std::string>> settings) {
  JsonWriter json(out);
  const auto section = [&] {
    if (!style.lines) json.new_line();
  };
  json.open();
  json.field("schema_version", 1);
  section();
  write_context(json, prediction, context, settings);
  section();
  write_model(json, prediction);
  section();
  write_device(json, prediction);
  section();
  write_totals(json, prediction.totals, style.lines);
  if (style.ops) {
    section();
    json.open_list("ops");
    for (const OpRow& row : prediction.rows) {
      section();
      write_row(json, row);
    }
    json.close_list();
    section();
    write_views(json, prediction, style.lines);
  }
  section();
  json.open_list("warnings");
  for (const Warning& warning : prediction.warnings) {
    json.open_item();
    json.field("code", warning.code);
    json.field("message", warning.message);
    json.close();
  }
  json.close_list();
  json.close();
  out += '\n';
}

std::string render_json(std::span<const Variant> variants, const ReportContext& context) {
  std::string out;
  if (variants.size() == 1) {
    append_json(out, *variants[0].prediction, context, {}, variants[0].settings);
    return out;
  }
  out = "[";
  for (std::size_t i = 0; i < variants.size(); ++i) {
    out += i > 0 ? ",\n" : "\n";
    append_json(out, *variants[i].prediction, context, {}, variants[i].settings);
    out.pop_back();
  }
  out += "\n]\n";
  return out;
}

}  // namespace rooftile
