// Byte ranges of files behind HTTP, many at a time over few connections.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lerobot::hub {

struct HubEnvironment;

struct RangeClientOptions {
  /// Connections that are open or kept alive at once.
  std::size_t connections = 8;
  /// Parts into which a range of at least 16 MiB is split, each of at least 8 MiB, fetched side by
  /// side.
  std::size_t subranges = 1;
  /// Sent as a bearer token, and only to the scheme, host and port of the URL that the caller
  /// names.
  std::optional<std::string> token;
  /// Where the token came from ("HF_TOKEN", a file's path), for messages.
  std::string token_origin;
  /// Nothing may be asked: every call throws Error.
  bool offline = false;
  std::chrono::milliseconds connect_timeout{10'000};
  /// A transfer that moves no byte for this long, or less than 1 KiB/s over it, is broken off and
  /// tried again.
  std::chrono::milliseconds stall_timeout{30'000};
  /// Attempts in a row; one that brought more than 1 MiB before it failed starts the count anew.
  int attempts = 5;
  /// Waits between attempts: min(first * 2^n, longest), with jitter. What a server asks for
  /// (Retry-After, the Hub's RateLimit) goes before, up to longest_server_wait.
  std::chrono::milliseconds first_backoff{500};
  std::chrono::milliseconds longest_backoff{5'000};
  std::chrono::milliseconds longest_server_wait{300'000};
};

/// For files of the Hub: its token, its time-outs, and whether it may be asked.
RangeClientOptions range_options(const HubEnvironment& hub, std::size_t connections,
                                 std::size_t subranges);

/// A range of one URL's content.
struct UrlRange {
  std::string url;
  std::uint64_t offset = 0;
  std::span<std::uint8_t> out;  ///< its size is the length
};

/// What a server says about a file.
struct RemoteFileInfo {
  std::uint64_t size = 0;
  /// The first that the server sends of X-Linked-ETag, ETag, Last-Modified.
  std::optional<std::string> identity;
};

/// A small file that is wanted as a whole.
struct DocumentRequest {
  std::string url;
  /// The ETag of the content that the caller has: a server that still has it sends nothing.
  std::optional<std::string> known_etag = {};
  /// Takes a 403 for a 404: a storage that may not be listed answers so for what it doesn't have.
  bool denied_means_missing = false;
};

struct Document {
  bool unchanged = false;  ///< the caller's content is still right; body is empty
  std::string body;
  std::optional<std::string> etag;
};

/// One I/O thread drives all transfers (libcurl's multi interface). Thread-safe. Error messages
/// show URLs without user, password and query, and never a token.
class RangeClient {
 public:
  /// Throws Error for an option out of range and for a token with a control character.
  explicit RangeClient(RangeClientOptions options = {});
  /// Cancels; no other call may be under way.
  ~RangeClient();

  /// Size and identity of a file; asked once, then remembered.
  RemoteFileInfo info(const std::string& url);
  /// The same for many, side by side.
  std::vector<RemoteFileInfo> info(std::span<const std::string> urls);
  /// Fills all ranges, side by side; bytes go straight from libcurl into `out`. Neighbouring ranges
  /// of one URL travel as one (range_plan.h). Throws Error naming URL, bytes, status or reason, and
  /// number of attempts; only 206 with the asked bytes is an answer, and a size, ETag or date other
  /// than at first means "changed during the run". After an Error `out` is undefined and untouched
  /// from then on.
  void read(std::span<const UrlRange> ranges);
  /// The whole content of a small file (status 200, at most 1 GiB), nullopt for status 404.
  std::optional<std::string> get(const std::string& url);
  /// The same for many, side by side; nullopt for those that are missing.
  std::vector<std::optional<Document>> get(std::span<const DocumentRequest> documents);
  /// Transfers under way end, and all calls, now and later, throw Error.
  void cancel();
  /// Body bytes received so far.
  std::uint64_t bytes_received() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lerobot::hub
