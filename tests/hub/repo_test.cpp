#include "lerobot/hub/repo.h"

#include <string>

#include <gmock/gmock.h>

#include "tests/support/error_of.h"

namespace lerobot::hub {
namespace {

using ::testing::HasSubstr;

constexpr const char* kHub = "https://huggingface.co";

std::string fault(RepoType type, const std::string& id) {
  return error_of([&] { make_repo(type, id); });
}

TEST(Repo, TakesTheNamesThatTheHubTakes) {
  for (const char* id : {"lerobot/pusht", "gpt2", "a/b", "A-1/b_2.c", "a.b/c"})
    EXPECT_EQ(make_repo(RepoType::kDataset, id).id, id);
  EXPECT_EQ(
      make_repo(RepoType::kModel, std::string(48, 'a') + "/" + std::string(47, 'b')).id.size(),
      96u);
}

TEST(Repo, SaysWhichRuleAWrongNameBreaks) {
  EXPECT_THAT(fault(RepoType::kModel, ""), HasSubstr("it is empty"));
  EXPECT_THAT(fault(RepoType::kModel, std::string(97, 'a')), HasSubstr("more than 96 characters"));
  EXPECT_THAT(fault(RepoType::kModel, "a/b/c"), HasSubstr("more than one '/'"));
  EXPECT_THAT(fault(RepoType::kModel, "a b/c"), HasSubstr("only letters, digits"));
  EXPECT_THAT(fault(RepoType::kModel, "a/\xc3\xa9"), HasSubstr("only letters, digits"));
  EXPECT_THAT(fault(RepoType::kModel, "a/b--c"), HasSubstr("are not allowed"));
  EXPECT_THAT(fault(RepoType::kModel, "a/b..c"), HasSubstr("are not allowed"));
  EXPECT_THAT(fault(RepoType::kModel, "a/-b"), HasSubstr("begins or ends"));
  EXPECT_THAT(fault(RepoType::kModel, "a/b."), HasSubstr("begins or ends"));
  EXPECT_THAT(fault(RepoType::kModel, "-a/b"), HasSubstr("the owner begins or ends"));
  EXPECT_THAT(fault(RepoType::kModel, "a/b.git"), HasSubstr("ends with \".git\""));
  EXPECT_THAT(fault(RepoType::kModel, "/b"), HasSubstr("empty"));
  EXPECT_THAT(fault(RepoType::kModel, "a/"), HasSubstr("empty"));
  EXPECT_THAT(fault(RepoType::kDataset, "a/b/c"),
              HasSubstr("\"a/b/c\" is not the name of a dataset"));
  EXPECT_THAT(fault(RepoType::kBucket, "name"), HasSubstr("its owner is missing"));
  EXPECT_FALSE(is_repo_id(RepoType::kModel, "../x"));
  EXPECT_TRUE(is_repo_id(RepoType::kModel, "x"));
}

TEST(Repo, HasTheAddressesOfTheHub) {
  const Repo model{RepoType::kModel, "o/m"};
  const Repo dataset{RepoType::kDataset, "o/d"};
  const Repo bucket{RepoType::kBucket, "o/b"};
  EXPECT_EQ(api_url(kHub, model), "https://huggingface.co/api/models/o/m");
  EXPECT_EQ(api_url(kHub, dataset), "https://huggingface.co/api/datasets/o/d");
  EXPECT_EQ(api_url(kHub, bucket), "https://huggingface.co/api/buckets/o/b");
  EXPECT_EQ(page_url(kHub, model), "https://huggingface.co/o/m");
  EXPECT_EQ(page_url(kHub, dataset), "https://huggingface.co/datasets/o/d");
  EXPECT_EQ(page_url(kHub, bucket), "https://huggingface.co/buckets/o/b");
}

TEST(Repo, EncodesRevisionsWhollyAndPathsButForTheirSlashes) {
  const Repo dataset{RepoType::kDataset, "o/d"};
  EXPECT_EQ(resolve_url(kHub, dataset, "refs/pr/1", "a.json"),
            "https://huggingface.co/datasets/o/d/resolve/refs%2Fpr%2F1/a.json");
  EXPECT_EQ(resolve_url(kHub, dataset, "v3.0", "videos/cam a/file#1.mp4"),
            "https://huggingface.co/datasets/o/d/resolve/v3.0/videos/cam%20a/file%231.mp4");
  EXPECT_EQ(resolve_url(kHub, {RepoType::kModel, "o/m"}, "main", "a[1].txt"),
            "https://huggingface.co/o/m/resolve/main/a%5B1%5D.txt");
  EXPECT_EQ(resolve_url(kHub, {RepoType::kBucket, "o/b"}, "", "a/b c"),
            "https://huggingface.co/buckets/o/b/resolve/a/b%20c");
  EXPECT_EQ(resolve_url(kHub, dataset, "main", ""),
            "https://huggingface.co/datasets/o/d/resolve/main");
}

TEST(Repo, HasTheFolderOfThePythonCache) {
  EXPECT_EQ(cache_folder_name({RepoType::kDataset, "o/d"}), "datasets--o--d");
  EXPECT_EQ(cache_folder_name({RepoType::kModel, "gpt2"}), "models--gpt2");
}

TEST(Repo, TellsCommitsFromOtherRevisions) {
  EXPECT_TRUE(is_commit("0123456789abcdef0123456789abcdef01234567"));
  EXPECT_FALSE(is_commit("0123456789ABCDEF0123456789abcdef01234567"));
  EXPECT_FALSE(is_commit("0123456"));
  EXPECT_FALSE(is_commit("main"));
}

}  // namespace
}  // namespace lerobot::hub
