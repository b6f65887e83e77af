#include "lerobot/base/base64.h"

#include <string>

#include <gtest/gtest.h>

namespace lerobot {
namespace {

TEST(Base64, GivesTheVectorsOfItsStandard) {  // RFC 4648, section 10
  EXPECT_EQ(base64(""), "");
  EXPECT_EQ(base64("f"), "Zg==");
  EXPECT_EQ(base64("fo"), "Zm8=");
  EXPECT_EQ(base64("foo"), "Zm9v");
  EXPECT_EQ(base64("foob"), "Zm9vYg==");
  EXPECT_EQ(base64("fooba"), "Zm9vYmE=");
  EXPECT_EQ(base64("foobar"), "Zm9vYmFy");
}

TEST(Base64, TakesEveryByte) { EXPECT_EQ(base64(std::string("\0\xff\xfe\xfb", 4)), "AP/++w=="); }

}  // namespace
}  // namespace lerobot
