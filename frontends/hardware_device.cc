// Reads hardware/devices/*.yaml. Sections of a file: data_sheet (what the vendor states), chip (what the architecture has per SM and caches), measured (what was observed).
#include <array>
#include <cmath>
#include <optional>

#include "estimator/core/suggest.h"
#include "frontends/hardware_files.h"
#include "frontends/hardware_reader.h"

namespace rooftile {
namespace {

constexpr int kExtendsLimit = 4;

struct RateKey {
  std::string_view key;
  DType dtype;
};
constexpr std::array<RateKey, 9> kRateKeys = {{{"bf16", DType::bf16},
                                               {"fp16", DType::fp16},
                                               {"tf32", DType::tf32},
                                               {"fp32", DType::fp32},
                                               {"fp64", DType::fp64},
                                               {"fp8", DType::fp8_e4m3},
                                               {"fp4", DType::fp4},
                                               {"int8", DType::int8},
                                               {"int4", DType::int4}}};

// The file with what it extends merged beneath it. A base is looked for beside the file, then among the installed devices.
Result<YamlNode> read_merged(const std::filesystem::path& file, const DataPath* data, int depth) {
  Result<YamlNode> tree = read_yaml(file);
  if (!tree) return tree;
  const YamlNode* base = tree->find("extends");
  if (base == nullptr) return tree;
  const std::string place = base->place();
  if (base->kind != YamlNode::Kind::scalar || base->scalar.empty() || base->scalar.find('/') != std::string::npos) {
    return fail(ErrorCode::invalid, "'extends' must be a device id", place);
  }
  if (depth >= kExtendsLimit) return fail(ErrorCode::invalid, "'extends' goes more than " + std::to_string(kExtendsLimit) + " files deep", place, "is there a circle?");
  std::filesystem::path base_file = file.parent_path() / (base->scalar + ".yaml");
  std::error_code status;
  if (!std::filesystem::exists(base_file, status) || std::filesystem::equivalent(base_file, file, status)) {
    Result<std::filesystem::path> found =
        data != nullptr ? data->find(DataKind::device, base->scalar) : fail(ErrorCode::invalid, "no device '" + base->scalar + "' beside this file");
    if (!found || std::filesystem::equivalent(*found, file, status)) {
      return fail(ErrorCode::invalid, "'extends' names no device: " + base->scalar, place, found ? std::string("a device cannot extend itself") : found.error().hint);
    }
    base_file = *found;
  }
  Result<YamlNode> below = read_merged(base_file, data, depth + 1);
  if (!below) return below;
  return merge_yaml(std::move(*below), *tree);
}

class DeviceReader {
 public:
  explicit DeviceReader(const YamlNode& root) : reader_(root, "device") {}

  Result<Device> read(const std::filesystem::path& file) {
    device_.file = file.string();
    identity();
    data_sheet();
    chip();
    measured();
    peaks();
    if (!reader_.ok()) return tl::unexpected<Error>(reader_.error());
    return std::move(device_);
  }

 private:
  void identity() {
    const YamlNode& root = reader_.root();
    reader_.allow_keys(root, {"kind", "id", "name", "architecture", "variant", "compute_capability", "cluster", "extends", "sources", "data_sheet", "chip", "measured"});
    device_.id = reader_.text(root, "id", Need::required);
    device_.name = reader_.text(root, "name", Need::required);
    device_.variant = reader_.text(root, "variant", Need::required);
    device_.cluster = reader_.text(root, "cluster", Need::required);
    const std::string architecture = reader_.text(root, "architecture", Need::required);
    std::vector<std::string> known;
    bool found = false;
    for (int i = 0; i <= static_cast<int>(Architecture::blackwell); ++i) {
      const auto candidate = static_cast<Architecture>(i);
      known.emplace_back(name_of(candidate));
      if (name_of(candidate) == architecture) {
        device_.architecture = candidate;
        found = true;
      }
    }
    if (!found && reader_.ok()) reader_.refuse(*root.find("architecture"), "unknown architecture '" + architecture + "'", did_you_mean(architecture, known));
    const std::string capability = reader_.text(root, "compute_capability", Need::required);
    const bool digits =
        capability.size() >= 3 && capability.size() <= 4 && capability.find_first_not_of("0123456789.") == std::string::npos && capability[capability.size() - 2] == '.';
    if (digits) {
      device_.compute_capability = std::stoi(capability.substr(0, capability.size() - 2)) * 10 + (capability.back() - '0');
    } else if (reader_.ok()) {
      reader_.refuse(*root.find("compute_capability"), "'" + capability + "' is no compute capability", "write it as \"9.0\"");
    }
  }

  // A required number that must be positive.
  double positive(const YamlNode& map, std::string_view key, std::string_view unit, std::string_view section, std::string_view prefix = {}) {
    const double value = reader_.number(map, key, unit, section, device_.facts, Need::required, 0, prefix);
    if (reader_.ok() && !(value > 0)) reader_.refuse(*map.find(key), "'" + std::string(key) + "' must be above zero");
    return value;
  }

  void data_sheet() {
    const YamlNode* section = reader_.get_map(reader_.root(), "data_sheet", Need::required);
    if (section == nullptr) return;
    constexpr std::string_view kName = "data_sheet";
    reader_.allow_keys(*section, {"sms", "peak_clock", "boost_clock", "power_limit", "peak", "memory", "link", "pcie"});
    const double sms = positive(*section, "sms", "SM", kName);
    if (reader_.ok() && (sms != std::floor(sms) || sms > 100000)) reader_.refuse(*section->find("sms"), "'sms' must be a whole number");
    device_.sms = reader_.ok() ? static_cast<int>(sms) : 0;
    device_.peak_clock_hz = positive(*section, "peak_clock", "Hz", kName);
    device_.boost_clock_hz = positive(*section, "boost_clock", "Hz", kName);
    device_.power_limit_w = positive(*section, "power_limit", "W", kName);
    if (const YamlNode* memory = reader_.get_map(*section, "memory", Need::required)) {
      reader_.allow_keys(*memory, {"capacity", "bandwidth"});
      device_.memory_bytes = positive(*memory, "capacity", "B", kName, "memory");
      device_.memory_bandwidth = positive(*memory, "bandwidth", "B/s", kName, "memory");
    }
    if (const YamlNode* link = reader_.get_map(*section, "link", Need::required)) {
      reader_.allow_keys(*link, {"type", "bandwidth"});
      device_.link = reader_.text(*link, "type", Need::required);
      device_.link_bandwidth = positive(*link, "bandwidth", "B/s", kName, "link");
    }
    if (const YamlNode* pcie = reader_.get_map(*section, "pcie", Need::required)) {
      reader_.allow_keys(*pcie, {"bandwidth"});
      device_.pcie_bandwidth = positive(*pcie, "bandwidth", "B/s", kName, "pcie");
    }
  }

  void chip() {
    const YamlNode* section = reader_.get_map(reader_.root(), "chip", Need::required);
    if (section == nullptr) return;
    constexpr std::string_view kName = "chip";
    reader_.allow_keys(*section, {"rate", "special_rate", "l2", "l2_bandwidth", "shared_memory_per_sm", "registers_per_sm", "threads_per_sm"});
    device_.special_per_clock_per_sm = positive(*section, "special_rate", "1/clock/SM", kName);
    device_.l2_bytes = positive(*section, "l2", "B", kName);
    device_.l2_bandwidth = reader_.number(*section, "l2_bandwidth", "B/s", kName, device_.facts, Need::optional);
    device_.shared_memory_per_sm = positive(*section, "shared_memory_per_sm", "B", kName);
    device_.registers_per_sm = positive(*section, "registers_per_sm", "register", kName);
    device_.max_threads_per_sm = positive(*section, "threads_per_sm", "thread", kName);
  }

  // Anything that was observed; `sustained_clock` and `l2_bandwidth` are used, other numbers are shown.
  void measured() {
    const YamlNode* section = reader_.get_map(reader_.root(), "measured", Need::optional);
    if (section == nullptr) return;
    for (const YamlEntry& entry : section->entries) {
      const std::string_view unit = entry.key == "sustained_clock" ? "Hz" : entry.key == "l2_bandwidth" ? "B/s" : "";
      const double value = reader_.number(*section, entry.key, unit, "measured", device_.facts, Need::required);
      if (entry.key == "sustained_clock") device_.sustained_clock_hz = value;
      if (entry.key == "l2_bandwidth") device_.l2_bandwidth = value;
    }
  }

  // data_sheet.peak and chip.rate must name the same dtypes.
  void peaks() {
    if (!reader_.ok()) return;
    const YamlNode* peak = reader_.get_map(*reader_.root().find("data_sheet"), "peak", Need::required);
    const YamlNode* rate = reader_.get_map(*reader_.root().find("chip"), "rate", Need::required);
    if (peak == nullptr || rate == nullptr) return;
    for (const YamlNode* map : {peak, rate}) reader_.allow_keys(*map, {"bf16", "fp16", "tf32", "fp32", "fp64", "fp8", "fp4", "int8", "int4"});
    for (const RateKey& entry : kRateKeys) {
      const bool needed = entry.dtype == DType::fp32;
      if (!needed && peak->find(entry.key) == nullptr && rate->find(entry.key) == nullptr) continue;
      MathRate math;
      math.peak_flops = peak_of(*peak, entry.key, math.clock_hz);
      math.flop_per_clock_per_sm = positive(*rate, entry.key, "FLOP/clock/SM", "chip", "rate");
      device_.math[static_cast<std::size_t>(entry.dtype)] = math;
      if (entry.dtype == DType::fp8_e4m3) device_.math[static_cast<std::size_t>(DType::fp8_e5m2)] = math;
      if (entry.dtype == DType::fp32) device_.vector_fp32 = math;
    }
  }

  // A peak may say `at: boost_clock` where the data sheet states it at that clock.
  double peak_of(const YamlNode& map, std::string_view key, double& clock_hz) {
    const YamlNode* node = reader_.get(map, key, Need::required);
    if (node == nullptr) return 0;
    const std::optional<Fact> fact = reader_.fact(*node, "peak." + std::string(key), "FLOP/s", "data_sheet", {"at"});
    if (!fact) return 0;
    if (!(fact->value > 0)) reader_.refuse(*node->find("value"), "a peak must be above zero");
    const std::string at = reader_.text(*node, "at", Need::optional);
    if (at == "boost_clock") {
      clock_hz = device_.boost_clock_hz;
    } else if (!at.empty() && at != "peak_clock") {
      reader_.refuse(*node->find("at"), "'at' must be peak_clock or boost_clock");
    }
    device_.facts.push_back(*fact);
    return fact->value;
  }

  HardwareReader reader_;
  Device device_;
};

Result<Device> read(const std::filesystem::path& file, const DataPath* data) {
  const Result<YamlNode> tree = read_merged(file, data, 0);
  if (!tree) return tl::unexpected<Error>(tree.error());
  return DeviceReader(*tree).read(file);
}

}  // namespace

Result<Device> read_device(const std::filesystem::path& file) { return read(file, nullptr); }
Result<Device> read_device(const std::filesystem::path& file, const DataPath& data) { return read(file, &data); }

}  // namespace rooftile
