#include "lerobot/config/step_range.h"

#include <gtest/gtest.h>

namespace lerobot::config {
namespace {

TEST(StepRange, HasBothItsEnds) {
  const auto range = parse_step_range("10:12");
  ASSERT_TRUE(range);
  EXPECT_EQ(range->first, 10);
  EXPECT_EQ(range->last, 12);
  EXPECT_TRUE(parse_step_range("1:1"));
}

TEST(StepRange, IsRefusedInAnyOtherForm) {
  for (const char* text : {"", ":", "3", "3:", ":3", "0:3", "4:3", "-1:3", "a:b", "1:2:3", "1 :2",
                           "1:2 ", "1.5:2", "1:99999999999999999999"})
    EXPECT_FALSE(parse_step_range(text)) << text;
}

}  // namespace
}  // namespace lerobot::config
