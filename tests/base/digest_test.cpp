#include "lerobot/base/digest.h"

#include <fcntl.h>
#include <filesystem>
#include <string>
#include <unistd.h>

#include <gmock/gmock.h>

#include "lerobot/base/error.h"
#include "lerobot/base/files.h"
#include "tests/support/error_of.h"

namespace lerobot {
namespace {

using ::testing::HasSubstr;

std::span<const std::uint8_t> bytes(const std::string& text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

class DigestFile : public ::testing::Test {
 protected:
  ~DigestFile() override { std::filesystem::remove(path_); }

  const std::filesystem::path path_ =
      std::filesystem::temp_directory_path() / fmt::format("lerobot_digest_test {}", ::getpid());
};

// Expected values: hashlib.sha256.
TEST(Digest, AgreesWithHashlibAtEveryKindOfLength) {
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

TEST(Digest, DoesNotDependOnHowTheBytesArrive) {
  const std::string text(1000, 'x');
  Sha256 hash;
  for (std::size_t at = 0, step = 1; at < text.size(); at += step, step = step % 97 + 3)
    hash.update(text.substr(at, step));
  EXPECT_EQ(hash.hex_digest(), sha256_hex(bytes(text)));
}

// Expected values: git hash-object.
TEST(Digest, NamesBlobsAsGitDoes) {
  EXPECT_EQ(git_blob_id({}), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
  EXPECT_EQ(git_blob_id(bytes("abc")), "f2ba8f84ab5c1bce84a7b441cb1959cfc7093b7f");
  EXPECT_EQ(git_blob_id(bytes(std::string(1000000, 'a'))),
            "de1fbf0c2f34f67f01f355f31ed0cf7319643c5e");
}

TEST_F(DigestFile, IsHashedByItsContentOrNamedWhenItCannotBeRead) {
  write_file_atomic(path_, "abc");
  EXPECT_EQ(sha256_hex_of_file(path_), sha256_hex(bytes("abc")));
  std::filesystem::remove(path_);
  EXPECT_THAT(error_of([&] { sha256_hex_of_file(path_); }), HasSubstr(path_.string()));
  EXPECT_THAT(error_of([] { sha256_hex_of_file("/"); }), HasSubstr("is not a regular file"));
}

TEST_F(DigestFile, ThatIsShorterThanPromisedIsRefused) {
  write_file_atomic(path_, "xabcx");
  const UniqueFd fd(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  Sha256 part;
  update_from_file(part, fd.get(), path_, 1, 3);
  EXPECT_EQ(part.hex_digest(), sha256_hex(bytes("abc")));
  Sha256 beyond;
  EXPECT_THAT(error_of([&] { update_from_file(beyond, fd.get(), path_, 2, 9); }),
              HasSubstr("ends after 5 bytes, 6 more were expected"));
}

}  // namespace
}  // namespace lerobot
