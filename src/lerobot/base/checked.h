// Arithmetic and narrowing on numbers that come from files and servers: overflow is an Error that
// carries the quantity's name, never a wrapped value.
#pragma once

#include <concepts>
#include <cstdint>
#include <string_view>
#include <utility>

#include "lerobot/base/error.h"

namespace lerobot {

/// `value` as type To; throws Error naming `what` when it does not fit.
template <std::integral To, std::integral From>
To checked_cast(From value, std::string_view what) {
  if (!std::in_range<To>(value)) fail("{} is out of range: {}", what, value);
  return static_cast<To>(value);
}

/// a + b; throws Error naming `what` on overflow.
template <std::integral T>
T checked_add(T a, T b, std::string_view what) {
  T result;
  if (__builtin_add_overflow(a, b, &result)) fail("{} overflows: {} + {}", what, a, b);
  return result;
}

/// a * b; throws Error naming `what` on overflow.
template <std::integral T>
T checked_mul(T a, T b, std::string_view what) {
  T result;
  if (__builtin_mul_overflow(a, b, &result)) fail("{} overflows: {} * {}", what, a, b);
  return result;
}

}  // namespace lerobot
