#include "lerobot/streaming/http_payload.h"

#include <cstdlib>

#include <gmock/gmock.h>

#include "tests/support/error_of.h"
#include "tests/support/range_server.h"

namespace lerobot::streaming {
namespace {

using test_server::Behaviour;
using test_server::RangeServer;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class HttpPayloadTest : public ::testing::Test {
 protected:
  HttpPayloadTest() {
    ::setenv("no_proxy", "127.0.0.1", 1);
    server_.put("/set/videos/cam a/file#1.mp4", "0123456789");
    server_.put("/set/data/file.parquet", "abcdef");
    hub::RangeClientOptions options;
    options.attempts = 2;
    options.first_backoff = std::chrono::milliseconds(1);
    payload_ = std::make_unique<HttpPayload>(server_.url("/set/"),
                                             std::make_shared<hub::RangeClient>(options));
  }

  std::string text(const std::vector<std::uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

  RangeServer server_;
  std::unique_ptr<HttpPayload> payload_;
};

TEST_F(HttpPayloadTest, ReadsRangesOfFilesWithAnyName) {
  std::vector<std::uint8_t> video(4);
  std::vector<std::uint8_t> table(2);
  const ByteRange ranges[] = {{"videos/cam a/file#1.mp4", 3, video},
                              {"data/file.parquet", 4, table}};
  payload_->read(ranges);
  EXPECT_EQ(text(video), "3456");
  EXPECT_EQ(text(table), "ef");
  EXPECT_EQ(payload_->bytes_read(), 6u);
  EXPECT_EQ(payload_->size("videos/cam a/file#1.mp4"), 10u);
  EXPECT_EQ(payload_->describe("videos/cam a/file#1.mp4"),
            server_.url("/set/videos/cam%20a/file%231.mp4"));
}

TEST_F(HttpPayloadTest, FingerprintsWithWhatTheServerTells) {
  const auto first = payload_->fingerprint("data/file.parquet");
  ASSERT_TRUE(first);
  EXPECT_NE(first, payload_->fingerprint("videos/cam a/file#1.mp4"));
  server_.set_hook([](const auto&) { return Behaviour{.without = {"etag", "last-modified"}}; });
  server_.put("/set/other", "x");
  EXPECT_EQ(payload_->fingerprint("other"), std::nullopt);
}

TEST_F(HttpPayloadTest, NamesTheUrlOfAMissingFile) {
  EXPECT_THAT(error_of([&] { payload_->size("data/no.parquet"); }),
              AllOf(HasSubstr(server_.url("/set/data/no.parquet")), HasSubstr("no such file")));
}

TEST_F(HttpPayloadTest, StaysBelowItsRoot) {
  for (const char* path : {"../x", "a/../../x", "/x", "", "a//b", "./x", "a/.."})
    EXPECT_THAT(error_of([&] { payload_->size(path); }), HasSubstr("not the path of a file below"))
        << path;
  EXPECT_TRUE(server_.requests().empty());
}

TEST_F(HttpPayloadTest, RefusesRootsThatAreNoUrl) {
  const auto client = std::make_shared<hub::RangeClient>();
  for (const char* root : {"/data", "hf://datasets/a/b", "s3://a/b", "http://"})
    EXPECT_NE(error_of([&] { HttpPayload(root, client); }), "no error") << root;
}

TEST_F(HttpPayloadTest, ShowsNoPassword) {
  const auto client = std::make_shared<hub::RangeClient>();
  HttpPayload payload("http://user:secret@127.0.0.1:9/set", client);
  EXPECT_EQ(payload.describe("a"), "http://127.0.0.1:9/set/a");
  EXPECT_THAT(error_of([&] { payload.size("../a"); }), Not(HasSubstr("secret")));
}

TEST_F(HttpPayloadTest, ThrowsAfterCancel) {
  payload_->cancel();
  EXPECT_THAT(error_of([&] { payload_->size("data/file.parquet"); }), HasSubstr("cancelled"));
}

}  // namespace
}  // namespace lerobot::streaming
