#include "lerobot/video/mp4_box.h"

namespace lerobot::video {

std::string box_name(BoxType type) {
  std::string name;
  for (int shift = 24; shift >= 0; shift -= 8) {
    const char c = static_cast<char>(type >> shift & 0xff);
    name += c >= 0x20 && c < 0x7f ? c : '?';
  }
  return name;
}

std::optional<BoxHeader> read_box_header(std::span<const std::uint8_t> bytes,
                                         std::uint64_t available) {
  if (bytes.size() < 8) return std::nullopt;
  BoxHeader header;
  header.type = load_be32(bytes.data() + 4);
  const std::uint32_t size = load_be32(bytes.data());
  if (size == 1) {
    if (bytes.size() < 16) return std::nullopt;
    header.header_bytes = 16;
    header.total_bytes = load_be64(bytes.data() + 8);
  } else {
    header.total_bytes = size == 0 ? available : size;
  }
  if (header.total_bytes < header.header_bytes) return std::nullopt;
  return header;
}

const std::uint8_t* Box::table(std::uint64_t offset, std::uint64_t count,
                               std::uint64_t entry_bytes) const {
  const std::uint64_t room = offset <= size() ? (size() - offset) / entry_bytes : 0;
  if (count > room)
    broken("it claims {} entries of {} bytes, it has room for {}", count, entry_bytes, room);
  return payload_.data() + offset;
}

BoxHeader Box::child_header(std::uint64_t offset) const {
  const std::uint64_t left = size() - offset;
  const std::optional<BoxHeader> header = read_box_header(payload_.subspan(offset), left);
  if (!header) broken("the box at its byte {} has an impossible size", offset);
  if (header->total_bytes > left)
    broken("the box '{}' in it claims {} bytes, {} are left", box_name(header->type),
           header->total_bytes, left);
  return *header;
}

std::optional<Box> Box::find(BoxType type, std::uint64_t offset) const {
  std::optional<Box> found;
  for_each_child(offset, [&](BoxType child, Box box) {
    if (child == type && !found) found.emplace(std::move(box));
  });
  return found;
}

Box Box::require(BoxType type, std::uint64_t offset) const {
  std::optional<Box> found = find(type, offset);
  if (!found) broken("the box '{}' is missing in it", box_name(type));
  return *std::move(found);
}

void Box::throw_short(std::uint64_t offset, std::uint64_t bytes) const {
  broken("it ends after {} bytes, a field needs bytes {} to {}", size(), offset, offset + bytes);
}

void Box::throw_broken(const std::string& message) const {
  fail("{}: MP4 box {}: {}; the file is damaged: copy or download it again", file_, path_, message);
}

}  // namespace lerobot::video
