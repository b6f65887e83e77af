#include "lerobot/hub/home.h"

#include <cstdlib>
#include <pwd.h>
#include <unistd.h>

#include <gtest/gtest.h>

namespace lerobot::hub {
namespace {

class Home : public ::testing::Test {
 protected:
  Home() {
    for (const char* name : {"HF_LEROBOT_HOME", "HF_HOME", "XDG_CACHE_HOME"}) ::unsetenv(name);
    ::setenv("HOME", "/home/robot", 1);
  }
};

TEST_F(Home, IsFoundInTheOrderOfLeRobot) {
  EXPECT_EQ(lerobot_home(), "/home/robot/.cache/huggingface/lerobot");
  ::setenv("XDG_CACHE_HOME", "/cache", 1);
  EXPECT_EQ(lerobot_home(), "/cache/huggingface/lerobot");
  ::setenv("HF_HOME", "/hf", 1);
  EXPECT_EQ(hf_home(), "/hf");
  EXPECT_EQ(lerobot_home(), "/hf/lerobot");
  ::setenv("HF_LEROBOT_HOME", "/le", 1);
  EXPECT_EQ(lerobot_home(), "/le");
}

TEST_F(Home, TakesAnEmptyVariableForUnset) {
  for (const char* name : {"HF_LEROBOT_HOME", "HF_HOME", "XDG_CACHE_HOME"}) ::setenv(name, "", 1);
  EXPECT_EQ(lerobot_home(), "/home/robot/.cache/huggingface/lerobot");
}

TEST_F(Home, ExpandsTheUsersFolderAndVariables) {
  ::setenv("HF_LEROBOT_HOME", "~/le", 1);
  EXPECT_EQ(lerobot_home(), "/home/robot/le");
  ::unsetenv("HF_LEROBOT_HOME");
  ::setenv("SCRATCH_FOR_TEST", "/scratch", 1);
  ::unsetenv("NO_SUCH_VARIABLE");
  ::setenv("HF_HOME", "$SCRATCH_FOR_TEST/${SCRATCH_FOR_TEST}_2/$NO_SUCH_VARIABLE/$", 1);
  EXPECT_EQ(hf_home(), "/scratch//scratch_2/$NO_SUCH_VARIABLE/$");
  EXPECT_EQ(expand_user("~"), "/home/robot");
  EXPECT_EQ(expand_user("a/~"), "a/~");
  EXPECT_EQ(expand_user("~no-such-user-here/x"), "~no-such-user-here/x");
  const passwd* root = ::getpwnam("root");
  ASSERT_NE(root, nullptr);
  EXPECT_EQ(expand_user("~root/x"), std::string(root->pw_dir) + "/x");
}

}  // namespace
}  // namespace lerobot::hub
