// GETs of a repository's files: from the Hub's resolve address to wherever their bytes are.
//
// The Hub answers with the bytes, or with a redirect: within its origin, or to a storage whose
// signed addresses expire. The token goes to the Hub's origin alone. What arrives is not trusted
// here beyond its size: whoever asks compares hashes (digest_for).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "lerobot/hub/block_writer.h"
#include "lerobot/hub/http_request.h"
#include "lerobot/hub/hub_client.h"
#include "lerobot/hub/repo_info.h"

namespace lerobot::hub {

/// Where a file's bytes are, as far as redirects have told. Thread-safe: the parts of a file share
/// it, so that one of them asks the Hub for all.
class FilePlace {
 public:
  explicit FilePlace(std::string source) : source_(std::move(source)), url_(source_) {}

  std::string url() const;
  void move_to(std::string url);
  /// Back to the Hub, unless another part has found a place since `url` was refused.
  void forget(const std::string& url);

 private:
  const std::string source_;  ///< the resolve address
  mutable std::mutex mutex_;
  std::string url_;
};

/// What the requests of one file have in common.
struct FileSource {
  HubClient& client;
  Subject subject;  ///< repository, commit and path
  std::uint64_t size = 0;
  FilePlace place;
  /// Bytes as they arrive; those of an attempt that is begun again are taken back.
  std::atomic<std::int64_t>& received;

  FileSource(HubClient& client, const Repo& repo, const std::string& commit, const RepoFile& file,
             std::atomic<std::int64_t>& received);
};

/// The walk to the bytes, and every answer but theirs.
class FileRequest : public HttpRequest, public BodySink {
 public:
  explicit FileRequest(std::shared_ptr<FileSource> source) : source_(std::move(source)) {}

  void prepare(HttpExchange& exchange) final;
  Step judge(const HttpExchange& exchange) final;
  std::string describe() const override;

  bool begin(const HttpAnswer& answer) final;
  bool write(std::span<const std::uint8_t> bytes) final;

 protected:
  const FileSource& source() const { return *source_; }
  FileSource& source() { return *source_; }
  /// True when a place once reached gives bytes: the next refusal may be an expired signature
  /// again.
  void trust_place() { looked_again_ = false; }
  [[noreturn]] void fail(const std::string& what) const;
  /// "the body ended after N of M bytes".
  static Step short_body(const HttpExchange& exchange, std::uint64_t got, std::uint64_t wanted);

  /// Adds the Range, if one is wanted; an attempt begins.
  virtual void prepare_range(HttpExchange& exchange) = 0;
  /// Looks at the head of a 200 or 206. False: the body is of no use, and judge_content() will say
  /// why.
  virtual bool begin_content(const HttpAnswer& answer) = 0;
  virtual bool write_content(std::span<const std::uint8_t> bytes) = 0;
  virtual Step judge_content(const HttpExchange& exchange) = 0;

 private:
  Step judge_denial(const HttpAnswer& answer);

  const std::shared_ptr<FileSource> source_;
  std::string url_;  // of the attempt under way
  std::string error_text_;
  bool content_ = false;
  bool looked_again_ = false;
};

/// A small file into memory, all of it.
class WholeFile final : public FileRequest {
 public:
  using FileRequest::FileRequest;

  std::string take() { return std::move(content_); }

 protected:
  void prepare_range(HttpExchange& exchange) override;
  bool begin_content(const HttpAnswer& answer) override;
  bool write_content(std::span<const std::uint8_t> bytes) override;
  Step judge_content(const HttpExchange& exchange) override;

 private:
  std::string fault_;
  std::string content_;
};

/// A range of a large file into its incomplete blob, block by block. What is cut short goes on at
/// the byte where it ended.
class FilePart final : public FileRequest {
 public:
  /// `range` begins at a block. `begun` is called once, on the I/O thread, when its bytes come:
  /// with false from a server that gives whole files only. This part then takes all to the file's
  /// end.
  FilePart(std::shared_ptr<FileSource> source, std::shared_ptr<PartialBlob> blob,
           PartialBlob::Range range, BlockWriter& writer, std::function<void(bool ranges)> begun);
  ~FilePart() override;

  bool made_progress() override;
  bool has_room(std::size_t size) override;

 protected:
  void prepare_range(HttpExchange& exchange) override;
  bool begin_content(const HttpAnswer& answer) override;
  bool write_content(std::span<const std::uint8_t> bytes) override;
  Step judge_content(const HttpExchange& exchange) override;

 private:
  std::string fault_of(const HttpAnswer& answer) const;
  void fill(std::span<const std::uint8_t> bytes);
  void begin_at(bool ranges);

  const std::shared_ptr<PartialBlob> blob_;
  BlockWriter& writer_;
  std::function<void(bool)> begun_;
  std::uint64_t end_;
  std::uint64_t position_;       // the next byte that is wanted
  std::uint64_t attempt_start_;  // position_ when the last attempt began
  std::uint64_t skip_ = 0;       // bytes before position_ that a whole file brings again
  std::string fault_;
  std::unique_ptr<Block> block_;
};

}  // namespace lerobot::hub
