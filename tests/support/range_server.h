// An HTTP/1.1 server for tests: files and byte ranges over kept-alive connections, and any fault on
// request.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lerobot/base/files.h"

namespace lerobot::test_server {

using Headers = std::vector<std::pair<std::string, std::string>>;

struct Request {
  std::string method;
  std::string path;                            ///< decoded, without the query
  std::string query;                           ///< as sent
  std::map<std::string, std::string> headers;  ///< names in lower case
  int number = 0;                              ///< of this method and path, from 0
  int connection = 0;                          ///< from 0, in the order of arrival

  bool has(const std::string& header) const { return headers.contains(header); }
};

/// How the server answers one request. As it stands: properly.
struct Behaviour {
  std::chrono::milliseconds latency{0};   ///< before the first byte
  double bytes_per_second = 0.0;          ///< of the body; 0: as fast as it goes
  std::optional<int> status = {};         ///< with a short body of its own
  bool ignore_range = false;              ///< 200 and the whole file
  std::optional<std::string> body = {};   ///< instead of the file's bytes
  Headers headers = {};                   ///< added, or in place of those of the same name
  std::vector<std::string> without = {};  ///< headers left out, in lower case
  std::optional<std::uint64_t> cut_after =
      {};              ///< this many body bytes, then the connection closes
  bool reset = false;  ///< the cut is a reset; without cut_after: before any answer
  bool stall = false;  ///< after the cut nothing comes, and the connection stays open

  static Behaviour answer(int status, Headers headers = {});
  static Behaviour redirect(int status, const std::string& location, Headers headers = {});
};

/// Serves the files below a folder, and those that were put in memory, on a port of 127.0.0.1 of
/// its own until it is destroyed. HEAD and GET; ETag (from content, quoted), Last-Modified,
/// Content-Range.
class RangeServer {
 public:
  /// Called for every request, from several threads, one at a time.
  using Hook = std::function<Behaviour(const Request&)>;

  explicit RangeServer(std::filesystem::path folder = {}, Hook hook = {});
  RangeServer(const RangeServer&) = delete;
  RangeServer& operator=(const RangeServer&) = delete;
  ~RangeServer();

  /// A file of its own, before those of the folder. `path` begins with '/'.
  void put(const std::string& path, std::string content);
  void remove(const std::string& path);
  void set_hook(Hook hook);

  int port() const { return port_; }
  std::string url(const std::string& path = "", const std::string& host = "127.0.0.1") const;

  int connections() const;
  std::vector<Request> requests() const;
  /// Of one method and path.
  int requests(const std::string& method, const std::string& path) const;
  std::uint64_t body_bytes() const;
  std::uint64_t body_bytes(const std::string& path) const;

 private:
  void accept_loop();
  void serve(int connection, int fd);
  /// False: the connection is to be closed.
  bool answer(int fd, const Request& request, const Behaviour& behaviour);
  bool send_body(int fd, const Request& request, const Behaviour& behaviour, std::string_view body);
  std::optional<std::string> content(const std::string& path) const;
  /// False when the server is being stopped.
  bool pause(std::chrono::duration<double> time);

  const std::filesystem::path folder_;
  UniqueFd listener_;
  int port_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable stop_;
  bool stopping_ = false;
  Hook hook_;
  std::map<std::string, std::string> files_;
  std::vector<Request> requests_;
  std::map<std::string, std::uint64_t> bytes_;
  int connections_ = 0;
  std::vector<int> open_;
  std::vector<std::thread> threads_;
  std::thread acceptor_;
};

}  // namespace lerobot::test_server
