// Calibrated devices stay explainable: few physical constants for each dtype and class of kernels.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <set>
#include <string>

#include "frontends/hardware_files.h"

namespace rooftile {
namespace {

constexpr int kMost = 10;

// What a constant counts for: "gemm.bf16", "misaligned", "attention.cudnn", "softmax"; "shared" ones count for every dtype of gemm.
std::string group_of(const std::string& key) {
  const auto words = [&](int count) {
    std::size_t end = 0;
    for (int i = 0; i < count && end != std::string::npos; ++i) end = key.find('.', end == 0 ? 0 : end + 1);
    return key.substr(0, end);
  };
  if (key.rfind("gemm.family.", 0) == 0 || key == "gemm.line_split") return "misaligned";
  if (key == "gemm.store_split" || key.rfind("clock.", 0) == 0 || key.rfind("l2.", 0) == 0 || key.rfind("split_k.", 0) == 0) return "shared";
  if (key.rfind("attention.", 0) == 0) return words(2) + (key.find(".bwd") != std::string::npos ? ".bwd" : ".fwd");
  if (key.rfind("gemm.", 0) == 0) return words(2);
  return words(1);
}

TEST(ConstantCount, AtMostTenForEachDtypeOfADevice) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(ROOFTILE_SOURCE_DIR) / "hardware/calibrations")) {
    const std::string stem = entry.path().stem().string();
    if (entry.path().extension() != ".yaml" || stem.rfind("arch-", 0) == 0) continue;
    const auto layer = read_calibration(entry.path().string());
    ASSERT_TRUE(layer.has_value()) << stem;
    if (layer->level != LayerLevel::device) continue;
    ++files;
    std::map<std::string, int> counts;
    for (const Fact& fact : layer->facts) ++counts[group_of(fact.key)];
    for (const auto& [group, count] : counts) EXPECT_LE(count + (group.rfind("gemm.", 0) == 0 ? counts["shared"] : 0), kMost) << stem << ": " << group;
  }
  EXPECT_GE(files, 10);
}

TEST(ConstantCount, Groups) {
  EXPECT_EQ(group_of("gemm.bf16.eta"), "gemm.bf16");
  EXPECT_EQ(group_of("gemm.family.ampere_align2.rate"), "misaligned");
  EXPECT_EQ(group_of("attention.cudnn.bwd.tile_s"), "attention.cudnn.bwd");
  EXPECT_EQ(group_of("attention.cudnn.tile_s"), "attention.cudnn.fwd");
  EXPECT_EQ(group_of("softmax.bwd.efficiency"), "softmax");
}

}  // namespace
}  // namespace rooftile
