#include "frontends/trace/elementwise_call.h"

#include <algorithm>
#include <array>

#include "frontends/trace/tensor_view.h"

namespace rooftile {
namespace {

struct Entry {
  std::string_view name;
  PointwiseKind kind;
};

constexpr std::array kOfOne = {Entry{"neg", PointwiseKind::neg},        Entry{"rsqrt", PointwiseKind::rsqrt},      Entry{"cos", PointwiseKind::cos},
                               Entry{"sin", PointwiseKind::cos},        Entry{"tanh", PointwiseKind::tanh},        Entry{"sigmoid", PointwiseKind::sigmoid},
                               Entry{"silu", PointwiseKind::silu},      Entry{"exp", PointwiseKind::exp},          Entry{"relu", PointwiseKind::relu},
                               Entry{"clamp_min", PointwiseKind::relu}, Entry{"abs", PointwiseKind::unary},        Entry{"sqrt", PointwiseKind::unary},
                               Entry{"square", PointwiseKind::square},  Entry{"reciprocal", PointwiseKind::rsqrt}, Entry{"gelu", PointwiseKind::gelu}};

constexpr std::array kOfTwo = {Entry{"add", PointwiseKind::add},
                               Entry{"sub", PointwiseKind::sub},
                               Entry{"rsub", PointwiseKind::sub},
                               Entry{"mul", PointwiseKind::mul},
                               Entry{"div", PointwiseKind::div},
                               Entry{"tanh_backward", PointwiseKind::tanh_backward},
                               Entry{"silu_backward", PointwiseKind::silu_backward},
                               Entry{"gelu_backward", PointwiseKind::gelu_backward},
                               Entry{"threshold_backward", PointwiseKind::relu_backward}};

template <std::size_t N>
std::optional<PointwiseKind> find(const std::array<Entry, N>& table, std::string_view name) {
  const auto at = std::find_if(table.begin(), table.end(), [&](const Entry& entry) { return entry.name == name; });
  return at == table.end() ? std::nullopt : std::optional(at->kind);
}

OperatorCall refused(std::string reason) {
  OperatorCall result;
  result.reason = std::move(reason);
  return result;
}

OperatorCall pointwise(PointwiseKind kind, DType dtype, std::int64_t numel, DType to) {
  OperatorCall result;
  KernelCall call;
  call.kernel = KernelClass::pointwise;
  call.dtype = dtype;
  call.impl = Impl::torch;
  call.shape = PointwiseShape{kind, numel, to};
  result.call = call;
  return result;
}
OperatorCall pointwise(PointwiseKind kind, DType dtype, std::int64_t numel) { return pointwise(kind, dtype, numel, dtype); }

bool any_kernel(const LaunchedKernels& kernels, std::string_view part) {
  return std::any_of(kernels.names.begin(), kernels.names.end(), [&](std::string_view name) { return name.find(part) != std::string_view::npos; });
}

// The tanh form of gelu is the first of two branches in PyTorch's kernel; the argument that names it is not recorded.
bool is_tanh_form(const LaunchedKernels& kernels) { return any_kernel(kernels, "GeluType)::{lambda()#1}"); }

OperatorCall of_one(PointwiseKind kind, const TensorView& x, std::int64_t numel) {
  if (x.dense()) return pointwise(kind, x.dtype, numel);
  if (x.repeats()) return pointwise(PointwiseKind::expand, x.dtype, numel);
  if (kind == PointwiseKind::neg) return pointwise(PointwiseKind::neg_half, x.dtype, numel);
  return pointwise(x.row_major() ? PointwiseKind::slice : PointwiseKind::strided, x.dtype, numel);
}

// Sizes aligned at the last dimension, ones in front.
std::vector<std::int64_t> aligned(const std::vector<std::int64_t>& dims, std::size_t rank) {
  std::vector<std::int64_t> out(rank - dims.size(), 1);
  out.insert(out.end(), dims.begin(), dims.end());
  return out;
}

// One operand has all elements of the result, the other repeats along some dimensions.
OperatorCall with_repeated(const TensorView& full, const TensorView& part) {
  const std::size_t rank = std::max(full.whole.size(), part.whole.size());
  const std::vector<std::int64_t> sizes = aligned(full.whole, rank), own = aligned(part.whole, rank);
  for (std::size_t i = 0; i < rank; ++i) {
    if (own[i] != sizes[i] && own[i] != 1) return refused("operands whose sizes do not fit");
  }
  const std::int64_t numel = full.numel();
  if (!full.contiguous()) return pointwise(PointwiseKind::strided, full.dtype, numel);
  std::size_t last = rank;  // the last dimension of more than one element
  while (last > 0 && sizes[last - 1] == 1) --last;
  if (last == 0) return pointwise(PointwiseKind::scale, full.dtype, numel);
  if (own[last - 1] == 1) return pointwise(PointwiseKind::row_scale, full.dtype, numel);
  // Square scores with a mask for all heads; or a row, a table of rows, for everything in front of it.
  std::size_t first = 0;
  while (first < rank && own[first] == 1) ++first;
  const bool leading = std::equal(own.begin() + static_cast<std::ptrdiff_t>(first), own.end(), sizes.begin() + static_cast<std::ptrdiff_t>(first));
  const bool scores = rank >= 4 && last == rank && sizes[rank - 1] == sizes[rank - 2] && own[rank - 2] == sizes[rank - 2];
  return pointwise(scores || !leading ? PointwiseKind::masked : PointwiseKind::bias, full.dtype, numel);
}

OperatorCall of_two(PointwiseKind kind, const TensorView& a, const TensorView& b) {
  const std::size_t rank = std::max(a.whole.size(), b.whole.size());
  if (aligned(a.whole, rank) != aligned(b.whole, rank)) {
    if (a.numel() == b.numel()) return refused("an outer product of operands");
    const TensorView& full = a.numel() > b.numel() ? a : b;
    const TensorView& part = a.numel() > b.numel() ? b : a;
    if (full.dtype != part.dtype && full.floating() != part.floating()) return refused("operands of several dtypes of which one is broadcast");
    return with_repeated(full, part);
  }
  if (a.dtype != b.dtype) {
    if (!a.floating() || !b.floating()) return refused("numbers and integers in one operator");
    if (!a.dense() || a.strides != b.strides) return refused("operands of two dtypes in two orders");
    return pointwise(PointwiseKind::mixed_mul, DType::fp32, a.numel());
  }
  if (a.strides == b.strides && a.dense()) return pointwise(a.contiguous() ? kind : PointwiseKind::strided_add, a.dtype, a.numel());
  if (a.repeats() || b.repeats()) return pointwise(PointwiseKind::strided, a.dtype, a.numel());
  return pointwise(PointwiseKind::order_mix, a.dtype, a.numel());
}

OperatorCall power(const TraceOperator& op, const TensorView& x) {
  const std::string exponent = op.arguments.size() > 1 ? op.arguments[1].value : "";
  if (exponent == "0.5") return of_one(PointwiseKind::unary, x, x.numel());
  if (exponent == "-0.5") return of_one(PointwiseKind::rsqrt, x, x.numel());
  const auto whole = whole_of(exponent);
  if (whole == 2) return of_one(PointwiseKind::square, x, x.numel());
  if (whole == 3) return of_one(PointwiseKind::cube, x, x.numel());
  if (whole == -1) return of_one(PointwiseKind::rsqrt, x, x.numel());
  return refused("a power that has no kernel of its own");
}

OperatorCall masked_fill(const TraceOperator& op, const TensorView& x) {
  const auto mask = tensor_of(op, 1);
  if (!mask) return refused("a mask without sizes");
  // Measured classes fill out of place, a copy first; in place there is only the second half of that.
  if (mask->numel() == x.numel()) return refused("filled in place by a mask of every element");
  TensorView part = *mask;
  part.dtype = x.dtype;
  return with_repeated(x, part);
}

// Generated code that fuses work: every tensor that it is given is read or written once, as far as sizes tell.
OperatorCall generated(std::string_view name, const TraceOperator& op) {
  double bytes = 0;
  std::optional<DType> widest;
  for (std::size_t i = 0; i < op.arguments.size(); ++i) {
    const auto tensor = tensor_of(op, i);
    if (!tensor) continue;
    bytes += static_cast<double>(tensor->numel()) * bits_of(tensor->dtype) / 8.0;
    if (tensor->floating() && (!widest || static_cast<double>(tensor->numel()) > 0)) widest = widest ? std::min(*widest, tensor->dtype) : tensor->dtype;
  }
  if (!widest || bytes < 1 || bytes > 1e18) return refused("a generated kernel without sizes");
  const bool reduces = name.find("triton_red") == 0 || name.find("triton_per") == 0;
  return pointwise(reduces ? PointwiseKind::fused_rows : PointwiseKind::fused, *widest, std::max<std::int64_t>(1, static_cast<std::int64_t>(bytes * 8 / bits_of(*widest))));
}

}  // namespace

std::optional<OperatorCall> elementwise_call(std::string_view name, const TraceOperator& op, const LaunchedKernels& kernels) {
  if (name.substr(0, 7) == "triton_") return generated(name, op);
  const auto x = tensor_of(op, 0);
  const auto y = tensor_of(op, 1);
  const auto checked = [](const TensorView& view) { return view.floating() ? std::string() : std::string("integers and masks"); };
  if (const auto one = find(kOfOne, name)) {
    if (!x) return refused("no sizes");
    if (!checked(*x).empty()) return refused(checked(*x));
    return of_one(*one == PointwiseKind::gelu && is_tanh_form(kernels) ? PointwiseKind::gelu_tanh : *one, *x, x->numel());
  }
  if (auto two = find(kOfTwo, name)) {
    if (!x && !y) return refused("no sizes");
    const TensorView& first = x ? *x : *y;
    if (!checked(first).empty()) return refused(checked(first));
    if (*two == PointwiseKind::gelu_backward && is_tanh_form(kernels)) two = PointwiseKind::gelu_tanh_backward;
    // A Python number, or a tensor of one element.
    if (!x || !y || (y->dims.empty() && !first.dims.empty())) return of_one(PointwiseKind::scale, first, first.numel());
    if (x->dims.empty() && !y->dims.empty()) return of_one(PointwiseKind::scale, *y, y->numel());
    return of_two(*two, *x, *y);
  }
  if (name == "pow") return !x ? refused("no sizes") : !checked(*x).empty() ? refused(checked(*x)) : power(op, *x);
  if (name == "fill" || name == "zero") {
    if (!x) return refused("no sizes");
    if (!checked(*x).empty()) return refused(checked(*x));
    return x->dense() ? pointwise(PointwiseKind::fill, x->dtype, x->numel()) : refused("a fill with gaps");
  }
  if (name == "masked_fill") return !x ? refused("no sizes") : !checked(*x).empty() ? refused(checked(*x)) : masked_fill(op, *x);
  if (name == "where") {
    const auto z = tensor_of(op, 2);
    if (!x || !y || !z) return refused("a choice between numbers");
    const bool plain = x->contiguous() && y->contiguous() && z->contiguous() && x->dims == y->dims && y->dims == z->dims && y->dtype == z->dtype && y->floating();
    return plain ? pointwise(PointwiseKind::where, y->dtype, y->numel()) : refused("a choice between operands that are broadcast");
  }
  constexpr std::array<std::string_view, 6> kComparisons = {"gt", "ge", "lt", "le", "eq", "ne"};
  if (std::find(kComparisons.begin(), kComparisons.end(), name) != kComparisons.end()) {
    const bool plain = x && y && x->floating() && x->dtype == y->dtype && x->dims == y->dims && x->contiguous() && y->contiguous();
    return plain ? pointwise(PointwiseKind::compare, x->dtype, x->numel()) : refused("integers and masks");
  }
  return std::nullopt;
}

namespace {

OperatorCall copy(const TensorView& to, const TensorView& from) {
  if (!to.floating() || !from.floating()) return refused("integers and masks");
  const std::int64_t numel = to.numel();
  if (to.dims != from.dims) return from.numel() < numel ? pointwise(PointwiseKind::expand, to.dtype, numel) : refused("a copy between sizes");
  if (to.dtype != from.dtype) {
    if (to.dense() && to.strides == from.strides) return pointwise(PointwiseKind::cast, from.dtype, numel, to.dtype);
    return refused("a cast into another order");
  }
  if (to.strides == from.strides && to.dense()) return pointwise(PointwiseKind::copy, to.dtype, numel);
  if (from.repeats()) return pointwise(PointwiseKind::expand, to.dtype, numel);
  if (!to.dense()) return pointwise(PointwiseKind::slice_half, to.dtype, numel);
  if (to.row_major() && from.row_major()) return pointwise(PointwiseKind::slice, to.dtype, numel);
  for (std::size_t i = 0; i < to.strides.size(); ++i) {
    if (to.strides[i] == 1) return pointwise(from.strides[i] == 1 ? PointwiseKind::permute : PointwiseKind::transpose, to.dtype, numel);
  }
  return refused("a copy without neighbours");
}

// Lists of tensors are recorded without dtypes; the kernel's name has the bytes of an element.
OperatorCall concatenation(const TraceOperator& op, const LaunchedKernels& kernels) {
  if (op.arguments.empty() || !op.arguments[0].list) return refused("no sizes");
  std::int64_t numel = 0;
  for (const TraceTensor& tensor : op.arguments[0].tensors) {
    const std::int64_t part = numel_of(tensor.dims);
    if (part > (std::int64_t{1} << 60)) return refused("sizes that cannot be");
    numel += part;
  }
  const bool two = any_kernel(kernels, "OpaqueType<2u>"), four = any_kernel(kernels, "OpaqueType<4u>");
  if (numel <= 0 || (!two && !four)) return refused(any_kernel(kernels, "CatArray") ? "integers and masks" : "joined by plain copies");
  const bool long_rows = any_kernel(kernels, "CatArrayBatchedCopy_vectorized") || any_kernel(kernels, "_contig");
  return pointwise(long_rows ? PointwiseKind::concat_rows : PointwiseKind::concat, two ? DType::bf16 : DType::fp32, numel);
}

OperatorCall look_up(const TensorView& table, std::int64_t tokens) {
  if (!table.floating()) return refused("integers and masks");
  if (table.whole.size() != 2 || tokens <= 0) return refused("a look-up that is not of rows");
  OperatorCall result;
  KernelCall call;
  call.kernel = KernelClass::embedding;
  call.dtype = table.dtype;
  call.impl = Impl::torch;
  call.shape = EmbeddingShape{tokens, table.whole[0], table.whole[1]};
  result.call = call;
  return result;
}

}  // namespace

std::optional<OperatorCall> moving_call(std::string_view name, const TraceOperator& op, const LaunchedKernels& kernels) {
  const auto x = tensor_of(op, 0);
  if (name == "copy" || name == "clone" || name == "contiguous") {
    const auto from = tensor_of(op, 1);
    return !x || !from ? refused("no sizes") : copy(*x, *from);
  }
  if (name == "cat") return concatenation(op, kernels);
  if (name == "embedding") {
    const auto ids = tensor_of(op, 1);
    return !x || !ids ? refused("no sizes") : look_up(*x, ids->numel());
  }
  if (name == "gather" || name == "index_select") {
    const auto ids = tensor_of(op, 2);
    if (!x || !ids) return refused("no sizes");
    // gather: an index of one row stands for the whole row (stride 0).
    const bool rows = ids->whole.size() == 1 || (ids->whole.size() == 2 && ids->repeats());
    return rows ? look_up(*x, ids->whole[0]) : refused("a look-up that is not of rows");
  }
  if (name == "index") {
    if (!x || !any_kernel(kernels, "vectorized_gather_kernel") || x->whole.size() != 2 || kernels.grids.empty()) return refused("an index that is not of rows");
    // The index has no recorded size; a block takes a row.
    const std::int64_t rows = kernels.grids.front()[0];
    if (rows <= 0 || x->whole[1] > (std::int64_t{1} << 40)) return refused("an index without sizes");
    return pointwise(PointwiseKind::index_rows, x->dtype, rows * x->whole[1]);
  }
  return std::nullopt;
}

}  // namespace rooftile
