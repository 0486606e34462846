#include <fmt/format.h>

#include "cli/install_path.h"
#include "cli/listing.h"
#include "frontends/hardware_files.h"
#include "report/quantity.h"

namespace rooftile {
namespace {

Result<Runtime> load(const DataPath& data, const std::string& name) {
  const auto file = data.find(DataKind::runtime, name);
  if (!file) return tl::unexpected<Error>(file.error());
  return read_runtime(*file);
}

std::string description(const Runtime& runtime) {
  std::string text = fmt::format("{} {}\nread from {}\n\n", printable(runtime.name), printable(runtime.version), printable(runtime.file));
  const auto line = [&](std::string_view key, const std::string& value) { text += fmt::format("  {:<28} {}\n", key, value); };
  const auto yes_no = [](bool value) { return std::string(value ? "yes" : "no"); };
  line("gap between kernels", human(runtime.launch_gap_s, "s"));
  line("gap inside a CUDA graph", human(runtime.graph_gap_s, "s"));
  line("host: a kernel, an operator", fmt::format("{}, {} forward; {}, {} backward", human(runtime.host.kernel_s, "s"), human(runtime.host.operator_s, "s"),
                                                  human(runtime.host.backward_kernel_s, "s"), human(runtime.host.backward_operator_s, "s")));
  line("autocast under mixed", yes_no(runtime.autocast));
  line("fp32 main weights", yes_no(runtime.main_weights));
  line("fp32 gradients", yes_no(runtime.fp32_gradients));
  line("fused gradient accumulation", yes_no(runtime.fused_gradient_accumulation));
  line("attention", std::string(runtime.attention == AttentionKernel::fastest ? "fastest" : name_of(runtime.attention)));
  line("lowering rules", fmt::format("{}", runtime.rules.size()));
  for (const LoweringRule& rule : runtime.rules) {
    std::string kernels;
    for (const RuleKernel& kernel : rule.kernels) {
      const std::string_view name = kernel.what == RuleKernel::What::same     ? "same"
                                    : kernel.what == RuleKernel::What::matmul ? "gemm"
                                    : kernel.what == RuleKernel::What::row    ? name_of(kernel.row)
                                                                              : name_of(kernel.pointwise);
      kernels += fmt::format("{}{}", kernels.empty() ? "" : ", ", name);
    }
    text += fmt::format("    {} {}{}: {}\n", name_of(rule.op), rule.part, rule.when_text.empty() ? "" : " (" + rule.when_text + ")", kernels);
  }
  return text + "\n";
}

}  // namespace

int run_runtimes(const Invocation& invocation) {
  bool help = false;
  const auto arguments = parse_listing(invocation, "runtimes", "Lists what can execute a model: which kernels an operator becomes and what lies between them.", false, help);
  if (!arguments) return report_error(arguments.error());
  if (help) return 0;
  auto output = Output::open("");
  if (!output) return report_error(output.error());
  const DataPath data = DataPath::standard(installed_data());
  if (!arguments->show.empty()) {
    const auto runtime = load(data, arguments->show);
    if (!runtime) return report_error(runtime.error());
    return print_text(*output, (arguments->json ? "" : description(*runtime)) + render_facts(runtime->facts, *arguments, *output));
  }
  Listing listing;
  listing.table.columns = {{"id", Align::left}, {"name", Align::left}, {"version", Align::left}, {"gap"}, {"host launch"}, {"mixed precision", Align::left}};
  const auto names = data.names(DataKind::runtime);
  if (names.empty()) return report_no_data("runtimes");
  for (const std::string& name : names) {
    const auto runtime = load(data, name);
    if (!runtime) {
      report_error(runtime.error());
      continue;
    }
    listing.row({name, printable(runtime->name), printable(runtime->version), human(runtime->launch_gap_s, "s"), human(runtime->host.kernel_s, "s"),
                 runtime->autocast       ? "fp32 weights, autocast"
                 : runtime->main_weights ? "fp32 main weights"
                                         : "weights in dtype"});
  }
  return print_text(*output, render(listing, *arguments, *output));
}

}  // namespace rooftile
