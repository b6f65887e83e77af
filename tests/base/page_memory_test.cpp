#include "lerobot/base/page_memory.h"

#include <limits>
#include <utility>

#include <gtest/gtest.h>

#include "lerobot/base/error.h"

namespace lerobot {
namespace {

TEST(PageMemory, MovesItsBytesAndLeavesTheSourceEmpty) {
  PageMemory memory(10'000);
  EXPECT_EQ(memory.bytes()[9'999], 0);
  memory.bytes()[9'999] = 7;
  PageMemory moved(std::move(memory));
  EXPECT_EQ(moved.bytes()[9'999], 7);
  EXPECT_EQ(memory.size(), 0u);
  EXPECT_EQ(PageMemory().size(), 0u);
}

TEST(PageMemory, MoreThanTheSystemHasIsAnErrorThatNamesTheSize) {
  try {
    PageMemory memory(std::numeric_limits<std::size_t>::max() / 4);
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("4611686018427387903 bytes"), std::string::npos);
  }
}

}  // namespace
}  // namespace lerobot
