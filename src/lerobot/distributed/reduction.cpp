#include "lerobot/distributed/reduction.h"

#include <algorithm>
#include <array>
#include <type_traits>

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include "lerobot/base/error.h"
#include "lerobot/base/wide_loops.h"

LEROBOT_EXACT_LOOPS

namespace lerobot::distributed {
namespace {

/// Elements that are accumulated at a time: they stay in the first cache.
constexpr std::int64_t kBlock = 2048;

template <class T>
using Accumulator = std::conditional_t<sizeof(T) == 2, float, T>;

template <class T>
struct Work {
  T* output;
  const T* const* parts;
  std::size_t part_count;
  std::int64_t size;
  bool maximum;
  Accumulator<T> divisor;
};

template <class T>
LEROBOT_ALWAYS_INLINE void reduce_all(const Work<T>* work) {
  using A = Accumulator<T>;
  std::array<A, kBlock> sum;
  for (std::int64_t begin = 0; begin < work->size; begin += kBlock) {
    const std::int64_t count = std::min(kBlock, work->size - begin);
    const T* first = work->parts[0] + begin;
    for (std::int64_t i = 0; i < count; ++i) sum[i] = static_cast<A>(first[i]);
    for (std::size_t p = 1; p < work->part_count; ++p) {
      const T* part = work->parts[p] + begin;
      if (work->maximum) {
        // A NaN wins, as in at::max.
        for (std::int64_t i = 0; i < count; ++i) {
          const A value = static_cast<A>(part[i]);
          sum[i] = sum[i] >= value || sum[i] != sum[i] ? sum[i] : value;
        }
      } else {
        for (std::int64_t i = 0; i < count; ++i) sum[i] += static_cast<A>(part[i]);
      }
    }
    T* output = work->output + begin;
    if (work->divisor == A{1}) {
      for (std::int64_t i = 0; i < count; ++i) output[i] = static_cast<T>(sum[i]);
    } else {
      const A divisor = work->divisor;
      for (std::int64_t i = 0; i < count; ++i) output[i] = static_cast<T>(sum[i] / divisor);
    }
  }
}

template <class T>
void reduce_as(const at::Tensor& output, const std::vector<at::Tensor>& parts, bool maximum,
               std::int64_t divisor) {
  std::vector<const T*> pointers;
  for (const at::Tensor& part : parts)
    pointers.push_back(static_cast<const T*>(part.const_data_ptr()));
  const Work<T> work{static_cast<T*>(output.mutable_data_ptr()),
                     pointers.data(),
                     pointers.size(),
                     output.numel(),
                     maximum,
                     static_cast<Accumulator<T>>(divisor)};
  run_widest<reduce_all<T>>(&work);
}

void reduce(const at::Tensor& output, const std::vector<at::Tensor>& parts, bool maximum,
            std::int64_t divisor) {
  switch (output.scalar_type()) {
    case at::kFloat:
      return reduce_as<float>(output, parts, maximum, divisor);
    case at::kDouble:
      return reduce_as<double>(output, parts, maximum, divisor);
    case at::kBFloat16:
      return reduce_as<c10::BFloat16>(output, parts, maximum, divisor);
    case at::kHalf:
      return reduce_as<c10::Half>(output, parts, maximum, divisor);
    case at::kLong:
      return reduce_as<std::int64_t>(output, parts, maximum, divisor);
    case at::kInt:
      return reduce_as<std::int32_t>(output, parts, maximum, divisor);
    default:
      throw InternalError("a reduction of a dtype that has none");
  }
}

}  // namespace

void reduce_parts(const at::Tensor& output, const std::vector<at::Tensor>& parts,
                  Reduction reduction) {
  check_internal(reduction != Reduction::kAverage || output.is_floating_point(),
                 "an average of integers");
  reduce(output, parts, reduction == Reduction::kMax,
         reduction == Reduction::kAverage ? static_cast<std::int64_t>(parts.size()) : 1);
}

void divide(const at::Tensor& tensor, std::int64_t divisor) {
  check_internal(tensor.is_floating_point(), "an average of integers");
  reduce(tensor, {tensor}, false, divisor);
}

}  // namespace lerobot::distributed
