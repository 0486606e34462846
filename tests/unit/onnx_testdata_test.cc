// Debian's libonnx-testdata: a thousand one-operator models with recorded outputs, where the package is installed.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "frontends/onnx/onnx_model.h"
#include "frontends/onnx/proto.h"

namespace rooftile {
namespace {

namespace fs = std::filesystem;

TEST(OnnxTestdata, NearlyAllAreEstimatedAndTheirShapesAgree) {
  const fs::path folder = "/usr/share/libonnx-testdata/data";
  if (!fs::exists(folder)) GTEST_SKIP() << "libonnx-testdata is not installed";
  std::vector<fs::path> models;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.path().filename() == "model.onnx") models.push_back(entry.path());
  }
  std::sort(models.begin(), models.end());
  int estimated = 0, equal = 0, different = 0;
  for (const fs::path& path : models) {
    const auto model = read_onnx(path);
    if (!model) continue;
    const auto summary = model->summarise({});
    if (!summary) {
      EXPECT_EQ(summary.error().code, ErrorCode::invalid);
      EXPECT_FALSE(summary.error().message.empty());
      continue;
    }
    EXPECT_TRUE(model->bind({}, Options()).has_value()) << path;
    if (summary->coverage.unknown_nodes > 0) {
      EXPECT_FALSE(summary->coverage.unknown_operators.empty());
      continue;
    }
    ++estimated;
    bool same = true;
    int compared = 0;
    for (std::size_t i = 0; i < summary->outputs.size(); ++i) {
      std::ifstream file(path.parent_path() / "test_data_set_0" / ("output_" + std::to_string(i) + ".pb"), std::ios::binary);
      std::ostringstream text;
      text << file.rdbuf();
      const std::string bytes = text.str();
      const auto tensor = onnx::read_tensor(bytes);
      // Sequences are recorded in another message.
      if (!file || !tensor || !summary->outputs[i].known || tensor->elem == onnx::Elem::undefined) continue;
      ++compared;
      same = same && tensor->dims == summary->outputs[i].shape;
    }
    if (compared > 0) (same ? equal : different)++;
  }
  const auto total = static_cast<double>(models.size());
  RecordProperty("models", static_cast<int>(models.size()));
  RecordProperty("estimated", estimated);
  RecordProperty("equal", equal);
  RecordProperty("different", different);
  std::printf("%zu models, %d estimated, output shapes equal in %d, different in %d\n", models.size(), estimated, equal, different);
  EXPECT_GE(estimated / total, 0.93);
  EXPECT_GE(static_cast<double>(equal) / (equal + different), 0.98);
}

}  // namespace
}  // namespace rooftile
