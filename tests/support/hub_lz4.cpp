#include "tests/support/hub_lz4.h"

#include <cstdint>

#include "lerobot/base/error.h"

namespace lerobot::test_server {
namespace {

constexpr std::uint32_t kMagic = 0x184D2204;
constexpr std::uint32_t kStored = 1u << 31;
constexpr std::size_t kShortestMatch = 4;

/// Takes bytes from the front; what is missing is an Error.
class Input {
 public:
  explicit Input(std::string_view bytes) : bytes_(bytes) {}

  bool empty() const { return bytes_.empty(); }
  std::string_view take(std::size_t count) {
    if (count > bytes_.size()) fail("LZ4: {} bytes are missing", count - bytes_.size());
    const std::string_view taken = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return taken;
  }
  std::uint8_t byte() { return static_cast<std::uint8_t>(take(1)[0]); }
  std::uint32_t number(std::size_t bytes) {
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < bytes; ++i) value |= static_cast<std::uint32_t>(byte()) << (8 * i);
    return value;
  }

 private:
  std::string_view bytes_;
};

/// A length of 4 bits, which 15 continues in further bytes.
std::size_t length(Input& input, std::size_t bits) {
  if (bits < 15) return bits;
  std::size_t sum = bits;
  std::uint8_t more;
  do {
    more = input.byte();
    sum += more;
  } while (more == 255);
  return sum;
}

void unpack_block(Input input, std::string& output, std::size_t largest) {
  const auto check_room = [&](std::size_t more) {
    if (more > largest - output.size()) fail("LZ4: more than {} bytes", largest);
  };
  while (!input.empty()) {
    const std::uint8_t token = input.byte();
    const std::size_t literals = length(input, token >> 4);
    check_room(literals);
    output += input.take(literals);
    if (input.empty()) return;  // the last sequence has no match
    const std::size_t distance = input.number(2);
    const std::size_t match = length(input, token & 15) + kShortestMatch;
    if (distance == 0 || distance > output.size()) fail("LZ4: a match lies outside");
    check_room(match);
    // Byte by byte: a match may overlap what it makes.
    for (std::size_t i = 0; i < match; ++i) output += output[output.size() - distance];
  }
}

}  // namespace

std::string unpack_lz4_frame(std::string_view frame, std::size_t largest) {
  Input input(frame);
  if (input.number(4) != kMagic) fail("LZ4: not a frame");
  const std::uint8_t flags = input.byte();
  input.byte();  // the largest size of a block
  const bool block_checksums = flags & 1 << 4;
  const bool content_size = flags & 1 << 3;
  const bool dictionary = flags & 1;
  input.take((content_size ? 8 : 0) + (dictionary ? 4 : 0) + 1);
  std::string output;
  output.reserve(largest);
  while (const std::uint32_t size = input.number(4)) {
    const std::string_view block = input.take(size & ~kStored);
    if (size & kStored) {
      if (block.size() > largest - output.size()) fail("LZ4: more than {} bytes", largest);
      output += block;
    } else {
      unpack_block(Input(block), output, largest);
    }
    if (block_checksums) input.take(4);
  }
  return output;
}

}  // namespace lerobot::test_server
