#include "lerobot/base/blake3.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "lerobot/base/wide_loops.h"

LEROBOT_EXACT_LOOPS

// The input is cut into chunks of 1024 bytes, the leaves of a binary tree whose left sides are
// complete. A leaf's chaining value comes from its blocks of 64 bytes in a row, a parent's from one
// block that holds those of its children. Leaves are independent of one another, and so are the
// parents of one level: eight at a time are computed in the lanes of vector registers.

namespace lerobot {
namespace {

static_assert(std::endian::native == std::endian::little, "words are loaded as they lie in memory");

constexpr std::size_t kBlock = 64;
constexpr std::size_t kChunk = 1024;
constexpr std::size_t kDigest = 32;
constexpr std::size_t kLanes = 8;

enum Flag : std::uint32_t {
  kChunkStart = 1,
  kChunkEnd = 2,
  kParent = 4,
  kRoot = 8,
  kKeyedHash = 16,
};

using Key = std::array<std::uint32_t, 8>;
constexpr Key kInitial = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                          0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

/// One 32-bit word of eight inputs.
using Words = std::uint32_t __attribute__((vector_size(4 * kLanes)));

/// Which message word each place of a round takes: round 0 in order, each further one permuted.
constexpr auto kSchedule = [] {
  constexpr std::array<int, 16> kPermutation = {2, 6,  3,  10, 7, 0,  4,  13,
                                                1, 11, 12, 5,  9, 14, 15, 8};
  std::array<std::array<int, 16>, 7> schedule{};
  for (int i = 0; i < 16; ++i) schedule[0][i] = i;
  for (int round = 1; round < 7; ++round)
    for (int i = 0; i < 16; ++i) schedule[round][i] = schedule[round - 1][kPermutation[i]];
  return schedule;
}();

template <int kBits, class Word>
LEROBOT_ALWAYS_INLINE void rotate_right(Word& word) {
  word = (word >> kBits) | (word << (32 - kBits));
}

/// The quarter round.
template <class Word>
LEROBOT_ALWAYS_INLINE void mix(Word& a, Word& b, Word& c, Word& d, const Word& x, const Word& y) {
  a = a + b + x;
  d ^= a;
  rotate_right<16>(d);
  c = c + d;
  b ^= c;
  rotate_right<12>(b);
  a = a + b + y;
  d ^= a;
  rotate_right<8>(d);
  c = c + d;
  b ^= c;
  rotate_right<7>(b);
}

template <class Word>
LEROBOT_ALWAYS_INLINE void round(Word (&v)[16], const Word (&m)[16],
                                 const std::array<int, 16>& order) {
  mix(v[0], v[4], v[8], v[12], m[order[0]], m[order[1]]);
  mix(v[1], v[5], v[9], v[13], m[order[2]], m[order[3]]);
  mix(v[2], v[6], v[10], v[14], m[order[4]], m[order[5]]);
  mix(v[3], v[7], v[11], v[15], m[order[6]], m[order[7]]);
  mix(v[0], v[5], v[10], v[15], m[order[8]], m[order[9]]);
  mix(v[1], v[6], v[11], v[12], m[order[10]], m[order[11]]);
  mix(v[2], v[7], v[8], v[13], m[order[12]], m[order[13]]);
  mix(v[3], v[4], v[9], v[14], m[order[14]], m[order[15]]);
}

/// Seven rounds; the first eight words of the state are the new chaining value.
template <class Word>
LEROBOT_ALWAYS_INLINE void compress(Word (&v)[16], const Word (&m)[16]) {
  round(v, m, kSchedule[0]);
  round(v, m, kSchedule[1]);
  round(v, m, kSchedule[2]);
  round(v, m, kSchedule[3]);
  round(v, m, kSchedule[4]);
  round(v, m, kSchedule[5]);
  round(v, m, kSchedule[6]);
  for (int i = 0; i < 8; ++i) v[i] ^= v[i + 8];
}

/// A single block of `size` bytes on top of `chain`.
void compress_block(Key& chain, const std::uint8_t* block, std::size_t size, std::uint64_t counter,
                    std::uint32_t flags) {
  std::uint32_t m[16] = {};
  if (size > 0) std::memcpy(m, block, size);
  std::uint32_t v[16];
  std::copy(chain.begin(), chain.end(), v);
  std::copy_n(kInitial.begin(), 4, v + 8);
  v[12] = static_cast<std::uint32_t>(counter);
  v[13] = static_cast<std::uint32_t>(counter >> 32);
  v[14] = static_cast<std::uint32_t>(size);
  v[15] = flags;
  compress(v, m);
  std::copy_n(v, 8, chain.begin());
}

/// kLanes inputs of `blocks` whole blocks each, one behind the other.
struct Inputs {
  const std::uint8_t* bytes;
  std::size_t blocks;
  std::uint64_t counter;       ///< of the first
  std::uint64_t counter_step;  ///< from one input to the next
  const Key* key;
  std::uint32_t flags;
  std::uint32_t first_flag;  ///< of an input's first block
  std::uint32_t last_flag;
  std::uint8_t* out;  ///< their chaining values, one behind the other
};

LEROBOT_ALWAYS_INLINE void hash_side_by_side(const Inputs* inputs) {
  Words chain[8];
  for (int i = 0; i < 8; ++i) chain[i] = (*inputs->key)[i] - Words{};
  Words counter_low{}, counter_high{};
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    const std::uint64_t counter = inputs->counter + lane * inputs->counter_step;
    counter_low[lane] = static_cast<std::uint32_t>(counter);
    counter_high[lane] = static_cast<std::uint32_t>(counter >> 32);
  }
  for (std::size_t block = 0; block < inputs->blocks; ++block) {
    Words m[16];
    for (std::size_t word = 0; word < 16; ++word) {
      for (std::size_t lane = 0; lane < kLanes; ++lane) {
        std::uint32_t value;
        std::memcpy(&value, inputs->bytes + (lane * inputs->blocks + block) * kBlock + 4 * word,
                    sizeof value);
        m[word][lane] = value;
      }
    }
    std::uint32_t flags = inputs->flags;
    if (block == 0) flags |= inputs->first_flag;
    if (block + 1 == inputs->blocks) flags |= inputs->last_flag;
    Words v[16] = {};  // GCC's warning doesn't see that all are set
    for (int i = 0; i < 8; ++i) v[i] = chain[i];
    for (int i = 0; i < 4; ++i) v[8 + i] = kInitial[i] - Words{};
    v[12] = counter_low;
    v[13] = counter_high;
    v[14] = static_cast<std::uint32_t>(kBlock) - Words{};
    v[15] = flags - Words{};
    compress(v, m);
    for (int i = 0; i < 8; ++i) chain[i] = v[i];
  }
  for (std::size_t lane = 0; lane < kLanes; ++lane)
    for (std::size_t i = 0; i < 8; ++i) {
      const std::uint32_t value = chain[i][lane];
      std::memcpy(inputs->out + lane * kDigest + 4 * i, &value, sizeof value);
    }
}

/// A chunk, the last one possibly short or, of an empty input, empty.
Key hash_chunk(const Key& key, std::span<const std::uint8_t> chunk, std::uint64_t counter,
               std::uint32_t flags, std::uint32_t root) {
  Key chain = key;
  std::size_t at = 0;
  do {
    const std::size_t size = std::min(kBlock, chunk.size() - at);
    std::uint32_t block_flags = flags;
    if (at == 0) block_flags |= kChunkStart;
    if (at + size == chunk.size()) block_flags |= kChunkEnd | root;
    compress_block(chain, chunk.data() + at, size, counter, block_flags);
    at += size;
  } while (at < chunk.size());
  return chain;
}

Blake3Digest as_bytes(const Key& chain) {
  Blake3Digest digest;
  std::memcpy(digest.data(), chain.data(), digest.size());
  return digest;
}

/// The chaining values of all chunks, one behind the other.
std::vector<std::uint8_t> hash_leaves(const Key& key, std::span<const std::uint8_t> bytes,
                                      std::uint32_t flags) {
  const std::size_t chunks = (bytes.size() + kChunk - 1) / kChunk;
  std::vector<std::uint8_t> values(chunks * kDigest);
  std::size_t chunk = 0;
  for (; (chunk + kLanes) * kChunk <= bytes.size(); chunk += kLanes) {
    const Inputs inputs{bytes.data() + chunk * kChunk,
                        kChunk / kBlock,
                        chunk,
                        1,
                        &key,
                        flags,
                        kChunkStart,
                        kChunkEnd,
                        &values[chunk * kDigest]};
    run_widest<hash_side_by_side>(&inputs);
  }
  for (; chunk < chunks; ++chunk) {
    const auto part =
        bytes.subspan(chunk * kChunk, std::min(kChunk, bytes.size() - chunk * kChunk));
    const Key chain = hash_chunk(key, part, chunk, flags, 0);
    std::memcpy(&values[chunk * kDigest], chain.data(), kDigest);
  }
  return values;
}

/// Replaces the chaining values of a level by those of the level above. The odd one at the end, if
/// any, moves up as it is: that is what makes the left sides complete.
void merge_level(const Key& key, std::vector<std::uint8_t>& values, std::uint32_t flags) {
  const std::size_t nodes = values.size() / kDigest;
  const std::size_t pairs = nodes / 2;
  std::vector<std::uint8_t> above((nodes + 1) / 2 * kDigest);
  std::size_t pair = 0;
  for (; pair + kLanes <= pairs; pair += kLanes) {
    const Inputs inputs{&values[pair * kBlock], 1, 0, 0, &key, flags | kParent, 0, 0,
                        &above[pair * kDigest]};
    run_widest<hash_side_by_side>(&inputs);
  }
  for (; pair < pairs; ++pair) {
    Key chain = key;
    compress_block(chain, &values[pair * kBlock], kBlock, 0, flags | kParent);
    std::memcpy(&above[pair * kDigest], chain.data(), kDigest);
  }
  if (nodes % 2 == 1) std::copy(values.end() - kDigest, values.end(), above.end() - kDigest);
  values = std::move(above);
}

Blake3Digest hash_tree(const Key& key, std::span<const std::uint8_t> bytes, std::uint32_t flags) {
  if (bytes.size() <= kChunk) return as_bytes(hash_chunk(key, bytes, 0, flags, kRoot));
  std::vector<std::uint8_t> values = hash_leaves(key, bytes, flags);
  while (values.size() > 2 * kDigest) merge_level(key, values, flags);
  Key root = key;
  compress_block(root, values.data(), kBlock, 0, flags | kParent | kRoot);
  return as_bytes(root);
}

}  // namespace

Blake3Digest blake3(std::span<const std::uint8_t> bytes) { return hash_tree(kInitial, bytes, 0); }

Blake3Digest blake3_keyed(const Blake3Key& key, std::span<const std::uint8_t> bytes) {
  Key words;
  std::memcpy(words.data(), key.data(), key.size());
  return hash_tree(words, bytes, kKeyedHash);
}

}  // namespace lerobot
