// Predictions of every shipped model on a few devices, against files that tests/golden/rewrite.sh writes: a change of the model shows as a difference that a reviewer reads.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

namespace {

namespace fs = std::filesystem;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields;
  std::istringstream stream(line);
  for (std::string field; std::getline(stream, field, ',');) fields.push_back(field);
  return fields;
}

// Numbers may differ in their last digits between compilers.
bool alike(const std::string& a, const std::string& b) {
  if (a == b) return true;
  char* end_a = nullptr;
  char* end_b = nullptr;
  const double x = std::strtod(a.c_str(), &end_a), y = std::strtod(b.c_str(), &end_b);
  return *end_a == '\0' && *end_b == '\0' && std::abs(x - y) <= 1e-7 * std::max(std::abs(x), std::abs(y));
}

TEST(Golden, EveryModelOnEveryDevice) {
  std::string models;
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(fs::path(ROOFTILE_SOURCE_DIR) / "models")) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  for (const fs::path& file : files) {
    if (file.extension() == ".yaml") models += " " + file.stem().string();
  }
  for (const std::string device : {"a100_sxm_80gb", "h100_sxm", "b200_sxm", "l4"}) {
    std::ostringstream golden;
    golden << std::ifstream(fs::path(ROOFTILE_SOURCE_DIR) / "tests/golden" / (device + ".csv")).rdbuf();
    const std::string command = std::string("'") + ROOFTILE_BINARY + "' estimate" + models + " --device " + device + " --format csv";
    FILE* pipe = popen(command.c_str(), "r");
    std::string out;
    std::array<char, 65536> buffer;
    for (std::size_t got = 0; (got = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) out.append(buffer.data(), got);
    ASSERT_EQ(pclose(pipe), 0) << command;
    const auto expected = lines_of(golden.str()), actual = lines_of(out);
    ASSERT_EQ(actual.size(), expected.size()) << device << ": run tests/golden/rewrite.sh and review the difference";
    const auto header = fields_of(expected[0]);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const auto want = fields_of(expected[i]), got = fields_of(actual[i]);
      ASSERT_EQ(got.size(), want.size()) << expected[i];
      for (std::size_t c = 0; c < want.size(); ++c)
        EXPECT_TRUE(alike(got[c], want[c])) << device << ", " << want[0] << ", " << header[c] << ": " << got[c] << ", golden " << want[c]
                                            << "; run tests/golden/rewrite.sh and review the difference";
    }
  }
}

}  // namespace
