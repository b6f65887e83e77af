#include "lerobot/hub/range_client.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <future>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>

#include "lerobot/base/error.h"
#include "tests/support/error_of.h"
#include "tests/support/range_server.h"

namespace lerobot::hub {
namespace {

using std::chrono::milliseconds;
using test_server::Behaviour;
using test_server::RangeServer;
using test_server::Request;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Clock = std::chrono::steady_clock;

std::string random_bytes(std::size_t size, unsigned seed = 1) {
  std::mt19937_64 generator(seed);
  std::string bytes(size, '\0');
  for (std::size_t at = 0; at + 8 <= size; at += 8) {
    const std::uint64_t word = generator();
    std::memcpy(bytes.data() + at, &word, 8);
  }
  return bytes;
}

/// Memory for ranges, and what was asked for.
class Wanted {
 public:
  Wanted& add(const std::string& url, std::uint64_t offset, std::size_t size) {
    memory_.push_back(std::vector<std::uint8_t>(size, 0xa5));
    places_.push_back({url, offset});
    return *this;
  }

  void read(RangeClient& client) {
    std::vector<UrlRange> ranges;
    for (std::size_t i = 0; i < memory_.size(); ++i)
      ranges.push_back({places_[i].first, places_[i].second, memory_[i]});
    client.read(ranges);
  }

  std::string bytes(std::size_t i) const { return {memory_[i].begin(), memory_[i].end()}; }
  bool equal(const std::string& content) const {
    for (std::size_t i = 0; i < memory_.size(); ++i)
      if (bytes(i) != content.substr(places_[i].second, memory_[i].size())) return false;
    return true;
  }

 private:
  std::vector<std::vector<std::uint8_t>> memory_;
  std::vector<std::pair<std::string, std::uint64_t>> places_;
};

/// Answers GETs of a range so, the first `times` of them.
RangeServer::Hook on_reads(Behaviour behaviour, int times = 1'000'000) {
  return [behaviour, times](const Request& request) {
    return request.method == "GET" && request.number < times ? behaviour : Behaviour{};
  };
}

RangeServer::Hook on_heads(Behaviour behaviour, int times = 1'000'000) {
  return [behaviour, times](const Request& request) {
    return request.method == "HEAD" && request.number < times ? behaviour : Behaviour{};
  };
}

class RangeClientTest : public ::testing::Test {
 protected:
  RangeClientTest() {
    ::setenv("no_proxy", "127.0.0.1,localhost", 1);
    options_.first_backoff = milliseconds(2);
    options_.longest_backoff = milliseconds(10);
    options_.stall_timeout = milliseconds(5'000);
    options_.connect_timeout = milliseconds(5'000);
    options_.attempts = 3;
    server_.put("/file", content_);
  }

  std::string url() const { return server_.url("/file"); }

  /// The message of reading bytes 100-199, "no error" when they are right.
  std::string read_error() {
    RangeClient client(options_);
    return error_of([&] {
      Wanted wanted;
      wanted.add(url(), 100, 100).read(client);
      EXPECT_TRUE(wanted.equal(content_));
    });
  }

  const std::string content_ = random_bytes(100'000);
  RangeServer server_;
  RangeClientOptions options_;
};

TEST_F(RangeClientTest, TellsSizeAndIdentityAfterOneHead) {
  RangeClient client(options_);
  const RemoteFileInfo info = client.info(url());
  EXPECT_EQ(info.size, content_.size());
  ASSERT_TRUE(info.identity);
  EXPECT_THAT(*info.identity, ::testing::MatchesRegex("\"[0-9a-f]{16}\""));
  client.info(url());
  EXPECT_EQ(server_.requests().size(), 1u);
}

TEST_F(RangeClientTest, TakesLastModifiedForIdentityWhereThereIsNoETag) {
  server_.set_hook(on_heads({.without = {"etag"}}));
  RangeClient client(options_);
  EXPECT_EQ(client.info(url()).identity, "Mon, 02 Jan 2006 15:04:05 GMT");
}

TEST_F(RangeClientTest, FillsRangesOfSeveralFilesOverFewKeptConnections) {
  const std::string other = random_bytes(50'000, 2);
  server_.put("/other", other);
  options_.connections = 2;
  RangeClient client(options_);
  for (int round = 0; round < 10; ++round) {
    Wanted first;
    Wanted second;
    first.add(url(), 0, 10).add(url(), 99'999, 1).add(url(), 40'000, 5'000).read(client);
    second.add(server_.url("/other"), 49'000, 1'000).read(client);
    EXPECT_TRUE(first.equal(content_));
    EXPECT_TRUE(second.equal(other));
  }
  EXPECT_LE(server_.connections(), 2);
  EXPECT_EQ(server_.requests("HEAD", "/file"), 1);
}

TEST_F(RangeClientTest, ReadsOverlappingEmptyAndUnorderedRanges) {
  RangeClient client(options_);
  Wanted wanted;
  wanted.add(url(), 5'000, 3'000)
      .add(url(), 0, 100)
      .add(url(), 5'500, 100)
      .add(url(), 7'000, 0)
      .add(url(), 4'000, 9'000)
      .add(url(), 5'000, 3'000)
      .read(client);
  EXPECT_TRUE(wanted.equal(content_));
  client.read({});
}

TEST_F(RangeClientTest, JoinsNeighboursIntoOneRequestWithinTheShareOfWaste) {
  RangeClient client(options_);
  Wanted wanted;
  for (std::uint64_t at = 0; at + 1'000 <= content_.size(); at += 1'030)
    wanted.add(url(), at, 1'000);
  wanted.read(client);
  EXPECT_TRUE(wanted.equal(content_));
  EXPECT_EQ(server_.requests("GET", "/file"), 1);
  EXPECT_EQ(client.bytes_received(), server_.body_bytes());
  EXPECT_LE(static_cast<double>(client.bytes_received()), 97'000 * (1.0 + 1.0 / 16));
}

TEST_F(RangeClientTest, NeverFetchesMoreThanTheStatedShareWhateverTheRanges) {
  std::mt19937 generator(7);
  for (int round = 0; round < 20; ++round) {
    RangeClient client(options_);
    Wanted wanted;
    std::uint64_t asked = 0;
    std::uint64_t at = 0;
    while (true) {
      at += generator() % 3'000;
      const std::size_t size = 1 + generator() % 9'000;
      if (at + size > content_.size()) break;
      wanted.add(url(), at, size);
      asked += size;
      at += size;
    }
    wanted.read(client);
    EXPECT_TRUE(wanted.equal(content_));
    EXPECT_LE(client.bytes_received() * 16, asked * 17) << "round " << round;
  }
}

TEST_F(RangeClientTest, SplitsALargeRangeAmongConnections) {
  const std::string large = random_bytes((17 << 20) + 5, 3);
  server_.put("/large", large);
  options_.subranges = 8;  // parts have at least 8 MiB, so there are two
  RangeClient client(options_);
  Wanted wanted;
  wanted.add(server_.url("/large"), 0, large.size()).read(client);
  EXPECT_TRUE(wanted.equal(large));
  EXPECT_EQ(server_.requests("GET", "/large"), 2);
  EXPECT_GE(server_.connections(), 2);
}

TEST_F(RangeClientTest, ManyThreadsShareOneClient) {
  options_.connections = 4;
  RangeClient client(options_);
  std::atomic<int> right = 0;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      std::mt19937 generator(t);
      for (int i = 0; i < 20; ++i) {
        Wanted wanted;
        wanted.add(url(), generator() % 90'000, 1 + generator() % 10'000).read(client);
        right += wanted.equal(content_);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 160);
  EXPECT_LE(server_.connections(), 4);
  EXPECT_EQ(server_.requests("HEAD", "/file"), 1);
}

TEST_F(RangeClientTest, RefusesBytesBeyondTheFileBeforeAskingForThem) {
  RangeClient client(options_);
  EXPECT_THAT(error_of([&] { Wanted().add(url(), 99'990, 11).read(client); }),
              AllOf(HasSubstr("bytes 99990-100000 are asked for"), HasSubstr("has 100000 bytes")));
  EXPECT_THAT(error_of([&] { Wanted().add(url(), UINT64_MAX - 5, 11).read(client); }),
              HasSubstr("overflows"));
  EXPECT_EQ(server_.requests("GET", "/file"), 0);
}

TEST_F(RangeClientTest, FindsTheSizeWithoutHead) {
  for (const int status : {405, 501}) {
    server_.set_hook(on_heads(Behaviour::answer(status)));
    EXPECT_EQ(RangeClient(options_).info(url()).size, content_.size());
    EXPECT_EQ(read_error(), "no error");
  }
}

TEST_F(RangeClientTest, FindsTheSizeWithoutContentLength) {
  server_.set_hook(on_heads({.without = {"content-length"}}));
  EXPECT_EQ(read_error(), "no error");
  server_.put("/empty", "");
  EXPECT_EQ(RangeClient(options_).info(server_.url("/empty")).size, 0u);
}

TEST_F(RangeClientTest, SaysThatAServerTellsNoSize) {
  server_.set_hook([](const Request& request) -> Behaviour {
    if (request.method == "HEAD") return {.without = {"content-length"}};
    return {.headers = {{"Content-Range", "bytes 0-0/*"}}};
  });
  EXPECT_THAT(read_error(), HasSubstr("doesn't tell the file's size"));
}

TEST_F(RangeClientTest, RefusesTheWholeFileForARange) {
  server_.set_hook(on_reads({.ignore_range = true}));
  EXPECT_THAT(read_error(), AllOf(HasSubstr("status 200 and the whole file"), HasSubstr(url()),
                                  HasSubstr("bytes 100-199")));
  EXPECT_EQ(server_.requests("GET", "/file"), 1);
}

TEST_F(RangeClientTest, CutsTheWholeFileShortThatComesForARange) {
  server_.put("/file", std::string(16 << 20, 'x'));
  server_.set_hook(on_reads({.bytes_per_second = 20e6, .ignore_range = true}));
  RangeClient client(options_);
  EXPECT_THAT(error_of([&] { Wanted().add(url(), 100, 100).read(client); }),
              HasSubstr("status 200"));
  EXPECT_LT(client.bytes_received(), 1u << 20);
}

TEST_F(RangeClientTest, RefusesAnyContentRangeButTheAskedOne) {
  for (const char* range : {"bytes 0-99/100000", "bytes 100-198/100000", "bytes 100-199",
                            "items 100-199/100000", "bytes 199-100/100000", "bytes 100-199/150"}) {
    server_.set_hook(on_reads({.headers = {{"Content-Range", range}}}));
    EXPECT_THAT(read_error(), AllOf(HasSubstr("expected Content-Range: bytes 100-199/100000"),
                                    HasSubstr(std::string("found ") + range)));
  }
  server_.set_hook(on_reads({.without = {"content-range"}}));
  EXPECT_THAT(read_error(), HasSubstr("found none"));
  server_.set_hook(on_reads({.headers = {{"Content-Range", "bytes 100-199/*"}}}));
  EXPECT_EQ(read_error(), "no error");
}

TEST_F(RangeClientTest, RefusesCompressedBytes) {
  server_.set_hook(on_reads({.headers = {{"Content-Encoding", "gzip"}}}));
  EXPECT_THAT(read_error(), HasSubstr("found Content-Encoding: gzip"));
}

TEST_F(RangeClientTest, RefusesABodyThatIsTooLong) {
  server_.set_hook(on_reads({.body = std::string(101, 'x'), .without = {"content-length"}}));
  EXPECT_THAT(read_error(), HasSubstr("more than the 100 bytes of the range"));
  server_.set_hook(
      on_reads({.body = std::string(101, 'x'), .headers = {{"Content-Length", "101"}}}));
  EXPECT_THAT(read_error(), HasSubstr("found Content-Length: 101"));
}

TEST_F(RangeClientTest, ContinuesAfterAShortBody) {
  server_.set_hook(on_reads({.cut_after = 60}, 1));
  EXPECT_EQ(read_error(), "no error");
  const auto requests = server_.requests();
  EXPECT_EQ(requests.back().headers.at("range"), "bytes=160-199");
  EXPECT_EQ(server_.body_bytes(), 100u);
}

TEST_F(RangeClientTest, GivesUpOnShortBodiesNamingUrlBytesAndAttempts) {
  server_.set_hook(on_reads({.cut_after = 0}));
  EXPECT_THAT(read_error(), AllOf(HasSubstr(url() + ": bytes 100-199: "),
                                  HasSubstr("0 of 100 bytes"), HasSubstr("(3 attempts)")));
  EXPECT_EQ(server_.requests("GET", "/file"), 3);
  // The length itself is a lie.
  server_.set_hook(on_reads({.body = "short", .headers = {{"Content-Length", "5"}}}));
  EXPECT_THAT(read_error(), HasSubstr("the body ended after 15 of 100 bytes (3 attempts)"));
}

TEST_F(RangeClientTest, UsesAServerThatClosesLongTransfersToTheEnd) {
  const std::string large = random_bytes(7 << 20, 4);
  server_.put("/large", large);
  server_.set_hook(on_reads({.cut_after = (1 << 20) + (1 << 19)}));
  RangeClient client(options_);
  Wanted wanted;
  wanted.add(server_.url("/large"), 0, large.size()).read(client);
  EXPECT_TRUE(wanted.equal(large));
  EXPECT_EQ(server_.requests("GET", "/large"), 5);
}

TEST_F(RangeClientTest, SurvivesResetsBeforeAndInsideTheBody) {
  server_.set_hook(on_reads({.reset = true}, 2));
  EXPECT_EQ(read_error(), "no error");
  server_.set_hook([first = true](const Request& request) mutable -> Behaviour {
    if (request.method == "HEAD" || !std::exchange(first, false)) return {};
    return {.cut_after = 10, .reset = true};
  });
  EXPECT_EQ(read_error(), "no error");
  server_.set_hook(on_reads({.reset = true}));
  EXPECT_THAT(read_error(), AllOf(HasSubstr(url()), HasSubstr("(3 attempts)")));
}

TEST_F(RangeClientTest, BreaksOffAStalledTransferAndTriesAgain) {
  options_.stall_timeout = milliseconds(150);
  server_.set_hook(on_reads({.cut_after = 10, .stall = true}, 1));
  EXPECT_EQ(read_error(), "no error");
  server_.set_hook(on_reads({.latency = milliseconds(60'000)}));
  const auto begin = Clock::now();
  EXPECT_THAT(read_error(), AllOf(HasSubstr("no byte arrived for 150 ms"), HasSubstr(url())));
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(4));
}

TEST_F(RangeClientTest, BreaksOffATransferThatOnlyTrickles) {
  options_.stall_timeout = milliseconds(250);
  options_.attempts = 1;
  server_.set_hook(on_reads({.bytes_per_second = 100.0}));
  EXPECT_THAT(read_error(), HasSubstr("bytes arrived in 250 ms"));
}

TEST_F(RangeClientTest, TriesAgainAfterStatusesThatSayLater) {
  for (const int status : {408, 425, 429, 500, 502, 503, 504}) {
    const int before = server_.requests("GET", "/file");
    server_.set_hook(on_reads(Behaviour::answer(status), before + 2));
    EXPECT_EQ(read_error(), "no error") << status;
    EXPECT_EQ(server_.requests("GET", "/file"), before + 3);
  }
  server_.set_hook(on_reads(Behaviour::answer(503)));
  EXPECT_THAT(read_error(), AllOf(HasSubstr(url() + ": bytes 100-199: status 503 (3 attempts)")));
}

TEST_F(RangeClientTest, TriesTheHeadAgain) {
  server_.set_hook(on_heads(Behaviour::answer(503), 2));
  EXPECT_EQ(read_error(), "no error");
}

TEST_F(RangeClientTest, WaitsAsLongAsTheServerAsks) {
  server_.set_hook(on_reads(Behaviour::answer(429, {{"Retry-After", "1"}}), 1));
  const auto begin = Clock::now();
  EXPECT_EQ(read_error(), "no error");
  EXPECT_GE(Clock::now() - begin, milliseconds(1'000));
}

TEST_F(RangeClientTest, CapsTheWaitThatAServerAsksFor) {
  options_.longest_server_wait = milliseconds(20);
  server_.set_hook(on_reads(Behaviour::answer(503, {{"Retry-After", "3600"}}), 1));
  const auto begin = Clock::now();
  EXPECT_EQ(read_error(), "no error");
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(30));
}

TEST_F(RangeClientTest, FailsAtOnceWhereNoRetryHelps) {
  struct Case {
    int status;
    const char* text;
  };
  for (const auto& [status, text] :
       {Case{404, "there is no such file on the server, status 404"},
        Case{410, "there is no such file"}, Case{416, "the server has no such bytes, status 416"},
        Case{400, "the server refuses, status 400"}, Case{451, "the server refuses, status 451"}}) {
    const int before = server_.requests("GET", "/file");
    server_.set_hook(on_reads(Behaviour::answer(status)));
    EXPECT_THAT(read_error(), HasSubstr(text));
    EXPECT_EQ(server_.requests("GET", "/file"), before + 1);
  }
  RangeClient client(options_);
  EXPECT_THAT(error_of([&] { client.info(server_.url("/absent")); }), HasSubstr("no such file"));
}

TEST_F(RangeClientTest, SaysWhichTokenWasRefused) {
  const Behaviour denial = Behaviour::answer(401, {{"X-Error-Message", "Invalid \x1b[31mtoken"}});
  server_.set_hook(on_heads(denial));
  EXPECT_THAT(read_error(), AllOf(HasSubstr("access denied, status 401 (Invalid  [31mtoken)"),
                                  HasSubstr("no token was sent")));
  options_.token = "hf_secret";
  options_.token_origin = "HF_TOKEN";
  EXPECT_THAT(read_error(),
              AllOf(HasSubstr("the token from HF_TOKEN was sent"), Not(HasSubstr("secret"))));
  server_.set_hook(on_reads(Behaviour::answer(403)));
  EXPECT_THAT(read_error(), HasSubstr("access denied, status 403; the token from HF_TOKEN"));
  EXPECT_EQ(server_.requests("HEAD", "/file"), 3) << "a denial is not tried again";
}

TEST_F(RangeClientTest, SendsTheTokenToTheSource) {
  options_.token = "hf_secret";
  EXPECT_EQ(read_error(), "no error");
  for (const Request& request : server_.requests())
    EXPECT_EQ(request.headers.at("authorization"), "Bearer hf_secret");
}

TEST_F(RangeClientTest, RefusesATokenThatWouldSplitAHeader) {
  options_.token = "hf_a\r\nX-Evil: 1";
  options_.token_origin = "HF_TOKEN";
  EXPECT_THAT(error_of([&] { RangeClient client(options_); }),
              AllOf(HasSubstr("HF_TOKEN"), Not(HasSubstr("hf_a"))));
}

TEST_F(RangeClientTest, RefusesOptionsOutOfRange) {
  options_.connections = 0;
  EXPECT_THAT(error_of([&] { RangeClient client(options_); }),
              HasSubstr("connections must be positive, found 0"));
  options_.connections = 1;
  options_.attempts = 0;
  EXPECT_THAT(error_of([&] { RangeClient client(options_); }),
              HasSubstr("attempts must be positive, found 0"));
}

TEST_F(RangeClientTest, NoticesThatTheFileChangedDuringTheRun) {
  RangeClient client(options_);
  Wanted().add(url(), 0, 10).read(client);
  std::string other = content_;
  other[50] = static_cast<char>(other[50] + 1);
  server_.put("/file", other);  // the same size, another ETag
  EXPECT_THAT(error_of([&] { Wanted().add(url(), 0, 10).read(client); }),
              HasSubstr("changed during the run"));
}

TEST_F(RangeClientTest, NoticesANewDateWhereThereIsNoETag) {
  server_.set_hook([](const Request& request) -> Behaviour {
    Behaviour behaviour{.without = {"etag"}};
    if (request.method == "GET")
      behaviour.headers = {{"Last-Modified", "Tue, 03 Jan 2006 15:04:05 GMT"}};
    return behaviour;
  });
  EXPECT_THAT(read_error(), HasSubstr("changed during the run"));
}

TEST_F(RangeClientTest, NoticesANewSize) {
  server_.set_hook(on_reads({.headers = {{"Content-Range", "bytes 100-199/100001"}}}));
  EXPECT_THAT(read_error(), HasSubstr("changed during the run"));
}

TEST_F(RangeClientTest, ReportsAServerThatIsNotThere) {
  std::string gone;
  {
    const RangeServer server;
    gone = server.url("/file");
  }
  RangeClient client(options_);
  EXPECT_THAT(error_of([&] { client.info(gone); }),
              AllOf(HasSubstr(gone), HasSubstr("3 attempts")));
  // A label of more than 63 letters: no resolver has to be asked to know that there is no such
  // host.
  const std::string nowhere = "http://" + std::string(64, 'a') + ".invalid/file";
  EXPECT_THAT(error_of([&] { client.info(nowhere); }),
              AllOf(HasSubstr(nowhere), HasSubstr("3 attempts")));
}

TEST_F(RangeClientTest, RefusesOtherSchemesAndNonsense) {
  RangeClient client(options_);
  EXPECT_THAT(error_of([&] { client.info("file:///etc/passwd"); }), Not(HasSubstr("no error")));
  EXPECT_THAT(error_of([&] { client.info("http://"); }), Not(HasSubstr("no error")));
  server_.set_hook(on_heads(Behaviour::redirect(302, "file:///etc/passwd")));
  EXPECT_THAT(error_of([&] { client.info(url()); }), HasSubstr("no http or https URL"));
}

TEST_F(RangeClientTest, GetsSmallFilesAsAWhole) {
  RangeClient client(options_);
  server_.set_hook(on_reads(Behaviour::answer(503), 1));
  EXPECT_EQ(client.get(url()), content_);
  EXPECT_EQ(client.get(server_.url("/absent")), std::nullopt);
  server_.set_hook(on_reads({.cut_after = 500}));
  EXPECT_THAT(error_of([&] { client.get(url()); }),
              AllOf(HasSubstr(url()), HasSubstr("3 attempts")));
  server_.set_hook(on_reads(Behaviour::answer(403)));
  EXPECT_THAT(error_of([&] { client.get(url()); }), HasSubstr("access denied"));
}

TEST_F(RangeClientTest, GetsOnlyWhatTheCallerHasNot) {
  RangeClient client(options_);
  std::vector<DocumentRequest> requests = {{.url = url()}};
  const auto first = client.get(requests);
  ASSERT_TRUE(first[0] && first[0]->etag);
  requests[0].known_etag = first[0]->etag;
  const std::uint64_t before = client.bytes_received();
  const auto second = client.get(requests);
  EXPECT_TRUE(second[0]->unchanged);
  EXPECT_EQ(client.bytes_received(), before);
  server_.put("/file", "new");
  EXPECT_EQ(client.get(requests)[0]->body, "new");
}

TEST_F(RangeClientTest, CancelEndsAllCallsSoonAndForGood) {
  options_.stall_timeout = milliseconds(60'000);
  server_.set_hook(on_reads({.latency = milliseconds(60'000)}));
  RangeClient client(options_);
  std::vector<std::future<std::string>> calls;
  for (int i = 0; i < 12; ++i)  // more than there are connections
    calls.push_back(std::async(std::launch::async, [&, i] {
      return error_of([&] { Wanted().add(url(), 10 * static_cast<unsigned>(i), 5).read(client); });
    }));
  while (server_.requests("GET", "/file") < 8) std::this_thread::sleep_for(milliseconds(1));
  const auto begin = Clock::now();
  client.cancel();
  for (auto& call : calls) EXPECT_THAT(call.get(), HasSubstr("cancelled"));
  EXPECT_LT(Clock::now() - begin, milliseconds(1'000));  // far below, but machines are busy
  EXPECT_THAT(error_of([&] { client.info(server_.url("/other")); }), HasSubstr("cancelled"));
}

TEST_F(RangeClientTest, CancelEndsAWaitBetweenAttempts) {
  server_.set_hook(on_reads(Behaviour::answer(429, {{"Retry-After", "3"}})));
  RangeClient client(options_);
  auto call = std::async(std::launch::async,
                         [&] { return error_of([&] { Wanted().add(url(), 0, 5).read(client); }); });
  while (server_.requests("GET", "/file") < 1) std::this_thread::sleep_for(milliseconds(1));
  const auto begin = Clock::now();
  client.cancel();
  EXPECT_THAT(call.get(), HasSubstr("cancelled"));
  EXPECT_LT(Clock::now() - begin, milliseconds(1'500));
}

TEST_F(RangeClientTest, OneFailureBreaksOffTheOthersOfItsCall) {
  server_.put("/slow", content_);
  server_.set_hook([](const Request& request) -> Behaviour {
    if (request.method == "HEAD") return {};
    if (request.path == "/slow") return {.cut_after = 10, .stall = true};
    return Behaviour::answer(404);
  });
  RangeClient client(options_);
  const auto begin = Clock::now();
  EXPECT_THAT(
      error_of([&] { Wanted().add(server_.url("/slow"), 0, 100).add(url(), 0, 100).read(client); }),
      HasSubstr("no such file"));
  EXPECT_LT(Clock::now() - begin, options_.stall_timeout);
}

/// A source that redirects to a second server with a signature, as the Hub does.
class RedirectTest : public RangeClientTest {
 protected:
  RedirectTest() {
    options_.token = "hf_secret";
    options_.token_origin = "HF_TOKEN";
    storage_.put("/blob", content_);
    server_.set_hook([this](const Request& request) { return source(request); });
    storage_.set_hook([this](const Request& request) { return storage(request); });
  }
  ~RedirectTest() override {
    for (const Request& request : storage_.requests())
      EXPECT_FALSE(request.has("authorization")) << "the token left its origin";
  }

  Behaviour source(const Request& request) {
    if (!request.has("authorization")) return Behaviour::answer(401);
    // A cache on the way gives out the old signature until it is passed by.
    if (request.query.starts_with("_refresh=")) signature_ = valid_.load();
    return Behaviour::redirect(
        302, storage_.url("/blob", host_) + "?sig=" + std::to_string(signature_), links_);
  }

  Behaviour storage(const Request& request) const {
    if (request.has("authorization")) return Behaviour::answer(400);
    if (request.query != "sig=" + std::to_string(valid_)) return Behaviour::answer(403);
    return {.headers = {{"ETag", "\"of-the-storage\""}}};
  }

  RangeServer storage_;
  std::atomic<int> valid_ = 1;
  std::atomic<int> signature_ = 1;
  std::string host_ = "127.0.0.1";  // another port is another origin, too
  test_server::Headers links_ = {{"X-Linked-Size", std::to_string(content_.size())},
                                 {"X-Linked-ETag", "\"linked\""}};
};

TEST_F(RedirectTest, ReadsFromTheTargetWithoutTheToken) {
  EXPECT_EQ(read_error(), "no error");
  EXPECT_EQ(server_.requests().size(), 1u);
  EXPECT_EQ(storage_.requests().size(), 1u) << "X-Linked-Size makes the target's HEAD needless";
  host_ = "localhost";
  EXPECT_EQ(read_error(), "no error");
}

TEST_F(RedirectTest, TellsTheLinkedSizeAndIdentity) {
  RangeClient client(options_);
  const RemoteFileInfo info = client.info(url());
  EXPECT_EQ(info.size, content_.size());
  EXPECT_EQ(info.identity, "\"linked\"");
}

TEST_F(RedirectTest, AsksTheTargetForTheSizeWhenTheSourceDoesNotTellIt) {
  links_.clear();
  RangeClient client(options_);
  const RemoteFileInfo info = client.info(url());
  EXPECT_EQ(info.size, content_.size());
  EXPECT_EQ(info.identity, "\"of-the-storage\"");
}

TEST_F(RedirectTest, AsksForOneByteWhereTheSignatureAllowsNoHead) {
  links_.clear();
  storage_.set_hook([this](const Request& request) {
    return request.method == "HEAD" ? Behaviour::answer(403) : storage(request);
  });
  EXPECT_EQ(read_error(), "no error");
}

TEST_F(RedirectTest, ResolvesAgainPastCachesWhenTheSignatureHasExpired) {
  RangeClient client(options_);
  Wanted().add(url(), 0, 10).read(client);
  valid_ = 2;
  Wanted wanted;
  wanted.add(url(), 100, 50).add(url(), 90'000, 50).read(client);
  EXPECT_TRUE(wanted.equal(content_));
  const auto requests = server_.requests();
  ASSERT_EQ(requests.size(), 2u) << "one refresh for all ranges of the file";
  EXPECT_THAT(requests[1].query,
              ::testing::MatchesRegex("_refresh=[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]"
                                      "{3}-[0-9a-f]{12}"));
  EXPECT_EQ(requests[1].headers.at("authorization"), "Bearer hf_secret");
}

TEST_F(RedirectTest, GivesUpWhenDeniedAgainAfterTheRefresh) {
  storage_.set_hook([](const Request&) { return Behaviour::answer(403); });
  const std::string message = read_error();
  EXPECT_THAT(message, AllOf(HasSubstr(url()), HasSubstr("also after the URL was refreshed"),
                             HasSubstr("status 403"), Not(HasSubstr("sig="))));
  EXPECT_EQ(server_.requests().size(), 2u);
  EXPECT_EQ(storage_.requests().size(), 2u);
}

TEST_F(RedirectTest, NoticesAnotherContentAfterTheRefresh) {
  RangeClient client(options_);
  Wanted().add(url(), 0, 10).read(client);
  valid_ = 2;
  links_[1].second = "\"other\"";
  EXPECT_THAT(error_of([&] { Wanted().add(url(), 0, 10).read(client); }),
              HasSubstr("changed during the run"));
}

TEST_F(RedirectTest, KeepsTheTokenOnRedirectsInsideTheOrigin) {
  server_.put("/cache/file", content_);
  server_.set_hook([](const Request& request) -> Behaviour {
    if (!request.has("authorization")) return Behaviour::answer(401);
    if (request.path == "/file") return Behaviour::redirect(307, "/cache/file?etag=1");
    return {};
  });
  EXPECT_EQ(read_error(), "no error");
  EXPECT_EQ(server_.requests("GET", "/cache/file"), 1);
}

TEST_F(RedirectTest, FollowsARedirectMetWhileReading) {
  server_.set_hook([this](const Request& request) -> Behaviour {
    if (request.method == "HEAD") return {};
    return Behaviour::redirect(302, storage_.url("/blob?sig=1"));
  });
  EXPECT_EQ(read_error(), "no error");
}

TEST_F(RedirectTest, StopsInACircleOfRedirects) {
  server_.set_hook([](const Request&) { return Behaviour::redirect(302, "/file"); });
  EXPECT_THAT(read_error(), HasSubstr("more than 20 redirects"));
  server_.set_hook([](const Request&) { return Behaviour::answer(302); });
  EXPECT_THAT(read_error(), HasSubstr("no Location header"));
}

TEST_F(RedirectTest, GetsADocumentThroughARedirectWithoutTheToken) {
  RangeClient client(options_);
  EXPECT_EQ(client.get(url()), content_);
}

}  // namespace
}  // namespace lerobot::hub
