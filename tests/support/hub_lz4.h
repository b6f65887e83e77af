// LZ4 frames, as Xet clients pack chunks:
// https://github.com/lz4/lz4/blob/dev/doc/lz4_Frame_format.md
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lerobot::test_server {

/// The content of a frame, which has at most `largest` bytes. Checksums are not looked at. Throws
/// Error when it is damaged.
std::string unpack_lz4_frame(std::string_view frame, std::size_t largest);

}  // namespace lerobot::test_server
