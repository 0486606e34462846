// Reads hardware/calibrations/*.yaml: constants of the kernel-time model at one level, and the errors they leave.
#include <algorithm>
#include <array>
#include <optional>

#include "estimator/core/suggest.h"
#include "frontends/hardware_files.h"
#include "frontends/hardware_reader.h"

namespace rooftile {
namespace {

constexpr std::array<LayerLevel, 4> kLevels = {LayerLevel::architecture, LayerLevel::device, LayerLevel::protocol, LayerLevel::site};

// Levels may also be called by the layer that they name: a file of a device with a library version is a protocol layer.
std::optional<LayerLevel> parse_level(std::string_view name) {
  for (const LayerLevel level : kLevels) {
    if (name_of(level) == name) return level;
  }
  if (name == "library") return LayerLevel::protocol;
  return std::nullopt;
}

// Constants may be written flat ("gemm.bf16.eta: {...}") or nested; both give the dotted key.
void constants(HardwareReader& reader, const YamlNode& map, const std::string& prefix, std::vector<Fact>& facts) {
  for (const YamlEntry& entry : map.entries) {
    const std::string key = prefix.empty() ? entry.key : prefix + "." + entry.key;
    if (entry.value.kind == YamlNode::Kind::map && !is_number_node(entry.value)) {
      constants(reader, entry.value, key, facts);
      continue;
    }
    std::optional<Fact> fact = reader.fact(entry.value, key, "", "constants");
    if (!fact) return;
    const bool twice = std::any_of(facts.begin(), facts.end(), [&](const Fact& other) { return other.key == key; });
    if (twice) reader.refuse(entry.value, "the constant '" + key + "' stands here twice");
    facts.push_back(std::move(*fact));
  }
}

void residuals(HardwareReader& reader, const YamlNode& map, std::map<std::string, Residuals>& out) {
  for (const YamlEntry& entry : map.entries) {
    Residuals& residual = out[entry.key];
    if (entry.value.kind != YamlNode::Kind::map) {
      reader.refuse(entry.value, "residuals of a family are {rows, mean_abs, median_abs, p90_abs, bias, q10, q90}");
      return;
    }
    reader.allow_keys(entry.value, {"rows", "mean_abs", "median_abs", "p90_abs", "bias", "q10", "q90", "note"});
    const auto value = [&](std::string_view key, double lowest, double highest) {
      const YamlNode* node = reader.get(entry.value, key, Need::required);
      return node == nullptr ? 0 : reader.plain_number(*node, lowest, highest);
    };
    residual.rows = static_cast<int>(value("rows", 0, 1e9));
    residual.mean_abs = value("mean_abs", 0, 100);
    residual.median_abs = value("median_abs", 0, 100);
    residual.p90_abs = value("p90_abs", 0, 100);
    residual.bias = value("bias", -100, 100);
    residual.q10 = value("q10", -20, 20);
    residual.q90 = value("q90", -20, 20);
    if (reader.ok() && residual.q10 > residual.q90) reader.refuse(entry.value, "q10 is above q90");
  }
}

void validity(HardwareReader& reader, const YamlNode& map, std::map<std::string, std::vector<ValidRange>>& out) {
  for (const YamlEntry& family : map.entries) {
    if (family.value.kind != YamlNode::Kind::map) {
      reader.refuse(family.value, "the validity of a family is a mapping of sizes to [lowest, highest]");
      return;
    }
    for (const YamlEntry& size : family.value.entries) {
      if (size.value.kind != YamlNode::Kind::list || size.value.items.size() != 2) {
        reader.refuse(size.value, "expected [lowest, highest]");
        return;
      }
      ValidRange range{size.key, reader.plain_number(size.value.items[0], 0, 1e18), reader.plain_number(size.value.items[1], 0, 1e18)};
      if (reader.ok() && range.lowest > range.highest) reader.refuse(size.value, "the lowest size is above the highest");
      out[family.key].push_back(std::move(range));
    }
  }
}

}  // namespace

Result<CalibrationLayer> read_calibration(const std::filesystem::path& file) {
  const Result<YamlNode> tree = read_yaml(file);
  if (!tree) return tl::unexpected<Error>(tree.error());
  HardwareReader reader(*tree, "calibration");
  CalibrationLayer layer;
  layer.file = file.string();
  reader.allow_keys(*tree, {"kind", "id", "name", "level", "architecture", "variant", "device", "library", "protocol", "site", "sources", "default", "method", "rows_of",
                            "constants", "residuals", "validity"});
  layer.id = reader.text(*tree, "id", Need::required);
  const std::string level = reader.text(*tree, "level", Need::required);
  if (reader.ok()) {
    const std::optional<LayerLevel> parsed = parse_level(level);
    std::vector<std::string> known;
    for (const LayerLevel candidate : kLevels) known.emplace_back(name_of(candidate));
    if (parsed) layer.level = *parsed;
    if (!parsed) reader.refuse(*tree->find("level"), "unknown level '" + level + "'", did_you_mean(level, known));
  }
  const bool whole_architecture = layer.level == LayerLevel::architecture;
  layer.architecture = reader.text(*tree, "architecture", whole_architecture ? Need::required : Need::optional);
  layer.device = reader.text(*tree, "device", whole_architecture ? Need::optional : Need::required);
  layer.library = reader.text(*tree, "library", Need::optional);
  layer.protocol = reader.text(*tree, "protocol", Need::optional);
  layer.rows_of = reader.text(*tree, "rows_of", Need::optional);
  layer.standard = reader.boolean(*tree, "default", false);
  if (layer.standard && layer.level != LayerLevel::protocol) reader.refuse(*tree->find("default"), "only a protocol layer can be the default one");
  layer.site = reader.text(*tree, "site", layer.level == LayerLevel::site ? Need::required : Need::optional);
  if (const YamlNode* map = reader.get_map(*tree, "constants", Need::required)) constants(reader, *map, "", layer.facts);
  if (const YamlNode* map = reader.get_map(*tree, "residuals", Need::optional)) residuals(reader, *map, layer.residuals);
  if (const YamlNode* map = reader.get_map(*tree, "validity", Need::optional)) validity(reader, *map, layer.validity);
  if (!reader.ok()) return tl::unexpected<Error>(reader.error());
  return layer;
}

}  // namespace rooftile
