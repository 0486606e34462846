#include "frontends/hardware_reader.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "estimator/core/quantity.h"
#include "estimator/core/suggest.h"

namespace rooftile {
namespace {

constexpr std::array<std::string_view, 5> kFactKinds = {"spec", "derived", "measured", "fitted", "guess"};

// A plain number of a scalar: decimal digits, '_' between digits, exponent; nothing else (no hex, no octal, no ".inf").
std::optional<double> parse_number(const YamlNode& node) {
  if (node.kind != YamlNode::Kind::scalar || node.quoted) return std::nullopt;
  std::string digits;
  for (std::size_t i = 0; i < node.scalar.size(); ++i) {
    if (node.scalar[i] == '_' && i > 0 && i + 1 < node.scalar.size()) continue;
    digits.push_back(node.scalar[i]);
  }
  double value = 0;
  const auto end = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (end.ec != std::errc() || end.ptr != digits.data() + digits.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::string describe_kind(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::null:
      return "nothing";
    case YamlNode::Kind::list:
      return "a list";
    case YamlNode::Kind::map:
      return "a mapping";
    default:
      return "'" + node.scalar.substr(0, 60) + "'";
  }
}

}  // namespace

bool is_number_node(const YamlNode& node) { return node.kind == YamlNode::Kind::map && node.find("value") != nullptr; }

bool is_date(std::string_view text) {
  if (text.size() != 10 || text[4] != '-' || text[7] != '-') return false;
  const auto part = [&](std::size_t begin, std::size_t count) {
    int value = -1;
    const auto end = std::from_chars(text.data() + begin, text.data() + begin + count, value);
    return end.ec == std::errc() && end.ptr == text.data() + begin + count ? value : -1;
  };
  const int year = part(0, 4), month = part(5, 2), day = part(8, 2);
  constexpr std::array<int, 12> kDays = {31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  return year >= 2000 && month >= 1 && month <= 12 && day >= 1 && day <= kDays[static_cast<std::size_t>(month - 1)];
}

HardwareReader::HardwareReader(const YamlNode& root, std::string_view kind) : root_(root) {
  const std::string stated = text(root, "kind", Need::required);
  if (ok() && stated != kind) refuse(*root.find("kind"), "this is a " + stated + " file, expected 'kind: " + std::string(kind) + "'");
  if (const YamlNode* sources = get_map(root, "sources", Need::optional)) {
    for (const YamlEntry& entry : sources->entries) {
      if (entry.value.kind != YamlNode::Kind::scalar) {
        refuse(entry.value, "a source is one line of text: the document, its section, its date");
        continue;
      }
      sources_[entry.key] = entry.value.scalar;
    }
  }
}

void HardwareReader::refuse(const YamlNode& node, std::string message, std::string hint) {
  if (!error_) error_ = Error{ErrorCode::invalid, std::move(message), node.place(), std::move(hint)};
}

void HardwareReader::allow_keys(const YamlNode& map, std::initializer_list<std::string_view> keys) {
  for (const YamlEntry& entry : map.entries) {
    if (std::find(keys.begin(), keys.end(), entry.key) != keys.end()) continue;
    YamlNode at = entry.value;
    at.line = entry.line;
    at.column = entry.column;
    refuse(at, "unknown key '" + entry.key.substr(0, 80) + "'", did_you_mean(entry.key, std::vector<std::string>(keys.begin(), keys.end())));
    return;
  }
}

const YamlNode* HardwareReader::get(const YamlNode& map, std::string_view key, Need need) {
  if (map.kind != YamlNode::Kind::map) {
    refuse(map, "expected 'key: value' lines with '" + std::string(key) + "', found " + describe_kind(map));
    return nullptr;
  }
  const YamlNode* node = map.find(key);
  if (node != nullptr && node->kind == YamlNode::Kind::null) node = nullptr;
  if (node == nullptr && need == Need::required) refuse(map, "the key '" + std::string(key) + "' is missing");
  return node;
}

const YamlNode* HardwareReader::get_map(const YamlNode& map, std::string_view key, Need need) {
  const YamlNode* node = get(map, key, need);
  if (node != nullptr && node->kind != YamlNode::Kind::map) {
    refuse(*node, "'" + std::string(key) + "' must be a mapping, found " + describe_kind(*node));
    return nullptr;
  }
  return node;
}

const YamlNode* HardwareReader::get_list(const YamlNode& map, std::string_view key, Need need) {
  const YamlNode* node = get(map, key, need);
  if (node != nullptr && node->kind != YamlNode::Kind::list) {
    refuse(*node, "'" + std::string(key) + "' must be a list, found " + describe_kind(*node));
    return nullptr;
  }
  return node;
}

std::string HardwareReader::text(const YamlNode& map, std::string_view key, Need need) {
  const YamlNode* node = get(map, key, need);
  if (node == nullptr) return {};
  if (node->kind != YamlNode::Kind::scalar) {
    refuse(*node, "'" + std::string(key) + "' must be text, found " + describe_kind(*node));
    return {};
  }
  return node->scalar;
}

bool HardwareReader::boolean(const YamlNode& map, std::string_view key, bool otherwise) {
  const YamlNode* node = get(map, key, Need::optional);
  if (node == nullptr) return otherwise;
  if (node->kind == YamlNode::Kind::scalar && !node->quoted) {
    if (node->scalar == "true") return true;
    if (node->scalar == "false") return false;
  }
  refuse(*node, "'" + std::string(key) + "' must be true or false, found " + describe_kind(*node));
  return otherwise;
}

double HardwareReader::plain_number(const YamlNode& node, double lowest, double highest) {
  const std::optional<double> value = parse_number(node);
  if (!value) {
    refuse(node, "expected a number, found " + describe_kind(node));
    return lowest;
  }
  if (*value < lowest || *value > highest) {
    refuse(node, node.scalar + " is out of range, expected " + print_quantity({lowest, "1"}) + " to " + print_quantity({highest, "1"}));
    return lowest;
  }
  return *value;
}

int HardwareReader::plain_integer(const YamlNode& node, int lowest, int highest) {
  const double value = plain_number(node, lowest, highest);
  if (value != std::floor(value)) refuse(node, "expected a whole number, found " + describe_kind(node));
  return static_cast<int>(value);
}

int HardwareReader::integer(const YamlNode& map, std::string_view key, int otherwise, int lowest, int highest) {
  const YamlNode* node = get(map, key, Need::optional);
  return node == nullptr ? otherwise : plain_integer(*node, lowest, highest);
}

std::vector<int> HardwareReader::integers(const YamlNode& map, std::string_view key, Need need, int lowest, int highest) {
  std::vector<int> values;
  if (const YamlNode* list = get_list(map, key, need)) {
    for (const YamlNode& item : list->items) values.push_back(plain_integer(item, lowest, highest));
  }
  return values;
}

void HardwareReader::provenance(const YamlNode& node, Need need, Fact& fact) {
  fact.source = source_title(text(node, "source", need));
  fact.kind = text(node, "kind", need);
  fact.date = text(node, "date", need);
  fact.note = text(node, "note", Need::optional);
}

std::string HardwareReader::source_title(const std::string& source) const {
  const std::size_t colon = source.find(':');
  const auto entry = sources_.find(source.substr(0, colon));
  if (entry == sources_.end()) return source;
  return colon == std::string::npos ? entry->second : entry->second + "," + source.substr(colon + 1);
}

std::optional<Fact> HardwareReader::fact(const YamlNode& node, std::string key, std::string_view unit, std::string_view section, std::initializer_list<std::string_view> also) {
  if (!is_number_node(node)) {
    refuse(node, "'" + key + "' needs a number with its provenance, found " + describe_kind(node), "write {value: 80, unit: GB, source: ..., kind: spec, date: 2025-01-31}");
    return std::nullopt;
  }
  constexpr std::array<std::string_view, 6> kKeys = {"value", "unit", "source", "kind", "date", "note"};
  for (const YamlEntry& entry : node.entries) {
    if (std::find(kKeys.begin(), kKeys.end(), entry.key) != kKeys.end() || std::find(also.begin(), also.end(), entry.key) != also.end()) continue;
    std::vector<std::string> known(kKeys.begin(), kKeys.end());
    known.insert(known.end(), also.begin(), also.end());
    refuse(node, "unknown key '" + entry.key.substr(0, 80) + "' in the number '" + key + "'", did_you_mean(entry.key, known));
    return std::nullopt;
  }
  Fact fact;
  fact.key = std::move(key);
  fact.section = std::string(section);
  const YamlNode& value_node = *node.find("value");
  const double value = plain_number(value_node, -1e300, 1e300);
  const Result<UnitScale> scale = parse_unit(text(node, "unit", Need::optional));
  if (!scale) {
    refuse(*node.find("unit"), scale.error().message, scale.error().hint);
    return std::nullopt;
  }
  if (!unit.empty() && scale->base != unit) {
    refuse(node.find("unit") != nullptr ? *node.find("unit") : node,
           "'" + fact.key + "' is in " + (scale->base == "1" ? "no unit" : scale->base) + ", expected " + std::string(unit));
    return std::nullopt;
  }
  fact.value = value * scale->scale;
  if (!std::isfinite(fact.value)) refuse(value_node, "'" + fact.key + "' is out of range");
  fact.unit = scale->base;
  provenance(node, Need::optional, fact);
  if (!fact.kind.empty() && std::find(kFactKinds.begin(), kFactKinds.end(), fact.kind) == kFactKinds.end()) {
    refuse(*node.find("kind"), "unknown kind '" + fact.kind + "'", did_you_mean(fact.kind, std::vector<std::string>(kFactKinds.begin(), kFactKinds.end())));
  }
  if (!fact.date.empty() && !is_date(fact.date)) refuse(*node.find("date"), "'" + fact.date + "' is no date", "write YYYY-MM-DD");
  if (!ok()) return std::nullopt;
  return fact;
}

double HardwareReader::number(const YamlNode& map, std::string_view key, std::string_view unit, std::string_view section, std::vector<Fact>& facts, Need need, double otherwise,
                              std::string_view prefix) {
  const YamlNode* node = get(map, key, need);
  if (node == nullptr) return otherwise;
  std::string name = prefix.empty() ? std::string(key) : std::string(prefix) + "." + std::string(key);
  std::optional<Fact> read = fact(*node, std::move(name), unit, section);
  if (!read) return otherwise;
  if (read->value < 0) refuse(*node->find("value"), "'" + read->key + "' must not be negative");
  const double value = read->value;
  facts.push_back(std::move(*read));
  return value;
}

}  // namespace rooftile
