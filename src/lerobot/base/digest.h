// Hashes of content: SHA-256, and SHA-1 as git uses it, by OpenSSL (which uses the CPU's own
// instructions for them).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

struct evp_md_ctx_st;

namespace lerobot {

/// A hash being computed. Not thread-safe.
class Digest {
 public:
  enum class Algorithm { kSha1, kSha256 };

  /// Throws Error when OpenSSL doesn't offer the algorithm (a crypto policy may forbid SHA-1).
  explicit Digest(Algorithm algorithm);
  Digest(Digest&&) noexcept;
  Digest& operator=(Digest&&) noexcept;
  ~Digest();

  void update(std::span<const std::uint8_t> bytes);
  void update(std::string_view text);
  /// In lower-case hexadecimal. The object is used up.
  std::string hex_digest();

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, Free> context_;
};

class Sha256 : public Digest {
 public:
  Sha256() : Digest(Algorithm::kSha256) {}
};

class Sha1 : public Digest {
 public:
  Sha1() : Digest(Algorithm::kSha1) {}
};

/// The hash that git gives a blob of `size` bytes, before them: SHA-1 of "blob SIZE", a zero and
/// the content.
Digest git_blob_digest(std::uint64_t size);

std::string sha256_hex(std::span<const std::uint8_t> bytes);
/// The name of a blob in git: 40 hexadecimal digits.
std::string git_blob_id(std::span<const std::uint8_t> bytes);

/// Adds bytes [offset, offset + size) of an open file; `name` stands for it in messages. Throws
/// Error when it can't be read or is shorter.
void update_from_file(Digest& digest, int fd, const std::filesystem::path& name,
                      std::uint64_t offset, std::uint64_t size);
/// Throws Error naming the file when it can't be read.
std::string sha256_hex_of_file(const std::filesystem::path& path);

}  // namespace lerobot
