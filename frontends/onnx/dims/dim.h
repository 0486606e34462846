// Sizes that may hold symbols. A Dim is a constant, or a polynomial with integer coefficients over symbols and opaque terms (floordiv, ceildiv, mod, min, max). Expressions are
// kept once each in canonical form, so that "s16 + s62" and "s62 + s16" are the same Dim and equality is a comparison of two numbers.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace rooftile::onnx {

struct Dim {
  std::int64_t value = 0;
  std::uint32_t expression = 0;  // 0: the constant `value`

  constexpr Dim() = default;
  constexpr Dim(std::int64_t constant) : value(constant) {}  // NOLINT: a size is written as a number
  bool is_constant() const { return expression == 0; }
  bool operator==(const Dim&) const = default;
};

// The values that symbols take; nothing for a symbol that is not bound.
using Bindings = std::function<std::optional<std::int64_t>(std::string_view)>;

// Owns the expressions. Every symbol is assumed to be at least 1 when an order is asked for; a binding may still be 0 (an empty past).
class DimContext {
 public:
  DimContext();

  Dim symbol(std::string_view name);

  // Each gives the exact result, or sets overflow() and gives 0 when a constant or coefficient passes 63 bits.
  Dim add(Dim a, Dim b);
  Dim sub(Dim a, Dim b);
  Dim mul(Dim a, Dim b);
  Dim floordiv(Dim a, Dim b);  // rounds down; exact where b divides a: (6 s) // 3 == 2 s
  Dim ceildiv(Dim a, Dim b);
  Dim mod(Dim a, Dim b);  // sign of b
  Dim min(Dim a, Dim b);
  Dim max(Dim a, Dim b);
  // a / b where b divides a as polynomials: (b s 768 + b p 768) / (b 12) == 64 s + 64 p.
  std::optional<Dim> divide_exactly(Dim a, Dim b);

  // Decided by bounds; nothing where it depends on the symbols. less(s, 1) is false, equal(s + 1, s) is false, equal(s, 4) is open.
  std::optional<bool> equal(Dim a, Dim b);
  std::optional<bool> less(Dim a, Dim b);
  std::optional<std::int64_t> lower_bound(Dim a) const;
  std::optional<std::int64_t> upper_bound(Dim a) const;

  // The value for given symbols; nothing when one is not bound, on a division by zero, or past 63 bits.
  std::optional<std::int64_t> evaluate(Dim a, const Bindings& bindings) const;
  void collect_symbols(Dim a, std::vector<std::string>& names) const;

  // "2*s + 1", "floordiv(s, 2)"; terms in the order in which their symbols came to be.
  std::string text(Dim a) const;

  bool overflow() const { return overflow_; }
  void clear_overflow() { overflow_ = false; }

 private:
  enum class AtomKind : std::uint8_t { symbol, floordiv, ceildiv, mod, min, max, sum, product };
  struct Atom {
    AtomKind kind = AtomKind::symbol;
    std::string name;
    Dim a, b;
    int weight = 1;  // terms inside, each as often as it is written
  };
  struct Factor {
    std::uint32_t atom = 0, power = 0;
    bool operator==(const Factor&) const = default;
    auto operator<=>(const Factor&) const = default;
  };
  struct Term {
    std::vector<Factor> factors;  // sorted by atom; empty: the constant term
    std::int64_t coefficient = 0;
  };
  using Polynomial = std::vector<Term>;  // sorted by factors

  Polynomial polynomial_of(Dim a) const;
  Dim intern(Polynomial polynomial);
  Dim atom(AtomKind kind, Dim a, Dim b);
  Dim opaque(AtomKind kind, Dim a, Dim b);
  int weight_of(Dim a) const;
  std::optional<std::int64_t> atom_lower(std::uint32_t index) const;
  std::optional<std::int64_t> evaluate_atom(std::uint32_t index, const Bindings& bindings) const;
  std::string atom_text(std::uint32_t index) const;
  static void normalise(Polynomial& polynomial);
  bool add_terms(Polynomial& into, const Polynomial& terms, std::int64_t factor);
  bool multiply(const Polynomial& a, const Polynomial& b, Polynomial& out);

  std::vector<Atom> atoms_;
  std::vector<Polynomial> polynomials_;  // [0] is unused: expression 0 is a constant
  std::unordered_map<std::string, std::uint32_t> symbol_atoms_, opaque_atoms_, interned_;
  bool overflow_ = false;
};

// A dim_param: a name, or an expression of names, integers, + - * / // % parentheses, Max() Min() floor() ceil() Mod(). Anything else becomes a symbol by that whole text.
// parse_dim("2*s + 1"), parse_dim("past_len + seq_len"), parse_dim("p2o.DynamicDimension.0") is one name.
Dim parse_dim(DimContext& context, std::string_view text);

}  // namespace rooftile::onnx
