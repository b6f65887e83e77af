// Manifests, identities and names, against LeRobot's own sidecar and the published digests.
#include "lerobot/streaming/sidecar.h"

#include "lerobot/serialization/npy.h"
#include "tests/streaming/sidecar_fixture.h"

namespace lerobot::streaming {
namespace {

using ::testing::HasSubstr;

const std::string kCommit(40, 'a');

SidecarIdentity identity(const std::string& repo_id, const std::string& revision,
                         const std::string& data_root) {
  return {repo_id, revision, data_root, {{"videos/a.mp4", 10}, {"videos/b.mp4", 20}}, {}};
}

TEST(SidecarNameTest, CachePathsAreLeRobots) {
  const std::string pinned = "hf://datasets/owner/dataset@" + kCommit;
  EXPECT_EQ(sidecar_cache_path("/home", identity("owner/dataset", kCommit, pinned)),
            "/home/streaming-sidecars/owner--dataset/mp4-v3-" + kCommit.substr(0, 32) +
                "-642a1916c536b449.npz");
  EXPECT_EQ(sidecar_cache_path("/home", identity("owner/dataset", "v3.0", pinned)),
            "/home/streaming-sidecars/owner--dataset/mp4-v3-v3.0-2dade90c10fa5ce0.npz");
  SidecarIdentity bucket = identity("owner/bucket", "v3.0", "hf://buckets/owner/bucket");
  bucket.fingerprints = {{"videos/cam/chunk-000/file-000.mp4", "hash-one"}};
  EXPECT_EQ(sidecar_cache_path("/home", bucket),
            "/home/streaming-sidecars/owner--bucket/mp4-v3-v3.0-ebf811b7f468c7c8.npz");
}

TEST(SidecarNameTest, OddIdsAndRevisionsBecomeFileNames) {
  const auto name = [](const std::string& repo_id, const std::string& revision) {
    const fs::path path = sidecar_cache_path("h", identity(repo_id, revision, "/data"));
    const std::string file = path.filename().string();
    return path.parent_path().filename().string() + "/" + file.substr(0, file.rfind('-'));
  };
  EXPECT_EQ(name("-a b//c-", "refs/pr/1"), "a--b--c/mp4-v3-refs-pr-1");
  EXPECT_EQ(name("///", "///"), "dataset/mp4-v3-revision");
}

TEST(SidecarNameTest, PinnedRootsAreOneCommitOfADataset) {
  EXPECT_TRUE(is_pinned("hf://datasets/owner/dataset@" + kCommit));
  EXPECT_TRUE(is_pinned("hf://datasets/owner/dataset@" + kCommit + "/sub/folder"));
  EXPECT_FALSE(is_pinned("hf://datasets/owner/dataset"));
  EXPECT_FALSE(is_pinned("hf://datasets/owner/dataset@v3.0"));
  EXPECT_FALSE(is_pinned("hf://datasets/owner/dataset@" + std::string(40, 'A')));
  EXPECT_FALSE(is_pinned("hf://buckets/owner/bucket"));
  EXPECT_FALSE(is_pinned("hf://datasets/"));
  EXPECT_FALSE(is_pinned("/data/" + kCommit));
}

TEST(SidecarNameTest, ALocalRootIsTheSameHoweverItIsWritten) {
  EXPECT_EQ(local_data_root("/a/./b/../c/"), "/a/c");
  EXPECT_EQ(local_data_root("x"), (fs::current_path() / "x").string());
  EXPECT_EQ(local_data_root("~/x"), local_data_root(fs::path(std::getenv("HOME")) / "x"));
}

TEST(ManifestTest, LeRobotsManifestGoesThroughUnchanged) {
  const SidecarFile file(test_data("sidecars/toy_h264.npz"));
  const SidecarManifest& manifest = file.manifest();
  EXPECT_EQ(manifest.identity.repo_id, "owner/dataset");
  EXPECT_EQ(manifest.identity.revision, kCommit);
  ASSERT_EQ(manifest.videos.size(), 2U);
  EXPECT_EQ(manifest.videos[1].mdat_payload_size, 6985U);
  const MappedFile mapped(test_data("sidecars/toy_h264.npz"));
  const serialization::ZipReader zip(mapped.bytes(), "toy",
                                     serialization::ZipCompression::kDeflate);
  EXPECT_EQ(to_json_text(manifest), serialization::read_npy_text(zip, "manifest_json.npy"));
}

TEST(ManifestTest, EveryCutAndFlipOfTheTextIsAnErrorOrValid) {
  const std::string text = to_json_text(SidecarFile(test_data("sidecars/toy_h264.npz")).manifest());
  for (std::size_t at = 0; at < text.size(); at += 3) {
    EXPECT_THROW(parse_manifest(text.substr(0, at), "cut"), Error);
    for (const char c : {'x', '0', '"', '}', '\xff', '-'}) {
      std::string broken = text;
      broken[at] = c;
      try {
        parse_manifest(broken, "broken");
      } catch (const Error&) {
      }
    }
  }
}

TEST(StaleTest, EachPartOfTheIdentityCounts) {
  const SidecarIdentity good = identity("owner/dataset", "v3.0", "/data");
  EXPECT_EQ(stale_reason(good, good), std::nullopt);
  const auto reason = [&](auto change) {
    SidecarIdentity other = good;
    change(other);
    EXPECT_NE(identity_digest(other) != identity_digest(good) ||
                  other.sources.size() != good.sources.size(),
              other.sources != good.sources && other.sources[0].path == good.sources[0].path &&
                  other.sources.size() == good.sources.size());
    return stale_reason(good, other).value_or("valid");
  };
  EXPECT_THAT(reason([](auto& i) { i.repo_id = "owner/other"; }), HasSubstr("repo_id"));
  EXPECT_THAT(reason([](auto& i) { i.revision = "main"; }), HasSubstr("revision"));
  EXPECT_THAT(reason([](auto& i) { i.data_root = "/other"; }), HasSubstr("data_root"));
  EXPECT_THAT(reason([](auto& i) { i.sources.pop_back(); }), HasSubstr("2 videos"));
  EXPECT_THAT(reason([](auto& i) { i.sources[0].path = "videos/0.mp4"; }), HasSubstr("video"));
  EXPECT_THAT(reason([](auto& i) { i.sources[0].size = 11; }),
              HasSubstr("had 10 bytes and has 11"));
  EXPECT_THAT(reason([](auto& i) { i.fingerprints["videos/a.mp4"] = "x"; }),
              HasSubstr("no fingerprints"));
  SidecarIdentity unknown = good;
  unknown.sources[0].size.reset();
  EXPECT_EQ(stale_reason(good, unknown), std::nullopt);
}

TEST(StaleTest, AtAPinnedRootTagAndCommitShareASidecar) {
  const std::string root = "hf://datasets/owner/dataset@" + kCommit;
  const SidecarIdentity by_tag = identity("owner/dataset", "v3.0", root);
  const SidecarIdentity by_commit = identity("owner/dataset", kCommit, root);
  EXPECT_EQ(stale_reason(by_tag, by_commit), std::nullopt);
  EXPECT_EQ(identity_digest(by_tag), identity_digest(by_commit));
}

class IdentityTest : public SidecarTest {};

TEST_F(IdentityTest, ALocalDatasetIsIdentifiedBySizesAndTimes) {
  const SidecarIdentity toy_identity = identity_of(toy());
  ASSERT_EQ(toy_identity.sources.size(), 2U);
  EXPECT_EQ(toy_identity.sources[0],
            (SourceFile{"videos/observation.images.front/chunk-000/file-000.mp4", 7929}));
  EXPECT_EQ(toy_identity.fingerprints.size(), 2U);
  EXPECT_THAT(toy_identity.fingerprints.begin()->second,
              ::testing::ContainsRegex("^[0-9]+:[0-9]+$"));
}

TEST_F(IdentityTest, SourcesAreEveryVideoOfEveryEpisodeOnce) {
  const auto metadata =
      dataset::DatasetMetadata::open(test_data("datasets/toy_split"), "owner/dataset");
  const auto all = video_paths(*metadata);
  EXPECT_TRUE(std::is_sorted(all.begin(), all.end()));
  std::size_t on_disk = 0;
  for (const auto& entry : fs::recursive_directory_iterator(test_data("datasets/toy_split/videos")))
    on_disk += entry.path().extension() == ".mp4" ? 1 : 0;
  EXPECT_EQ(all.size(), on_disk);
  EXPECT_LT(video_paths(*metadata, 1).size(), all.size());
  const auto no_cameras =
      dataset::DatasetMetadata::open(test_data("datasets/toy_state"), "owner/dataset");
  EXPECT_TRUE(video_paths(*no_cameras).empty());
}

TEST_F(IdentityTest, RepositoryAndRevisionAreNeeded) {
  LocalPayload payload(toy());
  EXPECT_THAT(error_of([&] { expected_identity("", "v3.0", "/d", {}, payload, 1); }),
              HasSubstr("needs a repo_id and a revision"));
}

TEST_F(IdentityTest, AtAPinnedCommitNothingIsAsked) {
  LocalPayload nowhere(folder_ / "nowhere");
  const SidecarIdentity pinned = expected_identity(
      "owner/dataset", "v3.0", "hf://datasets/owner/dataset@" + kCommit, {"a.mp4"}, nowhere, 2);
  EXPECT_EQ(pinned.sources[0].size, std::nullopt);
  EXPECT_TRUE(pinned.fingerprints.empty());
}

}  // namespace
}  // namespace lerobot::streaming
