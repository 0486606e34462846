// The rooms depend on each other in one direction only: cli -> {report, validate, frontends} -> estimator; kernels know shapes and dtypes. estimator is pure.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

const fs::path kSource = ROOFTILE_SOURCE_DIR;

std::vector<fs::path> sources_of(const std::string& room) {
  std::vector<fs::path> files;
  if (!fs::exists(kSource / room)) return files;
  for (const auto& entry : fs::recursive_directory_iterator(kSource / room)) {
    const std::string extension = entry.path().extension();
    if (extension == ".h" || extension == ".cc" || extension == ".cu" || extension == ".cuh" || extension == ".def") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::string text_of(const fs::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

std::vector<std::string> includes_of(const fs::path& file) {
  static const std::regex kInclude(R"re(^[ \t]*#[ \t]*include[ \t]*[<"]([^>"]+)[>"])re");
  std::vector<std::string> found;
  std::istringstream lines(text_of(file));
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    if (std::regex_search(line, match, kInclude)) found.push_back(match[1]);
  }
  return found;
}

TEST(IncludeRules, EstimatorIsPure) {
  const std::vector<std::string> forbidden = {"cuda", "cublas", "cudnn", "nccl", "yaml-cpp", "nlohmann", "onnx", "google/protobuf", "iostream", "fstream", "CLI/"};
  ASSERT_GT(sources_of("estimator").size(), 20u);
  for (const fs::path& file : sources_of("estimator")) {
    for (const std::string& include : includes_of(file)) {
      for (const std::string& word : forbidden) EXPECT_NE(include.rfind(word, 0), 0u) << file << " includes " << include;
    }
  }
}

TEST(IncludeRules, ArrowsBetweenRooms) {
  const std::map<std::string, std::set<std::string>> allowed = {{"estimator", {"estimator"}},
                                                                {"frontends", {"frontends", "estimator"}},
                                                                {"report", {"report", "estimator"}},
                                                                {"validate", {"validate", "frontends", "estimator"}},
                                                                {"kernels", {"kernels"}},
                                                                {"cli", {"cli", "report", "validate", "frontends", "estimator"}}};
  for (const auto& [room, may_include] : allowed) {
    for (const fs::path& file : sources_of(room)) {
      const bool cuda_seam = file.stem().string().find("_cuda") != std::string::npos;
      for (const std::string& include : includes_of(file)) {
        const std::string target = include.substr(0, include.find('/'));
        if (include.find('/') == std::string::npos || !allowed.contains(target)) continue;  // a library
        // The CUDA runner is the one place where validate meets kernels, and kernels share the shapes' types.
        if (room == "validate" && target == "kernels" && cuda_seam) continue;
        if (room == "kernels" && (include.rfind("estimator/core/", 0) == 0 || include == "estimator/timing/kernel_call.h")) continue;
        EXPECT_TRUE(may_include.contains(target)) << file << " includes " << include;
      }
    }
  }
}

TEST(IncludeRules, CodeNamesNoDevice) {
  // Numbers and behaviour of a device belong into hardware/*.yaml; a device id in a string literal of the libraries is the smell of a special case.
  static const std::regex kDevice(R"re("[^"\n]*\b(a100|h100|h200|h800|b200|b300|gb200|gb300|l40s|v100|rtx_4090)(_[a-z0-9_]+)?\b[^"\n]*")re");
  for (const std::string room : {"estimator", "frontends", "report"}) {
    for (const fs::path& file : sources_of(room)) {
      std::istringstream lines(text_of(file));
      int number = 0;
      for (std::string line; std::getline(lines, line);) {
        ++number;
        if (const std::size_t comment = line.find("//"); comment != std::string::npos) line.resize(comment);
        EXPECT_FALSE(std::regex_search(line, kDevice)) << file << ":" << number << ": " << line;
      }
    }
  }
}

TEST(IncludeRules, NoFileOver500Lines) {
  for (const std::string room : {"estimator", "frontends", "report", "validate", "kernels", "cli"}) {
    for (const fs::path& file : sources_of(room)) {
      const std::string text = text_of(file);
      EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 500) << file;
    }
  }
}

}  // namespace
