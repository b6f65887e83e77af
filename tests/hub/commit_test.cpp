#include <algorithm>
#include <stdexcept>
#include <utility>

#include "lerobot/hub/upload.h"
#include "tests/hub/upload_fixture.h"

namespace lerobot::hub {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class Commit : public UploadTest {
 protected:
  std::size_t commits() const { return server_.history(repo_, "main").size(); }
  std::string head() const { return server_.history(repo_, "main").front().first; }

  static std::vector<Json> lines_of(const Request& request) {
    std::vector<Json> lines;
    std::istringstream text(request.body);
    for (std::string line; std::getline(text, line);) lines.push_back(Json::parse(line));
    return lines;
  }
};

TEST_F(Commit, AddsRegularAndLargeFilesTogether) {
  const std::string parent = head();
  const std::string weights(5'000, 'w');
  const CommitResult result =
      upload_commit(client_, repo_,
                    {.message = "Upload policy\n\nMore about it",
                     .files = {{"config.json", std::string("{}")},
                               {"deep/model.safetensors", write("model", weights)}}});
  EXPECT_EQ(server_.file(repo_, "main", "config.json"), "{}");
  EXPECT_EQ(server_.file(repo_, "main", "deep/model.safetensors"), weights);
  EXPECT_EQ(result.commit, head());
  EXPECT_EQ(result.url, server_.endpoint() + "/datasets/tester/data/commit/" + head());
  EXPECT_FALSE(result.unchanged);
  EXPECT_EQ(server_.history(repo_, "main").front().second, "Upload policy\n\nMore about it");

  const auto posts = sent("POST", "/commit/main");
  ASSERT_EQ(posts.size(), 1u);
  EXPECT_EQ(posts[0].header("content-type"), "application/x-ndjson");
  EXPECT_EQ(posts[0].body.back(), '\n');
  const Json sha256 =
      sha256_hex({reinterpret_cast<const std::uint8_t*>(weights.data()), weights.size()});
  EXPECT_THAT(
      lines_of(posts[0]),
      ElementsAre(
          Json{{"key", "header"},
               {"value",
                {{"summary", "Upload policy"},
                 {"description", "More about it"},
                 {"parentCommit", parent}}}},
          Json{{"key", "file"},
               {"value", {{"content", "e30="}, {"path", "config.json"}, {"encoding", "base64"}}}},
          Json{{"key", "lfsFile"},
               {"value",
                {{"path", "deep/model.safetensors"},
                 {"algo", "sha256"},
                 {"oid", sha256},
                 {"size", 5'000}}}}));
}

TEST_F(Commit, GoesToABranchWithASlash) {
  server_.commit(repo_, {}, "side/branch");
  upload_commit(client_, repo_,
                {.branch = "side/branch", .message = "m", .files = {{"a", std::string("a")}}});
  EXPECT_EQ(server_.file(repo_, "side/branch", "a"), "a");
  EXPECT_EQ(server_.file(repo_, "main", "a"), std::nullopt);
}

TEST_F(Commit, HoldsOnlyWhatIsNew) {
  const std::string large(5'000, 'l');
  server_.commit(repo_, {{"same.txt", "same"}, {"same.bin", large}, {"other.txt", "old"}});
  upload(
      {{"same.txt", std::string("same")}, {"same.bin", large}, {"other.txt", std::string("new")}});
  EXPECT_EQ(lines_of(sent("POST", "/commit/").at(0)).size(), 2u);  // the header and a file
  EXPECT_TRUE(sent("POST", "objects/batch").empty());
  EXPECT_EQ(server_.file(repo_, "main", "other.txt"), "new");
}

TEST_F(Commit, IsNotMadeWhenNothingIsNew) {
  server_.commit(repo_, {{"a.txt", "a"}});
  const std::size_t before = commits();
  const CommitResult result = upload({{"a.txt", std::string("a")}});
  EXPECT_TRUE(result.unchanged);
  EXPECT_EQ(result.commit, head());
  EXPECT_EQ(result.url, server_.endpoint() + "/datasets/tester/data/commit/" + head());
  EXPECT_EQ(commits(), before);
  EXPECT_TRUE(sent("POST", "/commit/").empty());
  EXPECT_TRUE(upload({}).unchanged);
}

TEST_F(Commit, AsksAboutFilesInParts) {
  std::vector<UploadFile> files;
  for (int i = 0; i < 300; ++i)
    files.push_back({fmt::format("{:03}.txt", i), fmt::format("{}", i)});
  upload(files);
  const auto asked = sent("POST", "/preupload/main");
  ASSERT_EQ(asked.size(), 2u);
  EXPECT_EQ(Json::parse(asked[0].body)["files"].size(), 256u);
  EXPECT_EQ(Json::parse(asked[1].body)["files"].size(), 44u);
  EXPECT_EQ(Json::parse(asked[0].body)["files"][7],
            Json::parse(R"({"path":"007.txt","sample":"Nw==","size":1})"));
  EXPECT_EQ(sent("POST", "/commit/").size(), 1u);
  EXPECT_EQ(server_.file(repo_, "main", "299.txt"), "299");
}

TEST_F(Commit, ShowsTheHubTheFirst512BytesOfAFile) {
  upload({{"a.txt", std::string(600, 'a')}});
  const Json asked = Json::parse(sent("POST", "/preupload/").at(0).body);
  EXPECT_EQ(asked["files"][0]["sample"].get<std::string>().size(), 684u);  // 512 * 4 / 3, padded
}

TEST_F(Commit, HasEmptyFilesAsRegularOnesWhateverTheHubSays) {
  always("POST", "/preupload/",
         json(200, R"({"files":[{"path":"e.bin","uploadMode":"lfs","shouldIgnore":false}]})"));
  upload({{"e.bin", std::string()}});
  EXPECT_EQ(server_.file(repo_, "main", "e.bin"), "");
  EXPECT_TRUE(sent("POST", "objects/batch").empty());
}

TEST_F(Commit, LeavesOutWhatAnUploadedGitignoreNames) {
  upload({{".gitignore", std::string("*.log\n")},
          {"a.txt", std::string("a")},
          {"train.log", std::string("l")}});
  EXPECT_EQ(server_.file(repo_, "main", "a.txt"), "a");
  EXPECT_EQ(server_.file(repo_, "main", "train.log"), std::nullopt);
}

TEST_F(Commit, FollowsWhatOthersCommitMeanwhile) {
  on("POST", "/commit/", [this](int number) -> std::optional<Behaviour> {
    if (number < 2) server_.commit(repo_, {{fmt::format("other{}.txt", number), "o"}});
    return std::nullopt;
  });
  const CommitResult result = upload({{"ours.txt", std::string("ours")}});
  EXPECT_EQ(result.commit, head());
  EXPECT_EQ(server_.file(repo_, "main", "ours.txt"), "ours");
  EXPECT_EQ(server_.file(repo_, "main", "other1.txt"), "o");
  EXPECT_EQ(sent("POST", "/commit/").size(), 3u);
  EXPECT_EQ(sent("POST", "/preupload/").size(), 3u);  // looked at again each time
  EXPECT_EQ(commits(), 4u);
}

TEST_F(Commit, IsNotNeededWhenSomebodyElseHasJustMadeTheSame) {
  on("POST", "/commit/", [this](int number) -> std::optional<Behaviour> {
    if (number == 0) server_.commit(repo_, {{"a.txt", "a"}});
    return std::nullopt;
  });
  const CommitResult result = upload({{"a.txt", std::string("a")}});
  EXPECT_TRUE(result.unchanged);
  EXPECT_EQ(result.commit, head());
  EXPECT_EQ(commits(), 2u);
}

TEST_F(Commit, GivesUpWhenOthersAreAlwaysFaster) {
  on("POST", "/commit/", [this](int number) -> std::optional<Behaviour> {
    server_.commit(repo_, {{"other.txt", fmt::format("{}", number)}});
    return std::nullopt;
  });
  EXPECT_EQ(fault_of([&] { upload({{"a.txt", std::string("a")}}); }), HubFault::kStaleParent);
  EXPECT_EQ(sent("POST", "/commit/").size(), 5u);
  EXPECT_EQ(server_.file(repo_, "main", "a.txt"), std::nullopt);
}

TEST_F(Commit, IsMadeOnceWhenItsAnswerIsLost) {
  Behaviour lost;
  lost.lose_answer = true;
  for (const bool others_follow : {false, true}) {
    bool committed = false, followed = false;
    server_.set_hook([&](const Request& request) -> std::optional<Behaviour> {
      if (committed && others_follow && !std::exchange(followed, true))
        server_.commit(repo_, {{"other.txt", "o"}});
      if (request.path.find("/commit/") == std::string::npos || std::exchange(committed, true))
        return std::nullopt;
      return lost;
    });
    const std::size_t before = commits();
    const CommitResult result =
        upload({{"a.txt", fmt::format("{}", others_follow)}, {"b.bin", std::string(5'000, 'b')}});
    const auto history = server_.history(repo_, "main");
    EXPECT_EQ(history.size(), before + (others_follow ? 2 : 1));
    EXPECT_EQ(result.commit, history.at(others_follow ? 1 : 0).first);
    EXPECT_EQ(history.at(others_follow ? 1 : 0).second, "Upload");
    EXPECT_EQ(sent("POST", "/commit/").size(), others_follow ? 2u : 1u);  // of both rounds
    EXPECT_FALSE(result.unchanged);
  }
}

TEST_F(Commit, IsRepeatedWhenItDidNotArrive) {
  Behaviour reset;
  reset.reset = true;
  once("POST", "/commit/", reset);
  const CommitResult result = upload({{"a.txt", std::string("a")}});
  EXPECT_EQ(commits(), 2u);
  EXPECT_EQ(result.commit, head());
  EXPECT_EQ(sent("POST", "/commit/").size(), 2u);
}

TEST_F(Commit, IsRepeatedWhenTheHubSaysLater) {
  for (const int status : {429, 500, 503}) {
    once("POST", "/commit/", Behaviour::answer(status));
    upload({{"a.txt", fmt::format("{}", status)}});
    EXPECT_EQ(server_.file(repo_, "main", "a.txt"), fmt::format("{}", status));
  }
  EXPECT_EQ(commits(), 4u);
}

TEST_F(Commit, IsNotRepeatedWhenTheHubRefuses) {
  always("POST", "/commit/", json(403, R"({"error":"Forbidden: pass create_pr=1"})"));
  const std::string message = error_of([&] { upload({{"a.txt", std::string("a")}}); });
  EXPECT_THAT(message, AllOf(HasSubstr("tester/data"), HasSubstr("commit to the branch main"),
                             HasSubstr("pass create_pr=1"), HasSubstr("HF_TOKEN")));
  EXPECT_EQ(sent("POST", "/commit/").size(), 1u);
}

TEST_F(Commit, NamesABranchOrRepositoryThatIsMissing) {
  EXPECT_EQ(fault_of([&] {
              upload_commit(client_, repo_,
                            {.branch = "nowhere", .message = "m", .files = {{"a", std::string()}}});
            }),
            HubFault::kRevisionNotFound);
  EXPECT_EQ(fault_of([&] {
              upload_commit(client_, {RepoType::kModel, "tester/nothing"},
                            {.message = "m", .files = {{"a", std::string()}}});
            }),
            HubFault::kRepoNotFound);
}

TEST_F(Commit, RefusesFilesThatAreNone) {
  EXPECT_THAT(error_of([&] { upload({{"a", folder_ / "missing"}}); }), HasSubstr("missing"));
  EXPECT_THAT(error_of([&] { upload({{"a", folder_}}); }), HasSubstr("it is no file"));
  EXPECT_TRUE(server_.requests().empty());
}

TEST_F(Commit, RefusesPathsThatNoRepositoryTakes) {
  for (const char* path : {"", "/a", "../a", "a/../b", "a//b", "a/", "./a", "a\nb", "a\xff"})
    EXPECT_THAT(error_of([&] {
                  upload({{path, std::string("x")}});
                }),
                HasSubstr("can't be the path of an uploaded file"))
        << path;
  for (const char* path : {".git/config", "a/.git/b", ".cache/huggingface/x"})
    EXPECT_THAT(error_of([&] {
                  upload({{path, std::string("x")}});
                }),
                HasSubstr("belong to tools"));
  EXPECT_THAT(error_of([&] {
                upload({{"a", std::string("x")}, {"a", std::string("y")}});
              }),
              HasSubstr("given twice"));
  EXPECT_THAT(error_of([&] { upload_commit(client_, repo_, {.message = "", .files = {}}); }),
              HasSubstr("needs a message"));
  EXPECT_TRUE(server_.requests().empty());
}

TEST_F(Commit, RefusesMoreRegularContentThanACommitTakes) {
  server_.set_large_from(1'000'000'000);
  const fs::path file = write("large.txt", "");
  fs::resize_file(file, 100'000'001);
  const std::string message = error_of([&] { upload({{"large.txt", file}}); });
  EXPECT_THAT(message, AllOf(HasSubstr("1 regular files with 100000001 bytes"),
                             HasSubstr(".gitattributes")));
  EXPECT_TRUE(sent("POST", "/commit/").empty());
}

TEST_F(Commit, FailsWhenAFileChangesMeanwhile) {
  const fs::path regular = write("a.txt", "before");
  on("POST", "/preupload/", [&](int) -> std::optional<Behaviour> {
    write("a.txt", "after, and longer");
    return std::nullopt;
  });
  EXPECT_THAT(error_of([&] {
                upload({{"a.txt", regular}});
              }),
              AllOf(HasSubstr("a.txt"), HasSubstr("changed while it was uploaded")));

  const fs::path large = write("b.bin", std::string(5'000, 'b'));
  on("PUT", "/uploads/", [&](int) -> std::optional<Behaviour> {
    fs::last_write_time(large, fs::last_write_time(large) + std::chrono::seconds(1));
    return std::nullopt;
  });
  EXPECT_THAT(error_of([&] {
                upload({{"b.bin", large}});
              }),
              HasSubstr("changed while it was uploaded"));
  EXPECT_EQ(commits(), 1u);
}

TEST_F(Commit, NamesAnAnswerThatNoHubGives) {
  for (const char* body :
       {"{}", R"({"files":[]})", R"({"files":[{"path":"a","shouldIgnore":false}]})",
        R"({"files":[{"path":"a","uploadMode":"pigeon","shouldIgnore":false}]})", "<html>"}) {
    always("POST", "/preupload/", json(200, body));
    EXPECT_EQ(fault_of([&] { upload({{"a", std::string("a")}}); }), HubFault::kMisbehaved) << body;
  }
  always("POST", "/commit/", json(200, "{}"));
  EXPECT_EQ(fault_of([&] { upload({{"a", std::string("a")}}); }), HubFault::kMisbehaved);
}

TEST_F(Commit, FollowsARepositoryThatWasRenamed) {
  const Repo old{RepoType::kDataset, "tester/old"};
  const Repo renamed{RepoType::kDataset, "tester/new"};
  server_.add_repo(old);
  server_.rename(old, renamed);
  upload_commit(
      client_, old,
      {.message = "m", .files = {{"a.txt", std::string("a")}, {"b.bin", std::string(5'000, 'b')}}});
  EXPECT_EQ(server_.file(renamed, "main", "a.txt"), "a");
  EXPECT_EQ(server_.file(renamed, "main", "b.bin"), std::string(5'000, 'b'));
}

TEST_F(Commit, TellsItsProgressOnTheCallingThread) {
  std::vector<TransferProgress> seen;
  const auto caller = std::this_thread::get_id();
  server_.set_latency(std::chrono::milliseconds(100));
  UploadOptions options;
  options.progress = [&](const TransferProgress& at) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    seen.push_back(at);
  };
  server_.commit(repo_, {{"stored.bin", std::string(7'000, 's')}});
  upload({{"a.bin", std::string(3'000, 'a')},
          {"b.bin", std::string(5'000, 'b')},
          {"stored.bin", std::string(7'000, 's')}},
         options);
  ASSERT_GE(seen.size(), 2u);  // while it went on, and at the end
  EXPECT_EQ(seen.back().files, 2u);
  EXPECT_EQ(seen.back().all_files, 2u);
  EXPECT_EQ(seen.back().bytes, 8'000u);
  EXPECT_EQ(seen.back().all_bytes, 8'000u);
}

TEST_F(Commit, EndsWhenTheCallerGivesUp) {
  server_.set_latency(std::chrono::milliseconds(300));
  UploadOptions options;
  options.progress = [](const TransferProgress&) { throw std::runtime_error("enough"); };
  try {
    upload({{"a.bin", std::string(3'000, 'a')}}, options);
    FAIL() << "it went on";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "enough");
  }
  EXPECT_EQ(commits(), 1u);
}

TEST_F(Commit, EndsWhenTheClientIsCancelled) {
  on("PUT", "/uploads/", [&](int) -> std::optional<Behaviour> {
    client_.cancel();
    return std::nullopt;
  });
  EXPECT_THROW(upload({{"a.bin", std::string(3'000, 'a')}}), Error);
  EXPECT_EQ(commits(), 1u);
}

TEST_F(Commit, IsNotTriedOffline) {
  HubEnvironment offline = environment();
  offline.offline = true;
  HubClient client(offline);
  EXPECT_EQ(fault_of([&] {
              upload_commit(client, repo_, {.message = "m", .files = {{"a", std::string()}}});
            }),
            HubFault::kOffline);
  EXPECT_TRUE(server_.requests().empty());
}

}  // namespace
}  // namespace lerobot::hub
