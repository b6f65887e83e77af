#include "lerobot/hub/range_client.h"

#include <algorithm>
#include <map>
#include <utility>

#include "lerobot/base/checked.h"
#include "lerobot/base/error.h"
#include "lerobot/hub/document_fetch.h"
#include "lerobot/hub/environment.h"
#include "lerobot/hub/range_fetch.h"
#include "lerobot/hub/range_plan.h"
#include "lerobot/hub/remote_file.h"
#include "lerobot/hub/url.h"

namespace lerobot::hub {
namespace {

void check_positive(std::int64_t value, const char* name) {
  if (value <= 0) fail("HTTP client: {} must be positive, found {}", name, value);
}

void check_options(const RangeClientOptions& options) {
  const auto count = [](std::size_t n) {
    return std::in_range<std::int64_t>(n) ? static_cast<std::int64_t>(n) : -1;
  };
  check_positive(count(options.connections), "connections");
  check_positive(count(options.subranges), "subranges");
  check_positive(options.attempts, "attempts");
  check_positive(options.connect_timeout.count(), "connect_timeout (ms)");
  check_positive(options.stall_timeout.count(), "stall_timeout (ms)");
  if (!options.token) return;
  // A line break in a header would be a header of its own.
  if (std::any_of(options.token->begin(), options.token->end(),
                  [](unsigned char c) { return c <= 0x20 || c >= 0x7f; }))
    fail("the token from {} holds a blank, a control character or a non-ASCII one",
         options.token_origin.empty() ? "the caller" : options.token_origin);
}

Credentials credentials_of(const RangeClientOptions& options) {
  if (options.token && options.token->empty()) return {};
  return {options.token, options.token_origin};
}

}  // namespace

RangeClientOptions range_options(const HubEnvironment& hub, std::size_t connections,
                                 std::size_t subranges) {
  RangeClientOptions options;
  options.connections = connections;
  options.subranges = subranges;
  options.token = hub.credentials.token;
  options.token_origin = hub.credentials.origin;
  options.connect_timeout = hub.etag_timeout;
  options.offline = hub.offline;
  return options;
}

class RangeClient::Impl {
 public:
  explicit Impl(const RangeClientOptions& options)
      : subranges_(options.subranges),
        offline_(options.offline),
        engine_({.connections = options.connections,
                 .connect_timeout = options.connect_timeout,
                 .stall_timeout = options.stall_timeout}),
        sender_(engine_, {options.attempts, options.first_backoff, options.longest_backoff,
                          options.longest_server_wait}),
        files_(sender_, credentials_of(options)) {}

  std::vector<RemoteFileInfo> info(std::span<const std::string> urls) {
    if (!urls.empty()) check_online(urls.front());
    std::vector<RemoteFileInfo> out;
    for (const auto& file : files_.find(urls)) out.push_back({file->size(), file->identity()});
    return out;
  }

  void read(std::span<const UrlRange> ranges) {
    if (!ranges.empty()) check_online(ranges.front().url);
    std::vector<RangeFetch> fetches = plan(ranges);
    std::vector<HttpRequest*> requests;
    for (RangeFetch& fetch : fetches) requests.push_back(&fetch);
    sender_.send_all(requests);

    // Signatures of redirects expire: what was denied is asked for once more with new ones. A
    // second denial throws.
    requests.clear();
    std::vector<std::shared_ptr<RemoteFile>> expired;
    for (RangeFetch& fetch : fetches) {
      if (!fetch.denied()) continue;
      requests.push_back(&fetch);
      const bool still_there = fetch.file()->place().generation == fetch.generation();
      const bool noted = std::find(expired.begin(), expired.end(), fetch.file()) != expired.end();
      if (still_there && !noted) expired.push_back(fetch.file());
    }
    files_.refresh(expired);
    sender_.send_all(requests);
  }

  std::vector<std::optional<Document>> get(std::span<const DocumentRequest> documents) {
    if (!documents.empty()) check_online(documents.front().url);
    std::vector<DocumentFetch> fetches;
    fetches.reserve(documents.size());
    for (const DocumentRequest& document : documents)
      fetches.emplace_back(document, files_.credentials());
    std::vector<HttpRequest*> requests;
    for (DocumentFetch& fetch : fetches) requests.push_back(&fetch);
    sender_.send_all(requests);
    std::vector<std::optional<Document>> out;
    for (DocumentFetch& fetch : fetches) out.push_back(fetch.take_result());
    return out;
  }

  HttpEngine& engine() { return engine_; }

 private:
  /// Ranges by file, then joined and split.
  std::vector<RangeFetch> plan(std::span<const UrlRange> ranges) {
    std::map<std::string, std::vector<Segment>> by_url;
    for (const UrlRange& range : ranges)
      if (!range.out.empty()) by_url[range.url].push_back({range.offset, range.out});
    std::vector<std::string> urls;
    for (const auto& [url, segments] : by_url) urls.push_back(url);
    const auto files = files_.find(urls);

    std::vector<RangeFetch> fetches;
    for (std::size_t i = 0; i < urls.size(); ++i) {
      std::vector<Segment>& segments = by_url[urls[i]];
      for (const Segment& segment : segments) check_inside(*files[i], segment);
      for (PlannedFetch& part : plan_fetches(std::move(segments), subranges_))
        fetches.emplace_back(files[i], std::move(part), files_.credentials());
    }
    return fetches;
  }

  static void check_inside(const RemoteFile& file, const Segment& segment) {
    const std::uint64_t end =
        checked_add<std::uint64_t>(segment.offset, segment.out.size(), "the end of a byte range");
    if (end > file.size())
      fail("{}: bytes {}-{} are asked for, but the file has {} bytes; is it complete?",
           printable_url(file.source()), segment.offset, end - 1, file.size());
  }

  void check_online(const std::string& url) const {
    if (offline_)
      fail(
          "{} is not asked for: offline mode is on, and what is streamed comes from the server "
          "itself; unset HF_HUB_OFFLINE (or TRANSFORMERS_OFFLINE), or train from what has been "
          "downloaded, with --dataset.streaming=false",
          printable_url(url));
  }

  const std::size_t subranges_;
  const bool offline_;
  HttpEngine engine_;
  HttpSender sender_;
  RemoteFiles files_;
};

RangeClient::RangeClient(RangeClientOptions options) {
  check_options(options);
  impl_ = std::make_unique<Impl>(options);
}

RangeClient::~RangeClient() = default;

RemoteFileInfo RangeClient::info(const std::string& url) {
  return impl_->info(std::span(&url, 1)).front();
}

std::vector<RemoteFileInfo> RangeClient::info(std::span<const std::string> urls) {
  return impl_->info(urls);
}

void RangeClient::read(std::span<const UrlRange> ranges) { impl_->read(ranges); }

std::optional<std::string> RangeClient::get(const std::string& url) {
  const DocumentRequest request{.url = url};
  auto document = std::move(impl_->get(std::span(&request, 1)).front());
  if (!document) return std::nullopt;
  return std::move(document->body);
}

std::vector<std::optional<Document>> RangeClient::get(std::span<const DocumentRequest> documents) {
  return impl_->get(documents);
}

void RangeClient::cancel() { impl_->engine().cancel(); }

std::uint64_t RangeClient::bytes_received() const { return impl_->engine().bytes_received(); }

}  // namespace lerobot::hub
