#include "lerobot/hub/xet/shard.h"

#include <string_view>

#include "lerobot/base/checked.h"

namespace lerobot::hub::xet {
namespace {

using namespace std::string_view_literals;

// "HFRepoMetaData", a zero, and the sequence that marks a shard.
constexpr std::string_view kTag =
    "HFRepoMetaData\0"
    "\x55\x69\x67\x45\x6a\x7b\x81\x57\x83\xa5\xbd\xd9\x5c\xcd\xd1\x4a\xa9"sv;
static_assert(kTag.size() == 32);
constexpr std::uint64_t kVersion = 2;
constexpr std::uint64_t kNoFooter = 0;
constexpr std::uint32_t kWithRangeHashes = 1u << 31;
constexpr std::uint32_t kWithSha256 = 1u << 30;

/// Every entry of a shard has 48 bytes: a hash and four numbers.
class Writer {
 public:
  void raw(std::string_view bytes) { out_ += bytes; }

  template <class Number>
  void number(Number value) {  // little-endian
    for (std::size_t i = 0; i < sizeof value; ++i)
      out_.push_back(static_cast<char>(value >> 8 * i));
  }

  void entry(const XetHash& hash, std::uint32_t a, std::uint32_t b, std::uint32_t c,
             std::uint32_t d) {
    out_.append(reinterpret_cast<const char*>(hash.bytes.data()), hash.bytes.size());
    for (const std::uint32_t value : {a, b, c, d}) number(value);
  }

  /// Ends a section.
  void bookend() {
    XetHash ones;
    ones.bytes.fill(0xff);
    entry(ones, 0, 0, 0, 0);
  }

  std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

std::uint32_t count(std::uint64_t value) {
  return checked_cast<std::uint32_t>(value, "a size in a shard");
}

void write_file(Writer& writer, const ShardFile& file) {
  writer.entry(file.hash, kWithRangeHashes | kWithSha256, count(file.terms.size()), 0, 0);
  for (const Term& term : file.terms)
    writer.entry(term.xorb, 0, count(term.size), term.first, term.last);
  for (const Term& term : file.terms) writer.entry(term.range, 0, 0, 0, 0);
  writer.entry(file.sha256, 0, 0, 0, 0);
}

void write_xorb(Writer& writer, const ShardXorb& xorb) {
  // The last number is the stored size, which the server knows better: hf_xet sends 0 as well.
  writer.entry(xorb.hash, 0, count(xorb.chunks.size()), count(xorb.content_size), 0);
  std::uint64_t start = 0;
  for (const SizedHash& chunk : xorb.chunks) {
    writer.entry(chunk.hash, count(start), count(chunk.size), 0, 0);
    start += chunk.size;
  }
}

}  // namespace

std::string serialize_shard(std::span<const ShardFile> files, std::span<const ShardXorb> xorbs) {
  Writer writer;
  writer.raw(kTag);
  writer.number(kVersion);
  writer.number(kNoFooter);
  for (const ShardFile& file : files) write_file(writer, file);
  writer.bookend();
  for (const ShardXorb& xorb : xorbs) write_xorb(writer, xorb);
  writer.bookend();
  return writer.take();
}

}  // namespace lerobot::hub::xet
