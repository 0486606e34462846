// Options and positionals of one command. The option library stays behind this class, so that one file pays for compiling it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "estimator/core/result.h"

namespace rooftile {

class CommandParser {
 public:
  // `examples` follow the options in --help, one command line each.
  CommandParser(std::string_view command, std::string_view description, const std::vector<std::string>& examples);
  ~CommandParser();
  CommandParser(const CommandParser&) = delete;
  CommandParser& operator=(const CommandParser&) = delete;

  void positional(std::string_view name, std::vector<std::string>& into, std::string_view help);
  // `names`: "--mbs,--micro-batch-size". A value given twice is an error unless `repeatable`.
  void option(std::string_view names, std::vector<std::string>& into, std::string_view help, std::string_view group = "Options", bool repeatable = false,
              std::string_view value = "VALUE");
  void option(std::string_view names, std::string& into, std::string_view help, std::string_view group = "Options", std::string_view value = "VALUE");
  void flag(std::string_view names, bool& into, std::string_view help, std::string_view group = "Options");

  // Fills the targets. Gives the text of --help when that was asked for. Errors: usage, with a suggestion for an unknown option.
  Result<std::optional<std::string>> parse(const std::vector<std::string>& arguments);

 private:
  struct Parser;
  std::unique_ptr<Parser> parser_;
};

}  // namespace rooftile
