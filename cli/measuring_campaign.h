// The campaign that `calibrate` runs on the GPU present: a fair sample of every kind of kernel within a time.
#pragma once

#include <string>

#include "cli/measuring.h"

namespace rooftile {

// Seconds of wall time that measuring takes; fitting comes on top.
constexpr double kCampaign_s = 240, kQuickCampaign_s = 40;

struct CampaignSummary {
  std::size_t measured = 0, without = 0, there_before = 0;
  double wall_s = 0;
  bool interrupted = false, device_lost = false;
};

// Measures part after part; time that one does not need goes to those behind it. Every measurement is added to the log; calls that the log holds already are skipped.
CampaignSummary run_campaign(Runner& runner, double seconds, MeasurementLog& log);

}  // namespace rooftile
