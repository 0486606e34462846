#include "cli/validate_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "cli/measuring.h"
#include "cli/session.h"
#include "report/quantity.h"

namespace rooftile {
namespace {

Result<Request> request_of(const ValidateModelArguments& arguments, const Model& model) {
  Request request;
  for (const auto& [name, value] : model.spec.run) {
    if (name == "format") continue;  // an option of the output of `estimate`
    const OptionRow* row = find_option(name);
    const bool given = row != nullptr && std::any_of(arguments.settings.begin(), arguments.settings.end(), [&](const Setting& s) { return s.first == row->name; });
    if (given) continue;
    if (const auto applied = apply(request, name, value); !applied) return tl::unexpected<Error>(applied.error());
  }
  for (const auto& [name, value] : arguments.settings)
    if (const auto applied = apply(request, name, value); !applied) return tl::unexpected<Error>(applied.error());
  // Kernels are measured one by one from the burst clock, so that is what they are compared with, in training too.
  if (request.options.clocks == ClockState::automatic) request.options.clocks = ClockState::burst;
  return request;
}

bool refused(const OpRow& row, const Runner& runner, const RunOptions& run) {
  return row.count > 0 && row.phase != StepPhase::communication && row.call.kernel != KernelClass::collective && !runner.refusal(row.call, run).empty();
}

std::size_t refused_rows(const Prediction& prediction, const Runner& runner, const RunOptions& run) {
  return static_cast<std::size_t>(std::count_if(prediction.rows.begin(), prediction.rows.end(), [&](const OpRow& row) { return refused(row, runner, run); }));
}

// The prediction with an attention kernel that can be measured. What a device's libraries would run by default may be FlashAttention, which is no library of this program; where
// the user names no kernel, cuDNN's is predicted and measured then, or the unfused one where there is no cuDNN.
Result<Prediction> predict_measurable(Session& session, const Model& model, const Request& request, const Runner& runner) {
  auto prediction = session.predict(model, request);
  if (!prediction || request.attention_given) return prediction;
  RunOptions run;
  run.own_for_torch = true;
  run.clocks = prediction->options.clocks;
  std::size_t least = refused_rows(*prediction, runner, run);
  for (const AttentionKernel kernel : {AttentionKernel::cudnn, AttentionKernel::standard}) {
    const bool attention_refused =
        std::any_of(prediction->rows.begin(), prediction->rows.end(), [&](const OpRow& row) { return row.call.kernel == KernelClass::attention && refused(row, runner, run); });
    if (!attention_refused) break;
    Request other = request;
    other.options.attention = kernel;
    auto with_other = session.predict(model, other);
    if (!with_other) continue;
    const std::size_t still = refused_rows(*with_other, runner, run);
    if (still >= least) continue;
    least = still;
    with_other->warnings.push_back({"attention_replaced", fmt::format("the device's default attention kernel cannot be measured here: {} is predicted and measured (--attention "
                                                                      "names another)",
                                                                      kernel == AttentionKernel::cudnn ? "cuDNN's" : "the unfused one")});
    prediction = std::move(with_other);
  }
  return prediction;
}

// Measurements in the order of the plan, those of the file that is gone on with included.
std::vector<Measurement> measure_plan(Runner& runner, const std::vector<PredictedCall>& plan, const RunOptions& run, double budget_s, MeasurementLog& log, bool& whole) {
  std::vector<KernelCall> calls;
  for (const PredictedCall& planned : plan) calls.push_back(planned.call);
  std::unordered_map<std::string, Measurement> known;
  const auto key = [&](const KernelCall& call) { return measurement_key(call, run.clocks, run.protocol()); };
  std::set<std::string> done;
  const std::unique_ptr<Runner> before = make_recorded_runner(log.before());
  for (const KernelCall& call : calls) {
    Measurement m = before->measure(call, run);
    if (!m.ok()) continue;
    done.insert(key(call));
    known[key(call)] = std::move(m);
  }
  MeasuringResult result = measure_with_progress(runner, calls, run, budget_s, "kernels", log, done);
  whole = result.end == EndOf::list;
  // Keys are those of what ran, which is our kernel where PyTorch's was asked for.
  for (Measurement& m : result.measurements) {
    std::string name = key(m.call);
    known.insert_or_assign(std::move(name), std::move(m));
  }
  std::vector<Measurement> measured;
  for (const KernelCall& call : calls) {
    KernelCall ours = call;
    ours.impl = Impl::rooftile;
    auto found = known.find(key(call));
    if (found == known.end()) found = known.find(key(ours));
    if (found != known.end()) {
      measured.push_back(found->second);
    } else {
      Measurement missing;
      missing.reason = result.end == EndOf::interrupt ? "interrupted before" : result.end == EndOf::budget ? "the time was spent before" : "not measured";
      measured.push_back(std::move(missing));
    }
  }
  return measured;
}

}  // namespace

Result<int> validate_model(const ValidateModelArguments& arguments) {
  Session session;
  const auto model = session.model(arguments.model);
  if (!model) return tl::unexpected<Error>(model.error());
  auto request = request_of(arguments, **model);
  if (!request) return tl::unexpected<Error>(request.error());
  auto runner = open_runner(arguments.replay);
  if (!runner) return tl::unexpected<Error>(runner.error());
  const GpuFacts gpu = (*runner)->facts();
  if (request->device.empty()) {
    auto device = device_of_gpu(session, gpu);
    if (!device) return tl::unexpected<Error>(device.error());
    request->device = std::move(*device);
  }
  const auto prediction = predict_measurable(session, **model, *request, **runner);
  if (!prediction) return tl::unexpected<Error>(prediction.error());
  auto log = MeasurementLog::open(arguments.save, arguments.resume);
  if (!log) return tl::unexpected<Error>(log.error());

  ModelValidation validation;
  validation.prediction = &*prediction;
  validation.measured_on = (*runner)->description();
  validation.clocks = name_of(prediction->options.clocks);
  // Communication takes other GPUs; it stays out.
  std::vector<OpRow> rows;
  for (const OpRow& row : prediction->rows)
    if (row.phase != StepPhase::communication && row.call.kernel != KernelClass::collective) rows.push_back(row);
  const std::vector<PredictedCall> plan = predicted_calls(rows);
  for (const PredictedCall& planned : plan)
    for (const OpRow& row : rows)
      if (row.count > 0 && row.call == planned.call) {
        validation.names.push_back(row.name);
        break;
      }
  RunOptions run;
  run.clocks = prediction->options.clocks;
  run.own_for_torch = true;
  catch_interrupts();
  validation.measured = measure_plan(**runner, plan, run, arguments.budget_s, *log, validation.whole);
  std::vector<Measurement> by_plan = validation.measured;
  for (std::size_t i = 0; i < plan.size(); ++i) {
    validation.stands_in.push_back(by_plan[i].ok() && by_plan[i].call.impl != plan[i].call.impl);
    by_plan[i].call = plan[i].call;
  }
  validation.comparison = compare(plan, by_plan);
  validation.step.predicted_step_s = prediction->totals.step_time_s;
  validation.step.executed_predicted_s = validation.comparison.predicted_s;
  if (interrupted())
    validation.step.executed.reason = "interrupted before";
  else
    validation.step.executed = (*runner)->measure_step(blocks_of(rows), run, validation.step.left_out);

  auto output = Output::open(arguments.output);
  if (!output) return tl::unexpected<Error>(output.error());
  output->write(render_validation(validation, arguments.format, output->width(), output->color(arguments.color)));
  if (const auto finished = output->finish(); !finished) return tl::unexpected<Error>(finished.error());
  return interrupted() ? static_cast<int>(ErrorCode::interrupted) : 0;
}

}  // namespace rooftile
