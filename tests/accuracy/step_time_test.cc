// The accuracy gate of step times: no group of measured runs may be predicted worse than tests/data/step_errors.csv says. tests/accuracy/rewrite.sh writes that file anew; review
// the difference as that of a golden file.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/accuracy/step_runs.h"

namespace rooftile {
namespace {

constexpr const char* kStoredFile = "tests/data/step_errors.csv";
constexpr double kSlack = 0.0005;  // the file has three digits

struct Errors {
  int runs = 0, inside = 0;
  double sum = 0, signed_sum = 0, worst = 0;
  std::string worst_id;
  double mean() const { return sum / runs; }
  double bias() const { return signed_sum / runs; }
};

// By kind of run and group, and of each kind as a whole ("all"); runs of a family that is not read are not counted.
std::map<std::pair<std::string, std::string>, Errors> errors_now() {
  StepRuns runs;
  std::map<std::pair<std::string, std::string>, Errors> groups;
  for (const StepRun& run : runs.runs()) {
    if (!run.timed()) continue;
    const auto prediction = runs.predict(run);
    EXPECT_TRUE(prediction) << run["id"];
    if (!prediction) continue;
    const Totals& totals = prediction->totals;
    const double error = totals.step_time_s / run.step_s() - 1;
    for (const std::string& group : {std::string("all"), run.group()}) {
      Errors& errors = groups[{run.kind(), group}];
      ++errors.runs;
      errors.inside += totals.step_time_low_s <= run.step_s() && run.step_s() <= totals.step_time_high_s ? 1 : 0;
      errors.sum += std::abs(error);
      errors.signed_sum += error;
      if (std::abs(error) > errors.worst) errors.worst = std::abs(error), errors.worst_id = run["id"];
    }
  }
  return groups;
}

TEST(StepTime, NoGroupIsWorseThanStored) {
  const auto now = errors_now();
  if (rewriting()) {
    std::ofstream out(std::string(ROOFTILE_SOURCE_DIR) + "/" + kStoredFile);
    out << "kind,group,runs,mean,worst,bias,inside,worst_run\n";
    for (const auto& [key, errors] : now) {
      out << fmt::format("{},{},{},{:.3f},{:.3f},{:+.3f},{},{}\n", key.first, key.second.find(',') == std::string::npos ? key.second : "\"" + key.second + "\"", errors.runs,
                         errors.mean(), errors.worst, errors.bias(), errors.inside, errors.worst_id);
    }
    GTEST_SKIP() << "written anew";
  }
  int groups = 0, runs = 0, inside = 0;
  for (const TableRow& row : read_table_file(kStoredFile)) {
    const std::string name = row.at("kind") + " " + row.at("group");
    const auto found = now.find({row.at("kind"), row.at("group")});
    ASSERT_NE(found, now.end()) << name;
    const Errors& errors = found->second;
    EXPECT_GE(errors.runs, std::stoi(row.at("runs"))) << name;  // a run that cannot be predicted any more is no better
    EXPECT_LE(errors.mean(), std::stod(row.at("mean")) + kSlack) << name;
    EXPECT_LE(errors.worst, std::stod(row.at("worst")) + kSlack) << name << ": " << errors.worst_id;
    ++groups;
    if (row.at("group") == "all") runs += errors.runs, inside += errors.inside;
  }
  EXPECT_EQ(groups, static_cast<int>(now.size()));  // every group has stored figures
  EXPECT_GE(runs, 100);
  // An interval that is called one of 80 % and holds far less, or nearly always, says nothing.
  EXPECT_GE(inside, 0.70 * runs);
  EXPECT_LE(inside, 0.92 * runs);
}

}  // namespace
}  // namespace rooftile
