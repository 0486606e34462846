// Devices, catalogues, calibrations, clusters and runtimes are files. They are found by listing folders: $ROOFTILE_DATA, the working directory's rooftile/,
// $XDG_CONFIG_HOME/rooftile, then the installed data; the first folder that has a name wins.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "estimator/core/result.h"
#include "estimator/hardware/calibration.h"
#include "estimator/hardware/catalogue.h"
#include "estimator/hardware/cluster.h"
#include "estimator/hardware/device.h"
#include "estimator/hardware/runtime.h"
#include "estimator/timing/timer.h"

namespace rooftile {

enum class DataKind : std::uint8_t { device, catalogue, calibration, cluster, runtime, model, schema };

// The folders that are searched, in order. `installed` is the data folder of the build tree or the prefix, found from the binary's own path.
struct DataPath {
  std::vector<std::filesystem::path> roots;
  static DataPath standard(const std::filesystem::path& installed);

  // Path of NAME.yaml of a kind (models: models/NAME.yaml, others hardware/<kind>s/NAME.yaml), or the path itself when `name_or_file` is an existing file. Error unavailable...
  // not found: usage error with a suggestion from names().
  Result<std::filesystem::path> find(DataKind kind, std::string_view name_or_file) const;
  std::vector<std::string> names(DataKind kind) const;  // sorted, without duplicates
  // NAME's file under the first root that has it; nothing when no root does. Never takes the name for a path.
  std::optional<std::filesystem::path> find_name(DataKind kind, std::string_view name) const;
};

// A device may extend another (`extends: h100_sxm`), which is looked for beside its file and then in `data`. Errors: unavailable (no file), invalid with file:line:column.
Result<Device> read_device(const std::filesystem::path& file);
Result<Device> read_device(const std::filesystem::path& file, const DataPath& data);
Result<Catalogue> read_catalogue(const std::filesystem::path& file);
Result<CalibrationLayer> read_calibration(const std::filesystem::path& file);
Result<Cluster> read_cluster(const std::filesystem::path& file);
Result<Runtime> read_runtime(const std::filesystem::path& file);

// The device with the catalogue of its architecture and every calibration layer that applies: architecture, device, of the protocol layers the one that says `default: true`,
// site; plus a layer named by --calibration, which goes above all (a protocol layer takes the default one's place), and a cluster (empty: the one whose GPUs link like this
// device).
Result<Machine> load_machine(const DataPath& data, std::string_view device, std::string_view cluster, std::string_view calibration);

// What is wrong with a device file beyond its syntax: peaks that differ by over 2 % from SMs x rate x peak clock, numbers without source or date, guesses without a note.
std::vector<Warning> lint(const Device& device);

// The part of the lint that every kind of file shares: numbers without source, date or kind, guesses without a note. `id` names the file in the messages.
std::vector<Warning> lint_provenance(std::string_view id, const std::vector<Fact>& facts);

}  // namespace rooftile
