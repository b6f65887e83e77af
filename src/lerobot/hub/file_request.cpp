#include "lerobot/hub/file_request.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "lerobot/base/error.h"
#include "lerobot/hub/content_range.h"
#include "lerobot/hub/url.h"

namespace lerobot::hub {
namespace {

/// An attempt that brings this much is not one of a series of failures.
constexpr std::uint64_t kProgress = 1 << 20;
constexpr std::size_t kLongestErrorText = 64 << 10;

/// Which encoding other than none the body has.
std::optional<std::string> encoding_of(const HttpAnswer& answer) {
  auto encoding = answer.header("content-encoding");
  if (encoding && (encoding->empty() || *encoding == "identity")) return std::nullopt;
  return encoding;
}

}  // namespace

std::string FilePlace::url() const {
  const std::lock_guard lock(mutex_);
  return url_;
}

void FilePlace::move_to(std::string url) {
  const std::lock_guard lock(mutex_);
  url_ = std::move(url);
}

void FilePlace::forget(const std::string& url) {
  const std::lock_guard lock(mutex_);
  if (url_ == url) url_ = source_;
}

FileSource::FileSource(HubClient& client, const Repo& repo, const std::string& commit,
                       const RepoFile& file, std::atomic<std::int64_t>& received)
    : client(client),
      subject{.repo = repo, .revision = commit, .path = file.path},
      size(file.size),
      place(resolve_url(client.endpoint(), repo, commit, file.path)),
      received(received) {}

std::string FileRequest::describe() const {
  return fmt::format("{} of {}", source().subject.path, hub::describe(source().subject.repo));
}

void FileRequest::fail(const std::string& what) const { fail_answer(source().subject, what); }

void FileRequest::prepare(HttpExchange& exchange) {
  error_text_.clear();
  content_ = false;
  url_ = source().place.url();
  exchange.url = url_;
  exchange.sink = this;
  exchange.stall_timeout = source().client.environment().download_timeout;
  source().client.environment().credentials.add_to(exchange, source().client.endpoint());
  prepare_range(exchange);
}

bool FileRequest::begin(const HttpAnswer& answer) {
  content_ = answer.status == 200 || answer.status == 206;
  if (!content_) return answer.status >= 400;  // its words are wanted
  // A body of no use is taken only to be refused by the first write(): that cuts it short.
  begin_content(answer);
  return true;
}

bool FileRequest::write(std::span<const std::uint8_t> bytes) {
  if (content_) return write_content(bytes);
  const std::size_t room = kLongestErrorText - error_text_.size();
  const std::size_t taken = std::min(room, bytes.size());
  error_text_.append(reinterpret_cast<const char*>(bytes.data()), taken);
  return taken == bytes.size();
}

Step FileRequest::judge(const HttpExchange& exchange) {
  const HttpAnswer& answer = exchange.answer;
  source().client.show_warnings(answer);
  if (answer.status == 200 || answer.status == 206) {
    // Broken before the body: its headers may be incomplete, too.
    if (exchange.outcome == Outcome::kBroken && !content_) return Step::retry(exchange.reason);
    return judge_content(exchange);
  }
  if (const auto step = judge_transport(*this, exchange)) return *step;
  if (is_redirect(answer.status)) {
    source().place.move_to(redirect_target(*this, url_, answer));
    return Step::again();
  }
  if (answer.status == 401 || answer.status == 403) return judge_denial(answer);
  if (answer.status == 416)
    fail(fmt::format("status 416 for a range of a file of {} bytes: it is shorter there",
                     source().size));
  fail_hub(source().subject, answer, error_text_, source().client.endpoint(),
           source().client.environment().credentials);
}

/// Signatures of storages expire: the Hub is asked for a new one, once for each attempt that gets
/// no further.
Step FileRequest::judge_denial(const HttpAnswer& answer) {
  const HubEnvironment& environment = source().client.environment();
  const bool at_hub = url_origin(url_) == url_origin(environment.endpoint);
  if (at_hub)
    fail_hub(source().subject, answer, error_text_, environment.endpoint, environment.credentials);
  if (looked_again_)
    throw HubError(
        HubFault::kForbidden, answer.status,
        fmt::format("{}: the storage {} denies access ({}), also under an address that the Hub has "
                    "just given out; check proxies, and the clock of this machine",
                    describe(), url_origin(url_), describe_status(answer)));
  looked_again_ = true;
  source().place.forget(url_);
  return Step::again();
}

Step FileRequest::short_body(const HttpExchange& exchange, std::uint64_t got,
                             std::uint64_t wanted) {
  return Step::retry(fmt::format("the body ended after {} of {} bytes{}{}", got, wanted,
                                 exchange.reason.empty() ? "" : ": ", exchange.reason));
}

void WholeFile::prepare_range(HttpExchange& exchange) {
  // By which the Hub counts downloads.
  exchange.headers.emplace_back("X-HF-Download-Counter: 1");
  source().received -= static_cast<std::int64_t>(content_.size());
  content_.clear();
  fault_.clear();
}

bool WholeFile::begin_content(const HttpAnswer& answer) {
  if (const auto encoding = encoding_of(answer))
    fault_ = fmt::format("expected the bytes as they are, found Content-Encoding: {}",
                         printable_text(*encoding, 100));
  const auto length = answer.header("content-length");
  if (answer.status != 200) {
    fault_ = fmt::format("expected status 200, found {}", answer.status);
  } else if (length && parse_byte_count(*length) != source().size) {
    fault_ = fmt::format("expected {} bytes, found Content-Length: {}", source().size,
                         printable_text(*length, 100));
  } else {
    content_.reserve(source().size);
  }
  return fault_.empty();
}

bool WholeFile::write_content(std::span<const std::uint8_t> bytes) {
  if (!fault_.empty()) return false;
  if (bytes.size() > source().size - content_.size()) {
    fault_ = fmt::format("expected {} bytes, found more", source().size);
    return false;
  }
  content_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  source().received += static_cast<std::int64_t>(bytes.size());
  return true;
}

Step WholeFile::judge_content(const HttpExchange& exchange) {
  if (!fault_.empty()) fail(fault_);
  if (exchange.outcome == Outcome::kFailed) fail(exchange.reason);
  trust_place();
  if (content_.size() == source().size) return Step::done();
  return short_body(exchange, content_.size(), source().size);
}

FilePart::FilePart(std::shared_ptr<FileSource> source, std::shared_ptr<PartialBlob> blob,
                   PartialBlob::Range range, BlockWriter& writer, std::function<void(bool)> begun)
    : FileRequest(std::move(source)),
      blob_(std::move(blob)),
      writer_(writer),
      begun_(std::move(begun)),
      end_(range.end),
      position_(range.first),
      attempt_start_(range.first) {}

FilePart::~FilePart() {
  if (block_) writer_.give_back(std::move(block_));
}

bool FilePart::made_progress() { return position_ - attempt_start_ >= kProgress; }

bool FilePart::has_room(std::size_t size) {
  const bool fits = block_ && PartialBlob::kBlock - block_->filled >= size;
  return fits || writer_.has_block();
}

void FilePart::prepare_range(HttpExchange& exchange) {
  if (position_ == 0) exchange.headers.emplace_back("X-HF-Download-Counter: 1");
  attempt_start_ = position_;
  skip_ = 0;
  fault_.clear();
  exchange.headers.push_back(fmt::format("Range: bytes={}-{}", position_, end_ - 1));
}

std::string FilePart::fault_of(const HttpAnswer& answer) const {
  if (const auto encoding = encoding_of(answer))
    return fmt::format("expected the bytes as they are, found Content-Encoding: {}",
                       printable_text(*encoding, 100));
  if (answer.status == 200) {
    const auto length = answer.header("content-length");
    if (length && parse_byte_count(*length) != source().size)
      return fmt::format("expected {} bytes, found Content-Length: {}", source().size,
                         printable_text(*length, 100));
    return {};
  }
  const auto header = answer.header("content-range");
  const auto range = header ? parse_content_range(*header) : std::nullopt;
  if (!range || range->first != position_ || range->last != end_ - 1 ||
      (range->size && *range->size != source().size))
    return fmt::format("expected Content-Range: bytes {}-{}/{}, found {}", position_, end_ - 1,
                       source().size, printable_text(header.value_or("none"), 100));
  return {};
}

bool FilePart::begin_content(const HttpAnswer& answer) {
  fault_ = fault_of(answer);
  if (!fault_.empty()) return false;
  begin_at(answer.status == 206);
  return true;
}

void FilePart::begin_at(bool ranges) {
  if (!ranges) skip_ = position_;
  if (!begun_) return;
  if (!ranges) end_ = source().size;
  std::exchange(begun_, nullptr)(ranges);
}

bool FilePart::write_content(std::span<const std::uint8_t> bytes) {
  if (!fault_.empty() || blob_->failed()) return false;
  const auto skipped = static_cast<std::size_t>(std::min<std::uint64_t>(skip_, bytes.size()));
  skip_ -= skipped;
  bytes = bytes.subspan(skipped);
  const bool more = bytes.size() > end_ - position_;
  if (more) bytes = bytes.first(static_cast<std::size_t>(end_ - position_));
  fill(bytes);
  return !more;
}

void FilePart::fill(std::span<const std::uint8_t> bytes) {
  source().received += static_cast<std::int64_t>(bytes.size());
  while (!bytes.empty()) {
    if (!block_) {
      block_ = writer_.take();
      block_->offset = position_;
    }
    const std::size_t count = std::min<std::size_t>(
        bytes.size(), static_cast<std::size_t>(PartialBlob::kBlock - block_->filled));
    std::memcpy(block_->memory.get() + block_->filled, bytes.data(), count);
    block_->filled += count;
    position_ += count;
    bytes = bytes.subspan(count);
    if (block_->filled == PartialBlob::kBlock || position_ == end_)
      writer_.submit(std::move(block_), blob_);
  }
}

Step FilePart::judge_content(const HttpExchange& exchange) {
  blob_->check();
  if (!fault_.empty()) fail(fault_);
  if (exchange.outcome == Outcome::kFailed) fail(exchange.reason);
  trust_place();
  // A whole file in place of a range is cut behind it.
  if (position_ == end_) return Step::done();
  return short_body(exchange, position_ - attempt_start_, end_ - attempt_start_);
}

}  // namespace lerobot::hub
