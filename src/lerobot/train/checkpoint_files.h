// What of a session goes into a checkpoint, and back.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "lerobot/checkpoint/background_saver.h"
#include "lerobot/train/session.h"

namespace lerobot::train {

/// The large sets of tensors that checkpoint_files() will copy, for BackgroundSaver::prepare(). To
/// be asked for after the first update, when the optimizer has its state.
std::vector<std::pair<std::string, serialization::NamedTensors>> checkpoint_tensors(
    Session& session);

/// TrainingModel::accumulated_gradients() when `step` is in the middle of an update. Collective.
std::vector<distributed::LocalTensor> accumulated_gradients(Session& session, std::int64_t step);

/// The files that this rank writes of a checkpoint after `step`: all of them on rank 0, and on the
/// other ranks of a sharded run those that the ranks make together. Copies everything that training
/// will change, so that the files can be written while it goes on.
std::vector<checkpoint::FileEntry> checkpoint_files(
    Session& session, std::int64_t step,
    const std::vector<distributed::LocalTensor>& accumulated_gradients,
    checkpoint::HostCopies& copies);

/// load_weights() of a checkpoint, which must be complete.
void restore_weights(Session& session, const std::filesystem::path& checkpoint);

/// Restores step, random states, optimizer, scheduler, loss scale and EMA from a checkpoint's
/// training_state/, and the place in the data order. Every rank reads what it holds. Warns about
/// every setting that differs from the recorded one. Throws Error naming the file when something
/// does not fit.
void restore_training_state(Session& session, const std::filesystem::path& checkpoint);

}  // namespace lerobot::train
