// Random numbers that must equal Python's bit for bit.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

namespace lerobot {

/// numpy.random.SeedSequence over a list of non-negative integers
/// (O'Neill's seed_seq_fe128; see numpy/random/bit_generator.pyx for the reference).
class SeedSequence {
 public:
  explicit SeedSequence(std::span<const std::uint64_t> entropy);

  /// SeedSequence.generate_state(count, uint32).
  std::vector<std::uint32_t> generate_state(std::size_t count) const;
  /// SeedSequence.generate_state(1, uint64)[0].
  std::uint64_t generate_uint64() const;

 private:
  std::array<std::uint32_t, 4> pool_{};
};

/// The seed of torch's sampler generator in one epoch: first uint64 of SeedSequence([seed, epoch]).
std::uint64_t epoch_seed(std::uint64_t seed, std::uint64_t epoch);

/// numpy.random.default_rng(entropy): the bit generator PCG64 (XSL-RR 128/64) and the methods of
/// numpy's Generator that the order of samples is made of. A value: a copy continues by itself.
/// Small and inline, because an epoch may take hundreds of millions of draws.
class Pcg64 {
 public:
  explicit Pcg64(std::span<const std::uint64_t> entropy);
  /// default_rng([seed, epoch]).
  Pcg64(std::uint64_t seed, std::uint64_t epoch);

  std::uint64_t next64();
  /// The low half of a fresh 64-bit output; the high half is kept for the next call. next64()
  /// neither uses nor drops that half.
  std::uint32_t next32();
  /// Generator.integers(n): uniform in [0, n), Lemire's method. n is at least 1.
  std::uint64_t integers(std::uint64_t n);
  /// Generator.shuffle(values): from the back, each swapped with one at or before it, which is
  /// drawn by masked rejection.
  template <class T>
  void shuffle(std::span<T> values);
  /// Draws what shuffle() of `count` values would draw.
  void discard_shuffle(std::uint64_t count);

  bool operator==(const Pcg64&) const = default;

 private:
  using Word = unsigned __int128;

  static constexpr std::uint64_t kLargest32 = std::numeric_limits<std::uint32_t>::max();
  static constexpr Word kMultiplier = Word{0x2360ED051FC65DA4} << 64 | 0x4385DF649FCCF645;

  /// Uniform in [0, largest]: draws until one, cut to the bits of `largest`, is small enough.
  std::uint64_t below_or_equal(std::uint64_t largest);

  Word state_ = 0;
  Word increment_ = 0;
  bool has_half_ = false;
  std::uint32_t half_ = 0;
};

/// MT19937 as numpy, Python and torch share it.
class Mt19937 {
 public:
  /// init_genrand(seed), as torch's CPU generator and numpy's legacy seeding do.
  explicit Mt19937(std::uint32_t seed);
  /// init_by_array(key), as Python's random.seed(int) does; `key` has at least one word.
  explicit Mt19937(std::span<const std::uint32_t> key);
  std::uint32_t next();

  static constexpr int kWords = 624;
  const std::array<std::uint32_t, kWords>& words() const { return words_; }
  /// Index of the next word; kWords means that the next call makes new ones.
  int position() const { return position_; }

 private:
  std::array<std::uint32_t, kWords> words_;
  int position_ = kWords;
};

/// Puts `values` into the order in which torch.randperm(values.size()) of a fresh CPU generator
/// seeded with `seed` would pick them: new values[i] = old values[randperm[i]]. In place, so that a
/// permutation of anything costs no second array.
void torch_shuffle(std::span<std::int64_t> values, std::uint64_t seed);

/// torch.randperm(n) on a fresh CPU generator seeded with `seed` (int64 indices). Throws Error when
/// n is negative.
std::vector<std::int64_t> torch_randperm(std::int64_t n, std::uint64_t seed);

// --- Pcg64, inline ------------------------------------------------------------------------------

inline std::uint64_t Pcg64::next64() {
  state_ = state_ * kMultiplier + increment_;
  const auto high = static_cast<std::uint64_t>(state_ >> 64);
  return std::rotr(high ^ static_cast<std::uint64_t>(state_), static_cast<int>(high >> 58));
}

inline std::uint32_t Pcg64::next32() {
  if (has_half_) {
    has_half_ = false;
    return half_;
  }
  const std::uint64_t value = next64();
  has_half_ = true;
  half_ = static_cast<std::uint32_t>(value >> 32);
  return static_cast<std::uint32_t>(value);
}

inline std::uint64_t Pcg64::integers(std::uint64_t n) {
  if (n <= 1) return 0;
  if (n - 1 == kLargest32) return next32();
  if (n - 1 < kLargest32) {
    std::uint64_t product = n * next32();
    if (static_cast<std::uint32_t>(product) < n) {
      const std::uint64_t threshold = (kLargest32 + 1 - n) % n;
      while (static_cast<std::uint32_t>(product) < threshold) product = n * next32();
    }
    return product >> 32;
  }
  Word product = Word{n} * next64();
  if (static_cast<std::uint64_t>(product) < n) {
    const std::uint64_t threshold = (0 - n) % n;  // 2^64 mod n
    while (static_cast<std::uint64_t>(product) < threshold) product = Word{n} * next64();
  }
  return static_cast<std::uint64_t>(product >> 64);
}

inline std::uint64_t Pcg64::below_or_equal(std::uint64_t largest) {
  const std::uint64_t mask = std::numeric_limits<std::uint64_t>::max() >> std::countl_zero(largest);
  std::uint64_t value;
  if (largest <= kLargest32) do
      value = next32() & mask;
    while (value > largest);
  else
    do value = next64() & mask;
    while (value > largest);
  return value;
}

template <class T>
void Pcg64::shuffle(std::span<T> values) {
  for (std::size_t i = values.size(); i-- > 1;) std::swap(values[i], values[below_or_equal(i)]);
}

}  // namespace lerobot
