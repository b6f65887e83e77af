#include "lerobot/hub/xet/xet_hash.h"

#include <gtest/gtest.h>

#include "tests/hub/xet_content.h"

namespace lerobot::hub::xet {
namespace {

XetHash parse(const std::string& hex) { return sha256_as_xet_hash(hex); }

// draft-denis-xet-05, appendix C.
TEST(XetHash, GivesTheVectorsOfTheProtocol) {
  EXPECT_EQ(chunk_hash(bytes_of("Hello World!")).hex(),
            "d8d408e608fb9ca213b9909a65d86d725f2de4d8d540324be8a363e7a6e228cb");
  const SizedHash children[] = {
      {parse("c28f58387a60d4aa200c311cda7c7f77f686614864f5869eadebf765d0a14a69"), 100},
      {parse("6e4e3263e073ce2c0e78cc770c361e2778db3b054b98ab65e277fc084fa70f22"), 200}};
  EXPECT_EQ(xorb_hash(children).hex(),
            "be64c7003ccd3cf4357364750e04c9592b3c36705dee76a71590c011766b6c14");
  EXPECT_EQ(range_hash(children).hex(),
            "eb06a8ad81d588ac05d1d9a079232d9c1e7d0b07232fa58091caa7bf333a2768");
}

TEST(XetHash, ShowsFourLittleEndianNumbers) {
  XetHash hash;
  for (std::size_t i = 0; i < hash.bytes.size(); ++i) hash.bytes[i] = static_cast<std::uint8_t>(i);
  const std::string hex = "07060504030201000f0e0d0c0b0a090817161514131211101f1e1d1c1b1a1918";
  EXPECT_EQ(hash.hex(), hex);
  EXPECT_EQ(sha256_as_xet_hash(hex), hash);
}

// Expected: hf_xet.hash_files of hf_xet 1.8.0. They depend on where each chunk ends and on the
// whole tree of hashes.
TEST(XetHash, OfFilesIsWhatHfXetComputes) {
  struct Case {
    std::string name;
    std::string content;
    const char* hash;
  };
  const Case cases[] = {
      {"empty", "", "0000000000000000000000000000000000000000000000000000000000000000"},
      {"a byte", "a", "49a7fffaf5f34109d4a191757f3e541e26437dcd1e0e83153454a503757856be"},
      {"8191", random_content(7, 8191),
       "7d6558216e0ce0746d89a0ca4a091e0787610504003a563017a3a4e61b113dc3"},
      {"8192", random_content(7, 8192),
       "b2e2c351e025c8740c4f385e2f11f691327643c2c3709c4a3a08821c0fbbc610"},
      {"8193", random_content(7, 8193),
       "35e45d9ffa4a9046b9a8b9b3b9640b4fd9f5c9af8dcf1f646fdc7823407b5f75"},
      {"64 KiB", random_content(7, 65536),
       "5c81446a45e71d3a1238318bf3324a969f0d7904368ff7cd93825c1b0e29f96e"},
      {"128 KiB", random_content(7, 131072),
       "00d33237e5338c5392e348bd92c3ae6dd2eb413c2ef3566e99565d49e25a6909"},
      {"128 KiB and a byte", random_content(7, 131073),
       "de427c243c70aefe65a027a2080735d38afbb3157b72f839b56c88314b13a8a3"},
      {"1 MiB", random_content(7, 1 << 20),
       "71645451c88bd46f201c6413cd87750a21b2ac987eae25e4bf57ed9d4a41079c"},
      {"10 MB", random_content(7, 10'000'000),
       "caf28178c3189ec71c07890c42a736d8a5f8d9b0c63a5dbf38cbb41c0a6466d2"},
      {"zeros", std::string(1 << 20, '\0'),
       "1e671fe124cea35586b1d1c30b9d4fc6b4e05ee60c93406986444f7c23d54056"},
      {"repetitive", repeated(random_content(3, 70'000), 40),
       "6ee9054fddc28416ce9852d876868450b49dbbc34b50bbb992901d1c208ade05"},
      {"100 MB", random_content(11, 100'000'000),
       "7efa00ec82c8f14ccdf85afd58bfb0dba57b053d6636cc2036b5ed0e334fee4d"}};
  for (const Case& c : cases) EXPECT_EQ(file_hash(chunks_of(c.content)).hex(), c.hash) << c.name;
}

TEST(XetChunking, FindsTheSamePlacesBehindOtherContent) {
  const std::string content = random_content(5, 2'000'000);
  const auto alone = chunks_of(content);
  const auto shifted = chunks_of("some bytes before it" + content);
  // The last chunks are equal: the cuts have found each other again.
  ASSERT_GT(alone.size(), 20u);
  ASSERT_GT(shifted.size(), 20u);
  for (std::size_t i = 1; i <= 10; ++i)
    EXPECT_EQ(alone[alone.size() - i].hash, shifted[shifted.size() - i].hash);
}

TEST(XetChunking, KeepsItsBounds) {
  for (const SizedHash& chunk : chunks_of(std::string(1'000'000, 'x')))
    EXPECT_LE(chunk.size, kLargestChunk);
  const auto chunks = chunks_of(random_content(9, 5'000'000));
  for (std::size_t i = 0; i + 1 < chunks.size(); ++i) EXPECT_GE(chunks[i].size, kSmallestChunk);
}

}  // namespace
}  // namespace lerobot::hub::xet
