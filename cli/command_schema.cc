#include <cstdio>

#include "cli/command_parser.h"
#include "cli/commands.h"
#include "cli/install_path.h"
#include "cli/listing.h"
#include "frontends/hardware_files.h"
#include "frontends/model_files.h"

namespace rooftile {

int run_schema(const Invocation& invocation) {
  std::vector<std::string> words;
  CommandParser parser("schema", "Prints the JSON schema of an output or of a data file; without a name, lists them.", {"rooftile schema", "rooftile schema estimate"});
  parser.positional("NAME", words, "estimate, estimate_line, ...");
  const auto help = parser.parse(invocation.arguments);
  if (!help) return report_error(help.error());
  if (*help) {
    std::fputs((*help)->c_str(), stdout);
    return 0;
  }
  auto output = Output::open("");
  if (!output) return report_error(output.error());
  const DataPath data = DataPath::standard(installed_data());
  if (words.empty()) {
    if (data.names(DataKind::schema).empty()) return report_no_data("schemas");
    std::string text;
    for (const std::string& name : data.names(DataKind::schema)) text += name + "\n";
    return print_text(*output, text);
  }
  if (words.size() > 1) return report_error({ErrorCode::usage, "one schema at a time", {}, {}});
  const auto file = data.find(DataKind::schema, words[0]);
  if (!file) return report_error(file.error());
  const auto text = read_text(*file);
  return text ? print_text(*output, *text) : report_error(text.error());
}

}  // namespace rooftile
