#include <algorithm>

#include "estimator/timing/gemm.h"
#include "estimator/timing/kernel_call.h"

namespace rooftile {
namespace {

struct Size {
  std::string_view key;
  double value;
};

template <std::size_t n>
double look_up(std::string_view key, const Size (&sizes)[n]) {
  const auto found = std::find_if(std::begin(sizes), std::end(sizes), [&](const Size& size) { return size.key == key; });
  return found == std::end(sizes) ? 0 : found->value;
}

}  // namespace

double size_of(const KernelCall& call, std::string_view key) {
  const auto real = [](std::int64_t value) { return static_cast<double>(value); };
  switch (shape_of(call.kernel)) {
    case ShapeKind::gemm: {
      const GemmShape& s = call.gemm();
      if (key == "alignment") return alignment_of(s, call.dtype);
      return look_up(key, {{"m", real(s.m)}, {"n", real(s.n)}, {"k", real(s.k)}, {"batch", real(s.batch)}});
    }
    case ShapeKind::attention: {
      const AttentionShape& s = call.attention();
      return look_up(key, {{"heads", real(s.batch) * real(s.heads)}, {"seq_q", real(s.seq_q)}, {"seq_kv", real(s.seq_kv)}, {"head_dim", real(s.head_dim)}});
    }
    case ShapeKind::row:
      return look_up(key, {{"rows", real(call.row().rows)}, {"cols", real(call.row().cols)}});
    case ShapeKind::pointwise:
      return look_up(key, {{"numel", real(call.pointwise().numel)}});
    case ShapeKind::optimizer:
      return look_up(key, {{"numel", real(std::get<OptimizerShape>(call.shape).numel)}});
    case ShapeKind::embedding: {
      const EmbeddingShape& s = call.embedding();
      return look_up(key, {{"tokens", real(s.tokens)}, {"vocab", real(s.vocab)}, {"hidden", real(s.hidden)}});
    }
    case ShapeKind::cross_entropy:
      return look_up(key, {{"tokens", real(call.cross_entropy().tokens)}, {"vocab", real(call.cross_entropy().vocab)}});
    case ShapeKind::collective:
      return look_up(key, {{"bytes", real(call.collective().bytes)}, {"ranks", real(call.collective().ranks)}, {"nodes", real(call.collective().nodes)}});
  }
  return 0;
}

}  // namespace rooftile
