// Lists and descriptions that several commands print alike, as a table or as JSON.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/output.h"
#include "estimator/core/result.h"
#include "estimator/hardware/device.h"
#include "report/text_table.h"

namespace rooftile {

// What was asked of a command that lists things: nothing or "list" for all, "show NAME" for one.
struct ListingArguments {
  std::string show;  // empty: list
  bool json = false, lint = false;
  ColorChoice color = ColorChoice::automatic;
};

// Parses them; `code` is set where the command ends here (help was printed, or an error).
Result<ListingArguments> parse_listing(const Invocation& invocation, std::string_view command, std::string_view description, bool with_lint, bool& help_printed);

// Says that there is nothing to list, and gives the exit code.
int report_no_data(std::string_view noun);

// A table whose cells are texts; as JSON a list of objects with the titles (blanks as _) as keys.
struct Listing {
  TextTable table;
  void row(std::vector<std::string> cells);
};
std::string render(const Listing& listing, const ListingArguments& arguments, const Output& output);

// The numbers of a data file with where they come from. As a table, sources are numbers that a list below explains: they are long and few.
std::string render_facts(std::span<const Fact> facts, const ListingArguments& arguments, const Output& output);

// Writes text and gives the exit code.
int print_text(Output& output, std::string_view text);

}  // namespace rooftile
