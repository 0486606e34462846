// One run of a program over sizes: every tensor's type, shape and, where small, elements; and the list of what is executed, how often. Runs with all symbols bound (an
// estimate) or with none (the symbols, their equalities, and closed forms).
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "estimator/core/result.h"
#include "estimator/graph/graph.h"
#include "frontends/onnx/program.h"
#include "frontends/onnx/value.h"

namespace rooftile::onnx {

using DimBindings = std::map<std::string, std::int64_t>;

struct Step {
  const Node* node = nullptr;
  std::uint32_t first_ref = 0;  // into Trace::refs: inputs, then outputs; 0 is an absent tensor
  std::uint16_t inputs = 0, outputs = 0;
  bool free = false;        // folded constant, or bookkeeping of shapes
  std::int64_t repeat = 1;  // trip count of the loops around it
};

// One operator of the estimator's table that a step amounts to.
struct Work {
  std::uint32_t step = 0;
  OpKind kind = OpKind::free;
  OpAttrs attrs;
  std::string_view part;  // tells the rows of one node apart: "projection", "input"
  std::int64_t repeat = 1;
  Dim macs;                                    // multiply-accumulates of one execution, attention dense
  std::vector<std::uint32_t> inputs, outputs;  // tensors of the trace
  std::uint32_t weight = 0;
  Elem elem = Elem::undefined;
  bool alive = true;  // false once a recognised pattern stands for it
};

struct SymbolPlace {
  std::string name;
  std::vector<std::string> places;  // "input_ids, dimension 0"
  std::int64_t suggestion = 1;
  bool bound = false;
  bool required = true;  // an input's size; else a data-dependent size, trip count or branch with a default
};

struct Equality {
  std::string left, right, node;
};

struct Trace {
  DimContext dims;
  std::deque<TensorInfo> tensors;  // [0] stands for absent; a deque, since rules hold references while subgraphs add to it
  std::vector<ValueId> names;      // of each tensor
  std::vector<Step> steps;
  std::vector<std::uint32_t> refs;
  std::vector<Work> works;                     // in order of execution
  std::vector<std::uint32_t> inputs, outputs;  // of the graph
  std::vector<Warning> warnings;
  std::vector<Equality> equalities;
  std::vector<SymbolPlace> symbols;
  std::map<std::string, std::int64_t> unknown_operators;  // "domain.Op" -> nodes
  std::vector<std::string> unresolved;                    // nodes with a rule whose shapes stayed unknown
  std::int64_t executed_nodes = 0, unknown_nodes = 0, unresolved_nodes = 0;

  std::span<const std::uint32_t> inputs_of(const Step& step) const { return {refs.data() + step.first_ref, step.inputs}; }
  std::span<const std::uint32_t> outputs_of(const Step& step) const { return {refs.data() + step.first_ref + step.inputs, step.outputs}; }
};

enum class TraceMode : std::uint8_t { bound, symbolic };

// Errors (invalid): in mode bound, input symbols without a value, each with its places and a suggestion; sizes that contradict each other, with node, operands and binding;
// a size or tensor past 2^63.
Result<Trace> propagate(const Program& program, const DimBindings& bindings, TraceMode mode);

// The engine behind propagate(); rules for control flow call back into it.
class Propagation {
 public:
  Propagation(const Program& program, const DimBindings& bindings, TraceMode mode);
  Result<Trace> run();

  const Program& program;
  const DimBindings& bindings;
  const TraceMode mode;
  Trace trace;

  // Control flow (control.cc).
  void set_tensor(ValueId id, TensorInfo info);  // a new tensor under that name
  const TensorInfo* tensor_of(ValueId id) const;
  bool run_block(const Block& block, std::int64_t repeat);  // false after an error
  bool dry() const { return dry_ > 0; }
  struct DryRun {  // shapes only: nothing is recorded as executed
    explicit DryRun(Propagation& owner) : propagation(owner) { ++propagation.dry_; }
    ~DryRun() { --propagation.dry_; }
    Propagation& propagation;
  };
  std::int64_t repeat() const { return repeat_; }
  bool spend(std::int64_t work);  // false when the budget of values and loop iterations is used up
  void fail_at(const Node& node, std::string message);
  void warn(std::string code, std::string message);
  bool failed() const { return failed_; }
  // A number that a user may bind by that name; else the fallback, with a warning of that code.
  Dim bindable(const std::string& name, const std::string& place, Dim fallback, std::string_view code, const std::string& why);
  Dim declared_dim(const DeclaredDim& dim, const std::string& fresh_name);
  void equality(Dim a, Dim b, const Node& node);
  std::string dim_text(Dim dim) { return trace.dims.text(dim); }

 private:
  friend class Call;
  bool declare_inputs();
  void declare_input(ValueId id, bool required);
  bool run_node(const Node& node);
  void finish(const Node& node, Call& call);
  TensorInfo from_declaration(ValueId id);
  void prefer_declared(ValueId id, TensorInfo& info);
  void merge_declaration(ValueId id, TensorInfo& info);
  void note_symbols(const DeclaredType& type, std::string_view name);

  std::vector<std::uint32_t> current_;  // tensor of each value id now
  Error error_;
  bool failed_ = false;
  int dry_ = 0, depth_ = 0;
  std::int64_t repeat_ = 1;
  std::int64_t work_left_ = 6'000'000;
  std::set<std::string> warned_;
  std::map<std::string, std::int64_t> assumed_;  // sizes without a name
  std::map<std::string, std::size_t> symbol_index_;
};

}  // namespace rooftile::onnx
