// Where content is cut into chunks, as the Xet protocol defines it
// (https://huggingface.co/docs/xet, "Chunking"; draft-denis-xet, section 5): at places that depend
// on the 64 bytes before them, so that equal content gives equal chunks wherever it stands.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace lerobot::hub::xet {

inline constexpr std::size_t kSmallestChunk = 8 << 10;  ///< but for the last one of a file
inline constexpr std::size_t kLargestChunk = 128 << 10;

/// The length of the first chunk of content that begins with `bytes`, of which there must be
/// kLargestChunk, or as many as the content has. 0 for none.
std::size_t first_chunk_size(std::span<const std::uint8_t> bytes);

}  // namespace lerobot::hub::xet
