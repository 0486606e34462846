// Running the binary as people do, for the tests of commands.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

namespace rooftile::test {

struct RunResult {
  int code = -1;
  std::string out, err;
};

inline std::string slurp(const std::filesystem::path& file) {
  std::ostringstream text;
  text << std::ifstream(file, std::ios::binary).rdbuf();
  return text.str();
}

// A folder of this process.
inline std::filesystem::path make_scratch(const std::string& name) {
  std::filesystem::path folder = std::filesystem::temp_directory_path() / (name + "-" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  return folder;
}

// A line for the shell: its exit code and what it prints; 128 and the signal where one ended it.
inline RunResult run_shell(const std::string& line) {
  RunResult result;
  FILE* pipe = popen(line.c_str(), "r");
  std::array<char, 65536> buffer;
  for (std::size_t got = 0; (got = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) result.out.append(buffer.data(), got);
  const int status = pclose(pipe);
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

// The binary with arguments that go through the shell, behind `before` (an environment, a change of folder); what it says to stderr goes through a file in `scratch`.
inline RunResult run_binary(const std::string& arguments, const std::filesystem::path& scratch, const std::string& before = "") {
  const std::filesystem::path err = scratch / "stderr";
  RunResult result = run_shell(before + " '" ROOFTILE_BINARY "' " + arguments + " 2>'" + err.string() + "'");
  result.err = slurp(err);
  return result;
}

}  // namespace rooftile::test
