#include "lerobot/hub/snapshot.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <future>
#include <random>
#include <set>
#include <string>
#include <sys/file.h>
#include <thread>

#include <gmock/gmock.h>

#include "lerobot/base/digest.h"
#include "lerobot/hub/repo_cache.h"
#include "tests/hub/hub_fixture.h"
#include "tests/support/error_of.h"

namespace lerobot::hub {
namespace {

using test_server::Behaviour;
using test_server::HubFiles;
using test_server::Request;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::size_t kMegabyte = 1 << 20;
/// Three parts of a large file.
constexpr std::size_t kLarge = 150 * kMegabyte + 4321;

std::string random_bytes(std::size_t size, unsigned seed = 1) {
  std::mt19937_64 generator(seed);
  std::string bytes(size, '\0');
  for (std::size_t at = 0; at + 8 <= size; at += 8) {
    const std::uint64_t word = generator();
    std::memcpy(bytes.data() + at, &word, 8);
  }
  return bytes;
}

std::span<const std::uint8_t> bytes(const std::string& text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

class SnapshotTest : public HubFixture {
 protected:
  Snapshot download(const std::string& revision = "main", const SnapshotOptions& options = {}) {
    return download_snapshot(client(), repo_, revision, cache_, options);
  }

  HubError error(const std::string& revision = "main") {
    return hub_error_of([&] { download(revision); });
  }

  /// What a client with other settings gets from the same cache.
  HubError error_with(HubEnvironment environment, const std::string& revision = "main",
                      const SnapshotOptions& options = {}) {
    HubClient other(std::move(environment), HubFixture::options());
    return hub_error_of([&] { download_snapshot(other, repo_, revision, cache_, options); });
  }

  HubEnvironment offline() const {
    HubEnvironment environment = environment_;
    environment.offline = true;
    return environment;
  }

  HubEnvironment unreachable() const {
    HubEnvironment environment = environment_;
    environment.endpoint = "http://127.0.0.1:1";
    return environment;
  }

  /// GETs of the bytes, wherever, whose path contains `part` or whose server is the storage.
  std::size_t file_requests() const {
    const auto all = server_.requests();
    return static_cast<std::size_t>(std::count_if(all.begin(), all.end(), [](const Request& it) {
      return it.server == "storage" || it.path.find("/resolve/") != std::string::npos;
    }));
  }

  /// Behaviour of the GETs of file bytes that come from the storage; the first `times` of them.
  void on_storage(Behaviour behaviour, int times = 1'000'000) {
    on([](const Request& request) { return request.server == "storage"; }, std::move(behaviour),
       times);
  }

  void on(std::function<bool(const Request&)> which, Behaviour behaviour, int times = 1'000'000) {
    server_.set_hook([this, which = std::move(which), behaviour = std::move(behaviour),
                      times](const Request& request) -> std::optional<Behaviour> {
      if (which(request) && hits_++ < times) return behaviour;
      return std::nullopt;
    });
  }

  fs::path repo_folder() const { return cache_ / cache_folder_name(repo_); }

  std::size_t incomplete_files() const {
    std::size_t count = 0;
    for (const auto& entry : fs::directory_iterator(repo_folder() / "blobs"))
      count += entry.path().extension() == ".incomplete";
    return count;
  }

  static SnapshotOptions only(std::vector<std::string> patterns) {
    return {
        .wanted = [patterns = std::move(patterns)](
                      std::string_view path) { return matches_any(path, patterns); },
    };
  }

  const HubFiles files_ = {{"README.md", "# a dataset"},
                           {"meta/info.json", R"({"fps": 10})"},
                           {"data/chunk-000/file 0.parquet", random_bytes(70'000)},
                           {"videos/cam#1/a[1].mp4", random_bytes(6 * kMegabyte, 2)}};
  std::atomic<int> hits_ = 0;
};

TEST_F(SnapshotTest, BringsEveryFileAndItsContent) {
  const std::string commit = server_.commit(repo_, files_);
  const Snapshot snapshot = download();
  EXPECT_EQ(snapshot.commit, commit);
  EXPECT_EQ(snapshot.folder, repo_folder() / "snapshots" / commit);
  for (const auto& [path, content] : files_) {
    EXPECT_EQ(read_text_file(snapshot.folder / path), content) << path;
    EXPECT_TRUE(fs::is_symlink(snapshot.folder / path));
  }
  EXPECT_EQ(fs::read_symlink(snapshot.folder / "README.md"),
            "../../blobs/" + git_blob_id(bytes("# a dataset")));
  EXPECT_EQ(fs::read_symlink(snapshot.folder / "data/chunk-000/file 0.parquet"),
            "../../../../blobs/" + sha256_hex(bytes(files_.at("data/chunk-000/file 0.parquet"))));
  EXPECT_EQ(read_text_file(repo_folder() / "refs/main"), commit);
  EXPECT_EQ(incomplete_files(), 0u);
}

TEST_F(SnapshotTest, AsksNothingASecondTimeAndOfABranchOnlyItsCommit) {
  const std::string commit = server_.commit(repo_, files_);
  download();
  server_.forget_requests();
  download(commit);
  EXPECT_EQ(server_.requests().size(), 0u);
  download();
  ASSERT_EQ(server_.requests().size(), 1u);
  EXPECT_EQ(server_.requests()[0].path, "/api/datasets/robot/pusht/revision/main");
}

TEST_F(SnapshotTest, BringsOnlyWhatIsWantedAndLaterTheRest) {
  server_.commit(repo_, files_);
  const Snapshot snapshot = download("main", only({"meta/", "*.md"}));
  EXPECT_TRUE(fs::exists(snapshot.folder / "meta/info.json"));
  EXPECT_TRUE(fs::exists(snapshot.folder / "README.md"));
  EXPECT_FALSE(fs::exists(snapshot.folder / "data"));
  server_.forget_requests();
  download();
  EXPECT_EQ(server_.requests("GET", "/tree/"), 0u) << "the cache has the listing";
  EXPECT_EQ(server_.requests("GET", "info.json"), 0u);
  EXPECT_EQ(read_text_file(snapshot.folder / "videos/cam#1/a[1].mp4"),
            files_.at("videos/cam#1/a[1].mp4"));
}

TEST_F(SnapshotTest, ListsOnlyTheFolderThatIsAskedFor) {
  server_.commit(repo_, files_);
  const Snapshot snapshot = download("main", {.folder = "meta"});
  EXPECT_EQ(read_text_file(snapshot.folder / "meta/info.json"), files_.at("meta/info.json"));
  EXPECT_FALSE(fs::exists(snapshot.folder / "README.md"));
  EXPECT_EQ(server_.requests("GET", "/tree/" + snapshot.commit + "/meta"), 1u);
  EXPECT_FALSE(fs::exists(repo_folder() / "trees")) << "a part is no listing of the commit";
  const auto missing_folder = [&] {
    return hub_error_of([&] { download("main", {.folder = "met"}); }).fault();
  };
  EXPECT_EQ(missing_folder(), HubFault::kEntryNotFound);
  download();
  server_.forget_requests();
  EXPECT_EQ(missing_folder(), HubFault::kEntryNotFound) << "with the listing in the cache, too";
  EXPECT_EQ(server_.requests("GET", "/tree/"), 0u);
}

TEST_F(SnapshotTest, AsksForNoFileWhenNothingIsWanted) {
  const std::string commit = server_.commit(repo_, files_);
  EXPECT_EQ(download("main", only({"nothing"})).commit, commit);
  EXPECT_EQ(file_requests(), 0u);
}

TEST_F(SnapshotTest, MakesEmptyFilesWithoutARequest) {
  server_.commit(repo_, {{"a/__init__.py", ""}, {"b", ""}});
  const Snapshot snapshot = download();
  EXPECT_EQ(fs::file_size(snapshot.folder / "a/__init__.py"), 0u);
  EXPECT_EQ(fs::file_size(snapshot.folder / "b"), 0u);
  EXPECT_EQ(file_requests(), 0u);
}

TEST_F(SnapshotTest, FetchesOneContentOnceWhateverItsNames) {
  const std::string content = random_bytes(50'000);
  server_.commit(repo_, {{"a.bin", content}, {"b/c.bin", content}});
  const Snapshot snapshot = download();
  EXPECT_EQ(read_text_file(snapshot.folder / "a.bin"), content);
  EXPECT_EQ(read_text_file(snapshot.folder / "b/c.bin"), content);
  EXPECT_EQ(server_.requests("GET", "/resolve/"), 1u);
}

TEST_F(SnapshotTest, OnlyLinksWhatAnotherCommitBrought) {
  server_.commit(repo_, files_);
  download();
  server_.commit(repo_, {{"meta/info.json", R"({"fps": 20})"}});
  server_.forget_requests();
  const Snapshot snapshot = download();
  EXPECT_EQ(read_text_file(snapshot.folder / "meta/info.json"), R"({"fps": 20})");
  EXPECT_EQ(read_text_file(snapshot.folder / "README.md"), "# a dataset");
  EXPECT_EQ(server_.requests("GET", "/resolve/"), 1u);
}

TEST_F(SnapshotTest, ShowsTheTokenToTheHubAlone) {
  server_.add_account({"hf_reader", "robot", false});
  server_.commit(repo_, files_);
  environment_.credentials = {.token = "hf_reader", .origin = "HF_TOKEN"};
  download();
  bool storage = false;
  for (const Request& request : server_.requests()) {
    EXPECT_EQ(request.has("authorization"), request.server == "hub") << request.path;
    storage = storage || request.server == "storage";
  }
  EXPECT_TRUE(storage);
}

TEST_F(SnapshotTest, TellsProgressUpToTheEnd) {
  server_.commit(repo_, files_);
  std::uint64_t size = 0;
  for (const auto& [path, content] : files_) size += content.size();
  DownloadProgress last;
  const auto thread = std::this_thread::get_id();
  download("main", {.progress = [&](const DownloadProgress& at) {
             EXPECT_EQ(std::this_thread::get_id(), thread);
             EXPECT_LE(at.bytes, at.all_bytes);
             last = at;
           }});
  EXPECT_EQ(last.files, files_.size());
  EXPECT_EQ(last.all_files, files_.size());
  EXPECT_EQ(last.bytes, size);
  EXPECT_EQ(last.all_bytes, size);
}

TEST_F(SnapshotTest, BringsThousandsOfSmallFilesOverFewConnections) {
  HubFiles many;
  for (int i = 0; i < 2000; ++i)
    many[fmt::format("data/{:04}.json", i)] = fmt::format("{{\"number\": {}}}", i);
  server_.commit(repo_, many);
  const Snapshot snapshot = download();
  for (const auto& [path, content] : many)
    ASSERT_EQ(read_text_file(snapshot.folder / path), content) << path;
  std::set<int> connections;
  for (const Request& request : server_.requests()) connections.insert(request.connection);
  EXPECT_LE(connections.size(), client().connections());
}

// --- large files

TEST_F(SnapshotTest, BringsALargeFileInPartsAndAsksTheHubOnce) {
  const std::string content = random_bytes(kLarge);
  server_.commit(repo_, {{"large.bin", content}});
  const Snapshot snapshot = download();
  EXPECT_TRUE(read_text_file(snapshot.folder / "large.bin") == content);
  EXPECT_EQ(server_.requests("GET", "/resolve/"), 1u);
  std::set<std::string> ranges;
  for (const Request& request : server_.requests())
    if (request.server == "storage") ranges.insert(request.headers.at("range"));
  EXPECT_EQ(ranges, (std::set<std::string>{"bytes=0-67108863", "bytes=67108864-134217727",
                                           fmt::format("bytes=134217728-{}", kLarge - 1)}));
}

TEST_F(SnapshotTest, GoesOnAtTheByteWhereATransferWasCut) {
  const std::string content = random_bytes(10 * kMegabyte);
  server_.commit(repo_, {{"large.bin", content}});
  on_storage({.cut_after = 3'000'000}, 2);
  const Snapshot snapshot = download();
  EXPECT_TRUE(read_text_file(snapshot.folder / "large.bin") == content);
  std::vector<std::string> ranges;
  for (const Request& request : server_.requests())
    if (request.server == "storage") ranges.push_back(request.headers.at("range"));
  EXPECT_THAT(ranges, ::testing::ElementsAre("bytes=0-10485759", "bytes=3000000-10485759",
                                             "bytes=6000000-10485759"));
}

TEST_F(SnapshotTest, GoesOnAfterManyCutsThatEachBringSomething) {
  const std::string content = random_bytes(12 * kMegabyte);
  server_.commit(repo_, {{"large.bin", content}});
  on_storage({.cut_after = 1'100'000});  // more often than there are attempts
  const Snapshot snapshot = download();
  EXPECT_TRUE(read_text_file(snapshot.folder / "large.bin") == content);
}

TEST_F(SnapshotTest, BringsSmallFilesDespiteCutsAndStalls) {
  server_.commit(repo_, files_);
  environment_.download_timeout = std::chrono::seconds(1);
  on([](const Request& request) { return request.path.ends_with(".parquet"); },
     {.cut_after = 100, .stall = true}, 1);
  const Snapshot snapshot = download();
  EXPECT_EQ(read_text_file(snapshot.folder / "data/chunk-000/file 0.parquet"),
            files_.at("data/chunk-000/file 0.parquet"));
}

TEST_F(SnapshotTest, TakesAWholeFileFromAServerThatKnowsNoRanges) {
  const std::string content = random_bytes(kLarge);
  server_.commit(repo_, {{"large.bin", content}});
  on_storage({.ignore_range = true});
  const Snapshot snapshot = download();
  EXPECT_TRUE(read_text_file(snapshot.folder / "large.bin") == content);
}

TEST_F(SnapshotTest, TakesAWholeFileAgainWhenItIsCut) {
  const std::string content = random_bytes(10 * kMegabyte);
  server_.commit(repo_, {{"large.bin", content}});
  server_.set_hook([this](const Request& request) -> std::optional<Behaviour> {
    if (request.server != "storage") return std::nullopt;
    Behaviour behaviour{.ignore_range = true};
    if (hits_++ == 0) behaviour.cut_after = 5'500'000;
    return behaviour;
  });
  const Snapshot snapshot = download();
  EXPECT_TRUE(read_text_file(snapshot.folder / "large.bin") == content);
}

TEST_F(SnapshotTest, RefusesRangesOfAnotherFile) {
  const std::string content = random_bytes(10 * kMegabyte);
  server_.commit(repo_, {{"large.bin", content}});
  on_storage({.headers = {{"Content-Range", "bytes 0-10485759/99999999"}}});
  const HubError found = error();
  EXPECT_EQ(found.fault(), HubFault::kMisbehaved);
  EXPECT_THAT(found.what(), AllOf(HasSubstr("large.bin of dataset robot/pusht"),
                                  HasSubstr("bytes 0-10485759/99999999")));
}

// --- links of the storage

TEST_F(SnapshotTest, AsksTheHubAgainWhenALinkHasExpired) {
  const std::string content = random_bytes(kLarge);
  HubFiles files = files_;
  files["large.bin"] = content;
  server_.commit(repo_, files);
  // Each file's first address.
  on([](const Request& request) { return request.server == "storage" && request.number == 0; },
     Behaviour::answer(403));
  const Snapshot snapshot = download();
  EXPECT_TRUE(read_text_file(snapshot.folder / "large.bin") == content);
}

TEST_F(SnapshotTest, DoesNotAskForEverForLinksThatAreRefused) {
  server_.commit(repo_, {{"large.bin", random_bytes(50'000)}});
  on_storage(Behaviour::answer(403, {{"X-Error-Message", "AccessDenied"}}));
  const HubError found = error();
  EXPECT_EQ(found.fault(), HubFault::kForbidden);
  EXPECT_THAT(found.what(), HasSubstr("AccessDenied"));
  EXPECT_LE(server_.requests("GET", "/resolve/"), 3u);
}

TEST_F(SnapshotTest, WaitsForAStorageThatIsBusy) {
  server_.commit(repo_, files_);
  on_storage(Behaviour::answer(503), 2);
  download();
  server_.commit(repo_, {{"x.mp4", random_bytes(5000, 9)}});
  hits_ = 0;
  on_storage(Behaviour::answer(500));
  const HubError found = error();
  EXPECT_EQ(found.fault(), HubFault::kUnreachable);
  EXPECT_THAT(found.what(), HasSubstr("status 500 (3 attempts)"));
}

// --- content

TEST_F(SnapshotTest, FetchesContentWithAWrongHashAgain) {
  for (const std::size_t size : {std::size_t{50'000}, 6 * kMegabyte}) {
    hits_ = 0;
    const std::string content = random_bytes(size, 3);
    std::string damaged = content;
    damaged[size / 2] ^= 1;
    server_.commit(repo_, {{"a.bin", content}});
    on_storage({.body = damaged}, 1);
    ::testing::internal::CaptureStderr();
    const Snapshot snapshot = download();
    EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("fetching it again"));
    EXPECT_TRUE(read_text_file(snapshot.folder / "a.bin") == content);
    EXPECT_EQ(incomplete_files(), 0u);
  }
}

TEST_F(SnapshotTest, RefusesContentWhoseHashIsWrongEveryTime) {
  const std::string content = random_bytes(6 * kMegabyte, 3);
  const std::string other(content.size(), 'x');
  const std::string commit = server_.commit(repo_, {{"a.bin", content}});
  on_storage({.body = other});
  const HubError found = error();
  EXPECT_EQ(found.fault(), HubFault::kMisbehaved);
  EXPECT_THAT(found.what(), AllOf(HasSubstr("a.bin of dataset robot/pusht at " + commit),
                                  HasSubstr(sha256_hex(bytes(other))),
                                  HasSubstr("expected " + sha256_hex(bytes(content)))));
  EXPECT_FALSE(fs::exists(repo_folder() / "snapshots"));
  EXPECT_EQ(incomplete_files(), 0u);
  EXPECT_FALSE(fs::exists(repo_folder() / "refs"));
}

TEST_F(SnapshotTest, ChecksGitsHashOfRegularFiles) {
  server_.commit(repo_, {{"a.txt", "right"}});
  on([](const Request& request) { return request.path.find("resolve-cache") != std::string::npos; },
     {.body = "wrong"});
  EXPECT_THAT(error().what(), HasSubstr("expected " + git_blob_id(bytes("right"))));
}

TEST_F(SnapshotTest, RefusesContentOfAnotherSizeOrForm) {
  server_.commit(repo_, {{"a.bin", random_bytes(50'000)}});
  on_storage({.headers = {{"Content-Length", "49999"}}});
  EXPECT_THAT(error().what(), HasSubstr("expected 50000 bytes, found Content-Length: 49999"));
  on_storage({.headers = {{"Content-Encoding", "gzip"}}});
  EXPECT_THAT(error().what(), HasSubstr("Content-Encoding: gzip"));
}

TEST_F(SnapshotTest, RepairsADamagedCache) {
  server_.commit(repo_, files_);
  const Snapshot snapshot = download();
  const fs::path blob = fs::canonical(snapshot.folder / "README.md");
  fs::remove(blob);
  const fs::path other = fs::canonical(snapshot.folder / "meta/info.json");
  fs::resize_file(other, 2);
  download();
  EXPECT_EQ(read_text_file(snapshot.folder / "README.md"), files_.at("README.md"));
  EXPECT_EQ(read_text_file(snapshot.folder / "meta/info.json"), files_.at("meta/info.json"));
}

TEST_F(SnapshotTest, WritesNothingThroughALinkOfTheSharedStore) {
  server_.commit(repo_, {{"a.bin", random_bytes(50'000)}});
  const std::string etag = sha256_hex(bytes(random_bytes(50'000)));
  fs::create_directories(repo_folder() / "blobs");
  fs::create_directories(cache_ / "blobs/aa");
  write_file_atomic(cache_ / "blobs/aa/shared", "cut short");
  fs::create_symlink("../../blobs/aa/shared", repo_folder() / "blobs" / etag);
  const Snapshot snapshot = download();
  EXPECT_TRUE(read_text_file(snapshot.folder / "a.bin") == random_bytes(50'000));
  EXPECT_EQ(read_text_file(cache_ / "blobs/aa/shared"), "cut short");
}

TEST_F(SnapshotTest, WritesNothingOutsideTheCache) {
  const std::string commit = server_.commit(repo_, {{"a", "a"}});
  const std::string listing =
      R"([{"type": "file", "path": "../../../../escaped", "size": 1, "oid": ")" +
      git_blob_id(bytes("a")) + "\"}]";
  on([](const Request& request) { return request.path.find("/tree/") != std::string::npos; },
     {.body = listing, .headers = {{"Content-Length", std::to_string(listing.size())}}});
  EXPECT_EQ(error().fault(), HubFault::kMisbehaved);
  EXPECT_FALSE(fs::exists(folder_ / "escaped"));
  EXPECT_EQ(file_requests(), 0u);
}

TEST_F(SnapshotTest, MakesFilesWhereLinksAreTurnedOff) {
  environment_.symlinks = false;
  const std::string content = random_bytes(50'000);
  server_.commit(repo_, {{"a.bin", content}, {"b.bin", content}, {"c", "c"}});
  const Snapshot snapshot = download();
  for (const char* path : {"a.bin", "b.bin", "c"})
    EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(snapshot.folder / path))) << path;
  EXPECT_EQ(read_text_file(snapshot.folder / "b.bin"), content);
  EXPECT_TRUE(fs::is_empty(repo_folder() / "blobs"));
  server_.forget_requests();
  download(snapshot.commit);
  EXPECT_TRUE(server_.requests().empty());
}

// --- giving up and going on

TEST_F(SnapshotTest, LeavesNothingHalfWhenTheProgressFunctionGivesUp) {
  const std::string content = random_bytes(kLarge);
  server_.commit(repo_, {{"large.bin", content}});
  on_storage({.bytes_per_second = 20e6});
  EXPECT_EQ(error_of([&] {
              download("main", {.progress = [](const DownloadProgress& at) {
                         if (at.bytes > 20 * kMegabyte) fail("enough");
                       }});
            }),
            "enough");
  EXPECT_FALSE(fs::exists(repo_folder() / "snapshots"));
  ASSERT_EQ(incomplete_files(), 1u);

  // The same client, and what came is not fetched again.
  server_.forget_requests();
  server_.set_hook({});
  std::uint64_t all = 0;
  const Snapshot snapshot =
      download("main", {.progress = [&](const DownloadProgress& at) { all = at.all_bytes; }});
  EXPECT_TRUE(read_text_file(snapshot.folder / "large.bin") == content);
  EXPECT_LE(all, kLarge - 10 * kMegabyte);
  EXPECT_EQ(incomplete_files(), 0u);
}

TEST_F(SnapshotTest, EndsSoonAfterCancel) {
  server_.commit(repo_, {{"large.bin", random_bytes(20 * kMegabyte)}});
  on_storage({.bytes_per_second = 100e3});
  auto found = std::async(std::launch::async, [&] { return error_of([&] { download(); }); });
  while (server_.requests("GET", "/resolve/") == 0)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const auto begin = std::chrono::steady_clock::now();
  client().cancel();
  EXPECT_THAT(found.get(), HasSubstr("broken off"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  EXPECT_FALSE(fs::exists(repo_folder() / "snapshots"));
}

TEST_F(SnapshotTest, DoesNotTrustWhatWasLeftOverWithoutItsHash) {
  const std::string content = random_bytes(6 * kMegabyte);
  server_.commit(repo_, {{"large.bin", content}});
  const RepoCache cache(cache_, repo_);
  write_file_atomic(cache.incomplete_blob(sha256_hex(bytes(content))),
                    std::string(4 * kMegabyte, 'x'));
  const Snapshot snapshot = download();
  EXPECT_TRUE(read_text_file(snapshot.folder / "large.bin") == content);
  EXPECT_EQ(incomplete_files(), 0u);
}

TEST_F(SnapshotTest, FetchesEachBlobOnceWhenTwoDownloadAtOnce) {
  HubFiles files;
  for (int i = 0; i < 60; ++i)
    files[fmt::format("{}.bin", i)] = random_bytes(20'000, static_cast<unsigned>(i + 10));
  files["large.bin"] = random_bytes(6 * kMegabyte);
  server_.commit(repo_, files);
  server_.set_latency(std::chrono::milliseconds(20));
  std::vector<std::future<Snapshot>> downloads;
  for (int i = 0; i < 2; ++i)
    downloads.push_back(std::async(std::launch::async, [&] {
      HubClient own(environment_, options());  // a lock is held by an open file, not by a process
      return download_snapshot(own, repo_, "main", cache_);
    }));
  for (auto& future : downloads) {
    const Snapshot snapshot = future.get();
    for (const auto& [path, content] : files)
      EXPECT_TRUE(read_text_file(snapshot.folder / path) == content) << path;
  }
  EXPECT_EQ(server_.requests("GET", "/resolve/"), files.size());
}

TEST_F(SnapshotTest, WaitsForAProcessThatFetchesTheSameAndTakesWhatItBrought) {
  const std::string content = random_bytes(50'000);
  const std::string etag = sha256_hex(bytes(content));
  const std::string commit = server_.commit(repo_, {{"a.bin", content}});
  const RepoCache cache(cache_, repo_);
  auto held = cache.lock_blob(etag, std::chrono::seconds(0));
  ASSERT_TRUE(held);
  std::atomic<int> reports = 0;
  auto snapshot = std::async(std::launch::async, [&] {
    return download("main", {.progress = [&](const DownloadProgress&) { ++reports; }});
  });
  while (reports < 3) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(server_.requests("GET", "/resolve/"), 0u);
  write_file_atomic(cache.incomplete_blob(etag), content);
  fs::rename(cache.leftovers(etag).at(0), cache.blob(etag));
  held.reset();
  EXPECT_EQ(read_text_file(snapshot.get().folder / "a.bin"), content);
  EXPECT_EQ(server_.requests("GET", "/resolve/"), 0u);
}

// --- without the Hub

TEST_F(SnapshotTest, ServesFromTheCacheWhenTheHubMustNotBeAsked) {
  const std::string commit = server_.commit(repo_, files_);
  download();
  server_.forget_requests();
  EXPECT_STREQ(error_with(offline()).what(), "no error");
  EXPECT_STREQ(error_with(offline(), commit).what(), "no error");
  EXPECT_TRUE(server_.requests().empty());
}

TEST_F(SnapshotTest, NamesWhatTheCacheLacksOffline) {
  server_.commit(repo_, files_);
  EXPECT_THAT(error_with(offline()).what(),
              AllOf(HasSubstr("dataset robot/pusht at main"), HasSubstr("offline mode is on"),
                    HasSubstr("unset HF_HUB_OFFLINE")));
  download("main", only({"meta/"}));
  EXPECT_STREQ(error_with(offline(), "main", only({"meta/*"})).what(), "no error");
  const HubError found = error_with(offline());
  EXPECT_EQ(found.fault(), HubFault::kOffline);
  EXPECT_THAT(found.what(), AllOf(HasSubstr("lacks README.md, data/chunk-000/file 0.parquet, "
                                            "videos/cam#1/a[1].mp4"),
                                  HasSubstr(cache_.string())));
}

TEST_F(SnapshotTest, ServesFromTheCacheWithAWarningWhenTheHubIsUnreachable) {
  server_.commit(repo_, files_);
  download();
  ::testing::internal::CaptureStderr();
  EXPECT_STREQ(error_with(unreachable()).what(), "no error");
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("WARNING"), HasSubstr("going on with what the cache holds")));
  on([](const Request&) { return true; }, Behaviour::answer(503));
  EXPECT_STREQ(error().what(), "no error");
  EXPECT_EQ(hits_, 1) << "with something to fall back on, one attempt is enough";
}

TEST_F(SnapshotTest, TriesWithAllPatienceWhenTheCacheDoesNotSuffice) {
  server_.commit(repo_, files_);
  download("main", only({"meta/"}));
  on([](const Request&) { return true; }, Behaviour::answer(503), 2);
  EXPECT_STREQ(error().what(), "no error");
}

TEST_F(SnapshotTest, NamesWhatTheCacheLacksWhenTheHubIsUnreachable) {
  server_.commit(repo_, files_);
  download("main", only({"meta/"}));
  const HubError found = error_with(unreachable());
  EXPECT_EQ(found.fault(), HubFault::kUnreachable);
  EXPECT_THAT(found.what(), AllOf(HasSubstr("lacks README.md"), HasSubstr("127.0.0.1")));
  EXPECT_EQ(error_with(unreachable(), "v3.0").fault(), HubFault::kUnreachable);
}

TEST_F(SnapshotTest, NeverHidesARefusal) {
  server_.commit(repo_, files_);
  download();
  for (const auto& [behaviour, fault] : std::vector<std::pair<Behaviour, HubFault>>{
           {Behaviour::answer(404, {{"X-Error-Code", "RepoNotFound"}}), HubFault::kRepoNotFound},
           {Behaviour::answer(404, {{"X-Error-Code", "RevisionNotFound"}}),
            HubFault::kRevisionNotFound},
           {Behaviour::answer(401), HubFault::kUnauthorized},
           {Behaviour::answer(403, {{"X-Error-Code", "GatedRepo"}}), HubFault::kGated}}) {
    on([](const Request&) { return true; }, behaviour);
    EXPECT_EQ(error().fault(), fault);
  }
}

TEST_F(SnapshotTest, NamesAGatedRepository) {
  server_.commit(repo_, files_);
  server_.set_gated(repo_);
  const HubError found = error();
  EXPECT_EQ(found.fault(), HubFault::kGated);
  EXPECT_THAT(found.what(), HasSubstr("ask for access at"));
}

// Older clients keep no listing.
TEST_F(SnapshotTest, UsesACacheWithoutAListingWhenTheHubCannotBeAsked) {
  const std::string commit = server_.commit(repo_, files_);
  download();
  fs::remove_all(repo_folder() / "trees");
  ::testing::internal::CaptureStderr();
  EXPECT_STREQ(error_with(offline()).what(), "no error");
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("without a list of its files"));
  EXPECT_EQ(error_with(offline(), "main", only({"nothing/*"})).fault(), HubFault::kOffline);
}

TEST_F(SnapshotTest, FollowsARenamedRepositoryIntoTheFolderOfTheOldName) {
  server_.commit(repo_, files_);
  const Repo old{RepoType::kDataset, "robot/old"};
  server_.rename(old, repo_);
  const Snapshot snapshot = download_snapshot(client(), old, "main", cache_);
  EXPECT_EQ(snapshot.folder.parent_path().parent_path(), cache_ / "datasets--robot--old");
  EXPECT_EQ(read_text_file(snapshot.folder / "README.md"), files_.at("README.md"));
}

}  // namespace
}  // namespace lerobot::hub
