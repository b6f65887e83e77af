// BLAKE3 (https://github.com/BLAKE3-team/BLAKE3-specs), the modes hash and keyed_hash, with digests
// of 32 bytes. No package of the distributions that we build on has it.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace lerobot {

using Blake3Digest = std::array<std::uint8_t, 32>;
using Blake3Key = std::array<std::uint8_t, 32>;

/// Takes memory of 1/32 of the input meanwhile.
Blake3Digest blake3(std::span<const std::uint8_t> bytes);
Blake3Digest blake3_keyed(const Blake3Key& key, std::span<const std::uint8_t> bytes);

}  // namespace lerobot
