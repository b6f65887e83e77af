// torch's own profiler (Kineto) as we use it. The one place that includes its headers.
#pragma once

#include <c10/core/Device.h>

#include "lerobot/base/json.h"

namespace lerobot::train {

/// Has the profiler keep its own lines from standard error ("gpuGetDeviceCount failed" where there
/// is no GPU), unless KINETO_LOG_LEVEL says otherwise. Before the process has other threads: it
/// sets that variable.
void keep_torch_profiler_quiet();

/// Begins to record operations of this thread and of those that autograd runs for it, and on a GPU
/// its kernels. One at a time. Throws Error when another profiler is at work.
void start_torch_profiler(at::Device device);

/// Ends it and returns its trace, in Chrome's form.
Json stop_torch_profiler();

}  // namespace lerobot::train
