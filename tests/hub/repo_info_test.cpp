#include "lerobot/hub/repo_info.h"

#include <string>

#include <gmock/gmock.h>

#include "lerobot/base/digest.h"
#include "tests/hub/hub_fixture.h"

namespace lerobot::hub {
namespace {

using test_server::Behaviour;
using test_server::Request;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kSha1 = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391";

std::span<const std::uint8_t> bytes(const std::string& text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

class RepoInfo : public HubFixture {
 protected:
  void answer(std::string body) {
    server_.set_hook([body = std::move(body)](const Request&) -> std::optional<Behaviour> {
      Behaviour answer = Behaviour::answer(200);
      answer.body = body;
      return answer;
    });
  }

  std::string listing_error(const std::string& body) {
    answer(body);
    const HubError error = hub_error_of([&] { list_files(client(), repo_, std::string(40, 'a')); });
    if (error.fault() != HubFault::kMisbehaved) return "not refused";
    return error.what();
  }

  static std::string entry(const std::string& path, const std::string& size = "1",
                           const std::string& oid = kSha1, const std::string& more = "") {
    return fmt::format(R"([{{"type": "file", "path": "{}", "size": {}, "oid": "{}"{}}}])", path,
                       size, oid, more);
  }
};

TEST_F(RepoInfo, ResolvesBranchesAndTagsToCommits) {
  const std::string first = server_.commit(repo_, {{"a", "1"}});
  server_.tag(repo_, "v3.0", first);
  const std::string second = server_.commit(repo_, {{"a", "2"}});
  server_.commit(repo_, {{"a", "3"}}, "feat/x y");
  EXPECT_EQ(resolve_commit(client(), repo_, "v3.0"), first);
  EXPECT_EQ(resolve_commit(client(), repo_, "main"), second);
  EXPECT_EQ(resolve_commit(client(), repo_, "feat/x y").size(), 40u);
  EXPECT_EQ(server_.requests().back().raw_path, "/api/datasets/robot/pusht/revision/feat%2Fx%20y");
  server_.forget_requests();
  EXPECT_EQ(resolve_commit(client(), repo_, std::string(40, 'a')), std::string(40, 'a'));
  EXPECT_TRUE(server_.requests().empty()) << "a commit is itself";
}

TEST_F(RepoInfo, NamesAMissingRevision) {
  server_.commit(repo_, {{"a", "1"}});
  const HubError error = hub_error_of([&] { resolve_commit(client(), repo_, "v9"); });
  EXPECT_EQ(error.fault(), HubFault::kRevisionNotFound);
  EXPECT_THAT(error.what(), HasSubstr("dataset robot/pusht has no revision \"v9\""));
}

TEST_F(RepoInfo, RefusesACommitThatIsNone) {
  server_.commit(repo_, {{"a", "1"}});
  answer(R"({"id": "x", "sha": "main"})");
  EXPECT_EQ(hub_error_of([&] { resolve_commit(client(), repo_, "main"); }).fault(),
            HubFault::kMisbehaved);
}

TEST_F(RepoInfo, TellsWhetherARepositoryIsThere) {
  server_.commit(repo_, {{"a", "1"}});
  EXPECT_TRUE(repo_exists(client(), repo_));
  EXPECT_FALSE(repo_exists(client(), {RepoType::kDataset, "robot/nothing"}));
  server_.set_gated(repo_);
  EXPECT_TRUE(repo_exists(client(), repo_));
}

TEST_F(RepoInfo, TakesAPrivateRepositoryForMissingWithoutAToken) {
  server_.add_account({"hf_owner", "robot", true});
  server_.add_repo(repo_, true);
  EXPECT_FALSE(repo_exists(client(), repo_));
}

TEST_F(RepoInfo, DoesNotTakeAnInvalidTokenForAMissingRepository) {
  server_.add_account({"hf_owner", "robot", true});
  server_.add_repo(repo_);
  environment_.credentials = {.token = "hf_wrong", .origin = "HF_TOKEN"};
  const HubError error = hub_error_of([&] { repo_exists(client(), repo_); });
  EXPECT_EQ(error.fault(), HubFault::kUnauthorized);
  EXPECT_THAT(error.what(), HasSubstr("the token from HF_TOKEN was sent and isn't valid"));
}

TEST_F(RepoInfo, ListsBranchesAndTags) {
  const std::string commit = server_.commit(repo_, {{"a", "1"}});
  server_.tag(repo_, "v3.0", commit);
  const Refs refs = list_refs(client(), repo_);
  ASSERT_EQ(refs.branches.size(), 1u);
  EXPECT_EQ(refs.branches[0].name, "main");
  EXPECT_EQ(refs.branches[0].commit, commit);
  ASSERT_EQ(refs.tags.size(), 1u);
  EXPECT_EQ(refs.tags[0].name, "v3.0");
  EXPECT_EQ(refs.tags[0].commit, commit);
}

TEST_F(RepoInfo, RefusesRefsThatAreNone) {
  server_.commit(repo_, {{"a", "1"}});
  for (const char* body :
       {R"({"branches": []})", R"({"branches": [], "tags": [{"name": "x"}]})",
        R"({"branches": [{"name": "x", "targetCommit": "short"}], "tags": []})", "[]"}) {
    answer(body);
    EXPECT_EQ(hub_error_of([&] { list_refs(client(), repo_); }).fault(), HubFault::kMisbehaved)
        << body;
  }
}

TEST_F(RepoInfo, ListsFilesOverPagesWithSizesAndHashes) {
  const std::string large(5000, 'x');
  server_.set_page_size(2);
  const std::string commit = server_.commit(
      repo_, {{"meta/info.json", "{}"}, {"b", ""}, {"data/x.parquet", large}, {"z", "zz"}});
  const std::vector<RepoFile> files = list_files(client(), repo_, commit);
  ASSERT_EQ(files.size(), 4u);
  EXPECT_EQ(files[0].path, "b");
  EXPECT_EQ(files[0].etag(), kSha1);  // of an empty file
  EXPECT_EQ(files[1].path, "data/x.parquet");
  EXPECT_EQ(files[1].size, 5000u);
  EXPECT_EQ(files[1].etag(), sha256_hex(bytes(large)));
  EXPECT_EQ(files[2].path, "meta/info.json");
  EXPECT_EQ(files[2].etag(), git_blob_id(bytes("{}")));
  EXPECT_EQ(files[3].path, "z");
  EXPECT_GT(server_.requests("GET", "/tree/"), 1u);
}

TEST_F(RepoInfo, ListsAFolder) {
  const std::string commit = server_.commit(
      repo_, {{"videos/cam a/1.mp4", "1"}, {"videos/cam a/2.mp4", "2"}, {"videos/b/1.mp4", "3"}});
  const auto files = list_files(client(), repo_, commit, "videos/cam a");
  EXPECT_EQ(files.size(), 2u);
  EXPECT_EQ(server_.requests().back().raw_path,
            "/api/datasets/robot/pusht/tree/" + commit + "/videos%2Fcam%20a");
  EXPECT_EQ(hub_error_of([&] { list_files(client(), repo_, commit, "nothing"); }).fault(),
            HubFault::kEntryNotFound);
}

TEST_F(RepoInfo, RefusesListingsThatNoRepositoryHas) {
  server_.commit(repo_, {{"a", "1"}});
  for (const char* path : {"../a", "/etc/passwd", "a/../../b", "", "a//b", "a\\u0000b", "a\\nb"})
    EXPECT_THAT(listing_error(entry(path)), HasSubstr("doesn't stay in the repository")) << path;
  for (const char* size : {"-1", "1.5", "\"1\"", "null", "18446744073709551616"})
    EXPECT_THAT(listing_error(entry("a", size)), HasSubstr("\"size\"")) << size;
  EXPECT_THAT(listing_error(entry("a", "9223372036854775807")), HasSubstr("which no file has"));
  for (const char* oid : {"", "main", "../../x", "E69DE29BB2D1D6434B8B29AE775AD8C2E48C5391"})
    EXPECT_THAT(listing_error(entry("a", "1", oid)), HasSubstr("for a git hash")) << oid;
  EXPECT_THAT(listing_error(entry("a", "1", kSha1, R"(, "lfs": {"oid": "x", "size": 1})")),
              HasSubstr("expected 64 hexadecimal digits"));
  EXPECT_THAT(listing_error(R"([{"type": "file"}])"), HasSubstr("\"path\""));
  EXPECT_THAT(listing_error(R"({"error": "x"})"), HasSubstr("expected a JSON array"));
  EXPECT_THAT(listing_error(R"([5])"), HasSubstr("\"type\""));
  std::string twice = entry("a");
  twice.insert(twice.size() - 1, "," + entry("a").substr(1, entry("a").size() - 2));
  EXPECT_THAT(listing_error(twice), HasSubstr("lists a twice"));
}

TEST_F(RepoInfo, TakesEveryEntryThatIsNoFileForAFolder) {
  server_.commit(repo_, {{"a", "1"}});
  answer(R"([{"type": "directory", "path": "x"}, {"type": "submodule", "path": "y"}])");
  EXPECT_TRUE(list_files(client(), repo_, std::string(40, 'a')).empty());
}

}  // namespace
}  // namespace lerobot::hub
