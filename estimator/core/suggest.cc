#include "estimator/core/suggest.h"

#include <algorithm>
#include <cctype>

namespace rooftile {
namespace {
char lower(char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }
}  // namespace

int edit_distance(std::string_view a, std::string_view b) {
  // Optimal string alignment with three rows; words longer than 64 letters are cut, since they are no misspelling.
  a = a.substr(0, 64);
  b = b.substr(0, 64);
  std::vector<int> before_last(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = static_cast<int>(j);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = static_cast<int>(i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const int cost = lower(a[i - 1]) == lower(b[j - 1]) ? 0 : 1;
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + cost});
      if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) && lower(a[i - 2]) == lower(b[j - 1])) row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
    std::swap(before_last, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

std::string nearest(std::string_view word, std::span<const std::string> candidates) {
  std::string best;
  int best_distance = std::max(1, static_cast<int>(word.size()) / 3) + 1;
  for (const std::string& candidate : candidates) {
    const int distance = edit_distance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view word, std::span<const std::string> candidates, std::size_t limit) {
  // The beginning of a name is the name half typed: "h100" means one of the h100s.
  std::string begun;
  for (const std::string& candidate : candidates) {
    if (word.size() < 2 || candidate.size() <= word.size()) continue;
    if (std::equal(word.begin(), word.end(), candidate.begin(), [](char a, char b) { return lower(a) == lower(b); })) begun += (begun.empty() ? "'" : ", '") + candidate + "'";
  }
  if (!begun.empty()) return "did you mean " + begun + "?";
  const std::string near = nearest(word, candidates);
  if (!near.empty()) return "did you mean '" + near + "'?";
  std::string text = "known: ";
  for (std::size_t i = 0; i < candidates.size() && i < limit; ++i) text += (i ? ", " : "") + candidates[i];
  if (candidates.size() > limit) text += ", ...";
  return text;
}

}  // namespace rooftile
