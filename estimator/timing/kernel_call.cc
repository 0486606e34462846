#include "estimator/timing/kernel_call.h"

#include <algorithm>
#include <type_traits>

#include "estimator/timing/kernel_defaults.h"

namespace rooftile {
namespace {

using namespace kernel_text;

template <typename Value>
void put(std::string& text, std::string_view key, const Value& value) {
  if (!text.empty()) text += ' ';
  text += key;
  text += '=';
  if constexpr (std::is_integral_v<Value>) {
    text += std::to_string(value);
  } else {
    text += value;
  }
}

struct Mixer {
  std::size_t state;
  // One multiply and shift per field (the finaliser of MurmurHash3 is the model): fields are small integers that differ in few bits.
  void add(std::uint64_t value) {
    state ^= value;
    state *= 0x9E3779B97F4A7C15ULL;
    state ^= state >> 29;
  }
  template <typename... Values>
  void add_all(Values... values) {
    (add(static_cast<std::uint64_t>(values)), ...);
  }
};

}  // namespace

Count AttentionShape::kept_pairs() const {
  const Count keys = seq_kv;
  if (!causal) return static_cast<Count>(seq_q) * (window > 0 && window < seq_kv ? window : seq_kv);
  // The last `rows` queries see first, first + 1, ..., keys keys; earlier ones see none (more queries than keys).
  const Count rows = std::min(seq_q, seq_kv);
  const Count first = keys - rows + 1;
  if (window <= 0 || window >= seq_kv) return rows * (first + keys) / 2;
  const Count width = window;
  if (width <= first) return rows * width;
  return (width - first + 1) * (first + width) / 2 + (keys - width) * width;
}

std::size_t hash_of(const KernelCall& call) {
  Mixer mixer{0};
  mixer.add(static_cast<std::uint64_t>(call.kernel) | static_cast<std::uint64_t>(call.dtype) << 8 | static_cast<std::uint64_t>(call.pass) << 16 |
            static_cast<std::uint64_t>(call.impl) << 24);
  switch (shape_of(call.kernel)) {
    case ShapeKind::gemm: {
      const GemmShape& s = call.gemm();
      mixer.add_all(s.m, s.n, s.k, s.batch);
      if (s.b_bytes > 0) mixer.add(static_cast<std::uint64_t>(s.b_bytes));
      mixer.add(static_cast<std::uint64_t>(s.layout) | static_cast<std::uint64_t>(s.out) << 8 | static_cast<std::uint64_t>(s.accumulate) << 16 |
                static_cast<std::uint64_t>(s.epilogue) << 24 | static_cast<std::uint64_t>(s.grouped) << 32);
      break;
    }
    case ShapeKind::attention: {
      const AttentionShape& s = call.attention();
      mixer.add_all(s.batch, s.heads, s.kv_heads, s.seq_q, s.seq_kv, s.head_dim, s.v_head_dim, s.window);
      mixer.add(static_cast<std::uint64_t>(s.causal) | static_cast<std::uint64_t>(s.kernel) << 8 | static_cast<std::uint64_t>(s.mask) << 16);
      break;
    }
    case ShapeKind::row:
      mixer.add_all(call.row().rows, call.row().cols);
      break;
    case ShapeKind::pointwise:
      mixer.add_all(call.pointwise().kind, call.pointwise().numel, call.pointwise().to);
      break;
    case ShapeKind::embedding:
      mixer.add_all(call.embedding().tokens, call.embedding().vocab, call.embedding().hidden);
      break;
    case ShapeKind::cross_entropy:
      mixer.add_all(call.cross_entropy().tokens, call.cross_entropy().vocab);
      break;
    case ShapeKind::optimizer: {
      const OptimizerShape& s = call.optimizer();
      mixer.add_all(s.kind, s.numel, s.state, s.gradient, s.main_weights);
      break;
    }
    case ShapeKind::collective: {
      const CollectiveShape& s = call.collective();
      mixer.add_all(s.kind, s.bytes, s.ranks, s.nodes);
      break;
    }
  }
  return mixer.state;
}

std::string print_shape(const KernelCall& call) {
  std::string text;
  const std::string_view pass = call.pass == Pass::bwd ? "bwd" : "fwd";
  switch (shape_of(call.kernel)) {
    case ShapeKind::gemm: {
      const GemmShape& s = call.gemm();
      put(text, "m", s.m), put(text, "n", s.n), put(text, "k", s.k), put(text, "batch", s.batch), put(text, "layout", name_of(s.layout));
      if (s.out != default_out(call.dtype)) put(text, "out", name_of(s.out));
      if (s.accumulate) put(text, "accumulate", 1);
      if (s.epilogue != Epilogue::none) put(text, "epilogue", kEpilogueNames[static_cast<std::size_t>(s.epilogue)]);
      if (s.grouped) put(text, "grouped", 1);
      if (s.b_bytes > 0) put(text, "b_bytes", s.b_bytes);
      break;
    }
    case ShapeKind::attention: {
      const AttentionShape& s = call.attention();
      put(text, "batch", s.batch), put(text, "heads", s.heads), put(text, "kv_heads", s.kv_heads), put(text, "seq_q", s.seq_q), put(text, "seq_kv", s.seq_kv),
          put(text, "head_dim", s.head_dim);
      if (s.v_head_dim != s.head_dim) put(text, "v_head_dim", s.v_head_dim);
      put(text, "causal", s.causal ? 1 : 0);
      if (s.window > 0) put(text, "window", s.window);
      if (s.mask) put(text, "mask", 1);
      put(text, "pass", pass);
      if (s.kernel != AttentionKernel::fastest) put(text, "kernel", name_of(s.kernel));
      break;
    }
    case ShapeKind::row:
      put(text, "rows", call.row().rows), put(text, "cols", call.row().cols);
      if (has_row_passes(call.kernel)) put(text, "pass", pass);
      break;
    case ShapeKind::pointwise: {
      const PointwiseShape& s = call.pointwise();
      put(text, "kind", name_of(s.kind)), put(text, "numel", s.numel);
      if (s.to != default_to(s.kind, call.dtype)) put(text, "to", name_of(s.to));
      break;
    }
    case ShapeKind::embedding: {
      const EmbeddingShape& s = call.embedding();
      put(text, "tokens", s.tokens), put(text, "vocab", s.vocab), put(text, "hidden", s.hidden), put(text, "pass", pass);
      break;
    }
    case ShapeKind::cross_entropy:
      put(text, "tokens", call.cross_entropy().tokens), put(text, "vocab", call.cross_entropy().vocab), put(text, "pass", pass);
      break;
    case ShapeKind::optimizer: {
      const OptimizerShape& s = call.optimizer();
      put(text, "kind", kOptimizerNames[static_cast<std::size_t>(s.kind)]), put(text, "numel", s.numel);
      if (s.state != call.dtype) put(text, "state", name_of(s.state));
      if (s.gradient != call.dtype) put(text, "gradient", name_of(s.gradient));
      if (s.main_weights) put(text, "main_weights", 1);
      break;
    }
    case ShapeKind::collective: {
      const CollectiveShape& s = call.collective();
      put(text, "kind", name_of(s.kind)), put(text, "bytes", s.bytes), put(text, "ranks", s.ranks), put(text, "nodes", s.nodes);
      break;
    }
  }
  return text;
}

}  // namespace rooftile
