// Numbers as the command line takes them, and the range grammar.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "estimator/core/result.h"

namespace rooftile {

// A whole number from 0 to 2^63 - 1: "4096", "300e9", "1.5e3", "4k", "2M". Errors (usage): anything else, with `option` as the place.
Result<std::int64_t> parse_whole(std::string_view text, std::string_view option);

// Values of an option: "1,2,4" lists, "1024-8192+1024" steps (the end included when it is hit), "1-64*2" multiplies; parts may be mixed: "1,8-32*2".
// A part that is neither number nor range stays as it is; whoever reads the number refuses it. Errors (usage): a step that never ends, more than 1,000,000 values.
Result<std::vector<std::string>> expand_range(std::string_view text, std::string_view option);

// "a,b" as words. Errors (usage): an empty one.
Result<std::vector<std::string>> split_list(std::string_view text, std::string_view option);

}  // namespace rooftile
