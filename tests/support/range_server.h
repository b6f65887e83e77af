// An HTTP/1.1 server for tests: files and byte ranges over kept-alive connections, and any fault on
// request.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/http_message.h"
#include "tests/support/http_server.h"

namespace lerobot::test_server {

/// Serves the files below a folder, and those that were put in memory, on a port of 127.0.0.1 of
/// its own until it is destroyed. HEAD and GET; ETag (from content, quoted), Last-Modified,
/// Content-Range.
class RangeServer {
 public:
  /// Called for every request, from several threads, one at a time.
  using Hook = std::function<Behaviour(const Request&)>;

  explicit RangeServer(std::filesystem::path folder = {}, Hook hook = {});

  /// A file of its own, before those of the folder. `path` begins with '/'.
  void put(const std::string& path, std::string content);
  void remove(const std::string& path);
  void set_hook(Hook hook);

  int port() const { return server_.port(); }
  std::string url(const std::string& path = "", const std::string& host = "127.0.0.1") const {
    return server_.url(path, host);
  }

  int connections() const { return server_.connections(); }
  std::vector<Request> requests() const;
  /// Of one method and path.
  int requests(const std::string& method, const std::string& path) const;
  std::uint64_t body_bytes() const { return server_.body_bytes(); }
  std::uint64_t body_bytes(const std::string& path) const { return server_.body_bytes(path); }

 private:
  Behaviour behaviour(const Request& request);
  Answer answer(const Request& request) const;
  std::optional<std::string> content(const std::string& path) const;

  const std::filesystem::path folder_;
  mutable std::mutex mutex_;
  Hook hook_;
  std::map<std::string, std::string> files_;
  std::vector<Request> requests_;
  HttpServer server_;  ///< last: it calls the rest
};

}  // namespace lerobot::test_server
