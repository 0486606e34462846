// Runs the binary as people do: text, exit codes, what goes to which stream.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "report/quantity.h"
#include "tests/cli/run_binary.h"

namespace {

namespace fs = std::filesystem;
using rooftile::test::RunResult;
using rooftile::test::slurp;

fs::path scratch() {
  static const fs::path kFolder = rooftile::test::make_scratch("rooftile-test");
  return kFolder;
}

RunResult run(const std::string& arguments, const std::string& environment = "") { return rooftile::test::run_binary(arguments, scratch(), environment); }

TEST(CommandLine, VersionAndHelp) {
  EXPECT_EQ(run("--version").out.rfind("rooftile ", 0), 0u);
  const RunResult help = run("--help");
  EXPECT_EQ(help.code, 0);
  for (const char* command : {"estimate", "explain", "validate", "models", "devices", "runtimes", "clusters", "schema", "doctor", "advise", "plan", "compare", "calibrate"})
    EXPECT_HAS(help.out, std::string("\n  ") + command);
  EXPECT_EQ(run("").code, 2);
  for (const char* command : {"estimate", "explain", "validate", "models", "devices", "runtimes", "clusters", "schema", "doctor"}) {
    const RunResult of_command = run(std::string(command) + " --help");
    EXPECT_EQ(of_command.code, 0) << command;
    EXPECT_HAS(of_command.out, "Examples:\n");
  }
}

TEST(CommandLine, FirstScreen) {
  const RunResult result = run("estimate llama-3-8b --device h100_sxm");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  EXPECT_HAS(result.out, "llama-3-8b (8.03 B parameters), training step");
  EXPECT_HAS(result.out, "FIT         NO: needs");
  EXPECT_HAS(result.out, "\nBOTTLENECK");
  EXPECT_HAS(result.out, "WHERE THE STEP TIME GOES (100 %)");
  EXPECT_LE(std::count(result.out.begin(), result.out.end(), '\n'), 50);
  EXPECT_EQ(result.out.find('\x1b'), std::string::npos);
}

TEST(CommandLine, A126LayerModelFitsAScreen) {
  const RunResult result = run("estimate llama-3.1-405b --device h100_sxm --tp 8 --pp 16 --gpus 1024 --gbs 512 --sp --zero 1", "COLUMNS=100");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_LE(std::count(result.out.begin(), result.out.end(), '\n'), 50);
}

TEST(CommandLine, ViewsFitAHundredColumns) {
  for (const char* view : {"phase", "layer", "family"}) {
    const RunResult result =
        run(std::string("estimate mixtral-8x7b --device h200_sxm --runtime torch-eager --recompute full --gpus 16 --dp 16 --zero 1 --view ") + view, "COLUMNS=100");
    ASSERT_EQ(result.code, 0);
    EXPECT_HAS(result.out, "step ");
    EXPECT_HAS(result.out, "launches");  // no column had to go
    std::istringstream lines(result.out);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(rooftile::display_width(line), 100u) << line;
  }
  EXPECT_HAS(run("estimate gpt2 --device h200_sxm --view layer --format csv").out, "gpt2,h200_sxm,layer,attention,all,");
  EXPECT_EQ(run("estimate gpt2 --device h200_sxm --view layers").code, 2);
}

TEST(CommandLine, ColourChoices) {
  const std::string estimate = "estimate gpt2 --device h100_sxm ";
  EXPECT_HAS(run(estimate + "--color always").out, "\x1b[");
  EXPECT_EQ(run(estimate + "--color never").out.find('\x1b'), std::string::npos);
  EXPECT_EQ(run(estimate + "--color pink").code, 2);
}

TEST(CommandLine, ExitCodesAndHints) {
  const auto expect = [](const std::string& arguments, int code, const std::string& part) {
    const RunResult result = run(arguments);
    EXPECT_EQ(result.code, code) << arguments << "\n" << result.err;
    EXPECT_EQ(result.err.rfind("rooftile: ", 0), 0u) << arguments << "\n" << result.err;
    EXPECT_NE(result.err.find(part), std::string::npos) << arguments << "\n" << result.err;
    EXPECT_EQ(result.out, "") << arguments;
  };
  expect("estimat gpt2", 2, "did you mean 'estimate'?");
  expect("estimate", 2, "rooftile estimate llama-3-8b");
  expect("estimate gpt2", 2, "h100_sxm");
  expect("estimate gpt2-lage --device h100_sxm", 2, "did you mean 'gpt2-large'?");
  expect("estimate gpt2 --device h100_smx", 2, "did you mean 'h100_sxm'?");
  expect("estimate gpt2 --device h100", 2, "'h100_sxm'");
  expect("estimate gpt2 --devise h100_sxm", 2, "did you mean '--device'?");
  expect("estimate gpt2 --device h100_sxm --phase trian", 2, "did you mean 'train'?");
  expect("estimate gpt2 --device h100_sxm --mbs 0", 2, "--mbs");
  expect("estimate gpt2 --device h100_sxm --mbs=-1", 2, "--mbs");
  expect("estimate gpt2 --device h100_sxm --mbs 1.5", 2, "--mbs");
  expect("estimate gpt2 --device h100_sxm --mbs 1 --mbs 2", 2, "--mbs");
  expect("estimate gpt2 --device h100_sxm --format pdf", 2, "--format");
  expect("estimate gpt2 --device h100_sxm --gpus 6 --tp 4", 2, "--gpus");
  expect("estimate gpt2 --device h100_sxm --gpus 5 --tp 5", 2, "--tp");            // 12 heads
  expect("estimate gpt2 --device h100_sxm --gpus 4 --gbs 6 --mbs 4", 2, "--gbs");  // batch
  expect("estimate bert-base --device h100_sxm --phase decode", 4, "decode");
  expect("estimate gpt2 --device h100_sxm --format html", 4, "html");
  expect("plan gpt2", 4, "not in this version");
  expect("advise gpt2", 4, "not in this version");
  expect("compare x --model gpt2", 4, "not in this version");
  expect("calibrate", 5, "rooftile calibrate --from FILE.csv --device NAME");
  expect("calibrate --from no-such.json.gz --device t4", 3, "no such file");
  expect("calibrate --from step.sqlite --device t4", 4, "measurement CSV");
  expect("calibrate --from trace.json.gz --device t4 --rows 5", 2, "--rows");
  expect("calibrate --from rows.csv --device t4 --check trace.json", 2, "--check");
  expect("calibrate --from rows.csv", 2, "--device");
  expect("calibrate --from rows.csv --device t4 --quick", 2, "--quick");
  expect("calibrate --from rows.csv --device t4 -o t4.csv", 2, ".yaml");
  expect("calibrate --from no-such.csv --device t4", 3, "no-such.csv");
  expect("validate gpt2", 5, "GPU");
  expect("estimate gpt2 --device h100_sxm -o /nonexistent/x.json", 5, "/nonexistent/x.json");
  expect("estimate gpt2 --device h100_sxm --seq 9223372036854775807", 3, "2^6");
  expect("schema estimat", 2, "did you mean 'estimate'");
  expect("explain gem m=1", 2, "gemm");
}

TEST(CommandLine, BrokenInputIsExit3) {
  const auto broken = [](const std::string& name, const std::string& content) {
    const fs::path file = scratch() / name;
    std::ofstream(file, std::ios::binary) << content;
    const RunResult result = run("estimate '" + file.string() + "' --device h100_sxm");
    EXPECT_EQ(result.code, 3) << name << "\n" << result.err;
    EXPECT_NE(result.err.find(name), std::string::npos) << result.err;
  };
  broken("empty.yaml", "");
  broken("key.yaml", "name: x\nkind: decoder\nlayers: 2\nhidden: 64\nhaeds: 4\nvocab: 100\nffn_hidden: 256\n");
  broken("foreign.yaml", "name: \xff\xfe\x00\x01");
  broken("config.json", "{\"model_type\": \"llama\", ");
  const RunResult absent = run("estimate nowhere/model.yaml --device h100_sxm");
  EXPECT_EQ(absent.code, 3);
  EXPECT_EQ(run("estimate gpt2 --device nowhere/device.yaml").code, 3);
  EXPECT_EQ(run("estimate '" + scratch().string() + "' --device h100_sxm").code / 4, 0);  // a folder: refused, not a crash
}

TEST(CommandLine, ARunSectionsValueIsBrokenInput) {
  const fs::path file = scratch() / "bad_run.yaml";
  std::ofstream(file) << "name: x\nkind: decoder\nlayers: 2\nhidden: 64\nheads: 4\nvocab: 100\nffn_hidden: 256\nrun:\n  seq: -1\n";
  const RunResult result = run("estimate '" + file.string() + "' --device h100_sxm");
  EXPECT_EQ(result.code, 3);
  EXPECT_HAS(result.err, "bad_run.yaml:9:8: run.seq: ");
  EXPECT_EQ(run("estimate '" + file.string() + "' --device h100_sxm --seq 8").code, 3);
}

TEST(CommandLine, NothingIsReadWithoutAnEnd) {
  EXPECT_EQ(run("estimate /dev/zero --device h100_sxm").code, 3);
  EXPECT_EQ(run("validate --measurements /dev/zero --device h100_sxm").code, 3);
  const fs::path pipe = scratch() / "nobody_writes";
  ASSERT_EQ(std::system(("mkfifo '" + pipe.string() + "'").c_str()), 0);
  const RunResult waited = run("validate --measurements '" + pipe.string() + "' --device h100_sxm");
  EXPECT_EQ(waited.code, 3);
  EXPECT_HAS(waited.err, "pipe");
  const RunResult layers = run("estimate gpt2 --device h100_sxm --layers 1000000000");
  EXPECT_EQ(layers.code, 3);
  EXPECT_HAS(layers.err, "at most 100000");
}

TEST(CommandLine, APipeIsAModel) {
  const RunResult result = run("estimate /dev/stdin --device h100_sxm --format json < models/gpt2.yaml", "cd '" ROOFTILE_SOURCE_DIR "' &&");
  const RunResult piped = run("estimate /dev/stdin --device h100_sxm --format json", "cat '" ROOFTILE_SOURCE_DIR "/models/gpt2.yaml' |");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(piped.code, 0) << piped.err;
  EXPECT_EQ(nlohmann::json::parse(piped.out)["model"]["parameters"], 124439808);
}

TEST(CommandLine, AnInputIsNeverWrittenOver) {
  const fs::path file = scratch() / "precious.yaml";
  const std::string text = "name: x\nkind: decoder\nlayers: 2\nhidden: 64\nheads: 4\nvocab: 100\nffn_hidden: 256\n";
  std::ofstream(file) << text;
  EXPECT_EQ(run("estimate '" + file.string() + "' --device h100_sxm -o '" + file.string() + "'").code, 2);
  EXPECT_EQ(slurp(file), text);
}

TEST(CommandLine, WarningsOfSweepsGoToStandardError) {
  const RunResult csv = run("estimate gpt2 --device h100_sxm --seq 2048,4096 --format csv");
  EXPECT_HAS(csv.err, "rooftile: warning: gpt2: sequence 2048 is longer");
  EXPECT_HAS(csv.err, "(and 1 more like it)");
  EXPECT_HAS(run("estimate gpt2 llama-3-8b --device h100_sxm --seq 2048").err, "rooftile: warning: gpt2: ");
}

TEST(CommandLine, AnAbsurdDegreeIsBlamedItself) { EXPECT_HAS(run("estimate gpt2 --device h100_sxm --tp 1e18").err, "--tp: at most"); }

TEST(CommandLine, OddIsAWarning) {
  const auto warns = [](const std::string& arguments, const std::string& code) {
    const RunResult result = run("estimate " + arguments + " --device h100_sxm --format json");
    ASSERT_EQ(result.code, 0) << arguments << "\n" << result.err;
    const auto json = nlohmann::json::parse(result.out);
    bool found = false;
    for (const auto& warning : json["warnings"]) found |= warning["code"] == code;
    EXPECT_TRUE(found) << arguments << ": " << json["warnings"].dump();
  };
  warns("gpt2 --seq 4096", "seq_above_max_positions");
  warns("gpt2 --context 128", "option_without_effect");
  warns("gpt2 --phase forward --optimizer sgd", "option_without_effect");
  warns("gpt2 --phase decode --context 128 --seq 64", "option_without_effect");
  warns("gpt2 --pp-schedule gpipe", "option_without_effect");
  warns("gpt2 --mode sol --clocks sustained", "option_without_effect");
  warns("gpt2 --recompute selective", "option_without_effect");
  warns("gpt2 --dim batch=4", "option_without_effect");
  warns("gpt2 --gpus 5 --pp 5 --gbs 10", "layers_not_divisible");
  warns("gpt2 --gpus 4 --pp 4 --gbs 2", "few_micro_batches");
  warns("gpt3-175b --gpus 16 --tp 16", "tp_wider_than_node");
  warns("gpt2 --gpus 8 --pp 2 --zero 3 --gbs 8", "zero3_with_pipeline");
  warns("llama-3-8b", "does_not_fit");
}

TEST(CommandLine, SumRuleOnShippedModels) {
  for (const char* arguments :
       {"gpt2", "llama-3-8b --gpus 8 --tp 2 --pp 2 --gbs 16", "mixtral-8x7b --gpus 8 --ep 8 --zero 1", "bert-base --phase forward", "llama-3-8b --phase decode --context 4096",
        "t5-base", "vit-base", "whisper-small", "deepseek-v3 --gpus 64 --ep 64 --zero 3", "llama-3-8b --recompute full --runtime torch-compile"}) {
    const RunResult result = run(std::string("estimate ") + arguments + " --device h100_sxm --format json");
    ASSERT_EQ(result.code, 0) << arguments << "\n" << result.err;
    const auto json = nlohmann::json::parse(result.out);
    const auto& totals = json["totals"];
    const double step = totals["step_time_s"].get<double>();
    double sum = totals["bubble_time_s"].get<double>() + totals["launch_gap_time_s"].get<double>() + totals["host_bound_time_s"].get<double>();
    for (const auto& op : json["ops"]) {
      sum += op["time_s"].get<double>();
      EXPECT_GE(op["utilization"].get<double>(), 0);
    }
    EXPECT_GT(step, 0);
    EXPECT_NEAR(sum / step, 1, 1e-9) << arguments;
    EXPECT_LE(totals["step_time_low_s"].get<double>(), step);
    EXPECT_GE(totals["step_time_high_s"].get<double>(), step);
  }
}

TEST(CommandLine, SweepsStreamInOrderWhateverTheThreads) {
  const std::string sweep = "estimate gpt2 --device h100_sxm --mbs 1-20 --seq 64-640+64 --format jsonl";
  const RunResult first = run(sweep), second = run(sweep);
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_EQ(first.out, second.out);
  std::istringstream lines(first.out);
  std::int64_t count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const auto json = nlohmann::json::parse(line);
    EXPECT_EQ(json["context"]["mbs"], 1 + count / 10);
    EXPECT_EQ(json["context"]["seq"], 64 + 64 * (count % 10));
  }
  EXPECT_EQ(count, 200);
}

TEST(CommandLine, ASweepLeavesOutWhatDoesNotDivide) {
  const RunResult result = run("estimate llama-3-8b --device h100_sxm --tp 2,3,4 --format csv");
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 3);
  EXPECT_HAS(result.err, "skipped llama-3-8b --tp 3");
}

TEST(CommandLine, ModelsSideBySide) {
  const RunResult result = run("estimate gpt2 mistral-7b --device a100_sxm_80gb");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_HAS(result.out, "gpt2");
  EXPECT_HAS(result.out, "mistral-7b");
  EXPECT_HAS(result.out, "step time");
}

TEST(CommandLine, RunSectionLiesBeneathTheCommandLine) {
  const fs::path file = scratch() / "run.yaml";
  std::ofstream(file) << "name: x\nkind: decoder\nlayers: 2\nhidden: 64\nheads: 4\nvocab: 100\nffn_hidden: 256\nmax_positions: 512\nrun: {seq: 128, mbs: 2, device: h100_sxm}\n";
  const auto context = [&](const std::string& more) { return nlohmann::json::parse(run("estimate '" + file.string() + "' --format json " + more).out)["context"]; };
  EXPECT_EQ(context("")["mbs"], 2);
  EXPECT_EQ(context("")["seq"], 128);
  EXPECT_EQ(context("--mbs 4")["mbs"], 4);
  EXPECT_EQ(context("--micro-batch-size 8")["mbs"], 8);
}

TEST(CommandLine, OutputFileChoosesTheFormat) {
  const fs::path file = scratch() / "out.json";
  const RunResult result = run("estimate gpt2 --device h100_sxm -o '" + file.string() + "'");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(nlohmann::json::parse(slurp(file))["model"]["name"], "gpt2");
}

TEST(CommandLine, AFullDiskIsAnErrorAndAClosedPipeIsNot) {
  const RunResult full = run("estimate gpt2 --device h100_sxm > /dev/full");
  EXPECT_EQ(full.code, 5);
  const RunResult closed = run("estimate gpt2 --device h100_sxm --mbs 1-2000 --format jsonl | head -n 1");
  EXPECT_EQ(closed.err, "");
  EXPECT_EQ(std::count(closed.out.begin(), closed.out.end(), '\n'), 1);
}

TEST(CommandLine, ListsAndDescriptions) {
  EXPECT_HAS(run("devices").out, "h100_sxm");
  EXPECT_HAS(run("devices show h100_sxm").out, "989.4 TFLOP/s");
  const RunResult lint = run("devices --lint");
  EXPECT_EQ(lint.code, 0) << lint.out;
  EXPECT_HAS(run("models").out, "llama-3-8b");
  EXPECT_HAS(run("models show gpt2").out, "124439808");
  EXPECT_HAS(run("runtimes").out, "fused");
  EXPECT_HAS(run("clusters").out, "nvlink4");
  EXPECT_HAS(run("schema").out, "estimate");
  EXPECT_EQ(nlohmann::json::parse(run("schema estimate").out)["required"][0], "schema_version");
  EXPECT_HAS(run("doctor").out, "models");
  EXPECT_TRUE(nlohmann::json::parse(run("devices --format json").out).is_array());
}

TEST(CommandLine, ValidateKeepsOrderAndSaysWhyARowIsLeftOut) {
  const fs::path file = scratch() / "measured.csv";
  std::ofstream(file) << "op,dtype,shape,measured_us,source\n"
                         "gemm,bf16,m=4096 n=4096 k=4096 batch=1 layout=nt,200,one\n"
                         "nonsense,bf16,m=1,5,two\n"
                         "softmax,bf16,rows=4096 cols=4096 pass=fwd,40,\"three, four\"\n";
  const RunResult csv = run("validate --measurements '" + file.string() + "' --device h100_sxm --format csv");
  ASSERT_EQ(csv.code, 0) << csv.err;
  std::istringstream lines(csv.out);
  std::vector<std::string> all;
  for (std::string line; std::getline(lines, line);) all.push_back(line);
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(all[0], "op,dtype,shape,measured_us,source,predicted_us,bound,confidence,status");
  EXPECT_EQ(all[1].rfind("gemm,bf16,m=4096 n=4096 k=4096 batch=1 layout=nt,200,one,", 0), 0u);
  EXPECT_EQ(all[1].substr(all[1].size() - 3), ",ok");
  EXPECT_HAS(all[2], "nonsense,bf16,m=1,5,two,,,,");
  EXPECT_HAS(all[3], "\"three, four\"");
  const RunResult table = run("validate --measurements '" + file.string() + "' --device h100_sxm");
  EXPECT_HAS(table.out, "gemm bf16");
  EXPECT_HAS(table.out, "roofline");
  EXPECT_HAS(table.out, "1 row not judged");
  EXPECT_EQ(run("validate --measurements /nonexistent.csv --device h100_sxm").code, 3);
}

TEST(CommandLine, ValidatePassesFieldsThroughAndKeepsShortRows) {
  const fs::path file = scratch() / "odd.csv";
  std::ofstream(file) << "op,dtype,shape,measured_us,note\ngemm,bf16,m=64 n=64 k=64 batch=1 layout=nt,2,\"two\nlines\tand a tab\"\ngemm,bf16\n";
  const RunResult csv = run("validate --measurements '" + file.string() + "' --device h100_sxm --format csv");
  EXPECT_EQ(csv.code, 0) << csv.err;
  EXPECT_HAS(csv.out, "\"two\nlines\tand a tab\"");
  EXPECT_HAS(csv.out, "\"the row has 2 fields, the header 5\"");
}

TEST(CommandLine, ExplainPrintsTheTerms) {
  const RunResult result = run("explain gemm m=4096 n=4096 k=4096 --device h100_sxm");
  EXPECT_EQ(result.code, 0) << result.err;
  for (const char* word : {"compute", "dram", "latency", "launch", "bound by", "attainable", "tile"}) EXPECT_HAS(result.out, word);
  EXPECT_EQ(run("explain gemm m=4096 n=4096 --device h100_sxm").code, 2);
  EXPECT_EQ(run("explain gemm m=1e6 n=4k k=4096 --dtype fp16 --device h100_sxm").code, 0);
  EXPECT_EQ(run("explain gemm m=64 n=64 k=64 dtype=fp8_e4m3 --device a100_sxm_80gb").code, 4);
}

}  // namespace
