// Reads hardware/runtimes/*.yaml: what executes a model, its gaps, its memory habits and its lowering rules.
#include <array>
#include <optional>

#include "estimator/core/suggest.h"
#include "frontends/hardware_files.h"
#include "frontends/hardware_names.h"
#include "frontends/hardware_reader.h"
#include "frontends/hardware_rules.h"

namespace rooftile {
namespace {

constexpr std::array<std::string_view, 5> kAttentionNames = {"fastest", "standard", "flash2", "flash3", "cudnn"};

// Index of a word in a list of names, or an error at the node.
template <std::size_t size>
std::optional<std::size_t> index_of(HardwareReader& reader, const YamlNode& node, std::string_view word, const std::array<std::string_view, size>& names, const std::string& what) {
  if (const auto index = position(names, word)) return index;
  reader.refuse(node, "unknown " + what + " '" + std::string(word.substr(0, 60)) + "'", near(names, word));
  return std::nullopt;
}

class RuntimeReader {
 public:
  explicit RuntimeReader(const YamlNode& root) : reader_(root, "runtime") {}

  Result<Runtime> read(const std::filesystem::path& file) {
    const YamlNode& root = reader_.root();
    runtime_.file = file.string();
    reader_.allow_keys(root, {"kind", "id", "name", "version", "note", "sources", "launch", "precision", "memory", "vocabulary", "attention", "host", "errors", "gradients",
                              "rules", "saves", "torch_kernels"});
    runtime_.id = reader_.text(root, "id", Need::required);
    runtime_.name = reader_.text(root, "name", Need::required);
    runtime_.version = reader_.text(root, "version", Need::optional);
    launch();
    host();
    errors();
    if (const YamlNode* map = reader_.get_map(root, "gradients", Need::optional)) {
      reader_.allow_keys(*map, {"added_by_kernels"});
      runtime_.accumulates_by_kernels = reader_.boolean(*map, "added_by_kernels", false);
    }
    precision();
    memory();
    vocabulary();
    if (const std::string name = reader_.text(root, "attention", Need::optional); !name.empty()) {
      if (const auto index = index_of(reader_, *root.find("attention"), name, kAttentionNames, "attention kernel")) runtime_.attention = static_cast<AttentionKernel>(*index);
    }
    runtime_.torch_kernels = reader_.boolean(root, "torch_kernels", false);
    if (const YamlNode* rules = reader_.get_list(root, "rules", Need::optional)) {
      runtime_.rules = read_rules(reader_, *rules, runtime_.facts);
    }
    if (const YamlNode* saves = reader_.get_list(root, "saves", Need::optional)) {
      for (const YamlNode& node : saves->items) memory_program(node);
    }
    if (!reader_.ok()) return tl::unexpected<Error>(reader_.error());
    return std::move(runtime_);
  }

 private:
  void launch() {
    const YamlNode* map = reader_.get_map(reader_.root(), "launch", Need::required);
    if (map == nullptr) return;
    reader_.allow_keys(*map, {"gap", "graph_gap"});
    runtime_.launch_gap_s = reader_.number(*map, "gap", "s", "launch", runtime_.facts, Need::required, 0, "launch");
    runtime_.graph_gap_s = reader_.number(*map, "graph_gap", "s", "launch", runtime_.facts, Need::required, 0, "launch");
  }

  void host() {
    const YamlNode* map = reader_.get_map(reader_.root(), "host", Need::optional);
    if (map == nullptr) return;
    struct Rate {
      std::string_view key;
      double HostRates::*rate;
    };
    constexpr std::array kRates = {Rate{"kernel", &HostRates::kernel_s},
                                   Rate{"operator", &HostRates::operator_s},
                                   Rate{"recorded_kernel", &HostRates::recorded_kernel_s},
                                   Rate{"recorded_operator", &HostRates::recorded_operator_s},
                                   Rate{"backward_kernel", &HostRates::backward_kernel_s},
                                   Rate{"backward_operator", &HostRates::backward_operator_s},
                                   Rate{"optimizer_tensor", &HostRates::optimizer_tensor_s},
                                   Rate{"step", &HostRates::step_s}};
    reader_.allow_keys(*map, {"kernel", "operator", "recorded_kernel", "recorded_operator", "backward_kernel", "backward_operator", "optimizer_tensor", "step"});
    for (const Rate& rate : kRates) runtime_.host.*rate.rate = reader_.number(*map, rate.key, "s", "host", runtime_.facts, Need::optional, 0, "host");
  }

  void errors() {
    const YamlNode* map = reader_.get_map(reader_.root(), "errors", Need::required);
    if (map == nullptr) return;
    reader_.allow_keys(*map, {"step", "gap", "host"});
    runtime_.errors.step = reader_.number(*map, "step", "1", "errors", runtime_.facts, Need::required, 0, "errors");
    runtime_.errors.gap = reader_.number(*map, "gap", "1", "errors", runtime_.facts, Need::required, 0, "errors");
    runtime_.errors.host = reader_.number(*map, "host", "1", "errors", runtime_.facts, Need::optional, 0, "errors");
  }

  void precision() {
    const YamlNode* map = reader_.get_map(reader_.root(), "precision", Need::required);
    if (map == nullptr) return;
    reader_.allow_keys(*map, {"autocast", "main_weights", "fp32_gradients", "fused_gradient_accumulation"});
    runtime_.autocast = reader_.boolean(*map, "autocast", runtime_.autocast);
    runtime_.main_weights = reader_.boolean(*map, "main_weights", runtime_.main_weights);
    runtime_.fp32_gradients = reader_.boolean(*map, "fp32_gradients", runtime_.fp32_gradients);
    runtime_.fused_gradient_accumulation = reader_.boolean(*map, "fused_gradient_accumulation", runtime_.fused_gradient_accumulation);
    if (runtime_.autocast && runtime_.main_weights) reader_.refuse(*map, "autocast keeps fp32 weights; main_weights keeps them beside others: one of the two");
  }

  void memory() {
    const YamlNode* map = reader_.get_map(reader_.root(), "memory", Need::required);
    if (map == nullptr) return;
    reader_.allow_keys(*map, {"logits_copies", "workspace", "backward_workspace", "caching_allocator", "grows_cache", "builds_mask", "frames_hold"});
    runtime_.logits_copies_bytes = reader_.number(*map, "logits_copies", "B/element", "memory", runtime_.facts, Need::optional, 0, "memory");
    runtime_.backward_workspace_bytes = reader_.number(*map, "backward_workspace", "B", "memory", runtime_.facts, Need::optional, 0, "memory");
    runtime_.caching_allocator = reader_.boolean(*map, "caching_allocator", false);
    runtime_.grows_cache = reader_.boolean(*map, "grows_cache", false);
    runtime_.builds_mask = reader_.boolean(*map, "builds_mask", false);
    runtime_.frames_hold = reader_.boolean(*map, "frames_hold", false);
    runtime_.workspace_bytes = reader_.number(*map, "workspace", "B", "memory", runtime_.facts, Need::required, 0, "memory");
  }

  void vocabulary() {
    const YamlNode* map = reader_.get_map(reader_.root(), "vocabulary", Need::optional);
    if (map == nullptr) return;
    reader_.allow_keys(*map, {"multiple", "pads_odd"});
    runtime_.vocabulary_multiple = reader_.integer(*map, "multiple", runtime_.vocabulary_multiple, 1, 1 << 20);
    runtime_.pads_odd_vocabulary = reader_.boolean(*map, "pads_odd", runtime_.pads_odd_vocabulary);
  }

  // What an operator becomes in memory; see MemoryProgram. `when` lists conditions and at most one pointwise kind, all of which must hold.
  void memory_program(const YamlNode& node) {
    const std::string op = reader_.text(node, "op", Need::required);
    const std::string when = reader_.text(node, "when", Need::optional);
    const YamlNode* steps = reader_.get_list(node, "steps", Need::required);
    if (!reader_.ok()) return;
    reader_.allow_keys(node, {"op", "when", "steps", "source", "kind", "date", "note"});
    const auto index = index_of(reader_, *node.find("op"), op, kOperatorNames, "operator");
    if (!index) return;
    std::vector<std::string> lines;
    for (const YamlNode& line : steps->items) lines.push_back(line.scalar);
    Result<MemoryProgram> program = parse_memory_program(lines);
    if (!program) return reader_.refuse(*steps, program.error().message, program.error().hint);
    program->op = static_cast<OpKind>(*index);
    for (std::size_t start = 0; start < when.size();) {
      const std::size_t end = std::min(when.find(' ', start), when.size());
      const std::string word = when.substr(start, end - start);
      start = end + 1;
      if (word.empty()) continue;
      bool known = false;
      for (std::size_t bit = 0; bit < std::size(kProgramConditions); ++bit) {
        if (kProgramConditions[bit] == word) program->conditions = static_cast<std::uint16_t>(program->conditions | (1u << bit)), known = true;
      }
      if (known) continue;
      const auto kind = index_of(reader_, *node.find("when"), word, kPointwiseNames, "condition or pointwise kind");
      if (!kind) return;
      program->function = static_cast<PointwiseKind>(*kind);
    }
    Fact fact;
    fact.key = "saves." + op + (when.empty() ? "" : "." + when) + ".steps";
    fact.value = static_cast<double>(lines.size());
    fact.unit = "operation";
    fact.section = "saves";
    reader_.provenance(node, Need::optional, fact);
    runtime_.facts.push_back(std::move(fact));
    runtime_.memory_programs.push_back(std::move(*program));
  }

  HardwareReader reader_;
  Runtime runtime_;
};

}  // namespace

Result<Runtime> read_runtime(const std::filesystem::path& file) {
  const Result<YamlNode> tree = read_yaml(file);
  if (!tree) return tl::unexpected<Error>(tree.error());
  return RuntimeReader(*tree).read(file);
}

}  // namespace rooftile
