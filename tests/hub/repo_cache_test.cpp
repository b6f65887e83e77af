#include "lerobot/hub/repo_cache.h"

#include <filesystem>
#include <string>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <gmock/gmock.h>

#include "lerobot/base/files.h"
#include "tests/support/error_of.h"

namespace lerobot::hub {
namespace {

using ::testing::HasSubstr;

const std::string kCommit(40, 'c');
const std::string kEtag(64, 'e');
constexpr const char* kSha1 = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391";

class RepoCacheTest : public ::testing::Test {
 protected:
  RepoCacheTest() { fs::create_directories(root_); }
  ~RepoCacheTest() override { fs::remove_all(root_); }

  void put_blob(const std::string& etag, const std::string& content) const {
    fs::create_directories(folder() / "blobs");
    write_file_atomic(folder() / "blobs" / etag, content);
  }

  fs::path folder() const { return root_ / "cache/datasets--robot--pusht"; }

  const fs::path root_ =
      fs::temp_directory_path() /
      fmt::format("lerobot_repo_cache_test.{}.{}", ::getpid(),
                  ::testing::UnitTest::GetInstance()->current_test_info()->name());
  const RepoCache cache_{root_ / "cache", {RepoType::kDataset, "robot/pusht"}};
};

TEST_F(RepoCacheTest, RemembersCommitsWithoutALineBreak) {
  EXPECT_FALSE(cache_.commit_of("main"));
  cache_.remember("main", kCommit);
  cache_.remember("refs/pr/1", kCommit);
  EXPECT_EQ(read_text_file(folder() / "refs/main"), kCommit);
  EXPECT_EQ(read_text_file(folder() / "refs/refs/pr/1"), kCommit);
  EXPECT_EQ(cache_.commit_of("main"), kCommit);
  cache_.remember("main", std::string(40, 'd'));
  EXPECT_EQ(cache_.commit_of("main"), std::string(40, 'd'));
  cache_.remember(kCommit, kCommit);
  EXPECT_FALSE(fs::exists(folder() / "refs" / kCommit));
  EXPECT_EQ(cache_.commit_of(kCommit), kCommit);
  int files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder() / "refs"))
    files += entry.is_regular_file();
  EXPECT_EQ(files, 2) << "no temporary stays";
}

TEST_F(RepoCacheTest, TakesADamagedRefForNone) {
  fs::create_directories(folder() / "refs");
  for (const std::string& text : {std::string(), std::string("main"), std::string(39, 'c'),
                                  std::string(40, 'C'), kCommit + kCommit}) {
    write_file_atomic(folder() / "refs/main", text);
    EXPECT_FALSE(cache_.commit_of("main")) << text;
  }
  write_file_atomic(folder() / "refs/main", kCommit + "\n");  // made by hand
  EXPECT_EQ(cache_.commit_of("main"), kCommit);
  fs::create_directories(folder() / "refs/branch");
  EXPECT_FALSE(cache_.commit_of("branch"));
}

TEST_F(RepoCacheTest, PlacesRelativeLinks) {
  put_blob(kEtag, "content");
  cache_.place(kCommit, {"a.txt", "videos/cam a/0.mp4"}, kEtag, true);
  const fs::path snapshot = folder() / "snapshots" / kCommit;
  EXPECT_EQ(fs::read_symlink(snapshot / "a.txt"), "../../blobs/" + kEtag);
  EXPECT_EQ(fs::read_symlink(snapshot / "videos/cam a/0.mp4"), "../../../../blobs/" + kEtag);
  EXPECT_EQ(cache_.find(kCommit, "a.txt"), snapshot / "a.txt");
  EXPECT_EQ(read_text_file(*cache_.find(kCommit, "videos/cam a/0.mp4")), "content");
}

TEST_F(RepoCacheTest, ReplacesWhatIsInTheWayOfALink) {
  put_blob(kEtag, "content");
  const fs::path snapshot = folder() / "snapshots" / kCommit;
  fs::create_directories(snapshot);
  write_file_atomic(snapshot / "file", "a file");
  fs::create_symlink("../../blobs/gone", snapshot / "dangling");
  cache_.place(kCommit, {"file", "dangling"}, kEtag, true);
  EXPECT_EQ(read_text_file(snapshot / "file"), "content");
  EXPECT_EQ(read_text_file(snapshot / "dangling"), "content");
}

TEST_F(RepoCacheTest, FindsNoFileWhoseBlobIsMissingOrOfAnotherSize) {
  put_blob(kEtag, "content");
  cache_.place(kCommit, {"a"}, kEtag, true);
  const RepoFile file{.path = "a", .size = 7, .blob_id = kSha1, .lfs_sha256 = kEtag};
  EXPECT_TRUE(cache_.find(kCommit, file));
  EXPECT_TRUE(cache_.has_blob(kEtag, 7));
  put_blob(kEtag, "cont");
  EXPECT_FALSE(cache_.find(kCommit, file)) << "cut short";
  EXPECT_FALSE(cache_.has_blob(kEtag, 7));
  fs::remove(folder() / "blobs" / kEtag);
  EXPECT_FALSE(cache_.find(kCommit, "a")) << "a dangling link";
  EXPECT_FALSE(cache_.find(kCommit, "b"));
  fs::create_directories(folder() / "snapshots" / kCommit / "folder");
  EXPECT_FALSE(cache_.find(kCommit, "folder"));
}

// What Xet downloads of huggingface_hub make: the blob is a link into a store of all repositories.
TEST_F(RepoCacheTest, FollowsLinksThroughTheSharedStore) {
  const std::string xet(64, 'f');
  fs::create_directories(root_ / "cache/blobs/ff");
  write_file_atomic(root_ / "cache/blobs/ff" / xet, "shared");
  fs::create_directories(folder() / "blobs");
  fs::create_symlink("../../blobs/ff/" + xet, folder() / "blobs" / kEtag);
  EXPECT_TRUE(cache_.has_blob(kEtag, 6));
  cache_.place(kCommit, {"a"}, kEtag, true);
  EXPECT_EQ(read_text_file(*cache_.find(kCommit, "a")), "shared");
}

TEST_F(RepoCacheTest, MakesFilesWhereLinksAreNotWanted) {
  const RepoCache plain(root_ / "cache", {RepoType::kDataset, "robot/pusht"}, false);
  put_blob(kEtag, "content");
  plain.place(kCommit, {"a", "b/c"}, kEtag, false);
  for (const char* path : {"a", "b/c"}) {
    const fs::path file = folder() / "snapshots" / kCommit / path;
    EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(file)));
    EXPECT_EQ(read_text_file(file), "content");
  }
  EXPECT_FALSE(plain.has_blob(kEtag, 7)) << "it became one of the files";
  put_blob(kEtag, "content");
  plain.place(std::string(40, 'd'), {"a"}, kEtag, true);
  EXPECT_TRUE(plain.has_blob(kEtag, 7)) << "other snapshots lead to it";
}

TEST_F(RepoCacheTest, KeepsListingsAsPythonWritesThem) {
  const std::vector<RepoFile> files = {
      {.path = "a\xc3\xa9", .size = 0, .blob_id = kSha1},
      {.path = "b", .size = 5, .blob_id = kSha1, .lfs_sha256 = kEtag, .xet_hash = kEtag}};
  cache_.remember_listing(kCommit, files);
  const fs::path file = folder() / "trees" / (kCommit + ".json");
  // json.dump(..., indent=1) of huggingface_hub's own form.
  EXPECT_EQ(read_text_file(file), std::string(R"({
 "format_version": 1,
 "files": {
  "a\u00e9": {
   "size": 0,
   "blob_id": "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
  },
  "b": {
   "size": 5,
   "blob_id": "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391",
   "lfs_sha256": ")" + kEtag + R"(",
   "lfs_size": 5,
   "xet_hash": ")" + kEtag + R"("
  }
 }
})"));
  struct stat status {};
  ASSERT_EQ(::stat(file.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  EXPECT_EQ(cache_.listing(kCommit), files);
}

TEST_F(RepoCacheTest, TakesADamagedListingForNone) {
  fs::create_directories(folder() / "trees");
  const auto read = [&](const std::string& text) {
    write_file_atomic(folder() / "trees" / (kCommit + ".json"), text);
    return cache_.listing(kCommit).has_value();
  };
  const auto with = [](const std::string& path, const std::string& item) {
    return R"({"format_version": 1, "files": {")" + path + "\": " + item + "}}";
  };
  const std::string good = std::string(R"({"size": 1, "blob_id": ")") + kSha1 + "\"}";
  EXPECT_TRUE(read(with("a", good)));
  EXPECT_TRUE(read(R"({"format_version": 1, "files": {}})"));
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("[]"), std::string("{}"),
        std::string(R"({"format_version": 2, "files": {}})"),
        std::string(R"({"format_version": 1, "files": []})") + "x", with("../a", good),
        with("a", "{}"), with("a", "5"), with("a", R"({"size": "1", "blob_id": "x"})"),
        with("a", R"({"size": -1, "blob_id": "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"})"),
        with("a", R"({"size": 1, "blob_id": "../../../x"})")})
    EXPECT_FALSE(read(text)) << text;
}

TEST_F(RepoCacheTest, LetsNoNameLeaveItsFolder) {
  for (const char* name : {"../x", "/x", "a/../../x", "", ".."}) {
    EXPECT_THAT(error_of([&] { cache_.find(kCommit, name); }), HasSubstr("is no path")) << name;
    EXPECT_THAT(error_of([&] { cache_.commit_of(name); }), HasSubstr("is no revision")) << name;
    EXPECT_THAT(error_of([&] { cache_.remember(name, kCommit); }), HasSubstr("is no revision"));
    EXPECT_THAT(error_of([&] { cache_.snapshot(name); }), HasSubstr("is no commit")) << name;
    EXPECT_THAT(error_of([&] { cache_.blob(name); }), HasSubstr("is no ETag")) << name;
    EXPECT_THAT(error_of([&] { cache_.place(kCommit, {name}, kEtag, true); }),
                HasSubstr("is no path"))
        << name;
  }
}

// The real client locks with flock(2); POSIX record locks would not see each other's.
TEST_F(RepoCacheTest, LocksBlobsAsThePythonClientDoes) {
  const fs::path file = root_ / "cache/.locks/datasets--robot--pusht" / (kEtag + ".lock");
  {
    const auto lock = cache_.lock_blob(kEtag, std::chrono::seconds(0));
    ASSERT_TRUE(lock);
    EXPECT_TRUE(lock->exclusive());
    const UniqueFd other(::open(file.c_str(), O_RDWR | O_CLOEXEC));
    EXPECT_NE(::flock(other.get(), LOCK_EX | LOCK_NB), 0);
    EXPECT_FALSE(cache_.lock_blob(kEtag, std::chrono::seconds(0)));
  }
  const UniqueFd other(::open(file.c_str(), O_RDWR | O_CLOEXEC));
  EXPECT_EQ(::flock(other.get(), LOCK_EX | LOCK_NB), 0);
  EXPECT_FALSE(cache_.lock_blob(kEtag, std::chrono::milliseconds(1)));
  int waited = 0;
  EXPECT_EQ(error_of([&] {
              cache_.lock_blob(kEtag, std::chrono::hours(1), [&] {
                if (++waited == 2) fail("given up");
              });
            }),
            "given up");
}

TEST_F(RepoCacheTest, FindsIncompleteBlobsOfOneEtag) {
  const fs::path first = cache_.incomplete_blob(kEtag);
  EXPECT_EQ(first.parent_path(), folder() / "blobs");
  EXPECT_THAT(first.filename().string(),
              ::testing::MatchesRegex(kEtag + "\\.[0-9a-f]{8}\\.incomplete"));
  EXPECT_NE(first, cache_.incomplete_blob(kEtag));
  for (const fs::path& path :
       {first, folder() / "blobs" / (kEtag + ".incomplete"), folder() / "blobs" / kEtag,
        folder() / "blobs" / (std::string(64, 'd') + ".01234567.incomplete")})
    write_file_atomic(path, "x");
  EXPECT_EQ(cache_.leftovers(kEtag), std::vector<fs::path>{first});
}

TEST_F(RepoCacheTest, IsMarkedAsACache) {
  cache_.incomplete_blob(kEtag);
  // https://bford.info/cachedir
  EXPECT_THAT(read_text_file(root_ / "cache/CACHEDIR.TAG"),
              ::testing::StartsWith("Signature: 8a477f597d28d172789f06886806bc55\n"));
}

}  // namespace
}  // namespace lerobot::hub
