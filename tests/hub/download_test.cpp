#include "lerobot/hub/download.h"

#include <arpa/inet.h>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#include <gmock/gmock.h>

#include "lerobot/base/error.h"
#include "lerobot/base/files.h"
#include "lerobot/hub/home.h"

namespace lerobot::hub {
namespace {

using testing::HasSubstr;

/// Answers each connection with the next of its texts, then closes it.
class OneShotServer {
 public:
  explicit OneShotServer(std::vector<std::string> answers)
      : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(socket_.get(), 4), 0);
    socklen_t size = sizeof address;
    ::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this, answers = std::move(answers)] {
      for (const std::string& answer : answers) {
        UniqueFd client(::accept(socket_.get(), nullptr, nullptr));
        char request[4096];
        if (client.get() < 0 || ::read(client.get(), request, sizeof request) <= 0) return;
        if (::write(client.get(), answer.data(), answer.size()) < 0) return;
      }
    });
  }
  ~OneShotServer() {
    ::shutdown(socket_.get(), SHUT_RDWR);
    thread_.join();
  }

  std::string url(const std::string& path = "/file") const {
    return "http://127.0.0.1:" + std::to_string(port_) + path;
  }

 private:
  UniqueFd socket_;
  int port_ = 0;
  std::thread thread_;
};

class Download : public testing::Test {
 protected:
  Download() {
    ::unsetenv("HF_HUB_OFFLINE");
    ::setenv("no_proxy", "127.0.0.1", 1);
    options_.allow_plain_http = true;
  }
  ~Download() override { fs::remove_all(directory_); }

  std::string error(const std::string& url) {
    try {
      download_file(url, destination_, options_);
    } catch (const Error& error) {
      EXPECT_FALSE(fs::exists(directory_) && !fs::is_empty(directory_)) << "something was left";
      return error.what();
    }
    return "no error";
  }

  const fs::path directory_ =
      fs::temp_directory_path() / ("lerobot_download_test." + std::to_string(::getpid()));
  const fs::path destination_ = directory_ / "file";
  DownloadOptions options_;
};

TEST_F(Download, WritesTheBodyAndReportsProgress) {
  const OneShotServer server(
      {"HTTP/1.1 302 Found\r\nLocation: /other\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
       "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"});
  std::uint64_t last = 0;
  options_.progress = [&](std::uint64_t received, std::uint64_t) { last = received; };
  download_file(server.url(), directory_ / "file", options_);
  EXPECT_EQ(read_text_file(directory_ / "file"), "hello");
  EXPECT_EQ(last, 5);
  int files = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(directory_)) ++files;
  EXPECT_EQ(files, 1);
}

TEST_F(Download, NamesTheUrlAndTheStatusOfAFailure) {
  const OneShotServer server(
      {"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\nConnection: close\r\n\r\nnope"});
  EXPECT_THAT(error(server.url()), testing::AllOf(HasSubstr(server.url()), HasSubstr("404")));
}

TEST_F(Download, RefusesABodyThatIsCutShort) {
  const OneShotServer server(
      {"HTTP/1.1 200 OK\r\nContent-Length: 100\r\nConnection: close\r\n\r\nhello"});
  EXPECT_THAT(error(server.url()), HasSubstr("95 bytes remaining"));
}

TEST_F(Download, RefusesAPartOfAFile) {
  const OneShotServer server(
      {"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-4/100\r\n"
       "Content-Length: 5\r\nConnection: close\r\n\r\nhello"});
  EXPECT_THAT(error(server.url()), HasSubstr("expected status 200, found 206"));
}

TEST_F(Download, ReportsAServerThatIsNotThere) {
  std::string url;
  {
    const OneShotServer server({});
    url = server.url();
  }
  EXPECT_THAT(error(url), HasSubstr(url));
}

TEST_F(Download, SpeaksHttpsOnlyUnlessToldOtherwise) {
  options_.allow_plain_http = false;
  EXPECT_THAT(error("http://127.0.0.1:9/file"), HasSubstr("http"));
}

TEST_F(Download, DoesNothingOffline) {
  for (const char* value : {"1", "true", "Yes", "ON"}) {
    ::setenv("HF_HUB_OFFLINE", value, 1);
    EXPECT_THAT(error("https://127.0.0.1:9/file"), HasSubstr("HF_HUB_OFFLINE is set"));
  }
  ::setenv("HF_HUB_OFFLINE", "0", 1);
  EXPECT_FALSE(offline_requested());
  ::unsetenv("HF_HUB_OFFLINE");
}

TEST_F(Download, PassesOnAnExceptionOfTheProgressCallback) {
  const OneShotServer server(
      {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"});
  options_.progress = [](std::uint64_t, std::uint64_t) { throw Error("stopped by the user"); };
  EXPECT_EQ(error(server.url()), "stopped by the user");
}

}  // namespace
}  // namespace lerobot::hub
