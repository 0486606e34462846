#include <fmt/format.h>

#include "cli/command_parser.h"
#include "cli/commands.h"
#include "cli/listing.h"
#include "cli/numbers.h"
#include "cli/session.h"
#include "estimator/timing/better_sizes.h"
#include "report/json_writer.h"
#include "report/quantity.h"
#include "report/text_table.h"

namespace rooftile {
namespace {

struct Arguments {
  std::vector<std::string> words;
  std::string dtype, device, mode, clocks, calibration, cluster, format, color;
};

Result<std::optional<std::string>> parse(const Invocation& invocation, Arguments& arguments) {
  CommandParser parser(
      "explain",
      "Takes one operator apart: the terms of its time in microseconds, what binds it, where the time above the peak goes. OP and its keys are those of a measurement CSV.",
      {"rooftile explain gemm m=4096 n=4096 k=4096 --device h100_sxm", "rooftile explain gemm m=8192 n=28672 k=8192 layout=tn dtype=fp16 --device a100_sxm_80gb",
       "rooftile explain attention batch=1 heads=32 kv_heads=8 seq_q=8192 seq_kv=8192 head_dim=128 causal=1 pass=fwd --device h100_sxm"});
  parser.positional("OP", arguments.words, "operator, then key=value pairs; dtype=bf16 and impl=vendor|torch|rooftile are keys too");
  parser.option("--device", arguments.device, "device id or FILE", "Options", "NAME|FILE");
  parser.option("--dtype", arguments.dtype, "as the key dtype= (default bf16)", "Options", "WORD");
  parser.option("--mode", arguments.mode, "sol, model or calibrated (default where the device has a calibration)", "Options", "WORD");
  parser.option("--clocks", arguments.clocks, "auto (default), burst or sustained", "Options", "WORD");
  parser.option("--calibration", arguments.calibration, "a further layer of constants: a name or FILE", "Options", "NAME|FILE");
  parser.option("--cluster", arguments.cluster, "how GPUs are joined: a name or FILE", "Options", "NAME|FILE");
  parser.option("--format", arguments.format, "table (default) or json", "Output", "WORD");
  parser.option("--color", arguments.color, "auto (default), always or never", "Output", "WORD");
  return parser.parse(invocation.arguments);
}

// "m=16k" as "m=16000": sizes are written as those of `estimate`.
std::string with_plain_number(const std::string& word) {
  const std::size_t equals = word.find('=');
  if (equals == std::string::npos) return word;
  const auto number = parse_whole(std::string_view(word).substr(equals + 1), word);
  return number ? word.substr(0, equals + 1) + std::to_string(*number) : word;
}

Result<KernelCall> call_of(const std::vector<std::string>& words, const std::string& dtype_option) {
  if (words.empty()) return fail(ErrorCode::usage, "no operator is given", {}, "for instance: rooftile explain gemm m=4096 n=4096 k=4096 --device h100_sxm");
  std::string shape, dtype = dtype_option.empty() ? "bf16" : dtype_option, impl;
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word.rfind("dtype=", 0) == 0)
      dtype = word.substr(6);
    else if (word.rfind("impl=", 0) == 0)
      impl = word.substr(5);
    else
      shape += (shape.empty() ? "" : " ") + with_plain_number(word);
  }
  // Defaults that a CSV writes out and a person leaves out.
  if (words[0] == "gemm") {
    if (shape.find("layout=") == std::string::npos) shape += " layout=nt";
    if (shape.find("batch=") == std::string::npos) shape += " batch=1";
  }
  auto call = parse_kernel(words[0], dtype, shape, impl);
  if (!call && call.error().code == ErrorCode::invalid) call = tl::unexpected<Error>(Error{ErrorCode::usage, call.error().message, call.error().place, call.error().hint});
  return call;
}

std::string microseconds(double seconds) { return fmt::format("{:.2f}", seconds * 1e6); }

std::string explain_text(const KernelCall& call, const KernelTime& time, const Machine& machine, Mode mode, const std::vector<std::string>& layers,
                         const std::vector<BetterSize>& better, bool color) {
  const KernelWork work = work_of(call);
  const double flops = to_double(work.flops), bytes = to_double(work.bytes());
  std::string out = tinted(fmt::format("{} {} {} on {}, mode {}", name_of(call.kernel), name_of(call.dtype), print_shape(call), printable(machine.device.name), name_of(mode)),
                           Tint::bold, color) +
                    "\n\n";
  const double peak = machine.device.rate(call.dtype).peak_flops, bandwidth = machine.device.memory_bandwidth;
  out += fmt::format("work        {}, {} ({} read, {} written)", human(flops, "FLOP"), human(bytes, "B"), human(to_double(work.bytes_read), "B"),
                     human(to_double(work.bytes_written), "B"));
  if (bytes > 0) out += fmt::format(", {} FLOP/byte", significant(flops / bytes));
  if (peak > 0) out += fmt::format("; ridge at {}", significant(peak / bandwidth));
  out += fmt::format("\nexecuted    {}, {} of DRAM traffic\n", human(to_double(time.flops_executed), "FLOP"), human(to_double(time.bytes_moved), "B"));
  out += fmt::format("time        {} us ({}), bound by {}", microseconds(time.time_s), human(time.time_s, "s"), name_of(time.bound));
  if (time.time_s > 0 && peak > 0) out += fmt::format("; {} of peak FLOP/s, {} of peak bandwidth", percent(flops / time.time_s / peak), percent(bytes / time.time_s / bandwidth));
  out += fmt::format("\n            {} us at the data sheet's peak; attainable {} us: a perfect kernel at the clock and bandwidth that the GPU really has\n",
                     microseconds(time.peak_s), microseconds(time.attainable_s));
  if (!time.family.empty()) {
    out += fmt::format("kernel      {}", time.family);
    if (time.tile_m > 0) out += fmt::format(", tile {}x{}", time.tile_m, time.tile_n);
    if (time.split_k > 1) out += fmt::format(", split-k {}", time.split_k);
    if (time.waves > 0) out += fmt::format(", {} waves", significant(time.waves));
    out += "\n";
  }
  TextTable terms;
  terms.columns = {{"term", Align::left}, {"us"}};
  const std::pair<std::string_view, double> parts[] = {
      {"compute", time.compute_s}, {"dram", time.dram_s}, {"l2", time.l2_s}, {"latency", time.latency_s}, {"launch", time.launch_s}};
  for (const auto& [name, seconds] : parts) terms.rows.push_back({{std::string(name)}, {microseconds(seconds)}});
  out += "\n" + terms.render(100, color, "") + "The terms overlap in part, so they sum to more than the time; the longest one binds.\n";
  TextTable losses;
  losses.columns = {{"above the peak", Align::left}, {"us"}};
  for (std::size_t i = 0; i < kLosses; ++i) {
    if (std::abs(time.loss_s[i]) > 0.5e-8) losses.rows.push_back({{std::string(kLossNames[i])}, {microseconds(time.loss_s[i])}});
  }
  if (!losses.rows.empty()) out += "\n" + losses.render(100, color, "");
  if (!better.empty()) {
    TextTable sizes;
    sizes.columns = {{"better size", Align::left}, {"us"}, {"time per FLOP"}};
    for (const BetterSize& b : better)
      sizes.rows.push_back({{fmt::format("{}={}", b.dimension, b.size)}, {microseconds(b.time_s)}, {fmt::format("{:+.1f} %", 100 * (b.per_flop - 1))}});
    out += "\n" + sizes.render(100, color, "");
  }
  std::string names;
  for (const std::string& layer : layers) names += (names.empty() ? "" : ", ") + layer;
  out += fmt::format("\nconfidence  {}: 9 of 10 such kernels within {}\nconstants   {}\n", name_of(time.confidence), percent(time.error_p90),
                     names.empty() ? "data sheet" : printable(names));
  return out;
}

std::string explain_json(const KernelCall& call, const KernelTime& time, const Machine& machine, Mode mode, const std::vector<std::string>& layers,
                         const std::vector<BetterSize>& better) {
  const KernelWork work = work_of(call);
  std::string out;
  JsonWriter json(out);
  json.open();
  json.field("schema_version", 1);
  json.field("op", name_of(call.kernel));
  json.field("dtype", name_of(call.dtype));
  json.field("shape", print_shape(call));
  json.field("device", machine.device.id);
  json.field("mode", name_of(mode));
  json.field("flops", work.flops);
  json.field("bytes", work.bytes());
  json.field("flops_executed", time.flops_executed);
  json.field("bytes_moved", time.bytes_moved);
  json.field("time_s", time.time_s);
  json.field("peak_s", time.peak_s);
  json.field("attainable_s", time.attainable_s);
  json.open("terms_s");
  json.field("compute", time.compute_s);
  json.field("dram", time.dram_s);
  json.field("l2", time.l2_s);
  json.field("latency", time.latency_s);
  json.field("launch", time.launch_s);
  json.close();
  json.open("loss_s");
  for (std::size_t i = 0; i < kLosses; ++i) json.field(kLossNames[i], time.loss_s[i]);
  json.close();
  json.field("bound", name_of(time.bound));
  json.field("kernel", time.family);
  if (time.tile_m > 0)
    json.tile_field("tile", time.tile_m, time.tile_n);
  else
    json.null_field("tile");
  json.field("split_k", time.split_k);
  json.field("waves", time.waves);
  json.open_list("better_sizes");
  for (const BetterSize& b : better) {
    json.open();
    json.field("dimension", b.dimension);
    json.field("size", b.size);
    json.field("time_s", b.time_s);
    json.field("time_per_flop_ratio", b.per_flop);
    json.close();
  }
  json.close_list();
  json.field("confidence", name_of(time.confidence));
  json.field("error_p90", time.error_p90);
  json.open_list("calibration");
  for (const std::string& layer : layers) json.item(layer);
  json.close_list();
  json.close();
  return out + "\n";
}

int explain(const Arguments& arguments) {
  const auto call = call_of(arguments.words, arguments.dtype);
  if (!call) return report_error(call.error());
  if (arguments.device.empty()) return report_error({ErrorCode::usage, "no --device is given", {}, "see 'rooftile devices'"});
  if (!arguments.format.empty() && arguments.format != "table" && arguments.format != "json")
    return report_error({ErrorCode::usage, fmt::format("'{}' is not table or json", arguments.format), "--format", {}});
  const auto color = parse_color(arguments.color);
  if (!color) return report_error(color.error());
  Request request;
  for (const auto& [name, value] : {std::pair<std::string_view, const std::string&>("mode", arguments.mode), {"clocks", arguments.clocks}}) {
    if (value.empty()) continue;
    if (const auto applied = apply(request, name, value); !applied) return report_error(applied.error());
  }
  Session session;
  const auto machine = session.machine(arguments.device, arguments.cluster, arguments.calibration);
  if (!machine) return report_error(machine.error());
  const std::string reason = unsupported_reason(*call, (*machine)->device);
  if (!reason.empty()) return report_error({ErrorCode::unsupported, reason, {}, {}});
  Mode mode = request.options.mode;
  if (mode == Mode::calibrated && !has_calibration(**machine)) mode = Mode::model;
  KernelTimer& timer = session.timer(**machine, mode, request.options.clocks);
  const KernelTime& time = timer(*call);
  const std::vector<BetterSize> better = mode == Mode::sol ? std::vector<BetterSize>{} : better_sizes(*call, timer);
  auto output = Output::open("");
  if (!output) return report_error(output.error());
  return print_text(*output, arguments.format == "json" ? explain_json(*call, time, **machine, mode, timer.layers(), better)
                                                        : explain_text(*call, time, **machine, mode, timer.layers(), better, output->color(*color)));
}

}  // namespace

int run_explain(const Invocation& invocation) {
  Arguments arguments;
  const auto help = parse(invocation, arguments);
  if (!help) return report_error(help.error());
  if (*help) {
    std::fputs((*help)->c_str(), stdout);
    return 0;
  }
  return explain(arguments);
}

}  // namespace rooftile
