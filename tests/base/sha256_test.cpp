#include "lerobot/base/sha256.h"

#include <filesystem>
#include <string>
#include <unistd.h>

#include <gtest/gtest.h>

#include "lerobot/base/error.h"
#include "lerobot/base/files.h"

namespace lerobot {
namespace {

std::span<const std::uint8_t> bytes(const std::string& text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

// Expected values: hashlib.sha256.
TEST(Sha256, AgreesWithHashlibAtEveryKindOfLength) {
  EXPECT_EQ(sha256_hex({}), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex(bytes("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex(bytes(std::string(55, 'a'))),
            "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318");
  EXPECT_EQ(sha256_hex(bytes(std::string(56, 'a'))),
            "b35439a4ac6f0948b6d6f9e3c6af0f5f590ce20f1bde7090ef7970686ec6738a");
  EXPECT_EQ(sha256_hex(bytes(std::string(64, 'a'))),
            "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb");
  EXPECT_EQ(sha256_hex(bytes(std::string(1000000, 'a'))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, DoesNotDependOnHowTheBytesArrive) {
  const std::string text(1000, 'x');
  Sha256 hash;
  for (std::size_t at = 0, step = 1; at < text.size(); at += step, step = step % 97 + 3)
    hash.update(bytes(text.substr(at, step)));
  EXPECT_EQ(hash.hex_digest(), sha256_hex(bytes(text)));
}

TEST(Sha256, ReadsFilesAndNamesThoseThatItCannotRead) {
  const auto path =
      std::filesystem::temp_directory_path() / fmt::format("lerobot_sha256_test {}", ::getpid());
  write_file_atomic(path, "abc");
  EXPECT_EQ(sha256_hex_of_file(path), sha256_hex(bytes("abc")));
  std::filesystem::remove(path);
  EXPECT_THROW(sha256_hex_of_file(path), Error);
}

}  // namespace
}  // namespace lerobot
