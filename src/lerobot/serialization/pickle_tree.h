// A check of finished pickles. Private to serialization/.
#pragma once

#include <string_view>

#include "lerobot/serialization/pickle.h"

namespace lerobot::serialization {

/// Walks every value below `root` once and throws Error unless there is no cycle, bounded depth,
/// and a bounded number of values even for a reader that follows each reference (a few lines of
/// nested references can stand for 2^100 values).
void check_pickle_tree(const PickleValue& root, std::string_view name, const PickleLimits& limits);

}  // namespace lerobot::serialization
