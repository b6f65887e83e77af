#include "lerobot/hub/snapshot.h"

#include <filesystem>
#include <set>
#include <string>
#include <thread>

#include <gmock/gmock.h>

#include "lerobot/base/digest.h"
#include "tests/hub/snapshot_fixture.h"
#include "tests/support/error_of.h"

namespace lerobot::hub {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

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
  TransferProgress last;
  const auto thread = std::this_thread::get_id();
  download("main", {.progress = [&](const TransferProgress& at) {
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
