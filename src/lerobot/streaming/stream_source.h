// What a stream reads: the opened parts of one dataset.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "lerobot/dataset/batch_layout.h"
#include "lerobot/dataset/metadata.h"
#include "lerobot/streaming/episode_reader.h"
#include "lerobot/streaming/episode_shards.h"
#include "lerobot/streaming/payload.h"

namespace lerobot::streaming {

struct StreamSource {
  std::shared_ptr<const dataset::DatasetMetadata> metadata;
  std::shared_ptr<const dataset::BatchLayout> layout;
  std::shared_ptr<EpisodeReader> reader;
  /// Where the reader reads; a stopped loader cancels it.
  std::shared_ptr<Payload> payload;
  /// The selected episodes of the whole dataset, ascending.
  std::vector<std::int64_t> episodes;

  /// `episodes` with their lengths.
  EpisodeList episode_list() const;
};

}  // namespace lerobot::streaming
