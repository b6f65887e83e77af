// Passes over many flat float32 tensors, cut into pieces that fit in a core's cache.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "lerobot/base/parallel_loop.h"

namespace lerobot::optim {

/// 64 KiB an array: the five arrays of Adam fill a third of a 1 MiB second-level cache, and handing
/// out a piece costs nothing beside 16384 elements.
inline constexpr std::int64_t kPieceLength = 16384;

/// Calls body(tensor, begin, length) for pieces of at most kPieceLength elements that cover tensors
/// of these lengths, on as many threads as torch's operations use.
void for_each_piece(
    std::span<const std::int64_t> lengths, ParallelLoop& loop,
    const std::function<void(std::size_t tensor, std::int64_t begin, std::int64_t length)>& body);

}  // namespace lerobot::optim
