// The commands: one file each, one row each in the table of command_table.cc.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rooftile {

// The words after the command's name, and the whole command line for the report's context.
struct Invocation {
  std::vector<std::string> arguments;
  std::string command_line;
};

int run_estimate(const Invocation& invocation);
int run_explain(const Invocation& invocation);
int run_validate(const Invocation& invocation);
int run_calibrate(const Invocation& invocation);
int run_models(const Invocation& invocation);
int run_devices(const Invocation& invocation);
int run_devices_new(const Invocation& invocation);  // devices new
int run_runtimes(const Invocation& invocation);
int run_clusters(const Invocation& invocation);
int run_schema(const Invocation& invocation);
int run_doctor(const Invocation& invocation);

struct Command {
  std::string_view name;
  int (*run)(const Invocation&);  // nullptr: named in the interface, not in this version
  std::string_view summary;
};
std::span<const Command> command_table();

// The process: dispatches on the first word, turns whatever escapes into exit code 70.
int run_command_line(std::span<const char* const> words);

}  // namespace rooftile
