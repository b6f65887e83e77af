#include "lerobot/optim/square_roots.h"

#include <cmath>

// Of MKL's documented interface (mkl_vml_functions.h, mkl_service.h), which libtorch_cpu.so of the
// wheel contains and exports. Null with other builds of torch. Called directly, because at::sqrt
// would start OpenMP threads from 2049 elements on, and MKL its own, below the optimizer's.
extern "C" {
__attribute__((weak)) void vmsSqrt(int length, const float* in, float* out, std::int64_t mode);
/// Threads of MKL in the calling thread; returns the former value.
__attribute__((weak)) int MKL_Set_Num_Threads_Local(int threads);
}

namespace lerobot::optim {
namespace {

/// What torch passes: high accuracy, denormal numbers kept, no error handling
/// (VML_HA | VML_FTZDAZ_OFF | VML_ERRMODE_IGNORE).
constexpr std::int64_t kMode = 0x2 | 0x140000 | 0x100;

}  // namespace

void take_square_roots(float* values, std::int64_t length) {
  if (vmsSqrt && MKL_Set_Num_Threads_Local) {
    const int former = MKL_Set_Num_Threads_Local(1);
    vmsSqrt(static_cast<int>(length), values, values, kMode);
    MKL_Set_Num_Threads_Local(former);
    return;
  }
  for (std::int64_t i = 0; i < length; ++i) values[i] = std::sqrt(values[i]);
}

}  // namespace lerobot::optim
