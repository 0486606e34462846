#include "frontends/onnx/recognise.h"

#include <algorithm>
#include <cmath>

#include "frontends/onnx/patterns.h"

namespace rooftile::onnx {
namespace {

constexpr std::uint32_t kNone = Patterns::kNone;

bool pointwise_op(std::string_view op) {
  return op == "Add" || op == "Mul" || op == "Div" || op == "Sub" || op == "Pow" || op == "Erf" || op == "Tanh" || op == "Sigmoid" || op == "Cast" || op == "Neg" || op == "Exp" ||
         op == "Reciprocal" || op == "Identity";
}
bool norm_op(std::string_view op) { return op == "ReduceMean" || op == "Sqrt" || pointwise_op(op); }

// Steps that follow one another with one reader each, `allowed` only.
std::vector<std::uint32_t> chain_from(const Patterns& p, std::uint32_t step, bool (*allowed)(std::string_view), std::size_t limit) {
  std::vector<std::uint32_t> chain;
  while (chain.size() < limit) {
    const std::uint32_t next = p.only_user(p.output(step));
    if (next == kNone || !p.standard(next) || !allowed(p.op(next))) break;
    chain.push_back(next);
    step = next;
  }
  return chain;
}

// y = x W then + b: the bias goes into the product's epilogue.
void fold_biases(Patterns& p) {
  for (std::uint32_t step = 0; step < p.trace.steps.size(); ++step) {
    const auto rows = p.works(step);
    if (rows.size() != 1 || rows[0].kind != OpKind::linear || !rows[0].alive) continue;
    auto* linear = std::get_if<LinearAttrs>(&rows[0].attrs);
    if (linear == nullptr || linear->bias) continue;
    const std::uint32_t add = p.only_user(p.output(step));
    if (!p.is(add, "Add") || p.trace.steps[add].repeat != p.trace.steps[step].repeat) continue;
    const std::uint32_t bias = p.other(add, p.output(step));
    if (bias == 0 || !p.trace.tensors[bias].constant || p.elements(bias) != linear->out || p.trace.tensors[bias].shape.back() != Dim(linear->out)) continue;
    linear->bias = true;
    rows[0].outputs = {p.output(add)};
    p.kill(add);
  }
}

// The region of a variance ends at x - mean(x) where that difference is its only source: the mean belongs to the norm too.
void subtract_mean(const Patterns& p, Patterns::Region& region) {
  const std::uint32_t difference = p.maker(region.source);
  if (!p.is(difference, "Sub")) return;
  const std::uint32_t x = p.input(difference, 0), mean = p.maker(p.input(difference, 1));
  if (!p.is(mean, "ReduceMean") || p.input(mean, 0) != x || p.only_user(p.output(mean)) != difference) return;
  for (const std::uint32_t user : p.users(region.source)) {
    if (std::find(region.steps.begin(), region.steps.end(), user) == region.steps.end()) return;
  }
  region.steps.push_back(difference);
  region.steps.push_back(mean);
  region.source = x;
}

// Sqrt of a mean of squares with an epsilon: one mean is an RMSNorm, two a LayerNorm. Ends in up to a division, a product with the weight and a sum with the bias.
void recognise_norms(Patterns& p) {
  for (std::uint32_t step = 0; step < p.trace.steps.size(); ++step) {
    const bool root = p.is(step, "Sqrt") || (p.is(step, "Pow") && p.number(p.input(step, 1)) == -0.5);
    if (!root || p.trace.steps[step].free) continue;
    const std::uint32_t epsilon = p.maker(p.input(step, 0));
    if (!p.is(epsilon, "Add") || !p.is(p.maker(p.moving(epsilon)), "ReduceMean")) continue;
    const std::uint32_t mean = p.maker(p.moving(epsilon));
    const auto chain = chain_from(p, step, norm_op, 6);
    // The furthest end that still has a single source: a following residual sum would bring a second.
    for (std::size_t length = chain.size(); length > 0; --length) {
      const std::uint32_t end = chain[length - 1];
      if (p.works(end).empty()) continue;  // a conversion that does nothing
      Patterns::Region region;
      if (!p.region(end, mean, norm_op, 20, region)) continue;
      if (p.elements(p.output(end)) != p.elements(region.source)) continue;
      subtract_mean(p, region);
      const std::int64_t all = p.elements(p.input(mean, 0)), rows = p.elements(p.output(mean));
      if (all <= 0 || rows <= 0) continue;
      const auto means = std::count_if(region.steps.begin(), region.steps.end(), [&](std::uint32_t at) { return p.is(at, "ReduceMean"); });
      NormAttrs attrs;
      attrs.rows = rows;
      attrs.cols = all / rows;
      attrs.weight = attrs.bias = false;
      attrs.split = Split::none;
      std::uint32_t weight = 0;
      for (const std::uint32_t at : region.steps) {
        if (p.moving(at) == 0) continue;
        const std::uint32_t constant = p.other(at, p.moving(at));
        if (!p.trace.tensors[constant].constant || p.elements(constant) != attrs.cols || attrs.cols == 1) continue;
        if (p.is(at, "Mul") && weight == 0) {
          weight = constant;
          attrs.weight = true;
        } else if (p.is(at, "Add")) {
          attrs.bias = true;
        }
      }
      // A norm without its weight inside (Gemma adds 1 to it first): the chain's last product is with something computed from weights alone, which is constant too.
      for (const std::uint32_t at : region.steps) {
        if (at != end) p.kill(at);
      }
      Work* row = p.become(end, means >= 2 ? OpKind::layernorm : OpKind::rmsnorm, attrs, {region.source}, {p.output(end)});
      if (row != nullptr) row->weight = weight;
      break;
    }
  }
}

// x times something of x alone with one Erf, Tanh or Sigmoid in it.
void recognise_activations(Patterns& p) {
  for (std::uint32_t step = 0; step < p.trace.steps.size(); ++step) {
    const bool erf = p.is(step, "Erf"), tanh = p.is(step, "Tanh"), sigmoid = p.is(step, "Sigmoid");
    if ((!erf && !tanh && !sigmoid) || p.trace.steps[step].free) continue;
    const auto chain = chain_from(p, step, pointwise_op, sigmoid ? 2 : 5);
    for (std::size_t length = chain.size(); length > 0; --length) {
      const std::uint32_t end = chain[length - 1];
      if (p.works(end).empty()) continue;  // a conversion that does nothing
      Patterns::Region region;
      if (!p.region(end, step, pointwise_op, 12, region)) continue;
      // The source itself is a factor: otherwise it is a plain tanh with scalars around it (a soft cap).
      const bool product = std::any_of(region.steps.begin(), region.steps.end(), [&](std::uint32_t at) { return p.is(at, "Mul") && p.moving(at) == 0 && at > step; });
      if (!product || p.elements(p.output(end)) != p.elements(region.source)) continue;
      for (const std::uint32_t at : region.steps) {
        if (at != end) p.kill(at);
      }
      PointwiseAttrs attrs;
      // A tanh form that is written out was elementary operators before it was exported: PyTorch's eager mode runs it so.
      attrs.kind = sigmoid ? PointwiseKind::silu : tanh ? PointwiseKind::gelu_new : PointwiseKind::gelu;
      attrs.numel = p.elements(region.source);
      attrs.split = Split::none;
      p.become(end, OpKind::activation, attrs, {region.source}, {p.output(end)});
      break;
    }
  }
}

// c tanh(x / c): one kernel.
void recognise_soft_caps(Patterns& p) {
  for (std::uint32_t step = 0; step < p.trace.steps.size(); ++step) {
    if (!p.is(step, "Tanh") || p.trace.steps[step].free || p.works(step).empty() || !p.works(step)[0].alive) continue;
    const std::uint32_t before = p.maker(p.input(step, 0)), after = p.only_user(p.output(step));
    const auto scales = [&](std::uint32_t at) {
      return (p.is(at, "Mul") || p.is(at, "Div")) && p.moving(at) != 0 && p.elements(p.other(at, p.moving(at))) == 1 && !p.works(at).empty();
    };
    if (!scales(before) || !scales(after) || p.only_user(p.output(before)) != step) continue;
    if (p.trace.steps[before].repeat != p.trace.steps[after].repeat) continue;
    PointwiseAttrs attrs;
    attrs.kind = PointwiseKind::tanh;
    attrs.numel = p.elements(p.output(after));
    attrs.split = Split::none;
    p.kill(before);
    p.kill(step);
    p.become(after, OpKind::activation, attrs, {p.moving(before)}, {p.output(after)});
  }
}

// act(gate) x up.
void recognise_gates(Patterns& p) {
  for (std::uint32_t step = 0; step < p.trace.steps.size(); ++step) {
    const auto rows = p.works(step);
    if (rows.empty() || rows[0].kind != OpKind::activation || !rows[0].alive) continue;
    const auto* activation = std::get_if<PointwiseAttrs>(&rows[0].attrs);
    const auto gates = [](PointwiseKind kind) { return kind == PointwiseKind::silu || kind == PointwiseKind::gelu || kind == PointwiseKind::gelu_new; };
    if (activation == nullptr || !gates(activation->kind)) continue;
    const std::uint32_t result = p.output(step), mul = p.only_user(result);
    if (!p.is(mul, "Mul") || p.trace.steps[mul].repeat != p.trace.steps[step].repeat) continue;
    const std::uint32_t up = p.other(mul, result);
    if (p.fixed(up) || p.elements(up) != p.elements(result)) continue;
    PointwiseAttrs attrs = *activation;
    attrs.kind = activation->kind == PointwiseKind::silu ? PointwiseKind::silu_mul : PointwiseKind::gelu_mul;
    const std::uint32_t gate = rows[0].inputs.empty() ? result : rows[0].inputs.front();
    p.kill(step);
    p.become(mul, OpKind::gated_activation, attrs, {gate, up}, {p.output(mul)});
  }
}

}  // namespace

void recognise(const Program&, Trace& trace, const RecogniseOptions& options) {
  if (trace.works.empty()) return;
  Patterns patterns(trace);
  fold_biases(patterns);
  recognise_norms(patterns);
  recognise_activations(patterns);
  recognise_gates(patterns);
  recognise_rotary(patterns);
  pair_rotations(patterns);
  if (options.attention) recognise_attention(patterns);
  complete_attention(patterns);
  recognise_soft_caps(patterns);
  fold_position_tables(patterns);
  fold_mask_chains(patterns);
  recognise_caches(patterns);
  read_in_place(patterns);
}

}  // namespace rooftile::onnx
