#include "lerobot/hub/upload.h"

#include "tests/hub/upload_fixture.h"

namespace lerobot::hub {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class CreateRepo : public UploadTest {};

TEST_F(CreateRepo, MakesOneOfTheRightKindAndReturnsItsPage) {
  const Repo model{RepoType::kModel, "tester/policy"};
  EXPECT_EQ(create_repo(client_, model, true), server_.endpoint() + "/tester/policy");
  const Repo dataset{RepoType::kDataset, "tester/new"};
  EXPECT_EQ(create_repo(client_, dataset, std::nullopt),
            server_.endpoint() + "/datasets/tester/new");
  const auto requests = sent("POST", "/api/repos/create");
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(Json::parse(requests[0].body),
            Json::parse(R"({"name":"policy","organization":"tester","visibility":"private"})"));
  EXPECT_EQ(Json::parse(requests[1].body),
            Json::parse(R"({"name":"new","organization":"tester","type":"dataset"})"));
  EXPECT_EQ(requests[0].header("authorization"), "Bearer hf_test");
  EXPECT_THAT(server_.files(dataset, "main"), ElementsAre(".gitattributes"));
}

TEST_F(CreateRepo, LeavesOneThatIsThere) {
  server_.commit(repo_, {{"a.txt", "a"}});
  EXPECT_EQ(create_repo(client_, repo_, true), server_.endpoint() + "/datasets/tester/data");
  EXPECT_EQ(server_.file(repo_, "main", "a.txt"), "a");
}

TEST_F(CreateRepo, IsContentWithOneThatIsThereWhenItMayNotCreate) {
  for (const int status : {401, 402, 403}) {
    always("POST", "/api/repos/create", json(status, R"({"error":"no rights"})"));
    EXPECT_EQ(create_repo(client_, repo_, false), server_.endpoint() + "/datasets/tester/data");
  }
}

TEST_F(CreateRepo, SaysWhyItMayNotCreateWhenNothingIsThere) {
  always("POST", "/api/repos/create", json(403, R"({"error":"no rights to create here"})"));
  const Repo missing{RepoType::kDataset, "other/data"};
  const std::string message = error_of([&] { create_repo(client_, missing, false); });
  EXPECT_THAT(message, HasSubstr("other/data"));
  EXPECT_THAT(message, HasSubstr("no rights to create here"));
  EXPECT_THAT(message, HasSubstr("HF_TOKEN"));
}

TEST_F(CreateRepo, AsksAgainWhileTheHubIsAtTheSameRepository) {
  once(
      "POST", "/api/repos/create",
      json(409, R"({"error":"Cannot create repo: another conflicting operation is in progress"})"));
  const Repo dataset{RepoType::kDataset, "tester/new"};
  create_repo(client_, dataset, std::nullopt);
  EXPECT_EQ(sent("POST", "/api/repos/create").size(), 2u);
  EXPECT_THAT(server_.files(dataset, "main"), ElementsAre(".gitattributes"));
}

TEST_F(CreateRepo, SendsNoOwnerForANameAlone) {
  create_repo(client_, {RepoType::kModel, "policy"}, std::nullopt);
  EXPECT_EQ(Json::parse(sent("POST", "/api/repos/create").at(0).body),
            Json::parse(R"({"name":"policy","organization":null})"));
}

class CreateRef : public UploadTest {
 protected:
  const std::string head_ = server_.commit(repo_, {{"a.txt", "a"}});
};

TEST_F(CreateRef, StartsABranchAtACommit) {
  server_.commit(repo_, {{"b.txt", "b"}});
  create_branch(client_, repo_, "feature/x", head_);
  EXPECT_EQ(server_.history(repo_, "feature/x").front().first, head_);
  EXPECT_EQ(server_.file(repo_, "feature/x", "b.txt"), std::nullopt);
}

TEST_F(CreateRef, LeavesABranchThatIsThere) {
  create_branch(client_, repo_, "side", head_);
  server_.commit(repo_, {{"b.txt", "b"}}, "side");
  create_branch(client_, repo_, "side", head_);
  EXPECT_EQ(server_.file(repo_, "side", "b.txt"), "b");
}

TEST_F(CreateRef, TakesABranchThatIsThereWhenItMayNotCreateOne) {
  create_branch(client_, repo_, "side", head_);
  always("POST", "/branch/", json(403, R"({"error":"no rights"})"));
  create_branch(client_, repo_, "side", head_);
  EXPECT_EQ(fault_of([&] { create_branch(client_, repo_, "other", head_); }), HubFault::kForbidden);
}

TEST_F(CreateRef, NamesAStartingPointThatIsMissing) {
  const std::string message = error_of([&] { create_branch(client_, repo_, "side", "nowhere"); });
  EXPECT_THAT(message, HasSubstr("create the branch side"));
  EXPECT_THAT(message, HasSubstr("nowhere"));
}

TEST_F(CreateRef, TagsACommitOnce) {
  create_tag(client_, repo_, "v3.0", head_);
  server_.commit(repo_, {{"b.txt", "b"}});
  create_tag(client_, repo_, "v3.0", "main");  // is there already
  EXPECT_EQ(server_.file(repo_, "v3.0", "a.txt"), "a");
  EXPECT_EQ(server_.file(repo_, "v3.0", "b.txt"), std::nullopt);
  EXPECT_EQ(fault_of([&] { create_tag(client_, repo_, "v4", "nowhere"); }),
            HubFault::kRevisionNotFound);
}

class FolderFiles : public UploadTest {
 protected:
  std::vector<std::string> paths(const std::string& prefix = "",
                                 const std::function<bool(const std::string&)>& wanted = {}) {
    std::vector<std::string> out;
    for (const UploadFile& file : folder_files(folder_, prefix, wanted)) out.push_back(file.path);
    return out;
  }
};

TEST_F(FolderFiles, AreSortedAndLieBelowThePrefix) {
  write("b.txt", "b");
  write("a/z.txt", "z");
  write("a/deep/er.txt", "e");
  EXPECT_THAT(paths(), ElementsAre("a/deep/er.txt", "a/z.txt", "b.txt"));
  EXPECT_THAT(paths("checkpoints/10/"),
              ElementsAre("checkpoints/10/a/deep/er.txt", "checkpoints/10/a/z.txt",
                          "checkpoints/10/b.txt"));
  const auto files = folder_files(folder_, "");
  EXPECT_EQ(std::get<fs::path>(files.front().content), folder_ / "a/deep/er.txt");
}

TEST_F(FolderFiles, LeaveOutWhatIsNotWantedAndWhatToolsKeep) {
  write("model.safetensors", "m");
  write("train.log", "l");
  write(".git/config", "g");
  write("sub/.git/config", "g");
  write(".cache/huggingface/download/x", "h");
  write(".cache/other", "o");
  EXPECT_THAT(paths("", [](const std::string& path) { return !path.ends_with(".log"); }),
              ElementsAre(".cache/other", "model.safetensors"));
}

TEST_F(FolderFiles, FollowLinks) {
  write("real/a.txt", "a");
  fs::create_symlink("a.txt", folder_ / "real/b.txt");
  fs::create_directory_symlink("real", folder_ / "last");
  EXPECT_THAT(paths(), ElementsAre("last/a.txt", "last/b.txt", "real/a.txt", "real/b.txt"));
}

TEST_F(FolderFiles, NameALinkThatLeadsNowhereOrInACircle) {
  fs::create_symlink("missing", folder_ / "link");
  EXPECT_THAT(error_of([&] { paths(); }), HasSubstr("the link leads nowhere"));
  fs::remove(folder_ / "link");
  fs::create_directory_symlink(folder_, folder_ / "circle");
  EXPECT_THAT(error_of([&] { paths(); }), HasSubstr("links lead back"));
}

TEST_F(FolderFiles, NameAFolderThatIsMissing) {
  EXPECT_THAT(error_of([&] { folder_files(folder_ / "missing", ""); }), HasSubstr("missing"));
}

TEST(LogUpload, WritesALineNowAndThen) {
  testing::internal::CaptureStderr();
  const auto log = log_upload("tester/policy");
  log({.files = 0, .all_files = 3, .bytes = 1, .all_bytes = 206'000'000});
  std::this_thread::sleep_for(std::chrono::milliseconds(2'100));
  log({.files = 1, .all_files = 3, .bytes = 120'000'000, .all_bytes = 206'000'000});
  log({.files = 2, .all_files = 3, .bytes = 180'000'000, .all_bytes = 206'000'000});
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, HasSubstr("Uploading tester/policy: 1/3 files, 120.0/206.0 MB, "));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
}

}  // namespace
}  // namespace lerobot::hub
