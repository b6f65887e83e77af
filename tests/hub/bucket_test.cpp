#include "lerobot/hub/bucket.h"

#include "tests/hub/upload_fixture.h"
#include "tests/hub/xet_content.h"

namespace lerobot::hub {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using xet::random_content;

class Bucket : public UploadTest {
 protected:
  Bucket() { server_.put(bucket_, "there.txt", "there"); }

  std::vector<std::string> list(const std::string& prefix) {
    std::vector<std::string> paths;
    for (const BucketFile& file : list_bucket(client_, bucket_, prefix)) paths.push_back(file.path);
    return paths;
  }
  std::string stored(const std::string& path) const {
    return server_.file(bucket_, "", path).value_or("nothing");
  }
  void put(std::vector<UploadFile> files, const UploadOptions& options = {}) {
    upload_to_bucket(client_, bucket_, files, options);
  }
  /// The order of the calls that bring content.
  std::vector<std::string> calls() const {
    std::vector<std::string> out;
    for (const Request& request : server_.requests())
      for (const char* part : {"xet-write-token", "/v1/xorbs/", "/v1/shards", "/batch"})
        if (request.path.find(part) != std::string::npos) out.push_back(part);
    return out;
  }

  const Repo bucket_{RepoType::kBucket, "tester/objects"};
};

TEST_F(Bucket, IsListedOverPages) {
  server_.set_page_size(2);
  for (const char* path : {"b/2.txt", "a.txt", "b/1.txt", "b/c/3.txt", "z.txt"})
    server_.put(bucket_, path, path);
  EXPECT_THAT(list(""),
              ElementsAre("a.txt", "b/1.txt", "b/2.txt", "b/c/3.txt", "there.txt", "z.txt"));
  EXPECT_THAT(list("b"), ElementsAre("b/1.txt", "b/2.txt", "b/c/3.txt"));
  const auto files = list_bucket(client_, bucket_, "b/c/");
  ASSERT_EQ(files.size(), 1u);
  EXPECT_EQ(files[0].size, 9u);
  EXPECT_EQ(files[0].xet_hash, xet::file_hash(xet::chunks_of("b/c/3.txt")).hex());
  EXPECT_TRUE(files[0].uploaded_at);
}

TEST_F(Bucket, DoesNotTakeNeighboursForAFoldersContent) {
  for (const char* path : {"logs/a", "logs_x/b", "logs.txt"}) server_.put(bucket_, path, "x");
  EXPECT_THAT(list("logs"), ElementsAre("logs/a"));
  EXPECT_THAT(list("logs/"), ElementsAre("logs/a"));
  EXPECT_THAT(list("nothing"), ElementsAre());
}

TEST_F(Bucket, ListingsAreChecked) {
  const auto fault = [&](const std::string& entry) {
    always("GET", "/tree", json(200, "[" + entry + "]"));
    return error_of([&] { list(""); });
  };
  const std::string hash(64, 'a');
  EXPECT_THAT(fault(R"({"type":"file","path":"../x","size":1,"xetHash":")" + hash + "\"}"),
              HasSubstr("../x"));
  EXPECT_THAT(fault(R"({"type":"file","path":"/x","size":1,"xetHash":")" + hash + "\"}"),
              HasSubstr("/x"));
  EXPECT_THAT(fault(R"({"type":"file","path":"x","size":1,"xetHash":"abc"})"),
              HasSubstr("64 digits"));
  EXPECT_THAT(fault(R"({"type":"file","path":"x","size":-1,"xetHash":")" + hash + "\"}"),
              HasSubstr("size"));
  EXPECT_THAT(fault(R"({"type":"file","size":1,"xetHash":")" + hash + "\"}"), HasSubstr("path"));
}

TEST_F(Bucket, NamesOneThatIsMissing) {
  const Repo missing{RepoType::kBucket, "tester/nothing"};
  EXPECT_EQ(fault_of([&] { list_bucket(client_, missing); }), HubFault::kRepoNotFound);
  const std::vector<UploadFile> files = {{"a", std::string("a")}};
  EXPECT_EQ(fault_of([&] { upload_to_bucket(client_, missing, files); }), HubFault::kRepoNotFound);
}

TEST_F(Bucket, TakesFilesOfEverySize) {
  std::vector<UploadFile> files = {{"empty", std::string()}};
  for (const std::size_t size : {1, 8'191, 8'192, 65'536, 131'072, 131'073, 10'000'000})
    files.push_back({fmt::format("{}.bin", size), random_content(size, size)});
  files.push_back({"zeros", std::string(1'000'000, '\0')});
  files.push_back({"repetitive", xet::repeated(random_content(3, 70'000), 40)});
  files.push_back({"deep/file.txt", write("file.txt", "from disk")});
  put(files);
  for (const UploadFile& file : files) {
    const auto* text = std::get_if<std::string>(&file.content);
    EXPECT_TRUE(!text || stored(file.path) == *text) << file.path;
  }
  EXPECT_EQ(stored("deep/file.txt"), "from disk");
  EXPECT_EQ(stored("there.txt"), "there");
  EXPECT_THAT(calls(), ElementsAre("xet-write-token", "/v1/xorbs/", "/v1/shards", "/batch"));
}

TEST_F(Bucket, ReplacesAFile) {
  put({{"there.txt", std::string("other")}});
  EXPECT_EQ(stored("there.txt"), "other");
}

TEST_F(Bucket, HearsOfXorbsBeforeTheirShard) {
  // Two xorbs: they take 64 MiB.
  const std::string text = random_content(1, 70'000'000);
  put({{"a.bin", text}, {"b.txt", std::string("small")}});
  EXPECT_TRUE(stored("a.bin") == text);
  EXPECT_THAT(calls(),
              ElementsAre("xet-write-token", "/v1/xorbs/", "/v1/xorbs/", "/v1/shards", "/batch"));
}

TEST_F(Bucket, GetsAChunkThatOccursTwiceOnce) {
  const std::string text = random_content(2, 1'000'000);
  put({{"a.bin", text}, {"b.bin", text}, {"c.bin", text + text}});
  EXPECT_TRUE(stored("c.bin") == text + text);
  const auto xorbs = sent("POST", "/v1/xorbs/");
  ASSERT_EQ(xorbs.size(), 1u);
  // Where the two copies meet there are a few chunks of their own.
  EXPECT_LT(std::stoul(xorbs[0].header("content-length")), text.size() + 400'000);
}

TEST_F(Bucket, IsNotSentWhatItHolds) {
  const fs::path file = write("a.bin", random_content(4, 100'000));
  put({{"a.bin", file}, {"b.bin", random_content(5, 100'000)}});
  server_.forget_requests();
  put({{"a.bin", file}, {"b.bin", random_content(6, 100'000)}});  // of the same size
  EXPECT_TRUE(stored("b.bin") == random_content(6, 100'000));
  EXPECT_EQ(Json::parse(sent("POST", "/batch").at(0).body)["path"], "b.bin");
  server_.forget_requests();
  put({{"a.bin", file}});
  EXPECT_THAT(calls(), ElementsAre());
}

TEST_F(Bucket, IsToldPathHashAndTimeOfEachFile) {
  const fs::path file = write("a.txt", "content");
  put({{"x/a.txt", file}});
  const Json line = Json::parse(sent("POST", "/batch").at(0).body);
  EXPECT_EQ(line["type"], "addFile");
  EXPECT_EQ(line["path"], "x/a.txt");
  EXPECT_EQ(line["xetHash"], xet::file_hash(xet::chunks_of("content")).hex());
  const auto modified = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::file_clock::to_sys(fs::last_write_time(file)).time_since_epoch());
  EXPECT_EQ(line["mtime"], modified.count());
}

TEST_F(Bucket, IsChangedInCallsOfAThousandFiles) {
  std::vector<UploadFile> files;
  for (int i = 0; i < 1'001; ++i) files.push_back({fmt::format("{}", i), fmt::format("n{}", i)});
  put(files);
  EXPECT_EQ(sent("POST", "/batch").size(), 2u);
  EXPECT_EQ(sent("POST", "/paths-info").size(), 2u);
  EXPECT_EQ(stored("1000"), "n1000");
}

TEST_F(Bucket, NamesTheFilesThatCouldNotBeAdded) {
  const char* some = R"({"success":false,"failed":[{"path":"b.txt","error":"quota"}]})";
  const char* all = R"({"success":false,"failed":[{"path":"a.txt","error":"one"},
      {"path":"b.txt","error":"two"},{"path":"c","error":"three"},{"path":"d","error":"four"}]})";
  always("POST", "/batch", json(200, some));
  const auto fault = [&] {
    return error_of([&] { put({{"a.txt", std::string("a")}, {"b.txt", std::string("b")}}); });
  };
  EXPECT_THAT(fault(),
              AllOf(HasSubstr("1 of 2"), HasSubstr("b.txt: quota"), HasSubstr("tester/objects")));
  always("POST", "/batch", json(422, all));
  EXPECT_THAT(fault(), AllOf(HasSubstr("a.txt: one; b.txt: two; c: three; and 1 more")));
  always("POST", "/batch", json(403, R"({"error":"no rights"})"));
  EXPECT_THAT(fault(), AllOf(HasSubstr("no rights"), HasSubstr("HF_TOKEN")));
}

TEST_F(Bucket, RenewsItsXetTokenOnce) {
  once("POST", "/v1/xorbs/", Behaviour::answer(401));
  put({{"a.txt", std::string("a")}});
  EXPECT_EQ(stored("a.txt"), "a");
  EXPECT_EQ(sent("GET", "xet-write-token").size(), 2u);
  always("POST", "/v1/xorbs/", Behaviour::answer(401));
  EXPECT_THAT(error_of([&] {
                put({{"b.txt", std::string("b")}});
              }),
              AllOf(HasSubstr("401"), HasSubstr("tester/objects")));
}

TEST_F(Bucket, AsksForAnotherXetTokenWhenItsTimeIsOver) {
  const std::string url = server_.endpoint() + "/api/buckets/tester/objects/xet-write-token";
  Json token = client_.call_json({.url = url}, {.repo = bucket_});
  token["exp"] = 1'000;
  server_.forget_requests();
  once("GET", "xet-write-token", json(200, token.dump()));
  put({{"a.txt", std::string("a")}});  // one for the xorb, another one for the shard
  EXPECT_EQ(stored("a.txt"), "a");
  EXPECT_EQ(sent("GET", "xet-write-token").size(), 2u);
}

TEST_F(Bucket, DoesNotShowTheHubsTokenToTheXetServer) {
  put({{"a.txt", std::string("a")}});
  for (const char* path : {"/v1/xorbs/", "/v1/shards"}) {
    const auto requests = sent("POST", path);
    ASSERT_EQ(requests.size(), 1u);
    EXPECT_THAT(requests[0].header("authorization"),
                AllOf(HasSubstr("Bearer "), testing::Not(HasSubstr("hf_test"))));
  }
}

TEST_F(Bucket, NamesAnAnswerAboutTheTokenThatIsNone) {
  for (const char* body : {"{}", R"({"accessToken":"a","exp":9999999999,"casUrl":"nowhere"})",
                           R"({"accessToken":"a","casUrl":"http://127.0.0.1:9"})"}) {
    always("GET", "xet-write-token", json(200, body));
    EXPECT_EQ(fault_of([&] { put({{"a.txt", std::string("a")}}); }), HubFault::kMisbehaved) << body;
  }
}

TEST_F(Bucket, TriesAgainWhenTheXetServerIsBusy) {
  for (const char* path : {"/v1/xorbs/", "/v1/shards", "/batch", "/paths-info"}) {
    once("POST", path, Behaviour::answer(503));
    put({{"a.txt", std::string(path)}});
    EXPECT_EQ(stored("a.txt"), path);
  }
}

TEST_F(Bucket, IsLeftAsItIsWhenTheXetServerRefuses) {
  always("POST", "/v1/shards", json(400, "the shard is damaged"));
  EXPECT_THAT(error_of([&] {
                put({{"a.txt", std::string("a")}});
              }),
              AllOf(HasSubstr("shard"), HasSubstr("400"), HasSubstr("the shard is damaged")));
  EXPECT_EQ(stored("a.txt"), "nothing");
}

TEST_F(Bucket, RefusesPathsAndFilesThatAreNone) {
  EXPECT_THAT(error_of([&] { put({{"../a", std::string("a")}}); }), HasSubstr("../a"));
  EXPECT_THAT(error_of([&] {
                put({{"a", std::string("a")}, {"a", std::string("b")}});
              }),
              HasSubstr("given twice"));
  EXPECT_THAT(error_of([&] { put({{"a", folder_ / "missing"}}); }), HasSubstr("missing"));
  EXPECT_TRUE(server_.requests().empty());
}

TEST_F(Bucket, FailsWhenAFileChangesMeanwhile) {
  const fs::path file = write("a.txt", "before");
  on("POST", "/paths-info", [&](int) -> std::optional<Behaviour> {
    write("a.txt", "after, and longer");
    return std::nullopt;
  });
  EXPECT_THAT(error_of([&] {
                put({{"a.txt", file}});
              }),
              HasSubstr("changed while it was uploaded"));
  EXPECT_EQ(stored("a.txt"), "nothing");
}

TEST_F(Bucket, TellsItsProgress) {
  std::vector<TransferProgress> seen;
  UploadOptions options;
  options.progress = [&seen](const TransferProgress& at) { seen.push_back(at); };
  put({{"a.bin", random_content(8, 3'000'000)}, {"empty", std::string()}}, options);
  ASSERT_FALSE(seen.empty());
  EXPECT_EQ(seen.back().files, 2u);
  EXPECT_EQ(seen.back().all_files, 2u);
  EXPECT_EQ(seen.back().bytes, 3'000'000u);
  EXPECT_EQ(seen.back().all_bytes, 3'000'000u);
}

}  // namespace
}  // namespace lerobot::hub
