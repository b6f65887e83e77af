// What the HF_* variables say about the Hub, in one place.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>

#include "lerobot/hub/http_request.h"

namespace lerobot::hub {

struct HubEnvironment {
  /// HF_ENDPOINT, without slashes at its end.
  std::string endpoint = "https://huggingface.co";
  /// The token, or where one was looked for.
  Credentials credentials;
  /// HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE: nothing may be asked.
  bool offline = false;
  /// HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE, else hf_home()/hub: models. Datasets are in
  /// lerobot_home()/hub.
  std::filesystem::path cache;
  /// HF_HUB_DISABLE_SYMLINKS turns it off: snapshots are then made of files of their own.
  bool symlinks = true;
  std::chrono::seconds etag_timeout{10};      ///< HF_HUB_ETAG_TIMEOUT: of answers without a body
  std::chrono::seconds download_timeout{10};  ///< HF_HUB_DOWNLOAD_TIMEOUT: without a byte

  /// Reads the environment. Throws UsageError naming the variable that can't be right: an endpoint
  /// that is no http(s) URL, a time-out that is no whole number, a token with a control character.
  static HubEnvironment read();
};

/// The token of this process and where it came from: HF_TOKEN, HUGGING_FACE_HUB_TOKEN, the file
/// HF_TOKEN_PATH (default hf_home()/token), in this order; outer blanks and line breaks don't
/// count, and an empty one is none. HF_HUB_DISABLE_IMPLICIT_TOKEN: none at all. Throws UsageError
/// for a token with a blank, control or non-ASCII character.
Credentials find_credentials();

}  // namespace lerobot::hub
