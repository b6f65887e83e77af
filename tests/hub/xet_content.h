// Content for tests of the Xet code that the real hf_xet has hashed, too.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "lerobot/hub/xet/chunking.h"
#include "lerobot/hub/xet/xet_hash.h"

namespace lerobot::hub::xet {

/// SplitMix64, eight bytes a number: the same content on every machine.
inline std::string random_content(std::uint64_t seed, std::size_t size) {
  std::string out((size + 7) / 8 * 8, '\0');
  std::uint64_t state = seed;
  for (std::size_t at = 0; at < out.size(); at += 8) {
    std::uint64_t x = state += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    x ^= x >> 31;
    std::memcpy(out.data() + at, &x, sizeof x);
  }
  out.resize(size);
  return out;
}

inline std::string repeated(const std::string& text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

inline std::span<const std::uint8_t> bytes_of(const std::string& text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

inline std::vector<SizedHash> chunks_of(const std::string& text) {
  std::vector<SizedHash> chunks;
  for (std::span<const std::uint8_t> rest = bytes_of(text); !rest.empty();) {
    const auto chunk = rest.first(first_chunk_size(rest));
    chunks.push_back({chunk_hash(chunk), chunk.size()});
    rest = rest.subspan(chunk.size());
  }
  return chunks;
}

}  // namespace lerobot::hub::xet
