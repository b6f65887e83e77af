#include "lerobot/train/tracking/trackio_place.h"

#include <gmock/gmock.h>

#include "tests/train/trackio_fixture.h"

namespace lerobot::train {
namespace {

using ::testing::HasSubstr;

class TrackioPlaceTest : public TrackioTest {};

TEST_F(TrackioPlaceTest, TheFolderIsWhereTrackiosCommandsLook) {
  EXPECT_EQ(trackio_folder(), trackio());
  ::setenv("TRACKIO_DIR", "~/x", 1);  // a folder named ~
  EXPECT_EQ(trackio_folder(), "~/x");
  ::setenv("TRACKIO_DIR", "", 1);
  ::setenv("HF_HOME", "$HOME/hf", 1);
  EXPECT_EQ(trackio_folder(), fs::path(std::getenv("HOME")) / "hf/trackio");
  ::setenv("HF_HOME", "", 1);
  EXPECT_EQ(trackio_folder(), "trackio");
  ::unsetenv("HF_HOME");
  ::setenv("XDG_CACHE_HOME", "/caches", 1);
  EXPECT_EQ(trackio_folder(), "/caches/huggingface/trackio");
  ::unsetenv("XDG_CACHE_HOME");
  EXPECT_EQ(trackio_folder(), fs::path(std::getenv("HOME")) / ".cache/huggingface/trackio");
}

TEST_F(TrackioPlaceTest, FilesHaveTheProjectsCanonicalName) {
  const TrackioPlace place = trackio_place("my.model");
  EXPECT_EQ(place.database(), trackio() / "mymodel.db");
  EXPECT_EQ(place.lock_file(), trackio() / "mymodel.lock");
  EXPECT_EQ(place.inbox(), trackio() / "inbox");
  EXPECT_FALSE(fs::exists(trackio()));
}

TEST_F(TrackioPlaceTest, TheStorageIsWhatTheUserChoosesAndNeverAGuessAtNonsense) {
  const auto storage = [](const char* mode) {
    ::setenv("TRACKIO_STORAGE_MODE", mode, 1);
    return trackio_place("p").storage;
  };
  EXPECT_EQ(storage("jsonl"), TrackioPlace::Storage::kInbox);
  EXPECT_EQ(storage(" JSONL "), TrackioPlace::Storage::kInbox);
  EXPECT_EQ(storage("sqlite"), TrackioPlace::Storage::kDatabase);
  EXPECT_EQ(storage("auto"), TrackioPlace::Storage::kDatabase);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(storage("parquet"), TrackioPlace::Storage::kDatabase);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("TRACKIO_STORAGE_MODE=parquet: expected auto, sqlite or jsonl"));
}

TEST_F(TrackioPlaceTest, TheDeepestMountDecidesWhetherAFolderIsOnTheNetwork) {
  constexpr const char* kMounts =
      "overlay / overlay rw 0 0\n"
      "server:/home /home nfs4 rw 0 0\n"
      "/dev/sda1 /home/me/local ext4 rw 0 0\n"
      "s3 /data fuse.cephfs rw 0 0\n"
      "x /my\\040share cifs rw 0 0\n"
      "cluster /scratch lustre_client rw 0 0\n"
      "broken\n";
  EXPECT_TRUE(is_on_network("/home/me/trackio", kMounts));
  EXPECT_TRUE(is_on_network("/home", kMounts));
  EXPECT_FALSE(is_on_network("/home/me/local/trackio", kMounts));
  EXPECT_FALSE(is_on_network("/homes/me", kMounts));
  EXPECT_TRUE(is_on_network("/data/trackio", kMounts));
  EXPECT_TRUE(is_on_network("/my share/trackio", kMounts));
  EXPECT_TRUE(is_on_network("/scratch", kMounts));
  EXPECT_FALSE(is_on_network("/tmp", kMounts));
  EXPECT_FALSE(is_on_network("/tmp", ""));
}

}  // namespace
}  // namespace lerobot::train
