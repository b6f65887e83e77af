#include "lerobot/dataset/map_dataset.h"

#include <algorithm>
#include <utility>

#include "lerobot/base/error.h"
#include "lerobot/dataset/frame_table.h"
#include "lerobot/dataset/validation.h"
#include "lerobot/video/decoder_cache.h"
#include "lerobot/video/video_file.h"

namespace lerobot::dataset {
namespace {

/// Videos kept mapped and indexed at once. Far below the kernel's limit of 65,530 mappings, and so
/// many that only datasets of tiny files ever reopen one.
constexpr std::size_t kOpenVideos = 4096;

}  // namespace

struct MapDataset::Content {
  Content(std::shared_ptr<const DatasetMetadata> opened, const MapDatasetOptions& options)
      : metadata(std::move(opened)), layout(metadata, options.windows, options.tolerance_s) {}

  std::shared_ptr<const DatasetMetadata> metadata;
  BatchLayout layout;
  std::vector<std::int64_t> episodes;
  FrameTable table;
  mutable video::VideoFileCache files{kOpenVideos};
};

MapDataset::MapDataset() = default;
MapDataset::~MapDataset() = default;

std::shared_ptr<const MapDataset> MapDataset::open(std::shared_ptr<const DatasetMetadata> metadata,
                                                   MapDatasetOptions options) {
  std::shared_ptr<MapDataset> dataset(new MapDataset());
  dataset->content_ = std::make_unique<Content>(std::move(metadata), options);
  Content& content = *dataset->content_;
  const std::int64_t total = content.metadata->episodes().size();
  if (options.episodes) {
    content.episodes = *options.episodes;
    std::sort(content.episodes.begin(), content.episodes.end());
    content.episodes.erase(std::unique(content.episodes.begin(), content.episodes.end()),
                           content.episodes.end());
    if (content.episodes.empty()) fail("no episode is selected");
    if (content.episodes.front() < 0 || content.episodes.back() >= total)
      fail("episode {} is selected, but the dataset has episodes 0 to {}",
           content.episodes.front() < 0 ? content.episodes.front() : content.episodes.back(),
           total - 1);
  } else {
    for (std::int64_t episode = 0; episode < total; ++episode) content.episodes.push_back(episode);
  }
  check_files_present(*content.metadata, content.episodes);
  content.table = FrameTable::load(*content.metadata, content.episodes);
  check_videos(*content.metadata, content.table, options.tolerance_s, content.files);
  return dataset;
}

const DatasetMetadata& MapDataset::metadata() const { return *content_->metadata; }
std::int64_t MapDataset::size() const { return content_->table.size(); }
std::span<const std::int64_t> MapDataset::episodes() const { return content_->episodes; }

std::vector<std::int64_t> MapDataset::first_rows() const {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(content_->metadata->episodes().size()),
                                 -1);
  for (const auto& run : content_->table.runs())
    rows[static_cast<std::size_t>(run.episode)] = run.position;
  return rows;
}

std::span<const std::int64_t> MapDataset::task_index() const {
  return content_->table.column("task_index").integers();
}

const BatchLayout& MapDataset::layout() const { return content_->layout; }

void MapDataset::fill_values(std::int64_t position, std::int64_t row, BatchBuffer& buffer) const {
  const FrameTable::Run& run = content_->table.run_of(position);
  content_->layout.fill_values(content_->table, run, run.frame_of(position), row, buffer);
}

void MapDataset::fill_camera(std::size_t camera, std::int64_t position, std::int64_t row,
                             BatchBuffer& buffer, video::DecoderCache& decoders) const {
  const Content& content = *content_;
  const FrameTable::Run& run = content.table.run_of(position);
  const std::int64_t frame = run.frame_of(position);
  std::shared_ptr<const video::VideoFile> file;
  if (const auto video = content.layout.video_of_camera(camera)) {
    const auto path = content.metadata->video_file(run.episode, *video);
    try {
      file = content.files.open(path);
    } catch (const Error& error) {
      fail("episode {}, camera {}, frame {}: {}", run.episode, content.layout.camera_name(camera),
           frame - run.from, error.what());
    }
  }
  content.layout.fill_camera(camera, content.table, run, frame, file, row, buffer, decoders);
}

}  // namespace lerobot::dataset
