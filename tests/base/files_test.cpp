#include "lerobot/base/files.h"

#include <csignal>
#include <fstream>
#include <sys/resource.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lerobot/base/error.h"
#include "tests/support/error_of.h"

namespace lerobot {
namespace {

using ::testing::HasSubstr;

class FilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / fmt::format("lerobot files {}", ::getpid());
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  fs::path folder_;
};

TEST_F(FilesTest, AMissingFileIsNamed) {
  EXPECT_THAT(error_of([&] { MappedFile(folder_ / "absent"); }),
              HasSubstr("absent: cannot open: No such file or directory"));
  EXPECT_THAT(error_of([&] { read_text_file(folder_); }), HasSubstr("is a directory"));
  EXPECT_THAT(error_of([&] { MappedFile{folder_}; }), HasSubstr("is not a regular file"));
}

TEST_F(FilesTest, AnEmptyFileMapsToNoBytes) {
  std::ofstream(folder_ / "empty").flush();
  EXPECT_TRUE(MappedFile(folder_ / "empty").bytes().empty());
}

TEST_F(FilesTest, AWriterThatIsNotCommittedLeavesNothing) {
  {
    FileWriter writer(folder_ / "half");
    writer.write(std::string(3 << 20, 'x'));
  }
  EXPECT_FALSE(fs::exists(folder_ / "half"));
}

TEST_F(FilesTest, AWriterKeepsTheOrderOfSmallAndLargePieces) {
  std::string expected;
  FileWriter writer(folder_ / "whole");
  for (std::size_t size : {10, 2 << 20, 1, 700000, 700000, 0, 5}) {
    const std::string piece(size, static_cast<char>('a' + expected.size() % 26));
    writer.write(piece);
    expected += piece;
  }
  EXPECT_EQ(writer.written(), expected.size());
  writer.commit();
  EXPECT_EQ(read_text_file(folder_ / "whole"), expected);
}

TEST_F(FilesTest, AFullDiskIsAnErrorAndKeepsTheOldFile) {
  write_file_atomic(folder_ / "settings.json", "old");
  // A limit on file size stands in for a full disk: write() fails in the same way.
  const auto previous_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit previous{};
  getrlimit(RLIMIT_FSIZE, &previous);
  const rlimit limit{1 << 20, previous.rlim_max};
  setrlimit(RLIMIT_FSIZE, &limit);
  const std::string message =
      error_of([&] { write_file_atomic(folder_ / "settings.json", std::string(4 << 20, 'n')); });
  setrlimit(RLIMIT_FSIZE, &previous);
  std::signal(SIGXFSZ, previous_handler);
  EXPECT_THAT(message, HasSubstr("cannot write"));
  EXPECT_EQ(read_text_file(folder_ / "settings.json"), "old");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
}

TEST_F(FilesTest, DirectoriesAreMadeWithThoseAboveThemOrNamed) {
  make_directories(folder_ / "a" / "b");
  make_directories(folder_ / "a" / "b");
  EXPECT_TRUE(fs::is_directory(folder_ / "a" / "b"));
  std::ofstream(folder_ / "file") << "x";
  EXPECT_THAT(error_of([&] { make_directories(folder_ / "file" / "c"); }),
              HasSubstr((folder_ / "file" / "c").string() + ": cannot create the directory"));
}

TEST_F(FilesTest, GitLfsPointersAreRecognised) {
  std::ofstream(folder_ / "pointer")
      << "version https://git-lfs.github.com/spec/v1\noid sha256:0\n";
  std::ofstream(folder_ / "short") << "version";
  EXPECT_TRUE(is_git_lfs_pointer(folder_ / "pointer"));
  EXPECT_FALSE(is_git_lfs_pointer(folder_ / "short"));
  EXPECT_FALSE(is_git_lfs_pointer(folder_ / "absent"));
}

}  // namespace
}  // namespace lerobot
