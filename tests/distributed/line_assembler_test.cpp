#include "lerobot/distributed/launch/line_assembler.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lerobot::distributed {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class LineAssemblerTest : public ::testing::Test {
 protected:
  void feed(std::string_view bytes) {
    assembler_.feed(
        bytes, [this](std::string_view line) { lines_.emplace_back(line); },
        [this](std::string_view bar) { bars_.emplace_back(bar); });
  }
  void finish() {
    assembler_.finish([this](std::string_view line) { lines_.emplace_back(line); });
  }

  LineAssembler assembler_;
  std::vector<std::string> lines_;
  std::vector<std::string> bars_;
};

TEST_F(LineAssemblerTest, LinesComeWholeWhereverTheReadsEnd) {
  for (const char* piece : {"on", "e\ntw", "o\n\nthr", "ee"}) feed(piece);
  EXPECT_THAT(lines_, ElementsAre("one", "two", ""));
  finish();
  EXPECT_THAT(lines_, ElementsAre("one", "two", "", "three"));
  EXPECT_THAT(bars_, IsEmpty());
}

TEST_F(LineAssemblerTest, AProgressBarIsItsLastState) {
  feed("\r 10%");
  feed("\r 20%\r 30");
  feed("%");
  EXPECT_THAT(lines_, IsEmpty());
  EXPECT_THAT(bars_, ElementsAre(" 10%", " 30", " 30%"));
  feed("\r100%\nnext\n");
  EXPECT_THAT(lines_, ElementsAre("100%", "next"));
}

TEST_F(LineAssemblerTest, ABarThatReturnsBehindItsTextIsTheSame) {
  feed("10%\r");
  feed("20%\r");
  EXPECT_THAT(bars_, ElementsAre("10%", "20%"));
  finish();
  EXPECT_THAT(lines_, ElementsAre("20%"));
}

TEST_F(LineAssemblerTest, LinesOfWindowsAreLines) {
  feed("one\r\ntwo\r");
  feed("\nthree\r\r\n");
  EXPECT_THAT(lines_, ElementsAre("one", "two", "three"));
}

TEST_F(LineAssemblerTest, AnEndlessLineIsCut) {
  const std::string piece(300'000, 'x');
  for (int i = 0; i < 4; ++i) feed(piece);
  feed("\n");
  ASSERT_EQ(lines_.size(), 2u);
  EXPECT_EQ(lines_[0].size(), LineAssembler::kLongestLine);
  EXPECT_EQ(lines_[0].size() + lines_[1].size(), 1'200'000u);
}

}  // namespace
}  // namespace lerobot::distributed
