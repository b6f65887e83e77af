#include "lerobot/optim/pieces.h"

#include <algorithm>
#include <vector>

#include <ATen/Parallel.h>

namespace lerobot::optim {

void for_each_piece(
    std::span<const std::int64_t> lengths, ParallelLoop& loop,
    const std::function<void(std::size_t tensor, std::int64_t begin, std::int64_t length)>& body) {
  struct Piece {
    std::size_t tensor;
    std::int64_t begin;
  };
  std::vector<Piece> pieces;
  for (std::size_t t = 0; t < lengths.size(); ++t)
    for (std::int64_t begin = 0; begin < lengths[t]; begin += kPieceLength)
      pieces.push_back({t, begin});
  loop.run(at::get_num_threads(), static_cast<std::int64_t>(pieces.size()), [&](std::int64_t i) {
    const auto [tensor, begin] = pieces[static_cast<std::size_t>(i)];
    body(tensor, begin, std::min(kPieceLength, lengths[tensor] - begin));
  });
}

}  // namespace lerobot::optim
