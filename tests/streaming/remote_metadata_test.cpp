#include "lerobot/streaming/remote_metadata.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <sys/stat.h>
#include <unistd.h>

#include <gmock/gmock.h>

#include "lerobot/base/json.h"
#include "lerobot/dataset/metadata.h"
#include "tests/support/error_of.h"
#include "tests/support/range_server.h"

namespace lerobot::streaming {
namespace {

using test_server::Behaviour;
using test_server::RangeServer;
using test_server::Request;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// The bundled dataset, served from memory, so that tests can change it.
class RemoteMetadata : public ::testing::Test {
 protected:
  RemoteMetadata() {
    ::setenv("no_proxy", "127.0.0.1", 1);
    const fs::path source = fs::path(LEROBOT_TEST_DATA) / "../../data/pusht_sim/meta";
    for (const auto& entry : fs::recursive_directory_iterator(source))
      if (entry.is_regular_file())
        server_.put("/set/meta/" + entry.path().lexically_relative(source).string(),
                    read_text_file(entry.path()));
    client_options_.attempts = 2;
    client_options_.first_backoff = std::chrono::milliseconds(1);
    options_.lerobot_home = home_;
  }
  ~RemoteMetadata() override { fs::remove_all(home_); }

  MetadataMirror mirror() {
    hub::RangeClient client(client_options_);
    return mirror_metadata(server_.url("/set"), client, options_);
  }
  fs::path folder() const { return metadata_mirror_path(home_, server_.url("/set")); }

  /// The files of the copy, by name in meta/.
  std::vector<std::string> copied() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::recursive_directory_iterator(folder() / "meta"))
      if (entry.is_regular_file())
        names.push_back(entry.path().lexically_relative(folder() / "meta").string());
    std::sort(names.begin(), names.end());
    return names;
  }

  const fs::path home_ =
      fs::temp_directory_path() / ("lerobot_remote_metadata." + std::to_string(::getpid()));
  RangeServer server_;
  hub::RangeClientOptions client_options_;
  MetadataMirrorOptions options_;
};

TEST_F(RemoteMetadata, OpensAsTheDatasetItself) {
  const fs::path bundled = fs::path(LEROBOT_TEST_DATA) / "../../data/pusht_sim";
  const auto local = dataset::DatasetMetadata::open(bundled, "local");
  const auto copy = mirror();
  const auto remote = dataset::DatasetMetadata::open(copy.root, "remote");
  EXPECT_EQ(remote->episodes().size(), local->episodes().size());
  EXPECT_EQ(remote->episodes().to(local->episodes().size() - 1),
            local->episodes().to(local->episodes().size() - 1));
  EXPECT_EQ(remote->video_keys(), local->video_keys());
  EXPECT_EQ(remote->stats().size(), local->stats().size());
}

TEST_F(RemoteMetadata, FetchesNothingTwiceThatTheServerConfirms) {
  mirror();
  const std::uint64_t bytes = server_.body_bytes();
  const auto inode = [&] {
    struct stat status {};
    ::stat((folder() / "meta/info.json").c_str(), &status);
    return status.st_ino;
  };
  const auto before = inode();
  const auto names = copied();
  mirror();
  // Probes for the files behind the last are answered 404 with a line of text.
  EXPECT_LT(server_.body_bytes() - bytes, 100u);
  EXPECT_EQ(inode(), before);
  EXPECT_EQ(copied(), names);
}

TEST_F(RemoteMetadata, TakesWhatChangedAndDropsWhatIsGone) {
  mirror();
  server_.remove("/set/meta/stats.json");
  write_file_atomic(folder() / "meta/extra.txt", "mine");
  std::string info = read_text_file(folder() / "meta/info.json");
  info += "\n";
  server_.put("/set/meta/info.json", info);
  mirror();
  EXPECT_EQ(read_text_file(folder() / "meta/info.json"), info);
  EXPECT_THAT(copied(), ::testing::ElementsAre("episodes/chunk-000/file-000.parquet", "info.json",
                                               "tasks.parquet"));
}

TEST_F(RemoteMetadata, RepairsACopyThatSomebodyCut) {
  mirror();
  const std::string info = read_text_file(folder() / "meta/info.json");
  fs::resize_file(folder() / "meta/info.json", 3);
  mirror();
  EXPECT_EQ(read_text_file(folder() / "meta/info.json"), info);
}

TEST_F(RemoteMetadata, FindsAllEpisodeFilesOfAllChunks) {
  std::vector<std::string> expected;
  for (const auto& [chunk, files] : {std::pair{0, 21}, std::pair{1, 1}, std::pair{2, 9}})
    for (int file = 0; file < files; ++file) {
      const auto name = fmt::format("episodes/chunk-{:03d}/file-{:03d}.parquet", chunk, file);
      expected.push_back(name);
      server_.put("/set/meta/" + name, name);
    }
  // Behind a gap: no part of the dataset, though a look ahead meets it.
  server_.put("/set/meta/episodes/chunk-000/file-023.parquet", "stray");
  server_.put("/set/meta/episodes/chunk-004/file-000.parquet", "stray");
  mirror();
  for (const char* other : {"info.json", "stats.json", "tasks.parquet"})
    expected.emplace_back(other);
  EXPECT_EQ(copied(), expected);
  EXPECT_EQ(read_text_file(folder() / "meta/episodes/chunk-002/file-008.parquet"),
            "episodes/chunk-002/file-008.parquet");
}

TEST_F(RemoteMetadata, TakesAStorageThatMayNotBeListedAtItsWord) {
  server_.set_hook([](const Request& request) -> Behaviour {
    const bool probe = request.path.ends_with("file-001.parquet") ||
                       request.path.find("chunk-001") != std::string::npos;
    return probe ? Behaviour::answer(403) : Behaviour{};
  });
  EXPECT_EQ(dataset::DatasetMetadata::open(mirror().root, "remote")->video_keys().size(), 1u);
  server_.set_hook([](const Request&) { return Behaviour::answer(403); });
  EXPECT_THAT(error_of([&] { mirror(); }), HasSubstr("access denied"));
}

TEST_F(RemoteMetadata, SaysWhatIsMissing) {
  server_.remove("/set/meta/tasks.parquet");
  EXPECT_THAT(error_of([&] { mirror(); }),
              AllOf(HasSubstr(server_.url("/set/meta/tasks.parquet")), HasSubstr("is missing")));
  server_.remove("/set/meta/info.json");
  EXPECT_THAT(error_of([&] { mirror(); }), HasSubstr("not the root of a LeRobotDataset"));
}

TEST_F(RemoteMetadata, NamesTheVersionOfAnOldDatasetBeforeItsMissingFiles) {
  server_.remove("/set/meta/tasks.parquet");
  std::string info =
      read_text_file(fs::path(LEROBOT_TEST_DATA) / "../../data/pusht_sim/meta/info.json");
  const std::size_t at = info.find("\"v3.0\"");
  ASSERT_NE(at, std::string::npos);
  server_.put("/set/meta/info.json", info.replace(at, 6, "\"v2.1\""));
  EXPECT_THAT(error_of([&] { mirror(); }), AllOf(HasSubstr("2.1")));
}

TEST_F(RemoteMetadata, AFailureLeavesTheCopyBefore) {
  mirror();
  const auto names = copied();
  const std::string info = read_text_file(folder() / "meta/info.json");
  server_.put("/set/meta/info.json", info + "\n");
  server_.set_hook([](const Request& request) -> Behaviour {
    return request.path.ends_with(".parquet") ? Behaviour::answer(500) : Behaviour{};
  });
  EXPECT_THAT(error_of([&] { mirror(); }), HasSubstr("status 500"));
  EXPECT_EQ(copied(), names);
  EXPECT_EQ(read_text_file(folder() / "meta/info.json"), info);
  EXPECT_FALSE(fs::exists(folder() / "meta.new"));
}

TEST_F(RemoteMetadata, WaitsForAnotherProcessOnlySoLong) {
  const MetadataMirror held = mirror();
  options_.lock_timeout = std::chrono::milliseconds(20);
  int waits = 0;
  options_.waiting = [&] { ++waits; };
  EXPECT_THAT(error_of([&] { mirror(); }),
              AllOf(HasSubstr("timed out after 0.02 s"), HasSubstr("mirror.lock")));
  EXPECT_GE(waits, 1);
}

TEST_F(RemoteMetadata, SharesTheCopyThatAnotherProcessMadeMeanwhile) {
  const std::size_t before = server_.requests().size();
  std::optional<MetadataMirror> held = mirror();
  const std::size_t requests = server_.requests().size() - before;
  ASSERT_GT(requests, 0u);
  // While this one waits, the holder completes its copy anew.
  bool done = false;
  options_.waiting = [&] {
    if (std::exchange(done, true)) return;
    fs::last_write_time(folder() / "mirror.json",
                        fs::file_time_type::clock::now() + std::chrono::seconds(1));
    held.reset();
  };
  mirror();
  EXPECT_TRUE(done);
  EXPECT_EQ(server_.requests().size() - before, requests);
}

TEST_F(RemoteMetadata, BlamesTheCacheForItsOwnFaults) {
  write_file_atomic(fs::temp_directory_path() / home_.filename(), "a file in the way");
  EXPECT_THAT(error_of([&] { mirror(); }),
              AllOf(HasSubstr("cannot keep a copy"), HasSubstr("HF_LEROBOT_HOME")));
}

TEST_F(RemoteMetadata, NamesItsFolderWithoutSecrets) {
  const auto path =
      metadata_mirror_path("/home", "https://user:secret@Host.example:8443/a%20b/set_1/");
  EXPECT_THAT(path.filename().string(),
              ::testing::MatchesRegex("Host.example-8443-a-20b-set_1-[0-9a-f]{16}"));
  EXPECT_EQ(path.parent_path(), "/home/streaming-metadata");
  EXPECT_NE(path, metadata_mirror_path("/home", "https://Host.example:8443/a-20b/set_1"));
}

}  // namespace
}  // namespace lerobot::streaming
