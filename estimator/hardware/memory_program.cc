#include "estimator/hardware/memory_program.h"

#include <algorithm>
#include <array>

#include "estimator/core/suggest.h"

namespace rooftile {
namespace {

using S = PrimSize;
using W = PrimWidth;
using G = PrimGradient;

// PyTorch's derivatives (tools/autograd/derivatives.yaml) and autocast's lists of operators, as far as the programs need them.
constexpr std::array<MemoryPrimInfo, 35> kMemoryPrims = {{
    {"float", 1, 0, S::largest, W::fp32, G::own},
    {"low", 1, 0, S::largest, W::low, G::own},
    {"like", 2, 0, S::largest, W::like_second, G::own},
    {"add", 2, 0, S::largest, W::promote, G::share},
    {"scale", 1, 0, S::largest, W::promote, G::own},
    {"half", 1, 0, S::half, W::promote, G::own},
    {"mul", 2, 3, S::largest, W::promote, G::own},
    {"pow", 1, 1, S::largest, W::fp32, G::own},
    {"mean", 1, 0, S::rows, W::promote, G::own},
    {"rsqrt", 1, 8, S::largest, W::fp32, G::own},
    {"function", 1, 1, S::largest, W::promote, G::own},
    {"function_of_output", 1, 8, S::largest, W::promote, G::own},
    {"norm", 1, 1, S::largest, W::fp32, G::own},
    {"fused_norm", 1, 1, S::largest, W::low, G::own},
    {"linear", 1, 1, S::output, W::low, G::own},
    {"softmax", 1, 8, S::largest, W::fp32, G::own},
    {"log_softmax", 1, 8, S::largest, W::promote, G::own},
    {"nll", 1, 1, S::one, W::fp32, G::own},
    {"fused_loss", 1, 1, S::one, W::promote, G::own},
    {"sdpa", 3, 15, S::output, W::low, G::own},
    {"scores", 2, 3, S::scores, W::low, G::own},
    {"mix", 2, 3, S::output, W::low, G::own},
    {"scores32", 2, 11, S::scores, W::promote, G::own},
    {"mix32", 2, 2, S::output, W::promote, G::own},
    {"scores_as", 2, 3, S::scores, W::promote, G::own},
    {"mix_as", 2, 3, S::output, W::promote, G::own},
    {"copy", 1, 0, S::largest, W::promote, G::share},
    {"fold", 1, 0, S::largest, W::promote, G::share},
    {"contiguous", 1, 0, S::largest, W::promote, G::share},
    {"join", 1, 0, S::output, W::promote, G::own},
    {"expand", 1, 0, S::queries, W::promote, G::own},
    {"repeat", 1, 0, S::queries, W::promote, G::own},
    {"gather", 1, 0, S::output, W::promote, G::own},
    {"collect", 1, 0, S::output, W::promote, G::own},
    {"keep", 1, 0, S::one, W::promote, G::none},
}};

std::vector<std::string> words_of(std::string_view line) {
  std::vector<std::string> words;
  for (std::size_t at = 0; at < line.size();) {
    const std::size_t start = line.find_first_not_of(' ', at);
    if (start == std::string_view::npos) break;
    at = std::min(line.find(' ', start), line.size());
    words.emplace_back(line.substr(start, at - start));
  }
  return words;
}

class Names {
 public:
  Names() : names_{"x", "x2", "x3", "y", "y2", "y3", "w", "table"} {}

  // Index of a name that is read; kProgramNames when nothing has written it.
  std::uint8_t read(const std::string& name) const {
    for (std::size_t i = 0; i < names_.size(); ++i) {
      if (names_[i] == name && (i < kProgramOutput || i >= kProgramWeight || (written_ >> i & 1u) != 0)) return static_cast<std::uint8_t>(i);
    }
    return kProgramNames;
  }

  std::uint8_t write(const std::string& name) {
    std::size_t i = 0;
    while (i < names_.size() && names_[i] != name) ++i;
    if (i == names_.size()) names_.push_back(name);
    if (i < kProgramNames) written_ |= std::uint64_t{1} << i;
    return static_cast<std::uint8_t>(std::min<std::size_t>(i, kProgramNames));
  }

 private:
  std::vector<std::string> names_;
  std::uint64_t written_ = 0;
};

void mark_last_reads(MemoryProgram& program) {
  std::uint64_t read = 0;
  for (const std::uint8_t name : program.kept_to_end) read |= std::uint64_t{1} << name;
  for (auto step = program.steps.rbegin(); step != program.steps.rend(); ++step) {
    std::uint64_t here = 0;
    for (int i = 0; i < info_of(step->prim).arguments; ++i) {
      const std::uint64_t bit = std::uint64_t{1} << step->arguments[i];
      if ((step->arguments[i] >= kProgramLocal || step->arguments[i] < kProgramOutput) && ((read | here) & bit) == 0)
        step->dying = static_cast<std::uint8_t>(step->dying | (1u << i));
      here |= bit;
    }
    read |= here;
  }
}

}  // namespace

const MemoryPrimInfo& info_of(MemoryPrim prim) { return kMemoryPrims[static_cast<std::size_t>(prim)]; }

Result<MemoryProgram> parse_memory_program(const std::vector<std::string>& lines) {
  MemoryProgram program;
  Names names;
  for (const std::string& line : lines) {
    const std::vector<std::string> words = words_of(line);
    const bool keeps = words.size() == 2 && words[0] == "keep";
    if (!keeps && (words.size() < 4 || words[1] != "=")) return fail(ErrorCode::invalid, "'" + line.substr(0, 80) + "' does not read 'result = operation operands'", "");
    MemoryStep step;
    const std::string& verb = keeps ? words[0] : words[2];
    std::vector<std::string> known;
    std::size_t prim = kMemoryPrims.size();
    for (std::size_t i = 0; i < kMemoryPrims.size(); ++i) {
      known.emplace_back(kMemoryPrims[i].name);
      if (kMemoryPrims[i].name == verb) prim = i;
    }
    if (prim == kMemoryPrims.size()) return fail(ErrorCode::invalid, "unknown operation '" + verb.substr(0, 60) + "'", "", did_you_mean(verb, known));
    step.prim = static_cast<MemoryPrim>(prim);
    const std::size_t first = keeps ? 1 : 3, wanted = info_of(step.prim).arguments;
    if (words.size() - first != wanted) return fail(ErrorCode::invalid, "'" + verb + "' takes " + std::to_string(wanted) + " operand(s)", "");
    for (std::size_t i = 0; i < wanted; ++i) {
      step.arguments[i] = names.read(words[first + i]);
      if (step.arguments[i] == kProgramNames) return fail(ErrorCode::invalid, "'" + words[first + i].substr(0, 60) + "' is read before it is written", "");
    }
    if (keeps) {
      program.kept_to_end.push_back(step.arguments[0]);
      continue;
    }
    step.result = names.write(words[0]);
    if (step.result == kProgramNames) return fail(ErrorCode::invalid, "more than 24 local names", "");
    program.steps.push_back(step);
  }
  mark_last_reads(program);
  return program;
}

}  // namespace rooftile
