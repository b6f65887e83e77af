// The way from a dataset to its installed index, and what may go wrong on it.
#include "lerobot/streaming/sidecar_cache.h"

#include <csignal>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "lerobot/base/file_lock.h"
#include "tests/streaming/sidecar_fixture.h"

namespace lerobot::streaming {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class SidecarCacheTest : public SidecarTest {
 protected:
  fs::path cached(const fs::path& root) const {
    return sidecar_cache_path(folder_ / "home", identity_of(root));
  }
  fs::path first_video(const fs::path& root) const {
    return root / "videos/observation.images.front/chunk-000/file-000.mp4";
  }
};

TEST_F(SidecarCacheTest, TheFirstRunBuildsAndTheNextOnesReuse) {
  const auto built = prepare(toy());
  EXPECT_EQ(indexed(), 2U);
  EXPECT_EQ(built->size(), 2U);
  const auto reused = prepare(toy());
  EXPECT_EQ(indexed(), 2U);
  EXPECT_EQ(reused->index_path(), built->index_path());
  EXPECT_EQ(files_below(folder_ / "home").size(), 2U);  // a sidecar, an index, nothing temporary
}

TEST_F(SidecarCacheTest, WhatIsBuiltEqualsLeRobotsSidecar) {
  prepare(toy());
  const SidecarFile ours(cached(toy()));
  const SidecarFile theirs(toy_sidecar());
  for (std::size_t i = 0; i < 2; ++i) {
    const SidecarArrays a = ours.arrays(i), b = theirs.arrays(i);
    EXPECT_EQ(a.pts, b.pts);
    EXPECT_EQ(a.durations, b.durations);
    EXPECT_EQ(a.composition_offsets, b.composition_offsets);
    EXPECT_EQ(a.sizes, b.sizes);
    EXPECT_EQ(a.offsets, b.offsets);
    EXPECT_EQ(a.sync_samples, b.sync_samples);
    EXPECT_FALSE(a.presentation);
  }
  SidecarManifest manifest = ours.manifest();
  manifest.identity = theirs.manifest().identity;
  EXPECT_EQ(to_json_text(manifest), to_json_text(theirs.manifest()));
}

TEST_F(SidecarCacheTest, AChangedVideoMakesTheSidecarStale) {
  const fs::path root = copy_dataset(toy());
  prepare(root);
  const fs::path video = first_video(root);
  fs::last_write_time(video, fs::last_write_time(video) + std::chrono::seconds(1));
  prepare(root);
  EXPECT_EQ(indexed(), 4U);
}

TEST_F(SidecarCacheTest, ACorruptSidecarIsBuiltAgain) {
  const fs::path root = copy_dataset(toy());
  prepare(root);
  const fs::path sidecar = cached(root);
  fs::resize_file(sidecar, fs::file_size(sidecar) / 2);
  EXPECT_EQ(prepare(root)->size(), 2U);
  EXPECT_EQ(indexed(), 4U);
  std::ofstream(sidecar) << "no archive";
  prepare(root);
  EXPECT_EQ(indexed(), 6U);
  EXPECT_NO_THROW(SidecarFile{sidecar});
}

TEST_F(SidecarCacheTest, ASidecarOfAnotherDatasetUnderTheNameIsReplaced) {
  const fs::path sidecar = cached(toy());
  fs::create_directories(sidecar.parent_path());
  fs::copy_file(toy_sidecar(), sidecar);
  prepare(toy());
  EXPECT_EQ(indexed(), 2U);
  EXPECT_EQ(SidecarFile(sidecar).manifest().identity.revision, "v3.0");
}

TEST_F(SidecarCacheTest, AnIndexThatIsGoneIsConvertedWithoutABuild) {
  prepare(toy());
  fs::remove_all(folder_ / "home/streaming-indexes");
  EXPECT_EQ(prepare(toy())->size(), 2U);
  EXPECT_EQ(indexed(), 2U);
}

TEST_F(SidecarCacheTest, AFailedBuildLeavesTheSidecarThatWasThere) {
  const fs::path root = copy_dataset(toy());
  prepare(root);
  const auto before = read_text_file(cached(root));
  const fs::path sidecar = cached(root);
  fs::resize_file(first_video(root), 3000);
  // The name depends on the fingerprints, so put the old one where the new one goes.
  const fs::path now = cached(root);
  fs::copy_file(sidecar, now, fs::copy_options::overwrite_existing);
  EXPECT_THAT(error_of([&] { prepare(root); }),
              AllOf(HasSubstr(first_video(root).string()), HasSubstr("cut")));
  EXPECT_EQ(read_text_file(now), before);
  for (const std::string& name : files_below(folder_ / "home"))
    EXPECT_THAT(name, ::testing::Not(HasSubstr("tmp")));
}

TEST_F(SidecarCacheTest, AVideoThatChangesDuringTheBuildStopsIt) {
  const fs::path root = copy_dataset(toy());
  SidecarCacheOptions options = cache_options();
  options.build.workers = 1;
  options.build.progress = [&](std::size_t done, std::size_t) {
    const fs::path next = root / "videos/observation.images.wrist/chunk-000/file-000.mp4";
    if (done == 1) fs::last_write_time(next, fs::last_write_time(next) + std::chrono::hours(1));
  };
  EXPECT_THAT(error_of([&] { prepare(root, options); }),
              AllOf(HasSubstr("file-000.mp4: changed while its sidecar was made"),
                    HasSubstr("start again")));
  options.build.progress = [&](std::size_t done, std::size_t) {
    const fs::path next = root / "videos/observation.images.wrist/chunk-000/file-000.mp4";
    if (done == 1) std::ofstream(next, std::ios::app) << "more";
  };
  EXPECT_THAT(error_of([&] { prepare(root, options); }), HasSubstr("had 8170 bytes"));
  EXPECT_TRUE(files_below(folder_ / "home").empty());
}

TEST_F(SidecarCacheTest, ADatasetWithoutVideosHasNoSidecar) {
  EXPECT_THAT(error_of([&] { prepare(test_data("datasets/toy_state")); }),
              HasSubstr("no video files"));
}

TEST_F(SidecarCacheTest, AConversionThatIsHeldUpIsReportedWithItsLock) {
  IndexOptions options = index_options();
  { MappedIndex::open(toy_sidecar(), options); }
  fs::path lock_path;
  for (const auto& entry : fs::directory_iterator(folder_ / "home/streaming-indexes")) {
    if (entry.path().extension() == ".lock") lock_path = entry.path();
    if (entry.path().extension() == ".bin") fs::remove(entry.path());
  }
  const auto held = FileLock::acquire(lock_path, std::chrono::duration<double>(0));
  options.lock_timeout = std::chrono::duration<double>(0.1);
  EXPECT_THAT(error_of([&] { MappedIndex::open(toy_sidecar(), options); }),
              AllOf(HasSubstr("timed out waiting 0.1 s for another process to convert"),
                    HasSubstr(lock_path.string())));
}

TEST_F(SidecarCacheTest, ALockThatIsHeldTooLongIsReportedWithItsPath) {
  const fs::path lock_path = cached(toy()).string() + ".lock";
  fs::create_directories(lock_path.parent_path());
  const auto held = FileLock::acquire(lock_path, std::chrono::duration<double>(0));
  SidecarCacheOptions options = cache_options();
  options.lock_timeout_s = 0.2;
  EXPECT_THROW(prepare(toy(), options), SidecarLockTimeout);
  EXPECT_THAT(
      error_of([&] { prepare(toy(), options); }),
      AllOf(HasSubstr("timed out waiting 0.2 s for the MP4 sidecar lock at " + lock_path.string()),
            HasSubstr("streaming_sidecar_lock_timeout_s")));
}

TEST_F(SidecarCacheTest, ProcessesThatStartTogetherBuildOnce) {
  std::vector<pid_t> children;
  const fs::path count = folder_ / "count";
  for (int i = 0; i < 4; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      int status = 1;
      try {
        SidecarCacheOptions options = cache_options();
        options.lock_timeout_s = 60;
        options.build.progress = [&](std::size_t, std::size_t) {
          std::ofstream(count, std::ios::app) << "x";
          std::this_thread::sleep_for(std::chrono::milliseconds(100));
        };
        status = prepare(toy(), options)->size() == 2 ? 0 : 2;
      } catch (...) {
      }
      ::_exit(status);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(read_text_file(count), "xx");
}

TEST_F(SidecarCacheTest, AKilledBuilderIsNoObstacleAndItsRestIsRemoved) {
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      SidecarCacheOptions options = cache_options();
      options.build.progress = [](std::size_t, std::size_t) { ::kill(::getpid(), SIGKILL); };
      prepare(toy(), options);
    } catch (...) {
    }
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  const fs::path sidecar = cached(toy());
  std::ofstream(sidecar.parent_path() / ("." + sidecar.filename().string() + ".0123.tmp.npz"))
      << "x";
  EXPECT_EQ(prepare(toy())->size(), 2U);
  EXPECT_EQ(files_below(folder_ / "home/streaming-sidecars"),
            std::vector<std::string>{sidecar.filename().string()});
}

TEST_F(SidecarCacheTest, AnInterruptedBuildEndsSoonAndLeavesNothing) {
  SidecarCacheOptions options = cache_options();
  options.build.workers = 1;
  options.build.progress = [](std::size_t, std::size_t) {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
  };
  int polls = 0;
  options.build.poll = [&] {
    if (++polls > 2) fail("interrupted");
  };
  EXPECT_THAT(error_of([&] { prepare(toy(), options); }), HasSubstr("interrupted"));
  EXPECT_TRUE(files_below(folder_ / "home").empty());
}

TEST_F(SidecarCacheTest, APublishedSidecarIsCheckedAndUsed) {
  prepare(toy());
  const fs::path published = folder_ / "published.npz";
  fs::rename(cached(toy()), published);
  const std::size_t before = indexed();
  SidecarCacheOptions options = cache_options();
  options.fetch_published = [&](const fs::path& into) {
    fs::copy_file(published, into);
    return true;
  };
  EXPECT_EQ(prepare(toy(), options)->size(), 2U);
  EXPECT_EQ(indexed(), before);
}

TEST_F(SidecarCacheTest, APublishedSidecarThatDoesNotFitLeadsToABuild) {
  SidecarCacheOptions options = cache_options();
  std::vector<std::string> offers = {"sidecars/toy_h264.npz", "broken/npz/cut.npz",
                                     "broken/npz/size_zero.npz", ""};
  for (const std::string& offer : offers) {
    fs::remove_all(folder_ / "home");
    options.fetch_published = [&](const fs::path& into) {
      if (offer.empty()) return false;
      fs::copy_file(test_data(offer), into);
      return true;
    };
    const std::size_t before = indexed();
    EXPECT_EQ(prepare(toy(), options)->size(), 2U) << offer;
    EXPECT_EQ(indexed(), before + 2) << offer;
  }
}

TEST_F(SidecarCacheTest, APlaceThatCannotBeUsedIsSaidWithTheRemedy) {
  SidecarCacheOptions options = cache_options();
  std::ofstream(folder_ / "file") << "x";
  options.lerobot_home = folder_ / "file";  // ENOTDIR
  EXPECT_THAT(error_of([&] { prepare(toy(), options); }),
              AllOf(HasSubstr("the MP4 index cache cannot be accessed"),
                    HasSubstr("check permissions and free space in HF_LEROBOT_HOME"),
                    HasSubstr((folder_ / "file").string())));
}

TEST_F(SidecarCacheTest, AReadOnlyCacheIsSaidToo) {
  if (::geteuid() == 0) GTEST_SKIP() << "root writes everywhere";
  const fs::path home = folder_ / "home";
  fs::create_directories(home);
  ::chmod(home.c_str(), 0555);
  EXPECT_THAT(error_of([&] { prepare(toy()); }), HasSubstr("check permissions"));
  ::chmod(home.c_str(), 0755);
}

TEST_F(SidecarCacheTest, AFullDiskIsSaidAndLeavesNothing) {
  // A limit on file sizes stands for the disk: the write fails in the middle. In a process of its
  // own, since limits can't be raised again.
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1000, 1000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    int status = 1;
    try {
      prepare(toy());
    } catch (const Error&) {
      status = files_below(folder_ / "home").empty() ? 0 : 2;
    }
    ::_exit(status);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace lerobot::streaming
