#include "lerobot/base/file_lock.h"

#include <fstream>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <gtest/gtest.h>

namespace lerobot {
namespace {

using std::chrono::duration;

class FileLockTest : public ::testing::Test {
 protected:
  FileLockTest() {
    std::string pattern = (fs::temp_directory_path() / "lerobot-lock-XXXXXX").string();
    if (!::mkdtemp(pattern.data())) fail_system(errno, "{}: cannot be created", pattern);
    folder_ = pattern;
    path_ = folder_ / "a.lock";
  }
  ~FileLockTest() override { fs::remove_all(folder_); }

  fs::path folder_;
  fs::path path_;
};

TEST_F(FileLockTest, ASecondHolderWaitsUntilItsTimeIsOver) {
  const auto first = FileLock::acquire(path_, duration<double>(0));
  ASSERT_TRUE(first);
  int waited = 0;
  EXPECT_FALSE(FileLock::acquire(path_, duration<double>(0.25), [&] { ++waited; }));
  EXPECT_GE(waited, 2);
}

TEST_F(FileLockTest, TheLockGoesOverWhenItsHolderEnds) {
  auto first = FileLock::acquire(path_, duration<double>(0));
  std::thread release([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    first.reset();
  });
  EXPECT_TRUE(FileLock::acquire(path_, duration<double>(20)));
  release.join();
}

TEST_F(FileLockTest, AKilledHolderIsNoObstacle) {
  const pid_t child = ::fork();
  if (child == 0) {
    const auto lock = FileLock::acquire(path_, duration<double>(0));
    ::_exit(lock ? 0 : 1);  // without unlocking
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  EXPECT_TRUE(fs::exists(path_));
  EXPECT_TRUE(FileLock::acquire(path_, duration<double>(0)));
}

TEST_F(FileLockTest, AnExceptionWhileWaitingGivesUp) {
  const auto first = FileLock::acquire(path_, duration<double>(0));
  EXPECT_THROW(FileLock::acquire(path_, duration<double>(20), [] { fail("enough"); }), Error);
}

TEST_F(FileLockTest, ALockFileThatCannotBeCreatedIsAnError) {
  EXPECT_THROW(FileLock::acquire(folder_ / "missing" / "a.lock", duration<double>(0)), SystemError);
}

TEST_F(FileLockTest, AFileInUseIsNotRemoved) {
  std::ofstream(path_) << "x";
  {
    const UseLock one(path_);
    const UseLock two(path_);
    EXPECT_FALSE(UseLock::remove_unused(path_));
    EXPECT_TRUE(fs::exists(path_));
  }
  EXPECT_TRUE(UseLock::remove_unused(path_));
  EXPECT_FALSE(fs::exists(path_));
  EXPECT_FALSE(UseLock::remove_unused(path_));
}

}  // namespace
}  // namespace lerobot
