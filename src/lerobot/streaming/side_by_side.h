// Many small tasks on a few threads of their own, for work that mostly waits.
#pragma once

#include <cstddef>
#include <functional>

namespace lerobot::streaming {

/// Runs task(0) .. task(count - 1) on up to `threads` threads, begun in order, and waits for all.
/// The first exception stops what has not begun and is thrown to the caller. `poll`, if given, is
/// called about twenty times a second on the calling thread; what it throws stops the work too,
/// after `cancel` has been called to break off tasks that wait.
void side_by_side(std::size_t count, int threads, const char* name,
                  const std::function<void(std::size_t)>& task,
                  const std::function<void()>& poll = {}, const std::function<void()>& cancel = {});

}  // namespace lerobot::streaming
