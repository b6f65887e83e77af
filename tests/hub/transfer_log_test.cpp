#include "lerobot/hub/transfer_log.h"

#include <thread>

#include <gmock/gmock.h>

namespace lerobot::hub {
namespace {

using ::testing::HasSubstr;

TEST(TransferLog, ShowsBothAmountsInTheUnitOfTheWhole) {
  EXPECT_EQ(describe_bytes(1'200'000'000, 4'000'000'000), "1.2/4.0 GB");
  EXPECT_EQ(describe_bytes(0, 999), "0/999 B");
  EXPECT_EQ(describe_bytes(120'000'000, 206'000'000), "120.0/206.0 MB");
}

TEST(TransferLog, SaysNothingOfWhatIsOverSoon) {
  ::testing::internal::CaptureStderr();
  TransferLog log("Fetching", "robot/pusht");
  log.report({1, 2, 10, 20});
  log.report({2, 2, 20, 20});
  log.report({});
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST(TransferLog, TellsFilesBytesAndSpeedEveryTwoSeconds) {
  ::testing::internal::CaptureStderr();
  TransferLog log("Fetching", "robot/pusht");
  std::this_thread::sleep_for(std::chrono::milliseconds(2050));
  log.report({1, 3, 100'000'000, 300'000'000});
  log.report({2, 3, 200'000'000, 300'000'000});
  log.report({3, 3, 300'000'000, 300'000'000});
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, ::testing::ContainsRegex(
                        "Fetching robot/pusht: 1/3 files, 100.0/300.0 MB, 4[0-9].[0-9] MB/s"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("2/3 files")));
  EXPECT_THAT(text, HasSubstr("3/3 files, 300.0/300.0 MB")) << "the end of what took long";
}

}  // namespace
}  // namespace lerobot::hub
