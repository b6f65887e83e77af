// Where the parts of a LeRobotDataset v3.0 lie: what meta/info.json and meta/episodes say. Knows no
// tensors.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "lerobot/dataset/dataset_info.h"
#include "lerobot/dataset/episodes.h"

namespace lerobot::dataset {

/// A value. Thread-safe to read.
class DatasetFiles {
 public:
  DatasetFiles() = default;
  /// Reads meta/info.json and meta/episodes/ under `root`. Throws Error as the parts do; the
  /// version of the dataset is checked before anything else.
  static DatasetFiles open(const std::filesystem::path& root, const std::string& repo_id);

  const std::filesystem::path& root() const { return root_; }
  const std::string& repo_id() const { return repo_id_; }
  const DatasetInfo& info() const { return info_; }
  const EpisodeTable& episodes() const { return episodes_; }
  /// Names of the video features, in order: what `camera` counts in the video functions.
  const std::vector<std::string>& video_keys() const { return video_keys_; }

  /// Where an episode's rows and frames are, relative to the dataset's root, with '/'.
  std::string data_path(std::int64_t episode) const;
  std::string video_path(std::int64_t episode, std::size_t camera) const;
  /// The same under root().
  std::filesystem::path data_file(std::int64_t episode) const { return root_ / data_path(episode); }
  std::filesystem::path video_file(std::int64_t episode, std::size_t camera) const {
    return root_ / video_path(episode, camera);
  }

 private:
  std::filesystem::path root_;
  std::string repo_id_;
  DatasetInfo info_;
  std::vector<std::string> video_keys_;
  EpisodeTable episodes_;
};

}  // namespace lerobot::dataset
