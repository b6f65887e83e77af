// Faults of the test Hub from outside: what a test in another language orders over HTTP.
#pragma once

#include <mutex>
#include <optional>
#include <regex>
#include <string>
#include <vector>

#include "lerobot/base/json.h"
#include "tests/support/hub_server.h"

namespace lerobot::test_server {

/// A hook that answers, on the Hub's own host,
///   POST /_test/faults     a list of faults, which replaces the one before
///   GET /_test/requests    what arrived, as a list of {server, method, path, query, headers, body}
///   DELETE /_test/requests forgets it
/// and applies the faults to other requests. A fault is an object; all of it is optional:
///   server, method   of the request ("hub", "storage", "xet"; "GET", ...)
///   path             a regular expression that its path (decoded) contains
///   skip, count      let that many pass first (0), then take that many (1; -1: all)
///   status, headers, body, without, delay_ms, bytes_per_second, cut_after, cut_upload_after,
///   reset, stall, lose_answer, ignore_range    as in Behaviour
class HubFaults {
 public:
  explicit HubFaults(HubServer& server) : server_(server) {}

  std::optional<Behaviour> operator()(const Request& request);

 private:
  struct Fault {
    std::string server;
    std::string method;
    std::regex path;
    int skip = 0;
    int count = 1;
    Behaviour behaviour;
  };

  static Fault read(const Json& fault);
  static bool applies(const Fault& fault, const Request& request);
  Behaviour control(const Request& request);

  HubServer& server_;
  std::vector<Fault> faults_;
};

}  // namespace lerobot::test_server
