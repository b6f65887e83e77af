// For loops over arrays whose results are defined down to the rounding: compiled twice on x86, for
// the baseline and for AVX2 with fused multiply-adds, in one binary that runs everywhere.
//
// A .cpp says LEROBOT_EXACT_LOOPS after its includes, writes a loop as a LEROBOT_ALWAYS_INLINE
// function and calls it through run_widest(). A loop with multiply_add() is a template over kFused:
// run_widest<loop<true>, loop<kBaselineFuses>>(...).
#pragma once

#define LEROBOT_ALWAYS_INLINE inline __attribute__((always_inline))

// The compiler must not fuse on its own, and should vectorise whatever the build's level is.
#if defined(__clang__)
#define LEROBOT_EXACT_LOOPS _Pragma("clang fp contract(off)")
#define LEROBOT_EXACT
#elif defined(__GNUC__)
#define LEROBOT_EXACT_LOOPS \
  _Pragma("GCC optimize(\"O3\", \"fp-contract=off\", \"no-trapping-math\")")
#define LEROBOT_EXACT __attribute__((optimize("O3", "fp-contract=off", "no-trapping-math")))
#else
#define LEROBOT_EXACT_LOOPS
#define LEROBOT_EXACT
#endif

#if defined(__x86_64__)
#define LEROBOT_WIDE __attribute__((target("avx2,fma")))
#else
#define LEROBOT_WIDE
#endif

namespace lerobot {

/// Whether a + b * c costs one instruction without LEROBOT_WIDE.
#if defined(__FP_FAST_FMAF)
inline constexpr bool kBaselineFuses = true;
#else
inline constexpr bool kBaselineFuses = false;
#endif

/// True when LEROBOT_WIDE functions may be called on this processor and gain something.
inline bool use_wide_loops() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
  return false;
#endif
}

template <auto kLoop, class... Arguments>
LEROBOT_WIDE LEROBOT_EXACT void run_wide(Arguments... arguments) {
  kLoop(arguments...);
}
template <auto kLoop, class... Arguments>
LEROBOT_EXACT void run_baseline(Arguments... arguments) {
  kLoop(arguments...);
}

/// Calls kWide, compiled for AVX2, where the processor has it, and kBaseline elsewhere.
template <auto kWide, auto kBaseline = kWide, class... Arguments>
void run_widest(Arguments... arguments) {
  if (use_wide_loops())
    run_wide<kWide>(arguments...);
  else
    run_baseline<kBaseline>(arguments...);
}

/// a * b + c with one rounding (kFused), or with two as processors without the instruction do.
template <bool kFused>
LEROBOT_ALWAYS_INLINE float multiply_add(float a, float b, float c) {
  if constexpr (kFused) return __builtin_fmaf(a, b, c);
  return a * b + c;
}

}  // namespace lerobot
