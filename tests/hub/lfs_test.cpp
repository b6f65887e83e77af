#include <set>

#include "lerobot/hub/upload.h"
#include "tests/hub/upload_fixture.h"

namespace lerobot::hub {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::string sha256(const std::string& text) {
  return sha256_hex({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
}

/// Bytes that are not the same everywhere, so that an exchanged part shows.
std::string content(std::size_t size) {
  std::string text;
  for (std::uint32_t i = 0; text.size() < size; ++i) text += fmt::format("{:08x}", i * 2654435761u);
  text.resize(size);
  return text;
}

class Lfs : public UploadTest {
 protected:
  std::string stored(const std::string& path) const {
    return server_.file(repo_, "main", path).value_or("nothing");
  }
  /// Lets the hub answer a batch about one object in its own way.
  void answer_batch(const std::string& text, const Json& rest) {
    Json object = {{"oid", sha256(text)}, {"size", text.size()}};
    object.update(rest);
    always("POST", "objects/batch", json(200, Json{{"objects", Json::array({object})}}.dump()));
  }
  std::string fault_of_batch(const std::string& text, const Json& rest) {
    answer_batch(text, rest);
    return error_of([&] { upload({{"a.bin", text}}); });
  }
};

TEST_F(Lfs, AsksWithBothTransfersAndTheBranch) {
  const std::string text = content(5'000);
  upload({{"a.bin", text}});
  const auto asked = sent("POST", "objects/batch");
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_EQ(asked[0].path, "/datasets/tester/data.git/info/lfs/objects/batch");
  EXPECT_EQ(asked[0].header("content-type"), "application/vnd.git-lfs+json");
  EXPECT_EQ(asked[0].header("accept"), "application/vnd.git-lfs+json");
  EXPECT_EQ(asked[0].header("authorization"), "Bearer hf_test");
  EXPECT_EQ(Json::parse(asked[0].body),
            (Json{{"operation", "upload"},
                  {"transfers", {"basic", "multipart"}},
                  {"objects", Json::array({{{"oid", sha256(text)}, {"size", 5'000}}})},
                  {"hash_algo", "sha256"},
                  {"ref", {{"name", "main"}}}}));
}

TEST_F(Lfs, PutsBytesWithTheHeadersOfTheActionAndWithoutTheToken) {
  const std::string text = content(5'000);
  upload({{"a.bin", write("a.bin", text)}});
  const auto puts = sent("PUT", "/uploads/");
  ASSERT_EQ(puts.size(), 1u);
  EXPECT_FALSE(puts[0].has("authorization"));
  EXPECT_EQ(puts[0].header("content-length"), "5000");
  EXPECT_EQ(puts[0].header("x-upload-object"), sha256(text));  // what the action's header says
  EXPECT_EQ(puts[0].body, text);
  const auto verified = sent("POST", "objects/verify");
  ASSERT_EQ(verified.size(), 1u);
  EXPECT_EQ(verified[0].header("authorization"), "Bearer hf_test");
  EXPECT_EQ(Json::parse(verified[0].body), (Json{{"oid", sha256(text)}, {"size", 5'000}}));
}

TEST_F(Lfs, SendsLargeObjectsInParts) {
  server_.set_multipart(1'000);
  const std::string text = content(5'500);
  upload({{"a.bin", write("a.bin", text)}, {"b.bin", content(3'000) + "in memory"}});
  EXPECT_EQ(stored("a.bin"), text);
  EXPECT_EQ(stored("b.bin"), content(3'000) + "in memory");
  EXPECT_EQ(sent("PUT", "/uploads/" + sha256(text)).size(), 6u);
  const auto completed = sent("POST", "/uploads/" + sha256(text));
  ASSERT_EQ(completed.size(), 1u);
  EXPECT_FALSE(completed[0].has("authorization"));
  EXPECT_EQ(completed[0].header("content-type"), "application/vnd.git-lfs+json");
  const Json parts = Json::parse(completed[0].body)["parts"];
  ASSERT_EQ(parts.size(), 6u);
  EXPECT_EQ(parts[5]["partNumber"], 6);
  EXPECT_EQ(parts[5]["etag"], "\"" + sha256(text.substr(5'000)).substr(0, 32) + "\"");
}

TEST_F(Lfs, IsContentWhenTheAnswerAboutCompletePartsWasLost) {
  server_.set_multipart(1'000);
  Behaviour lost;
  lost.lose_answer = true;
  once("POST", "/uploads/", lost);
  upload({{"a.bin", content(5'000)}});
  EXPECT_EQ(stored("a.bin"), content(5'000));
  always("POST", "/uploads/", Behaviour::answer(400));
  EXPECT_THAT(error_of([&] {
                upload({{"a.bin", content(6'000)}});
              }),
              AllOf(HasSubstr("put together the parts of a.bin"), HasSubstr("400")));
}

TEST_F(Lfs, NeedsTheETagOfEveryPart) {
  server_.set_multipart(1'000);
  Behaviour behaviour;
  behaviour.without = {"etag"};
  once("PUT", "/uploads/", behaviour);
  EXPECT_THAT(error_of([&] {
                upload({{"a.bin", content(5'000)}});
              }),
              AllOf(HasSubstr("a.bin"), HasSubstr("gets no ETag")));
}

TEST_F(Lfs, SendsTheSameContentOnce) {
  const std::string text = content(5'000);
  upload({{"a.bin", text}, {"b.bin", text}, {"c/d.bin", write("c", text)}});
  EXPECT_EQ(sent("PUT", "/uploads/").size(), 1u);
  EXPECT_EQ(stored("a.bin"), text);
  EXPECT_EQ(stored("c/d.bin"), text);
}

TEST_F(Lfs, DoesNotSendWhatABrokenUploadLeft) {
  const std::string first = content(3'000), second = content(4'000);
  on("PUT", "/uploads/" + sha256(second), [](int) { return Behaviour::answer(400); });
  EXPECT_THAT(error_of([&] { upload({{"a.bin", first}, {"b.bin", second}}); }), HasSubstr("b.bin"));
  // Let the first object's upload come to its end, whatever the order.
  server_.set_hook({});
  upload({{"other.bin", first}});
  server_.forget_requests();

  upload({{"a.bin", first}, {"b.bin", second}});
  const auto puts = sent("PUT", "/uploads/");
  ASSERT_EQ(puts.size(), 1u);
  EXPECT_EQ(puts[0].body, second);
  EXPECT_EQ(stored("a.bin"), first);
  EXPECT_EQ(stored("b.bin"), second);
}

TEST_F(Lfs, SendsNothingAgainWhenOnlyTheCommitFailed) {
  once("POST", "/commit/", Behaviour::answer(400));
  EXPECT_THAT(error_of([&] { upload({{"a.bin", content(5'000)}}); }), HasSubstr("400"));
  server_.forget_requests();
  upload({{"a.bin", content(5'000)}});
  EXPECT_TRUE(sent("PUT", "/uploads/").empty());
  EXPECT_EQ(stored("a.bin"), content(5'000));
}

TEST_F(Lfs, TriesAgainWhenTheStorageIsBusyOrAConnectionBreaks) {
  const std::string text = content(3'000'000);
  on("PUT", "/uploads/", [](int number) -> std::optional<Behaviour> {
    if (number == 0) return Behaviour::answer(503);
    if (number > 2) return std::nullopt;
    Behaviour broken;
    broken.cut_upload_after = 1'000'000;
    return broken;
  });
  std::vector<TransferProgress> seen;
  UploadOptions options;
  options.progress = [&seen](const TransferProgress& at) { seen.push_back(at); };
  upload({{"a.bin", write("a.bin", text)}}, options);
  EXPECT_EQ(stored("a.bin"), text);
  EXPECT_EQ(sent("PUT", "/uploads/").size(), 4u);
  EXPECT_EQ(seen.back().bytes, text.size());  // each byte counts once
}

TEST_F(Lfs, SaysThatTheStorageCannotBeReached) {
  always("PUT", "/uploads/", Behaviour::answer(503));
  EXPECT_EQ(fault_of([&] { upload({{"a.bin", content(5'000)}}); }), HubFault::kUnreachable);
  EXPECT_THAT(error_of([&] {
                upload({{"a.bin", content(5'000)}});
              }),
              AllOf(HasSubstr("a.bin"), HasSubstr("tester/data"), HasSubstr("503")));
}

TEST_F(Lfs, AsksForAnotherAddressOnceWhenOneHasExpired) {
  for (const std::uint64_t part : {0, 1'000}) {
    server_.set_multipart(part);
    const std::string text = content(5'000 + part);
    server_.forget_requests();
    on("PUT", "/uploads/", [](int number) -> std::optional<Behaviour> {
      // Of the parts some are there already.
      return number < 2 && number % 2 == 0 ? std::optional(Behaviour::answer(403)) : std::nullopt;
    });
    std::vector<TransferProgress> seen;
    UploadOptions options;
    options.progress = [&seen](const TransferProgress& at) { seen.push_back(at); };
    upload({{"a.bin", text}}, options);
    EXPECT_EQ(stored("a.bin"), text);
    EXPECT_EQ(seen.back().bytes, text.size());
    EXPECT_EQ(sent("POST", "objects/batch").size(), 2u);
  }
  server_.forget_requests();
  always("PUT", "/uploads/", Behaviour::answer(403));
  EXPECT_THAT(error_of([&] {
                upload({{"a.bin", content(9'000)}});
              }),
              AllOf(HasSubstr("a.bin"), HasSubstr("403"), HasSubstr("clock")));
  EXPECT_EQ(sent("POST", "objects/batch").size(), 2u);
}

TEST_F(Lfs, FailsWhenTheHubCannotVerify) {
  always("POST", "objects/verify", json(404, R"({"error":"The object was not uploaded"})"));
  EXPECT_THAT(error_of([&] {
                upload({{"a.bin", content(5'000)}});
              }),
              AllOf(HasSubstr("verify a.bin"), HasSubstr("not uploaded")));
}

TEST_F(Lfs, ShowsWhatTheStorageHasAgainstAnObject) {
  EXPECT_THAT(
      fault_of_batch(content(5'000), {{"error", {{"code", 422}, {"message", "quota is used up"}}}}),
      AllOf(HasSubstr("a.bin"), HasSubstr("422"), HasSubstr("quota is used up")));
}

TEST_F(Lfs, NamesAnAnswerThatNoStorageGives) {
  const std::string text = content(5'000);
  const std::string good = server_.endpoint() + "/x";
  EXPECT_THAT(fault_of_batch(text, {{"size", 1}}), HasSubstr("another size"));
  EXPECT_THAT(fault_of_batch(text, {{"oid", "other"}}), HasSubstr("nothing"));
  EXPECT_THAT(fault_of_batch(text, {{"actions", Json::object()}}), HasSubstr("\"upload\""));
  const auto with = [](const Json& header, const std::string& href) {
    return Json{{"actions", {{"upload", {{"href", href}, {"header", header}}}}}};
  };
  EXPECT_THAT(fault_of_batch(text, with(Json::object(), "file:///etc/passwd")),
              HasSubstr("an address that is none"));
  EXPECT_THAT(fault_of_batch(text, with({{"X-A", "b\r\nX-C: d"}}, good)),
              HasSubstr("a header with a line break"));
  EXPECT_THAT(fault_of_batch(text, with({{"chunk_size", "0"}}, good)), HasSubstr("chunk_size"));
  EXPECT_THAT(fault_of_batch(text, with({{"chunk_size", "many"}}, good)), HasSubstr("chunk_size"));
  EXPECT_THAT(fault_of_batch(text, with({{"chunk_size", 4'000}, {"1", good}}, good)),
              AllOf(HasSubstr("1 parts of 4000 bytes"), HasSubstr("need 2")));
  EXPECT_THAT(fault_of_batch(
                  text, with({{"chunk_size", 4'000}, {"1", good}, {"00002", "gopher://x"}}, good)),
              HasSubstr("an address of a part that is none"));
}

TEST_F(Lfs, PutsPartsInTheOrderOfTheirNumbers) {
  const std::string text = content(11'000);
  Json header = {{"chunk_size", 1'000}};
  for (int part = 11; part >= 1; --part)  // "10" and "11" before "2" as text
    header[fmt::format("{}", part)] = fmt::format("{}/part/{}", server_.endpoint(), part);
  const Json object = {
      {"oid", sha256(text)},
      {"size", text.size()},
      {"actions", {{"upload", {{"href", server_.endpoint() + "/complete"}, {"header", header}}}}}};
  server_.set_hook([&](const Request& request) -> std::optional<Behaviour> {
    if (request.path.find("objects/batch") != std::string::npos)
      return json(200, Json{{"objects", Json::array({object})}}.dump());
    if (request.path.starts_with("/part/"))
      return Behaviour::answer(200, {{"ETag", "\"" + request.path.substr(6) + "\""}});
    if (request.path == "/complete") return json(200, "{}");
    if (request.path.find("/commit/") != std::string::npos)
      return json(200, R"({"commitOid":"1","commitUrl":"2"})");
    return std::nullopt;
  });
  upload({{"a.bin", text}});
  for (const Request& request : sent("PUT", "/part/")) {
    const auto part = static_cast<std::size_t>(std::stoi(request.path.substr(6)));
    EXPECT_EQ(request.body, text.substr((part - 1) * 1'000, 1'000)) << part;
  }
  const Json completed = Json::parse(sent("POST", "/complete").at(0).body);
  ASSERT_EQ(completed["parts"].size(), 11u);
  EXPECT_EQ(completed["parts"][1], Json::parse(R"({"partNumber":2,"etag":"\"2\""})"));
  EXPECT_EQ(completed["parts"][10], Json::parse(R"({"partNumber":11,"etag":"\"11\""})"));
}

TEST_F(Lfs, AsksForAFewHundredObjectsAtATime) {
  std::vector<UploadFile> files;
  for (int i = 0; i < 300; ++i) files.push_back({fmt::format("{}.bin", i), fmt::format("x{}", i)});
  upload(files);
  const auto asked = sent("POST", "objects/batch");
  ASSERT_EQ(asked.size(), 2u);
  EXPECT_EQ(Json::parse(asked[0].body)["objects"].size(), 256u);
  EXPECT_EQ(stored("299.bin"), "x299");
}

TEST_F(Lfs, ReportsTheFailureItselfWhenOthersAreStoppedByIt) {
  std::vector<UploadFile> files;
  for (int i = 0; i < 8; ++i)
    files.push_back({fmt::format("{}.bin", i), content(2'000'000) + fmt::format("{}", i)});
  const std::string bad = sha256(std::get<std::string>(files[3].content));
  on("PUT", "/uploads/" + bad, [](int) { return Behaviour::answer(418); });
  EXPECT_THAT(error_of([&] { upload(files); }), AllOf(HasSubstr("3.bin"), HasSubstr("418")));
}

}  // namespace
}  // namespace lerobot::hub
