#include "lerobot/hub/http_engine.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include <gmock/gmock.h>

#include "lerobot/base/error.h"
#include "tests/support/range_server.h"

namespace lerobot::hub {
namespace {

using std::chrono::milliseconds;
using test_server::Behaviour;
using test_server::RangeServer;
using test_server::Request;
using ::testing::HasSubstr;

/// Takes bytes while it has room.
class Sink : public BodySink {
 public:
  bool has_room(std::size_t) override { return room; }
  bool begin(const HttpAnswer&) override { return true; }
  bool write(std::span<const std::uint8_t> bytes) override {
    text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    received = text.size();
    if (text.size() > close_at) room = false;
    return true;
  }

  std::string text;
  std::atomic<std::size_t> received = 0;
  std::atomic<std::size_t> close_at = SIZE_MAX;
  std::atomic<bool> room = true;
};

class HttpEngineTest : public ::testing::Test {
 protected:
  HttpEngineTest() { ::setenv("no_proxy", "127.0.0.1,localhost", 1); }

  static std::unique_ptr<HttpExchange> get(const std::string& url, BodySink* sink) {
    auto exchange = std::make_unique<HttpExchange>();
    exchange->url = url;
    exchange->sink = sink;
    return exchange;
  }

  RangeServer server_;
  const std::shared_ptr<Mailbox> mailbox_ = std::make_shared<Mailbox>();
};

TEST_F(HttpEngineTest, PausesATransferWhoseSinkHasNoRoomAndDoesNotTakeItForStalled) {
  std::string content(8 << 20, 'x');
  for (std::size_t i = 0; i < content.size(); i += 100) content[i] = static_cast<char>(i);
  server_.put("/file", content);
  server_.put("/other", "other");
  HttpEngine engine({.connections = 2, .stall_timeout = milliseconds(100)});
  Sink sink;
  sink.close_at = 1 << 20;
  engine.start(get(server_.url("/file"), &sink), mailbox_);
  while (sink.room) std::this_thread::sleep_for(milliseconds(1));
  const std::size_t before = sink.received;
  std::this_thread::sleep_for(milliseconds(300));
  EXPECT_EQ(sink.received, before);

  Sink other;  // others go on meanwhile
  engine.start(get(server_.url("/other"), &other), mailbox_);
  EXPECT_EQ(mailbox_->take()->outcome, Outcome::kAnswered);
  EXPECT_EQ(other.text, "other");

  sink.close_at = SIZE_MAX;
  sink.room = true;
  engine.wake();
  EXPECT_EQ(mailbox_->take()->outcome, Outcome::kAnswered);
  EXPECT_TRUE(sink.text == content);
}

TEST_F(HttpEngineTest, BreaksOffAPausedTransferWhenItIsAbandoned) {
  server_.put("/file", std::string(8 << 20, 'x'));
  HttpEngine engine({.connections = 2});
  Sink sink;
  sink.close_at = 1;
  engine.start(get(server_.url("/file"), &sink), mailbox_);
  while (sink.room) std::this_thread::sleep_for(milliseconds(1));
  engine.abandon(*mailbox_);
  EXPECT_EQ(mailbox_->take()->outcome, Outcome::kCancelled);
}

TEST_F(HttpEngineTest, EndsARequestWhoseBodyCannotBeRead) {
  class Broken final : public BodySource {
   public:
    explicit Broken(bool early) : early_(early) {}
    std::uint64_t size() const override { return 100; }
    void rewind() override {
      if (early_) throw Error("the file is gone");
    }
    std::size_t read(std::span<std::uint8_t>) override { throw Error("the file is gone"); }

   private:
    const bool early_;
  };
  HttpEngine engine({.connections = 2});
  for (const bool early : {true, false}) {
    Broken body(early);
    auto exchange = get(server_.url("/file"), nullptr);
    exchange->method = "PUT";
    exchange->body = &body;
    engine.start(std::move(exchange), mailbox_);
    const auto answer = mailbox_->take();
    EXPECT_EQ(answer->outcome, Outcome::kFailed);
    EXPECT_EQ(answer->reason, "the file is gone");
  }
}

TEST_F(HttpEngineTest, KeepsConnectionsToTwoServersAlive) {
  RangeServer second;
  server_.put("/a", "a");
  second.put("/b", "b");
  HttpEngine engine({.connections = 1});
  for (int i = 0; i < 5; ++i)
    for (const std::string& url : {server_.url("/a"), second.url("/b")}) {
      Sink sink;
      engine.start(get(url, &sink), mailbox_);
      EXPECT_EQ(mailbox_->take()->outcome, Outcome::kAnswered);
    }
  EXPECT_EQ(server_.connections(), 1);
  EXPECT_EQ(second.connections(), 1);
}

}  // namespace
}  // namespace lerobot::hub
