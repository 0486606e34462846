// ONNX in: time by number of nodes. A chain of transformer layers as exporters write them (norm written out, heads, masks, GELU by Erf: 50 nodes a layer, weights external).
#include <benchmark/benchmark.h>

#include <stdexcept>

#include "frontends/onnx/onnx_model.h"
#include "tests/onnx_writer.h"

namespace rooftile {
namespace {

using test::attr;
using test::attr_ints;

constexpr int kNodesOfLayer = 50;

void norm(test::OnnxGraph& g, const std::string& x, const std::string& y) {
  g.weight(y + "g", {64}).weight(y + "b", {64}).node("ReduceMean", {x}, {y + "m"}, {attr_ints("axes", {-1})}).node("Sub", {x, y + "m"}, {y + "d"});
  g.node("Pow", {y + "d", "two"}, {y + "s"}).node("ReduceMean", {y + "s"}, {y + "v"}, {attr_ints("axes", {-1})}).node("Add", {y + "v", "epsilon"}, {y + "e"});
  g.node("Sqrt", {y + "e"}, {y + "r"}).node("Div", {y + "d", y + "r"}, {y + "n"}).node("Mul", {y + "n", y + "g"}, {y + "w"}).node("Add", {y + "w", y + "b"}, {y});
}

std::string chain(std::int64_t nodes) {
  test::OnnxGraph g;
  g.input("x0", {"batch", "seq", 64}).ints("split", {0, 0, 4, 16}).ints("merge", {0, 0, 64});
  for (const auto& [name, value] :
       {std::pair{"two", 2.F}, std::pair{"epsilon", 1e-5F}, std::pair{"eight", 8.F}, std::pair{"root", 1.41421356F}, std::pair{"one", 1.F}, std::pair{"half", .5F}})
    g.initializer(test::float_tensor(name, {}, {value}));
  const std::int64_t layers = std::max<std::int64_t>(1, nodes / kNodesOfLayer);
  for (std::int64_t i = 0; i < layers; ++i) {
    const std::string l = "l" + std::to_string(i) + ".", x = "x" + std::to_string(i);
    norm(g, x, l + "n1");
    for (const std::string p : {"q", "k", "v"}) {
      g.weight(l + p + "w", {64, 64}).weight(l + p + "b", {64}).node("MatMul", {l + "n1", l + p + "w"}, {l + p + "0"}).node("Add", {l + p + "0", l + p + "b"}, {l + p + "1"});
      g.node("Reshape", {l + p + "1", "split"}, {l + p + "2"}).node("Transpose", {l + p + "2"}, {l + p}, {attr_ints("perm", {0, 2, 1, 3})});
    }
    g.node("Transpose", {l + "k"}, {l + "kt"}, {attr_ints("perm", {0, 1, 3, 2})}).node("MatMul", {l + "q", l + "kt"}, {l + "s"}).node("Div", {l + "s", "eight"}, {l + "sd"});
    g.node("Softmax", {l + "sd"}, {l + "p"}, {attr("axis", -1)}).node("MatMul", {l + "p", l + "v"}, {l + "a"});
    g.node("Transpose", {l + "a"}, {l + "at"}, {attr_ints("perm", {0, 2, 1, 3})}).node("Reshape", {l + "at", "merge"}, {l + "am"});
    g.weight(l + "ow", {64, 64}).weight(l + "ob", {64}).node("MatMul", {l + "am", l + "ow"}, {l + "o0"}).node("Add", {l + "o0", l + "ob"}, {l + "o"});
    g.node("Add", {x, l + "o"}, {l + "h"});
    norm(g, l + "h", l + "n2");
    g.weight(l + "uw", {64, 256}).weight(l + "ub", {256}).node("MatMul", {l + "n2", l + "uw"}, {l + "u0"}).node("Add", {l + "u0", l + "ub"}, {l + "u"});
    g.node("Div", {l + "u", "root"}, {l + "e0"}).node("Erf", {l + "e0"}, {l + "e1"}).node("Add", {l + "e1", "one"}, {l + "e2"}).node("Mul", {l + "u", l + "e2"}, {l + "e3"});
    g.node("Mul", {l + "e3", "half"}, {l + "act"}).weight(l + "dw", {256, 64}).node("MatMul", {l + "act", l + "dw"}, {l + "d"});
    g.node("Add", {l + "h", l + "d"}, {"x" + std::to_string(i + 1)});
  }
  g.output("x" + std::to_string(layers));
  return g.file();
}

template <typename T>
T value_or_stop(Result<T> result) {
  if (!result) throw std::runtime_error(describe(result.error()));
  return std::move(*result);
}

void read_onnx_file(benchmark::State& state) {
  const std::string file = chain(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(value_or_stop(read_onnx_bytes(file, "chain.onnx")));
  state.SetComplexityN(state.range(0));
}
BENCHMARK(read_onnx_file)->Arg(1000)->Arg(3000)->Arg(10'000)->Arg(30'000)->Arg(100'000)->Unit(benchmark::kMillisecond)->Complexity(benchmark::oN);

// Sizes, patterns, layers: what each binding of a sweep pays.
void bind_onnx_graph(benchmark::State& state) {
  const OnnxModel model = value_or_stop(read_onnx_bytes(chain(state.range(0)), "chain.onnx"));
  Options options;
  options.phase = Phase::forward;
  for (auto _ : state) benchmark::DoNotOptimize(value_or_stop(model.bind({{"batch", 2}, {"seq", 128}}, options)));
  state.SetComplexityN(state.range(0));
}
BENCHMARK(bind_onnx_graph)->Arg(1000)->Arg(3000)->Arg(10'000)->Arg(30'000)->Arg(100'000)->Unit(benchmark::kMillisecond)->Complexity(benchmark::oN);

}  // namespace
}  // namespace rooftile
