// The frames around a sample that a policy asks for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lerobot/config/policy_config.h"
#include "lerobot/dataset/dataset_info.h"

namespace lerobot::dataset {

/// The window of one feature: frame offsets from the sample's frame.
struct Window {
  std::string key;
  std::vector<std::int64_t> deltas;
};

/// Windows of a policy's delta indices over a dataset's features, in the order of the features:
/// next.reward, action, observation.image*, other observation.* (LeRobot's
/// resolve_delta_timestamps). Features without offsets get none. Deltas are whole frames, so
/// LeRobot's check that a time falls on a frame holds by construction. Throws Error for a window on
/// a string feature.
std::vector<Window> resolve_windows(const DatasetInfo& info, const config::DeltaIndices& deltas);

/// One step of a window: the frame to read, and whether the wanted one lies outside the episode.
struct WindowStep {
  std::int64_t frame = 0;
  bool is_pad = false;
};

/// The step `delta` frames from `frame` in an episode that covers [from, to): clamped to it.
inline WindowStep window_step(std::int64_t frame, std::int64_t delta, std::int64_t from,
                              std::int64_t to) {
  const std::int64_t wanted = frame + delta;
  if (wanted < from) return {from, true};
  if (wanted >= to) return {to - 1, true};
  return {wanted, false};
}

}  // namespace lerobot::dataset
