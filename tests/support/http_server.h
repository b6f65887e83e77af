// An HTTP/1.1 server for tests: kept-alive connections on a port of its own, a thread for each, and
// any fault on request. What it answers is its user's.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lerobot/base/files.h"
#include "tests/support/http_connection.h"
#include "tests/support/http_message.h"

namespace lerobot::test_server {

class HttpServer {
 public:
  struct Options {
    std::string name = {};  ///< Request::server
    /// Gives the proper answer; called from several threads at once. What it throws becomes a 500.
    std::function<Answer(const Request&)> handler;
    /// Called once for every request before it is handled, from several threads at once; before its
    /// body is read when that is long. Null: every request is answered properly.
    std::function<Behaviour(const Request&)> hook = {};
    /// Where long bodies of requests lie for as long as somebody holds them.
    std::filesystem::path folder = std::filesystem::temp_directory_path();
  };

  /// Listens on 127.0.0.1 until it is destroyed.
  explicit HttpServer(Options options);
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;
  ~HttpServer();

  int port() const { return port_; }
  std::string url(const std::string& path = "", const std::string& host = "127.0.0.1") const;

  int connections() const;
  std::uint64_t body_bytes() const;
  std::uint64_t body_bytes(const std::string& path) const;

 private:
  void accept_loop();
  void serve(int connection, int fd);
  /// False: the connection is to be closed.
  bool serve_one(RequestReader& reader, int connection, int fd);
  Answer handle(Request request, const Behaviour& behaviour) const;
  bool send(int fd, const Request& request, const Behaviour& behaviour, Answer answer);
  bool send_body(int fd, const std::string& path, const Behaviour& behaviour, Bytes body);
  /// False when the server is being stopped.
  bool pause(std::chrono::duration<double> time);

  const Options options_;
  UniqueFd listener_;
  int port_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable stop_;
  bool stopping_ = false;
  std::map<std::pair<std::string, std::string>, int> counts_;  ///< requests by method and path
  std::map<std::string, std::uint64_t> bytes_;
  int connections_ = 0;
  std::vector<int> open_;
  std::vector<std::thread> threads_;
  std::thread acceptor_;
};

}  // namespace lerobot::test_server
