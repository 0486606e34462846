// The accuracy gate: on measured rows kept out of the fits, no family of kernels may be worse than its calibration's file says.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "frontends/hardware_files.h"
#include "frontends/model_files.h"
#include "validate/fit_device.h"

namespace rooftile {
namespace {

namespace fs = std::filesystem;

constexpr double kSlack = 0.005;  // rounding of the constants in their files
constexpr int kLeastRows = 20;    // a family of fewer rows says little

struct Rows {
  Machine machine;
  std::vector<FitRow> rows;
};

Rows rows_of(const std::string& device, const std::vector<fs::path>& files) {
  Rows out{load_machine(DataPath{{ROOFTILE_SOURCE_DIR}}, device, "", "").value(), {}};
  for (const fs::path& file : files) {
    const auto table = parse_measurements(read_text(file, std::size_t{1} << 30).value(), file.string());
    EXPECT_TRUE(table.has_value());
    std::map<std::string, std::size_t> refused;
    for (FitRow& row : fit_rows(*table, out.machine.device, refused)) {
      if (row.kept_out) out.rows.push_back(std::move(row));
    }
  }
  return out;
}

// Every protocol of the device against the residuals of its own layer.
void expect_as_stored(const Rows& measured, int& families) {
  for (const CalibrationLayer& protocol : measured.machine.calibration.protocols) {
    Machine machine = measured.machine;
    machine.calibration = machine.calibration.under(protocol.protocol);
    std::map<std::string, std::pair<std::vector<double>, std::vector<double>>> times;
    std::map<ClockState, std::unique_ptr<KernelTimer>> timers;
    for (const FitRow& row : measured.rows) {
      if (row.protocol != protocol.protocol) continue;
      auto& timer = timers[row.clocks];
      if (timer == nullptr) timer = std::make_unique<KernelTimer>(machine, Mode::calibrated, row.clocks);
      times[row.family].first.push_back((*timer)(row.call).time_s);
      times[row.family].second.push_back(row.measured_s);
    }
    for (const auto& [family, stored] : protocol.residuals) {
      const auto found = times.find(family);
      if (found == times.end() || stored.rows < kLeastRows || static_cast<int>(found->second.first.size()) != stored.rows) continue;
      const Residuals now = residuals_of(found->second.first, found->second.second);
      EXPECT_LE(now.mean_abs, stored.mean_abs + kSlack) << protocol.id << " " << family;
      ++families;
    }
  }
}

TEST(Accuracy, ShippedRowsAreAsWellPredictedAsStored) {
  const fs::path folder = fs::path(ROOFTILE_SOURCE_DIR) / "hardware/measurements";
  std::vector<fs::path> files;
  for (const char* name : {"h200_sxm-burst.csv", "h200_sxm-attention.csv", "h200_sxm-sustained.csv"}) {
    if (fs::exists(folder / name)) files.push_back(folder / name);
  }
  ASSERT_EQ(files.size(), 3u);
  int families = 0;
  expect_as_stored(rows_of("h200_sxm", files), families);
  EXPECT_GE(families, 10);
}

TEST(Accuracy, PublicRowsAreAsWellPredictedAsStored) {
  const char* named = std::getenv("ROOFTILE_SHARED");
  const fs::path folder = (named != nullptr ? fs::path(named) : fs::path(ROOFTILE_SOURCE_DIR) / "../shared") / "data/measurements";
  if (!fs::exists(folder)) GTEST_SKIP() << "no public measurements at " << folder;
  int families = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".csv") expect_as_stored(rows_of(entry.path().stem().string(), {entry.path()}), families);
  }
  EXPECT_GE(families, 10);
}

}  // namespace
}  // namespace rooftile
