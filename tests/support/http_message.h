// What a test server is asked, what it answers, and how it may misbehave.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/http_bytes.h"

namespace lerobot::test_server {

using Headers = std::vector<std::pair<std::string, std::string>>;

/// Text in lower case, for names of headers.
std::string lower_case(std::string text);

struct Request {
  std::string method;
  std::string path;                            ///< decoded, without the query
  std::string query;                           ///< as sent
  std::map<std::string, std::string> headers;  ///< names in lower case
  int number = 0;                              ///< of this method and path, from 0
  int connection = 0;                          ///< from 0, in the order of arrival
  std::string body = {};                       ///< of at most 1 MiB; empty when it is longer
  std::string server = {};                     ///< the name of the one that was asked
  std::string raw_path = {};                   ///< as sent, without the query
  Bytes content = {};                          ///< the whole body; only for the handler

  bool has(const std::string& header) const { return headers.contains(header); }
  /// Empty when it was not sent.
  std::string header(const std::string& name) const;
};

struct Answer {
  int status = 200;
  Headers headers = {};
  Bytes body = {};
};

/// A status with a short body of its own.
Answer plain_answer(int status);
/// What a proper server says to "bytes=A-B", "bytes=A-" and anything else, and to If-None-Match.
/// `headers` has the ETag.
Answer content_answer(const Request& request, const Bytes& content, Headers headers);

/// In place of a header of the same name, or added.
void set_header(Headers& headers, const std::string& name, std::string value);

/// How the server answers one request. As it stands: properly.
struct Behaviour {
  std::chrono::milliseconds latency{0};   ///< before the first byte
  double bytes_per_second = 0.0;          ///< of the body; 0: as fast as it goes
  std::optional<int> status = {};         ///< instead of doing what was asked
  bool ignore_range = false;              ///< 200 and the whole file
  std::optional<std::string> body = {};   ///< with `status`, its body; else instead of the proper
                                          ///< one, of a content under the old Content-Length
  Headers headers = {};                   ///< added, or in place of those of the same name
  std::vector<std::string> without = {};  ///< headers left out, in lower case
  std::optional<std::uint64_t> cut_after =
      {};              ///< this many body bytes, then the connection closes
  bool reset = false;  ///< the cut is a reset; without cut_after: before anything is done
  bool stall = false;  ///< after the cut nothing comes, and the connection stays open
  /// What was asked is done, but the connection closes without an answer.
  bool lose_answer = false;
  /// The connection closes after this many bytes of the request's body; nothing is done.
  std::optional<std::uint64_t> cut_upload_after = {};

  static Behaviour answer(int status, Headers headers = {});
  static Behaviour redirect(int status, const std::string& location, Headers headers = {});
};

}  // namespace lerobot::test_server
