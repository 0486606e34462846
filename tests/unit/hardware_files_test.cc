// Readers, search path and lint on files that the test writes.
#include "frontends/hardware_files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <regex>
#include <sstream>

namespace rooftile {
namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

class HardwareFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "rooftile_hardware_XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
  }
  void TearDown() override {
    std::error_code status;
    fs::remove_all(root_, status);
  }

  fs::path write(const fs::path& name, const std::string& text) {
    const fs::path file = root_ / name;
    fs::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << text;
    return file;
  }

  // The shipped H100 with one pattern replaced.
  fs::path h100_with(const std::string& pattern, const std::string& replacement) {
    const std::string text = text_of(fs::path(ROOFTILE_SOURCE_DIR) / "hardware/devices/h100_sxm.yaml");
    const std::string changed = std::regex_replace(text, std::regex(pattern), replacement, std::regex_constants::format_first_only);
    EXPECT_NE(text, changed) << "nothing matches " << pattern;
    return write("changed.yaml", changed);
  }

  std::vector<Warning> lint_with(const std::string& pattern, const std::string& replacement) {
    const Result<Device> device = read_device(h100_with(pattern, replacement));
    EXPECT_TRUE(device.has_value()) << describe(device.error());
    return device ? lint(*device) : std::vector<Warning>{};
  }

  Error device_error(const std::string& pattern, const std::string& replacement) {
    const Result<Device> device = read_device(h100_with(pattern, replacement));
    EXPECT_FALSE(device.has_value()) << pattern;
    return device ? Error{} : device.error();
  }

  fs::path root_;
};

TEST_F(HardwareFiles, LintRefusesAPeakThatIsTwoAndAHalfPercentOff) {
  EXPECT_TRUE(lint_with("value: 989.4", "value: 1004").empty());  // 1.5 %
  const std::vector<Warning> above = lint_with("bf16: \\{value: 989.4", "bf16: {value: 1014.1");
  ASSERT_EQ(above.size(), 1u);
  EXPECT_EQ(above[0].code, "peak_disagrees");
  EXPECT_NE(above[0].message.find("2.5 % above 132 SMs x 4096 FLOP/clock/SM x 1.83 GHz"), std::string::npos) << above[0].message;
  EXPECT_EQ(lint_with("bf16: \\{value: 989.4", "bf16: {value: 964.7").size(), 1u);
  EXPECT_EQ(lint_with("fp32: \\{value: 66.9", "fp32: {value: 61.8").size(), 1u);  // right at the peak clock, but stated at the boost clock
}

TEST_F(HardwareFiles, LintMissesNoProvenance) {
  const auto code = [&](const std::string& pattern, const std::string& replacement) {
    const std::vector<Warning> warnings = lint_with(pattern, replacement);
    return warnings.size() == 1 ? warnings[0].code : std::to_string(warnings.size()) + " warnings";
  };
  EXPECT_EQ(code("unit: SM, source: sheet, ", "unit: SM, "), "source_missing");
  EXPECT_EQ(code("(unit: SM, .*), date: 2026-11-30", "$1"), "date_missing");
  EXPECT_EQ(code("(unit: SM, .*)kind: spec, ", "$1"), "kind_missing");
  EXPECT_EQ(code("(unit: SM, .*)kind: spec", "$1kind: guess"), "guess_without_note");
  EXPECT_EQ(code("value: 1980, unit: MHz", "value: 1800, unit: MHz"), "3 warnings");  // below the peak clock, and no longer that of the fp32 and fp64 peaks
}

TEST_F(HardwareFiles, DeviceErrorsNameTheirPlace) {
  EXPECT_NE(device_error("unit: SM", "unit: GB").message.find("expected SM"), std::string::npos);
  EXPECT_NE(device_error("power_limit: \\{value: 700, unit: W", "power_limit: {value: 700, unit: parsec").hint.find("known units"), std::string::npos);
  EXPECT_EQ(device_error("value: 80, unit: GB", "value: 80, unit: KB").hint, "write kB for 1000 bytes or KiB for 1024");
  EXPECT_EQ(device_error("architecture: hopper", "architecture: hoper").hint, "did you mean 'hopper'?");
  EXPECT_NE(device_error("boost_clock: ", "bost_clock: ").hint.find("boost_clock"), std::string::npos);
  EXPECT_NE(device_error("sms: \\{[^}]*\\}", "sms: 132").message.find("needs a number with its provenance"), std::string::npos);
  EXPECT_NE(device_error("value: 132", "value: 132.5").message.find("whole number"), std::string::npos);
  EXPECT_NE(device_error("value: 132", "value: -132").message.find("must not be negative"), std::string::npos);
  EXPECT_NE(device_error("value: 132", "value: 0").message.find("above zero"), std::string::npos);
  EXPECT_NE(device_error("value: 132", "value: .inf").message.find("expected a number"), std::string::npos);
  EXPECT_NE(device_error("value: 132", "value: \"132\"").message.find("expected a number"), std::string::npos);
  EXPECT_NE(device_error("value: 132", "value: 0x84").message.find("expected a number"), std::string::npos);
  EXPECT_NE(device_error("date: 2026-11-30", "date: 2026-02-30").message.find("is no date"), std::string::npos);
  EXPECT_EQ(device_error("kind: spec", "kind: specs").hint, "did you mean 'spec'?");
  EXPECT_NE(device_error("    bf16: \\{value: 4096.*\n", "").message.find("'bf16' is missing"), std::string::npos);
  EXPECT_NE(device_error("kind: device", "kind: runtime").message.find("this is a runtime file"), std::string::npos);
  EXPECT_NE(device_error("compute_capability: \"9.0\"", "compute_capability: 9").hint.find("9.0"), std::string::npos);

  const Error error = device_error("unit: SM", "unit: GB");
  EXPECT_EQ(error.code, ErrorCode::invalid);
  EXPECT_TRUE(std::regex_search(error.place, std::regex("changed\\.yaml:15:\\d+$"))) << error.place;
  EXPECT_EQ(read_device(root_ / "missing.yaml").error().code, ErrorCode::unavailable);
  EXPECT_EQ(read_device(root_).error().code, ErrorCode::invalid);
  EXPECT_EQ(read_device("/dev/zero").error().code, ErrorCode::invalid);
}

// Cutting the file anywhere, or flipping a byte, gives a value or an error with a place; never a crash.
TEST_F(HardwareFiles, BrokenFilesGiveErrors) {
  const std::string text = text_of(fs::path(ROOFTILE_SOURCE_DIR) / "hardware/devices/h100_sxm.yaml");
  for (std::size_t cut = 0; cut < text.size(); cut += 97) {
    const Result<Device> device = read_device(write("cut.yaml", text.substr(0, cut)));
    ASSERT_FALSE(device.has_value()) << cut;
    EXPECT_FALSE(device.error().place.empty());
    EXPECT_EQ(device.error().code, ErrorCode::invalid);
  }
  for (std::size_t at = 0; at < text.size(); at += 61) {
    for (const char byte : {'\0', '\xff', '[', '}', ':', '"', '&', '*', '\n', '\t', '-'}) {
      std::string flipped = text;
      flipped[at] = byte;
      const Result<Device> device = read_device(write("flipped.yaml", flipped));
      if (!device) {
        EXPECT_EQ(device.error().code, ErrorCode::invalid);
      }
    }
  }
}

TEST_F(HardwareFiles, ExtendsFollowsFilesAndNeverACircle) {
  const fs::path shipped = fs::path(ROOFTILE_SOURCE_DIR);
  const DataPath data{{shipped}};
  const std::string own =
      "kind: device\nid: mine\nname: Mine\nextends: h100_sxm\ndata_sheet:\n  power_limit: {value: 500, unit: W, source: bios setting, kind: spec, date: 2026-01-01}\n";
  const fs::path file = write("mine.yaml", own);
  const Result<Device> device = read_device(file, data);
  ASSERT_TRUE(device.has_value()) << describe(device.error());
  EXPECT_EQ(device->id, "mine");
  EXPECT_EQ(device->power_limit_w, 500);
  EXPECT_EQ(device->sms, 132);
  EXPECT_TRUE(lint(*device).empty());
  EXPECT_FALSE(read_device(file).has_value());  // without a data path the base is unknown

  // A file of the same name as its base extends the installed one.
  const Result<Device> shadow = read_device(write("h100_sxm.yaml", own), data);
  ASSERT_TRUE(shadow.has_value()) << describe(shadow.error());
  EXPECT_EQ(shadow->power_limit_w, 500);

  write("a.yaml", "kind: device\nid: a\nextends: b\n");
  const Result<Device> circle = read_device(write("b.yaml", "kind: device\nid: b\nextends: a\n"), data);
  ASSERT_FALSE(circle.has_value());
  EXPECT_NE(circle.error().hint.find("circle"), std::string::npos);
  const Result<Device> itself = read_device(write("c.yaml", "kind: device\nid: c\nextends: c\n"), data);
  ASSERT_FALSE(itself.has_value());
  EXPECT_EQ(itself.error().code, ErrorCode::invalid);
  EXPECT_FALSE(read_device(write("d.yaml", "kind: device\nextends: ../b\n"), data).has_value());
}

TEST_F(HardwareFiles, CatalogueTilesAsListOrGrid) {
  const std::string head = "kind: catalogue\nid: x\narchitecture: hopper\nsources: {s: a document}\nfamilies:\n";
  const std::string grid =
      "  - {name: grid, dtypes: [bf16], alignment: [8, 16], rate: 0.5, persistent: true, source: s, kind: guess, date: 2026-01-01, note: n,\n"
      "     iteration_latency: {value: 0.6, unit: us}, tiles: {m: [64, 128], n: [64, 256], max_area: 16384}, split_k: [1, 2]}\n";
  const Result<Catalogue> read = read_catalogue(write("x.yaml", head + grid + "  - {name: list, dtypes: [fp32], tensor_cores: false, tiles: [[64, 32], [128, 128, 8, 2]]}\n"));
  ASSERT_TRUE(read.has_value()) << describe(read.error());
  ASSERT_EQ(read->families.size(), 2u);
  const KernelFamily& family = read->families[0];
  EXPECT_EQ(family.tiles.size(), 3u);  // 128 x 256 is too large
  EXPECT_EQ(family.min_alignment, 8);
  EXPECT_EQ(family.rate, 0.5);
  EXPECT_DOUBLE_EQ(family.iteration_latency_s, 0.6e-6);
  EXPECT_TRUE(family.persistent);
  EXPECT_EQ(family.split_k, (std::vector<int>{1, 2}));
  EXPECT_EQ(read->families[1].tiles[1].stages, 2);
  EXPECT_EQ(read->families[1].split_k, (std::vector<int>{1}));
  EXPECT_TRUE(lint_provenance("x", {read->facts.begin(), read->facts.begin() + 3}).empty());
  EXPECT_EQ(read->facts[0].source, "a document");
  EXPECT_FALSE(lint_provenance("x", read->facts).empty());  // the second family has no source

  for (const std::string wrong :
       {"  - {name: a, dtypes: [bf61], tiles: [[1, 2]]}\n", "  - {name: a, dtypes: [bf16], tiles: []}\n", "  - {name: a, dtypes: [bf16], tiles: [[0, 2]]}\n",
        "  - {name: a, dtypes: [bf16], tiles: [[1, 2, 3, 4, 5]]}\n", "  - {name: a, dtypes: [bf16], tiles: [[64, 64]], alignment: [16, 8]}\n",
        "  - {name: a, dtypes: [bf16], tiles: [[64, 64]], rate: 0}\n", "  - {name: a, dtypes: [bf16], tiles: [[64, 64]]}\n  - {name: a, dtypes: [bf16], tiles: [[64, 64]]}\n",
        "  - {name: a, dtypes: [bf16], tile: [[64, 64]]}\n", "  []\n"}) {
    const Result<Catalogue> catalogue = read_catalogue(write("wrong.yaml", head + wrong));
    ASSERT_FALSE(catalogue.has_value()) << wrong;
    EXPECT_EQ(catalogue.error().code, ErrorCode::invalid);
    EXPECT_NE(catalogue.error().place.find("wrong.yaml:"), std::string::npos);
  }
}

TEST_F(HardwareFiles, CalibrationConstantsFlatOrNested) {
  const std::string text =
      "kind: calibration\nid: c\nlevel: protocol\narchitecture: hopper\ndevice: h100_sxm\nlibrary: cuBLAS 13.0\nprotocol: graph\n"
      "constants:\n  gemm.bf16.eta: {value: 93, unit: \"%\", source: s, kind: fitted, date: 2026-01-01}\n"
      "  launch: {base: {value: 2.8, unit: us, source: s, kind: fitted, date: 2026-01-01}}\n"
      "residuals:\n  gemm.bf16: {rows: 300, mean_abs: 0.05, median_abs: 0.04, p90_abs: 0.11, bias: -0.01, q10: -0.09, q90: 0.08}\n";
  const Result<CalibrationLayer> layer = read_calibration(write("c.yaml", text));
  ASSERT_TRUE(layer.has_value()) << describe(layer.error());
  EXPECT_EQ(layer->level, LayerLevel::protocol);
  const Calibration calibration{{*layer}};
  EXPECT_DOUBLE_EQ(calibration.find("gemm.bf16.eta").value(), 0.93);
  EXPECT_DOUBLE_EQ(calibration.find("launch.base").value(), 2.8e-6);
  EXPECT_FALSE(calibration.find("gemm.bf16").has_value());
  EXPECT_EQ(layer->residuals.at("gemm.bf16").rows, 300);
  EXPECT_DOUBLE_EQ(layer->residuals.at("gemm.bf16").q10, -0.09);
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{{"level: protocol", "level: protokoll"},
                                                                                 {"device: h100_sxm\n", ""},
                                                                                 {"rows: 300, ", ""},
                                                                                 {"q10: -0.09", "q10: 0.09"},
                                                                                 {"value: 93", "value: ninety"},
                                                                                 {"residuals", "residual"},
                                                                                 {"gemm.bf16.eta", "launch.base"}}) {
    std::string wrong = text;
    wrong.replace(wrong.find(from), from.size(), to);
    EXPECT_FALSE(read_calibration(write("wrong.yaml", wrong)).has_value()) << to;
  }
}

TEST_F(HardwareFiles, RuntimeRulesAreChecked) {
  const std::string text = text_of(fs::path(ROOFTILE_SOURCE_DIR) / "hardware/runtimes/torch-eager@2.11.yaml");
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{{"op: rmsnorm", "op: rmsnrom"},
                                                                                 {"kind: tanh_backward", "kind: tanh_bakward"},
                                                                                 {"function:gelu_new_backward", "function:jelu"},
                                                                                 {"when: [standard]", "when: [standart]"},
                                                                                 {"of: tokens*heads", "of: tokens*hats"},
                                                                                 {"tokens > 3072", "tokens > many"},
                                                                                 {"calls: 4", "calls: 0"},
                                                                                 {"part: forward", "prat: forward"},
                                                                                 {"attention: cudnn", "attention: flash9"},
                                                                                 {"gap: {value: 1.5, unit: us", "gap: {value: 1.5, unit: MB"},
                                                                                 {"main_weights: false", "main_weights: true"},
                                                                                 {"main_weights: false", "main_weights: no"}}) {
    std::string wrong = text;
    ASSERT_NE(wrong.find(from), std::string::npos) << from;
    wrong.replace(wrong.find(from), from.size(), to);
    const Result<Runtime> runtime = read_runtime(write("wrong.yaml", wrong));
    ASSERT_FALSE(runtime.has_value()) << to;
    EXPECT_EQ(runtime.error().code, ErrorCode::invalid);
  }
}

TEST_F(HardwareFiles, FullIsAnOptionOfSame) {
  const std::string text = text_of(fs::path(ROOFTILE_SOURCE_DIR) / "hardware/runtimes/torch-compile@2.11.yaml");
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{{"kind: same, full: true", "kind: copy, full: true"}, {"full: true", "full: maybe"}}) {
    std::string wrong = text;
    ASSERT_NE(wrong.find(from), std::string::npos) << from;
    wrong.replace(wrong.find(from), from.size(), to);
    EXPECT_FALSE(read_runtime(write("wrong.yaml", wrong)).has_value()) << to;
  }
}

TEST_F(HardwareFiles, SearchPathTakesTheFirstRoot) {
  const std::string cluster = text_of(fs::path(ROOFTILE_SOURCE_DIR) / "hardware/clusters/single.yaml");
  write("one/hardware/clusters/mine.yaml", cluster);
  write("two/hardware/clusters/mine.yaml", cluster);
  write("two/hardware/clusters/other.yaml", cluster);
  write("two/clusters/short.yaml", cluster);  // people's own folders need no hardware/
  write("two/hardware/clusters/notes.txt", "no");
  write("two/hardware/clusters/.hidden.yaml", cluster);
  fs::create_symlink("nowhere", root_ / "two/hardware/clusters/dangling.yaml");
  fs::create_symlink(root_ / "two/hardware/clusters/loop.yaml", root_ / "two/hardware/clusters/loop.yaml");
  fs::create_symlink("other.yaml", root_ / "two/hardware/clusters/link.yaml");
  fs::create_directory(root_ / "two/hardware/clusters/folder.yaml");
  fs::create_directory_symlink(root_, root_ / "two/hardware/clusters/up");
  const DataPath data{{root_ / "one", root_ / "missing", root_ / "two"}};
  EXPECT_EQ(data.names(DataKind::cluster), (std::vector<std::string>{"link", "mine", "other", "short"}));
  EXPECT_EQ(data.find(DataKind::cluster, "mine").value(), root_ / "one/hardware/clusters/mine.yaml");
  EXPECT_EQ(data.find(DataKind::cluster, "short").value(), root_ / "two/clusters/short.yaml");
  EXPECT_EQ(data.find(DataKind::cluster, (root_ / "two/hardware/clusters/other.yaml").string()).value(), root_ / "two/hardware/clusters/other.yaml");
  EXPECT_TRUE(data.names(DataKind::device).empty());

  const Result<fs::path> misspelt = data.find(DataKind::cluster, "oter");
  ASSERT_FALSE(misspelt.has_value());
  EXPECT_EQ(misspelt.error().code, ErrorCode::usage);
  EXPECT_EQ(misspelt.error().hint, "did you mean 'other'?");
  for (const std::string& name : {std::string("../clusters/mine"), std::string("dangling"), std::string(""), std::string("mine\0x", 6), std::string("/dev/zero"), root_.string(),
                                  std::string(5000, 'a'), std::string("loop")}) {
    EXPECT_FALSE(data.find(DataKind::cluster, name).has_value()) << name.substr(0, 80);
  }
  EXPECT_FALSE(DataPath{}.find(DataKind::cluster, "mine").has_value());
}

TEST_F(HardwareFiles, RuntimeWithoutVersionIsTheNewest) {
  const std::string text = text_of(fs::path(ROOFTILE_SOURCE_DIR) / "hardware/runtimes/fused.yaml");
  for (const std::string name : {"eager@2.9", "eager@2.11", "eager@2.11.1", "eager-x@3.0", "plain"}) write("hardware/runtimes/" + name + ".yaml", text);
  const DataPath data{{root_}};
  EXPECT_EQ(data.find(DataKind::runtime, "eager").value().filename(), "eager@2.11.1.yaml");
  EXPECT_EQ(data.find(DataKind::runtime, "eager@2.9").value().filename(), "eager@2.9.yaml");
  EXPECT_EQ(data.find(DataKind::runtime, "plain").value().filename(), "plain.yaml");
  EXPECT_FALSE(data.find(DataKind::runtime, "eager@2.8").has_value());
  EXPECT_EQ(data.find(DataKind::runtime, "eagre").error().hint, "did you mean 'eager'?");
}

TEST_F(HardwareFiles, StandardPathReadsTheEnvironment) {
  fs::create_directories(root_ / "env");
  fs::create_directories(root_ / "env2");
  fs::create_directories(root_ / "config/rooftile");
  fs::create_directories(root_ / "installed");
  setenv("ROOFTILE_DATA", ((root_ / "env").string() + ":" + (root_ / "missing").string() + "::" + (root_ / "env2").string()).c_str(), 1);
  setenv("XDG_CONFIG_HOME", (root_ / "config").c_str(), 1);
  const DataPath data = DataPath::standard(root_ / "installed");
  unsetenv("ROOFTILE_DATA");
  unsetenv("XDG_CONFIG_HOME");
  ASSERT_GE(data.roots.size(), 4u);
  EXPECT_EQ(data.roots[0], root_ / "env");
  EXPECT_EQ(data.roots[1], root_ / "env2");
  EXPECT_EQ(data.roots[data.roots.size() - 2], root_ / "config/rooftile");
  EXPECT_EQ(data.roots.back(), root_ / "installed");
}

TEST_F(HardwareFiles, MachineTakesTheLayersOfItsDevice) {
  const fs::path source = ROOFTILE_SOURCE_DIR;
  fs::create_directories(root_ / "hardware");
  for (const std::string folder : {"devices", "clusters"}) fs::copy(source / "hardware" / folder, root_ / "hardware" / folder, fs::copy_options::recursive);
  const auto catalogue = [&](const std::string& id, const std::string& architecture) {
    write("hardware/catalogues/" + id + ".yaml",
          "kind: catalogue\nid: " + id + "\narchitecture: " + architecture + "\nfamilies:\n  - {name: a, dtypes: [bf16], tiles: [[64, 64]]}\n");
  };
  const auto layer = [&](const std::string& id, const std::string& fields) {
    write("hardware/calibrations/" + id + ".yaml", "kind: calibration\nid: " + id + "\n" + fields + "\nconstants: {}\n");
  };
  catalogue("ampere", "ampere");
  catalogue("ga102", "ampere");
  layer("arch-ampere", "level: architecture\narchitecture: ampere");
  layer("a40-cublas12", "level: protocol\ndevice: a40\nprotocol: graph\ndefault: true");
  layer("a40@percall", "level: protocol\ndevice: a40\nprotocol: percall");
  layer("a40", "level: device\ndevice: a40");
  layer("a40x", "level: device\ndevice: a40x");
  layer("t4", "level: device\ndevice: t4");
  layer("mine", "level: site\ndevice: a40\nsite: our rack");
  const DataPath data{{root_}};
  const auto ids = [](const Machine& machine) {
    std::vector<std::string> result;
    for (const CalibrationLayer& entry : machine.calibration.layers) result.push_back(entry.id);
    return result;
  };
  const Result<Machine> a40 = load_machine(data, "a40", "", "");
  ASSERT_TRUE(a40.has_value()) << describe(a40.error());
  EXPECT_EQ(a40->catalogue.id, "ga102");  // by variant first
  EXPECT_EQ(ids(*a40), (std::vector<std::string>{"arch-ampere", "a40", "a40-cublas12"}));
  EXPECT_EQ(a40->calibration.protocols.size(), 2u);
  // Another protocol that is named takes the default one's place.
  EXPECT_EQ(ids(*load_machine(data, "a40", "", "a40@percall")), (std::vector<std::string>{"arch-ampere", "a40", "a40@percall"}));
  EXPECT_EQ(a40->cluster.id, "pcie4_8x");
  const Result<Machine> named = load_machine(data, "a40", "single", "mine");
  ASSERT_TRUE(named.has_value()) << describe(named.error());
  EXPECT_EQ(ids(*named).back(), "mine");
  EXPECT_EQ(named->cluster.gpus_per_node, 1);
  EXPECT_EQ(load_machine(data, "a100_sxm_80gb", "", "")->catalogue.id, "ampere");

  EXPECT_EQ(load_machine(data, "a40", "", "t4").error().code, ErrorCode::usage);
  EXPECT_EQ(load_machine(data, "a4", "", "").error().code, ErrorCode::usage);
  EXPECT_EQ(load_machine(data, "h100_sxm", "", "").error().code, ErrorCode::unavailable);  // no catalogue of its architecture
  EXPECT_EQ(load_machine(data, "a40", "singel", "").error().hint, "did you mean 'single'?");
  layer("a40@second", "level: protocol\ndevice: a40\nprotocol: other\ndefault: true");
  EXPECT_EQ(load_machine(data, "a40", "", "").error().message, "two protocol layers of a40 say 'default: true'");
  layer("a40-broken", "level: protocol\ndevice: a40\nsites: x");
  EXPECT_EQ(load_machine(data, "a40", "", "").error().code, ErrorCode::invalid);
}

}  // namespace
}  // namespace rooftile
