// What the sidecar tests share: a scratch folder with a cache, and the fixture dataset beside the
// sidecar that LeRobot made of it.
#pragma once

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lerobot/base/files.h"
#include "lerobot/dataset/metadata.h"
#include "lerobot/streaming/local_payload.h"
#include "lerobot/streaming/sidecar_builder.h"
#include "lerobot/streaming/sidecar_cache.h"
#include "lerobot/streaming/sidecar_file.h"
#include "tests/serialization/test_files.h"

namespace lerobot::streaming {

class SidecarTest : public TestFolder {
 protected:
  static fs::path toy() { return test_data("datasets/toy_h264"); }
  static fs::path toy_sidecar() { return test_data("sidecars/toy_h264.npz"); }

  /// A copy of a fixture dataset that a test may change.
  fs::path copy_dataset(const fs::path& dataset) const {
    const fs::path root = folder_ / "dataset";
    fs::copy(dataset, root, fs::copy_options::recursive);
    return root;
  }

  /// What a sidecar of the dataset at `root` has to say now.
  static SidecarIdentity identity_of(const fs::path& root, const std::string& revision = "v3.0") {
    LocalPayload payload(root);
    const auto metadata = dataset::DatasetMetadata::open(root, "owner/dataset");
    return expected_identity("owner/dataset", revision, local_data_root(root),
                             video_paths(*metadata), payload, 2);
  }

  SidecarCacheOptions cache_options() const {
    SidecarCacheOptions options;
    options.lerobot_home = folder_ / "home";
    options.lock_timeout_s = 5;
    options.build.workers = 2;
    options.build.progress = [this](std::size_t, std::size_t) { ++*indexed_; };
    return options;
  }
  IndexOptions index_options() const {
    IndexOptions options;
    options.lerobot_home = folder_ / "home";
    return options;
  }

  std::shared_ptr<const MappedIndex> prepare(const fs::path& root,
                                             const SidecarCacheOptions& options) const {
    LocalPayload payload(root);
    return prepare_sidecar(identity_of(root), payload, options);
  }
  std::shared_ptr<const MappedIndex> prepare(const fs::path& root) const {
    return prepare(root, cache_options());
  }

  /// All files below the folder, sorted, lock files left out.
  std::vector<std::string> files_below(const fs::path& folder) const {
    std::vector<std::string> names;
    if (fs::exists(folder))
      for (const auto& entry : fs::recursive_directory_iterator(folder))
        if (entry.is_regular_file() && entry.path().extension() != ".lock")
          names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }

  /// Files indexed so far.
  std::size_t indexed() const { return *indexed_; }

 private:
  std::shared_ptr<std::size_t> indexed_ = std::make_shared<std::size_t>(0);
};

}  // namespace lerobot::streaming
