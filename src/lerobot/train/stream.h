// A streamed dataset of a configuration: where it lies, its index, and the loader that reads it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lerobot/config/train_config.h"
#include "lerobot/dataset/metadata.h"
#include "lerobot/streaming/dataset_place.h"
#include "lerobot/streaming/stream_loader.h"
#include "lerobot/streaming/streaming_state.h"
#include "lerobot/train/data_share.h"

namespace lerobot::train {

/// What of a streamed run is needed to load batches and to record where it stands.
struct StreamRun {
  streaming::StreamSource source;
  bool remote = false;  ///< its files are not on this machine
  streaming::StreamingState state;
  streaming::VirtualTopology topology;
};

/// How many connections a stream has to its server.
std::size_t stream_connections(const config::TrainConfig& config);

/// Opens the selected episodes: finds or builds the index of their videos, which may take long and
/// reports its progress. The run of `world` processes stands at its beginning. Throws Error as
/// streaming/ does.
StreamRun open_stream(const config::TrainConfig& config, streaming::DatasetPlace& place,
                      std::shared_ptr<const dataset::DatasetMetadata> metadata, std::int64_t world);

/// Puts a run of `world` processes where it was after `steps` steps of the recorded one, and logs
/// what that means. `recorded` is null when the checkpoint holds no state of a stream: it then was
/// one of `dp_world_size` processes with `batch_size` samples each.
void resume_stream(StreamRun& run, const config::TrainConfig& config,
                   const streaming::StreamingState* recorded, std::int64_t steps,
                   std::int64_t dp_world_size, std::int64_t batch_size, std::int64_t world);

/// The loader of a process, beginning with loop step `step`.
std::unique_ptr<streaming::StreamLoader> make_stream_loader(const config::TrainConfig& config,
                                                            const StreamRun& run, DataShare share,
                                                            std::int64_t step, bool pin_memory);

/// Every --dataset.streaming_* option with what it means for a worker, one sentence a line.
std::vector<std::string> stream_panel(const config::TrainConfig& config, const StreamRun& run,
                                      DataShare share);

}  // namespace lerobot::train
