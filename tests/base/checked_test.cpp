#include "lerobot/base/checked.h"

#include <limits>

#include <gtest/gtest.h>

namespace lerobot {
namespace {

TEST(Checked, OverflowAndNarrowingAreErrorsThatNameTheQuantity) {
  EXPECT_EQ(checked_add<std::uint64_t>(1, 2, "offset"), 3u);
  EXPECT_THROW(checked_add(std::numeric_limits<std::uint64_t>::max(), std::uint64_t{1}, "offset"),
               Error);
  EXPECT_THROW(checked_mul(std::int64_t{1} << 40, std::int64_t{1} << 40, "size"), Error);
  EXPECT_EQ(checked_cast<std::int32_t>(std::uint64_t{7}, "count"), 7);
  try {
    checked_cast<std::uint32_t>(std::int64_t{-1}, "sample count");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "sample count is out of range: -1");
  }
}

TEST(Errors, CommandLineMistakesExitWithTwo) {
  EXPECT_EQ(Error("x").exit_code(), 1);
  EXPECT_EQ(UsageError("x").exit_code(), 2);
}

}  // namespace
}  // namespace lerobot
