// The measured whole steps of hardware/measurements/h200_sxm-steps*.csv and their predictions, as the command line makes them.
#pragma once

#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "estimator/passes/predict.h"
#include "frontends/expand.h"
#include "frontends/hardware_files.h"
#include "frontends/model_files.h"

namespace rooftile {

using TableRow = std::map<std::string, std::string>;

// A table with quoted fields, as rows of column name -> field; lines of another number of fields are left out.
inline std::vector<TableRow> read_table(const std::string& text) {
  std::vector<std::vector<std::string>> lines(1, std::vector<std::string>(1));
  bool quoted = false;
  for (const char c : text) {
    if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      lines.back().emplace_back();
    } else if (c == '\n' && !quoted) {
      lines.emplace_back(1);
    } else if (c != '\r') {
      lines.back().back() += c;
    }
  }
  std::vector<TableRow> rows;
  for (std::size_t i = 1; i < lines.size(); ++i) {
    if (lines[i].size() != lines[0].size()) continue;
    rows.emplace_back();
    for (std::size_t c = 0; c < lines[0].size(); ++c) rows.back()[lines[0][c]] = lines[i][c];
  }
  return rows;
}

inline std::vector<TableRow> read_table_file(const std::string& file) { return read_table(read_text(std::string(ROOFTILE_SOURCE_DIR) + "/" + file).value()); }

// Whether stored figures are to be written anew instead of compared (tests/accuracy/rewrite.sh).
inline bool rewriting() { return std::getenv("ROOFTILE_REWRITE") != nullptr; }

struct StepRun {
  TableRow row;
  std::size_t list = 0;   // 0: looked at while the model was built; 1: read after a first scoring; 2: for judging alone
  double measured_s = 0;  // of the session in which it was steadiest: other guests slow the host of the measured machine down for seconds at a time
  const std::string& operator[](const std::string& column) const { return row.at(column); }
  bool timed() const { return row.at("reason").empty(); }  // else only its memory stands
  bool compiled() const { return row.at("compiled") == "True"; }
  double step_s() const { return measured_s; }

  // What a run exercises: "train, pure bf16", "decode", "compiled" ...; bench/steps.py says the same.
  std::string group() const {
    if (compiled()) return "compiled";
    const std::string& phase = row.at("phase");
    const bool few = row.at("seq") == "16";
    if (phase != "train") return few && phase == "forward" ? "16 tokens" : phase;
    if (few) return "16 tokens";
    if (row.at("attention") == "eager") return "train, standard attention";
    if (row.at("recompute") == "True") return "train, recompute";
    return row.at("precision") == "mixed" ? "train, autocast" : "train, pure bf16";
  }
  std::string kind() const { return list == 2 ? "unseen" : list == 1 ? "second" : row.at("fit") == "True" ? "fit" : "test"; }
};

class StepRuns {
 public:
  StepRuns()
      : machine_(load_machine(data_, "h200_sxm", "", "").value()),
        timer_(machine_, Mode::calibrated, step_clocks(Options{})),
        eager_(*read_runtime(*data_.find(DataKind::runtime, "torch-eager"))),
        compiled_(*read_runtime(*data_.find(DataKind::runtime, "torch-compile"))) {
    constexpr const char* kLists[] = {"", "-more", "-later"};
    const auto unsteady = [](const TableRow& row) { return std::stod(row.at("spread_ms")) / std::stod(row.at("step_ms")); };
    std::map<std::string, TableRow> again;  // the steadiest of further sessions
    for (TableRow& row : read_table_file("hardware/measurements/h200_sxm-steps-again.csv")) {
      const auto [place, first] = again.try_emplace(row.at("id"), row);
      if (!first && unsteady(row) < unsteady(place->second)) place->second = std::move(row);
    }
    for (std::size_t list = 0; list < std::size(kLists); ++list) {
      const std::string name = std::string("hardware/measurements/h200_sxm-steps") + kLists[list];
      configs_[list] = nlohmann::json::parse(read_text(std::string(ROOFTILE_SOURCE_DIR) + "/" + name + "-models.json").value());
      for (TableRow& row : read_table_file(name + ".csv")) {
        if (row.at("step_ms").empty()) continue;
        StepRun run{std::move(row), list};
        const auto other = again.find(run["id"]);
        const TableRow& steady = other != again.end() && unsteady(other->second) < unsteady(run.row) ? other->second : run.row;
        run.measured_s = std::stod(steady.at("step_ms")) * 1e-3;
        runs_.push_back(std::move(run));
      }
    }
  }

  const std::vector<StepRun>& runs() const { return runs_; }
  const StepRun* find(const std::string& id) const {
    for (const StepRun& run : runs_) {
      if (run.list == 0 && run["id"] == id) return &run;
    }
    return nullptr;
  }

  Result<Prediction> predict(const StepRun& run) {
    const std::string& name = run["model"];
    const auto spec = read_hf_config(configs_[run.list].at(name).dump(), name);
    if (!spec) return tl::unexpected<Error>(spec.error());
    Options options;
    const std::string& phase = run["phase"];
    options.phase = phase == "train" ? Phase::train : phase == "forward" ? Phase::forward : phase == "prefill" ? Phase::prefill : Phase::decode;
    options.mbs = std::stoll(run["batch"]);
    options.seq = spec->kind == ModelKind::vision ? spec->max_positions : spec->kind == ModelKind::speech ? 448 : std::stoll(run["seq"]);
    options.context = std::stoll(run["context"]);
    options.precision = run["precision"] == "mixed" ? Precision::mixed : Precision::pure;
    options.attention = run["attention"] == "eager" ? AttentionKernel::standard : AttentionKernel::fastest;
    options.recompute = run["recompute"] == "True" ? Recompute::full : Recompute::none;
    const auto graph = expand(*spec, options);
    if (!graph) return tl::unexpected<Error>(graph.error());
    return rooftile::predict(*graph, options, machine_, run.compiled() ? compiled_ : eager_, timer_);
  }

 private:
  DataPath data_{{ROOFTILE_SOURCE_DIR}};
  Machine machine_;
  KernelTimer timer_;
  Runtime eager_, compiled_;
  nlohmann::json configs_[3];
  std::vector<StepRun> runs_;
};

}  // namespace rooftile
