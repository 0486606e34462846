#include "cli/command_parser.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>

#include "estimator/core/suggest.h"

namespace rooftile {

namespace {

// What people write who come from other tools.
constexpr std::pair<std::string_view, std::string_view> kOtherNames[] = {{"--batch-size", "--mbs"},
                                                                         {"--batch", "--mbs"},
                                                                         {"--bs", "--mbs"},
                                                                         {"--gpu", "--device"},
                                                                         {"--sequence-length", "--seq"},
                                                                         {"--seqlen", "--seq"},
                                                                         {"--num-gpus", "--gpus"},
                                                                         {"--precision-dtype", "--dtype"},
                                                                         {"--tensor-parallel-size", "--tp"},
                                                                         {"--pipeline-parallel-size", "--pp"},
                                                                         {"--top-k", "--top"}};

}  // namespace

struct CommandParser::Parser {
  CLI::App app;
  std::string command;
  std::vector<std::string> names;  // of all options, with dashes
  std::vector<std::string> flags;

  void remember(std::string_view list) {
    for (std::size_t i = 0; i <= list.size();) {
      const std::size_t end = std::min(list.find(',', i), list.size());
      names.emplace_back(list.substr(i, end - i));
      i = end + 1;
    }
  }
};

CommandParser::CommandParser(std::string_view command, std::string_view description, const std::vector<std::string>& examples) : parser_(std::make_unique<Parser>()) {
  CLI::App& app = parser_->app;
  parser_->command = command;
  app.name("rooftile " + std::string(command));
  app.description(std::string(description));
  std::string footer = examples.empty() ? "" : "Examples:";
  for (const std::string& example : examples) footer += "\n  " + example;
  app.footer(footer);
  app.allow_extras();
  app.get_formatter()->column_width(38);
  parser_->names = {"--help"};
}

CommandParser::~CommandParser() = default;

void CommandParser::positional(std::string_view name, std::vector<std::string>& into, std::string_view help) {
  parser_->app.add_option(std::string(name), into, std::string(help));
}

void CommandParser::option(std::string_view names, std::vector<std::string>& into, std::string_view help, std::string_view group, bool repeatable, std::string_view value) {
  parser_->remember(names);
  CLI::Option* option = parser_->app.add_option(std::string(names), into, std::string(help))->group(std::string(group))->type_name(std::string(value));
  // One value each time: `--mbs 1 2` is not a list of two, the list is `--mbs 1,2`.
  option->expected(1);
  if (repeatable)
    option->take_all();
  else
    option->multi_option_policy(CLI::MultiOptionPolicy::Throw);
}

void CommandParser::option(std::string_view names, std::string& into, std::string_view help, std::string_view group, std::string_view value) {
  parser_->remember(names);
  parser_->app.add_option(std::string(names), into, std::string(help))->group(std::string(group))->type_name(std::string(value));
}

void CommandParser::flag(std::string_view names, bool& into, std::string_view help, std::string_view group) {
  parser_->remember(names);
  parser_->app.add_flag(std::string(names), into, std::string(help))->group(std::string(group));
}

Result<std::optional<std::string>> CommandParser::parse(const std::vector<std::string>& arguments) {
  const std::string try_help = "try 'rooftile " + parser_->command + " --help'";
  try {
    std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
    parser_->app.parse(std::move(reversed));
  } catch (const CLI::CallForHelp&) {
    return parser_->app.help();
  } catch (const CLI::ArgumentMismatch& error) {
    return fail(ErrorCode::usage, error.what(), {}, "an option is given once; several values are a list: --mbs 1,2,4 or --device a100_sxm_80gb,h100_sxm");
  } catch (const CLI::ParseError& error) {
    return fail(ErrorCode::usage, error.what(), {}, try_help);
  }
  for (const std::string& extra : parser_->app.remaining()) {
    if (extra.size() > 1 && extra[0] == '-') {
      const std::string name = extra.substr(0, extra.find('='));
      std::string near = nearest(name, parser_->names);
      for (const auto& [other, ours] : kOtherNames) {
        if (near.empty() && name == other && std::find(parser_->names.begin(), parser_->names.end(), ours) != parser_->names.end()) near = ours;
      }
      return fail(ErrorCode::usage, "unknown option '" + name + "'", {}, near.empty() ? try_help : "did you mean '" + near + "'?");
    }
    return fail(ErrorCode::usage, "unexpected argument '" + extra + "'", {}, try_help);
  }
  return std::nullopt;
}

}  // namespace rooftile
