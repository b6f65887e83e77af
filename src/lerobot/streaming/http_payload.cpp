#include "lerobot/streaming/http_payload.h"

#include <utility>
#include <vector>

#include "lerobot/base/error.h"
#include "lerobot/hub/location.h"
#include "lerobot/hub/url.h"

namespace lerobot::streaming {
namespace {

std::string http_root(std::string_view root) {
  hub::Location location = hub::classify_location(root);
  if (location.kind != hub::LocationKind::kHttp)
    fail_usage("{}: expected http://HOST/PATH or https://HOST/PATH", root);
  return std::move(location.root);
}

/// A path comes from the dataset's own metadata, which must not lead elsewhere on the server.
bool stays_inside(std::string_view path) {
  if (path.empty() || path.front() == '/') return false;
  while (true) {
    const std::size_t slash = path.find('/');
    const std::string_view part = path.substr(0, slash);
    if (part.empty() || part == "." || part == "..") return false;
    if (slash == std::string_view::npos) return true;
    path.remove_prefix(slash + 1);
  }
}

}  // namespace

HttpPayload::HttpPayload(std::string root, std::shared_ptr<hub::RangeClient> client)
    : root_(http_root(root)), client_(std::move(client)) {}

std::string HttpPayload::url(std::string_view path) const {
  if (!stays_inside(path))
    fail("{}: \"{}\" is not the path of a file below this root", hub::printable_url(root_), path);
  return root_ + "/" + hub::percent_encode_path(path);
}

std::string HttpPayload::describe(std::string_view path) const {
  return hub::printable_url(root_ + "/" + hub::percent_encode_path(path));
}

std::uint64_t HttpPayload::size(const std::string& path) { return client_->info(url(path)).size; }

std::optional<std::string> HttpPayload::fingerprint(const std::string& path) {
  return client_->info(url(path)).identity;
}

void HttpPayload::read(std::span<const ByteRange> ranges) {
  std::vector<hub::UrlRange> wanted;
  wanted.reserve(ranges.size());
  for (const ByteRange& range : ranges)
    wanted.push_back({url(range.path), range.offset, range.out});
  client_->read(wanted);
}

void HttpPayload::cancel() { client_->cancel(); }

std::uint64_t HttpPayload::bytes_read() const { return client_->bytes_received(); }

}  // namespace lerobot::streaming
