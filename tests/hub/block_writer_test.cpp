#include "lerobot/hub/block_writer.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <string>
#include <unistd.h>

#include <gmock/gmock.h>

#include "lerobot/hub/repo_cache.h"

namespace lerobot::hub {
namespace {

constexpr std::uint64_t kBlock = PartialBlob::kBlock;

class BlockWriterTest : public ::testing::Test {
 protected:
  ~BlockWriterTest() override { fs::remove_all(root_); }

  const fs::path root_ =
      fs::temp_directory_path() /
      fmt::format("lerobot_block_writer_test.{}.{}", ::getpid(),
                  ::testing::UnitTest::GetInstance()->current_test_info()->name());
  const RepoCache cache_{root_, {RepoType::kModel, "o/m"}};
};

TEST_F(BlockWriterTest, HasNoBlockUntilOneComesBackAndTellsSo) {
  std::atomic<int> freed = 0;
  BlockWriter writer(2, 1, [&] { ++freed; });
  auto first = writer.take();
  EXPECT_TRUE(writer.has_block());
  auto second = writer.take();
  EXPECT_FALSE(writer.has_block());
  writer.give_back(std::move(first));
  EXPECT_TRUE(writer.has_block());
  EXPECT_EQ(freed, 1);
  writer.give_back(std::move(second));
  EXPECT_EQ(freed, 1) << "nobody had to wait";
}

TEST_F(BlockWriterTest, WritesWhatIsSubmittedBeforeItEnds) {
  const std::string content(3 * kBlock, 'x');
  Sha256 digest;
  digest.update(content);
  const RepoFile file{.path = "m",
                      .size = content.size(),
                      .blob_id = std::string(40, 'b'),
                      .lfs_sha256 = digest.hex_digest()};
  auto lock = cache_.lock_blob(file.etag(), std::chrono::seconds(5));
  const auto blob = std::make_shared<PartialBlob>(cache_, file, std::move(*lock));
  {
    BlockWriter writer(2, 2, [] {});
    for (const std::uint64_t block : {2, 0, 1}) {
      auto memory = writer.take();
      memory->offset = block * kBlock;
      memory->filled = kBlock;
      std::fill_n(memory->memory.get(), kBlock, 'x');
      writer.submit(std::move(memory), blob);
    }
  }
  EXPECT_EQ(blob->missing_bytes(), 0u);
  EXPECT_EQ(blob->hash(), file.etag());
}

}  // namespace
}  // namespace lerobot::hub
