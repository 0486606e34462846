#include "frontends/onnx/fold_layers.h"

#include <algorithm>
#include <string>
#include <unordered_map>

namespace rooftile::onnx {
namespace {

constexpr std::size_t kMaxPeriod = 600;  // operators of one layer
constexpr std::size_t kMinPeriod = 4;
constexpr int kMaxSplits = 5;  // encoder, decoder, and what lies between

// All that decides an operator's cost, as bytes.
struct KeyWriter {
  std::string key;
  template <typename... Numbers>
  void operator()(Numbers... numbers) {
    (put(static_cast<std::int64_t>(numbers)), ...);
  }
  void put(std::int64_t number) { key.append(reinterpret_cast<const char*>(&number), sizeof number); }
};

struct AttrsToKey {
  KeyWriter& k;
  void operator()(const LinearAttrs& a) const { k(a.tokens, a.in, a.out, a.experts, a.top_k, a.bias, a.tied, a.transposed_weight, a.epilogue); }
  void operator()(const MatmulAttrs& a) const { k(a.batch, a.m, a.n, a.k, a.layout); }
  void operator()(const AttentionAttrs& a) const {
    k(a.batch, a.heads, a.kv_heads, a.seq_q, a.seq_kv, a.head_dim, a.v_head_dim, a.causal, a.window, a.softcap, a.position_bias, a.model_flops_causal, a.kernel);
  }
  void operator()(const NormAttrs& a) const { k(a.rows, a.cols, a.weight, a.bias, a.weight_cols); }
  void operator()(const PointwiseAttrs& a) const { k(a.kind, a.numel, a.to, a.parameters); }
  void operator()(const RotaryAttrs& a) const { k(a.tokens, a.heads, a.kv_heads, a.rotary_dim); }
  void operator()(const EmbeddingAttrs& a) const { k(a.tokens, a.vocab, a.hidden, a.tied); }
  void operator()(const CrossEntropyAttrs& a) const { k(a.tokens, a.vocab); }
  void operator()(const ConvolutionAttrs& a) const { k(a.batch, a.in_channels, a.out_channels, a.groups, a.kernel_elements, a.out_positions, a.in_positions, a.bias, a.patches); }
  void operator()(const SoftmaxAttrs& a) const { k(a.rows, a.cols); }
  void operator()(const ReductionAttrs& a) const { k(a.rows, a.cols, a.over_rows); }
  void operator()(const CacheWriteAttrs& a) const { k(a.tokens, a.elements_per_token); }
  void operator()(const OptimizerAttrs& a) const { k(a.kind, a.parameters); }
  template <typename Other>
  void operator()(const Other&) const {}
};

struct Run {
  std::size_t start = 0, period = 0, count = 0;
  std::size_t covered() const { return period * count; }
};

// The run that covers most operators of [begin, end).
Run longest_run(const std::vector<std::uint32_t>& keys, std::size_t begin, std::size_t end) {
  Run best;
  const std::size_t size = end - begin;
  for (std::size_t period = kMinPeriod; period <= std::min(kMaxPeriod, size / 2); ++period) {
    std::size_t matched = 0;
    for (std::size_t i = begin; i + period <= end; ++i) {
      const bool same = i + period < end && keys[i] == keys[i + period];
      if (same) {
        ++matched;
        continue;
      }
      if (matched >= period) {
        const Run run{i - matched, period, matched / period + 1};
        if (run.covered() > best.covered()) best = run;
      }
      matched = 0;
    }
  }
  return best;
}

class Folder {
 public:
  explicit Folder(Graph& graph) : graph_(graph) {
    std::unordered_map<std::string, std::uint32_t> numbers;
    for (const Operator& op : graph.ops) {
      KeyWriter writer;
      writer(op.kind, op.dtype, op.inputs, op.outputs);
      std::visit(AttrsToKey{writer}, op.attrs);
      keys_.push_back(numbers.try_emplace(std::move(writer.key), static_cast<std::uint32_t>(numbers.size())).first->second);
    }
  }

  void fold() {
    const std::vector<Segment> before = graph_.segments;
    const std::vector<Operator> ops = graph_.ops;
    graph_.segments.clear();
    graph_.ops.clear();
    for (const Segment& segment : before) {
      if (segment.repeat == 1) {
        split(ops, segment, segment.first_op, segment.first_op + segment.op_count, 0);
      } else {
        emit(ops, segment, segment.first_op, segment.first_op + segment.op_count, segment.repeat, segment.role, segment.name);
      }
    }
  }

 private:
  void split(const std::vector<Operator>& ops, const Segment& whole, std::size_t begin, std::size_t end, int depth) {
    const Run run = depth < kMaxSplits ? longest_run(keys_, begin, end) : Run();
    if (run.count < 2) {
      if (begin < end) emit(ops, whole, begin, end, 1, layers_ > 0 ? SegmentRole::epilogue : SegmentRole::prologue, layers_ > 0 ? next_name("head") : next_name("embedding"));
      return;
    }
    split(ops, whole, begin, run.start, depth + 1);
    emit(ops, whole, run.start, run.start + run.period, static_cast<std::int64_t>(run.count), SegmentRole::layer, next_name("layer"));
    ++layers_;
    graph_.model.layers += static_cast<std::int64_t>(run.count);
    graph_.layers.insert(graph_.layers.end(), run.count, static_cast<std::uint32_t>(graph_.segments.size() - 1));
    split(ops, whole, run.start + run.covered(), end, depth + 1);
  }

  void emit(const std::vector<Operator>& ops, const Segment& like, std::size_t begin, std::size_t end, std::int64_t repeat, SegmentRole role, std::string_view name) {
    Segment segment = like;
    segment.name = name;
    segment.role = role;
    segment.repeat = repeat;
    segment.first_op = static_cast<std::uint32_t>(graph_.ops.size());
    segment.op_count = static_cast<std::uint32_t>(end - begin);
    for (std::size_t i = begin; i < end; ++i) graph_.ops.push_back(ops[i]);
    const auto here = graph_.ops_of(segment);
    if (!here.empty() && here.front().inputs > 0) segment.input = graph_.inputs_of(here.front())[0];
    if (!here.empty() && here.back().outputs > 0) segment.output = graph_.outputs_of(here.back())[0];
    graph_.segments.push_back(segment);
  }

  // "layer", "layer_2", ...: names are literals, since the graph owns no others by now.
  static std::string_view numbered(std::string_view base, int number) {
    static constexpr std::string_view kLayers[] = {"layer", "layer_2", "layer_3", "layer_4", "layer_5"}, kHeads[] = {"head", "head_2", "head_3", "head_4", "head_5"},
                                      kFronts[] = {"embedding", "embedding_2", "embedding_3", "embedding_4", "embedding_5"};
    const auto at = static_cast<std::size_t>(std::min(number, 4));
    return base == "layer" ? kLayers[at] : base == "head" ? kHeads[at] : kFronts[at];
  }
  std::string_view next_name(std::string_view base) { return numbered(base, counts_[std::string(base)]++); }

  Graph& graph_;
  std::vector<std::uint32_t> keys_;
  std::unordered_map<std::string, int> counts_;
  int layers_ = 0;
};

}  // namespace

void fold_layers(Graph& graph) {
  if (graph.ops.size() >= 2 * kMinPeriod) Folder(graph).fold();
}

}  // namespace rooftile::onnx
