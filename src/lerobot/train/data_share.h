// Which part of every step's samples a process loads.
#pragma once

#include <cstdint>

namespace lerobot::train {

struct DataShare {
  std::int64_t world = 1;  ///< data-parallel processes
  std::int64_t rank = 0;   ///< this one
};

}  // namespace lerobot::train
