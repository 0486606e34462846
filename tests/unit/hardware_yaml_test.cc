#include "frontends/hardware_yaml.h"

#include <gtest/gtest.h>

#include <chrono>

namespace rooftile {
namespace {

Error error_of(const std::string& text) {
  const Result<YamlNode> tree = parse_yaml(text, "test.yaml");
  EXPECT_FALSE(tree.has_value()) << text.substr(0, 200);
  return tree ? Error{} : tree.error();
}

TEST(HardwareYaml, KeepsPositionsAndQuotes) {
  const Result<YamlNode> tree = parse_yaml("a: 1\nb:\n  c: [x, \"2\"]\n  d: ~\n", "test.yaml");
  ASSERT_TRUE(tree.has_value()) << describe(tree.error());
  EXPECT_EQ(tree->find("a")->scalar, "1");
  const YamlNode* list = tree->find("b")->find("c");
  ASSERT_EQ(list->items.size(), 2u);
  EXPECT_FALSE(list->items[0].quoted);
  EXPECT_TRUE(list->items[1].quoted);
  EXPECT_EQ(list->items[1].place(), "test.yaml:3:10");
  EXPECT_EQ(tree->find("b")->find("d")->kind, YamlNode::Kind::null);
  EXPECT_EQ(tree->find("z"), nullptr);
}

TEST(HardwareYaml, RefusesBrokenInputWithItsPlace) {
  EXPECT_EQ(error_of("a: 1\nb: [1, 2\n").code, ErrorCode::invalid);
  EXPECT_EQ(error_of("").place, "test.yaml:1:1");
  EXPECT_EQ(error_of("# only a comment\n").code, ErrorCode::invalid);
  EXPECT_EQ(error_of("- 1\n- 2\n").message, "expected 'key: value' lines");
  EXPECT_EQ(error_of("a: 1\nb: 2\na: 3\n").place, "test.yaml:3:1");
  EXPECT_EQ(error_of("a: &x 1\nb: *x\n").place, "test.yaml:1:4");
  EXPECT_EQ(error_of("a: 1\n---\nb: 2\n").message, "holds more than one document");
  EXPECT_EQ(error_of("ab: 1\nc: \xff\n").place, "test.yaml:2:4");
  EXPECT_EQ(error_of(std::string("a: \0 1\n", 7)).message, "not valid UTF-8 text");
  EXPECT_EQ(error_of("a: \xC0\xAF\n").message, "not valid UTF-8 text");      // overlong
  EXPECT_EQ(error_of("a: \xED\xA0\x80\n").message, "not valid UTF-8 text");  // surrogate
  EXPECT_EQ(error_of("{[1]: 2}\n").message, "a key must be a plain word");
  EXPECT_EQ(error_of("a: !!binary [\n").code, ErrorCode::invalid);
}

TEST(HardwareYaml, BoundedInDepthSizeAndTime) {
  const auto start = std::chrono::steady_clock::now();
  EXPECT_NE(error_of("a: " + std::string(100, '[') + std::string(100, ']')).message.find("nested deeper"), std::string::npos);
  EXPECT_EQ(error_of("a: " + std::string(100000, '[')).code, ErrorCode::invalid);
  EXPECT_EQ(error_of("a: " + std::string(50000, '{')).code, ErrorCode::invalid);
  EXPECT_EQ(error_of(std::string(2u << 20, 'a')).message, "file is larger than 1 MiB");
  std::string laughs = "a0: &a0 [x, x]\n";
  for (int i = 1; i < 60; ++i) laughs += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [*a" + std::to_string(i - 1) + ", *a" + std::to_string(i - 1) + "]\n";
  EXPECT_EQ(error_of(laughs).code, ErrorCode::invalid);
  EXPECT_EQ(error_of("a: &a [*a]\n").code, ErrorCode::invalid);
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), 5.0);
}

TEST(HardwareYaml, AcceptsAByteOrderMark) {
  EXPECT_TRUE(parse_yaml("\xEF\xBB\xBF"
                         "a: 1\n",
                         "test.yaml")
                  .has_value());
}

TEST(HardwareYaml, MergesMapsAndReplacesNumbersWhole) {
  const YamlNode base = *parse_yaml("a: {x: {value: 1, unit: GB, note: old}, y: {value: 2}}\nb: 1\nc: 1\n", "base.yaml");
  const YamlNode over = *parse_yaml("a:\n  x: {value: 3, unit: MB}\nb: ~\nd: 4\n", "over.yaml");
  const YamlNode merged = merge_yaml(base, over);
  EXPECT_EQ(merged.find("a")->find("x")->find("value")->scalar, "3");
  EXPECT_EQ(merged.find("a")->find("x")->find("note"), nullptr);  // nothing of the old number is left
  EXPECT_EQ(merged.find("a")->find("y")->place().substr(0, 9), "base.yaml");
  EXPECT_EQ(merged.find("a")->find("x")->place(), "over.yaml:2:6");
  EXPECT_EQ(merged.find("b"), nullptr);
  EXPECT_EQ(merged.find("c")->scalar, "1");
  EXPECT_EQ(merged.find("d")->scalar, "4");
}

}  // namespace
}  // namespace rooftile
