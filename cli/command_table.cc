#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <new>

#include "cli/commands.h"
#include "cli/output.h"
#include "cli/version.h"
#include "estimator/core/suggest.h"

namespace rooftile {
namespace {

constexpr auto kCommands = std::to_array<Command>({
    {"estimate", run_estimate, "cost of a training step, forward, prefill or decode of a model: per operator and in total"},
    {"explain", run_explain, "one operator taken apart: terms in microseconds, what binds"},
    {"validate", run_validate, "predicted beside measured kernel times"},
    {"calibrate", run_calibrate, "fits the constants of the kernel-time model to measured kernels"},
    {"models", run_models, "the models that are there; 'show NAME' prints one with every default filled in"},
    {"devices", run_devices, "the GPUs that are there; 'show NAME' prints one with the source of each number; --lint"},
    {"runtimes", run_runtimes, "the runtimes that are there; 'show NAME'"},
    {"clusters", run_clusters, "the clusters that are there; 'show NAME'"},
    {"schema", run_schema, "the JSON schema of an output"},
    {"doctor", run_doctor, "what this build and this machine can do"},
    {"advise", nullptr, "which sizes of a model to change"},
    {"plan", nullptr, "capacity planning over parallel layouts"},
    {"compare", nullptr, "predicted against a profile"},
});

std::string help() {
  std::string text = "rooftile: what a transformer costs on a GPU, and why, without running it\n\nUsage: rooftile COMMAND [OPTIONS]\n\nCommands:\n";
  for (const Command& command : kCommands) {
    if (command.run != nullptr) text += fmt::format("  {:<10} {}\n", command.name, command.summary);
  }
  text += "Not in this version:\n";
  for (const Command& command : kCommands) {
    if (command.run == nullptr) text += fmt::format("  {:<10} {}\n", command.name, command.summary);
  }
  return text +
         "\nOptions:\n  --help     this text; 'rooftile COMMAND --help' for a command\n  --version  the version of this build\n\n"
         "Examples:\n"
         "  rooftile estimate llama-3-8b --device h100_sxm\n"
         "  rooftile estimate config.json --device a100_sxm_80gb --phase decode --context 8192\n"
         "  rooftile explain gemm m=4096 n=4096 k=4096 --device h100_sxm\n\n"
         "Exit codes: 0 ok; 1 a gate failed; 2 usage; 3 input invalid; 4 not supported; 5 device, library or package unavailable;\n            70 internal error; 130 "
         "interrupted\n";
}

int print(std::string_view text) {
  auto output = Output::open("");
  if (!output) return report_error(output.error());
  output->write(text);
  const auto finished = output->finish();
  return finished ? 0 : report_error(finished.error());
}

int dispatch(std::span<const char* const> words) {
  if (words.empty()) {
    std::fputs(help().c_str(), stderr);
    return static_cast<int>(ErrorCode::usage);
  }
  const std::string_view name = words[0];
  if (name == "--help" || name == "-h" || name == "help") {
    if (words.size() < 2 || std::string_view(words[1]).substr(0, 1) == "-") return print(help());
    const std::array<const char*, 2> of_command = {words[1], "--help"};
    return dispatch(of_command);
  }
  if (name == "--version" || name == "-V") return print(fmt::format("rooftile {}\n", version()));
  for (const Command& command : kCommands) {
    if (command.name != name) continue;
    if (command.run == nullptr)
      return report_error({ErrorCode::unsupported, fmt::format("'{}' is not in this version", name), {}, "this version has estimate, explain, validate and calibrate"});
    Invocation invocation;
    invocation.command_line = "rooftile";
    for (const char* word : words) invocation.command_line += " " + std::string(word);
    for (const char* word : words.subspan(1)) invocation.arguments.emplace_back(word);
    return command.run(invocation);
  }
  std::vector<std::string> known;
  for (const Command& command : kCommands) known.emplace_back(command.name);
  std::string hint = did_you_mean(name, known);
  if (name.find_first_of("./") != std::string_view::npos || name.find('-') != std::string_view::npos) hint = fmt::format("to estimate a model: rooftile estimate {}", name);
  return report_error({ErrorCode::usage, fmt::format("unknown command '{}'", name), {}, hint});
}

}  // namespace

std::span<const Command> command_table() { return kCommands; }

int run_command_line(std::span<const char* const> words) {
  try {
    return dispatch(words);
  } catch (const std::bad_alloc&) {
    return report_error({ErrorCode::internal, "out of memory", {}, {}});
  } catch (const std::exception& error) {
    return report_error({ErrorCode::internal, fmt::format("internal error: {}", error.what()), {}, "this is a fault of rooftile; please report the command"});
  } catch (...) {
    return report_error({ErrorCode::internal, "internal error", {}, "this is a fault of rooftile; please report the command"});
  }
}

}  // namespace rooftile
