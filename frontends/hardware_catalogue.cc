// Reads hardware/catalogues/*.yaml: the kernel families a vendor library has for GEMM on one architecture.
#include <algorithm>
#include <optional>

#include "estimator/core/suggest.h"
#include "frontends/hardware_files.h"
#include "frontends/hardware_reader.h"

namespace rooftile {
namespace {

constexpr std::size_t kTileLimit = 4096;  // per family; the timer tries each
constexpr int kTileSideLimit = 4096;
constexpr int kStagesLimit = 32;

class CatalogueReader {
 public:
  explicit CatalogueReader(const YamlNode& root) : reader_(root, "catalogue") {}

  Result<Catalogue> read(const std::filesystem::path& file) {
    const YamlNode& root = reader_.root();
    catalogue_.file = file.string();
    reader_.allow_keys(root, {"kind", "id", "name", "architecture", "variant", "sources", "families", "facts"});
    catalogue_.id = reader_.text(root, "id", Need::required);
    catalogue_.architecture = reader_.text(root, "architecture", Need::required);
    if (const YamlNode* families = reader_.get_list(root, "families", Need::required)) {
      for (const YamlNode& node : families->items) family(node);
      if (families->items.empty()) reader_.refuse(*families, "a catalogue needs at least one family");
    }
    if (const YamlNode* facts = reader_.get_map(root, "facts", Need::optional)) {
      for (const YamlEntry& entry : facts->entries) reader_.number(*facts, entry.key, "", "facts", catalogue_.facts, Need::required);
    }
    if (!reader_.ok()) return tl::unexpected<Error>(reader_.error());
    return std::move(catalogue_);
  }

 private:
  void family(const YamlNode& node) {
    KernelFamily family;
    family.name = reader_.text(node, "name", Need::required);
    if (!reader_.ok()) return;
    reader_.allow_keys(node, {"name", "dtypes", "alignment", "products", "rate", "persistent", "tensor_cores", "max_ctas_per_sm", "sms_per_tile", "iteration_latency", "tiles",
                              "split_k", "source", "kind", "date", "note"});
    for (const KernelFamily& other : catalogue_.families) {
      if (other.name == family.name) reader_.refuse(node, "the family '" + family.name + "' stands here twice");
    }
    provenance_ = Fact{};
    reader_.provenance(node, Need::optional, provenance_);
    provenance_.section = "families";

    dtypes(node, family);
    if (const std::vector<int> range = reader_.integers(node, "alignment", Need::optional, 1, 64); !range.empty()) {
      if (range.size() != 2 || range[0] > range[1]) reader_.refuse(*node.find("alignment"), "'alignment' is [lowest, highest] in elements");
      if (reader_.ok()) family.min_alignment = range[0], family.max_alignment = range[1];
    }
    if (const std::string products = reader_.text(node, "products", Need::optional); !products.empty()) {
      if (products != "single" && products != "batched" && products != "grouped")
        reader_.refuse(*node.find("products"), "'products' is single, batched or grouped; without it the family runs the first two");
      family.single = products == "single", family.batched = products == "batched", family.grouped = products == "grouped";
    }
    family.rate = number(node, family.name, "rate", "1", family.rate);
    if (reader_.ok() && !(family.rate > 0 && family.rate <= 4)) reader_.refuse(*node.find("rate"), "'rate' is relative to the dtype's peak: above 0, at most 4");
    family.persistent = reader_.boolean(node, "persistent", family.persistent);
    family.tensor_cores = reader_.boolean(node, "tensor_cores", family.tensor_cores);
    family.max_ctas_per_sm = reader_.integer(node, "max_ctas_per_sm", family.max_ctas_per_sm, 1, 32);
    family.sms_per_tile = reader_.integer(node, "sms_per_tile", family.sms_per_tile, 1, 16);
    family.iteration_latency_s = number(node, family.name, "iteration_latency", "s", family.iteration_latency_s);
    tiles(node, family);
    family.split_k = reader_.integers(node, "split_k", Need::optional, 1, 1024);
    if (family.split_k.empty()) family.split_k = {1};
    if (!reader_.ok()) return;
    Fact count = provenance_;
    count.key = family.name + ".tiles";
    count.value = static_cast<double>(family.tiles.size());
    count.unit = "tile";
    catalogue_.facts.push_back(std::move(count));
    catalogue_.families.push_back(std::move(family));
  }

  // A number of a family; what it does not say of its provenance it has from the family.
  double number(const YamlNode& map, const std::string& family, std::string_view key, std::string_view unit, double otherwise) {
    const YamlNode* node = reader_.get(map, key, Need::optional);
    if (node == nullptr) return otherwise;
    Fact fact = provenance_;
    if (node->kind == YamlNode::Kind::scalar && unit == "1") {
      fact.value = reader_.plain_number(*node, 0, 1e6);
      fact.unit = "1";
    } else {
      std::optional<Fact> read = reader_.fact(*node, family + "." + std::string(key), unit, "families");
      if (!read) return otherwise;
      if (read->value < 0) reader_.refuse(*node, "'" + std::string(key) + "' must not be negative");
      fact = std::move(*read);
      if (fact.source.empty()) fact.source = provenance_.source;
      if (fact.kind.empty()) fact.kind = provenance_.kind;
      if (fact.date.empty()) fact.date = provenance_.date;
      if (fact.note.empty()) fact.note = provenance_.note;
    }
    fact.key = family + "." + std::string(key);
    catalogue_.facts.push_back(fact);
    return fact.value;
  }

  void dtypes(const YamlNode& node, KernelFamily& family) {
    const YamlNode* list = reader_.get_list(node, "dtypes", Need::required);
    if (list == nullptr) return;
    for (const YamlNode& item : list->items) {
      const std::optional<DType> dtype = item.kind == YamlNode::Kind::scalar ? parse_dtype(item.scalar) : std::nullopt;
      if (dtype) {
        family.dtypes.push_back(*dtype);
        continue;
      }
      std::vector<std::string> known;
      for (const DTypeInfo& info : kDTypes) known.emplace_back(info.name);
      reader_.refuse(item, "unknown dtype '" + item.scalar.substr(0, 40) + "'", did_you_mean(item.scalar, known));
    }
    if (family.dtypes.empty()) reader_.refuse(*list, "'dtypes' is empty");
  }

  // [[m, n, k?, stages?], ...], or every combination of {m: [...], n: [...]} with one k and one number of stages, whose area m n is at most max_area and at least min_area.
  void tiles(const YamlNode& node, KernelFamily& family) {
    const YamlNode* tiles = reader_.get(node, "tiles", Need::required);
    if (tiles == nullptr) return;
    if (tiles->kind == YamlNode::Kind::list) {
      for (const YamlNode& item : tiles->items) {
        if (item.kind != YamlNode::Kind::list || item.items.size() < 2 || item.items.size() > 4) {
          reader_.refuse(item, "a tile is [m, n], [m, n, k] or [m, n, k, stages]");
          return;
        }
        KernelTile tile;
        tile.m = reader_.plain_integer(item.items[0], 1, kTileSideLimit);
        tile.n = reader_.plain_integer(item.items[1], 1, kTileSideLimit);
        if (item.items.size() > 2) tile.k = reader_.plain_integer(item.items[2], 0, kTileSideLimit);
        if (item.items.size() > 3) tile.stages = reader_.plain_integer(item.items[3], 0, kStagesLimit);
        family.tiles.push_back(tile);
      }
    } else if (tiles->kind == YamlNode::Kind::map) {
      reader_.allow_keys(*tiles, {"m", "n", "k", "stages", "max_area", "min_area"});
      const std::vector<int> ms = reader_.integers(*tiles, "m", Need::required, 1, kTileSideLimit);
      const std::vector<int> ns = reader_.integers(*tiles, "n", Need::required, 1, kTileSideLimit);
      const int k = reader_.integer(*tiles, "k", 0, 0, kTileSideLimit);
      const int stages = reader_.integer(*tiles, "stages", 0, 0, kStagesLimit);
      const int max_area = reader_.integer(*tiles, "max_area", kTileSideLimit * kTileSideLimit, 1, kTileSideLimit * kTileSideLimit);
      const int min_area = reader_.integer(*tiles, "min_area", 1, 1, kTileSideLimit * kTileSideLimit);
      if (ms.size() * ns.size() > kTileLimit) {
        reader_.refuse(*tiles, "more than " + std::to_string(kTileLimit) + " tiles in one family");
        return;
      }
      for (const int m : ms) {
        for (const int n : ns) {
          if (m * n <= max_area && m * n >= min_area) family.tiles.push_back(KernelTile{m, n, k, stages});
        }
      }
    }
    if (reader_.ok() && family.tiles.empty()) reader_.refuse(*tiles, "the family '" + family.name + "' has no tiles");
    if (family.tiles.size() > kTileLimit) reader_.refuse(*tiles, "more than " + std::to_string(kTileLimit) + " tiles in one family");
  }

  HardwareReader reader_;
  Catalogue catalogue_;
  Fact provenance_;
};

}  // namespace

Result<Catalogue> read_catalogue(const std::filesystem::path& file) {
  const Result<YamlNode> tree = read_yaml(file);
  if (!tree) return tl::unexpected<Error>(tree.error());
  return CatalogueReader(*tree).read(file);
}

}  // namespace rooftile
