#include "tests/support/hub_xet_store.h"

#include <algorithm>
#include <span>
#include <utility>

#include "lerobot/base/error.h"
#include "lerobot/hub/xet/chunking.h"
#include "tests/support/hub_repository.h"

namespace lerobot::test_server {
namespace {

constexpr std::uint64_t kPlainXorb = 60 << 20;
constexpr std::uint64_t kReadAhead = 4 << 20;

std::uint64_t unpacked_size(const Xorb& xorb, std::size_t first, std::size_t last) {
  std::uint64_t sum = 0;
  for (std::size_t i = first; i < last; ++i) sum += xorb.chunks[i].unpacked;
  return sum;
}

std::span<const std::uint8_t> as_bytes(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

/// Adds a chunk that lies in the xorb as it is.
void add_plain_chunk(Xorb& xorb, const Bytes& content, const hub::xet::XetHash& hash) {
  const auto size = static_cast<std::uint32_t>(content.size());
  const std::uint64_t begin = xorb.bytes.size();
  xorb.bytes.append(plain_chunk_header(size));
  xorb.bytes.append(content);
  xorb.chunks.push_back({begin, xorb.bytes.size(), size, true});
  xorb.hashes.push_back({hash, size});
}

}  // namespace

std::string empty_xet_hash() { return std::string(64, '0'); }

bool XetStore::add_xorb(const std::string& hash, const Bytes& bytes) {
  if (xorbs_.contains(hash)) return false;
  const std::string text = bytes.text();
  Xorb xorb{bytes, parse_xorb(text), {}};
  for (const XorbChunk& chunk : xorb.chunks) {
    const std::string content =
        unpack_chunk(std::string_view(text).substr(chunk.begin, chunk.end - chunk.begin));
    xorb.hashes.push_back({hub::xet::chunk_hash(as_bytes(content)), content.size()});
  }
  if (const std::string found = hub::xet::xorb_hash(xorb.hashes).hex(); found != hash)
    fail("xorb: its hash is {}, not {}", found, hash);
  xorbs_.emplace(hash, std::move(xorb));
  return true;
}

void XetStore::add_shard(const Bytes& bytes) {
  const Shard shard = parse_shard(bytes.text());
  for (const ShardXorb& told : shard.xorbs) check(told);
  for (const ShardFile& told : shard.files) {
    XetFile added = file(told);
    hashes_[added.sha256] = told.hash;
    files_.insert_or_assign(told.hash, std::move(added));
  }
}

XetFile XetStore::file(const ShardFile& told) const {
  if (told.segments.size() != told.verification.size())
    fail("shard: file {} has {} segments and {} verification hashes", told.hash,
         told.segments.size(), told.verification.size());
  XetFile file;
  std::vector<hub::xet::SizedHash> hashes;
  for (std::size_t i = 0; i < told.segments.size(); ++i) {
    const XetTerm& added = file.terms.emplace_back(term(told.segments[i]));
    const std::span all(xorbs_.at(added.xorb).hashes);
    const auto chunks = all.subspan(added.first, added.last - added.first);
    if (hub::xet::range_hash(chunks).hex() != told.verification[i])
      fail("shard: segment {} of file {} is not verified by {}", i, told.hash,
           told.verification[i]);
    hashes.insert(hashes.end(), chunks.begin(), chunks.end());
    file.content.append(unpack(added));
  }
  if (const std::string found = hub::xet::file_hash(hashes).hex(); found != told.hash)
    fail("shard: a file has the hash {}, not {}", found, told.hash);
  file.sha256 = sha256_of(file.content);
  if (!told.sha256.empty() && told.sha256 != file.sha256)
    fail("shard: file {} has SHA-256 {}, not {}", told.hash, file.sha256, told.sha256);
  return file;
}

std::string XetStore::add_content(const Bytes& content, const std::string& sha256) {
  if (content.size() == 0) return empty_xet_hash();
  if (const auto known = hashes_.find(sha256); known != hashes_.end()) return known->second;
  XetFile file{{}, content, sha256};
  std::vector<hub::xet::SizedHash> hashes;
  Xorb xorb;
  std::uint64_t begin = 0;  // of the xorb in the content
  std::uint64_t at = 0;
  const auto finish = [&] {
    const std::string hash = hub::xet::xorb_hash(xorb.hashes).hex();
    file.terms.push_back({hash, 0, xorb.chunks.size(), at - begin});
    xorbs_.emplace(hash, std::exchange(xorb, {}));
    begin = at;
  };
  std::string window;  // of the content, from `at` on
  std::uint64_t read = 0;
  while (at < content.size()) {
    if (window.size() < hub::xet::kLargestChunk && read < content.size()) {
      const std::uint64_t more = std::min<std::uint64_t>(kReadAhead, content.size() - read);
      window += content.part(read, more).text();
      read += more;
    }
    std::size_t used = 0;
    while (used < window.size() &&
           (window.size() - used >= hub::xet::kLargestChunk || read == content.size())) {
      const auto rest = as_bytes(std::string_view(window).substr(used));
      const std::size_t size =
          hub::xet::first_chunk_size(rest.first(std::min(rest.size(), hub::xet::kLargestChunk)));
      const hub::xet::XetHash hash = hub::xet::chunk_hash(rest.first(size));
      add_plain_chunk(xorb, content.part(at, size), hash);
      hashes.push_back({hash, size});
      at += size;
      used += size;
      if (at - begin >= kPlainXorb) finish();
    }
    window.erase(0, used);
  }
  if (at > begin) finish();
  const std::string hash = hub::xet::file_hash(hashes).hex();
  hashes_[sha256] = hash;
  files_.emplace(hash, std::move(file));
  return hash;
}

const Xorb* XetStore::xorb(const std::string& hash) const {
  const auto at = xorbs_.find(hash);
  return at == xorbs_.end() ? nullptr : &at->second;
}

const XetFile* XetStore::file(const std::string& hash) const {
  const auto at = files_.find(hash);
  return at == files_.end() ? nullptr : &at->second;
}

std::string XetStore::hash_of(const std::string& sha256) const {
  const auto at = hashes_.find(sha256);
  return at == hashes_.end() ? std::string() : at->second;
}

XetReconstruction XetStore::reconstruct(const XetFile& file, std::uint64_t begin,
                                        std::uint64_t end) const {
  XetReconstruction wanted;
  std::uint64_t at = 0;  // of the chunk in the file
  for (const XetTerm& term : file.terms) {
    const Xorb& xorb = xorbs_.at(term.xorb);
    XetTerm cut{term.xorb, term.first, term.first, 0};
    for (std::size_t i = term.first; i < term.last; ++i) {
      const std::uint64_t size = xorb.chunks[i].unpacked;
      if (at + size <= begin) {
        cut.first = cut.last = i + 1;
      } else if (at < end) {
        if (wanted.terms.empty() && cut.unpacked == 0)
          wanted.offset_into_first = begin > at ? begin - at : 0;
        cut.last = i + 1;
        cut.unpacked += size;
      }
      at += size;
    }
    if (cut.unpacked > 0) wanted.terms.push_back(cut);
  }
  return wanted;
}

Bytes XetStore::unpack(const XetTerm& term) const {
  const Xorb& xorb = xorbs_.at(term.xorb);
  Bytes content;
  for (std::size_t i = term.first; i < term.last; ++i) {
    const XorbChunk& chunk = xorb.chunks[i];
    if (chunk.is_plain) {
      content.append(xorb.bytes.part(chunk.begin + kChunkHeader, chunk.unpacked));
    } else {
      content.append(unpack_chunk(xorb.bytes.part(chunk.begin, chunk.end - chunk.begin).text()));
    }
  }
  return content;
}

void XetStore::check(const ShardXorb& told) const {
  const auto at = xorbs_.find(told.hash);
  if (at == xorbs_.end()) fail("shard: xorb {} was not uploaded", told.hash);
  const std::vector<XorbChunk>& chunks = at->second.chunks;
  if (told.chunks.size() != chunks.size())
    fail("shard: xorb {} has {} chunks, not {}", told.hash, chunks.size(), told.chunks.size());
  std::uint64_t begin = 0;
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    if (told.chunks[i].hash != at->second.hashes[i].hash.hex())
      fail("shard: chunk {} of xorb {} has the hash {}, not {}", i, told.hash,
           at->second.hashes[i].hash.hex(), told.chunks[i].hash);
    if (told.chunks[i].begin != begin || told.chunks[i].size != chunks[i].unpacked)
      fail("shard: chunk {} of xorb {} is at {} with {} bytes, not at {} with {}", i, told.hash,
           begin, chunks[i].unpacked, told.chunks[i].begin, told.chunks[i].size);
    begin += chunks[i].unpacked;
  }
  if (told.unpacked != begin)
    fail("shard: xorb {} holds {} bytes, not {}", told.hash, begin, told.unpacked);
}

XetTerm XetStore::term(const ShardSegment& segment) const {
  const auto at = xorbs_.find(segment.xorb);
  if (at == xorbs_.end()) fail("shard: a file needs xorb {}, which is not there", segment.xorb);
  const Xorb& xorb = at->second;
  if (segment.first >= segment.last || segment.last > xorb.chunks.size())
    fail("shard: a file needs chunks [{}, {}) of the {} of xorb {}", segment.first, segment.last,
         xorb.chunks.size(), segment.xorb);
  const std::uint64_t size = unpacked_size(xorb, segment.first, segment.last);
  if (size != segment.unpacked)
    fail("shard: chunks [{}, {}) of xorb {} hold {} bytes, not {}", segment.first, segment.last,
         segment.xorb, size, segment.unpacked);
  return {segment.xorb, segment.first, segment.last, size};
}

}  // namespace lerobot::test_server
