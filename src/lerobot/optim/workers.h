// Loops over many pieces of memory on as many threads as torch's operations use.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "lerobot/base/threads.h"

namespace lerobot::optim {

/// Runs loops on a pool of its own. (torch's OpenMP threads serve only code that is compiled with
/// -fopenmp against the very libgomp of the torch wheel.) Used from one thread at a time.
class Workers {
 public:
  /// Calls body(i) once for every i in [0, count), the calling thread taking part, and waits.
  /// Rethrows the first exception of a body. The order and the threads are not fixed.
  void run(std::int64_t count, const std::function<void(std::int64_t)>& body);

 private:
  std::unique_ptr<ThreadPool> pool_;
};

/// A piece of a flat float32 tensor, small enough that all its arrays fit in a core's cache.
struct Piece {
  std::size_t tensor;  // its number in the caller's list
  std::int64_t begin;
  std::int64_t length;
};

/// 64 KiB an array: the five arrays of Adam fill a third of a 1 MiB second-level cache, and handing
/// out a piece costs nothing beside 16384 elements.
inline constexpr std::int64_t kPieceLength = 16384;

/// Cuts a tensor of `length` elements.
void append_pieces(std::size_t tensor, std::int64_t length, std::vector<Piece>& pieces);

}  // namespace lerobot::optim
