#include "lerobot/base/random.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "lerobot/base/error.h"

namespace lerobot {
namespace {

constexpr std::uint32_t kInitA = 0x43b0d7e5, kMultA = 0x931e8875;
constexpr std::uint32_t kInitB = 0x8b51f9dd, kMultB = 0x58f38ded;
constexpr std::uint32_t kMixLeft = 0xca01f9dd, kMixRight = 0x4973f715;

std::uint32_t mix(std::uint32_t x, std::uint32_t y) {
  const std::uint32_t result = kMixLeft * x - kMixRight * y;
  return result ^ (result >> 16);
}

}  // namespace

SeedSequence::SeedSequence(std::span<const std::uint64_t> entropy) {
  std::vector<std::uint32_t> words;
  for (std::uint64_t value : entropy) {
    words.push_back(static_cast<std::uint32_t>(value));
    if (value >> 32) words.push_back(static_cast<std::uint32_t>(value >> 32));
  }
  std::uint32_t hash = kInitA;
  const auto hashmix = [&hash](std::uint32_t value) {
    value ^= hash;
    hash *= kMultA;
    value *= hash;
    return value ^ (value >> 16);
  };
  for (std::size_t i = 0; i < pool_.size(); ++i)
    pool_[i] = hashmix(i < words.size() ? words[i] : 0);
  for (std::size_t source = 0; source < pool_.size(); ++source)
    for (std::size_t target = 0; target < pool_.size(); ++target)
      if (source != target) pool_[target] = mix(pool_[target], hashmix(pool_[source]));
  for (std::size_t i = pool_.size(); i < words.size(); ++i)
    for (auto& word : pool_) word = mix(word, hashmix(words[i]));
}

std::vector<std::uint32_t> SeedSequence::generate_state(std::size_t count) const {
  std::vector<std::uint32_t> state(count);
  std::uint32_t hash = kInitB;
  for (std::size_t i = 0; i < count; ++i) {
    std::uint32_t value = pool_[i % pool_.size()] ^ hash;
    hash *= kMultB;
    value *= hash;
    state[i] = value ^ (value >> 16);
  }
  return state;
}

std::uint64_t SeedSequence::generate_uint64() const {
  const auto words = generate_state(2);
  return words[0] | static_cast<std::uint64_t>(words[1]) << 32;
}

std::uint64_t epoch_seed(std::uint64_t seed, std::uint64_t epoch) {
  const std::uint64_t entropy[] = {seed, epoch};
  return SeedSequence(entropy).generate_uint64();
}

Pcg64::Pcg64(std::span<const std::uint64_t> entropy) {
  // Four 64-bit words, each with its low half first: the state's high and low, the sequence's.
  const auto halves = SeedSequence(entropy).generate_state(8);
  const auto word = [&](std::size_t i) { return Word{halves[2 * i + 1]} << 32 | halves[2 * i]; };
  const Word initial = word(0) << 64 | word(1);
  increment_ = (word(2) << 64 | word(3)) << 1 | 1;
  // pcg_setseq_128_srandom: from state 0 a step, the initial state added, a step.
  state_ = (increment_ + initial) * kMultiplier + increment_;
}

Pcg64::Pcg64(std::uint64_t seed, std::uint64_t epoch)
    : Pcg64(std::array<std::uint64_t, 2>{seed, epoch}) {}

void Pcg64::discard_shuffle(std::uint64_t count) {
  Pcg64 generator = *this;  // A local copy stays in registers.
  std::uint64_t i = count == 0 ? 0 : count - 1;
  for (; i > kLargest32; --i) generator.below_or_equal(i);
  // Whether a draw is accepted is close to a coin toss, so that no branch depends on it.
  while (i > 0) {
    const auto mask = static_cast<std::uint32_t>(kLargest32 >> (std::countl_zero(i) - 32));
    const std::uint64_t half_range = mask >> 1;
    while (i > half_range) i -= (generator.next32() & mask) <= i;
  }
  *this = generator;
}

Mt19937::Mt19937(std::uint32_t seed) {
  words_[0] = seed;
  for (std::uint32_t i = 1; i < kWords; ++i)
    words_[i] = 1812433253u * (words_[i - 1] ^ (words_[i - 1] >> 30)) + i;
}

Mt19937::Mt19937(std::span<const std::uint32_t> key) : Mt19937(19650218U) {
  std::size_t i = 1, j = 0;
  const auto previous = [&] { return words_[i - 1] ^ (words_[i - 1] >> 30); };
  const auto advance = [&] {
    if (++i < kWords) return;
    words_[0] = words_[kWords - 1];
    i = 1;
  };
  for (std::size_t round = std::max<std::size_t>(kWords, key.size()); round > 0; --round) {
    words_[i] = (words_[i] ^ (previous() * 1664525U)) + key[j] + static_cast<std::uint32_t>(j);
    advance();
    if (++j == key.size()) j = 0;
  }
  for (int round = kWords - 1; round > 0; --round) {
    words_[i] = (words_[i] ^ (previous() * 1566083941U)) - static_cast<std::uint32_t>(i);
    advance();
  }
  words_[0] = 0x80000000U;
}

std::uint32_t Mt19937::next() {
  if (position_ == kWords) {
    for (int i = 0; i < kWords; ++i) {
      const std::uint32_t bits =
          (words_[i] & 0x80000000u) | (words_[(i + 1) % kWords] & 0x7fffffffu);
      words_[i] = words_[(i + 397) % kWords] ^ (bits >> 1) ^ ((bits & 1) ? 0x9908b0dfu : 0u);
    }
    position_ = 0;
  }
  std::uint32_t y = words_[static_cast<std::size_t>(position_++)];
  y ^= y >> 11;
  y ^= (y << 7) & 0x9d2c5680u;
  y ^= (y << 15) & 0xefc60000u;
  return y ^ (y >> 18);
}

void torch_shuffle(std::span<std::int64_t> values, std::uint64_t seed) {
  // torch seeds the engine with the low half only.
  Mt19937 generator(static_cast<std::uint32_t>(seed));
  const std::uint64_t n = values.size();
  // randperm_cpu in aten/src/ATen/native/TensorFactories.cpp: 32-bit draws would be visibly uneven
  // for large n, so it has a second algorithm for them.
  if (n < std::numeric_limits<std::uint32_t>::max() / 20) {
    for (std::uint64_t i = 0; i + 1 < n; ++i)
      std::swap(values[i], values[i + generator.next() % (n - i)]);
    return;
  }
  for (std::uint64_t i = 0; i < n; ++i) {
    const std::uint64_t high = generator.next();
    const std::uint64_t draw = high << 32 | generator.next();
    std::swap(values[i], values[draw % (i + 1)]);
  }
}

std::vector<std::int64_t> torch_randperm(std::int64_t n, std::uint64_t seed) {
  if (n < 0) fail("the length of a permutation must not be negative, found {}", n);
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  torch_shuffle(order, seed);
  return order;
}

}  // namespace lerobot
