// Every shipped file of hardware/ loads, passes its lint and says where each number is from.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "frontends/hardware_files.h"

namespace rooftile {
namespace {

const std::filesystem::path kSource = ROOFTILE_SOURCE_DIR;
const DataPath kShipped{{kSource}};

void expect_clean(const std::vector<Warning>& warnings) {
  for (const Warning& warning : warnings) ADD_FAILURE() << warning.code << ": " << warning.message;
}

TEST(HardwareData, EveryDeviceOfTheContractIsThere) {
  const std::vector<std::string> ids = {"a100_sxm_40gb",
                                        "a100_sxm_80gb",
                                        "a100_pcie_40gb",
                                        "a100_pcie_80gb",
                                        "h100_sxm",
                                        "h100_pcie",
                                        "h100_nvl",
                                        "h200_sxm",
                                        "h800_sxm",
                                        "h20",
                                        "b200_sxm",
                                        "b300_sxm",
                                        "gb200",
                                        "gb300",
                                        "l4",
                                        "l40",
                                        "l40s",
                                        "a10",
                                        "a30",
                                        "a40",
                                        "a6000",
                                        "t4",
                                        "v100_sxm_16gb",
                                        "v100_sxm_32gb",
                                        "v100_pcie_32gb",
                                        "rtx_3090",
                                        "rtx_4090",
                                        "rtx_5090",
                                        "rtx_6000_ada",
                                        "rtx_pro_6000_server"};
  const std::vector<std::string> names = kShipped.names(DataKind::device);
  const std::set<std::string> shipped(names.begin(), names.end());
  for (const std::string& id : ids) EXPECT_TRUE(shipped.contains(id)) << id;
}

TEST(HardwareData, DevicesPassTheLint) {
  for (const std::string& name : kShipped.names(DataKind::device)) {
    SCOPED_TRACE(name);
    const Result<Device> device = read_device(*kShipped.find_name(DataKind::device, name));
    ASSERT_TRUE(device.has_value()) << describe(device.error());
    EXPECT_EQ(device->id, name);
    expect_clean(lint(*device));
    EXPECT_GT(device->vector_fp32.peak_flops, 0);
    EXPECT_EQ(device->rate(DType::fp32).peak_flops, device->vector_fp32.peak_flops);
    EXPECT_GE(device->facts.size(), 18u);
    const bool has_bf16 = device->compute_capability >= 80, has_fp8 = device->compute_capability >= 89;
    EXPECT_EQ(device->rate(DType::bf16).peak_flops > 0, has_bf16);
    EXPECT_EQ(device->rate(DType::fp8_e4m3).peak_flops > 0, has_fp8);
    EXPECT_EQ(device->rate(DType::fp8_e5m2).peak_flops, device->rate(DType::fp8_e4m3).peak_flops);
    EXPECT_TRUE(kShipped.find_name(DataKind::cluster, device->cluster).has_value()) << device->cluster;
  }
}

TEST(HardwareData, NumbersOfTheDataSheets) {
  const Device h100 = *read_device(kSource / "hardware/devices/h100_sxm.yaml");
  EXPECT_EQ(h100.rate(DType::bf16).peak_flops, 989.4e12);
  EXPECT_EQ(h100.peak_clock_hz, 1830e6);
  EXPECT_EQ(h100.boost_clock_hz, 1980e6);
  EXPECT_EQ(h100.vector_fp32.clock_hz, 1980e6);
  EXPECT_EQ(h100.rate(DType::bf16).clock_hz, 0);
  EXPECT_EQ(h100.memory_bytes, 80e9);
  EXPECT_EQ(h100.memory_bandwidth, 3.35e12);
  EXPECT_EQ(h100.l2_bytes, 50 * 1048576.0);
  EXPECT_EQ(h100.compute_capability, 90);
  const Device small = *read_device(kSource / "hardware/devices/a100_sxm_40gb.yaml");
  const Device large = *read_device(kSource / "hardware/devices/a100_sxm_80gb.yaml");
  EXPECT_EQ(small.memory_bytes, 40e9);
  EXPECT_EQ(small.memory_bandwidth, 1555e9);
  EXPECT_EQ(small.rate(DType::bf16).peak_flops, large.rate(DType::bf16).peak_flops);
  const Device geforce = *read_device(kSource / "hardware/devices/rtx_4090.yaml");
  EXPECT_EQ(geforce.rate(DType::bf16).flop_per_clock_per_sm, 512);  // GeForce accumulates into fp32 at half rate
  const Device ultra = *read_device(kSource / "hardware/devices/b300_sxm.yaml");
  EXPECT_EQ(ultra.special_per_clock_per_sm, 32);
  EXPECT_EQ(ultra.compute_capability, 103);
}

TEST(HardwareData, ClustersLoad) {
  for (const std::string& name : kShipped.names(DataKind::cluster)) {
    SCOPED_TRACE(name);
    const Result<Cluster> cluster = read_cluster(*kShipped.find_name(DataKind::cluster, name));
    ASSERT_TRUE(cluster.has_value()) << describe(cluster.error());
    EXPECT_EQ(cluster->id, name);
    expect_clean(lint_provenance(name, cluster->facts));
    EXPECT_GT(cluster->intra_node.bandwidth, 0);
    EXPECT_GT(cluster->inter_node.bandwidth, 0);
    if (name.starts_with("nvlink")) {
      EXPECT_GT(cluster->intra_node.bandwidth, cluster->inter_node.bandwidth);
    }
  }
  EXPECT_EQ(read_cluster(kSource / "hardware/clusters/gb200_nvl72.yaml")->gpus_per_node, 72);
}

TEST(HardwareData, CataloguesAndCalibrationsLoad) {
  for (const std::string& name : kShipped.names(DataKind::catalogue)) {
    SCOPED_TRACE(name);
    const Result<Catalogue> catalogue = read_catalogue(*kShipped.find_name(DataKind::catalogue, name));
    ASSERT_TRUE(catalogue.has_value()) << describe(catalogue.error());
    EXPECT_FALSE(catalogue->families.empty());
    expect_clean(lint_provenance(name, catalogue->facts));
  }
  for (const std::string& name : kShipped.names(DataKind::calibration)) {
    SCOPED_TRACE(name);
    const Result<CalibrationLayer> layer = read_calibration(*kShipped.find_name(DataKind::calibration, name));
    ASSERT_TRUE(layer.has_value()) << describe(layer.error());
    expect_clean(lint_provenance(name, layer->facts));
  }
}

// Bytes per element that the kernels of a rule move in a 16-bit dtype, by the table of pointwise kernels: what the traces show, and what transcription could break.
double rule_bytes(const Runtime& runtime, OpKind op, const std::string& part, const std::string& when, int& calls) {
  struct Row {
    double reads, writes;
  };
  constexpr std::array kRows = {
#define POINTWISE_KIND(id, reads, writes, flops, special, doc) Row{reads, writes},
#include "estimator/timing/pointwise.def"
  };
  double bytes = 0;
  calls = 0;
  for (const LoweringRule& rule : runtime.rules) {
    if (rule.op != op || rule.part != part || rule.when != when) continue;
    for (const RuleKernel& kernel : rule.kernels) {
      const Row row = kRows[static_cast<std::size_t>(kernel.kind)];
      const bool cast = kernel.kind == PointwiseKind::cast;
      const double read = kernel.fp32 ? 4 : 2, write = kernel.to_fp32 ? 4 : cast ? 2 : read;
      bytes += kernel.calls * kernel.scale * (row.reads * read + row.writes * write);
      calls += kernel.calls;
    }
  }
  return bytes;
}

TEST(HardwareData, RuntimesLoadAndEagerRulesMoveTheBytesOfTheTraces) {
  for (const std::string& name : kShipped.names(DataKind::runtime)) {
    SCOPED_TRACE(name);
    const Result<Runtime> runtime = read_runtime(*kShipped.find_name(DataKind::runtime, name));
    ASSERT_TRUE(runtime.has_value()) << describe(runtime.error());
    EXPECT_EQ(runtime->id + (runtime->version.empty() ? "" : "@" + runtime->version), name);
    expect_clean(lint_provenance(name, runtime->facts));
    EXPECT_GE(runtime->launch_gap_s, runtime->graph_gap_s);
  }
  const Runtime eager = *read_runtime(*kShipped.find(DataKind::runtime, "torch-eager"));
  EXPECT_DOUBLE_EQ(eager.launch_gap_s, 1.5e-6);
  EXPECT_EQ(eager.workspace_bytes + eager.backward_workspace_bytes, 64.0 * (1 << 20));
  EXPECT_GT(eager.memory_programs.size(), 15u);
  int calls = 0;
  EXPECT_DOUBLE_EQ(rule_bytes(eager, OpKind::activation, "forward", "gelu_new", calls), 36);
  EXPECT_EQ(calls, 8);
  EXPECT_DOUBLE_EQ(rule_bytes(eager, OpKind::activation, "backward", "gelu_new_backward", calls), 56);
  EXPECT_EQ(calls, 11);
  EXPECT_NEAR(rule_bytes(eager, OpKind::rmsnorm, "forward", "", calls), 36, 0.1);
  EXPECT_EQ(calls, 8);
  EXPECT_NEAR(rule_bytes(eager, OpKind::rmsnorm, "backward", "", calls), 92, 0.1);
  EXPECT_EQ(calls, 16);
  EXPECT_DOUBLE_EQ(rule_bytes(eager, OpKind::rotary, "forward", "", calls), 20);
  EXPECT_EQ(calls, 10);
  rule_bytes(eager, OpKind::rotary, "backward", "", calls);
  EXPECT_EQ(calls, 20);
  const Runtime megatron = *read_runtime(*kShipped.find(DataKind::runtime, "megatron"));
  EXPECT_EQ(megatron.vocabulary_multiple, 128);
  EXPECT_TRUE(megatron.fused_gradient_accumulation);
  const Runtime fused = *read_runtime(*kShipped.find(DataKind::runtime, "fused"));
  EXPECT_TRUE(fused.rules.empty());
}

// The YAML blocks of docs/adding-a-device.md are devices that a reader can copy.
TEST(HardwareData, TheGuidesExamplesAreSound) {
  std::ifstream stream(kSource / "docs/adding-a-device.md");
  std::string line, block;
  bool inside = false;
  int blocks = 0;
  while (std::getline(stream, line)) {
    if (line == "```yaml") {
      inside = true;
      block.clear();
    } else if (line == "```" && inside) {
      inside = false;
      const std::filesystem::path file = std::filesystem::temp_directory_path() / ("rooftile_guide_" + std::to_string(++blocks) + ".yaml");
      std::ofstream(file) << block;
      const Result<Device> device = read_device(file, kShipped);
      std::filesystem::remove(file);
      ASSERT_TRUE(device.has_value()) << describe(device.error());
      expect_clean(lint(*device));
    } else if (inside) {
      block += line + "\n";
    }
  }
  EXPECT_EQ(blocks, 2);
}

TEST(HardwareData, EveryKindOfFileHasASchema) {
  for (const std::string& kind : {std::string("device"), std::string("catalogue"), std::string("calibration"), std::string("cluster"), std::string("runtime")}) {
    const std::optional<std::filesystem::path> file = kShipped.find_name(DataKind::schema, kind);
    ASSERT_TRUE(file.has_value()) << kind;
    std::ifstream stream(*file);
    const nlohmann::json schema = nlohmann::json::parse(stream);
    EXPECT_EQ(schema["properties"]["kind"]["const"], kind);
    EXPECT_EQ(schema["additionalProperties"], false);
  }
}

TEST(HardwareData, EveryDeviceMakesAMachineQuickly) {
  if (kShipped.names(DataKind::catalogue).empty()) GTEST_SKIP() << "no kernel catalogues here";
  for (const std::string& name : kShipped.names(DataKind::device)) {
    double best_s = 1;
    for (int repeat = 0; repeat < 5; ++repeat) {
      const auto start = std::chrono::steady_clock::now();
      const Result<Machine> machine = load_machine(kShipped, name, "", "");
      best_s = std::min(best_s, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
      ASSERT_TRUE(machine.has_value()) << describe(machine.error());
      EXPECT_EQ(machine->cluster.id, machine->device.cluster);
      EXPECT_EQ(machine->catalogue.architecture, name_of(machine->device.architecture)) << name;
    }
    EXPECT_LT(best_s, 0.100) << name;  // 2 ms in a release build; sanitizers are slower
  }
}

}  // namespace
}  // namespace rooftile
