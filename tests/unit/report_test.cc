// Renderers over a small made-up prediction whose every number is known.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "report/quantity.h"
#include "report/render.h"
#include "report/summary.h"
#include "report/text_table.h"

namespace rooftile {
namespace {

OpRow make_row(std::string segment_name, std::string name, StepPhase phase, std::int64_t m, std::int64_t n, std::int64_t k, double time_s, double wave_tail_s) {
  OpRow row;
  row.segment = segment_name;
  row.name = segment_name + "." + name;
  // "qkv.dgrad" is the operator "qkv"; names of imported nodes hold dots and slashes.
  const std::size_t pass = std::min(name.rfind(".dgrad"), name.rfind(".wgrad"));
  row.operator_size = static_cast<std::uint32_t>(segment_name.size() + 1 + std::min(pass, name.size()));
  row.op = OpKind::linear;
  row.phase = phase;
  row.count = 2;
  GemmShape shape;
  shape.m = m;
  shape.n = n;
  shape.k = k;
  row.call.shape = shape;
  row.flops = row.flops_executed = Count{2} * 2 * m * n * k;
  row.bytes = Count{2} * 2 * (m * k + k * n + m * n);
  row.time_s = row.duration_s = time_s;
  row.attainable_s = time_s * 0.75;
  row.peak_s = time_s - wave_tail_s;
  row.utilization = 0.6;
  row.bandwidth_utilization = 0.3;
  row.grade = Grade::acceptable;
  row.loss_s[static_cast<std::size_t>(Loss::wave_tail)] = wave_tail_s;
  row.tile_m = 128;
  row.tile_n = 256;
  row.kernel = "made_up";
  return row;
}

// Two kinds of layer, one operator in three passes, a head, an exposed reduction; 10 ms in all.
Prediction made_up() {
  Prediction prediction;
  prediction.model.name = "toy";
  prediction.model.outputs = {{"logits", DType::bf16, {1, 8, 100}}};
  prediction.parameters = prediction.parameters_active = 1'500'000;
  prediction.device_id = "toy_gpu";
  prediction.device_name = "Toy GPU";
  prediction.runtime = "fused";
  prediction.peak_flops = 1e12;
  prediction.peak_bandwidth = 1e11;
  prediction.options.seq = 8;
  prediction.rows.push_back(make_row("layer", "qkv", StepPhase::forward, 64, 64, 64, 1e-3, 0.2e-3));
  prediction.rows.push_back(make_row("layer_local", "qkv", StepPhase::forward, 64, 64, 64, 1e-3, 0.2e-3));
  prediction.rows.push_back(make_row("layer", "qkv.dgrad", StepPhase::backward, 64, 64, 64, 2e-3, 0.4e-3));
  prediction.rows.push_back(make_row("layer", "qkv.wgrad", StepPhase::backward, 64, 64, 64, 2e-3, 0.4e-3));
  prediction.rows.push_back(make_row("head", "lm_head", StepPhase::forward, 8, 100, 64, 1e-3, 0.1e-3));
  OpRow reduce = make_row("communication", "dp_reduce", StepPhase::communication, 8, 8, 8, 1e-3, 0);
  reduce.op = OpKind::collective;
  reduce.call.kernel = KernelClass::collective;
  reduce.call.shape = CollectiveShape{CollectiveKind::all_reduce, 1'000'000, 4, 1};
  reduce.bound = Bound::communication;
  reduce.duration_s = 3e-3;
  prediction.rows.push_back(reduce);
  Totals& totals = prediction.totals;
  totals.step_time_s = 10e-3;
  totals.step_time_low_s = 8e-3;
  totals.step_time_high_s = 13e-3;
  totals.forward_time_s = 3e-3;
  totals.backward_time_s = 4e-3;
  totals.exposed_communication_time_s = 1e-3;
  totals.bubble_time_s = 1.5e-3;
  totals.launch_gap_time_s = 0.5e-3;
  totals.mfu = 0.4;
  totals.flops_model = Count{4} * INT64_MAX;
  totals.tokens = 8;
  totals.memory.peak_bytes = 100'000'000'000;
  totals.memory.optimizer_bytes = 90'000'000'000;
  totals.memory.capacity_bytes = 80e9;
  totals.memory.fits = false;
  totals.memory.breaks = "optimizer states (90 GB)";
  totals.memory.would_fit = "--gpus 4 --zero 3";
  totals.memory.would_fit_bytes = 25e9;
  prediction.warnings = {{"odd", "a name with \xff in it"}};
  return prediction;
}

TEST(Summary, GroupsAnOperatorOverLayersAndPasses) {
  const Summary summary = summarize(made_up(), Grouping::op);
  ASSERT_EQ(summary.groups.size(), 3u);
  const OpGroup& qkv = summary.groups[0];  // 6 ms, a quarter of it recoverable
  EXPECT_EQ(qkv.name, "qkv");
  EXPECT_EQ(qkv.phases, "fwd+bwd");
  EXPECT_EQ(qkv.count, 8);
  EXPECT_EQ(qkv.shape, "64x64x64");
  EXPECT_DOUBLE_EQ(qkv.time_s, 6e-3);
  EXPECT_DOUBLE_EQ(qkv.share, 0.6);
  EXPECT_DOUBLE_EQ(qkv.recoverable_s, 1.5e-3);
  EXPECT_DOUBLE_EQ(qkv.flops, 4 * 2 * 2 * 64.0 * 64 * 64);
  EXPECT_NEAR(qkv.utilization, 0.6, 1e-12);
  // All of an exposed collective could be hidden, so it comes before the head with its 0.25 ms.
  EXPECT_EQ(summary.groups[1].name, "dp_reduce");
  EXPECT_FALSE(summary.groups[1].graded);
  EXPECT_EQ(summary.groups[2].name, "lm_head");
}

TEST(Summary, GroupingByPhaseAndNotAtAll) {
  EXPECT_EQ(summarize(made_up(), Grouping::phase).groups.size(), 4u);  // qkv forward, qkv backward, lm_head, dp_reduce
  EXPECT_EQ(summarize(made_up(), Grouping::none).groups.size(), 6u);
}

TEST(Summary, DotsInNamesOfImportedNodesStay) {
  Prediction prediction = made_up();
  prediction.rows.clear();
  prediction.rows.push_back(make_row("layer", "block.0/MatMul", StepPhase::forward, 8, 8, 8, 1e-3, 0));
  prediction.rows.push_back(make_row("layer", "block.1/MatMul", StepPhase::forward, 8, 8, 8, 1e-3, 0));
  prediction.rows.push_back(make_row("layer", "block.1/MatMul.dgrad", StepPhase::backward, 8, 8, 8, 1e-3, 0));
  const Summary summary = summarize(prediction, Grouping::op);
  ASSERT_EQ(summary.groups.size(), 2u);
  EXPECT_EQ(summary.groups[0].name, "block.1/MatMul");
}

TEST(Summary, PartsSumToTheStep) {
  const Prediction prediction = made_up();
  double sum = 0;
  for (const TimePart& part : summarize(prediction, Grouping::op).parts) sum += part.seconds;
  EXPECT_NEAR(sum, prediction.totals.step_time_s, 1e-12);
}

TEST(Summary, BottleneckNamesTheBoundAndTheOperator) {
  const Prediction prediction = made_up();
  const Summary summary = summarize(prediction, Grouping::op);
  EXPECT_EQ(summary.bottleneck, "arithmetic");
  ASSERT_EQ(summary.bottleneck_lines.size(), 1u);
  EXPECT_EQ(summary.bottleneck_lines[0], "matmuls, limited by arithmetic: 70 % of the step (qkv 60 %, lm_head 10 %); together they reach 60 % of the peak FLOP/s");
  Prediction bubble = made_up();
  bubble.totals.bubble_time_s = 9e-3;
  EXPECT_EQ(summarize(bubble, Grouping::op).bottleneck, "pipeline bubble");
}

// The shares that are named are part of the share before them: a row that waits for memory is not counted among those that wait for arithmetic, whatever its group does.
TEST(Summary, BottleneckSharesAreOfTheSameRows) {
  Prediction prediction = made_up();
  prediction.rows[3].bound = Bound::dram;  // 2 of the 6 ms of qkv
  prediction.rows[2].bound = Bound::l2;    // a matmul that waits for L2 is a matmul all the same
  EXPECT_EQ(summarize(prediction, Grouping::op).bottleneck_lines[0],
            "matmuls, limited by arithmetic: 50 % of the step (qkv 40 %, lm_head 10 %); together they reach 60 % of the peak FLOP/s");
}

TEST(Summary, AnOddSizeIsNamedWithWhatItShouldBe) {
  Prediction prediction = made_up();
  prediction.model.vocab = 50257;
  OpRow& head = prediction.rows[4];
  head.call.shape = GemmShape{1024, 50257, 768};
  head.time_s = 3e-3;
  head.loss_s[static_cast<std::size_t>(Loss::alignment)] = 2.4e-3;
  const Summary summary = summarize(prediction, Grouping::op);
  EXPECT_EQ(summary.bottleneck, "alignment");
  EXPECT_EQ(summary.bottleneck_lines[0],
            "lm_head, slowed by alignment: its vocabulary 50257 is odd, which costs 2.4 ms (24 % of the step); pad it to 50304 (vocab: 50304 in the model's YAML)");
}

TEST(Summary, EqualWorkIsOneLineAndOtherWorkIsNot) {
  Prediction prediction = made_up();
  prediction.rows.clear();
  prediction.rows.push_back(make_row("layer", "gate", StepPhase::forward, 64, 256, 128, 1e-3, 0));
  prediction.rows.push_back(make_row("layer", "up", StepPhase::forward, 64, 256, 128, 1e-3, 0));
  prediction.rows.push_back(make_row("layer", "down", StepPhase::forward, 64, 128, 256, 1e-3, 0));
  prediction.rows.push_back(make_row("layer", "other", StepPhase::forward, 64, 128, 128, 1e-3, 0));
  const Summary summary = summarize(prediction, Grouping::op);
  ASSERT_EQ(summary.groups.size(), 2u);
  EXPECT_EQ(summary.groups[0].name, "gate+up+down");
  EXPECT_EQ(summary.groups[0].count, 6);
  EXPECT_DOUBLE_EQ(summary.groups[0].time_s, 3e-3);
  EXPECT_EQ(summary.groups[0].shape, "64x256x128");
  EXPECT_EQ(summarize(prediction, Grouping::phase).groups.size(), 4u);
}

TEST(Table, FirstScreenAnswersTheThreeQuestions) {
  const std::string text = render_table(made_up(), {});
  EXPECT_NE(text.find("NO: needs 100 GB, the GPU has 80 GB; what breaks it: optimizer states (90 GB)"), std::string::npos) << text;
  EXPECT_NE(text.find("fits with --gpus 4 --zero 3 (25 GB per GPU)"), std::string::npos);
  EXPECT_NE(text.find("10 ms per step if it did fit (8 to 13 ms, 8 in 10)"), std::string::npos) << text;
  EXPECT_NE(text.find("BOTTLENECK  matmuls"), std::string::npos);
  EXPECT_NE(text.find("40.0 %  model arithmetic at the data-sheet peak (= MFU)"), std::string::npos) << text;
  EXPECT_NE(text.find("13.0 %  idle SMs in last waves"), std::string::npos) << text;
  EXPECT_NE(text.find("15.0 %  pipeline bubble"), std::string::npos);
  EXPECT_NE(text.find("a name with \\xff in it"), std::string::npos);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
}

TEST(Table, SharesOfTheStepAddUpToAHundred) {
  std::istringstream lines(render_table(made_up(), {}));
  double sum = 0;
  bool parts = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("WHERE", 0) == 0) {
      parts = true;
    } else if (parts && line.empty()) {
      break;
    } else if (parts) {
      for (std::size_t i = line.find(" %  "); i != std::string::npos; i = line.find(" %  ", i + 1)) sum += std::stod(line.substr(i < 6 ? 0 : i - 6, 6));
    }
  }
  EXPECT_NEAR(sum, 100, 1e-9);
}

TEST(Table, HiddenCommunicationAndSmallRowsRaiseNoAlarm) {
  Prediction prediction = made_up();
  prediction.rows[5].time_s = 0;
  prediction.rows[4].time_s = 1e-5;  // 0.1 % of the step
  prediction.rows[4].grade = Grade::danger;
  std::istringstream lines(render_table(prediction, {}));
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("dp_reduce", 0) == 0) {
      EXPECT_NE(line.find("hidden"), std::string::npos) << line;
    }
    if (line.rfind("lm_head", 0) == 0) {
      EXPECT_EQ(line.find("acceptable"), std::string::npos) << line;
    }
  }
}

TEST(Table, ANumberKeepsItsUnitOnItsLine) {
  for (std::size_t width = 60; width <= 130; ++width) {
    TableStyle style;
    style.width = width;
    std::istringstream lines(render_table(made_up(), style));
    for (std::string line; std::getline(lines, line);) {
      const std::size_t first = line.find_first_not_of(' ');
      if (first == std::string::npos) continue;
      for (const char* unit : {"% ", "ms ", "GB ", "GB)", "TFLOP/s "}) EXPECT_NE(line.compare(first, std::string(unit).size(), unit), 0) << width << ": " << line;
    }
  }
}

TEST(Table, KeepsToItsWidth) {
  Prediction prediction = made_up();
  prediction.rows[0].name = "layer.an_operator_with_quite_a_long_name";
  for (const std::size_t width : {84u, 100u, 120u}) {
    TableStyle style;
    style.width = width;
    style.plot = true;
    std::istringstream lines(render_table(prediction, style));
    for (std::string line; std::getline(lines, line);) EXPECT_LE(display_width(line), width) << line;
  }
}

TEST(Table, ColoursOnlyWhenAsked) {
  TableStyle style;
  style.color = true;
  EXPECT_NE(render_table(made_up(), style).find("\x1b[31m"), std::string::npos);  // red: does not fit
}

TEST(Table, ListsTheTopAndSumsUpTheRest) {
  Prediction prediction = made_up();
  for (int i = 0; i < 30; ++i) prediction.rows.push_back(make_row("layer", "extra" + std::to_string(i), StepPhase::forward, 8, 8, 8 + i, 1e-5, 0));
  TableStyle style;
  style.top = 5;
  const std::string text = render_table(prediction, style);
  EXPECT_NE(text.find("\n28 more"), std::string::npos) << text;
  style.top = 0;
  EXPECT_EQ(render_table(prediction, style).find(" more"), std::string::npos);
}

TEST(Json, HasTheKeysOfTheInterface) {
  std::string out;
  append_json(out, made_up(), {"1.2.3", "rooftile estimate toy"}, {});
  ASSERT_EQ(out.rfind("{\"schema_version\": 1", 0), 0u);
  const auto json = nlohmann::json::parse(out);
  const auto keys = [](const nlohmann::json& object) {
    std::set<std::string> names;
    for (const auto& item : object.items()) names.insert(item.key());
    return names;
  };
  const auto has = [&](const nlohmann::json& object, const std::vector<std::string>& wanted) {
    for (const std::string& key : wanted) EXPECT_TRUE(object.contains(key)) << key;
  };
  EXPECT_EQ(keys(json), (std::set<std::string>{"schema_version", "context", "model", "device", "totals", "ops", "views", "warnings"}));
  has(json["model"], {"name", "source", "parameters", "parameters_active", "parameters_embedding", "outputs"});
  EXPECT_EQ(json["model"]["outputs"][0]["shape"], nlohmann::json({1, 8, 100}));
  has(json["device"], {"id", "name", "peak_flops", "calibration"});
  EXPECT_EQ(json["device"]["peak_flops"]["dtype"], "bf16");
  has(json["totals"], {"step_time_s",
                       "step_time_low_s",
                       "step_time_high_s",
                       "forward_time_s",
                       "backward_time_s",
                       "recompute_time_s",
                       "optimizer_time_s",
                       "exposed_communication_time_s",
                       "bubble_time_s",
                       "launch_gap_time_s",
                       "host_bound_time_s",
                       "flops_matmul_dense",
                       "flops_model",
                       "flops_hardware",
                       "bytes",
                       "tokens",
                       "tokens_per_s_per_gpu",
                       "tflops_per_gpu",
                       "mfu",
                       "hfu",
                       "busy_fraction",
                       "memory"});
  has(json["totals"]["memory"], {"peak_bytes", "parameters_bytes", "gradients_bytes", "optimizer_bytes", "activations_bytes", "kv_cache_bytes", "workspace_bytes", "fits"});
  has(json["ops"][0],
      {"name",  "op",    "phase",  "count", "shape", "dtype",        "flops",  "bytes",      "intensity", "time_s", "duration_s", "utilization", "bandwidth_utilization",
       "bound", "grade", "kernel", "tile",  "waves", "attainable_s", "loss_s", "confidence", "error_p90"});
  EXPECT_EQ(keys(json["ops"][0]["loss_s"]), (std::set<std::string>{"tile_padding", "wave_tail", "alignment", "latency", "cache", "memory", "clock", "launch"}));
  EXPECT_EQ(json["ops"][0]["tile"], "128x256");
  EXPECT_TRUE(json["totals"]["tokens"].is_number_integer());
  EXPECT_TRUE(json["totals"]["flops_model"].is_number_float());  // past 64 bits
  EXPECT_EQ(json["warnings"][0]["code"], "odd");
  EXPECT_EQ(json["warnings"][0]["message"], "a name with \u00ff in it");
}

TEST(Json, SumRule) {
  std::string out;
  append_json(out, made_up(), {}, {});
  const auto json = nlohmann::json::parse(out);
  const auto& totals = json["totals"];
  double sum = totals["bubble_time_s"].get<double>() + totals["launch_gap_time_s"].get<double>() + totals["host_bound_time_s"].get<double>();
  for (const auto& op : json["ops"]) sum += op["time_s"].get<double>();
  EXPECT_NEAR(sum, totals["step_time_s"].get<double>(), 1e-12);
}

TEST(Json, LinesAreOneLineEach) {
  std::string out;
  const std::vector<std::pair<std::string, std::string>> settings = {{"mbs", "4"}};
  append_json(out, made_up(), {}, {true, false}, settings);
  EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 1);
  const auto json = nlohmann::json::parse(out);
  EXPECT_FALSE(json.contains("ops"));
  EXPECT_EQ(json["context"]["variant"]["mbs"], "4");
}

TEST(Csv, EveryLineHasTheHeadersFields) {
  Prediction prediction = made_up();
  prediction.model.name = "a,\"b\"\n";
  std::string out = csv_ops_header();
  append_csv_ops(out, prediction);
  EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 7 + 6);  // a line break in each of six names
  EXPECT_NE(out.find("\n\"a,\"\"b\"\"\n\",toy_gpu,layer.qkv,linear,forward,2,"), std::string::npos) << out;
  const auto fields = [](const std::string& line) { return std::count(line.begin(), line.end(), ','); };
  prediction.model.name = "plain";
  std::istringstream lines([&] {
    std::string text = csv_ops_header();
    append_csv_ops(text, prediction);
    return text;
  }());
  std::string header;
  std::getline(lines, header);
  for (std::string line; std::getline(lines, line);) EXPECT_EQ(fields(line), fields(header)) << line;
  const std::vector<std::pair<std::string, std::string>> settings = {{"mbs", "4"}};
  std::string totals;
  append_csv_totals(totals, prediction, settings);
  EXPECT_EQ(fields(totals), fields(csv_totals_header(settings)));
}

TEST(Markdown, IsATable) {
  const std::string text = render_markdown(made_up(), {});
  EXPECT_NE(text.find("| operator | phase |"), std::string::npos);
  EXPECT_NE(text.find("| qkv | fwd+bwd | 8 | 64x64x64 |"), std::string::npos) << text;
}

TEST(SideBySide, ColumnsForModelsLinesForASweep) {
  Prediction prediction = made_up();
  std::vector<Variant> variants(2, {&prediction, {}});
  EXPECT_NE(render_side_by_side(variants, {}, false).find("\nstep time"), std::string::npos);
  variants.assign(2, {&prediction, {{"mbs", "1"}}});
  EXPECT_EQ(render_side_by_side(variants, {}, false).find("\nstep time"), std::string::npos);
  Prediction fits = prediction;
  fits.totals.memory.fits = true;
  variants[1].prediction = &fits;
  EXPECT_NE(render_side_by_side(variants, {}, false).find("yes <- best"), std::string::npos) << render_side_by_side(variants, {}, false);
  variants.assign(8, {&prediction, {{"mbs", "1"}}});
  const std::string lines = render_side_by_side(variants, {}, false);
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 9);
}

TEST(Roofline, PutsOperatorsUnderTheRoof) {
  const Prediction prediction = made_up();
  const std::string text = render_roofline(prediction, summarize(prediction, Grouping::op), {});
  EXPECT_NE(text.find("A qkv"), std::string::npos) << text;
  EXPECT_NE(text.find("ridge at 10 FLOP/byte"), std::string::npos);
}

TEST(TextTable, CutsBeforeItDropsAndDropsTheLeastImportant) {
  TextTable table;
  table.columns = {{"name", Align::left, 0, 6}, {"first", Align::right, 1}, {"second", Align::right, 2}};
  table.rows = {{{"a long name here"}, {"1"}, {"2"}}};
  EXPECT_EQ(table.render(80, false, ""), "name              first  second\na long name here      1       2\n");
  EXPECT_EQ(table.render(20, false, ""), "name    first second\na long…     1      2\n");
  EXPECT_EQ(table.render(14, false, ""), "name   first\na lon…     1\n");
}

TEST(Format, ByNameAndByFile) {
  EXPECT_EQ(parse_format("json"), Format::json);
  EXPECT_EQ(parse_format("xml"), std::nullopt);
  EXPECT_EQ(format_of_file("a/b.csv"), Format::csv);
  EXPECT_EQ(format_of_file("a/b.JSON"), Format::json);
  EXPECT_EQ(format_of_file("b.dat"), std::nullopt);
}

}  // namespace
}  // namespace rooftile
