// Downloads that meet difficulties.
#include <atomic>
#include <filesystem>
#include <future>
#include <set>
#include <string>
#include <thread>

#include <gmock/gmock.h>

#include "lerobot/base/digest.h"
#include "lerobot/hub/snapshot.h"
#include "tests/hub/snapshot_fixture.h"
#include "tests/support/error_of.h"

namespace lerobot::hub {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

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
              download("main", {.progress = [](const TransferProgress& at) {
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
      download("main", {.progress = [&](const TransferProgress& at) { all = at.all_bytes; }});
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
    return download("main", {.progress = [&](const TransferProgress&) { ++reports; }});
  });
  while (reports < 3) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(server_.requests("GET", "/resolve/"), 0u);
  write_file_atomic(cache.incomplete_blob(etag), content);
  fs::rename(cache.leftovers(etag).at(0), cache.blob(etag));
  held.reset();
  EXPECT_EQ(read_text_file(snapshot.get().folder / "a.bin"), content);
  EXPECT_EQ(server_.requests("GET", "/resolve/"), 0u);
}

}  // namespace
}  // namespace lerobot::hub
