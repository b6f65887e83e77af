// The Hub's JSON API: one endpoint, one token, one pool of connections.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lerobot/base/interrupt.h"
#include "lerobot/base/json.h"
#include "lerobot/hub/environment.h"
#include "lerobot/hub/http_engine.h"
#include "lerobot/hub/http_request.h"
#include "lerobot/hub/hub_error.h"

namespace lerobot::hub {

/// One call. Redirects are followed with the same method; the token goes to the endpoint's origin
/// alone.
struct ApiCall {
  std::string method = "GET";
  std::string url;                        ///< absolute
  std::string body = {};                  ///< of a POST or PUT
  std::string content_type = {};          ///< of the body
  std::vector<std::string> headers = {};  ///< more of them
  bool with_token = true;
  /// A failure that may pass is then an error at once (kUnreachable): for calls that must not be
  /// made twice without a look at what the first one did.
  bool once = false;
  /// How long the server may take before its first byte. Commits may take a minute.
  std::chrono::milliseconds patience{60'000};
};

struct ApiAnswer {
  HttpAnswer head;
  std::string body;
  std::string url;  ///< that answered, after redirects
};

struct HubClientOptions {
  /// Requests under way at once. Each file of a download takes two round trips, so that a server
  /// far away is used better by more of them.
  std::size_t connections = 16;
  RetryPolicy retry = {};
  /// Ctrl-C breaks calls off (an InterruptGuard is to live): they throw Interrupted. For those that
  /// go on through an orderly end, false.
  bool stops_when_interrupted = true;
};

/// Thread-safe.
class HubClient {
 public:
  explicit HubClient(HubEnvironment environment, HubClientOptions options = {});

  const HubEnvironment& environment() const { return environment_; }
  const std::string& endpoint() const { return environment_.endpoint; }
  std::size_t connections() const { return options_.connections; }

  /// The answer of a status below 400. Throws HubError: refused (about `subject`), unreachable,
  /// offline.
  ApiAnswer call(const ApiCall& call, const Subject& subject);
  /// The same, and the body as JSON; HubError kMisbehaved when it is none.
  Json call_json(const ApiCall& call, const Subject& subject);
  /// The elements of an array that comes in pages (Link: <...>; rel="next").
  Json call_pages(ApiCall call, const Subject& subject);

  /// For other requests to the same Hub.
  HttpSender& sender() { return sender_; }
  /// Logs what X-HF-Warning says, once for each topic.
  void show_warnings(const HttpAnswer& answer);
  /// Transfers whose sinks had no room ask again (HttpEngine::wake).
  void wake() { engine_.wake(); }
  /// Calls under way, now and later, throw Error soon: for Ctrl-C.
  void cancel() { engine_.cancel(); }

 private:
  const HubEnvironment environment_;
  const HubClientOptions options_;
  HttpEngine engine_;
  HttpSender sender_;
  std::mutex mutex_;
  std::set<std::string> warned_;
  std::optional<OnInterrupt> on_interrupt_;
};

/// A field of a JSON answer that must be there. Throws HubError kMisbehaved naming it.
std::string text_field(const Json& object, const char* name, const Subject& subject);
std::uint64_t count_field(const Json& object, const char* name, const Subject& subject);

}  // namespace lerobot::hub
