#include <algorithm>
#include <array>
#include <charconv>
#include <span>
#include <utility>
#include <vector>

#include "estimator/core/checked.h"
#include "estimator/core/suggest.h"
#include "estimator/timing/kernel_call.h"
#include "estimator/timing/kernel_defaults.h"

namespace rooftile {
namespace {

using namespace kernel_text;

constexpr std::size_t kPointwiseKinds = 0
#define POINTWISE_KIND(id, reads, writes, flops, special, doc) +1
#include "estimator/timing/pointwise.def"
    ;

std::string_view keys_of(KernelClass kernel) {
  switch (shape_of(kernel)) {
    case ShapeKind::gemm:
      return "m n k batch layout out accumulate epilogue grouped b_bytes impl";
    case ShapeKind::attention:
      return "batch heads kv_heads seq_q seq_kv head_dim v_head_dim causal window mask pass kernel impl";
    case ShapeKind::row:
      return "rows cols pass impl";
    case ShapeKind::pointwise:
      return "kind numel to impl";
    case ShapeKind::embedding:
      return "tokens vocab hidden pass impl";
    case ShapeKind::cross_entropy:
      return "tokens vocab pass impl";
    case ShapeKind::optimizer:
      return "kind numel state gradient main_weights impl";
    case ShapeKind::collective:
      return "kind bytes ranks nodes impl";
  }
  return "";
}

bool is_blank(char c) { return c == ' ' || c == '\t'; }

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  std::size_t at = 0;
  while (at < text.size()) {
    while (at < text.size() && is_blank(text[at])) ++at;
    const std::size_t begin = at;
    while (at < text.size() && !is_blank(text[at])) ++at;
    if (at > begin) words.push_back(text.substr(begin, at - begin));
  }
  return words;
}

std::vector<std::string> strings_of(std::span<const std::string_view> names) { return {names.begin(), names.end()}; }

// Foreign text in a message: cut and with non-printing bytes replaced, so that broken input cannot break the terminal.
std::string quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text.substr(0, 40)) out.push_back(c >= 0x20 && c < 0x7f ? c : '?');
  if (text.size() > 40) out += "...";
  return out + "'";
}

// Reads the key=value pairs of one shape; remembers the first error so that the reading code stays a list of fields.
class Fields {
 public:
  Fields(KernelClass kernel, std::string_view shape) : op_(name_of(kernel)) {
    const std::vector<std::string_view> known = words_of(keys_of(kernel));
    for (const std::string_view word : words_of(shape)) {
      const std::size_t equals = word.find('=');
      if (equals == std::string_view::npos || equals == 0) {
        set_error("expected key=value, found " + quoted(word), "write pairs separated by blanks: " + example(known));
        return;
      }
      const std::string_view key = word.substr(0, equals);
      if (std::find(known.begin(), known.end(), key) == known.end()) {
        set_error("unknown key " + quoted(key) + " for " + std::string(op_), did_you_mean(key, strings_of(known)));
        return;
      }
      if (find(key)) {
        set_error("key " + quoted(key) + " is given twice", "keep one of them");
        return;
      }
      pairs_.emplace_back(key, word.substr(equals + 1));
    }
  }

  std::optional<std::string_view> find(std::string_view key) const {
    for (const auto& [name, value] : pairs_) {
      if (name == key) return value;
    }
    return std::nullopt;
  }

  // A size; without `fallback` the key must be there.
  std::int64_t size(std::string_view key, std::optional<std::int64_t> fallback = std::nullopt, std::int64_t least = 1) {
    const auto text = find(key);
    if (!text) {
      if (!fallback) set_error(std::string(op_) + " needs the key " + quoted(key), "add " + std::string(key) + "=...");
      return fallback.value_or(1);
    }
    std::int64_t value = 0;
    const auto [end, problem] = std::from_chars(text->data(), text->data() + text->size(), value);
    if (problem != std::errc() || end != text->data() + text->size() || value < least) {
      set_error(std::string(key) + "=" + quoted(*text) + " is not a " + (least > 0 ? "positive" : "non-negative") + " integer below 2^63", "write it in decimal digits");
      return 1;
    }
    return value;
  }

  bool flag(std::string_view key) {
    const auto text = find(key);
    if (!text || *text == "0") return false;
    if (*text == "1") return true;
    set_error(std::string(key) + "=" + quoted(*text) + " is neither 0 nor 1");
    return false;
  }

  // One of a list of names, as its position.
  std::size_t choice(std::string_view key, std::span<const std::string_view> names, std::optional<std::size_t> fallback) {
    const auto text = find(key);
    if (!text) {
      if (!fallback) set_error(std::string(op_) + " needs the key " + quoted(key), did_you_mean("", strings_of(names)));
      return fallback.value_or(0);
    }
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (names[i] == *text) return i;
    }
    set_error(std::string(key) + "=" + quoted(*text) + " is not known", did_you_mean(*text, strings_of(names)));
    return 0;
  }

  DType dtype(std::string_view key, DType fallback) {
    const auto text = find(key);
    if (!text) return fallback;
    if (const auto parsed = parse_dtype(*text)) return *parsed;
    std::vector<std::string> names;
    for (const DTypeInfo& info : kDTypes) names.emplace_back(info.name);
    set_error(std::string(key) + "=" + quoted(*text) + " is not a dtype", did_you_mean(*text, names));
    return fallback;
  }

  Pass pass() {
    constexpr std::array<std::string_view, 2> kNames = {"fwd", "bwd"};
    return choice("pass", kNames, 0) == 1 ? Pass::bwd : Pass::fwd;
  }

  // Every tensor's element count must fit in 63 bits.
  void tensor(std::string_view what, std::initializer_list<std::int64_t> sizes) {
    if (!checked_product(sizes)) set_error("the " + std::string(what) + " of this " + std::string(op_) + " would have more than 2^63 elements", "use smaller sizes");
  }

  void set_error(std::string message, std::string hint = {}) {
    if (!error_) error_ = Error{ErrorCode::invalid, std::move(message), "shape", std::move(hint)};
  }
  const std::optional<Error>& error() const { return error_; }

 private:
  static std::string example(const std::vector<std::string_view>& keys) {
    std::string text;
    for (std::size_t i = 0; i < keys.size() && i < 3; ++i) text += std::string(i ? " " : "") + std::string(keys[i]) + "=...";
    return text;
  }

  std::string_view op_;
  std::vector<std::pair<std::string_view, std::string_view>> pairs_;
  std::optional<Error> error_;
};

template <typename Enum, std::size_t Size>
std::array<std::string_view, Size> names_of() {
  std::array<std::string_view, Size> names;
  for (std::size_t i = 0; i < Size; ++i) names[i] = name_of(static_cast<Enum>(i));
  return names;
}

GemmShape read_gemm(Fields& fields, DType dtype) {
  GemmShape shape;
  shape.m = fields.size("m");
  shape.n = fields.size("n");
  shape.k = fields.size("k");
  shape.batch = fields.size("batch", 1);
  shape.layout = static_cast<GemmLayout>(fields.choice("layout", names_of<GemmLayout, 4>(), 0));
  shape.out = fields.dtype("out", default_out(dtype));
  shape.accumulate = fields.flag("accumulate");
  shape.epilogue = static_cast<Epilogue>(fields.choice("epilogue", kEpilogueNames, 0));
  shape.grouped = fields.flag("grouped");
  shape.b_bytes = fields.size("b_bytes", 0);
  fields.tensor("first operand", {shape.batch, shape.m, shape.k});
  fields.tensor("second operand", {shape.batch, shape.n, shape.k});
  fields.tensor("result", {shape.batch, shape.m, shape.n});
  return shape;
}

AttentionShape read_attention(Fields& fields) {
  AttentionShape shape;
  shape.batch = fields.size("batch");
  shape.heads = fields.size("heads");
  shape.kv_heads = fields.size("kv_heads", shape.heads);
  shape.seq_q = fields.size("seq_q");
  shape.seq_kv = fields.size("seq_kv", shape.seq_q);
  shape.head_dim = fields.size("head_dim");
  shape.v_head_dim = fields.size("v_head_dim", shape.head_dim);
  shape.causal = fields.flag("causal");
  shape.window = fields.size("window", 0, 0);
  shape.mask = fields.flag("mask");
  shape.kernel = static_cast<AttentionKernel>(fields.choice("kernel", names_of<AttentionKernel, 5>(), 0));
  if (shape.heads % shape.kv_heads != 0) {
    fields.set_error("heads=" + std::to_string(shape.heads) + " is not a multiple of kv_heads=" + std::to_string(shape.kv_heads),
                     "each key head serves the same number of query heads");
  }
  fields.tensor("queries", {shape.batch, shape.heads, shape.seq_q, shape.head_dim});
  fields.tensor("keys", {shape.batch, shape.kv_heads, shape.seq_kv, shape.head_dim});
  fields.tensor("values", {shape.batch, shape.kv_heads, shape.seq_kv, shape.v_head_dim});
  fields.tensor("result", {shape.batch, shape.heads, shape.seq_q, shape.v_head_dim});
  fields.tensor("scores", {shape.batch, shape.heads, shape.seq_q, shape.seq_kv});
  return shape;
}

// Other names that measurement files use for a kind.
constexpr std::array<std::pair<std::string_view, PointwiseKind>, 7> kPointwiseAliases = {{{"add_inplace", PointwiseKind::add},
                                                                                          {"sqrt_abs", PointwiseKind::unary},
                                                                                          {"abs", PointwiseKind::unary},
                                                                                          {"sin", PointwiseKind::cos},
                                                                                          {"expand_div", PointwiseKind::expand},
                                                                                          {"index_add", PointwiseKind::scatter_add},
                                                                                          {"cumsum", PointwiseKind::scan}}};

PointwiseKind read_pointwise_kind(Fields& fields) {
  if (const auto text = fields.find("kind")) {
    for (const auto& [name, kind] : kPointwiseAliases) {
      if (name == *text) return kind;
    }
  }
  return static_cast<PointwiseKind>(fields.choice("kind", names_of<PointwiseKind, kPointwiseKinds>(), std::nullopt));
}

PointwiseShape read_pointwise(Fields& fields, DType dtype) {
  PointwiseShape shape;
  shape.kind = read_pointwise_kind(fields);
  shape.numel = fields.size("numel");
  shape.to = fields.dtype("to", default_to(shape.kind, dtype));
  if (shape.kind != PointwiseKind::cast && shape.to != dtype) fields.set_error("to= is for kind=cast; other kinds write the dtype they read");
  return shape;
}

CollectiveShape read_collective(Fields& fields) {
  CollectiveShape shape;
  shape.kind = static_cast<CollectiveKind>(fields.choice("kind", names_of<CollectiveKind, 6>(), std::nullopt));
  shape.bytes = fields.size("bytes");
  shape.ranks = fields.size("ranks");
  shape.nodes = fields.size("nodes", 1);
  if (shape.ranks % shape.nodes != 0) fields.set_error("ranks=" + std::to_string(shape.ranks) + " do not divide over nodes=" + std::to_string(shape.nodes));
  return shape;
}

void read_shape(Fields& fields, KernelCall& call) {
  switch (shape_of(call.kernel)) {
    case ShapeKind::gemm:
      call.shape = read_gemm(fields, call.dtype);
      return;
    case ShapeKind::attention:
      call.pass = fields.pass();
      call.shape = read_attention(fields);
      return;
    case ShapeKind::row: {
      call.pass = fields.pass();
      if (call.pass == Pass::bwd && !has_row_passes(call.kernel)) fields.set_error(std::string(name_of(call.kernel)) + " has no backward pass of its own", "leave pass out");
      if (call.kernel == KernelClass::layernorm_input) call.pass = Pass::bwd;
      const RowShape shape{fields.size("rows"), fields.size("cols")};
      fields.tensor("input", {shape.rows, shape.cols});
      call.shape = shape;
      return;
    }
    case ShapeKind::pointwise:
      call.shape = read_pointwise(fields, call.dtype);
      return;
    case ShapeKind::embedding: {
      call.pass = fields.pass();
      const EmbeddingShape shape{fields.size("tokens"), fields.size("vocab"), fields.size("hidden")};
      fields.tensor("table", {shape.vocab, shape.hidden});
      fields.tensor("result", {shape.tokens, shape.hidden});
      call.shape = shape;
      return;
    }
    case ShapeKind::cross_entropy: {
      call.pass = fields.pass();
      const CrossEntropyShape shape{fields.size("tokens"), fields.size("vocab")};
      fields.tensor("logits", {shape.tokens, shape.vocab});
      call.shape = shape;
      return;
    }
    case ShapeKind::optimizer: {
      OptimizerShape shape;
      shape.kind = static_cast<OptimizerKind>(fields.choice("kind", kOptimizerNames, 0));
      shape.numel = fields.size("numel");
      shape.state = fields.dtype("state", call.dtype);
      shape.gradient = fields.dtype("gradient", call.dtype);
      shape.main_weights = fields.flag("main_weights");
      call.shape = shape;
      return;
    }
    case ShapeKind::collective:
      call.shape = read_collective(fields);
      return;
  }
}

}  // namespace

Result<KernelCall> parse_kernel(std::string_view op, std::string_view dtype, std::string_view shape, std::string_view impl) {
  if (op == "topk8") op = "topk";
  const auto kernels = names_of<KernelClass, kKernelClasses>();
  const auto kernel = std::find(kernels.begin(), kernels.end(), op);
  if (kernel == kernels.end()) return fail(ErrorCode::invalid, "unknown op " + quoted(op), "op", did_you_mean(op, strings_of(kernels)));
  KernelCall call;
  call.kernel = static_cast<KernelClass>(kernel - kernels.begin());

  const auto parsed = parse_dtype(dtype);
  if (!parsed) {
    std::vector<std::string> names;
    for (const DTypeInfo& info : kDTypes) names.emplace_back(info.name);
    return fail(ErrorCode::invalid, "unknown dtype " + quoted(dtype), "dtype", did_you_mean(dtype, names));
  }
  call.dtype = *parsed;

  Fields fields(call.kernel, shape);
  if (!fields.error()) read_shape(fields, call);
  const auto impls = names_of<Impl, 3>();
  call.impl = static_cast<Impl>(fields.choice("impl", impls, static_cast<std::size_t>(default_impl(call.kernel))));
  if (!impl.empty()) {
    const auto named = std::find(impls.begin(), impls.end(), impl);
    if (named == impls.end()) return fail(ErrorCode::invalid, "unknown impl " + quoted(impl), "impl", did_you_mean(impl, strings_of(impls)));
    const Impl column = static_cast<Impl>(named - impls.begin());
    if (fields.find("impl") && column != call.impl) fields.set_error("impl is " + quoted(impl) + " in its column and another in the shape", "keep one of them");
    call.impl = column;
  }
  if (fields.error()) return tl::unexpected<Error>(*fields.error());
  return call;
}

}  // namespace rooftile
