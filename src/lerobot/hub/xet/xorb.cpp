#include "lerobot/hub/xet/xorb.h"

#include <utility>

#include "lerobot/base/error.h"
#include "lerobot/hub/xet/chunking.h"

namespace lerobot::hub::xet {
namespace {

constexpr std::size_t kHeaderSize = 8;
constexpr char kVersion = 0;
constexpr char kNotCompressed = 0;

void append_size(std::string& out, std::size_t size) {  // 24 bits, little-endian
  for (int shift = 0; shift < 24; shift += 8) out.push_back(static_cast<char>(size >> shift));
}

}  // namespace

bool XorbBuilder::is_full_for(std::size_t size) const {
  return xorb_.chunks.size() == kMostChunksOfXorb ||
         xorb_.serialized.size() + kHeaderSize + size > kLargestXorb;
}

std::uint32_t XorbBuilder::add(const XetHash& hash, std::span<const std::uint8_t> bytes) {
  check_internal(!bytes.empty() && bytes.size() <= kLargestChunk && !is_full_for(bytes.size()),
                 "a chunk fits into its xorb");
  std::string& out = xorb_.serialized;
  if (out.empty()) out.reserve(kLargestXorb);  // pages that stay untouched cost nothing
  out.push_back(kVersion);
  append_size(out, bytes.size());
  out.push_back(kNotCompressed);
  append_size(out, bytes.size());
  out.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  xorb_.chunks.push_back({hash, bytes.size()});
  xorb_.content_size += bytes.size();
  return static_cast<std::uint32_t>(xorb_.chunks.size() - 1);
}

Xorb XorbBuilder::finish() {
  xorb_.hash = xorb_hash(xorb_.chunks);
  return std::exchange(xorb_, {});
}

}  // namespace lerobot::hub::xet
