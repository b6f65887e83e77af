// The loop: batches in, updates, log lines, held-out losses and checkpoints out.
#pragma once

#include "lerobot/train/session.h"

namespace lerobot::train {

/// Trains from session.start.step to config.steps, together with the world's other ranks. Returns
/// the exit code: 0, or 130 and 143 when SIGINT or SIGTERM on any rank ended the run early (after
/// the step under way and a checkpoint). Throws Error; checkpoints that were complete by then stay
/// so.
int run_training(Session& session);

}  // namespace lerobot::train
