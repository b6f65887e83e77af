#include "lerobot/hub/hub_client.h"

#include <atomic>
#include <future>
#include <string>
#include <thread>

#include <gmock/gmock.h>

#include "lerobot/hub/url.h"
#include "tests/hub/hub_fixture.h"
#include "tests/support/error_of.h"
#include "tests/support/http_server.h"

namespace lerobot::hub {
namespace {

using test_server::Answer;
using test_server::Behaviour;
using test_server::HttpServer;
using test_server::Request;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class HubClientTest : public HubFixture {
 protected:
  HubClientTest() { server_.commit(repo_, {{"a.txt", "a"}}); }

  ApiCall info() const { return {.url = api_url(server_.endpoint(), repo_)}; }

  /// The first `times` requests are answered so.
  void misbehave(Behaviour behaviour, int times = 1'000'000) {
    server_.set_hook([this, behaviour, times](const Request&) -> std::optional<Behaviour> {
      if (asked_++ < times) return behaviour;
      return std::nullopt;
    });
  }

  HubError error() {
    return hub_error_of([&] { client().call(info(), {.repo = repo_}); });
  }

  std::atomic<int> asked_ = 0;
};

Behaviour properly(const Request&) { return {}; }

/// Environment variables for one test.
class Variables {
 public:
  explicit Variables(std::initializer_list<std::pair<const std::string, std::string>> values) {
    for (const auto& [name, value] : values) {
      const char* old = std::getenv(name.c_str());
      old_.emplace_back(name, old ? std::optional<std::string>(old) : std::nullopt);
      ::setenv(name.c_str(), value.c_str(), 1);
    }
  }
  Variables(const Variables&) = delete;
  Variables& operator=(const Variables&) = delete;
  ~Variables() {
    for (const auto& [name, value] : old_) {
      if (value)
        ::setenv(name.c_str(), value->c_str(), 1);
      else
        ::unsetenv(name.c_str());
    }
  }

 private:
  std::vector<std::pair<std::string, std::optional<std::string>>> old_;
};

TEST_F(HubClientTest, SendsTokenAndUserAgent) {
  const Variables variables({{"HF_HUB_USER_AGENT_ORIGIN", "space\n1"}});
  environment_.credentials = {.token = "hf_x", .origin = "HF_TOKEN"};
  EXPECT_EQ(client().call_json(info(), {.repo = repo_})["id"], repo_.id);
  const Request request = server_.requests().back();
  EXPECT_EQ(request.headers.at("authorization"), "Bearer hf_x");
  EXPECT_THAT(request.headers.at("user-agent"),
              ::testing::MatchesRegex("lerobot.cpp; libcurl/[0-9.]+; origin/space 1"));
}

TEST_F(HubClientTest, FollowsARenamedRepositoryWithTheToken) {
  environment_.credentials = {.token = "hf_x", .origin = "HF_TOKEN"};
  const Repo old{RepoType::kDataset, "robot/old"};
  server_.rename(old, repo_);
  const ApiAnswer answer =
      client().call({.url = api_url(server_.endpoint(), old) + "/refs"}, {.repo = old});
  EXPECT_EQ(answer.url, api_url(server_.endpoint(), repo_) + "/refs");
  EXPECT_EQ(server_.requests().size(), 2u);
  EXPECT_EQ(server_.requests().back().headers.at("authorization"), "Bearer hf_x");
}

TEST_F(HubClientTest, GivesTheTokenToNoOtherHostAndNoOtherPort) {
  environment_.credentials = {.token = "hf_x", .origin = "HF_TOKEN"};
  std::atomic<int> with_token = 0;
  const HttpServer other({.handler =
                              [&](const Request& request) {
                                with_token += request.has("authorization");
                                return Answer{200, {}, std::string("{}")};
                              },
                          .hook = properly});
  for (const char* host : {"127.0.0.1", "localhost"}) {
    asked_ = 0;
    misbehave(Behaviour::redirect(302, other.url("/x", host)), 1);
    client().call(info(), {.repo = repo_});
  }
  EXPECT_EQ(with_token, 0);
}

TEST_F(HubClientTest, StopsAfterTooManyRedirects) {
  misbehave(Behaviour::redirect(307, "/again"));
  EXPECT_THAT(error_of([&] { client().call(info(), {.repo = repo_}); }),
              HasSubstr("more than 20 redirects"));
}

TEST_F(HubClientTest, TriesAgainWhatMayPass) {
  for (const int status : {408, 429, 500, 502, 503, 504}) {
    asked_ = 0;
    misbehave(Behaviour::answer(status), 2);
    EXPECT_EQ(error().what(), std::string("no error")) << status;
    EXPECT_EQ(asked_, 3) << status;
  }
  asked_ = 0;
  misbehave({.reset = true}, 2);
  EXPECT_EQ(error().what(), std::string("no error"));
}

TEST_F(HubClientTest, GivesUpAfterTheLastAttemptAndNamesTheReason) {
  misbehave(Behaviour::answer(503, {{"X-Error-Message", "we are moving"}}));
  const HubError found = error();
  EXPECT_EQ(found.fault(), HubFault::kUnreachable);
  EXPECT_EQ(found.status(), 503);
  EXPECT_THAT(found.what(), AllOf(HasSubstr("dataset robot/pusht: GET " + info().url),
                                  HasSubstr("status 503 (we are moving) (3 attempts)")));
}

TEST_F(HubClientTest, WaitsAsLongAsARateLimitSays) {
  misbehave(Behaviour::answer(429, {{"RateLimit", "\"api\";r=0;t=0"}, {"Retry-After", "200"}}), 1);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(error().what(), std::string("no error"));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  EXPECT_GE(took.count(), 1.0);  // t + 1
  EXPECT_LT(took.count(), 30.0);
}

TEST_F(HubClientTest, AsksOnceWhereARepeatCouldDoHarm) {
  misbehave(Behaviour::answer(503));
  ApiCall call = info();
  call.once = true;
  const auto once = [&] { return hub_error_of([&] { client().call(call, {.repo = repo_}); }); };
  EXPECT_EQ(once().fault(), HubFault::kUnreachable);
  EXPECT_EQ(asked_, 1);
  misbehave({.lose_answer = true});
  EXPECT_EQ(once().fault(), HubFault::kUnreachable);
  EXPECT_EQ(asked_, 2);
}

TEST_F(HubClientTest, SendsABodyAgainFromItsBeginning) {
  misbehave(Behaviour::answer(500), 2);
  std::string body(300'000, 'x');
  body += "end";
  client().call({.method = "POST",
                 .url = api_url(server_.endpoint(), repo_) + "/paths-info/main",
                 .body = R"({"paths": ["a.txt"]})",
                 .content_type = "application/json"},
                {.repo = repo_});
  ASSERT_EQ(server_.requests().size(), 3u);
  for (const Request& request : server_.requests()) {
    EXPECT_EQ(request.body, R"({"paths": ["a.txt"]})");
    EXPECT_EQ(request.headers.at("content-type"), "application/json");
    EXPECT_EQ(request.headers.at("content-length"), "20");
    EXPECT_FALSE(request.has("expect"));
  }
}

TEST_F(HubClientTest, SendsLargeAndEmptyBodies) {
  std::string received;
  HttpServer other({.handler =
                        [&](const Request& request) {
                          received = request.method + " " + std::to_string(request.content.size());
                          return Answer{200, {}, std::string("{}")};
                        },
                    .hook = properly});
  for (const std::string method : {"POST", "PUT"})
    for (const std::size_t size : {std::size_t{0}, std::size_t{5'000'001}}) {
      client().call({.method = method, .url = other.url("/x"), .body = std::string(size, 'b')},
                    {.repo = repo_});
      EXPECT_EQ(received, fmt::format("{} {}", method, size));
    }
  client().call({.method = "DELETE", .url = other.url("/x")}, {.repo = repo_});
  EXPECT_EQ(received, "DELETE 0");
}

TEST_F(HubClientTest, FollowsPagesWithTheToken) {
  environment_.credentials = {.token = "hf_x", .origin = "HF_TOKEN"};
  server_.set_page_size(2);
  server_.commit(repo_, {{"b", "b"}, {"c", "c"}, {"d", "d"}, {"e", "e"}});
  const Json items = client().call_pages(
      {.url = api_url(server_.endpoint(), repo_) + "/tree/main?recursive=true&expand=false"},
      {.repo = repo_});
  EXPECT_EQ(items.size(), 5u);
  EXPECT_EQ(server_.requests().size(), 3u);
  for (const Request& request : server_.requests())
    EXPECT_EQ(request.headers.at("authorization"), "Bearer hf_x");
}

TEST_F(HubClientTest, RefusesAPageThatFollowsItself) {
  Behaviour page = Behaviour::answer(
      200, {{"Link", "<" + info().url + ">; rel=\"next\""}, {"Content-Length", "2"}});
  page.body = "[]";
  misbehave(page);
  EXPECT_EQ(hub_error_of([&] { client().call_pages(info(), {.repo = repo_}); }).fault(),
            HubFault::kMisbehaved);
}

TEST_F(HubClientTest, RefusesAnAnswerThatIsNotJson) {
  misbehave({.body = "<html>sign in to the hotel's network</html>", .without = {"content-length"}});
  const HubError found = hub_error_of([&] { client().call_json(info(), {.repo = repo_}); });
  EXPECT_EQ(found.fault(), HubFault::kMisbehaved);
  EXPECT_THAT(found.what(), HasSubstr("not JSON"));
}

TEST_F(HubClientTest, AsksNothingOffline) {
  environment_.offline = true;
  EXPECT_EQ(error().fault(), HubFault::kOffline);
  EXPECT_TRUE(server_.requests().empty());
}

TEST_F(HubClientTest, NamesARefusedConnection) {
  environment_.endpoint = "http://127.0.0.1:1";
  ApiCall call{.url = "http://127.0.0.1:1/api/datasets/robot/pusht"};
  const HubError found = hub_error_of([&] { client().call(call, {.repo = repo_}); });
  EXPECT_EQ(found.fault(), HubFault::kUnreachable);
  EXPECT_EQ(found.status(), 0);
  EXPECT_THAT(found.what(), HasSubstr("127.0.0.1"));
}

TEST_F(HubClientTest, IsBrokenOffByCancel) {
  server_.set_latency(std::chrono::seconds(20));
  auto found = std::async(std::launch::async, [&] {
    return error_of([&] { client().call(info(), {.repo = repo_}); });
  });
  while (server_.requests().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  client().cancel();
  EXPECT_THAT(found.get(), HasSubstr("broken off"));
}

TEST_F(HubClientTest, ShowsAWarningOfTheHubOncePerTopic) {
  misbehave({.headers = {{"X-HF-Warning", "old; this tool is old"}}});
  ::testing::internal::CaptureStderr();
  client().call(info(), {.repo = repo_});
  client().call(info(), {.repo = repo_});
  misbehave({.headers = {{"X-HF-Warning", "other; something else"}}});
  client().call(info(), {.repo = repo_});
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(log.find("this tool is old"), log.rfind("this tool is old"));
  EXPECT_THAT(
      log, AllOf(HasSubstr("WARNING"), HasSubstr("this tool is old"), HasSubstr("something else")));
}

/// A proxy gets the whole address of what is asked for.
TEST_F(HubClientTest, GoesThroughAProxyOfTheEnvironment) {
  std::string asked;
  const HttpServer proxy(
      {.handler =
           [&](const Request& request) {
             asked = request.method + " " + request.raw_path;
             return Answer{200, {}, std::string(R"({"id": "through the proxy"})")};
           },
       .hook = properly});
  environment_.endpoint = "http://hub.invalid";
  for (const char* name : {"http_proxy", "HTTP_PROXY"}) {
    const Variables variables({{name, proxy.url()}});
    const Json answer =
        client().call_json({.url = "http://hub.invalid/api/datasets/a/b"}, {.repo = repo_});
    EXPECT_EQ(answer["id"], "through the proxy") << name;
    EXPECT_EQ(asked, "GET http://hub.invalid/api/datasets/a/b") << name;
  }
}

TEST_F(HubClientTest, SparesWhatNoProxyNames) {
  const Variables variables({{"http_proxy", "http://127.0.0.1:1"},
                             {"HTTP_PROXY", "http://127.0.0.1:1"},
                             {"no_proxy", "127.0.0.1"}});
  EXPECT_EQ(client().call_json(info(), {.repo = repo_})["id"], repo_.id);
}

TEST_F(HubClientTest, RefusesFieldsThatAreMissingOrOfAnotherType) {
  const Json answer = {{"text", "t"}, {"number", 5}, {"negative", -1}, {"real", 1.5}};
  const Subject subject{.repo = repo_};
  EXPECT_EQ(text_field(answer, "text", subject), "t");
  EXPECT_EQ(count_field(answer, "number", subject), 5u);
  for (const char* name : {"number", "absent"})
    EXPECT_EQ(hub_error_of([&] { text_field(answer, name, subject); }).fault(),
              HubFault::kMisbehaved);
  for (const char* name : {"negative", "real", "text", "absent"})
    EXPECT_EQ(hub_error_of([&] { count_field(answer, name, subject); }).fault(),
              HubFault::kMisbehaved);
  EXPECT_EQ(hub_error_of([&] { text_field(Json::array(), "x", subject); }).fault(),
            HubFault::kMisbehaved);
}

}  // namespace
}  // namespace lerobot::hub
