#include "lerobot/hub/partial_blob.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <random>
#include <string>
#include <thread>
#include <unistd.h>

#include <gmock/gmock.h>

#include "lerobot/base/files.h"

namespace lerobot::hub {
namespace {

constexpr std::uint64_t kBlock = PartialBlob::kBlock;

std::string random_bytes(std::size_t size) {
  std::mt19937_64 generator(7);
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(generator());
  return bytes;
}

std::span<const std::uint8_t> bytes(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

class PartialBlobTest : public ::testing::Test {
 protected:
  ~PartialBlobTest() override { fs::remove_all(root_); }

  BlobLock lock() { return std::move(*cache_.lock_blob(file_.etag(), std::chrono::seconds(5))); }
  std::unique_ptr<PartialBlob> open() {
    return std::make_unique<PartialBlob>(cache_, file_, lock());
  }

  void write(PartialBlob& blob, std::size_t block) const {
    blob.expect_write();
    blob.write(block * kBlock, bytes(std::string_view(content_).substr(block * kBlock, kBlock)));
  }

  std::vector<std::pair<std::uint64_t, std::uint64_t>> missing(const PartialBlob& blob,
                                                               std::uint64_t longest) {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> out;
    for (const auto& range : blob.missing(longest)) out.emplace_back(range.first, range.end);
    return out;
  }

  std::size_t leftovers() const { return cache_.leftovers(file_.etag()).size(); }

  const std::string content_ = random_bytes(5 * kBlock + 12'345);
  const fs::path root_ =
      fs::temp_directory_path() /
      fmt::format("lerobot_partial_blob_test.{}.{}", ::getpid(),
                  ::testing::UnitTest::GetInstance()->current_test_info()->name());
  const RepoCache cache_{root_, {RepoType::kModel, "o/m"}};
  const RepoFile file_{.path = "model.safetensors",
                       .size = content_.size(),
                       .blob_id = std::string(40, 'b'),
                       .lfs_sha256 = sha256_hex(bytes(content_))};
};

TEST_F(PartialBlobTest, HashesBlocksInWhateverOrderTheyCome) {
  for (const std::vector<std::size_t>& order :
       {std::vector<std::size_t>{0, 1, 2, 3, 4, 5}, {5, 4, 3, 2, 1, 0}, {3, 0, 5, 1, 4, 2}}) {
    const auto blob = open();
    for (const std::size_t block : order) write(*blob, block);
    EXPECT_TRUE(blob->missing(kBlock).empty());
    EXPECT_EQ(blob->hash(), file_.etag());
    blob->rename_to(cache_.blob(file_.etag()));
    EXPECT_EQ(read_text_file(cache_.blob(file_.etag())), content_) << "no mark is left behind it";
    EXPECT_EQ(leftovers(), 0u);
  }
}

TEST_F(PartialBlobTest, TakesBlocksFromSeveralThreads) {
  const auto blob = open();
  std::vector<std::thread> threads;
  for (std::size_t block = 0; block < 6; ++block)
    threads.emplace_back([&, block] { write(*blob, block); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(blob->hash(), file_.etag());
}

TEST_F(PartialBlobTest, SplitsWhatIsMissingAtMultiplesOfTheLongest) {
  const auto blob = open();
  const std::uint64_t size = content_.size();
  using Ranges = std::vector<std::pair<std::uint64_t, std::uint64_t>>;
  EXPECT_EQ(missing(*blob, 4 * kBlock), (Ranges{{0, 4 * kBlock}, {4 * kBlock, size}}));
  write(*blob, 1);
  EXPECT_EQ(missing(*blob, 4 * kBlock),
            (Ranges{{0, kBlock}, {2 * kBlock, 4 * kBlock}, {4 * kBlock, size}}));
  EXPECT_EQ(blob->missing_bytes(), size - kBlock);
}

TEST_F(PartialBlobTest, IsContinuedByAnother) {
  {
    const auto blob = open();
    write(*blob, 0);
    write(*blob, 3);
  }
  ASSERT_EQ(leftovers(), 1u);
  const auto blob = open();
  EXPECT_EQ(blob->missing_bytes(), content_.size() - 2 * kBlock);
  for (const std::size_t block : {5, 4, 2, 1}) write(*blob, block);
  EXPECT_EQ(blob->hash(), file_.etag());
}

TEST_F(PartialBlobTest, LeavesNothingBehindThatHoldsNothing) {
  { const auto blob = open(); }
  EXPECT_EQ(leftovers(), 0u);
  {
    const auto blob = open();
    write(*blob, 0);
    blob->condemn();
  }
  EXPECT_EQ(leftovers(), 0u);
}

TEST_F(PartialBlobTest, ContinuesWhatPythonsClientWroteFromTheStart) {
  write_file_atomic(cache_.incomplete_blob(file_.etag()), content_.substr(0, 3 * kBlock + 77));
  {
    const auto blob = open();
    EXPECT_EQ(blob->missing_bytes(), content_.size() - 3 * kBlock);
  }
  const auto blob = open();
  EXPECT_EQ(blob->missing_bytes(), content_.size() - 3 * kBlock) << "it has marks now";
  for (const std::size_t block : {3, 4, 5}) write(*blob, block);
  EXPECT_EQ(blob->hash(), file_.etag());
}

TEST_F(PartialBlobTest, KeepsTheFullestOfSeveralLeftovers) {
  write_file_atomic(cache_.incomplete_blob(file_.etag()), content_.substr(0, kBlock));
  write_file_atomic(cache_.incomplete_blob(file_.etag()), content_.substr(0, 4 * kBlock));
  write_file_atomic(cache_.incomplete_blob(file_.etag()), "");
  const auto blob = open();
  EXPECT_EQ(blob->missing_bytes(), content_.size() - 4 * kBlock);
  EXPECT_EQ(leftovers(), 1u);
}

TEST_F(PartialBlobTest, TakesNothingFromAFileOfAnotherForm) {
  write_file_atomic(cache_.incomplete_blob(file_.etag()), content_ + "lerobot blocks 2xxxxxx");
  EXPECT_EQ(open()->missing_bytes(), content_.size());
  write_file_atomic(cache_.incomplete_blob(file_.etag()), content_ + "x");
  EXPECT_EQ(open()->missing_bytes(), content_.size());
  const fs::path link = cache_.incomplete_blob(file_.etag());
  write_file_atomic(root_ / "elsewhere", content_);
  fs::create_symlink(root_ / "elsewhere", link);
  EXPECT_EQ(open()->missing_bytes(), content_.size());
  EXPECT_EQ(read_text_file(root_ / "elsewhere"), content_) << "not written through a link";
}

TEST_F(PartialBlobTest, TouchesNoLeftoverWithoutAnExclusiveLock) {
  const fs::path other = cache_.incomplete_blob(file_.etag());
  write_file_atomic(other, content_.substr(0, 3 * kBlock));
  const PartialBlob blob(cache_, file_, BlobLock(std::nullopt));
  EXPECT_EQ(blob.missing_bytes(), content_.size());
  EXPECT_EQ(read_text_file(other), content_.substr(0, 3 * kBlock));
}

TEST_F(PartialBlobTest, IsLockedUntilItsEnd) {
  const auto blob = open();
  EXPECT_FALSE(cache_.lock_blob(file_.etag(), std::chrono::seconds(0)));
}

// Expected value: git hash-object.
TEST(DigestFor, IsGitsForRegularFiles) {
  Digest digest = digest_for({.path = "a", .size = 3, .blob_id = {}});
  digest.update("abc");
  EXPECT_EQ(digest.hex_digest(), "f2ba8f84ab5c1bce84a7b441cb1959cfc7093b7f");
}

}  // namespace
}  // namespace lerobot::hub
