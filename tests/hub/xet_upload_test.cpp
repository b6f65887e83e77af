#include "lerobot/hub/xet/xet_upload.h"

#include "tests/hub/upload_fixture.h"
#include "tests/hub/xet_content.h"

namespace lerobot::hub::xet {
namespace {

class XetUpload : public UploadTest {
 protected:
  XetUpload() { server_.put(bucket_, "there.txt", "there"); }

  std::string url(const std::string& route) const {
    return api_url(server_.endpoint(), bucket_) + route;
  }

  /// Puts a file that was uploaded before into the Bucket, and returns what it holds then.
  std::string stored(const XetHash& hash) {
    const Json line = {{"type", "addFile"}, {"path", "a"}, {"xetHash", hash.hex()}, {"mtime", 0}};
    client_.call({.method = "POST", .url = url("/batch"), .body = line.dump() + "\n"},
                 {.repo = bucket_});
    return server_.file(bucket_, "", "a").value_or("nothing");
  }

  const Repo bucket_{RepoType::kBucket, "tester/objects"};
  XetServer xet_{client_, url("/xet-write-token"), {.repo = bucket_}};
  const UploadOptions options_;
  UploadMeter meter_{options_};
};

TEST_F(XetUpload, SendsAShardNowAndThen) {
  std::vector<UploadFile> files;
  for (std::uint64_t i = 0; i < 6; ++i) files.push_back({"x", random_content(i, 500'000)});
  // What was in the xorb of an earlier shard is known in later ones.
  files.push_back({"x", random_content(0, 500'000) + random_content(77, 300'000)});
  const std::vector<UploadContent> contents(files.begin(), files.end());
  std::vector<const UploadContent*> pointers;
  for (const UploadContent& content : contents) pointers.push_back(&content);

  const auto hashes = upload_contents(xet_, pointers, meter_, 20);
  EXPECT_GE(sent("POST", "/v1/shards").size(), 3u);
  ASSERT_EQ(hashes.size(), files.size());
  for (std::size_t i = 0; i < files.size(); ++i) {
    EXPECT_EQ(hashes[i], content_hash(contents[i], meter_));
    EXPECT_TRUE(stored(hashes[i]) == std::get<std::string>(files[i].content)) << i;
  }
}

TEST_F(XetUpload, HashesContentAsItUploadsIt) {
  const UploadFile file{"x", write("x.bin", random_content(11, 20'000'000))};
  const UploadContent content(file);
  const UploadContent* const contents[] = {&content};
  EXPECT_EQ(upload_contents(xet_, contents, meter_).front(), content_hash(content, meter_));
  EXPECT_EQ(content_hash(content, meter_), file_hash(chunks_of(random_content(11, 20'000'000))));
}

TEST_F(XetUpload, OfNothingAsksNothing) {
  const UploadFile file{"x", std::string()};
  const UploadContent content(file);
  const UploadContent* const contents[] = {&content};
  EXPECT_EQ(upload_contents(xet_, contents, meter_).front(), XetHash());
  EXPECT_TRUE(server_.requests().empty());
}

TEST_F(XetUpload, EndsWithTheFirstFailure) {
  always("POST", "/v1/xorbs/", Behaviour::answer(400));
  const UploadFile file{"x", random_content(5, 300'000'000)};
  const UploadContent content(file);
  const UploadContent* const contents[] = {&content};
  EXPECT_EQ(fault_of([&] { upload_contents(xet_, contents, meter_); }), HubFault::kRefused);
  EXPECT_TRUE(sent("POST", "/v1/shards").empty());
  EXPECT_LT(sent("POST", "/v1/xorbs/").size(), 5u);
}

}  // namespace
}  // namespace lerobot::hub::xet
