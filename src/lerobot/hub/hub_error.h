// Why the Hub refuses, in a form that code can ask for and words that a user can act on.
#pragma once

#include <string>

#include "lerobot/base/error.h"
#include "lerobot/hub/http_request.h"
#include "lerobot/hub/repo.h"

namespace lerobot::hub {

enum class HubFault {
  kOffline,           ///< nothing was asked: HF_HUB_OFFLINE
  kUnreachable,       ///< no connection, or 408, 429 and 5xx up to the last attempt
  kRepoNotFound,      ///< missing, or private and not for this token
  kRevisionNotFound,  ///< the repository is there
  kEntryNotFound,     ///< repository and revision are there
  kGated,             ///< its terms aren't accepted
  kDisabled,
  kUnauthorized,  ///< 401: the token is no good
  kForbidden,     ///< 403: the token lacks the right
  kConflict,      ///< 409: it exists already
  kStaleParent,   ///< 412: somebody else committed meanwhile
  kRefused,       ///< any other status from 400
  kMisbehaved,    ///< an answer that no Hub gives
};

class HubError : public Error {
 public:
  HubError(HubFault fault, long status, const std::string& message)
      : Error(message), fault_(fault), status_(status) {}
  HubFault fault() const { return fault_; }
  /// Of the answer; 0 without one.
  long status() const { return status_; }

 private:
  HubFault fault_;
  long status_;
};

/// What a call is about, for messages.
struct Subject {
  Repo repo;
  std::string revision = {};  ///< empty: none
  std::string path = {};      ///< of a file in it; empty: none
  /// What the call is to do when it changes something: "create the branch lerobot-sidecars".
  std::string action = {};
};

/// Throws the HubError for an answer with a status from 400. Classified as huggingface_hub does it:
/// X-Error-Code first, then the status. `body` may hold the server's own words as JSON
/// (`{"error": ...}`) or text. The message names repository, revision or file, what the server
/// said, which token was sent or where one was looked for, and the remedy.
[[noreturn]] void fail_hub(const Subject& subject, const HttpAnswer& answer,
                           const std::string& body, const std::string& endpoint,
                           const Credentials& credentials);

/// Throws the HubError kOffline for a call that would need the network.
[[noreturn]] void fail_offline(const Subject& subject);

/// Throws the HubError kUnreachable. `reason` names the address.
[[noreturn]] void fail_unreachable(const Subject& subject, const std::string& reason, long status);

/// Throws the HubError kMisbehaved: `what` is wrong with an answer.
[[noreturn]] void fail_answer(const Subject& subject, const std::string& what);

}  // namespace lerobot::hub
