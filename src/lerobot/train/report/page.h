// The whole of report.html.
#pragma once

#include <string>

#include "lerobot/train/report/run_data.h"

namespace lerobot::train {

/// A page that is complete without a network, and readable without scripts but for the curves.
std::string report_page(const RunData& data);

}  // namespace lerobot::train
