#include "lerobot/base/log.h"

#include <gmock/gmock.h>

namespace lerobot::log {
namespace {

TEST(Log, ALineOfAnotherRankSaysWhoseItIs) {
  ::testing::internal::CaptureStderr();
  set_rank(3);
  warning("the disk is {}", "full");
  set_rank(0);
  info("going on");
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, ::testing::HasSubstr(" rank 3: the disk is full\n"));
  EXPECT_THAT(text, ::testing::EndsWith(" going on\n"));
  EXPECT_THAT(text, ::testing::Not(::testing::HasSubstr("rank 0")));
}

TEST(Log, LinesBelowTheLevelAreDropped) {
  ::testing::internal::CaptureStderr();
  set_level(Level::kWarning);
  info("quiet");
  warning("loud");
  set_level(Level::kInfo);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ::testing::AllOf(::testing::HasSubstr("WARNING"), ::testing::HasSubstr("loud"),
                               ::testing::Not(::testing::HasSubstr("quiet"))));
}

}  // namespace
}  // namespace lerobot::log
