#include "lerobot/dataset/dataset_files.h"

#include "lerobot/base/error.h"

namespace lerobot::dataset {
namespace {

/// A dataset whose version says 3.0 while its files are those of 2.1.
void check_not_half_converted(const std::filesystem::path& meta, std::string_view version) {
  namespace fs = std::filesystem;
  if (fs::exists(meta / "episodes") || !fs::exists(meta / "episodes.jsonl")) return;
  fail(
      "{}: info.json says version {}, but the files are those of v2.1 (episodes.jsonl is there, "
      "episodes/ is not); v3.0 is needed: convert the dataset with LeRobot's "
      "lerobot.scripts.convert_dataset_v21_to_v30",
      meta.string(), version);
}

}  // namespace

DatasetFiles DatasetFiles::open(const std::filesystem::path& root, const std::string& repo_id) {
  if (!std::filesystem::is_directory(root))
    fail("dataset {}: {} is not a directory; check the path of the dataset", repo_id,
         root.string());
  const auto meta = root / "meta";
  if (!std::filesystem::exists(meta / "info.json"))
    fail("dataset {}: {} is missing, so this is not a LeRobotDataset; check the path", repo_id,
         (meta / "info.json").string());

  DatasetFiles files;
  files.root_ = root;
  files.repo_id_ = repo_id;
  files.info_ = read_dataset_info(meta / "info.json");
  files.video_keys_ = files.info_.video_keys();
  check_not_half_converted(meta, files.info_.codebase_version);
  if (!std::filesystem::is_directory(meta / "episodes"))
    fail("{}: is missing; fetch the dataset's files again", (meta / "episodes").string());
  files.episodes_ = EpisodeTable::read(meta / "episodes", files.info_);
  return files;
}

std::string DatasetFiles::data_path(std::int64_t episode) const {
  const FileIndex file = episodes_.data_file(episode);
  return info_.data_path.expand(file.chunk, file.file);
}

std::string DatasetFiles::video_path(std::int64_t episode, std::size_t camera) const {
  const FileIndex file = episodes_.video(episode, camera).file;
  return info_.video_path->expand(file.chunk, file.file, video_keys_[camera]);
}

}  // namespace lerobot::dataset
