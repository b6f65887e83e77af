#include "lerobot/hub/location.h"

#include <gmock/gmock.h>

#include "tests/support/error_of.h"

namespace lerobot::hub {
namespace {

using ::testing::HasSubstr;
using Kind = LocationKind;

const std::string kSha(40, 'a');

TEST(Location, IsLocalWithoutAScheme) {
  for (const char* root : {"data/pusht", "/data/pusht/", "~/pusht", "C:/x", "."}) {
    const Location location = classify_location(root);
    EXPECT_EQ(location.kind, Kind::kLocal) << root;
    EXPECT_EQ(location.root, root);
  }
  EXPECT_THAT(error_of([] { classify_location(""); }), HasSubstr("empty"));
}

TEST(Location, ReadsBuckets) {
  const Location bucket = classify_location("hf://buckets/owner/name//");
  EXPECT_EQ(bucket.kind, Kind::kHfBucket);
  EXPECT_EQ(bucket.root, "hf://buckets/owner/name");
  EXPECT_EQ(bucket.repo_id, "owner/name");
  EXPECT_EQ(bucket.path, "");
  EXPECT_EQ(classify_location("hf://buckets/owner/name/a/b").path, "a/b");
  for (const char* root :
       {"hf://buckets", "hf://buckets/", "hf://buckets/owner", "hf://buckets//x/"})
    EXPECT_THAT(error_of([&] { classify_location(root); }), HasSubstr("invalid bucket root"))
        << root;
}

TEST(Location, ReadsHubDatasets) {
  const Location plain = classify_location("hf://datasets/owner/name/");
  EXPECT_EQ(plain.kind, Kind::kHfDataset);
  EXPECT_EQ(plain.root, "hf://datasets/owner/name");
  EXPECT_EQ(plain.repo_id, "owner/name");
  EXPECT_EQ(plain.revision, std::nullopt);
  const Location full = classify_location("hf://datasets/owner/name@v3.0/sub/folder");
  EXPECT_EQ(full.repo_id, "owner/name");
  EXPECT_EQ(full.revision, "v3.0");
  EXPECT_EQ(full.path, "sub/folder");
  EXPECT_EQ(classify_location("hf://datasets/owner/name@refs%2Fpr%2F1/x").revision, "refs/pr/1");
  const Location ref = classify_location("hf://datasets/owner/name@refs/convert/parquet/x/y");
  EXPECT_EQ(ref.revision, "refs/convert/parquet");
  EXPECT_EQ(ref.path, "x/y");
  const Location legacy = classify_location("hf://datasets/squad@main/data");
  EXPECT_EQ(legacy.repo_id, "squad");
  EXPECT_EQ(legacy.path, "data");
  for (const char* root : {"hf://datasets/", "hf://datasets/owner/@main", "hf://datasets/o/n@"})
    EXPECT_THAT(error_of([&] { classify_location(root); }), HasSubstr("invalid dataset root"))
        << root;
}

TEST(Location, IsPinnedByExactlyFortyLowerCaseHexDigits) {
  const auto pinned = [](const std::string& root) { return classify_location(root).pinned; };
  EXPECT_TRUE(pinned("hf://datasets/owner/name@" + kSha));
  EXPECT_TRUE(pinned("hf://datasets/owner/name@" + kSha + "/"));
  EXPECT_TRUE(pinned("hf://datasets/owner/name@0123456789abcdef0123456789abcdef01234567/sub"));
  EXPECT_FALSE(pinned("hf://datasets/owner/name"));
  EXPECT_FALSE(pinned("hf://datasets/owner/name@v3.0"));
  EXPECT_FALSE(pinned("hf://datasets/owner/name@" + kSha.substr(1)));
  EXPECT_FALSE(pinned("hf://datasets/owner/name@" + kSha + "a"));
  EXPECT_FALSE(pinned("hf://datasets/owner/name@" + std::string(40, 'A')));
  EXPECT_FALSE(pinned("hf://datasets/owner/name@" + std::string(40, 'g')));
  EXPECT_FALSE(pinned("hf://datasets/owner/name/" + kSha));
  EXPECT_FALSE(pinned("hf://buckets/owner/name/" + kSha));
}

TEST(Location, TellsTheOtherSchemesApart) {
  EXPECT_EQ(classify_location("hf://models/owner/name").kind, Kind::kHfOther);
  EXPECT_EQ(classify_location("hf://bucketsx/owner/name").kind, Kind::kHfOther);
  EXPECT_EQ(classify_location("hf://owner/name").kind, Kind::kHfOther);
  EXPECT_EQ(classify_location("s3://bucket/key/").kind, Kind::kOther);
  EXPECT_EQ(classify_location("s3://bucket/key/").root, "s3://bucket/key");
  EXPECT_EQ(classify_location("file:///data").kind, Kind::kOther);
}

TEST(Location, ReadsHttpRoots) {
  const Location http = classify_location("http://127.0.0.1:80/a/b//");
  EXPECT_EQ(http.kind, Kind::kHttp);
  EXPECT_EQ(http.root, "http://127.0.0.1:80/a/b");
  EXPECT_EQ(classify_location("HTTPS://host").kind, Kind::kHttp);
  for (const char* root : {"http://", "http:///x", "http://a b/c"})
    EXPECT_THAT(error_of([&] { classify_location(root); }), HasSubstr("is not a URL")) << root;
  for (const char* root : {"http://host/a?sig=secret", "http://host/a#b"}) {
    const std::string message = error_of([&] { classify_location(root); });
    EXPECT_THAT(message, HasSubstr("can't have a query or fragment")) << root;
    EXPECT_THAT(message, ::testing::Not(HasSubstr("secret")));
  }
}

TEST(Location, TakesOnlyTheBucketItselfAsRoot) {
  const Location bucket = classify_location("hf://buckets/owner/name");
  EXPECT_EQ(bucket_of_root(bucket, ""), "owner/name");
  EXPECT_EQ(bucket_of_root(bucket, "owner/name"), "owner/name");
  EXPECT_THAT(error_of([&] { bucket_of_root(bucket, "owner/other"); }),
              HasSubstr("does not match --dataset.repo_id=owner/other"));
  EXPECT_THAT(
      error_of([] { bucket_of_root(classify_location("hf://buckets/owner/name/sub"), ""); }),
      HasSubstr("a sub-directory of a bucket (sub) is not supported"));
}

}  // namespace
}  // namespace lerobot::hub
