#include "lerobot/base/recently_used.h"

#include <string>

#include <gtest/gtest.h>

namespace lerobot {
namespace {

TEST(RecentlyUsed, ForgetsTheEntryThatWasNotUsedForTheLongestTime) {
  RecentlyUsed<std::string, int> cache(2);
  cache.insert("a", 1);
  cache.insert("b", 2);
  ASSERT_NE(cache.find("a"), nullptr);
  cache.insert("c", 3);
  EXPECT_EQ(cache.find("b"), nullptr);
  ASSERT_NE(cache.find("a"), nullptr);
  EXPECT_EQ(*cache.find("a"), 1);
  EXPECT_EQ(*cache.find("c"), 3);
  EXPECT_EQ(cache.size(), 2u);
}

TEST(RecentlyUsed, KeepsTheLastEntryHoweverHeavyItIs) {
  RecentlyUsed<int, int> cache(10);
  cache.insert(1, 1, 4);
  cache.insert(2, 2, 100);
  EXPECT_EQ(cache.find(1), nullptr);
  EXPECT_NE(cache.find(2), nullptr);
}

TEST(RecentlyUsed, CountsAReplacedEntryOnce) {
  RecentlyUsed<int, int> cache(2);
  cache.insert(1, 1);
  cache.insert(1, 5);
  cache.insert(2, 2);
  ASSERT_NE(cache.find(1), nullptr);
  EXPECT_EQ(*cache.find(1), 5);
}

}  // namespace
}  // namespace lerobot
