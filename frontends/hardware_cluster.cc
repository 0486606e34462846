// Reads hardware/clusters/*.yaml.
#include "frontends/hardware_files.h"
#include "frontends/hardware_reader.h"

namespace rooftile {
namespace {

Link read_link(HardwareReader& reader, const YamlNode& map, std::string_view name, std::vector<Fact>& facts) {
  reader.allow_keys(map, {"type", "bandwidth", "latency", "ramp"});
  Link link;
  link.bandwidth = reader.number(map, "bandwidth", "B/s", name, facts, Need::required, 0, name);
  if (reader.ok() && !(link.bandwidth > 0)) reader.refuse(*map.find("bandwidth"), "'bandwidth' must be above zero");
  link.latency_s = reader.number(map, "latency", "s", name, facts, Need::required, 0, name);
  link.ramp_bytes = reader.number(map, "ramp", "B", name, facts, Need::required, 0, name);
  return link;
}

}  // namespace

Result<Cluster> read_cluster(const std::filesystem::path& file) {
  const Result<YamlNode> tree = read_yaml(file);
  if (!tree) return tl::unexpected<Error>(tree.error());
  HardwareReader reader(*tree, "cluster");
  Cluster cluster;
  cluster.file = file.string();
  reader.allow_keys(*tree, {"kind", "id", "name", "note", "sources", "gpus_per_node", "intra_node", "inter_node"});
  cluster.id = reader.text(*tree, "id", Need::required);
  cluster.name = reader.text(*tree, "name", Need::required);
  reader.get(*tree, "gpus_per_node", Need::required);
  cluster.gpus_per_node = reader.integer(*tree, "gpus_per_node", 1, 1, 1 << 20);
  // A node of one GPU has no links inside.
  if (const YamlNode* link = reader.get_map(*tree, "intra_node", cluster.gpus_per_node > 1 ? Need::required : Need::optional)) {
    cluster.intra_node = read_link(reader, *link, "intra_node", cluster.facts);
  }
  if (const YamlNode* link = reader.get_map(*tree, "inter_node", Need::required)) cluster.inter_node = read_link(reader, *link, "inter_node", cluster.facts);
  if (!reader.ok()) return tl::unexpected<Error>(reader.error());
  if (cluster.gpus_per_node == 1 && tree->find("intra_node") == nullptr) cluster.intra_node = cluster.inter_node;
  return cluster;
}

}  // namespace rooftile
