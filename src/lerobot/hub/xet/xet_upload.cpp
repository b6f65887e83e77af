#include "lerobot/hub/xet/xet_upload.h"

#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <unordered_map>

#include "lerobot/base/error.h"
#include "lerobot/hub/body_source.h"
#include "lerobot/hub/xet/chunking.h"
#include "lerobot/hub/xet/shard.h"
#include "lerobot/hub/xet/xorb.h"

namespace lerobot::hub::xet {
namespace {

constexpr std::size_t kXorbsAtOnce = 3;

using TakeChunk = std::function<void(const XetHash&, std::span<const std::uint8_t>)>;

/// Cuts content into chunks and hashes them and the whole.
class ContentReader {
 public:
  ContentReader(const UploadContent& content, const UploadMeter& meter)
      : content_(content), meter_(meter) {}

  void read(const TakeChunk& take) {
    content_.read(0, content_.size(), [&](std::span<const std::uint8_t> bytes) {
      meter_.check();
      buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
      cut(kLargestChunk, take);
    });
    cut(1, take);
    content_.check_unchanged();
  }

  const std::vector<SizedHash>& chunks() const { return chunks_; }

 private:
  /// Cuts as long as `least` bytes are there.
  void cut(std::size_t least, const TakeChunk& take) {
    std::span<const std::uint8_t> rest = buffer_;
    while (rest.size() >= least) {
      const auto chunk = rest.first(first_chunk_size(rest));
      chunks_.push_back({chunk_hash(chunk), chunk.size()});
      take(chunks_.back().hash, chunk);
      rest = rest.subspan(chunk.size());
    }
    buffer_.erase(buffer_.begin(), buffer_.end() - static_cast<std::ptrdiff_t>(rest.size()));
  }

  const UploadContent& content_;
  const UploadMeter& meter_;
  std::vector<std::uint8_t> buffer_;
  std::vector<SizedHash> chunks_;
};

/// Tasks on threads of their own, a few at a time.
class FewAtOnce {
 public:
  explicit FewAtOnce(std::size_t most) : most_(most) {}

  /// Waits for the oldest when too many are under way; throws what that one threw.
  void start(std::function<void()> task) {
    while (running_.size() >= most_) finish_oldest();
    running_.push_back(std::async(std::launch::async, std::move(task)));
  }

  void finish_all() {
    while (!running_.empty()) finish_oldest();
  }

 private:
  void finish_oldest() {
    std::future<void> oldest = std::move(running_.front());
    running_.pop_front();
    oldest.get();
  }

  const std::size_t most_;
  std::deque<std::future<void>> running_;
};

/// A chunk's place.
struct Place {
  std::size_t xorb = 0;  ///< in the order in which they are begun
  std::uint32_t index = 0;
};

/// Chunks [first, last) of a xorb that may not be complete yet.
struct Run {
  std::size_t xorb = 0;
  std::uint32_t first = 0;
  std::uint32_t last = 0;
};

class XetUpload {
 public:
  XetUpload(XetServer& server, UploadMeter& meter, std::size_t chunks_of_shard)
      : server_(server), meter_(meter), most_chunks_of_shard_(chunks_of_shard) {}

  XetHash add(const UploadContent& content) {
    ContentReader reader(content, meter_);
    Sha256 sha256;
    std::vector<Run> runs;
    reader.read([&](const XetHash& hash, std::span<const std::uint8_t> bytes) {
      sha256.update(bytes);
      append(runs, place_of(hash, bytes));
    });
    const XetHash hash = file_hash(reader.chunks());
    files_.push_back(
        {hash, std::move(runs), reader.chunks(), sha256_as_xet_hash(sha256.hex_digest())});
    chunks_of_shard_ += reader.chunks().size();
    if (chunks_of_shard_ >= most_chunks_of_shard_) send_shard();
    return hash;
  }

  void finish() { send_shard(); }

 private:
  struct File {
    XetHash hash;
    std::vector<Run> runs;
    std::vector<SizedHash> chunks;
    XetHash sha256;
  };

  Place place_of(const XetHash& hash, std::span<const std::uint8_t> bytes) {
    if (const auto at = places_.find(hash); at != places_.end()) {
      meter_.add_bytes(static_cast<std::int64_t>(bytes.size()));
      return at->second;
    }
    if (builder_.is_full_for(bytes.size())) send_xorb();
    const Place place{xorbs_.size(), builder_.add(hash, bytes)};
    places_.emplace(hash, place);
    return place;
  }

  static void append(std::vector<Run>& runs, const Place& place) {
    if (!runs.empty() && runs.back().xorb == place.xorb && runs.back().last == place.index)
      ++runs.back().last;
    else
      runs.push_back({place.xorb, place.index, place.index + 1});
  }

  void send_xorb() {
    if (builder_.empty()) return;
    Xorb xorb = builder_.finish();
    xorbs_.push_back(xorb.hash);
    chunks_of_shard_ += xorb.chunks.size();
    shard_xorbs_.push_back({xorb.hash, std::move(xorb.chunks), xorb.content_size});
    uploads_.start(
        [this, hash = xorb.hash, body = std::make_shared<std::string>(std::move(xorb.serialized))] {
          try {
            const auto source = meter_.metered(std::make_unique<TextBody>(std::move(*body)));
            server_.post("/v1/xorbs/default/" + hash.hex(), *source, "the xorb " + hash.hex());
          } catch (...) {
            meter_.stop(std::current_exception());
            throw;
          }
        });
  }

  /// Tells the server of the files that are complete; their xorbs must be there before.
  void send_shard() {
    send_xorb();
    uploads_.finish_all();
    if (files_.empty()) return;
    std::vector<ShardFile> files;
    for (const File& file : files_) files.push_back(describe(file));
    TextBody body(serialize_shard(files, shard_xorbs_));
    server_.post("/v1/shards", body, fmt::format("the shard of {} files", files.size()));
    for (std::size_t i = 0; i < files.size(); ++i) meter_.add_file();
    files_.clear();
    shard_xorbs_.clear();
    chunks_of_shard_ = 0;
  }

  ShardFile describe(const File& file) const {
    ShardFile out{.hash = file.hash, .terms = {}, .sha256 = file.sha256};
    std::span<const SizedHash> rest = file.chunks;
    for (const Run& run : file.runs) {
      const auto chunks = rest.first(run.last - run.first);
      std::uint64_t size = 0;
      for (const SizedHash& chunk : chunks) size += chunk.size;
      out.terms.push_back({xorbs_.at(run.xorb), size, run.first, run.last, range_hash(chunks)});
      rest = rest.subspan(chunks.size());
    }
    return out;
  }

  XetServer& server_;
  UploadMeter& meter_;
  const std::size_t most_chunks_of_shard_;
  std::unordered_map<XetHash, Place, XetHashHasher> places_;
  XorbBuilder builder_;
  std::vector<XetHash> xorbs_;  ///< those that are complete
  std::vector<File> files_;     ///< those that no shard has described yet
  std::vector<ShardXorb> shard_xorbs_;
  std::size_t chunks_of_shard_ = 0;
  FewAtOnce uploads_{kXorbsAtOnce};  // the last member: its tasks use the others
};

}  // namespace

XetHash content_hash(const UploadContent& content, const UploadMeter& meter) {
  ContentReader reader(content, meter);
  reader.read([](const XetHash&, std::span<const std::uint8_t>) {});
  return file_hash(reader.chunks());
}

std::vector<XetHash> upload_contents(XetServer& server,
                                     std::span<const UploadContent* const> contents,
                                     UploadMeter& meter, std::size_t chunks_of_shard) {
  std::vector<XetHash> hashes;
  XetUpload upload(server, meter, chunks_of_shard);
  try {
    for (const UploadContent* content : contents) {
      if (content->size() == 0) {
        meter.add_file();
        hashes.push_back({});
      } else {
        hashes.push_back(upload.add(*content));
      }
    }
    upload.finish();
  } catch (...) {
    meter.stop(std::current_exception());  // xorbs on their way needn't arrive
    throw;
  }
  return hashes;
}

}  // namespace lerobot::hub::xet
