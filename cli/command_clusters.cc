#include <fmt/format.h>

#include "cli/install_path.h"
#include "cli/listing.h"
#include "frontends/hardware_files.h"
#include "report/quantity.h"

namespace rooftile {
namespace {

Result<Cluster> load(const DataPath& data, const std::string& name) {
  const auto file = data.find(DataKind::cluster, name);
  if (!file) return tl::unexpected<Error>(file.error());
  return read_cluster(*file);
}

std::string link_text(const Link& link) { return fmt::format("{}, {}", human(link.bandwidth, "B/s"), human(link.latency_s, "s")); }

}  // namespace

int run_clusters(const Invocation& invocation) {
  bool help = false;
  const auto arguments = parse_listing(invocation, "clusters", "Lists how GPUs are joined: the links of a node and the network between nodes.", false, help);
  if (!arguments) return report_error(arguments.error());
  if (help) return 0;
  auto output = Output::open("");
  if (!output) return report_error(output.error());
  const DataPath data = DataPath::standard(installed_data());
  if (!arguments->show.empty()) {
    const auto cluster = load(data, arguments->show);
    if (!cluster) return report_error(cluster.error());
    const std::string head =
        fmt::format("{}: {}, {} GPUs per node\nread from {}\n\n", printable(cluster->id), printable(cluster->name), cluster->gpus_per_node, printable(cluster->file));
    return print_text(*output, (arguments->json ? "" : head) + render_facts(cluster->facts, *arguments, *output));
  }
  Listing listing;
  listing.table.columns = {{"id", Align::left}, {"name", Align::left, 1, 16}, {"GPUs per node"}, {"in a node", Align::left}, {"between nodes", Align::left}};
  const auto names = data.names(DataKind::cluster);
  if (names.empty()) return report_no_data("clusters");
  for (const std::string& name : names) {
    const auto cluster = load(data, name);
    if (!cluster) {
      report_error(cluster.error());
      continue;
    }
    listing.row({name, printable(cluster->name), fmt::format("{}", cluster->gpus_per_node), link_text(cluster->intra_node), link_text(cluster->inter_node)});
  }
  return print_text(*output, render(listing, *arguments, *output));
}

}  // namespace rooftile
