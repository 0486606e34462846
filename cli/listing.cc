#include "cli/listing.h"

#include <algorithm>
#include <cstdio>

#include "cli/command_parser.h"
#include "estimator/core/quantity.h"
#include "report/json_writer.h"
#include "report/quantity.h"

namespace rooftile {

Result<ListingArguments> parse_listing(const Invocation& invocation, std::string_view command, std::string_view description, bool with_lint, bool& help_printed) {
  ListingArguments arguments;
  std::vector<std::string> words;
  std::string format, color;
  const std::string name(command);
  CommandParser parser(command, description, {"rooftile " + name, "rooftile " + name + " show NAME", "rooftile " + name + " --format json"});
  parser.positional("WORDS", words, "nothing or 'list' for all, 'show NAME|FILE' for one");
  parser.option("--format", format, "table (default) or json", "Output", "WORD");
  parser.option("--color", color, "auto (default), always or never", "Output", "WORD");
  if (with_lint) parser.flag("--lint", arguments.lint, "checks every file; exit code 1 when something is wrong");
  const auto help = parser.parse(invocation.arguments);
  if (!help) return tl::unexpected<Error>(help.error());
  help_printed = help->has_value();
  if (help_printed) {
    std::fputs((*help)->c_str(), stdout);
    return arguments;
  }
  const auto choice = parse_color(color);
  if (!choice) return tl::unexpected<Error>(choice.error());
  arguments.color = *choice;
  if (!format.empty() && format != "table" && format != "json") return fail(ErrorCode::usage, "'" + format + "' is not table or json", "--format");
  arguments.json = format == "json";
  if (words.size() == 2 && words[0] == "show") {
    arguments.show = words[1];
  } else if (!(words.empty() || (words.size() == 1 && words[0] == "list"))) {
    return fail(ErrorCode::usage, "expected nothing, 'list' or 'show NAME'", name, "for instance: rooftile " + name + " show NAME");
  }
  return arguments;
}

int report_no_data(std::string_view noun) {
  return report_error({ErrorCode::unavailable,
                       "no " + std::string(noun) + " found",
                       {},
                       "set ROOFTILE_DATA to the folder that holds hardware/ and models/; 'rooftile doctor' shows where data is looked for"});
}

void Listing::row(std::vector<std::string> cells) {
  std::vector<Cell> row;
  for (std::string& cell : cells) row.push_back({std::move(cell)});
  table.rows.push_back(std::move(row));
}

std::string render(const Listing& listing, const ListingArguments& arguments, const Output& output) {
  if (!arguments.json) return listing.table.render(output.width(), output.color(arguments.color), "");
  std::string out;
  JsonWriter json(out);
  json.open_list();
  for (const auto& row : listing.table.rows) {
    json.new_line();
    json.open_item();
    for (std::size_t c = 0; c < row.size(); ++c) {
      std::string key = listing.table.columns[c].title;
      for (char& letter : key) letter = letter == ' ' ? '_' : letter;
      json.field(key, row[c].text);
    }
    json.close();
  }
  json.new_line();
  json.close_list();
  return out + "\n";
}

std::string render_facts(std::span<const Fact> facts, const ListingArguments& arguments, const Output& output) {
  Listing listing;
  listing.table.columns = {{"key", Align::left}, {"value", Align::left}, {"kind", Align::left}, {"date", Align::left}, {"source", Align::left}, {"note", Align::left}};
  std::vector<std::string> sources;
  for (const Fact& fact : facts) {
    const std::string key = fact.section.empty() ? fact.key : fact.section + ": " + fact.key;
    std::string source = printable(fact.source);
    if (!arguments.json && !source.empty()) {
      const auto known = std::find(sources.begin(), sources.end(), source);
      const std::string mark = "[" + std::to_string(known - sources.begin() + 1) + "]";
      if (known == sources.end()) sources.push_back(source);
      source = mark;
    }
    listing.row({printable(key), printable(print_quantity({fact.value, fact.unit})), printable(fact.kind), printable(fact.date), source, printable(fact.note)});
  }
  std::string out = render(listing, arguments, output);
  for (std::size_t i = 0; i < sources.size(); ++i) out += "[" + std::to_string(i + 1) + "] " + sources[i] + "\n";
  return out;
}

int print_text(Output& output, std::string_view text) {
  output.write(text);
  const auto finished = output.finish();
  return finished ? 0 : report_error(finished.error());
}

}  // namespace rooftile
