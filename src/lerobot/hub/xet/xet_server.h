// A Xet server as the Hub names it for one repository or Bucket.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>

#include "lerobot/hub/hub_client.h"

namespace lerobot::hub::xet {

/// Thread-safe.
class XetServer {
 public:
  /// `token_url` is the Hub's route that gives address and token for writing; it is asked when the
  /// first call is made, and again when the token has run out or is refused.
  XetServer(HubClient& client, std::string token_url, Subject subject);

  /// POSTs `body` to a path such as /v1/shards; any status below 400 is fine. `name` is what the
  /// body is, for messages. Throws HubError.
  void post(const std::string& path, BodySource& body, const std::string& name);

 private:
  struct Access {
    std::string url;
    Credentials credentials;
    std::chrono::system_clock::time_point end;
  };
  std::shared_ptr<const Access> access();
  void forget(const std::shared_ptr<const Access>& refused);

  HubClient& client_;
  const std::string token_url_;
  const Subject subject_;
  std::mutex mutex_;
  std::shared_ptr<const Access> access_;
};

}  // namespace lerobot::hub::xet
