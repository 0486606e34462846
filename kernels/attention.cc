// Attention as a problem: fused by cuDNN, or as products, mask and softmax with the score matrix in memory; one reference for both.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <Eigen/Core>
#include <cmath>

#include "kernels/attention_cudnn.h"
#include "kernels/gemm.h"
#include "kernels/rows.h"
#include "kernels/scores.h"

namespace rooftile::kernels {

namespace {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

// Where the operands of one set lie, and the comparison with the reference.
class AttentionKernel : public Kernel {
 public:
  AttentionKernel(const Attention& problem, bool heads_first) : p_(problem), heads_first_(heads_first) {
    const std::size_t e = size_of(p_.type);
    const auto bytes = [&](std::int64_t heads, std::int64_t seq, std::int64_t width, std::size_t element) {
      return align_up(static_cast<std::size_t>(p_.batch * heads * seq * width) * element);
    };
    q_bytes_ = bytes(p_.heads, p_.seq_q, p_.head_dim, e);
    k_bytes_ = bytes(p_.kv_heads, p_.seq_kv, p_.head_dim, e);
    v_bytes_ = bytes(p_.kv_heads, p_.seq_kv, p_.v_head_dim, e);
    o_bytes_ = bytes(p_.heads, p_.seq_q, p_.v_head_dim, e);
    stats_bytes_ = bytes(p_.heads, p_.seq_q, 1, sizeof(float));
    input_type = p_.type;
    k_ = q_bytes_;
    v_ = k_ + k_bytes_;
    dout_ = v_ + v_bytes_;
    input_bytes = dout_ + (p_.backward ? o_bytes_ : 0);
    stats_ = o_bytes_;
    dq_ = stats_ + stats_bytes_;
    dk_ = dq_ + (p_.backward ? q_bytes_ : 0);
    dv_ = dk_ + (p_.backward ? k_bytes_ : 0);
    extra_ = dv_ + (p_.backward ? v_bytes_ : 0);
    output_bytes = extra_;
    touched_bytes = q_bytes_ + k_bytes_ + v_bytes_ + o_bytes_ + (p_.backward ? q_bytes_ + k_bytes_ + v_bytes_ + o_bytes_ : 0);
    tolerance = p_.type == Type::fp32 ? 1e-3 : p_.type == Type::fp16 ? 5e-3 : 2e-2;
  }

  Reason check(Context& context, double& error) override {
    if (p_.backward)
      ROOFTILE_TRY(poison(context, output(context, 0, dq_), extra_ - dq_));
    else
      ROOFTILE_TRY(poison(context, output(context, 0), o_bytes_));
    ROOFTILE_TRY(launch(context, 0));
    std::uint64_t bad = 0;
    const auto finite = [&](std::size_t offset, std::int64_t count) { return count_nonfinite(context, output(context, 0, offset), p_.type, static_cast<std::size_t>(count), bad); };
    if (p_.backward) {
      ROOFTILE_TRY(finite(dq_, p_.batch * p_.heads * p_.seq_q * p_.head_dim));
      if (bad == 0) ROOFTILE_TRY(finite(dk_, p_.batch * p_.kv_heads * p_.seq_kv * p_.head_dim));
      if (bad == 0) ROOFTILE_TRY(finite(dv_, p_.batch * p_.kv_heads * p_.seq_kv * p_.v_head_dim));
    } else {
      ROOFTILE_TRY(finite(0, p_.batch * p_.heads * p_.seq_q * p_.v_head_dim));
    }
    if (bad > 0) {
      error = std::nan("");
      return {};
    }
    ErrorSum out, stats, dq, dk, dv;
    const auto batches = sample(p_.batch, 2, 17), heads = sample(p_.heads, 2, 19);
    for (const std::int64_t b : batches)
      for (const std::int64_t h : heads) ROOFTILE_TRY(check_queries(context, b, h, out, stats, dq));
    // Gradients of keys need every query of every head that shares them, so one group of heads is enough.
    if (p_.backward) ROOFTILE_TRY(check_keys(context, batches.back(), heads.back() / (p_.heads / p_.kv_heads), dk, dv));
    error = out.relative();
    for (const ErrorSum* sum : {&stats, &dq, &dk, &dv})
      if (!(sum->relative() <= error)) error = sum->relative();
    return {};
  }

 protected:
  // Elements before the row of position s of head h of sequence b, and between positions.
  std::size_t row(std::int64_t heads, std::int64_t seq, std::int64_t width, std::int64_t b, std::int64_t h, std::int64_t s) const {
    return static_cast<std::size_t>(heads_first_ ? ((b * heads + h) * seq + s) * width : ((b * seq + s) * heads + h) * width);
  }
  std::size_t step(std::int64_t heads, std::int64_t width) const { return static_cast<std::size_t>(heads_first_ ? width : heads * width); }

  Reason get(Context& context, const std::byte* data, std::int64_t heads, std::int64_t seq, std::int64_t width, std::int64_t b, std::int64_t h, std::int64_t s, std::int64_t count,
             Matrix& to) const {
    std::vector<double> buffer;
    ROOFTILE_TRY(fetch_matrix(context, data + row(heads, seq, width, b, h, s) * size_of(p_.type), p_.type, static_cast<std::size_t>(count), static_cast<std::size_t>(width),
                              step(heads, width), buffer));
    to = Eigen::Map<const Matrix>(buffer.data(), count, width);
    return {};
  }

  bool sees(std::int64_t query, std::int64_t key) const {
    const std::int64_t place = query + p_.seq_kv - p_.seq_q;
    return (!p_.causal || key <= place) && (p_.window == 0 || key > place - p_.window);
  }
  double scale() const { return 1.0 / std::sqrt(static_cast<double>(p_.head_dim)); }
  virtual bool has_statistics() const { return false; }

  // A few queries in full: output and log-sum-exp forward, dQ backward.
  Reason check_queries(Context& context, std::int64_t b, std::int64_t h, ErrorSum& out, ErrorSum& stats, ErrorSum& dq) const {
    const std::int64_t kv = h / (p_.heads / p_.kv_heads);
    Matrix k, v, q, got;
    ROOFTILE_TRY(get(context, input(context, 0, k_), p_.kv_heads, p_.seq_kv, p_.head_dim, b, kv, 0, p_.seq_kv, k));
    ROOFTILE_TRY(get(context, input(context, 0, v_), p_.kv_heads, p_.seq_kv, p_.v_head_dim, b, kv, 0, p_.seq_kv, v));
    std::vector<double> buffer;
    for (const std::int64_t s : sample(p_.seq_q, 4, 23)) {
      ROOFTILE_TRY(get(context, input(context, 0), p_.heads, p_.seq_q, p_.head_dim, b, h, s, 1, q));
      Eigen::VectorXd scores = k * q.transpose() * scale();
      for (Eigen::Index j = 0; j < p_.seq_kv; ++j)
        if (!sees(s, j)) scores[j] = -std::numeric_limits<double>::infinity();
      const double top = scores.maxCoeff();
      Eigen::VectorXd probability = (scores.array() - top).exp();
      const double total = probability.sum();
      probability /= total;
      const Matrix expected = probability.transpose() * v;
      ROOFTILE_TRY(get(context, output(context, 0), p_.heads, p_.seq_q, p_.v_head_dim, b, h, s, 1, got));
      for (Eigen::Index i = 0; i < p_.v_head_dim; ++i) out.add(got(0, i), expected(0, i));
      if (has_statistics()) {
        ROOFTILE_TRY(fetch(context, output(context, 0, stats_) + static_cast<std::size_t>((b * p_.heads + h) * p_.seq_q + s) * sizeof(float), Type::fp32, 1, 1, buffer));
        stats.add(buffer[0], top + std::log(total));
      }
      if (!p_.backward) continue;
      Matrix dout;
      ROOFTILE_TRY(get(context, input(context, 0, dout_), p_.heads, p_.seq_q, p_.v_head_dim, b, h, s, 1, dout));
      const double sum = dout.row(0).dot(expected.row(0));
      const Eigen::VectorXd dp = v * dout.transpose();
      const Eigen::VectorXd ds = probability.array() * (dp.array() - sum) * scale();
      const Matrix wanted = ds.transpose() * k;
      ROOFTILE_TRY(get(context, output(context, 0, dq_), p_.heads, p_.seq_q, p_.head_dim, b, h, s, 1, got));
      for (Eigen::Index i = 0; i < p_.head_dim; ++i) dq.add(got(0, i), wanted(0, i));
    }
    return {};
  }

  // A few keys in full: dK and dV, summed over the query heads that share them. The log-sum-exp of every query is worked out from scratch only where it is cheap.
  Reason check_keys(Context& context, std::int64_t b, std::int64_t kv, ErrorSum& dk, ErrorSum& dv) const {
    const std::int64_t group = p_.heads / p_.kv_heads;
    const auto keys = sample(p_.seq_kv, 4, 29);
    std::vector<Matrix> want_dk(keys.size(), Matrix::Zero(1, p_.head_dim)), want_dv(keys.size(), Matrix::Zero(1, p_.v_head_dim));
    Matrix k, v, q, o, dout, got;
    ROOFTILE_TRY(get(context, input(context, 0, k_), p_.kv_heads, p_.seq_kv, p_.head_dim, b, kv, 0, p_.seq_kv, k));
    ROOFTILE_TRY(get(context, input(context, 0, v_), p_.kv_heads, p_.seq_kv, p_.v_head_dim, b, kv, 0, p_.seq_kv, v));
    for (std::int64_t h = kv * group; h < (kv + 1) * group; ++h) {
      ROOFTILE_TRY(get(context, input(context, 0), p_.heads, p_.seq_q, p_.head_dim, b, h, 0, p_.seq_q, q));
      ROOFTILE_TRY(get(context, output(context, 0), p_.heads, p_.seq_q, p_.v_head_dim, b, h, 0, p_.seq_q, o));
      ROOFTILE_TRY(get(context, input(context, 0, dout_), p_.heads, p_.seq_q, p_.v_head_dim, b, h, 0, p_.seq_q, dout));
      std::vector<double> lse;
      if (has_statistics()) {  // the forward pass's, compared in check_queries
        ROOFTILE_TRY(fetch(context, output(context, 0, stats_) + static_cast<std::size_t>((b * p_.heads + h) * p_.seq_q) * sizeof(float), Type::fp32,
                           static_cast<std::size_t>(p_.seq_q), 1, lse));
      } else {
        if (p_.seq_q * p_.seq_kv > (std::int64_t{1} << 21)) return {};
        const Matrix scores = q * k.transpose() * scale();
        for (std::int64_t s = 0; s < p_.seq_q; ++s) {
          double top = -std::numeric_limits<double>::infinity(), sum = 0;
          for (std::int64_t j = 0; j < p_.seq_kv; ++j)
            if (sees(s, j)) top = std::max(top, scores(s, j));
          for (std::int64_t j = 0; j < p_.seq_kv; ++j)
            if (sees(s, j)) sum += std::exp(scores(s, j) - top);
          lse.push_back(top + std::log(sum));
        }
      }
      const Eigen::VectorXd sums = (dout.array() * o.array()).rowwise().sum();
      for (std::size_t i = 0; i < keys.size(); ++i) {
        const Eigen::Index j = keys[i];
        Eigen::VectorXd probability = q * k.row(j).transpose() * scale();
        for (Eigen::Index s = 0; s < p_.seq_q; ++s) probability[s] = sees(s, j) ? std::exp(probability[s] - lse[static_cast<std::size_t>(s)]) : 0.0;
        const Eigen::VectorXd dp = dout * v.row(j).transpose();
        const Eigen::VectorXd ds = probability.array() * (dp - sums).array() * scale();
        want_dk[i] += ds.transpose() * q;
        want_dv[i] += probability.transpose() * dout;
      }
    }
    for (std::size_t i = 0; i < keys.size(); ++i) {
      ROOFTILE_TRY(get(context, output(context, 0, dk_), p_.kv_heads, p_.seq_kv, p_.head_dim, b, kv, keys[i], 1, got));
      for (Eigen::Index c = 0; c < p_.head_dim; ++c) dk.add(got(0, c), want_dk[i](0, c));
      ROOFTILE_TRY(get(context, output(context, 0, dv_), p_.kv_heads, p_.seq_kv, p_.v_head_dim, b, kv, keys[i], 1, got));
      for (Eigen::Index c = 0; c < p_.v_head_dim; ++c) dv.add(got(0, c), want_dv[i](0, c));
    }
    return {};
  }

  Attention p_;
  bool heads_first_;
  std::size_t q_bytes_ = 0, k_bytes_ = 0, v_bytes_ = 0, o_bytes_ = 0, stats_bytes_ = 0;
  std::size_t k_ = 0, v_ = 0, dout_ = 0;                          // in the inputs; Q first
  std::size_t stats_ = 0, dq_ = 0, dk_ = 0, dv_ = 0, extra_ = 0;  // in the outputs; O first
};

#ifdef ROOFTILE_HAS_CUDNN

class CudnnAttention final : public AttentionKernel {
 public:
  CudnnAttention(Context& context, const Attention& problem) : AttentionKernel(problem, false), forward_(context.libraries->cudnn), backward_(context.libraries->cudnn) {
    row_sums_ = extra_;
    dq_sums_ = row_sums_ + stats_bytes_;
    if (p_.backward) output_bytes = dq_sums_ + align_up(static_cast<std::size_t>(p_.batch * p_.heads * p_.seq_q * p_.head_dim) * sizeof(float));
    library = "cudnn " + context.libraries->cudnn.version;
  }

  Reason create(Context& context) {
    // A forward pass that is timed writes the statistics too, as in training; a decode step of one query does not need them.
    statistics_ = p_.backward || p_.seq_q > 1;
    forward_tensors_ = build_attention_forward(forward_, p_, statistics_);
    ROOFTILE_TRY(forward_.plan());
    algorithm = forward_.engine();
    std::size_t workspace = forward_.workspace_bytes();
    if (p_.backward) {
      backward_tensors_ = build_attention_backward(backward_, p_);
      ROOFTILE_TRY(backward_.plan());
      algorithm = backward_.engine();
      workspace = std::max(workspace, backward_.workspace_bytes());
    }
    return context.workspace.reserve(std::max<std::size_t>(workspace, kAlignment));
  }

  Reason prepare(Context& context, int sets) override {
    if (context.libraries->cudnn.cudnnSetStream(context.libraries->cudnn.handle, context.stream) != CUDNN_STATUS_SUCCESS) return "cudnnSetStream failed";
    for (int set = 0; set < sets; ++set) {
      const AttentionTensors& f = forward_tensors_;
      std::vector<std::pair<std::int64_t, void*>> operands = {
          {f.q, input(context, set)}, {f.k, input(context, set, k_)}, {f.v, input(context, set, v_)}, {f.o, output(context, set)}};
      if (statistics_) operands.emplace_back(f.statistics, output(context, set, stats_));
      cudnnBackendDescriptor_t pack = nullptr;
      ROOFTILE_TRY(forward_.bind(operands, context.workspace.data(), pack));
      if (!p_.backward) {
        packs_.push_back(pack);
        continue;
      }
      ROOFTILE_TRY(forward_.execute(pack));
      const AttentionTensors& t = backward_tensors_;
      operands = {{t.q, input(context, set)},
                  {t.k, input(context, set, k_)},
                  {t.v, input(context, set, v_)},
                  {t.o, output(context, set)},
                  {t.statistics, output(context, set, stats_)},
                  {t.dout, input(context, set, dout_)},
                  {t.dq, output(context, set, dq_)},
                  {t.dk, output(context, set, dk_)},
                  {t.dv, output(context, set, dv_)},
                  {t.row_sums, output(context, set, row_sums_)},
                  {t.dq_sums, output(context, set, dq_sums_)}};
      ROOFTILE_TRY(backward_.bind(operands, context.workspace.data(), pack));
      packs_.push_back(pack);
    }
    return {};
  }

  Reason launch(Context&, int set) override { return (p_.backward ? backward_ : forward_).execute(packs_[static_cast<std::size_t>(set)]); }

 protected:
  bool has_statistics() const override { return statistics_; }

 private:
  CudnnGraph forward_, backward_;
  AttentionTensors forward_tensors_, backward_tensors_;
  std::vector<cudnnBackendDescriptor_t> packs_;  // owned by the graphs
  bool statistics_ = true;
  std::size_t row_sums_ = 0, dq_sums_ = 0;
};

#endif

// Query heads that share a KV head lie behind one another, so they are more rows of one product.
template <typename T>
class StandardAttention final : public AttentionKernel {
 public:
  explicit StandardAttention(const Attention& problem) : AttentionKernel(problem, true) {
    const std::size_t scores = align_up(static_cast<std::size_t>(p_.batch * p_.heads * p_.seq_q * p_.seq_kv) * sizeof(T));
    scores_ = extra_;
    probabilities_ = scores_ + scores;
    output_bytes = probabilities_ + scores;
    touched_bytes += 2 * scores;
    rows_ = p_.heads / p_.kv_heads * p_.seq_q;
  }

  Reason create(Context& context) {
    const std::int64_t batch = p_.batch * p_.kv_heads;
    const auto product = [&](LtProduct& to, std::int64_t m, std::int64_t n, std::int64_t k, bool ta, bool tb) {
      return to.create(context, Gemm{m, n, k, batch, ta, tb, p_.type, p_.type});
    };
    ROOFTILE_TRY(product(scores_product_, rows_, p_.seq_kv, p_.head_dim, false, true));
    ROOFTILE_TRY(product(out_product_, rows_, p_.v_head_dim, p_.seq_kv, false, false));
    if (p_.backward) {
      ROOFTILE_TRY(product(dv_product_, p_.seq_kv, p_.v_head_dim, rows_, true, false));
      ROOFTILE_TRY(product(dp_product_, rows_, p_.seq_kv, p_.v_head_dim, false, true));
      ROOFTILE_TRY(product(dq_product_, rows_, p_.head_dim, p_.seq_kv, false, false));
      ROOFTILE_TRY(product(dk_product_, p_.seq_kv, p_.head_dim, rows_, true, false));
    }
    library = "cublaslt " + context.libraries->cublaslt.version + " + rooftile";
    algorithm = scores_product_.algorithm();
    return {};
  }

  Reason prepare(Context& context, int sets) override {
    if (p_.backward)
      for (int set = 0; set < sets; ++set) ROOFTILE_TRY(run_forward(context, set));
    return {};
  }

  Reason launch(Context& context, int set) override { return p_.backward ? run_backward(context, set) : run_forward(context, set); }

 private:
  T* at(Context& context, int set, std::size_t offset) const { return reinterpret_cast<T*>(output(context, set, offset)); }

  Reason run_forward(Context& context, int set) {
    const std::int64_t rows = p_.batch * p_.heads * p_.seq_q;
    T *scores = at(context, set, scores_), *probabilities = at(context, set, probabilities_);
    ROOFTILE_TRY(scores_product_.launch(context, input(context, set), input(context, set, k_), scores));
    scale_and_mask<T>(context.stream, scores, scores, rows, p_.seq_q, p_.seq_kv, static_cast<float>(scale()), p_.causal, p_.window);
    softmax_forward<T>(context.stream, scores, probabilities, rows, p_.seq_kv);
    ROOFTILE_CUDA(cudaGetLastError());
    return out_product_.launch(context, probabilities, input(context, set, v_), output(context, set));
  }

  Reason run_backward(Context& context, int set) {
    const std::int64_t rows = p_.batch * p_.heads * p_.seq_q;
    T *scores = at(context, set, scores_), *probabilities = at(context, set, probabilities_);
    const std::byte* dout = input(context, set, dout_);
    ROOFTILE_TRY(dv_product_.launch(context, probabilities, dout, output(context, set, dv_)));
    ROOFTILE_TRY(dp_product_.launch(context, dout, input(context, set, v_), scores));
    softmax_backward<T>(context.stream, probabilities, scores, scores, rows, p_.seq_kv);
    // What the mask hid has probability zero, so its gradient is zero already: only the scale is left to apply.
    scale_and_mask<T>(context.stream, scores, scores, rows, p_.seq_q, p_.seq_kv, static_cast<float>(scale()), false, 0);
    ROOFTILE_CUDA(cudaGetLastError());
    ROOFTILE_TRY(dq_product_.launch(context, scores, input(context, set, k_), output(context, set, dq_)));
    return dk_product_.launch(context, scores, input(context, set), output(context, set, dk_));
  }

  LtProduct scores_product_, out_product_, dv_product_, dp_product_, dq_product_, dk_product_;
  std::size_t scores_ = 0, probabilities_ = 0;
  std::int64_t rows_ = 0;
};

template <typename Form>
std::unique_ptr<Kernel> created(Context& context, std::unique_ptr<Form> kernel, Reason& reason) {
  reason = kernel->create(context);
  if (!reason.empty()) return nullptr;
  return kernel;
}

}  // namespace

std::unique_ptr<Kernel> make_attention(Context& context, const Attention& problem, Reason& reason) {
  Attention p = problem;
  if (p.v_head_dim == 0) p.v_head_dim = p.head_dim;
  if (p.kv_heads == 0) p.kv_heads = p.heads;
  if (p.heads % p.kv_heads != 0) reason = "heads are not a multiple of KV heads";
  if (p.causal && p.seq_q > p.seq_kv) reason = "causal with more queries than keys: the first queries would see nothing";
  if (!reason.empty()) return nullptr;
  if (p.engine == AttentionEngine::standard) {
    switch (p.type) {
      case Type::bf16:
        return created(context, std::make_unique<StandardAttention<__nv_bfloat16>>(p), reason);
      case Type::fp16:
        return created(context, std::make_unique<StandardAttention<__half>>(p), reason);
      case Type::fp32:
      case Type::tf32:
        return created(context, std::make_unique<StandardAttention<float>>(p), reason);
      case Type::fp8_e4m3:
        reason = "unfused attention has no fp8 form";
        return nullptr;
    }
  }
#ifdef ROOFTILE_HAS_CUDNN
  if (!context.libraries->cudnn.missing.empty()) reason = context.libraries->cudnn.missing;
  if (reason.empty() && p.type != Type::bf16 && p.type != Type::fp16) reason = "cuDNN's fused attention takes bf16 and fp16";
  if (!reason.empty()) return nullptr;
  return created(context, std::make_unique<CudnnAttention>(context, p), reason);
#else
  reason = context.libraries->cudnn.missing;
  return nullptr;
#endif
}

}  // namespace rooftile::kernels
