// The files of a dataset behind any HTTP server that supports byte ranges.
#pragma once

#include <memory>
#include <string>

#include "lerobot/hub/range_client.h"
#include "lerobot/streaming/payload.h"

namespace lerobot::streaming {

class HttpPayload final : public Payload {
 public:
  /// `root` is http(s)://HOST[/PATH], already percent-encoded; the paths of files are encoded here.
  /// `client` may be shared; then cancel() and bytes_read() are of all that share it. Throws
  /// UsageError for a root that is no such URL.
  HttpPayload(std::string root, std::shared_ptr<hub::RangeClient> client);

  std::string describe(std::string_view path) const override;
  std::uint64_t size(const std::string& path) override;
  /// ETag or Last-Modified, as the server sends it.
  std::optional<std::string> fingerprint(const std::string& path) override;
  void read(std::span<const ByteRange> ranges) override;
  void cancel() override;
  std::uint64_t bytes_read() const override;

  /// Throws Error for a path that leaves the root.
  std::string url(std::string_view path) const;

 private:
  const std::string root_;
  const std::shared_ptr<hub::RangeClient> client_;
};

}  // namespace lerobot::streaming
