#include "lerobot/hub/content_range.h"

#include <gtest/gtest.h>

namespace lerobot::hub {
namespace {

TEST(ContentRange, ReadsTheThreeFormsOfRfc9110) {
  const auto full = parse_content_range("bytes 42-1233/1234");
  ASSERT_TRUE(full);
  EXPECT_EQ(full->first, 42u);
  EXPECT_EQ(full->last, 1233u);
  EXPECT_EQ(full->size, 1234u);
  const auto unknown = parse_content_range("bytes 42-1233/*");
  ASSERT_TRUE(unknown);
  EXPECT_EQ(unknown->last, 1233u);
  EXPECT_EQ(unknown->size, std::nullopt);
  const auto unsatisfied = parse_content_range("bytes */1234");
  ASSERT_TRUE(unsatisfied);
  EXPECT_EQ(unsatisfied->first, std::nullopt);
  EXPECT_EQ(unsatisfied->size, 1234u);
}

TEST(ContentRange, RefusesWhatMakesNoSense) {
  for (const char* text :
       {"", "bytes", "bytes ", "bytes 1-2", "bytes 2-1/5", "bytes 0-5/5", "bytes -1-2/5",
        "bytes 0-1/-5", "bytes 0x1-2/5", "bytes 0 -1/5", "items 0-1/5", "bytes */*", "bytes=0-1/5",
        "bytes 0-18446744073709551616/*", "bytes 0-1/5 "})
    EXPECT_FALSE(parse_content_range(text)) << text;
}

TEST(ContentRange, ReadsCountsOfDigitsOnly) {
  EXPECT_EQ(parse_byte_count("18446744073709551615"), UINT64_MAX);
  for (const char* text : {"", "-1", "+1", " 1", "1 ", "1, 1", "18446744073709551616", "1e3"})
    EXPECT_EQ(parse_byte_count(text), std::nullopt) << text;
}

}  // namespace
}  // namespace lerobot::hub
