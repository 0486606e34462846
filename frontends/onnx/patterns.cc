#include "frontends/onnx/patterns.h"

#include <algorithm>
#include <cmath>

namespace rooftile::onnx {

Patterns::Patterns(Trace& all)
    : trace(all), makers_(all.tensors.size(), kNone), first_user_(all.tensors.size() + 2, 0), first_work_(all.steps.size() + 1, 0), given_out_(all.tensors.size(), false) {
  for (std::uint32_t step = 0; step < trace.steps.size(); ++step) {
    for (const std::uint32_t tensor : trace.outputs_of(trace.steps[step])) {
      if (tensor != 0) makers_[tensor] = step;
    }
    if (trace.steps[step].free) continue;  // asks for a size only
    for (const std::uint32_t tensor : trace.inputs_of(trace.steps[step])) ++first_user_[tensor + 2];
  }
  for (std::size_t i = 2; i < first_user_.size(); ++i) first_user_[i] += first_user_[i - 1];
  users_.resize(first_user_.back());
  for (std::uint32_t step = 0; step < trace.steps.size(); ++step) {
    if (trace.steps[step].free) continue;
    for (const std::uint32_t tensor : trace.inputs_of(trace.steps[step])) users_[first_user_[tensor + 1]++] = step;
  }
  for (const std::uint32_t tensor : trace.outputs) given_out_[tensor] = true;
  for (const Work& work : trace.works) ++first_work_[work.step + 1];
  for (std::size_t i = 1; i < first_work_.size(); ++i) first_work_[i] += first_work_[i - 1];
}

std::uint32_t Patterns::only_user(std::uint32_t tensor) const {
  const auto list = users(tensor);
  if (list.empty() || given_out_[tensor]) return kNone;
  for (const std::uint32_t user : list) {
    if (user != list.front()) return kNone;
  }
  return list.front();
}

std::uint32_t Patterns::other(std::uint32_t step, std::uint32_t known) const { return input(step, 0) == known ? input(step, 1) : input(step, 0); }

std::uint32_t Patterns::moving(std::uint32_t step) const {
  const std::uint32_t a = input(step, 0), b = input(step, 1);
  if (fixed(a) == fixed(b)) return 0;
  return fixed(a) ? b : a;
}

std::int64_t Patterns::elements(std::uint32_t tensor) const {
  if (tensor == 0 || !trace.tensors[tensor].ranked) return -1;
  std::int64_t product = 1;
  for (const Dim dim : trace.tensors[tensor].shape) product *= dim.value;  // checked when the tensor was made
  return product;
}

double Patterns::number(std::uint32_t tensor) const {
  const Value& value = trace.tensors[tensor].value;
  return value != nullptr && value->size() == 1 && value->front().is_constant() ? value->front().number() : NAN;
}

void Patterns::kill(std::uint32_t step) {
  for (Work& work : works(step)) work.alive = false;
}

Work* Patterns::become(std::uint32_t step, OpKind kind, OpAttrs attrs, std::vector<std::uint32_t> inputs, std::vector<std::uint32_t> outputs) {
  const auto rows = works(step);
  if (rows.empty()) return nullptr;
  kill(step);
  Work& row = rows.front();
  row.alive = true;
  row.kind = kind;
  row.attrs = std::move(attrs);
  row.part = {};
  row.inputs = std::move(inputs);
  row.outputs = std::move(outputs);
  row.weight = 0;
  return &row;
}

bool Patterns::region(std::uint32_t end, std::uint32_t anchor, bool (*allowed)(std::string_view), std::size_t limit, Region& out) const {
  out = {};
  std::vector<std::uint32_t> frontier;  // computed tensors that the region needs
  const auto need = [&](std::uint32_t step) {
    for (const std::uint32_t tensor : trace.inputs_of(trace.steps[step])) {
      if (!fixed(tensor) && std::find(frontier.begin(), frontier.end(), tensor) == frontier.end()) frontier.push_back(tensor);
    }
  };
  out.steps.push_back(end);
  need(end);
  bool anchored = end == anchor;
  while (frontier.size() > 1 || (!anchored && !frontier.empty())) {
    // The latest made first: then no tensor of the region is met again later.
    auto latest = frontier.end();
    for (auto at = frontier.begin(); at != frontier.end(); ++at) {
      if (maker(*at) != kNone && (latest == frontier.end() || maker(*at) > maker(*latest))) latest = at;
    }
    if (latest == frontier.end()) return false;
    const std::uint32_t step = maker(*latest);
    frontier.erase(latest);
    if (!standard(step) || !allowed(op(step)) || trace.steps[step].repeat != trace.steps[end].repeat || out.steps.size() >= limit) return false;
    out.steps.push_back(step);
    anchored = anchored || step == anchor;
    need(step);
  }
  if (frontier.empty()) return false;
  out.source = frontier.front();
  for (std::size_t i = 1; i < out.steps.size(); ++i) {
    const std::uint32_t tensor = output(out.steps[i]);
    if (given_out_[tensor]) return false;
    for (const std::uint32_t user : users(tensor)) {
      if (!trace.steps[user].free && std::find(out.steps.begin(), out.steps.end(), user) == out.steps.end()) return false;
    }
  }
  return true;
}

}  // namespace rooftile::onnx
