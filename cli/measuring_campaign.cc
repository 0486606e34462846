#include "cli/measuring_campaign.h"

#include <array>
#include <chrono>

#include "validate/campaign.h"

namespace rooftile {
namespace {

struct Share {
  CampaignPart part;
  double until;  // share of the whole time at which it must be over
};
// What fixes the most constants comes first and never lacks time; products are the largest part of a step and of the model.
constexpr std::array<Share, 7> kShares = {{{CampaignPart::ceilings, 0.15},
                                           {CampaignPart::gemm, 0.50},
                                           {CampaignPart::attention, 0.65},
                                           {CampaignPart::rows, 0.74},
                                           {CampaignPart::pointwise, 0.82},
                                           {CampaignPart::warm, 0.86},
                                           {CampaignPart::sustained, 1.0}}};

}  // namespace

CampaignSummary run_campaign(Runner& runner, double seconds, MeasurementLog& log) {
  const auto start = std::chrono::steady_clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  const std::set<std::string> done = keys_of(log.before());
  CampaignSummary summary;
  for (const Share& share : kShares) {
    RunOptions run;
    if (share.part == CampaignPart::sustained) run.clocks = ClockState::sustained;
    if (share.part == CampaignPart::warm) run.cold = false;
    const double left_s = share.until * seconds - elapsed();
    if (left_s <= 0) continue;
    const MeasuringResult result = measure_with_progress(runner, campaign(share.part), run, left_s, name_of(share.part), log, done);
    summary.there_before += result.skipped;
    for (const Measurement& m : result.measurements) ++(m.ok() ? summary.measured : summary.without);
    summary.interrupted = result.end == EndOf::interrupt;
    // A part of which nothing runs (no library, or not in the recording) is not the end of the others.
    summary.device_lost = result.end == EndOf::device && !result.measurements.empty() && result.measurements.back().device_lost;
    if (summary.interrupted || summary.device_lost) break;
  }
  summary.wall_s = elapsed();
  return summary;
}

}  // namespace rooftile
