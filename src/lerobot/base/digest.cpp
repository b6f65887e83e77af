#include "lerobot/base/digest.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include "lerobot/base/error.h"
#include "lerobot/base/files.h"

namespace lerobot {
namespace {

constexpr std::size_t kReadBytes = 256 << 10;

const char* name_of(Digest::Algorithm algorithm) {
  return algorithm == Digest::Algorithm::kSha1 ? "SHA-1" : "SHA-256";
}

const EVP_MD* method_of(Digest::Algorithm algorithm) {
  return algorithm == Digest::Algorithm::kSha1 ? EVP_sha1() : EVP_sha256();
}

}  // namespace

void Digest::Free::operator()(evp_md_ctx_st* context) const { EVP_MD_CTX_free(context); }

Digest::Digest(Algorithm algorithm) : context_(EVP_MD_CTX_new()) {
  if (!context_ || EVP_DigestInit_ex(context_.get(), method_of(algorithm), nullptr) != 1)
    fail("OpenSSL cannot compute {} here; does its configuration forbid it?", name_of(algorithm));
}

Digest::Digest(Digest&&) noexcept = default;
Digest& Digest::operator=(Digest&&) noexcept = default;
Digest::~Digest() = default;

void Digest::update(std::span<const std::uint8_t> bytes) {
  check_internal(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1,
                 "a digest was updated after its end");
}

void Digest::update(std::string_view text) {
  update({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
}

std::string Digest::hex_digest() {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::uint8_t bytes[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  check_internal(EVP_DigestFinal_ex(context_.get(), bytes, &size) == 1, "a digest was ended twice");
  std::string text;
  text.reserve(2 * std::size_t{size});
  for (const std::uint8_t byte : std::span(bytes, size)) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

Digest git_blob_digest(std::uint64_t size) {
  Digest digest(Digest::Algorithm::kSha1);
  const std::string head = fmt::format("blob {}", size);
  digest.update(std::string_view(head.c_str(), head.size() + 1));  // with the zero
  return digest;
}

std::string sha256_hex(std::span<const std::uint8_t> bytes) {
  Sha256 digest;
  digest.update(bytes);
  return digest.hex_digest();
}

std::string git_blob_id(std::span<const std::uint8_t> bytes) {
  Digest digest = git_blob_digest(bytes.size());
  digest.update(bytes);
  return digest.hex_digest();
}

void update_from_file(Digest& digest, int fd, const std::filesystem::path& name,
                      std::uint64_t offset, std::uint64_t size) {
  std::vector<std::uint8_t> buffer(std::min<std::uint64_t>(size, kReadBytes));
  while (size > 0) {
    const ssize_t got = ::pread(fd, buffer.data(), std::min<std::uint64_t>(size, buffer.size()),
                                static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_system(errno, "{}: cannot read", name.string());
    if (got == 0)
      fail("{}: ends after {} bytes, {} more were expected", name.string(), offset, size);
    digest.update({buffer.data(), static_cast<std::size_t>(got)});
    offset += static_cast<std::uint64_t>(got);
    size -= static_cast<std::uint64_t>(got);
  }
}

std::string sha256_hex_of_file(const std::filesystem::path& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) fail_system(errno, "{}: cannot open", path.string());
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0)
    fail_system(errno, "{}: cannot read its size", path.string());
  if (!S_ISREG(status.st_mode)) fail("{}: is not a regular file", path.string());
  Sha256 digest;
  update_from_file(digest, fd.get(), path, 0, static_cast<std::uint64_t>(status.st_size));
  return digest.hex_digest();
}

}  // namespace lerobot
