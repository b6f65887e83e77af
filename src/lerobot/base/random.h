// Random numbers that must equal Python's bit for bit.
#pragma once

#include <array>
#include <cstdint>
#include <span>
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

}  // namespace lerobot
