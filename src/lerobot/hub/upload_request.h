// One request to a storage beside the Hub's own API: a PUT to a presigned address, a POST to a Xet
// server.
#pragma once

#include <string>
#include <vector>

#include "lerobot/hub/hub_client.h"

namespace lerobot::hub {

struct UploadRequest {
  std::string method = "PUT";
  std::string url;
  std::vector<std::string> headers = {};
  BodySource* body = nullptr;  ///< not owned
  /// Sent to the origin of `url` alone; null: none.
  const Credentials* credentials = nullptr;
  Subject subject;  ///< for messages
};

struct UploadAnswer {
  HttpAnswer head;
  std::string body;  ///< at most 1 MiB of it
};

/// Sends it until there is an answer that doesn't say "later"; which one it is, 4xx included, is
/// the caller's to judge. Throws HubError kUnreachable, and Error for failures for good.
UploadAnswer send_upload(
    HubClient& client,
    const UploadRequest& request);  /// Throws HubError kRefused with the server's words.
[[noreturn]] void fail_upload(const UploadRequest& request, const UploadAnswer& answer);

}  // namespace lerobot::hub
