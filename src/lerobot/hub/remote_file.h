// Where a URL's bytes really are: the Hub's resolve protocol, which plain servers fit into.
//
// A HEAD to the source URL, redirects not followed by the HTTP library. Redirects within the
// source's origin are walked by hand; the first one that leaves it, with X-Linked-Size, ends the
// walk, and its target is where ranges are read. Without that header, and on servers that know no
// HEAD or tell no length, the size comes from the target's own HEAD or from a range of one byte.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "lerobot/hub/http_request.h"

namespace lerobot::hub {

/// What tells two contents of one address apart.
struct Validator {
  std::optional<std::string> etag;  ///< without the W/ of a weak one
  std::optional<std::string> last_modified;

  static Validator of(const HttpAnswer& answer);
  /// True unless both have an ETag, or else both a date, and they differ.
  bool agrees_with(const Validator& other) const;
};

/// A place from which ranges can be read.
struct ResolvedUrl {
  std::string url;
  bool redirected = false;
  int generation = 0;  ///< counts refreshes
};

/// What the walk found.
struct Resolution {
  std::string url;
  std::uint64_t size = 0;
  /// The first that there is of: X-Linked-ETag, the final answer's ETag, a redirect's ETag, the
  /// final answer's Last-Modified.
  std::optional<std::string> identity;
  Validator validator;  ///< of answers from `url`, when the walk has seen one
};

/// A file as it was found first. Thread-safe. A later answer that contradicts it means that the
/// file changed during the run.
class RemoteFile {
 public:
  RemoteFile(std::string source, Resolution found);

  const std::string& source() const { return source_; }
  std::uint64_t size() const { return size_; }
  const std::optional<std::string>& identity() const { return identity_; }

  ResolvedUrl place() const;
  /// A redirect met while reading: later reads go there at once.
  void move_to(const std::string& url);
  /// Takes the result of a refresh. Throws Error when size or identity differ.
  void refresh(const Resolution& found);
  /// True when an answer from `url` is of the content that was seen there first.
  bool same_content(const std::string& url, const HttpAnswer& answer);

 private:
  void set_place(const std::string& url);

  const std::string source_;
  const std::uint64_t size_;
  const std::optional<std::string> identity_;

  mutable std::mutex mutex_;
  ResolvedUrl place_;
  std::string validator_url_;  // without its query: a new signature is the same place
  Validator validator_;
};

/// Every URL's file, resolved once. Thread-safe.
class RemoteFiles {
 public:
  RemoteFiles(HttpSender& sender, Credentials credentials);

  /// Resolves those that are not known yet, side by side; callers who want the same one wait for
  /// each other. A failure is forgotten, so that a later call tries again.
  std::vector<std::shared_ptr<RemoteFile>> find(std::span<const std::string> urls);
  /// Resolves again, past every cache on the way (`_refresh=<uuid>`).
  void refresh(std::span<const std::shared_ptr<RemoteFile>> files);

  const Credentials& credentials() const { return credentials_; }

 private:
  using Found = std::shared_future<std::shared_ptr<RemoteFile>>;

  HttpSender& sender_;
  const Credentials credentials_;
  std::mutex mutex_;
  std::unordered_map<std::string, Found> files_;
};

/// A random UUID (version 4).
std::string random_uuid();

}  // namespace lerobot::hub
