#include <gtest/gtest.h>

#include "lerobot/base/digest.h"
#include "lerobot/hub/xet/shard.h"
#include "lerobot/hub/xet/xorb.h"
#include "tests/hub/xet_content.h"

namespace lerobot::hub::xet {
namespace {

std::uint32_t add_all(XorbBuilder& builder, const std::string& text) {
  std::uint32_t last = 0;
  for (std::span<const std::uint8_t> rest = bytes_of(text); !rest.empty();) {
    const auto chunk = rest.first(first_chunk_size(rest));
    last = builder.add(chunk_hash(chunk), chunk);
    rest = rest.subspan(chunk.size());
  }
  return last;
}

// What hf_xet 1.8.0 sent when it uploaded "Hello World!" and random_content(7, 1 MiB), recorded by
// a server: it had put both into one xorb, and the file of 1 MiB first into the shard.
TEST(XetXorb, AndShardAreTheBytesThatHfXetSends) {
  const std::string hello = "Hello World!";
  const std::string random = random_content(7, 1 << 20);
  XorbBuilder builder;
  add_all(builder, hello);
  EXPECT_EQ(add_all(builder, random), 21u);
  const Xorb xorb = builder.finish();
  EXPECT_TRUE(builder.empty());
  EXPECT_EQ(xorb.hash.hex(), "5df310bd845e164dda241467a1d626feb6aa3d14459a7b00b5838167437ceb24");
  EXPECT_EQ(xorb.content_size, hello.size() + random.size());
  EXPECT_EQ(sha256_hex(bytes_of(xorb.serialized)),
            "9f2e3252fa84de3d76052472c1aec181889a67afe9fd2f6b2be81c8cced0db17");

  const std::span<const SizedHash> chunks = xorb.chunks;
  const auto file = [&](const std::string& content, std::uint32_t first, std::uint32_t last) {
    return ShardFile{
        file_hash(chunks_of(content)),
        {{xorb.hash, content.size(), first, last, range_hash(chunks.subspan(first, last - first))}},
        sha256_as_xet_hash(sha256_hex(bytes_of(content)))};
  };
  const ShardFile files[] = {file(random, 1, 22), file(hello, 0, 1)};
  const ShardXorb xorbs[] = {{xorb.hash, xorb.chunks, xorb.content_size}};
  const std::string shard = serialize_shard(files, xorbs);
  EXPECT_EQ(shard.size(), 1632u);
  EXPECT_EQ(sha256_hex(bytes_of(shard)),
            "bc9386aa62b85f71792fd3f5b09274eaf26bd996fe24287b175d75b6bc3a0d7e");
}

TEST(XetXorb, IsFullBeforeItsSerialisedFormExceedsWhatServersTake) {
  XorbBuilder builder;
  const std::string chunk(kLargestChunk, 'x');
  int chunks = 0;
  for (; !builder.is_full_for(chunk.size()); ++chunks) builder.add({}, bytes_of(chunk));
  EXPECT_EQ(chunks, 511);  // 512 of them are 64 MiB, without their headers
  EXPECT_FALSE(builder.is_full_for(8192));
  EXPECT_LE(builder.finish().serialized.size(), kLargestXorb);
}

TEST(XetXorb, IsFullWithTheMostChunks) {
  XorbBuilder builder;
  for (std::size_t i = 0; i < kMostChunksOfXorb; ++i) {
    ASSERT_FALSE(builder.is_full_for(1));
    builder.add({}, bytes_of("x"));
  }
  EXPECT_TRUE(builder.is_full_for(1));
}

}  // namespace
}  // namespace lerobot::hub::xet
