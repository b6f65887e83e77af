// Passes over dense float32 CPU tensors with ATen's parallel iteration (its threads, its division
// of the work) and our own inner loops.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include <ATen/TensorIterator.h>

#include "lerobot/base/error.h"

namespace lerobot::nn {

/// Operands are added in the order in which the inner loop gets them, outputs first.
inline at::TensorIteratorConfig elementwise() {
  at::TensorIteratorConfig config;
  config.check_all_same_dtype(false).resize_outputs(false).set_check_mem_overlap(false);
  return config;
}

/// Calls row(char** data, const std::int64_t* strides, std::int64_t n) for runs of n elements;
/// strides are in bytes, one an operand. From several threads at once when there is enough to do.
template <class Row>
void for_each_row(at::TensorIterator iterator, Row row) {
  constexpr int kMostOperands = 6;
  const int operands = iterator.ntensors();
  check_internal(operands <= kMostOperands, "for_each_row: too many operands");
  const auto rows = [row, operands](char** base, const std::int64_t* strides, std::int64_t n,
                                    std::int64_t count) {
    std::array<char*, kMostOperands> data{};
    std::copy_n(base, operands, data.begin());
    for (std::int64_t i = 0; i < count; ++i) {
      row(data.data(), strides, n);
      for (int k = 0; k < operands; ++k) data[k] += strides[operands + k];
    }
  };
  iterator.for_each(at::TensorIterator::loop2d_t(rows), at::internal::GRAIN_SIZE);
}

inline float* floats(char* address) { return reinterpret_cast<float*>(address); }
inline std::uint8_t* bytes(char* address) { return reinterpret_cast<std::uint8_t*>(address); }

}  // namespace lerobot::nn
