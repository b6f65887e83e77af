// The square root that torch's operations take on this machine.
#pragma once

#include <cstdint>

namespace lerobot::optim {

/// Replaces `length` values (below 2^31) by their square roots, in the calling thread alone.
/// torch's x86 wheel takes them from MKL, whose float32 root differs from the correctly rounded one
/// in one value out of six by the last bit; where MKL is absent this is the processor's, as in
/// torch.
void take_square_roots(float* values, std::int64_t length);

}  // namespace lerobot::optim
