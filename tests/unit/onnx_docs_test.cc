// docs/onnx-operators.md is the operator table; ROOFTILE_WRITE_DOCS=1 writes it.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "frontends/onnx/onnx_model.h"
#include "frontends/onnx/rules/rule.h"

namespace rooftile {
namespace {

TEST(OnnxDocs, OperatorTableIsWrittenDown) {
  const std::string path = std::string(ROOFTILE_SOURCE_DIR) + "/docs/onnx-operators.md";
  const std::string expected =
      "# ONNX operators\n\nWritten from frontends/onnx/rules/rules.def by `ROOFTILE_WRITE_DOCS=1 rooftile_tests --gtest_filter=OnnxDocs.*`.\n\n" + onnx_operator_table();
  if (std::getenv("ROOFTILE_WRITE_DOCS") != nullptr) std::ofstream(path) << expected;
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  EXPECT_EQ(text.str(), expected) << "rules.def changed: write the table again";
}

TEST(OnnxDocs, EveryOperatorHasOneRow) {
  std::set<std::pair<std::string_view, std::string_view>> seen;
  for (const onnx::Rule& rule : onnx::rule_table()) {
    EXPECT_TRUE(seen.insert({rule.domain, rule.op}).second) << rule.domain << " " << rule.op;
    EXPECT_EQ(onnx::find_rule(rule.domain, rule.op), &rule);
  }
  EXPECT_GT(seen.size(), 200u);
  EXPECT_EQ(onnx::find_rule("", "NoSuchOperator"), nullptr);
  EXPECT_EQ(onnx::find_rule("ai.onnx", "MatMul"), onnx::find_rule("", "MatMul"));
}

}  // namespace
}  // namespace rooftile
