#include "frontends/hardware_files.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <set>
#include <system_error>

#include "estimator/core/suggest.h"
#include "frontends/model_files.h"

namespace rooftile {
namespace {

namespace fs = std::filesystem;

struct KindFolder {
  std::string_view noun;    // in messages
  std::string_view folder;  // below a root
  std::string_view extension;
};

KindFolder folder_of(DataKind kind) {
  switch (kind) {
    case DataKind::device:
      return {"device", "hardware/devices", ".yaml"};
    case DataKind::catalogue:
      return {"catalogue", "hardware/catalogues", ".yaml"};
    case DataKind::calibration:
      return {"calibration", "hardware/calibrations", ".yaml"};
    case DataKind::cluster:
      return {"cluster", "hardware/clusters", ".yaml"};
    case DataKind::runtime:
      return {"runtime", "hardware/runtimes", ".yaml"};
    case DataKind::model:
      return {"model", "models", ".yaml"};
    case DataKind::schema:
      return {"schema", "hardware/schema", ".json"};
  }
  return {"file", "hardware", ".yaml"};
}

// The folders of one root that hold files of a kind: as installed ("hardware/devices"), and the short form that people write in their own folder ("devices").
std::vector<fs::path> folders(const fs::path& root, DataKind kind) {
  const std::string_view folder = folder_of(kind).folder;
  std::vector<fs::path> result = {root / folder};
  if (const std::size_t slash = folder.find('/'); slash != std::string_view::npos) result.push_back(root / folder.substr(slash + 1));
  return result;
}

bool is_file(const fs::path& path) {
  std::error_code status;
  return fs::is_regular_file(path, status);  // through links; a dangling or looping one is no file
}

// A name is one path component: it can never lead out of the folder.
bool is_plain_name(std::string_view name) {
  return !name.empty() && name.size() <= 200 && name.front() != '.' && name.find('/') == std::string_view::npos && name.find('\0') == std::string_view::npos;
}

// Names of the files of one folder, unsorted; nothing when the folder is missing or cannot be read. Subfolders are not entered.
std::vector<std::string> list_folder(const fs::path& folder, std::string_view extension) {
  std::vector<std::string> names;
  std::error_code status;
  for (fs::directory_iterator entry(folder, status), end; !status && entry != end; entry.increment(status)) {
    const fs::path& path = entry->path();
    if (path.extension() == extension && is_plain_name(path.stem().string()) && is_file(path)) names.push_back(path.stem().string());
  }
  return names;
}

// Orders versions by their numbers: 2.9 before 2.11, no version before any.
bool version_less(std::string_view a, std::string_view b) {
  while (!a.empty() && !b.empty()) {
    int left = 0, right = 0;
    const auto left_end = std::from_chars(a.data(), a.data() + a.size(), left);
    const auto right_end = std::from_chars(b.data(), b.data() + b.size(), right);
    if (left_end.ec != std::errc() || right_end.ec != std::errc()) return a < b;
    if (left != right) return left < right;
    a.remove_prefix(static_cast<std::size_t>(left_end.ptr - a.data()));
    b.remove_prefix(static_cast<std::size_t>(right_end.ptr - b.data()));
    if (!a.empty() && a.front() == '.') a.remove_prefix(1);
    if (!b.empty() && b.front() == '.') b.remove_prefix(1);
  }
  return a.size() < b.size();
}

std::string_view version_of(std::string_view name) {
  const std::size_t at = name.find('@');
  return at == std::string_view::npos ? std::string_view() : name.substr(at + 1);
}

void add_root(std::vector<fs::path>& roots, const fs::path& root) {
  std::error_code status;
  if (root.empty() || !fs::is_directory(root, status)) return;
  const bool known = std::any_of(roots.begin(), roots.end(), [&](const fs::path& other) { return fs::equivalent(other, root, status); });
  if (!known) roots.push_back(root);
}

// Layers of a device are files called after it: "h200_sxm.yaml", "h200_sxm-cublas13.yaml", "h200_sxm@2026-05.yaml".
bool belongs_to(std::string_view file, std::string_view device) {
  return file.substr(0, device.size()) == device && (file.size() == device.size() || file[device.size()] == '-' || file[device.size()] == '@');
}

// Calibrations of a device that was given as a file: those called after it beside that file, and in the folder `calibrations` beside the file's own folder. Folders that are
// searched anyway are left out, as are files of another kind.
std::vector<fs::path> calibrations_beside(const DataPath& data, const fs::path& device_file, const Device& device) {
  std::vector<fs::path> found;
  const fs::path folder = device_file.has_parent_path() ? device_file.parent_path() : fs::path(".");
  for (const fs::path& place : {folder, folder / ".." / "calibrations"}) {
    std::vector<std::string> names = list_folder(place, ".yaml");
    std::sort(names.begin(), names.end());
    for (const std::string& name : names) {
      std::error_code status;
      const fs::path path = place / (name + ".yaml");
      if (!belongs_to(name, device.id) || fs::equivalent(path, device_file, status)) continue;
      if (const auto known = data.find_name(DataKind::calibration, name); known && fs::equivalent(path, *known, status)) continue;
      const auto text = read_text(path, std::size_t{1} << 20);
      if (text && (text->rfind("kind: calibration", 0) == 0 || text->find("\nkind: calibration") != std::string::npos)) found.push_back(path);
    }
  }
  return found;
}

Result<void> add_layers(const DataPath& data, std::string_view named, const std::vector<fs::path>& beside, Machine& machine) {
  std::vector<CalibrationLayer>& layers = machine.calibration.layers;
  const Device& device = machine.device;
  const auto add = [&](const fs::path& path) -> Result<void> {
    Result<CalibrationLayer> layer = read_calibration(path);
    if (!layer) return tl::unexpected<Error>(layer.error());
    if (!layer->device.empty() && layer->device != device.id) return {};
    if (layer->level == LayerLevel::protocol) {
      const bool twice = std::any_of(layers.begin(), layers.end(), [](const CalibrationLayer& other) { return other.level == LayerLevel::protocol; });
      if (layer->standard && twice) return fail(ErrorCode::invalid, "two protocol layers of " + device.id + " say 'default: true'", layer->file);
      machine.calibration.protocols.push_back(*layer);
      if (!layer->standard) return {};
    }
    layers.push_back(std::move(*layer));
    return {};
  };
  const std::string variant = "arch-" + device.variant, architecture = "arch-" + std::string(name_of(device.architecture));
  for (const std::string& name : {variant, architecture}) {
    const std::optional<fs::path> path = data.find_name(DataKind::calibration, name);
    if (!path) continue;
    if (Result<void> added = add(*path); !added) return added;
    break;
  }
  // Kernels of a library that is the same on all devices.
  if (const std::optional<fs::path> path = data.find_name(DataKind::calibration, "pytorch")) {
    if (Result<void> added = add(*path); !added) return added;
  }
  for (const std::string& name : data.names(DataKind::calibration)) {
    if (!belongs_to(name, device.id)) continue;
    if (Result<void> added = add(*data.find_name(DataKind::calibration, name)); !added) return added;
  }
  for (const fs::path& path : beside) {
    if (Result<void> added = add(path); !added) return added;
  }
  std::stable_sort(layers.begin(), layers.end(), [](const CalibrationLayer& a, const CalibrationLayer& b) { return a.level < b.level; });
  if (named.empty()) return {};

  const Result<fs::path> path = data.find(DataKind::calibration, named);
  if (!path) return tl::unexpected<Error>(path.error());
  Result<CalibrationLayer> layer = read_calibration(*path);
  if (!layer) return tl::unexpected<Error>(layer.error());
  if (!layer->device.empty() && layer->device != device.id) {
    return fail(ErrorCode::usage, "the calibration " + layer->id + " is of the device " + layer->device + ", not " + device.id, "--calibration", "use --device " + layer->device);
  }
  // Whoever names a layer wants it to win: it goes last, whatever its level. Of protocols only one applies.
  std::erase_if(layers, [&](const CalibrationLayer& other) { return other.id == layer->id || (layer->level == LayerLevel::protocol && other.level == LayerLevel::protocol); });
  layers.push_back(std::move(*layer));
  return {};
}

}  // namespace

DataPath DataPath::standard(const fs::path& installed) {
  DataPath data;
  if (const char* listed = std::getenv("ROOFTILE_DATA"); listed != nullptr) {
    std::string_view rest = listed;
    while (!rest.empty()) {
      const std::size_t colon = std::min(rest.find(':'), rest.size());
      add_root(data.roots, fs::path(rest.substr(0, colon)));
      rest.remove_prefix(std::min(colon + 1, rest.size()));
    }
  }
  add_root(data.roots, "rooftile");
  const char* config = std::getenv("XDG_CONFIG_HOME");
  const char* home = std::getenv("HOME");
  if (config != nullptr && *config != '\0') {
    add_root(data.roots, fs::path(config) / "rooftile");
  } else if (home != nullptr && *home != '\0') {
    add_root(data.roots, fs::path(home) / ".config" / "rooftile");
  }
  add_root(data.roots, installed);
  return data;
}

std::optional<fs::path> DataPath::find_name(DataKind kind, std::string_view name) const {
  if (!is_plain_name(name)) return std::nullopt;
  const std::string file = std::string(name) + std::string(folder_of(kind).extension);
  for (const fs::path& root : roots) {
    for (const fs::path& folder : folders(root, kind)) {
      if (is_file(folder / file)) return folder / file;
    }
  }
  if (kind != DataKind::runtime || name.find('@') != std::string_view::npos) return std::nullopt;
  // A runtime without version: the newest that is there.
  std::string newest;
  for (const std::string& candidate : names(kind)) {
    if (candidate.substr(0, candidate.find('@')) != name) continue;
    if (newest.empty() || version_less(version_of(newest), version_of(candidate))) newest = candidate;
  }
  return newest.empty() ? std::nullopt : find_name(kind, newest);
}

Result<fs::path> DataPath::find(DataKind kind, std::string_view name_or_file) const {
  if (std::optional<fs::path> named = find_name(kind, name_or_file)) return *named;
  const KindFolder folder = folder_of(kind);
  const std::string text(name_or_file);
  const bool looks_like_file = text.find('/') != std::string::npos || fs::path(text).extension() == folder.extension;
  if (text.find('\0') == std::string::npos && !text.empty()) {
    if (is_file(text)) return fs::path(text);
    std::error_code status;
    if (looks_like_file && fs::is_directory(text, status))
      return fail(ErrorCode::invalid, "is a folder, expected a " + std::string(folder.noun) + " file", text,
                  kind == DataKind::model ? "name the config.json, .yaml or .onnx in it" : "");
    if (kind == DataKind::model && looks_like_file && fs::is_fifo(text, status)) return fs::path(text);
    if (looks_like_file && fs::exists(text, status)) return fail(ErrorCode::invalid, "is neither a file nor a pipe", text);
  }
  // What looks like a path is a broken input, what looks like a name is a misspelt one.
  const bool foreign_file = kind == DataKind::model && (fs::path(text).extension() == ".onnx" || fs::path(text).extension() == ".json");
  if (looks_like_file || foreign_file)
    return fail(ErrorCode::invalid, "no such " + std::string(folder.noun) + " file", text, "known names: rooftile " + std::string(folder.noun) + "s");
  std::vector<std::string> known = names(kind);
  if (kind == DataKind::runtime) {
    std::set<std::string> plain(known.begin(), known.end());
    for (const std::string& name : known) plain.insert(name.substr(0, name.find('@')));
    known.assign(plain.begin(), plain.end());
  }
  const std::string hint = known.empty() ? "no data folder was found; set ROOFTILE_DATA to the folder that holds hardware/ and models/" : did_you_mean(text, known);
  return fail(ErrorCode::usage, "unknown " + std::string(folder.noun) + " '" + text + "'", {}, hint);
}

std::vector<std::string> DataPath::names(DataKind kind) const {
  std::set<std::string> found;
  for (const fs::path& root : roots) {
    for (const fs::path& folder : folders(root, kind)) {
      for (std::string& name : list_folder(folder, folder_of(kind).extension)) found.insert(std::move(name));
    }
  }
  return {found.begin(), found.end()};
}

Result<Machine> load_machine(const DataPath& data, std::string_view device, std::string_view cluster, std::string_view calibration) {
  Machine machine;
  const Result<fs::path> device_file = data.find(DataKind::device, device);
  if (!device_file) return tl::unexpected<Error>(device_file.error());
  Result<Device> read = read_device(*device_file, data);
  if (!read) return tl::unexpected<Error>(read.error());
  machine.device = std::move(*read);

  const std::string architecture(name_of(machine.device.architecture));
  std::optional<fs::path> catalogue_file = data.find_name(DataKind::catalogue, machine.device.variant);
  if (!catalogue_file) catalogue_file = data.find_name(DataKind::catalogue, architecture);
  if (!catalogue_file) {
    return fail(ErrorCode::unavailable, "no kernel catalogue for " + machine.device.variant + " or " + architecture, machine.device.file,
                "expected hardware/catalogues/" + architecture + ".yaml");
  }
  Result<Catalogue> catalogue = read_catalogue(*catalogue_file);
  if (!catalogue) return tl::unexpected<Error>(catalogue.error());
  machine.catalogue = std::move(*catalogue);

  std::vector<fs::path> beside;
  if (!data.find_name(DataKind::device, device)) beside = calibrations_beside(data, *device_file, machine.device);
  if (Result<void> added = add_layers(data, calibration, beside, machine); !added) return tl::unexpected<Error>(added.error());

  const Result<fs::path> cluster_file = data.find(DataKind::cluster, cluster.empty() ? machine.device.cluster : cluster);
  if (!cluster_file) return tl::unexpected<Error>(cluster_file.error());
  Result<Cluster> joined = read_cluster(*cluster_file);
  if (!joined) return tl::unexpected<Error>(joined.error());
  machine.cluster = std::move(*joined);
  return machine;
}

}  // namespace rooftile
