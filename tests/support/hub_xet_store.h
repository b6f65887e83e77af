// Xet storage of the test Hub: xorbs and the files that shards make of them. Every hash is checked.
//
// The hashes are computed by the code that our uploader uses, too. What keeps both honest is the
// real hf_xet, whose uploads must pass the same checks (tests/interop/test_hub_server.py).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lerobot/hub/xet/xet_hash.h"
#include "tests/support/http_bytes.h"
#include "tests/support/hub_xet_format.h"

namespace lerobot::test_server {

/// The hash of an empty file.
std::string empty_xet_hash();

struct Xorb {
  Bytes bytes;
  std::vector<XorbChunk> chunks;
  std::vector<hub::xet::SizedHash> hashes;  ///< of the chunks' contents
};

/// Chunks [first, last) of a xorb.
struct XetTerm {
  std::string xorb;
  std::size_t first = 0;
  std::size_t last = 0;
  std::uint64_t unpacked = 0;
};

struct XetFile {
  std::vector<XetTerm> terms;
  Bytes content;
  std::string sha256;
};

/// Where the bytes of a file are: of a part of it, only the terms and chunks that it needs.
struct XetReconstruction {
  std::uint64_t offset_into_first = 0;
  std::vector<XetTerm> terms;
};

/// Not thread-safe.
class XetStore {
 public:
  /// False: it was there. Throws Error when it is damaged.
  bool add_xorb(const std::string& hash, const Bytes& bytes);
  /// Files whose xorbs are there can be read from now on. Throws Error when the shard is damaged,
  /// or contradicts a xorb.
  void add_shard(const Bytes& bytes);
  /// Content that came another way: cut and hashed as a client does; its hash.
  std::string add_content(const Bytes& content, const std::string& sha256);

  const Xorb* xorb(const std::string& hash) const;
  const XetFile* file(const std::string& hash) const;
  /// The hash of a file with this content; empty: none.
  std::string hash_of(const std::string& sha256) const;

  /// Bytes [begin, end) of a file, which has them.
  XetReconstruction reconstruct(const XetFile& file, std::uint64_t begin, std::uint64_t end) const;

 private:
  Bytes unpack(const XetTerm& term) const;
  void check(const ShardXorb& told) const;
  XetTerm term(const ShardSegment& segment) const;
  XetFile file(const ShardFile& told) const;

  std::map<std::string, Xorb> xorbs_;
  std::map<std::string, XetFile> files_;
  std::map<std::string, std::string> hashes_;  ///< by SHA-256
};

}  // namespace lerobot::test_server
