// Views over made-up rows whose every number is known, and the words by which rows are told apart.
#include "estimator/passes/views.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "report/quantity.h"
#include "report/render.h"

namespace rooftile {
namespace {

OpRow row_of(OpKind op, const std::string& segment, const std::string& name, const std::string& suffix = "", StepPhase phase = StepPhase::forward) {
  OpRow row;
  row.op = op;
  row.segment = segment;
  row.name = segment + "." + name;
  row.operator_size = static_cast<std::uint32_t>(row.name.size());
  if (!suffix.empty()) row.name += "." + suffix;
  row.phase = phase;
  row.count = 1;
  row.launches = 1;
  row.call.shape = GemmShape{};
  return row;
}

OpRow pointwise_row(OpKind op, PointwiseKind kind, StepPhase phase = StepPhase::forward) {
  OpRow row = row_of(op, "layer", "x", "", phase);
  row.call.kernel = KernelClass::pointwise;
  row.call.shape = PointwiseShape{.kind = kind, .numel = 8};
  return row;
}

OpRow class_row(OpKind op, KernelClass kernel) {
  OpRow row = row_of(op, "layer", "x");
  row.call.kernel = kernel;
  row.call.shape = RowShape{8, 8};
  return row;
}

// A matmul of 7 ms in two passes, a norm of 2 ms, gaps of 1 ms.
Prediction made_up() {
  Prediction p;
  p.peak_flops = 1e15;
  OpRow forward = row_of(OpKind::linear, "layer", "up");
  forward.time_s = 3e-3;
  forward.flops = 1'000'000'000'000;
  forward.bytes = 10;
  forward.launches = 4;
  OpRow backward = row_of(OpKind::linear, "layer", "up", "dgrad", StepPhase::backward);
  backward.time_s = 4e-3;
  backward.flops = 2'500'000'000'000;
  backward.bytes = 20;
  backward.launches = 5;
  OpRow norm = class_row(OpKind::layernorm, KernelClass::layernorm);
  norm.time_s = 2e-3;
  norm.flops = 7;
  norm.bytes = 30;
  norm.launches = 2;
  p.rows = {forward, norm, backward};
  p.totals.launch_gap_time_s = 1e-3;
  p.totals.step_time_s = 10e-3;
  p.totals.forward_time_s = 5e-3;
  p.totals.backward_time_s = 4e-3;
  return p;
}

TEST(Views, SumsSharesAndMfu) {
  const auto lines = view_of(made_up(), ViewKind::family);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0].name, "matmul");
  EXPECT_NEAR(lines[0].all.time_s, 7e-3, 1e-15);
  EXPECT_NEAR(lines[0].share, 0.7, 1e-12);
  EXPECT_EQ(lines[0].all.flops, 3'500'000'000'000);
  EXPECT_EQ(lines[0].all.bytes, 30);
  EXPECT_EQ(lines[0].all.launches, 9);
  EXPECT_NEAR(*lines[0].all.mfu(1e15), 0.5, 1e-12);
  EXPECT_NEAR(lines[0].phases[0].time_s, 3e-3, 1e-15);
  EXPECT_NEAR(lines[0].phases[1].time_s, 4e-3, 1e-15);
  EXPECT_NEAR(*lines[0].phases[1].mfu(1e15), 0.625, 1e-12);
  EXPECT_EQ(lines[1].name, "norm");
  EXPECT_NEAR(lines[1].share, 0.2, 1e-12);
  EXPECT_FALSE(lines[1].all.mfu(1e15));  // its FLOPs are no matmul's
  EXPECT_EQ(lines[2].name, "gaps");
  EXPECT_TRUE(lines[2].waits);
  EXPECT_NEAR(lines[2].share, 0.1, 1e-12);
}

TEST(Views, ByPhaseAndByLayer) {
  const auto phases = view_of(made_up(), ViewKind::phase);
  ASSERT_EQ(phases.size(), 3u);
  EXPECT_EQ(phases[0].name, "forward");
  EXPECT_NEAR(phases[0].share, 0.5, 1e-12);
  EXPECT_NEAR(phases[1].share, 0.4, 1e-12);
  const auto layers = view_of(made_up(), ViewKind::layer);
  ASSERT_EQ(layers.size(), 3u);
  EXPECT_EQ(layers[0].name, "norm");
  EXPECT_EQ(layers[1].name, "mlp");
  EXPECT_NEAR(layers[1].share, 0.7, 1e-12);
}

TEST(Views, LayersByOperatorAndName) {
  const auto role = [](OpKind op, const char* segment, const char* name) { return layer_role_of(row_of(op, segment, name, "wgrad", StepPhase::backward)); };
  EXPECT_EQ(role(OpKind::linear, "layer", "qkv"), LayerRole::attention);
  EXPECT_EQ(role(OpKind::linear, "layer", "attention_out"), LayerRole::attention);
  EXPECT_EQ(role(OpKind::grouped_linear, "layer", "kv_b_query"), LayerRole::attention);
  EXPECT_EQ(role(OpKind::rotary, "layer", "rotary"), LayerRole::attention);
  EXPECT_EQ(role(OpKind::linear, "layer", "gate_up"), LayerRole::mlp);
  EXPECT_EQ(role(OpKind::gated_activation, "layer", "act"), LayerRole::mlp);
  EXPECT_EQ(role(OpKind::gated_activation, "layer", "experts_act"), LayerRole::moe);
  EXPECT_EQ(role(OpKind::linear, "layer", "shared_gate_up"), LayerRole::moe);
  EXPECT_EQ(role(OpKind::residual, "layer", "shared_add"), LayerRole::moe);
  EXPECT_EQ(role(OpKind::residual, "layer", "residual1"), LayerRole::residual);
  EXPECT_EQ(role(OpKind::rmsnorm, "layer", "q_norm"), LayerRole::norm);
  EXPECT_EQ(role(OpKind::linear, "head", "head_dense"), LayerRole::head);
  EXPECT_EQ(role(OpKind::cross_entropy, "head", "loss"), LayerRole::loss);
  EXPECT_EQ(role(OpKind::position_add, "embedding", "positions"), LayerRole::embedding);
  EXPECT_EQ(role(OpKind::collective, "layer", "tp_reduce"), LayerRole::communication);
  // Nodes of imported graphs keep their names.
  EXPECT_EQ(role(OpKind::linear, "graph", "/encoder/layer.0/Attention/self/query/MatMul"), LayerRole::attention);
  EXPECT_EQ(role(OpKind::linear, "graph", "/h.0/mlp/c_fc/Gemm"), LayerRole::mlp);
  EXPECT_EQ(role(OpKind::linear, "graph", "node_17"), LayerRole::other);
  EXPECT_EQ(role(OpKind::linear, "graph", "\xff\xfe"), LayerRole::other);
}

TEST(Views, FamiliesByKernel) {
  EXPECT_EQ(family_of(row_of(OpKind::attention, "layer", "attention")), OperatorFamily::matmul);  // a matmul of unfused attention
  EXPECT_EQ(family_of(class_row(OpKind::attention, KernelClass::softmax)), OperatorFamily::softmax);
  EXPECT_EQ(family_of(class_row(OpKind::cross_entropy, KernelClass::nll)), OperatorFamily::softmax);
  EXPECT_EQ(family_of(class_row(OpKind::rmsnorm, KernelClass::row_mean)), OperatorFamily::reduction);  // composed
  EXPECT_EQ(family_of(class_row(OpKind::rmsnorm, KernelClass::rmsnorm)), OperatorFamily::norm);
  EXPECT_EQ(family_of(class_row(OpKind::position_add, KernelClass::sort)), OperatorFamily::embedding);
  EXPECT_EQ(family_of(class_row(OpKind::moe_move, KernelClass::sort)), OperatorFamily::reduction);
  EXPECT_EQ(family_of(pointwise_row(OpKind::linear, PointwiseKind::cast)), OperatorFamily::copy);
  EXPECT_EQ(family_of(pointwise_row(OpKind::linear, PointwiseKind::memset)), OperatorFamily::copy);
  EXPECT_EQ(family_of(pointwise_row(OpKind::activation, PointwiseKind::gelu)), OperatorFamily::pointwise);
  EXPECT_EQ(family_of(pointwise_row(OpKind::activation, PointwiseKind::fused)), OperatorFamily::fused);
  EXPECT_EQ(family_of(pointwise_row(OpKind::position_add, PointwiseKind::gather)), OperatorFamily::embedding);
  EXPECT_EQ(family_of(pointwise_row(OpKind::moe_move, PointwiseKind::gather)), OperatorFamily::copy);
  EXPECT_EQ(family_of(pointwise_row(OpKind::embedding, PointwiseKind::fill)), OperatorFamily::pointwise);
  EXPECT_EQ(family_of(pointwise_row(OpKind::position_add, PointwiseKind::fill, StepPhase::backward)), OperatorFamily::embedding);
  EXPECT_EQ(family_of(pointwise_row(OpKind::elementwise, PointwiseKind::cast, StepPhase::optimizer)), OperatorFamily::optimizer);
}

TEST(Views, NamesReadBack) {
  for (const ViewKind kind : {ViewKind::phase, ViewKind::layer, ViewKind::family}) EXPECT_EQ(parse_view_kind(name_of(kind)), kind);
  EXPECT_FALSE(parse_view_kind("layers"));
  EXPECT_FALSE(parse_view_kind(""));
  EXPECT_EQ(name_of(LayerRole::other), "other");
  EXPECT_EQ(name_of(OperatorFamily::communication), "communication");
}

TEST(Views, EveryFormatSaysTheSame) {
  const Prediction p = made_up();
  std::string json;
  append_json(json, p, {"1", ""}, {});
  const auto views = nlohmann::json::parse(json).at("views");
  EXPECT_EQ(views.size(), 3u);
  EXPECT_EQ(views["family"][0]["name"], "matmul");
  EXPECT_NEAR(views["family"][0]["mfu"].get<double>(), 0.5, 1e-12);
  EXPECT_TRUE(views["family"][1]["mfu"].is_null());
  EXPECT_NEAR(views["family"][0]["phases"]["backward"]["time_s"].get<double>(), 4e-3, 1e-15);
  EXPECT_FALSE(views["family"][0]["phases"].contains("optimizer"));
  std::string csv = csv_view_header();
  append_csv_view(csv, p, ViewKind::family);
  EXPECT_NE(csv.find(",family,matmul,all,0.007"), std::string::npos) << csv;
  EXPECT_NE(csv.find(",family,matmul,backward,0.004,0.4,2500000000000,20,0.625,5\n"), std::string::npos) << csv;
  TableStyle style;
  style.view = ViewKind::family;
  const std::string table = render_table(p, style);
  EXPECT_NE(table.find("by operator family"), std::string::npos);
  EXPECT_NE(table.find("100.0%"), std::string::npos);
  EXPECT_EQ(table.find("Ranked by save"), std::string::npos);
  const std::string markdown = render_markdown(p, style);
  EXPECT_NE(markdown.find("| by operator family | time | share | forward | backward |"), std::string::npos) << markdown;
}

}  // namespace
}  // namespace rooftile
