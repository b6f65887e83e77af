// Where in the data a resumed run goes on.
#pragma once

#include <filesystem>

#include "lerobot/checkpoint/training_state.h"
#include "lerobot/train/session.h"

namespace lerobot::train {

/// Sets session.start to the place after the recorded steps, in a dataset in memory or a stream. A
/// step of the loop covers the same samples as in the recorded run as long as all processes
/// together take as many of them, however many processes these are; otherwise a warning says that
/// only epoch and offset are right.
void restore_position(Session& session, const std::filesystem::path& state_folder,
                      const checkpoint::TrainingStep& recorded);

}  // namespace lerobot::train
