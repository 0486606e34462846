#include "frontends/onnx/onnx_model.h"

#include <algorithm>
#include <new>
#include <stdexcept>

#include "frontends/onnx/description.h"
#include "frontends/onnx/graph_builder.h"
#include "frontends/onnx/program.h"
#include "frontends/onnx/propagate.h"
#include "frontends/onnx/recognise.h"
#include "frontends/onnx/text.h"
#include "frontends/onnx/weight_inputs.h"
#include "frontends/onnx/wire.h"

namespace rooftile {
namespace {

constexpr std::int64_t kParameterBytes = 1024;  // a Constant node over this size holds a weight, below it a shape or a scalar

Error with_source(Error error, const std::string& source) {
  error.place = error.place.empty() ? source : source + ": " + error.place;
  return error;
}

// Sizes are bounded where memory is taken, but the standard library may still refuse: that is an input too large, not a crash.
template <typename Work>
auto guarded(const std::string& source, Work work) -> decltype(work()) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::invalid, "the graph needs more memory than there is", source);
  } catch (const std::length_error&) {
    return fail(ErrorCode::invalid, "a size of the graph is more than memory can hold", source);
  }
}

std::vector<OnnxSymbol> symbols_of(const onnx::Trace& trace) {
  std::vector<OnnxSymbol> list;
  for (const onnx::SymbolPlace& symbol : trace.symbols) list.push_back({symbol.name, symbol.places, symbol.suggestion, symbol.required});
  return list;
}

Result<onnx::Trace> traced(const onnx::Program& program, const onnx::DimBindings& dims, onnx::TraceMode mode, const std::string& source) {
  return guarded(source, [&] { return onnx::propagate(program, dims, mode); });
}

Count elements_of(const std::vector<std::int64_t>& dims) {
  Count count = 1;
  for (const std::int64_t dim : dims) {
    if (dim <= 0) return 0;
    if (count > static_cast<Count>(INT64_MAX)) return count;
    count *= dim;
  }
  return count;
}

}  // namespace

OnnxModel::OnnxModel(std::shared_ptr<const onnx::Program> program, std::string source) : program_(std::move(program)), source_(std::move(source)) {}

std::string OnnxModel::producer() const {
  const std::string version = onnx::readable(program_->model.producer_version);
  return onnx::readable(program_->model.producer) + (version.empty() ? "" : " " + version);
}
std::size_t OnnxModel::nodes() const { return program_->node_count; }
std::map<std::string, std::int64_t> OnnxModel::opsets() const {
  std::map<std::string, std::int64_t> out;
  for (const auto& [domain, version] : program_->domain_versions) out[domain.empty() ? "ai.onnx" : onnx::readable(domain)] = version;
  return out;
}

Result<std::vector<OnnxSymbol>> OnnxModel::symbols() const {
  auto trace = traced(*program_, {}, onnx::TraceMode::symbolic, source_);
  if (!trace) return tl::unexpected(with_source(trace.error(), source_));
  return symbols_of(*trace);
}

Result<std::vector<OnnxEquality>> OnnxModel::equalities() const {
  auto trace = traced(*program_, {}, onnx::TraceMode::symbolic, source_);
  if (!trace) return tl::unexpected(with_source(trace.error(), source_));
  std::vector<OnnxEquality> list;
  for (const onnx::Equality& equality : trace->equalities) list.push_back({equality.left, equality.right, equality.node});
  return list;
}

namespace {
onnx::Dim total_macs(onnx::Trace& trace) {
  onnx::Dim total = 0;
  for (const onnx::Work& work : trace.works) total = trace.dims.add(total, trace.dims.mul(work.macs, work.repeat));
  return total;
}
}  // namespace

Result<std::string> OnnxModel::macs_expression() const {
  auto trace = traced(*program_, {}, onnx::TraceMode::symbolic, source_);
  if (!trace) return tl::unexpected(with_source(trace.error(), source_));
  const onnx::Dim total = total_macs(*trace);
  if (trace->dims.overflow()) return fail(ErrorCode::invalid, "the multiply-accumulates have a coefficient past 2^63", source_);
  return trace->dims.text(total);
}

Result<std::vector<Count>> OnnxModel::evaluate_macs(const std::vector<std::map<std::string, std::int64_t>>& points) const {
  auto trace = traced(*program_, {}, onnx::TraceMode::symbolic, source_);
  if (!trace) return tl::unexpected(with_source(trace.error(), source_));
  std::vector<Count> out;
  for (const auto& point : points) {
    Count sum = 0;
    for (const onnx::Work& work : trace->works) {
      const auto macs = trace->dims.evaluate(work.macs, [&](std::string_view name) -> std::optional<std::int64_t> {
        const auto found = point.find(std::string(name));
        return found == point.end() ? std::nullopt : std::optional(found->second);
      });
      if (!macs) return fail(ErrorCode::invalid, "the work depends on a size that is not given: " + trace->dims.text(work.macs), source_);
      sum += Count{*macs} * work.repeat;
    }
    out.push_back(sum);
  }
  return out;
}

Result<OnnxSummary> OnnxModel::summarise(const std::map<std::string, std::int64_t>& dims) const {
  auto trace = traced(*program_, dims, onnx::TraceMode::bound, source_);
  if (!trace) return tl::unexpected(with_source(trace.error(), source_));
  OnnxSummary summary;
  for (const onnx::Work& work : trace->works) {
    if (!work.macs.is_constant() || work.macs.value == 0) continue;
    const Count macs = Count{work.macs.value} * work.repeat;
    summary.macs += macs;
    summary.macs_by_operator[onnx::readable(trace->steps[work.step].node->data->op)] += macs;
  }
  for (const std::uint32_t id : trace->outputs) {
    const onnx::TensorInfo& info = trace->tensors[id];
    OnnxTensor tensor{onnx::readable(program_->values[trace->names[id]].name), std::string(onnx::name_of(info.elem)), {}, info.ranked};
    for (const onnx::Dim dim : info.shape) {
      tensor.shape.push_back(dim.value);
      tensor.known = tensor.known && dim.is_constant();
    }
    summary.outputs.push_back(std::move(tensor));
  }
  summary.coverage = onnx::coverage_of(*trace);
  summary.symbols = symbols_of(*trace);
  summary.warnings = std::move(trace->warnings);
  return summary;
}

Result<Graph> OnnxModel::bind(const std::map<std::string, std::int64_t>& dims, const Options& options) const {
  auto trace = traced(*program_, dims, onnx::TraceMode::bound, source_);
  if (!trace) return tl::unexpected(with_source(trace.error(), source_));
  auto graph = guarded(source_, [&] {
    onnx::recognise(*program_, *trace, {.attention = options.attention != AttentionKernel::standard});
    return onnx::build_graph(*program_, *trace, options);
  });
  if (!graph) return tl::unexpected(with_source(graph.error(), source_));
  graph->model.source = source_;
  graph->model.name = std::filesystem::path(source_).stem().string();
  return graph;
}

Result<OnnxDescription> OnnxModel::description() const {
  auto trace = traced(*program_, {}, onnx::TraceMode::symbolic, source_);
  if (!trace) return tl::unexpected(with_source(trace.error(), source_));
  return guarded(source_, [&]() -> Result<OnnxDescription> { return onnx::describe(*trace, *program_); });
}

OnnxParameters OnnxModel::parameters() const {
  OnnxParameters counts;
  // 4-bit weights packed as bytes: their element count comes from the node that unpacks them.
  std::map<std::string, Count> packed;
  for (const auto& block : program_->blocks) {
    for (const onnx::Node& node : block->nodes) {
      if (node.data->op != "MatMulNBits" && node.data->op != "MatMulBnb4") continue;
      const onnx::Attribute *k = node.attribute("K"), *n = node.attribute("N");
      if (k == nullptr || n == nullptr || node.data->inputs.size() < 2 || k->i < 0 || n->i < 0) continue;
      packed[std::string(node.data->inputs[1])] = Count{k->i} * n->i;
    }
  }
  for (const onnx::StoredTensor& tensor : program_->stored) {
    const Count elements = elements_of(tensor.dims);
    const int bits = onnx::bits_of(tensor.elem);
    const Count bytes = (elements * bits + 7) / 8;
    if (onnx::is_float(tensor.elem) && !tensor.input) counts.floats += elements;
    if (bits == 8 && onnx::is_integer(tensor.elem) && tensor.elem != onnx::Elem::boolean) counts.integers8 += elements;
    const auto unpacked = packed.find(tensor.name);
    const bool weight = onnx::is_float(tensor.elem) || bits <= 8 || bytes > kParameterBytes;
    if (tensor.elem == onnx::Elem::boolean || tensor.elem == onnx::Elem::int64 || (tensor.constant_node && bytes <= kParameterBytes)) continue;
    if (unpacked != packed.end()) {
      counts.all += unpacked->second;
      counts.bytes += bytes;
    } else if (weight) {
      counts.all += elements;
      counts.bytes += bytes;
    }
  }
  return counts;
}

bool OnnxModel::contains_gradients() const { return onnx::contains_gradients(*program_); }

namespace {
Result<OnnxModel> make_model(std::shared_ptr<const void> storage, std::string_view bytes, const std::string& source) {
  return guarded(source, [&]() -> Result<OnnxModel> {
    auto data = onnx::read_model(bytes);
    if (!data) return tl::unexpected(with_source(data.error(), source));
    auto program = onnx::make_program(storage, std::move(*data));
    if (!program) return tl::unexpected(with_source(program.error(), source));
    onnx::take_weight_inputs(*program);
    return OnnxModel(std::make_shared<const onnx::Program>(std::move(*program)), source);
  });
}
}  // namespace

Result<OnnxModel> read_onnx(const std::filesystem::path& file) {
  auto mapped = onnx::MappedFile::open(file);
  if (!mapped) return tl::unexpected(mapped.error());
  auto storage = std::make_shared<onnx::MappedFile>(std::move(*mapped));
  const std::string_view bytes = storage->bytes();
  return make_model(std::move(storage), bytes, file.string());
}

Result<OnnxModel> read_onnx_bytes(std::string bytes, std::string source) {
  auto storage = std::make_shared<const std::string>(std::move(bytes));
  const std::string_view view = *storage;
  return make_model(std::move(storage), view, source);
}

}  // namespace rooftile
