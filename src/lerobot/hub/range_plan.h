// Which requests a set of wanted ranges becomes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lerobot::hub {

/// A wanted piece of a file.
struct Segment {
  std::uint64_t offset = 0;
  std::span<std::uint8_t> out;
  std::uint64_t end() const { return offset + out.size(); }
};

/// Bytes [first, end) that one request fetches, and the pieces of them that are wanted, by offset.
struct PlannedFetch {
  std::uint64_t first = 0;
  std::uint64_t end = 0;
  std::vector<Segment> segments;
};

/// Joins neighbours of one file into requests and splits large ranges into at most `subranges`
/// parts. Of what is fetched at most 1/17 is unwanted bytes of gaps. Pieces may overlap; empty ones
/// are left out. `segments` must end within 64 bits (checked by the caller).
std::vector<PlannedFetch> plan_fetches(std::vector<Segment> segments, std::size_t subranges);

}  // namespace lerobot::hub
