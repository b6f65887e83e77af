#include "lerobot/hub/bucket_mirror.h"

#include <gmock/gmock.h>

#include "lerobot/hub/range_client.h"
#include "tests/hub/hub_fixture.h"
#include "tests/support/error_of.h"

namespace lerobot::hub {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class BucketMirror : public HubFixture {
 protected:
  BucketMirror() {
    put("meta/info.json", "{}");
    put("meta/episodes/chunk-000/file-000.parquet", std::string(300'000, 'e'));
    put("meta/empty", "");
    put("videos/a.mp4", "no part of the copy");
  }

  void put(const std::string& path, const std::string& content) {
    server_.put(bucket_, path, content);
  }

  void mirror() {
    RangeClientOptions options = range_options(environment_, 4, 1);
    options.attempts = 2;
    options.first_backoff = options.longest_backoff = std::chrono::milliseconds(2);
    RangeClient ranges(options);
    mirror_bucket(server_.endpoint(), bucket_, list_bucket(client(), bucket_), "meta", copy_,
                  ranges);
  }

  std::vector<std::string> copied() const {
    std::vector<std::string> paths;
    for (const auto& entry : fs::recursive_directory_iterator(copy_ / "meta"))
      if (entry.is_regular_file())
        paths.push_back(entry.path().lexically_relative(copy_).generic_string());
    std::sort(paths.begin(), paths.end());
    return paths;
  }

  /// Objects that were asked for since the last call: at the Hub, which sends on to the storage.
  std::vector<std::string> fetched() {
    std::vector<std::string> paths;
    for (const auto& request : server_.requests())
      if (request.method == "HEAD" && request.path.find("/resolve/") != std::string::npos)
        paths.push_back(request.path.substr(request.path.find("/resolve/") + 9));
    server_.forget_requests();
    return paths;
  }

  /// The storage's answers to GETs.
  void misbehave(const test_server::Behaviour& behaviour) {
    server_.set_hook(
        [behaviour](const test_server::Request& request) -> std::optional<test_server::Behaviour> {
          if (request.server != "storage" || request.method != "GET") return std::nullopt;
          return behaviour;
        });
  }

  const Repo bucket_{RepoType::kBucket, "robot/data"};
  const fs::path copy_ = folder_ / "a copy";
};

TEST_F(BucketMirror, HoldsWhatIsBelowThePrefix) {
  mirror();
  EXPECT_THAT(copied(), ElementsAre("meta/empty", "meta/episodes/chunk-000/file-000.parquet",
                                    "meta/info.json"));
  EXPECT_EQ(read_text_file(copy_ / "meta/episodes/chunk-000/file-000.parquet"),
            std::string(300'000, 'e'));
  EXPECT_FALSE(fs::exists(copy_ / "videos"));
}

TEST_F(BucketMirror, FetchesOnlyWhatHasChanged) {
  mirror();
  server_.forget_requests();
  mirror();
  EXPECT_THAT(fetched(), IsEmpty());
  put("meta/info.json", "[]");  // of the same size
  mirror();
  EXPECT_THAT(fetched(), ElementsAre("meta/info.json"));
  EXPECT_EQ(read_text_file(copy_ / "meta/info.json"), "[]");
  // What somebody has changed here is noticed by its size.
  write_file_atomic(copy_ / "meta/info.json", "longer");
  mirror();
  EXPECT_EQ(read_text_file(copy_ / "meta/info.json"), "[]");
}

TEST_F(BucketMirror, DeletesWhatTheBucketDoesNotHave) {
  mirror();
  write_file_atomic(copy_ / "meta/episodes/chunk-000/file-001.parquet", "old");
  mirror();
  EXPECT_FALSE(fs::exists(copy_ / "meta/episodes/chunk-000/file-001.parquet"));
}

TEST_F(BucketMirror, ContentThatIsNotTheListedOneNeverAppears) {
  mirror();
  put("meta/info.json", "[]");
  test_server::Behaviour wrong;
  wrong.body = "{]";
  misbehave(wrong);
  EXPECT_THAT(error_of([&] { mirror(); }), HasSubstr("meta/info.json of bucket robot/data: its "
                                                     "content has the hash"));
  EXPECT_EQ(read_text_file(copy_ / "meta/info.json"), "{}");
  server_.set_hook({});
  mirror();
  EXPECT_EQ(read_text_file(copy_ / "meta/info.json"), "[]");
}

TEST_F(BucketMirror, ABrokenTransferLeavesTheCopyThatWasThere) {
  mirror();
  put("meta/info.json", "{\"a\": 1}");
  test_server::Behaviour cut;
  cut.cut_after = 0;
  misbehave(cut);
  EXPECT_THAT(error_of([&] { mirror(); }), HasSubstr("info.json"));
  EXPECT_EQ(read_text_file(copy_ / "meta/info.json"), "{}");
  EXPECT_THAT(copied(), ElementsAre("meta/empty", "meta/episodes/chunk-000/file-000.parquet",
                                    "meta/info.json"));
}

TEST_F(BucketMirror, OfflineNothingIsAskedFor) {
  const auto listing = list_bucket(client(), bucket_);
  server_.forget_requests();
  environment_.offline = true;
  RangeClient ranges(range_options(environment_, 4, 1));
  EXPECT_THAT(
      error_of([&] { mirror_bucket(server_.endpoint(), bucket_, listing, "meta", copy_, ranges); }),
      HasSubstr("offline mode is on"));
  EXPECT_THAT(server_.requests(), IsEmpty());
}

}  // namespace
}  // namespace lerobot::hub
