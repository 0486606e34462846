#include "validate/compare.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <unordered_map>

namespace rooftile {

std::string_view name_of(Verdict verdict) {
  static constexpr std::array<std::string_view, 5> kNames = {"match", "fast", "slow", "ambiguous", "unknown"};
  return kNames[static_cast<std::size_t>(verdict)];
}

Interval predicted_interval(double predicted_s, double error_p90) {
  const double error = std::clamp(error_p90, 0.0, 0.95);
  return {predicted_s * (1 - error), predicted_s * (1 + error)};
}

Interval measured_interval(double measured_s, double spread_s) {
  const double half = std::max(2 * spread_s, kTimerFloor * measured_s);
  return {measured_s - half, measured_s + half};
}

Verdict verdict_of(Interval predicted, Interval measured) {
  if (measured.centre() <= 0 || predicted.centre() <= 0) return Verdict::unknown;
  if (measured.high < predicted.low) return Verdict::fast;
  if (measured.low > predicted.high) return Verdict::slow;
  if (std::abs(measured.centre() - predicted.centre()) <= kMatch * predicted.centre()) return Verdict::match;
  const auto holds = [](Interval interval, double x) { return interval.low <= x && x <= interval.high; };
  return holds(predicted, measured.centre()) && holds(measured, predicted.centre()) ? Verdict::match : Verdict::ambiguous;
}

namespace {

struct Group {
  FamilyErrors errors;
  std::vector<double> ratios;
};

void add(Group& group, const ComparedRow& row) {
  switch (row.verdict) {
    case Verdict::match:
      ++group.errors.match;
      break;
    case Verdict::fast:
      ++group.errors.fast;
      break;
    case Verdict::slow:
      ++group.errors.slow;
      break;
    case Verdict::ambiguous:
      ++group.errors.ambiguous;
      break;
    case Verdict::unknown:
      ++group.errors.unknown;
      return;
  }
  group.ratios.push_back(row.ratio);
  group.errors.predicted_s += row.predicted_s * static_cast<double>(row.count);
  group.errors.measured_s += row.measured_s * static_cast<double>(row.count);
}

}  // namespace

std::vector<PredictedCall> predicted_calls(std::span<const OpRow> rows) {
  std::vector<PredictedCall> calls;
  std::unordered_map<KernelCall, std::size_t, KernelCallHash> place;
  for (const OpRow& row : rows) {
    if (row.count <= 0) continue;
    const auto [found, added] = place.try_emplace(row.call, calls.size());
    if (!added) {
      calls[found->second].count += row.count;
      continue;
    }
    const double whole_s = row.phase == StepPhase::communication ? row.duration_s : row.time_s;
    calls.push_back({row.call, row.count, whole_s / static_cast<double>(row.count), row.error_p90});
  }
  return calls;
}

Comparison compare(const std::vector<PredictedCall>& predicted, const std::vector<Measurement>& measured) {
  std::unordered_map<KernelCall, const Measurement*, KernelCallHash> by_call;
  for (const Measurement& m : measured) by_call[m.call] = &m;
  Comparison out;
  std::vector<Group> groups;
  std::map<std::string, std::size_t> place;
  Group all;
  all.errors.family = "all";
  for (const PredictedCall& p : predicted) {
    ComparedRow row;
    row.call = p.call;
    row.count = p.count;
    row.predicted_s = p.time_s;
    row.family = family_of(p.call);
    const auto found = by_call.find(p.call);
    if (found == by_call.end()) {
      row.reason = "not measured";
    } else if (!found->second->ok()) {
      row.reason = found->second->reason.empty() ? "not measured" : found->second->reason;
    } else {
      row.measured_s = found->second->measured_s;
      row.ratio = row.predicted_s / row.measured_s;
      row.verdict = verdict_of(predicted_interval(p.time_s, p.error_p90), measured_interval(row.measured_s, found->second->spread_s));
    }
    const double count = static_cast<double>(p.count);
    if (row.verdict == Verdict::unknown) {
      out.missing_s += row.predicted_s * count;
    } else {
      out.predicted_s += row.predicted_s * count;
      out.measured_s += row.measured_s * count;
    }
    const auto [at, added] = place.try_emplace(row.family, groups.size());
    if (added) groups.emplace_back().errors.family = row.family;
    add(groups[at->second], row);
    add(all, row);
    out.rows.push_back(std::move(row));
  }
  if (groups.size() > 1) groups.push_back(std::move(all));
  for (Group& group : groups) {
    group.errors.errors = error_statistics(group.ratios);
    out.families.push_back(std::move(group.errors));
  }
  return out;
}

}  // namespace rooftile
