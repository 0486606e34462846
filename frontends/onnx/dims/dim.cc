#include "frontends/onnx/dims/dim.h"

#include <algorithm>
#include <limits>

#include "estimator/core/count.h"

namespace rooftile::onnx {
namespace {

constexpr std::size_t kMaxTerms = 48;  // a longer sum is kept as an opaque term, so that no product explodes
constexpr int kMaxWeight = 400;        // opaque terms within one expression; a heavier one becomes a new symbol, so that walking it stays cheap

std::optional<std::int64_t> narrow(Count value) {
  if (!fits_int64(value)) return std::nullopt;
  return static_cast<std::int64_t>(value);
}

std::int64_t floor_quotient(std::int64_t a, std::int64_t b) {
  const std::int64_t quotient = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? quotient - 1 : quotient;
}

bool divides(std::int64_t a, std::int64_t b) { return b != 0 && !(a == std::numeric_limits<std::int64_t>::min() && b == -1); }

}  // namespace

DimContext::DimContext() : atoms_(1), polynomials_(1) {}

Dim DimContext::symbol(std::string_view name) {
  const auto [found, fresh] = symbol_atoms_.try_emplace(std::string(name), static_cast<std::uint32_t>(atoms_.size()));
  if (fresh) atoms_.push_back({AtomKind::symbol, std::string(name), {}, {}, 1});
  return intern({Term{{Factor{found->second, 1}}, 1}});
}

DimContext::Polynomial DimContext::polynomial_of(Dim a) const {
  if (!a.is_constant()) return polynomials_[a.expression];
  if (a.value == 0) return {};
  return {Term{{}, a.value}};
}

void DimContext::normalise(Polynomial& polynomial) {
  std::sort(polynomial.begin(), polynomial.end(), [](const Term& a, const Term& b) { return a.factors < b.factors; });
  std::erase_if(polynomial, [](const Term& term) { return term.coefficient == 0; });
}

Dim DimContext::intern(Polynomial polynomial) {
  normalise(polynomial);
  if (polynomial.empty()) return 0;
  if (polynomial.size() == 1 && polynomial[0].factors.empty()) return polynomial[0].coefficient;
  std::string key;
  const auto put = [&key](std::int64_t number) { key.append(reinterpret_cast<const char*>(&number), sizeof number); };
  for (const Term& term : polynomial) {
    put(term.coefficient);
    put(static_cast<std::int64_t>(term.factors.size()));
    for (const Factor& factor : term.factors) put(static_cast<std::int64_t>((std::uint64_t{factor.atom} << 32) | factor.power));
  }
  const auto [found, fresh] = interned_.try_emplace(std::move(key), static_cast<std::uint32_t>(polynomials_.size()));
  if (fresh) polynomials_.push_back(std::move(polynomial));
  Dim dim;
  dim.expression = found->second;
  return dim;
}

int DimContext::weight_of(Dim a) const {
  int weight = 0;
  if (!a.is_constant()) {
    for (const Term& term : polynomials_[a.expression]) {
      for (const Factor& factor : term.factors) weight += atoms_[factor.atom].weight;
    }
  }
  return weight;
}

Dim DimContext::atom(AtomKind kind, Dim a, Dim b) {
  const int weight = weight_of(a) + weight_of(b) + 1;
  if (weight > kMaxWeight) return symbol("size_" + std::to_string(atoms_.size()));
  std::string key(1, static_cast<char>(kind));
  const auto put = [&key](std::int64_t number) { key.append(reinterpret_cast<const char*>(&number), sizeof number); };
  for (const Dim dim : {a, b}) {
    put(dim.value);
    put(dim.expression);
  }
  const auto [found, fresh] = opaque_atoms_.try_emplace(std::move(key), static_cast<std::uint32_t>(atoms_.size()));
  if (fresh) atoms_.push_back({kind, {}, a, b, weight});
  return intern({Term{{Factor{found->second, 1}}, 1}});
}

// min, max, sum and product do not care for the order of their operands.
Dim DimContext::opaque(AtomKind kind, Dim a, Dim b) {
  if (std::pair(b.expression, b.value) < std::pair(a.expression, a.value)) std::swap(a, b);
  return atom(kind, a, b);
}

bool DimContext::add_terms(Polynomial& into, const Polynomial& terms, std::int64_t factor) {
  for (const Term& term : terms) {
    auto same = std::find_if(into.begin(), into.end(), [&](const Term& other) { return other.factors == term.factors; });
    const auto sum = narrow(Count{term.coefficient} * factor + (same != into.end() ? same->coefficient : 0));
    if (!sum) return false;
    if (same != into.end()) {
      same->coefficient = *sum;
    } else {
      into.push_back({term.factors, *sum});
    }
  }
  return true;
}

bool DimContext::multiply(const Polynomial& a, const Polynomial& b, Polynomial& out) {
  for (const Term& left : a) {
    for (const Term& right : b) {
      Term term;
      const auto coefficient = narrow(Count{left.coefficient} * right.coefficient);
      if (!coefficient) return false;
      term.coefficient = *coefficient;
      auto l = left.factors.begin();
      auto r = right.factors.begin();
      while (l != left.factors.end() || r != right.factors.end()) {
        if (r == right.factors.end() || (l != left.factors.end() && l->atom < r->atom)) {
          term.factors.push_back(*l++);
        } else if (l == left.factors.end() || r->atom < l->atom) {
          term.factors.push_back(*r++);
        } else {
          term.factors.push_back({l->atom, l->power + r->power});
          ++l;
          ++r;
        }
      }
      if (!add_terms(out, {term}, 1)) return false;
    }
  }
  return true;
}

Dim DimContext::add(Dim a, Dim b) {
  if (a.is_constant() && b.is_constant()) {
    std::int64_t sum = 0;
    if (!__builtin_add_overflow(a.value, b.value, &sum)) return sum;
    overflow_ = true;
    return 0;
  }
  Polynomial sum = polynomial_of(a);
  const Polynomial other = polynomial_of(b);
  if (sum.size() + other.size() > kMaxTerms) return opaque(AtomKind::sum, a, b);
  if (!add_terms(sum, other, 1)) {
    overflow_ = true;
    return 0;
  }
  return intern(std::move(sum));
}

Dim DimContext::sub(Dim a, Dim b) {
  if (a == b) return 0;
  if (a.is_constant() && b.is_constant()) {
    std::int64_t difference = 0;
    if (!__builtin_sub_overflow(a.value, b.value, &difference)) return difference;
    overflow_ = true;
    return 0;
  }
  return add(a, mul(b, -1));
}

Dim DimContext::mul(Dim a, Dim b) {
  if (a.is_constant() && b.is_constant()) {
    std::int64_t product = 0;
    if (!__builtin_mul_overflow(a.value, b.value, &product)) return product;
    overflow_ = true;
    return 0;
  }
  if (a == Dim(1)) return b;
  if (b == Dim(1)) return a;
  const Polynomial left = polynomial_of(a), right = polynomial_of(b);
  if (left.size() * right.size() > kMaxTerms) return opaque(AtomKind::product, a, b);
  Polynomial product;
  if (!multiply(left, right, product)) {
    overflow_ = true;
    return 0;
  }
  return intern(std::move(product));
}

std::optional<Dim> DimContext::divide_exactly(Dim a, Dim b) {
  if (b == Dim(1)) return a;
  if (a == b && a != Dim(0)) return Dim(1);
  if (b == Dim(0)) return std::nullopt;
  if (a.is_constant() && b.is_constant()) {
    if (!divides(a.value, b.value) || a.value % b.value != 0) return std::nullopt;
    return Dim(a.value / b.value);
  }
  // Long division by the leading term, in the order of factors.
  Polynomial rest = polynomial_of(a), quotient;
  const Polynomial divisor = polynomial_of(b);
  const Term& lead = divisor.back();
  for (int step = 0; step < 64 && !rest.empty(); ++step) {
    const Term top = rest.back();
    Term part;
    if (!divides(top.coefficient, lead.coefficient) || top.coefficient % lead.coefficient != 0) return std::nullopt;
    part.coefficient = top.coefficient / lead.coefficient;
    auto at = lead.factors.begin();
    for (const Factor& factor : top.factors) {
      std::uint32_t power = factor.power;
      if (at != lead.factors.end() && at->atom == factor.atom) {
        if (at->power > power) return std::nullopt;
        power -= at->power;
        ++at;
      }
      if (power > 0) part.factors.push_back({factor.atom, power});
    }
    if (at != lead.factors.end()) return std::nullopt;
    quotient.push_back(part);
    Polynomial product;
    if (!multiply({part}, divisor, product) || !add_terms(rest, product, -1)) return std::nullopt;
    normalise(rest);
  }
  if (!rest.empty()) return std::nullopt;
  return intern(std::move(quotient));
}

Dim DimContext::floordiv(Dim a, Dim b) {
  if (const auto exact = divide_exactly(a, b)) return *exact;
  if (a.is_constant() && b.is_constant()) {
    if (divides(a.value, b.value)) return floor_quotient(a.value, b.value);
    overflow_ = true;
    return 0;
  }
  if (b.is_constant() && b.value > 0) {  // (k s + r) // k == s + r // k
    Polynomial whole, rest;
    for (const Term& term : polynomial_of(a)) {
      const std::int64_t remainder = ((term.coefficient % b.value) + b.value) % b.value;
      const std::int64_t multiple = floor_quotient(term.coefficient, b.value);
      if (remainder == 0 || term.factors.empty()) {
        if (multiple != 0) whole.push_back({term.factors, multiple});
        if (remainder != 0) rest.push_back({term.factors, remainder});
      } else {
        rest.push_back(term);
      }
    }
    if (!whole.empty()) {
      const Dim remainder = intern(std::move(rest));
      const Dim quotient = intern(std::move(whole));
      return add(quotient, remainder.is_constant() ? Dim(floor_quotient(remainder.value, b.value)) : atom(AtomKind::floordiv, remainder, b));
    }
  }
  return atom(AtomKind::floordiv, a, b);
}

Dim DimContext::ceildiv(Dim a, Dim b) {
  if (const auto exact = divide_exactly(a, b)) return *exact;
  if (a.is_constant() && b.is_constant()) {
    if (!divides(a.value, b.value)) {
      overflow_ = true;
      return 0;
    }
    return floor_quotient(a.value, b.value) + (a.value % b.value != 0 ? 1 : 0);
  }
  if (b.is_constant() && b.value > 0) return floordiv(add(a, b.value - 1), b);
  return atom(AtomKind::ceildiv, a, b);
}

Dim DimContext::mod(Dim a, Dim b) {
  if (b != Dim(0) && divide_exactly(a, b)) return 0;
  if (a.is_constant() && b.is_constant()) {
    if (divides(a.value, b.value)) return a.value - floor_quotient(a.value, b.value) * b.value;
    overflow_ = b.value == 0;
    return 0;
  }
  return atom(AtomKind::mod, a, b);
}

Dim DimContext::min(Dim a, Dim b) {
  if (a == b) return a;
  if (const auto smaller = less(a, b)) return *smaller ? a : b;
  return opaque(AtomKind::min, a, b);
}

Dim DimContext::max(Dim a, Dim b) {
  if (a == b) return a;
  if (const auto smaller = less(a, b)) return *smaller ? b : a;
  return opaque(AtomKind::max, a, b);
}

std::optional<std::int64_t> DimContext::atom_lower(std::uint32_t index) const {
  const Atom& atom = atoms_[index];
  const auto a = atom.kind == AtomKind::symbol ? std::nullopt : lower_bound(atom.a);
  const auto b = atom.kind == AtomKind::symbol ? std::nullopt : lower_bound(atom.b);
  switch (atom.kind) {
    case AtomKind::symbol:
      return 1;
    case AtomKind::max:
      if (a && b) return std::max(*a, *b);
      return a ? a : b;
    case AtomKind::min:
      return a && b ? std::optional(std::min(*a, *b)) : std::nullopt;
    case AtomKind::mod:
      return b && *b > 0 ? std::optional<std::int64_t>(0) : std::nullopt;
    case AtomKind::floordiv:
    case AtomKind::ceildiv:
      return a && b && *a >= 0 && *b > 0 ? std::optional<std::int64_t>(0) : std::nullopt;
    case AtomKind::sum:
      return a && b ? narrow(Count{*a} + *b) : std::nullopt;
    case AtomKind::product:
      return a && b && *a >= 0 && *b >= 0 ? narrow(Count{*a} * *b) : std::nullopt;
  }
  return std::nullopt;
}

std::optional<std::int64_t> DimContext::lower_bound(Dim a) const {
  if (a.is_constant()) return a.value;
  Count bound = 0;
  for (const Term& term : polynomials_[a.expression]) {
    if (term.coefficient < 0 && !term.factors.empty()) return std::nullopt;
    Count product = term.coefficient;
    for (const Factor& factor : term.factors) {
      const auto low = atom_lower(factor.atom);
      if (!low || *low < 0) return std::nullopt;
      for (std::uint32_t i = 0; i < factor.power && product != 0; ++i) {
        product *= *low;
        if (!fits_int64(product)) return std::nullopt;
      }
    }
    bound += product;
  }
  return narrow(bound);
}

std::optional<std::int64_t> DimContext::upper_bound(Dim a) const {
  if (a.is_constant()) return a.value;
  // The largest value of an expression whose symbols only lower it: -(lower bound of its negation).
  Count bound = 0;
  for (const Term& term : polynomials_[a.expression]) {
    if (term.factors.empty()) {
      bound += term.coefficient;
      continue;
    }
    if (term.coefficient > 0) return std::nullopt;
    Count product = term.coefficient;
    for (const Factor& factor : term.factors) {
      const auto low = atom_lower(factor.atom);
      if (!low || *low < 0) return std::nullopt;
      for (std::uint32_t i = 0; i < factor.power && product != 0; ++i) {
        product *= *low;
        if (!fits_int64(product)) return std::nullopt;
      }
    }
    bound += product;
  }
  return narrow(bound);
}

std::optional<bool> DimContext::less(Dim a, Dim b) {
  if (a.is_constant() && b.is_constant()) return a.value < b.value;
  const bool before = overflow_;
  const Dim difference = sub(b, a);
  if (overflow_ && !before) {
    overflow_ = false;
    return std::nullopt;
  }
  if (const auto low = lower_bound(difference); low && *low > 0) return true;
  if (const auto high = upper_bound(difference); high && *high <= 0) return false;
  return std::nullopt;
}

std::optional<bool> DimContext::equal(Dim a, Dim b) {
  if (a == b) return true;
  if (a.is_constant() && b.is_constant()) return false;
  const auto below = less(a, b), above = less(b, a);
  if ((below && *below) || (above && *above)) return false;
  return std::nullopt;
}

std::optional<std::int64_t> DimContext::evaluate_atom(std::uint32_t index, const Bindings& bindings) const {
  const Atom& atom = atoms_[index];
  if (atom.kind == AtomKind::symbol) return bindings(atom.name);
  const auto a = evaluate(atom.a, bindings), b = evaluate(atom.b, bindings);
  if (!a || !b) return std::nullopt;
  switch (atom.kind) {
    case AtomKind::floordiv:
      return divides(*a, *b) ? std::optional(floor_quotient(*a, *b)) : std::nullopt;
    case AtomKind::ceildiv:
      return divides(*a, *b) ? std::optional(floor_quotient(*a, *b) + (*a % *b != 0 ? 1 : 0)) : std::nullopt;
    case AtomKind::mod:
      return divides(*a, *b) ? narrow(Count{*a} - Count{floor_quotient(*a, *b)} * *b) : std::nullopt;
    case AtomKind::min:
      return std::min(*a, *b);
    case AtomKind::max:
      return std::max(*a, *b);
    case AtomKind::sum:
      return narrow(Count{*a} + *b);
    case AtomKind::product:
      return narrow(Count{*a} * *b);
    case AtomKind::symbol:
      break;
  }
  return std::nullopt;
}

std::optional<std::int64_t> DimContext::evaluate(Dim a, const Bindings& bindings) const {
  if (a.is_constant()) return a.value;
  Count sum = 0;
  for (const Term& term : polynomials_[a.expression]) {
    Count product = term.coefficient;
    for (const Factor& factor : term.factors) {
      const auto value = evaluate_atom(factor.atom, bindings);
      if (!value) return std::nullopt;
      for (std::uint32_t i = 0; i < factor.power && product != 0; ++i) {
        product *= *value;
        if (!fits_int64(product)) return std::nullopt;
      }
    }
    sum += product;
  }
  return narrow(sum);
}

void DimContext::collect_symbols(Dim a, std::vector<std::string>& names) const {
  if (a.is_constant()) return;
  for (const Term& term : polynomials_[a.expression]) {
    for (const Factor& factor : term.factors) {
      const Atom& atom = atoms_[factor.atom];
      if (atom.kind == AtomKind::symbol) {
        if (std::find(names.begin(), names.end(), atom.name) == names.end()) names.push_back(atom.name);
      } else {
        collect_symbols(atom.a, names);
        collect_symbols(atom.b, names);
      }
    }
  }
}

std::string DimContext::atom_text(std::uint32_t index) const {
  const Atom& atom = atoms_[index];
  static constexpr std::string_view kNames[] = {"", "floordiv", "ceildiv", "mod", "min", "max", "sum", "product"};
  if (atom.kind == AtomKind::symbol) return atom.name;
  return std::string(kNames[static_cast<std::size_t>(atom.kind)]) + "(" + text(atom.a) + ", " + text(atom.b) + ")";
}

std::string DimContext::text(Dim a) const {
  if (a.is_constant()) return std::to_string(a.value);
  std::string out;
  std::string constant;
  for (const Term& term : polynomials_[a.expression]) {
    const bool negative = term.coefficient < 0;
    const std::string number = std::to_string(term.coefficient).substr(negative ? 1 : 0);
    std::string part;
    if (term.factors.empty() || number != "1") part = number;
    for (const Factor& factor : term.factors) {
      for (std::uint32_t i = 0; i < factor.power; ++i) part += (part.empty() ? "" : "*") + atom_text(factor.atom);
    }
    const std::string piece = (out.empty() ? (negative ? "-" : "") : (negative ? " - " : " + ")) + part;
    if (term.factors.empty()) {
      constant = (negative ? " - " : " + ") + part;  // written last
    } else {
      out += piece;
    }
  }
  return out + constant;
}

}  // namespace rooftile::onnx
