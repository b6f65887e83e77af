#include "lerobot/video/frame_converter.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace lerobot::video {
namespace {

void split_scalar(const std::uint8_t* packed, std::size_t pixels, std::uint8_t* red,
                  std::uint8_t* green, std::uint8_t* blue) {
  for (std::size_t i = 0; i < pixels; ++i) {
    red[i] = packed[3 * i];
    green[i] = packed[3 * i + 1];
    blue[i] = packed[3 * i + 2];
  }
}

#if defined(__x86_64__)

// For channel c, source byte j of block b goes to position (16 b + j - c) / 3 when that divides.
struct ShuffleTable {
  alignas(16) std::uint8_t mask[3][3][16];  // channel, block of 16 source bytes

  constexpr ShuffleTable() : mask{} {
    for (int channel = 0; channel < 3; ++channel)
      for (int block = 0; block < 3; ++block)
        for (int pixel = 0; pixel < 16; ++pixel) {
          const int source = 3 * pixel + channel - 16 * block;
          mask[channel][block][pixel] =
              static_cast<std::uint8_t>(source >= 0 && source < 16 ? source : 0x80);
        }
  }
};
constexpr ShuffleTable kShuffle;

// 32 pixels (96 bytes) a step: the low lanes work on pixels 0..15, the high ones on 16..31.
__attribute__((target("avx2"))) std::size_t split_avx2(const std::uint8_t* packed,
                                                       std::size_t pixels, std::uint8_t* red,
                                                       std::uint8_t* green, std::uint8_t* blue) {
  std::uint8_t* const planes[3] = {red, green, blue};
  __m256i masks[3][3];
  for (int channel = 0; channel < 3; ++channel)
    for (int block = 0; block < 3; ++block)
      masks[channel][block] = _mm256_broadcastsi128_si256(
          _mm_load_si128(reinterpret_cast<const __m128i*>(kShuffle.mask[channel][block])));
  std::size_t i = 0;
  for (; i + 32 <= pixels; i += 32) {
    const auto* source = reinterpret_cast<const __m128i*>(packed + 3 * i);
    __m256i blocks[3];
    for (int block = 0; block < 3; ++block)
      blocks[block] =
          _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(source + block)),
                                  _mm_loadu_si128(source + 3 + block), 1);
    for (int channel = 0; channel < 3; ++channel) {
      const __m256i plane =
          _mm256_or_si256(_mm256_or_si256(_mm256_shuffle_epi8(blocks[0], masks[channel][0]),
                                          _mm256_shuffle_epi8(blocks[1], masks[channel][1])),
                          _mm256_shuffle_epi8(blocks[2], masks[channel][2]));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(planes[channel] + i), plane);
    }
  }
  return i;
}

__attribute__((target("ssse3"))) std::size_t split_ssse3(const std::uint8_t* packed,
                                                         std::size_t pixels, std::uint8_t* red,
                                                         std::uint8_t* green, std::uint8_t* blue) {
  std::uint8_t* const planes[3] = {red, green, blue};
  std::size_t i = 0;
  for (; i + 16 <= pixels; i += 16) {
    const auto* source = reinterpret_cast<const __m128i*>(packed + 3 * i);
    const __m128i blocks[3] = {_mm_loadu_si128(source), _mm_loadu_si128(source + 1),
                               _mm_loadu_si128(source + 2)};
    for (int channel = 0; channel < 3; ++channel) {
      __m128i plane = _mm_setzero_si128();
      for (int block = 0; block < 3; ++block)
        plane = _mm_or_si128(
            plane, _mm_shuffle_epi8(blocks[block], _mm_load_si128(reinterpret_cast<const __m128i*>(
                                                       kShuffle.mask[channel][block]))));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(planes[channel] + i), plane);
    }
  }
  return i;
}

#endif

}  // namespace

void split_rgb(const std::uint8_t* packed, std::size_t pixels, std::uint8_t* red,
               std::uint8_t* green, std::uint8_t* blue) {
  std::size_t done = 0;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2"))
    done = split_avx2(packed, pixels, red, green, blue);
  else if (__builtin_cpu_supports("ssse3"))
    done = split_ssse3(packed, pixels, red, green, blue);
#endif
  split_scalar(packed + 3 * done, pixels - done, red + done, green + done, blue + done);
}

}  // namespace lerobot::video
