// SHA-256 (FIPS 180-4).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace lerobot {

class Sha256 {
 public:
  void update(std::span<const std::uint8_t> bytes);
  /// The digest in lower-case hexadecimal. The object is used up.
  std::string hex_digest();

 private:
  void compress(const std::uint8_t* block);

  std::array<std::uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::uint8_t, 64> block_{};
  std::size_t filled_ = 0;
  std::uint64_t length_ = 0;
};

std::string sha256_hex(std::span<const std::uint8_t> bytes);
/// Throws Error naming the file when it can't be read.
std::string sha256_hex_of_file(const std::filesystem::path& path);

}  // namespace lerobot
