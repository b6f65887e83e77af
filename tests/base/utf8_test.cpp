#include "lerobot/base/utf8.h"

#include <gtest/gtest.h>

namespace lerobot {
namespace {

TEST(Utf8, KnowsItFromOtherBytes) {
  EXPECT_TRUE(is_utf8(""));
  EXPECT_TRUE(is_utf8("caf\xc3\xa9 \xf0\x9f\xa4\x96"));
  EXPECT_FALSE(is_utf8("caf\xe9"));               // Latin-1
  EXPECT_FALSE(is_utf8("\xc0\xaf"));              // too long a form
  EXPECT_FALSE(is_utf8("\xed\xa0\x80"));          // half a surrogate pair
  EXPECT_FALSE(is_utf8(std::string("\xc3", 1)));  // cut
}

TEST(Utf8, PutsTheReplacementCharacterWhereAByteIsNone) {
  EXPECT_EQ(to_utf8("caf\xc3\xa9"), "caf\xc3\xa9");
  EXPECT_EQ(to_utf8("caf\xe9!"), "caf\xef\xbf\xbd!");
}

}  // namespace
}  // namespace lerobot
