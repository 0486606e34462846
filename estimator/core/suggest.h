// "Did you mean": the nearest known word to a misspelt one.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rooftile {

// Edits (insert, delete, replace, swap of neighbours) from one word to the other, case ignored. edit_distance("heads", "haeds") == 1.
int edit_distance(std::string_view a, std::string_view b);

// The candidate nearest to `word` when it is near enough to be meant (at most a third of the letters changed), else an empty string. First one wins a tie.
std::string nearest(std::string_view word, std::span<const std::string> candidates);

// "did you mean 'h100_sxm', 'h100_pcie'?" for the beginning of names, "did you mean 'kv_heads'?" for a misspelt one, or, when nothing is near, "known: a, b, c" (at most `limit` of
// them).
std::string did_you_mean(std::string_view word, std::span<const std::string> candidates, std::size_t limit = 40);

}  // namespace rooftile
