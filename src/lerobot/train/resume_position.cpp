#include "lerobot/train/resume_position.h"

#include <optional>
#include <string>

#include "lerobot/base/log.h"

namespace lerobot::train {
namespace {

namespace fs = std::filesystem;

/// The place in a stream after the recorded steps.
void restore_stream_position(Session& session, const fs::path& state_folder,
                             const checkpoint::TrainingStep& recorded) {
  const fs::path file = state_folder / streaming::kStreamingStateFile;
  std::optional<streaming::StreamingState> state;
  if (fs::exists(file)) state = streaming::read_streaming_state(file);
  resume_stream(*session.datasets.stream, session.config, state ? &*state : nullptr, recorded.step,
                recorded.dp_world_size.value_or(1),
                recorded.batch_size.value_or(session.config.batch_size), session.world->size());
  log::info("Resuming data order after {} batches", recorded.step);
}

/// "4 samples a step (batch_size=2 on 2 processes)"
std::string samples_a_step(std::int64_t batch_size, std::int64_t processes) {
  return fmt::format("{} samples a step (batch_size={} on {} process{})", batch_size * processes,
                     batch_size, processes, processes == 1 ? "" : "es");
}

/// The place in the order of a dataset in memory.
void restore_map_position(Session& session, const fs::path& state_folder,
                          const checkpoint::TrainingStep& recorded) {
  if (fs::exists(state_folder / streaming::kStreamingStateFile))
    log::warning(
        "The checkpoint's run was streamed, this one is not: the data order goes on at the right "
        "epoch and offset, but with other samples. --dataset.streaming=true goes on exactly.");
  const std::int64_t old_world = recorded.dp_world_size.value_or(1);
  const std::int64_t old_batch = recorded.batch_size.value_or(session.config.batch_size);
  const std::int64_t world = session.world->size(), batch = session.config.batch_size;
  dataset::EpochPosition& position = session.start.samples;
  position = dataset::position_after(
      recorded.step, make_sampler(session.config, session.datasets).size(), old_batch, old_world);
  log::info("Resuming data order at epoch {}, sample {}", position.epoch, position.sample);
  if (old_batch * old_world == batch * world) {
    session.start.even_batches = old_world > 1 || recorded.even_batches;
    if (world != old_world)
      log::info(
          "The checkpoint was written with {}, this run has {}: every step goes on with the same "
          "samples",
          samples_a_step(old_batch, old_world), samples_a_step(batch, world));
    return;
  }
  log::warning(
      "Resuming with {}, the checkpoint was written with {}. The data order goes on at the right "
      "epoch and offset, but steps cover other samples than before.",
      samples_a_step(batch, world), samples_a_step(old_batch, old_world));
}

}  // namespace

void restore_position(Session& session, const fs::path& state_folder,
                      const checkpoint::TrainingStep& recorded) {
  session.start.step = recorded.step;
  if (session.datasets.stream)
    restore_stream_position(session, state_folder, recorded);
  else
    restore_map_position(session, state_folder, recorded);
}

}  // namespace lerobot::train
