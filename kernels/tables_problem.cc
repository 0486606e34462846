// Embedding, cross entropy and AdamW as problems: operands, launches, references in double.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <Eigen/Core>
#include <cmath>

#include "kernels/device.h"
#include "kernels/tables.h"

namespace rooftile::kernels {

namespace {

Reason fetch_indices(Context& context, const std::int32_t* data, std::size_t count, std::vector<std::int32_t>& to) {
  to.resize(count);
  ROOFTILE_CUDA(cudaMemcpyAsync(to.data(), data, count * sizeof(std::int32_t), cudaMemcpyDeviceToHost, context.stream));
  ROOFTILE_CUDA(cudaStreamSynchronize(context.stream));
  return {};
}

Reason fetch_array(Context& context, const void* data, Type type, std::int64_t count, Eigen::ArrayXd& to) {
  std::vector<double> buffer;
  ROOFTILE_TRY(fetch(context, data, type, static_cast<std::size_t>(count), 1, buffer));
  to = Eigen::Map<const Eigen::ArrayXd>(buffer.data(), count);
  return {};
}

double rounding(Type type) { return type == Type::bf16 ? 6e-3 : type == Type::fp16 ? 1e-3 : 2e-5; }

template <typename T>
class EmbeddingKernel final : public Kernel {
 public:
  explicit EmbeddingKernel(const Embedding& problem) : p_(problem) {
    const std::size_t rows = align_up(static_cast<std::size_t>(p_.tokens * p_.hidden) * sizeof(T));
    const std::size_t table = static_cast<std::size_t>(p_.vocab * p_.hidden);
    ids_bytes_ = align_up(static_cast<std::size_t>(p_.tokens) * sizeof(std::int32_t));
    input_type = p_.type;
    library = "rooftile";
    tolerance = p_.backward ? 1e-5 : 1e-9;
    // Ids lie with the outputs, since the inputs hold nothing but random numbers.
    input_bytes = p_.backward ? rows : align_up(table * sizeof(T));
    result_bytes_ = p_.backward ? align_up(table * sizeof(float)) : rows;
    output_bytes = result_bytes_ + ids_bytes_;
    touched_bytes = p_.backward ? rows + static_cast<std::size_t>(std::min(p_.tokens, p_.vocab) * p_.hidden) * 8 : 2 * rows;
  }

  Reason prepare(Context& context, int sets) override {
    for (int set = 0; set < sets; ++set) {
      ROOFTILE_TRY(fill_indices(context, ids(context, set), static_cast<std::size_t>(p_.tokens), static_cast<std::int32_t>(p_.vocab), 31u + static_cast<std::uint64_t>(set)));
      if (p_.backward) ROOFTILE_CUDA(cudaMemsetAsync(output(context, set), 0, result_bytes_, context.stream));
    }
    return {};
  }

  Reason launch(Context& context, int set) override {
    if (p_.backward)
      embedding_backward<T>(context.stream, ids(context, set), reinterpret_cast<const T*>(input(context, set)), reinterpret_cast<float*>(output(context, set)), p_.tokens,
                            p_.hidden);
    else
      embedding_forward<T>(context.stream, ids(context, set), reinterpret_cast<const T*>(input(context, set)), reinterpret_cast<T*>(output(context, set)), p_.tokens, p_.hidden);
    ROOFTILE_CUDA(cudaGetLastError());
    return {};
  }

  Reason check(Context& context, double& error) override {
    if (!p_.backward) ROOFTILE_TRY(poison(context, output(context, 0), result_bytes_));
    if (p_.backward) ROOFTILE_CUDA(cudaMemsetAsync(output(context, 0), 0, result_bytes_, context.stream));
    ROOFTILE_TRY(launch(context, 0));
    std::vector<std::int32_t> picked;
    ROOFTILE_TRY(fetch_indices(context, ids(context, 0), static_cast<std::size_t>(p_.tokens), picked));
    ErrorSum sum;
    Eigen::ArrayXd got, row, expected;
    for (const std::int64_t token : sample(p_.tokens, 6, 3)) {
      const std::int64_t id = picked[static_cast<std::size_t>(token)];
      if (!p_.backward) {
        ROOFTILE_TRY(fetch_array(context, input(context, 0) + static_cast<std::size_t>(id * p_.hidden) * sizeof(T), p_.type, p_.hidden, expected));
        ROOFTILE_TRY(fetch_array(context, output(context, 0) + static_cast<std::size_t>(token * p_.hidden) * sizeof(T), p_.type, p_.hidden, got));
      } else {
        expected = Eigen::ArrayXd::Zero(p_.hidden);
        for (std::int64_t other = 0; other < p_.tokens; ++other) {
          if (picked[static_cast<std::size_t>(other)] != id) continue;
          ROOFTILE_TRY(fetch_array(context, input(context, 0) + static_cast<std::size_t>(other * p_.hidden) * sizeof(T), p_.type, p_.hidden, row));
          expected += row;
        }
        ROOFTILE_TRY(fetch_array(context, output(context, 0) + static_cast<std::size_t>(id * p_.hidden) * sizeof(float), Type::fp32, p_.hidden, got));
      }
      for (Eigen::Index i = 0; i < p_.hidden; ++i) sum.add(got[i], expected[i]);
    }
    error = sum.relative();
    return {};
  }

 private:
  std::int32_t* ids(Context& context, int set) const { return reinterpret_cast<std::int32_t*>(output(context, set, result_bytes_)); }

  Embedding p_;
  std::size_t ids_bytes_ = 0, result_bytes_ = 0;
};

template <typename T>
class CrossEntropyKernel final : public Kernel {
 public:
  explicit CrossEntropyKernel(const CrossEntropy& problem) : p_(problem) {
    const std::size_t logits = align_up(static_cast<std::size_t>(p_.tokens * p_.vocab) * sizeof(T)), row = align_up(static_cast<std::size_t>(p_.tokens) * 4);
    input_type = p_.type;
    input_bytes = logits;
    gradient_bytes_ = p_.backward ? logits : 0;
    output_bytes = gradient_bytes_ + 3 * row;
    loss_ = gradient_bytes_;
    lse_ = loss_ + row;
    labels_ = lse_ + row;
    touched_bytes = logits * (p_.backward ? 2 : 1);
    tolerance = p_.backward ? rounding(p_.type) : 1e-4;
    library = "rooftile";
  }

  Reason prepare(Context& context, int sets) override {
    for (int set = 0; set < sets; ++set) {
      ROOFTILE_TRY(fill_indices(context, labels(context, set), static_cast<std::size_t>(p_.tokens), static_cast<std::int32_t>(p_.vocab), 71u + static_cast<std::uint64_t>(set)));
      if (p_.backward)
        cross_entropy_forward<T>(context.stream, logits(context, set), labels(context, set), real(context, set, loss_), real(context, set, lse_), p_.tokens, p_.vocab);
    }
    ROOFTILE_CUDA(cudaGetLastError());
    return {};
  }

  Reason launch(Context& context, int set) override {
    if (p_.backward)
      cross_entropy_backward<T>(context.stream, logits(context, set), labels(context, set), real(context, set, lse_), reinterpret_cast<T*>(output(context, set)), 1.0f, p_.tokens,
                                p_.vocab);
    else
      cross_entropy_forward<T>(context.stream, logits(context, set), labels(context, set), real(context, set, loss_), real(context, set, lse_), p_.tokens, p_.vocab);
    ROOFTILE_CUDA(cudaGetLastError());
    return {};
  }

  Reason check(Context& context, double& error) override {
    ROOFTILE_TRY(poison(context, output(context, 0), p_.backward ? gradient_bytes_ : lse_));
    ROOFTILE_TRY(launch(context, 0));
    std::uint64_t bad = 0;
    const std::size_t results = static_cast<std::size_t>(p_.backward ? p_.tokens * p_.vocab : p_.tokens);
    ROOFTILE_TRY(count_nonfinite(context, output(context, 0), p_.backward ? p_.type : Type::fp32, results, bad));
    if (bad > 0) {
      error = std::nan("");
      return {};
    }
    std::vector<std::int32_t> label;
    ROOFTILE_TRY(fetch_indices(context, labels(context, 0), static_cast<std::size_t>(p_.tokens), label));
    ErrorSum sum;
    Eigen::ArrayXd x, got;
    for (const std::int64_t token : sample(p_.tokens, 6, 5)) {
      ROOFTILE_TRY(fetch_array(context, logits(context, 0) + token * p_.vocab, p_.type, p_.vocab, x));
      const double lse = x.maxCoeff() + std::log((x - x.maxCoeff()).exp().sum());
      if (p_.backward) {
        Eigen::ArrayXd expected = (x - lse).exp();
        expected[label[static_cast<std::size_t>(token)]] -= 1.0;
        ROOFTILE_TRY(fetch_array(context, output(context, 0) + static_cast<std::size_t>(token * p_.vocab) * sizeof(T), p_.type, p_.vocab, got));
        for (Eigen::Index i = 0; i < p_.vocab; ++i) sum.add(got[i], expected[i]);
      } else {
        ROOFTILE_TRY(fetch_array(context, real(context, 0, loss_) + token, Type::fp32, 1, got));
        sum.add(got[0], lse - x[label[static_cast<std::size_t>(token)]]);
      }
    }
    error = sum.relative();
    return {};
  }

 private:
  const T* logits(Context& context, int set) const { return reinterpret_cast<const T*>(input(context, set)); }
  float* real(Context& context, int set, std::size_t offset) const { return reinterpret_cast<float*>(output(context, set, offset)); }
  std::int32_t* labels(Context& context, int set) const { return reinterpret_cast<std::int32_t*>(output(context, set, labels_)); }

  CrossEntropy p_;
  std::size_t gradient_bytes_ = 0, loss_ = 0, lse_ = 0, labels_ = 0;
};

// Everything is updated in place, so all of it lies with the outputs.
template <typename T>
class AdamWKernel final : public Kernel {
 public:
  explicit AdamWKernel(const AdamW& problem) : p_(problem) {
    const std::size_t n = static_cast<std::size_t>(p_.numel);
    main_ = align_up(n * sizeof(T));
    gradient_ = main_ + (p_.main_weights ? align_up(n * 4) : 0);
    m_ = gradient_ + align_up(n * size_of(p_.gradient));
    v_ = m_ + align_up(n * size_of(p_.state));
    lists_ = v_ + align_up(n * size_of(p_.state));
    for (std::int64_t at = 0; at < p_.numel;) {  // tensors of 16 Mi elements, cut into chunks
      const std::int64_t count = std::min({kAdamWChunk, p_.numel - at, kTensor - at % kTensor});
      pieces_.push_back({static_cast<std::int32_t>(at / kTensor), static_cast<std::int32_t>(count), at % kTensor});
      at += count;
    }
    tensors_ = static_cast<std::size_t>((p_.numel + kTensor - 1) / kTensor);
    output_bytes = lists_ + align_up(tensors_ * sizeof(AdamWTensor)) + align_up(pieces_.size() * sizeof(AdamWPiece));
    touched_bytes = lists_;
    input_type = Type::fp32;
    tolerance = p_.main_weights || p_.type == Type::fp32 ? 1e-5 : rounding(p_.type);
    if (p_.state != Type::fp32) tolerance = rounding(p_.state);
    library = "rooftile";
  }

  Reason prepare(Context& context, int sets) override {
    const std::size_t n = static_cast<std::size_t>(p_.numel);
    for (int set = 0; set < sets; ++set) {
      const std::uint64_t seed = 1000u * static_cast<std::uint64_t>(set);
      ROOFTILE_TRY(fill_normal(context, output(context, set), n, p_.type, seed + 1, 0.02f));
      if (p_.main_weights) ROOFTILE_TRY(fill_normal(context, output(context, set, main_), n, Type::fp32, seed + 2, 0.02f));
      ROOFTILE_TRY(fill_normal(context, output(context, set, gradient_), n, p_.gradient, seed + 3, 1e-2f));
      ROOFTILE_TRY(fill_normal(context, output(context, set, m_), n, p_.state, seed + 4, 1e-2f));
      ROOFTILE_CUDA(cudaMemsetAsync(output(context, set, v_), 0, n * size_of(p_.state), context.stream));
      std::vector<AdamWTensor> tensors;
      for (std::size_t i = 0; i < tensors_; ++i) {
        const std::size_t first = i * static_cast<std::size_t>(kTensor);
        tensors.push_back({output(context, set, first * sizeof(T)), p_.main_weights ? reinterpret_cast<float*>(output(context, set, main_ + first * 4)) : nullptr,
                           output(context, set, gradient_ + first * size_of(p_.gradient)), output(context, set, m_ + first * size_of(p_.state)),
                           output(context, set, v_ + first * size_of(p_.state))});
      }
      ROOFTILE_CUDA(cudaMemcpy(list(context, set), tensors.data(), tensors.size() * sizeof(AdamWTensor), cudaMemcpyHostToDevice));
      ROOFTILE_CUDA(cudaMemcpy(pieces(context, set), pieces_.data(), pieces_.size() * sizeof(AdamWPiece), cudaMemcpyHostToDevice));
    }
    return {};
  }

  Reason launch(Context& context, int set) override {
    const AdamWRates rates;
    const auto* tensors = reinterpret_cast<const AdamWTensor*>(list(context, set));
    const auto* work = reinterpret_cast<const AdamWPiece*>(pieces(context, set));
    const int count = static_cast<int>(pieces_.size());
    const bool wide_state = p_.state == Type::fp32, wide_gradient = p_.gradient == Type::fp32;
    if (wide_state && wide_gradient)
      adamw<T, float, float>(context.stream, tensors, work, count, rates);
    else if (wide_state)
      adamw<T, float, __nv_bfloat16>(context.stream, tensors, work, count, rates);
    else if (wide_gradient)
      adamw<T, __nv_bfloat16, float>(context.stream, tensors, work, count, rates);
    else
      adamw<T, __nv_bfloat16, __nv_bfloat16>(context.stream, tensors, work, count, rates);
    ROOFTILE_CUDA(cudaGetLastError());
    return {};
  }

  Reason check(Context& context, double& error) override {
    struct State {
      Eigen::ArrayXd w, g, m, v;
    };
    constexpr std::int64_t kStretch = 512;
    const auto blocks = sample((p_.numel + kStretch - 1) / kStretch, 8, 21);
    const auto read = [&](std::vector<State>& to) -> Reason {
      for (const std::int64_t block : blocks) {
        const std::int64_t first = block * kStretch, count = std::min(kStretch, p_.numel - first);
        State state;
        const auto at = [&](std::size_t offset, Type type) { return output(context, 0, offset + static_cast<std::size_t>(first) * size_of(type)); };
        ROOFTILE_TRY(fetch_array(context, p_.main_weights ? at(main_, Type::fp32) : at(0, p_.type), p_.main_weights ? Type::fp32 : p_.type, count, state.w));
        ROOFTILE_TRY(fetch_array(context, at(gradient_, p_.gradient), p_.gradient, count, state.g));
        ROOFTILE_TRY(fetch_array(context, at(m_, p_.state), p_.state, count, state.m));
        ROOFTILE_TRY(fetch_array(context, at(v_, p_.state), p_.state, count, state.v));
        to.push_back(std::move(state));
      }
      return {};
    };
    std::vector<State> before, after;
    ROOFTILE_TRY(read(before));
    ROOFTILE_TRY(launch(context, 0));
    ROOFTILE_TRY(read(after));
    ErrorSum weights, first, second;
    const AdamWRates r;
    for (std::size_t i = 0; i < before.size(); ++i) {
      const State& b = before[i];
      const double beta1 = static_cast<double>(r.beta1), beta2 = static_cast<double>(r.beta2), rate = static_cast<double>(r.rate);
      const Eigen::ArrayXd m = beta1 * b.m + (1 - beta1) * b.g, v = beta2 * b.v + (1 - beta2) * b.g.square();
      const Eigen::ArrayXd w = b.w * (1 - rate * static_cast<double>(r.decay)) - rate * (m / (1 - beta1)) / ((v / (1 - beta2)).sqrt() + static_cast<double>(r.epsilon));
      for (Eigen::Index e = 0; e < w.size(); ++e) {
        weights.add(after[i].w[e], w[e]);
        first.add(after[i].m[e], m[e]);
        second.add(after[i].v[e], v[e]);
      }
    }
    error = std::max({weights.relative(), first.relative(), second.relative()});
    return {};
  }

 private:
  static constexpr std::int64_t kTensor = std::int64_t{16} << 20;
  std::byte* list(Context& context, int set) const { return output(context, set, lists_); }
  std::byte* pieces(Context& context, int set) const { return output(context, set, lists_ + align_up(tensors_ * sizeof(AdamWTensor))); }

  AdamW p_;
  std::vector<AdamWPiece> pieces_;
  std::size_t main_ = 0, gradient_ = 0, m_ = 0, v_ = 0, lists_ = 0, tensors_ = 0;
};

template <template <typename> class Form, typename Problem>
std::unique_ptr<Kernel> make(const Problem& problem, Reason& reason) {
  switch (problem.type) {
    case Type::bf16:
      return std::make_unique<Form<__nv_bfloat16>>(problem);
    case Type::fp16:
      return std::make_unique<Form<__half>>(problem);
    case Type::fp32:
    case Type::tf32:
      return std::make_unique<Form<float>>(problem);
    case Type::fp8_e4m3:
      reason = "this kernel has no form in fp8_e4m3";
  }
  return nullptr;
}

constexpr std::int64_t kMostTokens = (std::int64_t{1} << 31) - 1;

}  // namespace

std::unique_ptr<Kernel> make_embedding(Context&, const Embedding& problem, Reason& reason) {
  if (problem.tokens > kMostTokens || problem.vocab > kMostTokens) reason = "more tokens or words than one launch can number";
  return reason.empty() ? make<EmbeddingKernel>(problem, reason) : nullptr;
}

std::unique_ptr<Kernel> make_cross_entropy(Context&, const CrossEntropy& problem, Reason& reason) {
  if (problem.tokens > kMostTokens || problem.vocab > kMostTokens) reason = "more tokens or words than one launch can number";
  return reason.empty() ? make<CrossEntropyKernel>(problem, reason) : nullptr;
}

std::unique_ptr<Kernel> make_adamw(Context&, const AdamW& problem, Reason& reason) {
  const auto known = [](Type type) { return type == Type::fp32 || type == Type::bf16; };
  if (!known(problem.state) || !known(problem.gradient)) reason = "moments and gradients are fp32 or bf16";
  return reason.empty() ? make<AdamWKernel>(problem, reason) : nullptr;
}

}  // namespace rooftile::kernels
