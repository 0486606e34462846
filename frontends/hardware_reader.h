// What the readers of hardware/*.yaml share: typed access to a YamlNode with errors that name file, line and column, and numbers with provenance turned into Facts. The first
// error is kept and everything after it returns defaults, so that a reader is a plain list of its keys and asks for the error once, at the end.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "estimator/core/result.h"
#include "estimator/hardware/device.h"
#include "frontends/hardware_yaml.h"

namespace rooftile {

enum class Need : std::uint8_t { required, optional };

class HardwareReader {
 public:
  // Checks that the file says `kind: <kind>` and reads its table of sources. `root` must outlive the reader.
  HardwareReader(const YamlNode& root, std::string_view kind);

  const YamlNode& root() const { return root_; }
  bool ok() const { return !error_.has_value(); }
  const Error& error() const { return *error_; }

  // Keeps the first error, placed at the node.
  void refuse(const YamlNode& node, std::string message, std::string hint = {});

  // Refuses keys of a map that are not in the list, with a suggestion.
  void allow_keys(const YamlNode& map, std::initializer_list<std::string_view> keys);

  // The value of a key, or null; a missing required key is an error at the map.
  const YamlNode* get(const YamlNode& map, std::string_view key, Need need);
  const YamlNode* get_map(const YamlNode& map, std::string_view key, Need need);
  const YamlNode* get_list(const YamlNode& map, std::string_view key, Need need);

  std::string text(const YamlNode& map, std::string_view key, Need need);
  bool boolean(const YamlNode& map, std::string_view key, bool otherwise);
  int integer(const YamlNode& map, std::string_view key, int otherwise, int lowest, int highest);
  double plain_number(const YamlNode& node, double lowest, double highest);
  int plain_integer(const YamlNode& node, int lowest, int highest);
  std::vector<int> integers(const YamlNode& map, std::string_view key, Need need, int lowest, int highest);

  // {value, unit, source, kind, date, note?} in base units. `unit` is the base unit that is expected, empty for any. Extra keys allowed beside those come in `also`.
  std::optional<Fact> fact(const YamlNode& node, std::string key, std::string_view unit, std::string_view section, std::initializer_list<std::string_view> also = {});

  // The number under a key as a Fact appended to `facts`, and its value; `otherwise` when the key is absent and optional.
  double number(const YamlNode& map, std::string_view key, std::string_view unit, std::string_view section, std::vector<Fact>& facts, Need need, double otherwise = 0,
                std::string_view prefix = {});

  // Reads source, kind, date and note of an entry; `need` speaks of the first three.
  void provenance(const YamlNode& node, Need need, Fact& fact);

  // A source as it is shown: an entry of the file's `sources:` ("h100_whitepaper", "h100_whitepaper: table 3") is replaced by its title.
  std::string source_title(const std::string& source) const;

 private:
  const YamlNode& root_;
  std::optional<Error> error_;
  std::map<std::string, std::string> sources_;
};

// True for a map with `value`.
bool is_number_node(const YamlNode& node);

// "YYYY-MM-DD" with a month and day that exist.
bool is_date(std::string_view text);

}  // namespace rooftile
